"""The `query` command, and `read`, its old name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from omnigraph.cli.mutate import FILE, errors_in, parameters, source
from omnigraph.cli.output import JSON
from omnigraph.cli.scope import address, address_options, open_to_read, state_options

if TYPE_CHECKING:
    from omnigraph.read.budget import Budget

F = TypeVar("F", bound=Callable[..., object])

FORMATS = ("table", "kv", "csv", "json", "jsonl", "arrow")


def query_options(command: F) -> F:
    """Add the options that give a query, its parameters, the snapshot and the budget."""
    for option in reversed(
        [
            click.argument("name", required=False),
            address_options(positional=False),
            click.option(
                "--query", "query_path", type=FILE, metavar="FILE", help="Query file (.gq); NAME selects one."
            ),
            click.option("-e", "--query-string", metavar="GQ", help="Query text."),
            click.option("--params", metavar="JSON", help="Parameters, as a JSON object."),
            click.option("--params-file", type=FILE, metavar="FILE", help="Parameters, in a JSON file."),
            state_options(),
            click.option("--seconds", type=click.FloatRange(min=0), help="Time limit.  [default: 60]"),
            click.option("--memory", metavar="AMOUNT", help="Memory limit, as in 512MiB."),
            click.option("--rows", type=click.IntRange(min=0), help="Maximum number of rows to read."),
            click.option("--returned", type=click.IntRange(min=0), help="Maximum number of rows in the result."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@query_options
@click.option("--format", type=click.Choice(FORMATS), default="table", help="Output format.  [default: table]")
@JSON
def query(
    name: str | None,
    uri_option: str | None,
    store: str | None,
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
    format: str,
    as_json: bool,
) -> None:
    """Run a query that reads.

    NAME selects a query if the source has several. The query reads one snapshot. --json is the same as --format json.
    """
    uri = address(uri_option, store)
    text = source(query_path, query_string)
    given = parameters(params, params_file)
    from omnigraph.cli.formats import print_result

    with open_to_read(uri) as graph, errors_in(query_path):
        allowed = budget(seconds, memory, rows, returned)
        found = graph.query(text, given, name=name, branch=branch, at=at, budget=allowed)
    print_result(found, "json" if as_json else format)


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
