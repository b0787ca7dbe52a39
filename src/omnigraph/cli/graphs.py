"""The commands `init`, `snapshot` and `recovery list`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.files import SOURCE_FILE, read_schema
from omnigraph.cli.output import JSON, print_json, print_members
from omnigraph.cli.scope import address_options, begin_write, connect_to_read, open_to_read, state_options
from omnigraph.cli.served import ServedGraph
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.graph import Graph


@click.command()
@click.argument("uri")
@click.option("--schema", "schema_path", type=SOURCE_FILE, required=True, metavar="FILE", help="Schema file (.pg).")
@click.option(
    "--force", is_flag=True, help="Replace schema files of a failed creation. Never changes an existing graph."
)
@JSON
def init(uri: str, schema_path: Path, force: bool, as_json: bool) -> None:
    """Create a graph at URI from a schema."""
    from omnigraph.graph import init as create
    from omnigraph.lang.schema import compile_schema

    source = read_schema(schema_path)
    compile_schema(source, str(schema_path))  # reports errors with the name of the user's file
    begin_write()
    with create(uri, source.decode(), force=force) as graph:
        if as_json:
            print_json({"uri": graph.uri})
        else:
            click.echo(f"initialized {graph.uri}")


@click.command()
@address_options(positional=True, served=True)
@state_options("Show")
@JSON
def snapshot(
    target: Target,
    branch: str | None,
    at: str | datetime | None,
    as_json: bool,
) -> None:
    """Show the version of every table at the head of a branch, at a commit or at a time."""
    with connect_to_read(target.place()) as graph:
        members = graph.tables(branch, at) if isinstance(graph, ServedGraph) else _tables(graph, branch, at)
    if as_json:
        print_json(members)
        return
    datasets = members.pop("datasets")
    print_members(members)
    for dataset in datasets:
        native = dataset["native_dataset_branch"]
        click.echo(
            f"{dataset['entity_kind']}:{dataset['type_name']} entities={dataset['entity_count']} "
            f"version={dataset['published_dataset_version']} path={dataset['dataset_path']}"
            + (f" native_branch={native}" if native else "")
        )


def _tables(graph: Graph, branch: str | None, at: str | datetime | None) -> dict[str, Any]:
    """The versions of all tables, as JSON."""
    moment = at if isinstance(at, datetime) else None
    commit = at if isinstance(at, str) else None
    return graph.snapshot(branch=branch, commit=commit, at=moment).to_json(graph.session.format)


@click.group()
def recovery() -> None:
    """Show interrupted writes and their recovery."""


@recovery.command("list")
@address_options(positional=True)
@JSON
def list_recoveries(target: Target, as_json: bool) -> None:
    """List the recovered writes, oldest first, and the interrupted writes that are still pending.

    This command recovers nothing. A pending write is recovered by the next write to its branch, or when the graph is
    opened for writing.
    """
    with open_to_read(target.storage()) as graph:
        settled, waiting = graph.recovery.list(), graph.recovery.pending()
    if as_json:
        print_json({"recoveries": [r.to_json() for r in settled], "pending": [s.to_json() for s in waiting]})
        return
    for record in settled:
        commit = f" commit={record.commit_id}" if record.commit_id else ""
        actor = f" actor={record.actor}" if record.actor else ""
        click.echo(
            f"{record.operation_id} {record.kind} graph_branch={record.branch} writer={record.writer}{commit}{actor}"
        )
        for table in record.tables:
            click.echo(f"  {table.key} {table.state} {_version(table.from_version)} → {_version(table.to_version)}")
    for sidecar in waiting:
        click.echo(f"{sidecar.operation_id} pending graph_branch={sidecar.branch} writer={sidecar.kind}")
    if not settled and not waiting:
        click.echo("(no interrupted writes)")


def _version(version: int | None) -> str:
    return "none" if version is None else f"version {version}"
