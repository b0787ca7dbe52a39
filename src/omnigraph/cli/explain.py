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
    rows: int | None,
    returned: int | None,
    analyze: bool,
    as_json: bool,
) -> None:
    """Show what a query means and in which steps it is answered.

    Beside each step stands about how many rows are expected after it. --json adds the statistics that the plan was made
    from, and why steps are done as they are.
    """
    one_view(branch, at)
    uri = address(uri_option, store)
    text = source(query_path, query_string)
    given = parameters(params, params_file)
    with open_to_read(uri) as graph:
        allowed = budget(seconds, memory, rows, returned)
        found = graph.explain(text, given, name=name, branch=branch, at=at, analyze=analyze, budget=allowed)
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(str(found))
