"""The commands `commit list`, `commit show` and `commit changes`."""

# See docs/decisions/0181-the-history-is-for-people.md

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import click

from omnigraph.cli.changes import filter_options, limit_option, print_cause, print_change
from omnigraph.cli.output import JSON, iso_time, print_json, print_members, quoted
from omnigraph.cli.scope import address, address_options, open_to_read
from omnigraph.cli.streams import write_stdout
from omnigraph.errors import VersionReclaimedError, cut
from omnigraph.errors.source import printable

if TYPE_CHECKING:
    from omnigraph.changes.commit_page import ChangePage
    from omnigraph.changes.diff import Diff
    from omnigraph.commit.manifest import Commit, Member, TypeCounts
    from omnigraph.graph import Graph


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
    (-) entities, "schema" if the schema changed, the actor and the message. The start of an id is accepted wherever a
    commit id is. The state of a commit with the mark "not kept" can no longer be read.
    """
    from omnigraph.commit.manifest import commit_json

    with open_to_read(address(uri, uri_option, store)) as graph:
        page = graph.commits.list(branch=branch, actor=actor, limit=limit, cursor=cursor)
    if as_json:
        marks = {found: {"is_kept": False} for found in page.removed}
        commits = [commit_json(found) | marks.get(found.id, {}) for found in page.commits]
        print_json({"commits": commits, "cursor": page.cursor})
        return
    for line in full_lines(page.commits) if full else history_lines(page.commits, page.removed):
        click.echo(line)
    if page.cursor is not None:
        click.echo(f"there are more: add --cursor {page.cursor}", err=True)


def full_lines(commits: Sequence[Commit]) -> Iterator[str]:
    """One line per commit, with its full id."""
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
    """One line per commit for people: short id, time, kind, counts, actor, mark and the first line of the message."""
    from omnigraph.commit.lineage import short_ids

    short = short_ids([found.id for found in commits])
    rows = [
        (
            short[found.id],
            f"{iso_time(found.created_at)[:19].replace('T', ' ')}",
            found.writer or "",
            shown_counts(found),
            cut(found.recorded_actor or ""),
            "not kept" if found.id in removed else "",
            shown_message(found),
        )
        for found in commits
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(6)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False) if width]
        yield printable("  ".join([*cells, row[-1]]).rstrip())


def shown_counts(commit: Commit) -> str:
    """The number of changed entities, and `schema` if the commit changed the schema, as in `+3 ~1 -2 schema`.

    Empty if the numbers are not recorded.
    """
    from omnigraph.merge.receipt import adopts_tables

    totals = commit.totals
    if totals is None:
        return ""
    changes_schema = commit.writer == "SchemaApply" or adopts_tables(commit)
    return " ".join(part for part in (_signed(totals), "schema" if changes_schema else "") if part) or "no rows"


def _signed(counts: TypeCounts) -> str:
    """Numbers of changed entities, as in `+3 ~1 -2`; empty if there are none."""
    signs = (("+", counts.inserted), ("~", counts.updated), ("-", counts.deleted))
    return " ".join(f"{sign}{count}" for sign, count in signs if count)


def shown_message(commit: Commit) -> str:
    """The first line of the message. A merge or a branch update without a message is described."""
    from omnigraph.merge.receipt import stored_merge

    if commit.message is None and (stored := stored_merge(commit)) is not None:
        source, target = stored["source"], commit.branch
        if commit.writer == "BranchUpdate":
            return cut(f"update {target} from {source}")
        return cut(f"merge {source} into {target}")
    return first_line(commit.message or "")


def first_line(text: str) -> str:
    """The first line of a message, shortened."""
    return cut(text.strip().partition("\n")[0])


@commit.command()
@click.argument("commit_id")
@address_options(positional=False)
@click.option("--changes", is_flag=True, help="Show the changes since the first parent, as `diff` does.")
@JSON
def show(commit_id: str, uri_option: str | None, store: str | None, changes: bool, as_json: bool) -> None:
    """Show one commit of any branch.

    COMMIT_ID is the id of a commit, the start of it, or a tag.
    """
    from omnigraph.cli.diff import DEFAULT_LIMIT, print_diff
    from omnigraph.commit.manifest import commit_json

    with open_to_read(address(uri_option, store)) as graph:
        found = graph.commits.get(commit_id)
        diff = _changes_of(graph, found) if changes and found.parent is not None else None
        members = commit_json(found)
        if as_json:
            if diff is None:
                print_json(members | ({"changes": None} if changes else {}))
            else:
                head = json.dumps(members, ensure_ascii=False).removesuffix("}")
                write_stdout(chain([f'{head}, "changes": '.encode()], diff.json_chunks(), [b"}\n"]))
            return
        counts = {one.key: _signed(one) for one in found.counts or ()}
        shown = {"graph_branch": found.branch, "created_at": iso_time(found.created_at), "counts": counts}
        print_members({name: value for name, value in members.items() if name != "members"} | shown)
        for member in found.members:
            click.echo(printable(f"member {member.id}: {_shown_member(member)}"))
        if changes:
            click.echo()
            if diff is None:
                click.echo("the first commit has no parent, so it has no changes")
            else:
                print_diff(diff, DEFAULT_LIMIT)


def _shown_member(member: Member) -> str:
    """The actor, the counts and the labels of a member of a group, on one line."""
    parts = [] if member.actor is None else [f"actor={member.actor}"]
    parts += [f"{one.key}={_signed(one)}" for one in member.counts]
    return " ".join([*parts, *(f"{name}={quoted(value)}" for name, value in member.labels)])


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
@address_options(positional=False)
@limit_option
@click.option("--page-token", metavar="TOKEN", help="Show exactly one page: the one after this token.")
@filter_options
@JSON
def commit_changes(
    commit_id: str,
    uri_option: str | None,
    store: str | None,
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
    with open_to_read(address(uri_option, store)) as graph:

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
