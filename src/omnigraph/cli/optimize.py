"""`omnigraph optimize`: rows are packed into few files, and indexes are brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_shown
from omnigraph.cli.scope import address, addressed, engines, execution, open_to_write

if TYPE_CHECKING:
    from omnigraph.upkeep.optimize import OptimizeReceipt, TableOptimized


@click.command()
@addressed(positional=True)
@engines("how much is written anew")
@click.option("--quiet", is_flag=True, help="Leave out the line about the write's target.")
@JSON
def optimize(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    engine: str,
    master: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Pack the rows of 'main' into few files, and bring its indexes up to date, as one commit.

    No answer changes by it. The exit status is 1 when a table was left alone because it is ahead of the graph.
    """
    target = address(uri, uri_option, store)
    with (
        open_to_write(target, None, quiet=quiet) as graph,
        progress_shown(shown=not quiet and not as_json) as shown,
        execution("optimizing", engine, master, shown) as execute,
    ):
        receipt = graph.optimize(**execute)
        where = graph.uri
    if as_json:
        print_json({"uri": where, **receipt.to_json()})
    else:
        _say(where, receipt)
    if any(table.skipped for table in receipt.tables):
        raise click.exceptions.Exit(1)


def _say(uri: str, receipt: OptimizeReceipt) -> None:
    click.echo(f"optimize {uri} — {len(receipt.tables)} datasets")
    for table in receipt.tables:
        click.echo(f"  {table.type_key}: {_became(table)}")
        for index in table.pending_indexes:
            click.echo(f"    index on {index.property} waits: {index.reason}")


def _became(table: TableOptimized) -> str:
    if table.skipped is not None:
        return f"skipped ({table.skipped})"
    if not table.committed:
        return "no-op"
    if table.fragments_removed == 0:
        return "indexes ✓"
    return f"frags {table.fragments_removed} → {table.fragments_added} ✓"
