"""The `optimize` command: compacts tables and updates indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_display
from omnigraph.cli.scope import address_options, engine_options, execution, open_to_write
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.upkeep.optimize import OptimizeReceipt, TableOptimized


@click.command()
@address_options(positional=True)
@click.option("--branch", metavar="BRANCH", default="main", help="Branch to optimize.  [default: main]")
@engine_options("the size of the data to rewrite")
@click.option("--quiet", is_flag=True, help="Hide the line about the target of the write.")
@JSON
def optimize(
    target: Target,
    branch: str,
    engine: str,
    master: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compact the tables of a branch and update its indexes, as one commit.

    Tables that the branch has not written to are left to the branch that it was created from. Query results stay the
    same. The exit code is 1 if a table was skipped because it is ahead of the manifest.
    """
    uri = target.storage()
    with (
        open_to_write(uri, None, quiet=quiet) as graph,
        progress_display(shown=not quiet and not as_json) as shown,
        execution("optimizing", engine, master, shown) as execute,
    ):
        receipt = graph.optimize(branch=branch, **execute)
        where = graph.uri
    if as_json:
        print_json({"uri": where, **receipt.to_json()})
    else:
        _print_receipt(where, receipt)
    if any(table.skipped for table in receipt.tables):
        raise click.exceptions.Exit(1)


def _print_receipt(uri: str, receipt: OptimizeReceipt) -> None:
    click.echo(f"optimize {uri} — {len(receipt.tables)} datasets")
    for table in receipt.tables:
        click.echo(f"  {table.type_key}: {_result(table)}")
        for index in table.pending_indexes:
            click.echo(f"    index on {index.property} is pending: {index.reason}")


def _result(table: TableOptimized) -> str:
    if table.skipped is not None:
        return f"skipped ({table.skipped})"
    if not table.committed:
        return "no-op"
    if table.fragments_removed == 0:
        return "indexes ✓"
    return f"frags {table.fragments_removed} → {table.fragments_added} ✓"
