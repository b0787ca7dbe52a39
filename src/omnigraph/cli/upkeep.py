"""The commands `status` and `upkeep`: the condition of a graph, and the maintenance that it demands."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from omnigraph.amounts import counted
from omnigraph.cli.cleanup import age
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, confirm, open_to_read, open_to_write
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.engine.maintenance import UpkeepReport
    from omnigraph.upkeep.status import BranchStatus, GraphStatus


@click.command()
@address_options(positional=True)
@JSON
def status(target: Target, as_json: bool) -> None:
    """Show the condition of a graph, and the commands that improve it.

    Shows the files, versions, rows, deleted rows, rows without an index and old vectors of each table of each branch,
    interrupted writes, running work, and the space that branches and tags hold.
    """
    with open_to_read(target.storage()) as graph:
        found = graph.status()
    if as_json:
        print_json(found.to_json())
        return
    for line in _lines(found):
        click.echo(line)


def _lines(found: GraphStatus) -> Iterator[str]:
    yield f"{found.uri}: {_size(found.bytes)}, of which branches and tags need {_size(found.bytes_needed)}"
    yield f"manifest: {counted(found.manifest_versions, 'version')}, {_size(found.manifest_bytes)}"
    for branch in found.branches:
        yield from _branch_lines(branch)
    for tag in found.tags:
        yield f"tag {tag.name}: holds {_size(tag.bytes_held)}"
    for name in found.work:
        yield f"running: {name}"
    for name in found.pending:
        yield f"in flight or interrupted: {name}"
    if not found.advice:
        yield "nothing to do"
    for advice in found.advice:
        yield f"run '{advice.command}': {advice.reason}"


def _branch_lines(branch: BranchStatus) -> Iterator[str]:
    yield f"branch {branch.name}: {counted(branch.commits, 'commit')}, holds {_size(branch.bytes_held)}"
    for table in branch.tables:
        if table.shared:
            continue
        facts = [
            counted(table.rows, "row"),
            f"{counted(table.fragments, 'file')} ({_size(table.bytes)})",
            counted(table.versions, "version"),
            f"{_size(table.bytes_on_disk)} on disk",
        ]
        facts += [f"{counted(table.unindexed_rows, 'row')} without an index"] if table.unindexed_rows else []
        facts += [f"old vectors: {', '.join(table.stale_vectors)}"] if table.stale_vectors else []
        facts += [f"no vectors: {', '.join(table.missing_vectors)}"] if table.missing_vectors else []
        facts += [f"{counted(table.deleted_rows, 'deleted row')} in files"] if table.deleted_rows else []
        yield f"  {table.type_key}: {', '.join(facts)}"


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


@click.command()
@address_options(positional=True)
@click.option("--watch", is_flag=True, help="Run until the process gets SIGTERM or Ctrl-C.")
@click.option(
    "--every", type=age, default="60s", show_default=True, metavar="AGE", help="With --watch: time between two rounds."
)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N commits of each branch.")
@click.option("--older-than", type=age, metavar="AGE", help="Remove only commits older than this: 12h, 30d.")
@click.option("--fragments", type=click.IntRange(min=0), metavar="N", help="Optimize a table with more small files.")
@click.option("--versions", type=click.IntRange(min=0), metavar="N", help="Clean up if more commits can be removed.")
@click.option("--yes", is_flag=True, help="Consent to a destructive write on a remote graph.")
@click.option("--quiet", is_flag=True, help="Hide the line about the target of the write.")
@JSON
def upkeep(
    target: Target,
    watch: bool,
    every: timedelta,
    keep: int | None,
    older_than: timedelta | None,
    fragments: int | None,
    versions: int | None,
    yes: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run optimize and cleanup, as far as the condition of the graph demands it.

    'omnigraph status' shows the condition. Options and environment variables set the thresholds. One process per graph
    is enough; several do no harm. The command removes old commits as 'cleanup' does: it keeps all branches and tags,
    the newest commits of each branch, and young commits. It completes interrupted hard drops of schema changes.
    """
    uri = target.storage()
    if not watch and click.get_current_context().get_parameter_source("every") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--every is the time between two rounds: give --watch, too")
    confirm("upkeep", uri, yes=yes, as_json=as_json)
    from omnigraph.upkeep.status import Thresholds

    given = {"keep": keep, "older_than": older_than, "fragments": fragments, "versions": versions}
    limits = Thresholds(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    with open_to_write(uri, None, quiet=quiet) as graph, _stopped_by_signals() as stop:
        if not watch:
            _print_report(graph.upkeep(limits), as_json, idle=True)
            return
        for report in graph.watch_upkeep(stop, interval=every.total_seconds(), thresholds=limits):
            _print_report(report, as_json, idle=False)
    click.echo("stopped", err=True)


@contextmanager
def _stopped_by_signals() -> Iterator[Event]:
    """An event that SIGTERM and Ctrl-C set. The second signal ends the process as usual."""
    stop = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: object) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_report(report: UpkeepReport, as_json: bool, *, idle: bool) -> None:
    if report.is_idle and not idle:
        return
    if as_json:
        print_json(report.to_json())
        return
    time = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    for branch, receipt in report.optimized:
        removed = sum(table.fragments_removed for table in receipt.tables)
        added = sum(table.fragments_added for table in receipt.tables)
        click.echo(f"{time}  optimized {branch}: {removed} files → {added}")
    for drop in report.hard_drops:
        click.echo(f"{time}  dropped data of {drop.type_key} removed: {drop.versions_removed} versions")
    if report.cleanup is not None:
        cleaned = report.cleanup
        versions = cleaned.versions_removed + cleaned.manifest.old_versions_removed
        click.echo(f"{time}  cleaned up: {versions} versions, {_size(cleaned.bytes_removed)}")
    if report.error is not None:
        click.echo(f"{time}  not finished: {report.error}", err=True)
    if report.is_idle:
        click.echo("nothing to do")
