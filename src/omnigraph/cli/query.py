"""The `query` command, and `read`, its old name."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from omnigraph.cli.files import SOURCE_FILE
from omnigraph.cli.mutate import errors_in, parameters, stored_or_source
from omnigraph.cli.operator_config import FORMATS, read_config
from omnigraph.cli.output import COLOR, JSON
from omnigraph.cli.project import find_project
from omnigraph.cli.scope import address_options, connect_to_read, state_options
from omnigraph.cli.served import ServedGraph
from omnigraph.cli.target import Target
from omnigraph.errors import cut

if TYPE_CHECKING:
    from omnigraph.read.budget import Budget

F = TypeVar("F", bound=Callable[..., object])

ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "ndjson",
    ".ndjson": "ndjson",
    ".md": "markdown",
    ".arrow": "arrow",
    ".parquet": "parquet",
    ".txt": "table",
}
"""The format of a file by its ending."""


def query_options(*, served: bool) -> Callable[[F], F]:
    """Add the options that give a query, its parameters, the snapshot and the budget.

    Args:
        served: whether the command also works with a graph of a server.
    """
    options: list[Callable[[F], F]] = [
        click.argument("name", required=False),
        address_options(positional=False, served=served),
        click.option(
            "--query", "query_path", type=SOURCE_FILE, metavar="FILE", help="Query file (.gq); NAME selects one."
        ),
        click.option("-e", "--query-string", metavar="GQ", help="Query text."),
        click.option("--params", metavar="JSON", help="Parameters, as a JSON object."),
        click.option("--params-file", type=SOURCE_FILE, metavar="FILE", help="Parameters, in a JSON file."),
        state_options(),
        click.option("--seconds", type=click.FloatRange(min=0), help="Time limit.  [default: 60]"),
        click.option("--memory", metavar="AMOUNT", help="Memory limit, as in 512MiB."),
        click.option("--rows", type=click.IntRange(min=0), help="Maximum number of rows to read."),
        click.option("--returned", type=click.IntRange(min=0), help="Maximum number of rows in the result."),
    ]

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@query_options(served=True)
@click.option("--format", type=click.Choice(FORMATS), help="Output format.  [default: by --out, else table]")
@click.option("--out", metavar="FILE", help=f"Write to a file; its ending chooses the format: {', '.join(ENDINGS)}.")
@click.option("--all", "everything", is_flag=True, help="Show all rows on a terminal, not only the first 50.")
@COLOR
@JSON
def query(
    name: str | None,
    target: Target,
    query_path: Path | None,
    query_string: str | None,
    params: str | None,
    params_file: Path | None,
    branch: str | None,
    at: str | datetime | None,
    seconds: float | None,
    memory: str | None,
    rows: int | None,
    returned: int | None,
    format: str | None,
    out: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Run a query that reads.

    NAME selects a query if the source has several. Without a source, NAME is a stored query of a server. The query
    reads one snapshot. --json is the same as --format json.
    """
    place = target.place()
    format = chosen_format("json" if as_json else format, out)
    text = stored_or_source(place, name, query_path, query_string)
    given = parameters(params, params_file)
    from omnigraph.cli.formats import Layout, print_result, write_result

    with connect_to_read(place) as graph, errors_in(query_path):
        allowed = budget(seconds, memory, rows, returned)
        began = time.perf_counter()
        if not isinstance(graph, ServedGraph):
            assert text is not None
            found = graph.query(text, given, name=name, branch=branch, at=at, budget=allowed)
        else:
            branch, commit = graph.state(branch, at)
            if text is not None:
                found = graph.query(text, given, name=name, branch=branch, at=commit, budget=allowed)
            else:
                found = graph.queries.invoke(str(name), given, branch=branch, at=commit, budget=allowed)
        took = time.perf_counter() - began
    if out is None or out == "-":
        print_result(found, format, everything=everything, seconds=took, layout=Layout.of_config())
    else:
        write_result(found, format, out, Layout.of_config())


def chosen_format(format: str | None, out: str | None, preferred: str | None = None) -> str:
    """The output format: the given one, or that of the ending of the output file, or a default.

    Args:
        format: the given format.
        out: the output file.
        preferred: the default, if it is not that of the configuration.

    Raises:
        UsageError: the ending is unknown.
        InputError: the file cannot be written.
    """
    if out is not None and out != "-":
        from omnigraph.storage.files.local_output import check_output_file

        if format is None and (format := ENDINGS.get(Path(out).suffix.lower())) is None:
            raise click.UsageError(
                f"the ending of '{cut(out)}' names no format: use {', '.join(ENDINGS)}, or add --format"
            )
        check_output_file(out)
    project = find_project()
    return format or preferred or (project and project.output) or read_config().output or "table"


@click.command(hidden=True, params=query.params, help="The old name of 'query'.")
@click.pass_context
def read(ctx: click.Context, /, **values: object) -> None:
    click.echo("'read' is deprecated, use 'query'", err=True)
    ctx.forward(query)


def budget(seconds: float | None, memory: str | None, rows: int | None, returned: int | None) -> Budget:
    """The budget of a read: the given limits, and the defaults of all other limits.

    Raises:
        InputError: `memory` is not an amount.
    """
    from omnigraph.amounts import parse_amount
    from omnigraph.read.budget import Budget

    default = Budget()
    return replace(
        default,
        seconds=default.seconds if seconds is None else seconds,
        memory=default.memory if memory is None else parse_amount("--memory", memory),
        rows=default.rows if rows is None else rows,
        returned=default.returned if returned is None else returned,
    )
