"""The `indexes` command: lists index coverage and builds missing indexes."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, open_to_read, open_to_write, state_options
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.upkeep.indexes import IndexCoverage, IndexReceipt


@click.command()
@address_options(positional=True)
@state_options()
@click.option("--build", is_flag=True, help="Build missing indexes first, as one commit.")
@click.option("--quiet", is_flag=True, help="Hide the line about the target of the write.")
@JSON
def indexes(
    target: Target,
    branch: str | None,
    at: str | datetime | None,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """List the indexes of the schema, and the number of rows that each covers.

    Queries also find rows that an index does not cover, but slower. Writes do not build indexes; --build does.
    """
    if build and at is not None:
        raise click.UsageError("--build works on the head of a branch: omit --snapshot and --at")
    uri = target.storage()
    if not build:
        with open_to_read(uri) as graph:
            _show(graph.indexes(branch=branch, at=at), None, as_json)
        return
    with open_to_write(uri, None, quiet=quiet) as graph:
        _show(*_build(graph, branch), as_json)


def _build(graph: Graph, branch: str | None) -> tuple[list[IndexCoverage], IndexReceipt]:
    receipt = graph.ensure_indexes(branch=branch)
    return graph.indexes(branch=branch), receipt


def _show(found: list[IndexCoverage], receipt: IndexReceipt | None, as_json: bool) -> None:
    pending = [] if receipt is None else [asdict(index) for index in receipt.pending]
    if as_json:
        members: dict[str, object] = {"indexes": [asdict(index) for index in found]}
        if receipt is not None:
            members["pending"] = pending
            members["graph_commit_id"] = None if receipt.commit is None else receipt.commit.id
        print_json(members)
        return
    reasons = {(index["type_key"], index["property"], index["kind"]): index["reason"] for index in pending}
    for index in found:
        reason = reasons.get((index.type_key, index.property, index.kind))
        rows = f"{index.covered} of {index.covered + index.uncovered} rows"
        click.echo(f"{index.type_key}.{index.property} {index.kind}: {rows}{f' ({reason})' if reason else ''}")
