"""The command `explain`."""

from __future__ import annotations

from pathlib import Path

import click

from omnigraph.cli.export import one_view
from omnigraph.cli.mutate import parameters, source
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.query import asking, budget
from omnigraph.cli.scope import address, open_to_read


@click.command()
@asking
@click.option("--analyze", is_flag=True, help="Run the query, and show what each step did.")
@JSON
def explain(
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
    analyze: bool,
    as_json: bool,
) -> None:
    """Show what a query means and in which steps it is answered.

    The order of the steps depends on how many nodes satisfy the conditions on each variable, so those are counted.
    """
    one_view(branch, at)
    uri = address(uri_option, store)
    text = source(query_path, query_string)
    given = parameters(params, params_file)
    with open_to_read(uri) as graph:
        found = graph.explain(
            text, given, name=name, branch=branch, at=at, analyze=analyze, budget=budget(seconds, memory)
        )
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(str(found))
