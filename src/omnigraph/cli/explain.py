"""The `explain` command."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from omnigraph.cli.mutate import errors_in, parameters, source
from omnigraph.cli.output import JSON, print_json, terminal_width
from omnigraph.cli.query import budget, query_options
from omnigraph.cli.scope import open_to_read
from omnigraph.cli.target import Target


@click.command()
@query_options(served=False)
@click.option("--analyze", is_flag=True, help="Run the query, and show the rows and the time of each step.")
@JSON
def explain(
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
    analyze: bool,
    as_json: bool,
) -> None:
    """Show the checked form of a query and its physical plan.

    Each step shows the estimated number of rows. --json adds the statistics of the planner and the reasons for its
    choices.
    """
    uri = target.storage()
    text = source(query_path, query_string, name)
    given = parameters(params, params_file)
    with open_to_read(uri) as graph, errors_in(query_path):
        allowed = budget(seconds, memory, rows, returned)
        found = graph.explain(text, given, name=name, branch=branch, at=at, analyze=analyze, budget=allowed)
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(found.text(terminal_width()))
