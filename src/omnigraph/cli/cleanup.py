"""`omnigraph cleanup`: removing what nobody can read any more."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address, addressed, confirm, open_to_read, open_to_write

if TYPE_CHECKING:
    from omnigraph.upkeep.cleanup import CleanupReport, LoadAtWork

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str) -> timedelta:
    """A time span as people write it: `90s`, `30m`, `12h`, `7d`, `2w`."""
    read = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip())
    if read is None:
        raise click.BadParameter(f"'{text}' is not an age: write a number and a unit, 90s, 30m, 12h, 7d or 2w")
    return timedelta(**{_UNITS[read[2]]: int(read[1])})


@click.command()
@addressed(positional=True)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N commits of each branch.")
@click.option("--older-than", type=age, metavar="AGE", help="Remove only what is older: 12h, 30d.")
@click.option(
    "--orphans-older-than",
    type=age,
    default="7d",
    show_default=True,
    metavar="AGE",
    help="Remove files that nothing points at when they are older.",
)
@click.option("--confirm", "confirmed", is_flag=True, help="Do it. Without this, only say what would be done.")
@click.option("--yes", is_flag=True, help="Consent to a destructive write on a remote graph.")
@click.option("--quiet", is_flag=True, help="Leave out the line about the write's target.")
@JSON
def cleanup(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    keep: int | None,
    older_than: timedelta | None,
    orphans_older_than: timedelta,
    confirmed: bool,
    yes: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Remove old versions that nobody can read any more, and what writers that died left behind.

    Branches, tags and the commits that are kept stay as they are. Give --keep, --older-than, or both: then a commit
    goes only if both let it go. At least three commits should stay, ten are better: readers may be at work on them.
    """
    if keep is None and older_than is None:
        raise click.UsageError("say which commits stay: give --keep N, --older-than AGE, or both")
    target = address(uri, uri_option, store)
    if confirmed:
        confirm("cleanup", target, yes=yes, as_json=as_json)
    opened = open_to_write(target, None, quiet=quiet) if confirmed else open_to_read(target)
    with opened as graph:
        report = graph.cleanup(
            keep=keep, older_than=older_than, orphans_older_than=orphans_older_than, preview=not confirmed
        )
        where = graph.uri
    if as_json:
        print_json(_members(where, keep, older_than, report))
    _tell(where, _policy(keep, older_than), report, err=as_json or report.preview)
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
        "loads_removed": report.loads_removed,
        "load_bytes_removed": report.load_bytes_removed,
        "branches_removed": report.branches_removed,
        "loads_at_work": [
            {**asdict(load), "began": load.began.isoformat(), "seen": load.seen.isoformat()}
            for load in report.loads_at_work
        ],
    }


def _policy(keep: int | None, older_than: timedelta | None) -> str:
    said = [] if keep is None else [f"keep {keep}"]
    return ", ".join(said + ([] if older_than is None else [f"older than {older_than}"]))


def _kept(load: LoadAtWork) -> str:
    """Why something stayed that is old enough to go."""
    began, seen = (time.isoformat(timespec="seconds") for time in (load.began, load.seen))
    process = "" if load.pid is None else f" (process {load.pid} on {load.host})"
    if load.kind is not None and not load.on_tables:
        return f"kept the versions that {load.kind} {load.name}{process} reads, at work since {began}"
    if not load.on_tables:
        return f"kept what {load.name} put aside, at work since {began} and last heard of at {seen}"
    kind = load.kind or "work"
    return f"kept what nothing points at and came after {began}: {kind} {load.name}{process} is at work since then"


def _tell(uri: str, policy: str, report: CleanupReport, *, err: bool) -> None:
    done = "would remove" if report.preview else "removed"
    click.echo(
        f"cleanup {uri} ({policy}) — {done} {report.versions_removed} versions ({report.bytes_removed} bytes) "
        f"across {len(report.tables)} datasets",
        err=err,
    )
    for table in report.tables:
        counts = {
            "versions": table.old_versions_removed,
            "forks": table.forks_removed,
            "orphaned files": table.orphans_removed,
        }
        said = [f"{count} {what}" for what, count in counts.items() if count]
        if table.error is not None:
            said = [f"failed: {table.error}"]
        if said:
            click.echo(f"  {table.type_key}: {', '.join(said)}", err=err)
    if report.loads_removed:
        click.echo(f"  loads that died: {report.loads_removed} ({report.load_bytes_removed} bytes)", err=err)
    if report.branches_removed:
        click.echo(f"  branches that were deleted: {report.branches_removed}", err=err)
    for load in report.loads_at_work:
        click.echo(f"  {_kept(load)}", err=err)
    if report.preview:
        click.echo("nothing was changed; add --confirm to do it", err=err)
