"""The commands `init`, `snapshot` and `recovery list`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.files import read_schema
from omnigraph.cli.output import JSON, print_json, print_members
from omnigraph.cli.scope import address, address_options, begin_write, open_to_read, state_options

if TYPE_CHECKING:
    from omnigraph.commit.audit import RecoveryRecord
    from omnigraph.commit.sidecar import Sidecar
    from omnigraph.commit.snapshots import Snapshot

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("uri")
@click.option("--schema", "schema_path", type=_FILE, required=True, metavar="FILE", help="Schema file (.pg).")
@click.option(
    "--force", is_flag=True, help="Replace schema files of a failed creation. Never changes an existing graph."
)
def init(uri: str, schema_path: Path, force: bool) -> None:
    """Create a graph at URI from a schema."""
    from omnigraph.graph import init as create
    from omnigraph.lang.schema import compile_schema

    source = read_schema(schema_path)
    compile_schema(source, str(schema_path))  # reports errors with the name of the user's file
    begin_write()
    with create(uri, source.decode(), force=force) as graph:
        click.echo(f"initialized {graph.uri}")


@click.command()
@address_options(positional=True)
@state_options("Show")
@JSON
def snapshot(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    branch: str | None,
    at: str | datetime | None,
    as_json: bool,
) -> None:
    """Show the version of every table at the head of a branch, at a commit or at a time."""
    with open_to_read(address(uri, uri_option, store)) as graph:
        moment = at if isinstance(at, datetime) else None
        commit = at if isinstance(at, str) else None
        members = snapshot_json(graph.snapshot(branch=branch, commit=commit, at=moment), graph.session.format)
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


def snapshot_json(view: Snapshot, format_: int) -> dict[str, Any]:
    from omnigraph.lang.schema.type_key import TypeKey

    datasets = []
    for key, pin in view.tables.items():
        kind, name = TypeKey.parse(key)
        datasets.append(
            {
                "entity_kind": kind,
                "type_name": name,
                "dataset_path": pin.ref.path,
                "published_dataset_version": pin.ref.version,
                "native_dataset_branch": pin.ref.branch,
                "entity_count": pin.row_count,
            }
        )
    return {
        "graph_branch": view.branch,
        "graph_manifest_version": view.manifest_version,
        "graph_commit_id": view.commit.id,
        "internal_schema_version": format_,
        "datasets": datasets,
    }


@click.group()
def recovery() -> None:
    """Show interrupted writes and their recovery."""


@recovery.command("list")
@address_options(positional=True)
@JSON
def list_recoveries(uri: str | None, uri_option: str | None, store: str | None, as_json: bool) -> None:
    """List the recovered writes, oldest first, and the interrupted writes that are still pending.

    This command recovers nothing. A pending write is recovered by the next write to its branch, or when the graph is
    opened for writing.
    """
    with open_to_read(address(uri, uri_option, store)) as graph:
        settled, waiting = graph.recovery.list(), graph.recovery.pending()
    if as_json:
        print_json({"recoveries": [_record_json(r) for r in settled], "pending": [_pending_json(s) for s in waiting]})
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


def _record_json(record: RecoveryRecord) -> dict[str, Any]:
    return {
        "operation_id": record.operation_id,
        "graph_commit_id": record.commit_id,
        "recovery_kind": record.kind.value,
        "recovery_for_actor": record.actor,
        "sidecar_writer_kind": record.writer,
        "graph_branch": record.branch,
        "per_table_outcomes": [
            {"key": t.key, "state": t.state, "from_version": t.from_version, "to_version": t.to_version}
            for t in record.tables
        ],
        "created_at": record.created_at,
    }


def _pending_json(sidecar: Sidecar) -> dict[str, Any]:
    return {
        "operation_id": sidecar.operation_id,
        "graph_commit_id": sidecar.commit.id,
        "actor_id": sidecar.commit.actor,
        "sidecar_writer_kind": sidecar.kind.value,
        "graph_branch": sidecar.branch,
        "started_at": sidecar.started_at,
    }
