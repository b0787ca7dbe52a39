"""`omnigraph indexes`: what indexes cover, and building what they do not."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from omnigraph.cli.export import one_view
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address, addressed, open_to_read, open_to_write

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.upkeep.indexes import IndexCoverage, IndexReceipt


@click.command()
@addressed(positional=True)
@click.option("--branch", metavar="NAME", help="The branch.  [default: main]")
@click.option("--snapshot", "at", metavar="ID", help="The state that a commit left: its id, or a tag.")
@click.option("--build", is_flag=True, help="Build what is missing first, as one commit.")
@click.option("--quiet", is_flag=True, help="Leave out the line about the write's target.")
@JSON
def indexes(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    branch: str | None,
    at: str | None,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """List the indexes that the schema asks for, and the rows that each covers.

    Rows that an index does not cover are found all the same, only slower. Writes do not build indexes; --build does.
    """
    one_view(branch, at)
    if build and at is not None:
        raise click.UsageError("--build works on the newest state of a branch; leave out --snapshot")
    target = address(uri, uri_option, store)
    if not build:
        with open_to_read(target) as graph:
            _show(graph.indexes(branch=branch, at=at), None, as_json)
        return
    with open_to_write(target, None, quiet=quiet) as graph:
        _show(*_built(graph, branch), as_json)


def _built(graph: Graph, branch: str | None) -> tuple[list[IndexCoverage], IndexReceipt]:
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
