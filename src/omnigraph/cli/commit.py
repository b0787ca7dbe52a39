"""The commands `commit list` and `commit show`."""

# See docs/decisions/0181-the-history-is-for-people.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, iso_time, print_json, print_members, quoted
from omnigraph.cli.scope import address, address_options, open_to_read
from omnigraph.errors import cut
from omnigraph.errors.source import printable

if TYPE_CHECKING:
    from omnigraph.commit.manifest import Commit


@click.group()
def commit() -> None:
    """Show the history of a graph."""


def _read_filter(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Parse `actor=NAME`, and return the name."""
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if name != "actor" or not equals or not value:
        raise click.BadParameter("write actor=NAME", ctx, option)
    return value


@commit.command("list")
@address_options(positional=True)
@click.option("--branch", metavar="BRANCH", default="main", help="Branch whose history to list.  [default: main]")
@click.option("--filter", "actor", metavar="actor=NAME", callback=_read_filter, help="List only commits of this actor.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of commits.")
@click.option("--cursor", metavar="CURSOR", help="Continue after an earlier page.")
@click.option("--full", is_flag=True, help="Print full ids and the manifest version of each commit.")
@JSON
def list_commits(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    branch: str,
    actor: str | None,
    limit: int | None,
    cursor: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """List the commits of a branch, newest first.

    Shows the start of each id, the time in UTC, the kind of write, the number of inserted (+), updated (~) and deleted
    (-) entities, the actor and the message. The start of an id is accepted wherever a commit id is.
    """
    from omnigraph.commit.manifest import commit_json

    with open_to_read(address(uri, uri_option, store)) as graph:
        page = graph.commits.list(branch=branch, actor=actor, limit=limit, cursor=cursor)
    if as_json:
        print_json({"commits": [commit_json(found) for found in page.commits], "cursor": page.cursor})
        return
    for line in full_lines(page.commits) if full else history_lines(page.commits):
        click.echo(line)
    if page.cursor is not None:
        click.echo(f"there are more: add --cursor {page.cursor}", err=True)


def full_lines(commits: Sequence[Commit]) -> Iterator[str]:
    """One line per commit, with its full id."""
    for found in commits:
        parts = [found.id, f"graph_branch={found.branch}", f"graph_manifest_version={found.manifest_version}"]
        if found.actor is not None:
            parts.append(f"actor={found.actor}")
        if found.message is not None:
            parts.append(f"message={quoted(found.message)}")
        yield " ".join(parts)


def history_lines(commits: Sequence[Commit]) -> Iterator[str]:
    """One line per commit for people: short id, time, kind, counts, actor and the first line of the message."""
    from omnigraph.commit.lineage import short_ids

    short = short_ids([found.id for found in commits])
    rows = [
        (
            short[found.id],
            f"{iso_time(found.created_at)[:19].replace('T', ' ')}",
            found.writer or "",
            shown_counts(found),
            found.actor or "",
            first_line(found.message or ""),
        )
        for found in commits
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False) if width]
        yield printable("  ".join([*cells, row[-1]]).rstrip())


def shown_counts(commit: Commit) -> str:
    """The number of changed entities, as in `+3 ~1 -2`; empty if it is not recorded."""
    totals = commit.totals
    if totals is None:
        return ""
    signs = (("+", totals.inserted), ("~", totals.updated), ("-", totals.deleted))
    return " ".join(f"{sign}{count}" for sign, count in signs if count) or "no rows"


def first_line(text: str) -> str:
    """The first line of a message, shortened."""
    return cut(text.strip().partition("\n")[0])


@commit.command()
@click.argument("commit_id")
@address_options(positional=False)
@JSON
def show(commit_id: str, uri_option: str | None, store: str | None, as_json: bool) -> None:
    """Show one commit of any branch.

    COMMIT_ID is the id of a commit, or the start of it.
    """
    from omnigraph.commit.manifest import commit_json

    with open_to_read(address(uri_option, store)) as graph:
        found = graph.commits.get(commit_id)
    members = commit_json(found)
    if as_json:
        print_json(members)
    else:
        counts = {key: shown_counts(replace(found, counts=(one,))) for one in found.counts or () for key in [one.key]}
        shown = {"graph_branch": found.branch, "created_at": iso_time(found.created_at), "counts": counts}
        print_members(members | shown)
