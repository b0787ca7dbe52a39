"""The commands `commit list`, `commit show` and `commit changes`."""

# See docs/decisions/0181-the-history-is-for-people.md

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import click

from omnigraph.cli.changes import filter_options, limit_option, print_cause, print_change
from omnigraph.cli.output import COLOR, JSON, iso_time, print_json, print_members, quoted, terminal_width, uses_color
from omnigraph.cli.scope import address_options, connect_to_read
from omnigraph.cli.served import ServedGraph
from omnigraph.cli.streams import write_stdout
from omnigraph.cli.target import Target
from omnigraph.errors import VersionReclaimedError, cut
from omnigraph.errors.source import printable

if TYPE_CHECKING:
    from omnigraph.changes.commit_page import ChangePage
    from omnigraph.changes.diff import Diff
    from omnigraph.commit.manifest import Commit, Member
    from omnigraph.graph import Graph

_IDS = 5
"""Number of ids of changed entities that `commit show` prints for each member and type."""

_SHORTEST = 20
"""A message is not truncated below this width."""


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
@address_options(positional=True, served=True)
@click.option("--branch", metavar="BRANCH", default="main", help="Branch whose history to list.  [default: main]")
@click.option("--filter", "actor", metavar="actor=NAME", callback=_read_filter, help="List only commits of this actor.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of commits.")
@click.option("--cursor", metavar="CURSOR", help="Continue after an earlier page.")
@click.option("--full", is_flag=True, help="Print full ids and the manifest version of each commit.")
@COLOR
@JSON
def list_commits(
    target: Target,
    branch: str,
    actor: str | None,
    limit: int | None,
    cursor: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """List the commits of a branch, newest first.

    Shows the start of each id, the time in UTC, the kind of write, the number of inserted (+), updated (~) and deleted
    (-) entities, "schema" if the schema changed, the actor and the message. The start of an id is accepted wherever a
    commit id is. The state of a commit with the mark "not kept" can no longer be read.
    """
    from omnigraph.commit.manifest import commit_json

    with connect_to_read(target.place()) as graph:
        page = graph.commits.list(branch=branch, actor=actor, limit=limit, cursor=cursor)
    if as_json:
        marks = {found: {"is_kept": False} for found in page.removed}
        commits = [commit_json(found) | marks.get(found.id, {}) for found in page.commits]
        print_json({"commits": commits, "cursor": page.cursor})
        return
    for line in full_lines(page.commits) if full else history_lines(page.commits, page.removed):
        click.echo(line, color=uses_color())
    if page.cursor is not None:
        click.echo(f"there are more: add --cursor {page.cursor}", err=True)


def full_lines(commits: Sequence[Commit]) -> Iterator[str]:
    """One line per commit, with its full id."""
    from omnigraph.graph.commit_rows import shown_counts

    for found in commits:
        parts = [found.id, f"graph_branch={found.branch}", f"graph_manifest_version={found.manifest_version}"]
        if found.actor is not None:
            parts.append(f"actor={found.actor}")
        parts.append(f"created_at={iso_time(found.created_at)}")
        if found.writer is not None:
            parts.append(f"kind={found.writer}")
        if found.totals is not None:
            parts.append(f"changes={quoted(shown_counts(found))}")
        if found.members:
            parts.append(f"members={len(found.members)}")
        if found.message is not None:
            parts.append(f"message={quoted(found.message)}")
        yield " ".join(parts)


def history_lines(commits: Sequence[Commit], removed: Collection[str] = ()) -> Iterator[str]:
    """One line per commit for people: short id, time, kind, counts, actor, mark and the first line of the message.

    On a terminal, long messages are truncated, so that the lines fit.
    """
    from rich.cells import cell_len, set_cell_size

    from omnigraph.graph.commit_rows import commit_rows

    rows, columns = commit_rows(commits, removed), terminal_width()
    widths = [max((cell_len(row[i]) for row in rows), default=0) for i in range(6)]
    for row in rows:
        padded = zip(row, widths, strict=False)
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in padded if width]
        message, room = row[-1], None if columns is None else columns - sum(map(cell_len, cells)) - 2 * len(cells)
        if room is not None and cell_len(message) > max(room, _SHORTEST):
            message = set_cell_size(message, max(room, _SHORTEST) - 1) + "…"
        if uses_color():
            cells[0] = click.style(cells[0], "yellow")
        yield "  ".join([*cells, message]).rstrip()


@commit.command()
@click.argument("commit_id")
@address_options(positional=False, served=True, stored_only=("changes",))
@click.option("--changes", is_flag=True, help="Show the changes since the first parent, as `diff` does.")
@JSON
def show(commit_id: str, target: Target, changes: bool, as_json: bool) -> None:
    """Show one commit of any branch.

    COMMIT_ID is the id of a commit, the start of it, or a tag.
    """
    from omnigraph.cli.diff import DEFAULT_LIMIT, print_diff
    from omnigraph.commit.manifest import commit_json
    from omnigraph.graph.commit_rows import signed

    with connect_to_read(target.place()) as graph:
        found = graph.commits.get(commit_id)
        diff = None
        if changes and found.parent is not None and not isinstance(graph, ServedGraph):
            diff = _changes_of(graph, found)
        members = commit_json(found)
        if as_json:
            if diff is None:
                print_json(members | ({"changes": None} if changes else {}))
            else:
                head = json.dumps(members, ensure_ascii=False).removesuffix("}")
                write_stdout(chain([f'{head}, "changes": '.encode()], diff.json_chunks(), [b"}\n"]))
            return
        counts = {one.key: signed(one) for one in found.counts or ()}
        shown = {"graph_branch": found.branch, "created_at": iso_time(found.created_at), "counts": counts}
        print_members({name: value for name, value in members.items() if name != "members"} | shown)
        for member in found.members:
            click.echo(printable(f"member {member.id}: {_shown_member(member)}"))
        if changes:
            click.echo()
            if diff is None:
                click.echo("the first commit has no parent, so it has no changes")
            else:
                print_diff(diff, DEFAULT_LIMIT, f"omnigraph diff {found.parent} {found.id} --limit N shows more")


def _shown_member(member: Member) -> str:
    """The actor, the counts and the labels of a member of a group, on one line."""
    from omnigraph.graph.commit_rows import signed

    changed = dict(member.changed)
    parts = [] if member.actor is None else [f"actor={member.actor}"]
    parts += [f"{one.key}={signed(one)}{_shown_ids(changed.get(one.key, ()))}" for one in member.counts]
    return " ".join([*parts, *(f"{name}={quoted(value)}" for name, value in member.labels)])


def _shown_ids(ids: Sequence[str]) -> str:
    """The first ids of the entities that a member changed, as in ` ("ann", "bob", … 3 more)`."""
    if not ids:
        return ""
    more = [f"… {len(ids) - _IDS:,} more"] if len(ids) > _IDS else []
    return f" ({', '.join([*(quoted(cut(one)) for one in ids[:_IDS]), *more])})"


def _changes_of(graph: Graph, commit: Commit) -> Diff:
    """The changes of a commit since its first parent."""
    assert commit.parent is not None
    try:
        return graph.diff(commit.parent, commit.id)
    except VersionReclaimedError as error:
        raise VersionReclaimedError(
            f"the changes of commit {commit.id} cannot be shown: {error.message}", hint=error.hint
        ) from error


@commit.command("changes")
@click.argument("commit_id")
@address_options(positional=False, served=True)
@limit_option
@click.option("--page-token", metavar="TOKEN", help="Show exactly one page: the one after this token.")
@filter_options
@JSON
def commit_changes(
    commit_id: str,
    target: Target,
    limit: int,
    page_token: str | None,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the exact changes of a commit since its first parent, in a fixed order.

    COMMIT_ID is the id of a commit, the start of it, or a tag.
    """
    from omnigraph.engine.request_options import ChangeOptions

    filters: ChangeOptions = {"kinds": kinds or None, "types": types or None, "ops": ops or None}
    with connect_to_read(target.place()) as graph:

        def pages() -> Iterator[ChangePage]:
            """All pages; with a token, one page."""
            page = graph.changes.of(commit_id, page_token=page_token, limit=limit, **filters)
            yield page
            while page.next_page_token is not None and page_token is None:
                page = graph.changes.of(commit_id, page_token=page.next_page_token, limit=limit, **filters)
                yield page

        if as_json:
            write_stdout(_json_pages(pages()))
            return
        for number, page in enumerate(pages()):
            if number == 0:
                print_cause(page.cause)
            for change in page.changes:
                print_change(change)
    if page.next_page_token is not None:
        click.echo(f"next_page_token: {page.next_page_token}")


def _json_pages(pages: Iterator[ChangePage]) -> Iterator[bytes]:
    """The changes of all pages as one JSON document, page by page."""
    count = 0
    token = None
    for number, page in enumerate(pages):
        if number == 0:
            yield f'{{"cause":{json.dumps(page.cause.to_json(), ensure_ascii=False)},"changes":['.encode()
        for change in page.changes:
            yield f"{',' if count else ''}\n{change.text}".encode()
            count += 1
        token = page.next_page_token
    more = "" if token is None else f',"next_page_token":{json.dumps(token)}'
    yield f"]{more}}}\n".encode()
