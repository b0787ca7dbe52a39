"""The `cleanup` command: removes versions and files that are no longer needed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from omnigraph.amounts import counted, parse_age
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, confirm, open_to_read, open_to_write
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.upkeep.cleanup import CleanupReport, LoadAtWork


def age(text: str) -> timedelta:
    """Parse a duration: `90s`, `30m`, `12h`, `7d`, `2w`."""
    found = parse_age(text)
    if found is None:
        raise click.BadParameter(f"'{text}' is not an age: write a number and a unit, 90s, 30m, 12h, 7d or 2w")
    return found


@click.command()
@address_options(positional=True)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N commits of each branch.")
@click.option("--older-than", type=age, metavar="AGE", help="Remove only commits older than this: 12h, 30d.")
@click.option(
    "--orphans-older-than",
    type=age,
    default="7d",
    show_default=True,
    metavar="AGE",
    help="Remove only orphaned files older than this.",
)
@click.option("--confirm", "confirmed", is_flag=True, help="Run the cleanup. The default is a preview.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, as without --confirm.")
@click.option("--yes", is_flag=True, help="Consent to a destructive write on a remote graph.")
@click.option("--quiet", is_flag=True, help="Hide the line about the target of the write.")
@JSON
def cleanup(
    target: Target,
    keep: int | None,
    older_than: timedelta | None,
    orphans_older_than: timedelta,
    confirmed: bool,
    dry_run: bool,
    yes: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Remove old versions that nothing refers to, and files that crashed writers left behind.

    Keeps all branches, tags and retained commits. Give --keep, --older-than or both. With both, a commit is removed
    only if both rules allow it. Keep at least three commits, or better ten, because running readers may need them.
    """
    if keep is None and older_than is None:
        raise click.UsageError("give --keep N, --older-than AGE, or both")
    if dry_run and confirmed:
        raise click.UsageError("give --dry-run or --confirm, not both")
    uri = target.storage()
    if confirmed:
        confirm("cleanup", uri, yes=yes, as_json=as_json)
    opened = open_to_write(uri, None, quiet=quiet) if confirmed else open_to_read(uri)
    with opened as graph:
        report = graph.cleanup(
            keep=keep, older_than=older_than, orphans_older_than=orphans_older_than, preview=not confirmed
        )
        where = graph.uri
    if as_json:
        print_json(_members(where, keep, older_than, report))
    _print_report(where, _policy(keep, older_than), report, err=as_json or report.preview)
    if report.errors:
        raise click.exceptions.Exit(1)


def _members(uri: str, keep: int | None, older_than: timedelta | None, report: CleanupReport) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "uri": uri,
        "preview": report.preview,
        "keep_versions": keep,
        "older_than_secs": None if older_than is None else int(older_than.total_seconds()),
        "datasets": [asdict(table) for table in report.tables],
        "manifest": asdict(report.manifest),
        "loads_removed": report.loads_removed,
        "load_bytes_removed": report.load_bytes_removed,
        "branches_removed": report.branches_removed,
        "loads_at_work": [
            {**asdict(load), "began": load.began.isoformat(), "seen": load.seen.isoformat()}
            for load in report.loads_at_work
        ],
    }


def _policy(keep: int | None, older_than: timedelta | None) -> str:
    rules = [] if keep is None else [f"keep {keep}"]
    return ", ".join(rules + ([] if older_than is None else [f"older than {_shown_age(older_than)}"]))


def _shown_age(age: timedelta) -> str:
    """A duration in the largest unit that fits: `1 day`, `36 hours`."""
    seconds = int(age.total_seconds())
    units = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
    name = next((name for name, length in units.items() if seconds and seconds % length == 0), "second")
    count = seconds // units[name]
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _kept_reason(load: LoadAtWork) -> str:
    """Why a file or version was kept although it is old enough to be removed."""
    began, seen = (time.isoformat(timespec="seconds") for time in (load.began, load.seen))
    process = "" if load.pid is None else f" (process {load.pid} on {load.host})"
    if load.kind is not None and not load.on_tables:
        return f"kept the versions that {load.kind} {load.name}{process} reads, running since {began}"
    if not load.on_tables:
        return f"kept the staged files of {load.name}, running since {began}, last heartbeat at {seen}"
    kind = load.kind or "job"
    return f"kept orphaned files that are newer than {began}: {kind} {load.name}{process} has been running since then"


def _print_report(uri: str, policy: str, report: CleanupReport, *, err: bool) -> None:
    done = "would remove" if report.preview else "removed"
    click.echo(
        f"cleanup {uri} ({policy}) — {done} {counted(report.versions_removed, 'version')} "
        f"({counted(report.bytes_removed, 'byte')}) across {counted(len(report.tables), 'dataset')}",
        err=err,
    )
    for table in (*report.tables, report.manifest):
        counts = {
            "version": table.old_versions_removed,
            "fork": table.forks_removed,
            "orphaned file": table.orphans_removed,
        }
        results = [counted(count, what) for what, count in counts.items() if count]
        if table.error is not None:
            results = [f"failed: {table.error}"]
        if results:
            click.echo(f"  {table.type_key}: {', '.join(results)}", err=err)
    if report.loads_removed:
        click.echo(f"  crashed loads: {report.loads_removed} ({report.load_bytes_removed} bytes)", err=err)
    if report.branches_removed:
        click.echo(f"  deleted branches: {report.branches_removed}", err=err)
    for load in report.loads_at_work:
        click.echo(f"  {_kept_reason(load)}", err=err)
    if report.preview:
        click.echo("nothing was changed; add --confirm to run the cleanup", err=err)
