"""Running a query that reads: `query`, and `read`, its former name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from omnigraph.cli.export import one_view
from omnigraph.cli.mutate import FILE, parameters, source
from omnigraph.cli.output import JSON
from omnigraph.cli.scope import address, addressed, open_to_read

if TYPE_CHECKING:
    from omnigraph.read.budget import Budget

F = TypeVar("F", bound=Callable[..., object])

FORMATS = ("table", "kv", "csv", "json", "jsonl", "arrow")


def asking(command: F) -> F:
    """What to ask, of which state, and what that may take."""
    for option in reversed(
        [
            click.argument("name", required=False),
            addressed(positional=False),
            click.option(
                "--query", "query_path", type=FILE, metavar="FILE", help="The queries (.gq); NAME says which."
            ),
            click.option("-e", "--query-string", metavar="GQ", help="The same as a text."),
            click.option("--params", metavar="JSON", help="The parameters: a JSON object."),
            click.option("--params-file", type=FILE, metavar="FILE", help="The same in a file."),
            click.option("--branch", metavar="BRANCH", help="The newest state of a branch.  [default: main]"),
            click.option("--snapshot", "at", metavar="ID", help="The state that a commit left: its id, or a tag."),
            click.option("--seconds", type=click.FloatRange(min=0), help="How long it may take.  [default: 60]"),
            click.option("--memory", metavar="AMOUNT", help="How much memory it may take, as in 512MiB."),
            click.option("--rows", type=click.IntRange(min=0), help="How many rows it may look at."),
            click.option("--returned", type=click.IntRange(min=0), help="How many rows the result may have."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@asking
@click.option("--format", type=click.Choice(FORMATS), default="table", help="How to print the rows.  [default: table]")
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
    at: str | None,
    seconds: float | None,
    memory: str | None,
    rows: int | None,
    returned: int | None,
    format: str,
    as_json: bool,
) -> None:
    """Run a query that reads.

    NAME says which query, when the source has several. Everything is read from one snapshot. --json is the same as
    --format json.
    """
    one_view(branch, at)
    uri = address(uri_option, store)
    text = source(query_path, query_string)
    given = parameters(params, params_file)
    from omnigraph.cli.formats import print_result

    with open_to_read(uri) as graph:
        allowed = budget(seconds, memory, rows, returned)
        found = graph.query(text, given, name=name, branch=branch, at=at, budget=allowed)
    print_result(found, "json" if as_json else format)


@click.command(hidden=True, params=query.params, help="The former name of 'query'.")
@click.pass_context
def read(ctx: click.Context, /, **values: object) -> None:
    click.echo("'read' is called 'query' now; this name will go", err=True)
    ctx.forward(query)


def budget(seconds: float | None, memory: str | None, rows: int | None, returned: int | None) -> Budget:
    """What a read may take: what is given, else the defaults.

    Raises:
        InputError: the memory is not an amount.
    """
    from omnigraph.read.budget import Budget
    from omnigraph.storage.byte_sizes import size_setting

    usual = Budget()
    room = usual.memory if memory is None else size_setting({"--memory": memory}, "--memory", 0)
    return replace(
        usual,
        seconds=usual.seconds if seconds is None else seconds,
        memory=room,
        rows=usual.rows if rows is None else rows,
        returned=usual.returned if returned is None else returned,
    )
