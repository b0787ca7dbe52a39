"""Commits as lines of a table for people, on the command line and in notebooks."""

# See docs/decisions/0181-the-history-is-for-people.md

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from omnigraph.commit.lineage import short_ids
from omnigraph.commit.manifest import Commit, TypeCounts
from omnigraph.errors import cut
from omnigraph.errors.source import one_line

HEADER = ("commit", "time (UTC)", "kind", "changes", "actor", "state", "message")


def commit_rows(commits: Sequence[Commit], removed: Collection[str] = ()) -> list[tuple[str, ...]]:
    """One row per commit with the columns of `HEADER`. The state is "not kept" for the ids in `removed`."""
    short = short_ids([found.id for found in commits])
    return [
        (
            short[found.id],
            f"{datetime.fromtimestamp(found.created_at // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}",
            found.writer or "",
            shown_counts(found),
            one_line(cut(found.recorded_actor or "")),
            "not kept" if found.id in removed else "",
            one_line(shown_message(found)),
        )
        for found in commits
    ]


def shown_counts(commit: Commit) -> str:
    """The number of changed entities, and `schema` if the commit changed the schema, as in `+3 ~1 -2 schema`.

    Empty if the numbers are not recorded.
    """
    from omnigraph.merge.receipt import adopts_tables

    totals = commit.totals
    if totals is None:
        return ""
    changes_schema = commit.writer == "SchemaApply" or adopts_tables(commit)
    return " ".join(part for part in (signed(totals), "schema" if changes_schema else "") if part) or "no rows"


def signed(counts: TypeCounts) -> str:
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
