"""The command `graphs list`."""

from __future__ import annotations

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import server_options
from omnigraph.cli.target import Target
from omnigraph.errors.source import printable


@click.group()
def graphs() -> None:
    """List the graphs of a server."""


@graphs.command("list")
@server_options
@JSON
def list_graphs(target: Target, as_json: bool) -> None:
    """List the graphs of a server by id, each with the address of its storage."""
    with target.server_only().connect() as client:
        found = client.graphs.list()
    if as_json:
        print_json({"graphs": [{"graph_id": one.graph_id, "uri": one.uri} for one in found]})
        return
    for one in found:
        click.echo(printable(f"{one.graph_id}\t{one.uri}"))
