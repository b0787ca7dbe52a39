"""Diffs and the change feed, by the number of changed rows, in a large table and in a small one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from changing.data import KEY, Table
from changing.turns import in_turns, repeated
from harness import Benchmark, Work

FLAT = 1.5
"""The time in the large table, as a multiple of that in the small one."""

FEW_MS = 200
"""Milliseconds for the smallest change."""

PAGE = 8_192
MOST = 10 * PAGE
"""Number of changes that are read of a feed."""


def diff(table: Table, count: int) -> None:
    """Compare all rows that may differ, and count the changes."""
    table.forget()
    change = table.changes[count]
    found = table.graph.diff(change.before, change.after).stat()
    assert (found.inserts, found.updates, found.deletes) == (0, len(change.ids), 0)


def feed(table: Table, count: int) -> None:
    """Read the changes of one commit with their old and new values, page by page: all, or the first `MOST`."""
    table.forget()
    change = table.changes[count]
    found, token = 0, None
    while found == 0 or (token is not None and found < MOST):
        page = table.graph.changes.of(change.after, page_token=token, limit=PAGE, max_bytes=32 << 20)
        found, token = found + len(page.changes), page.next_page_token
    assert found == min(len(change.ids), MOST)


def check(table: Table) -> None:
    """Check that a diff and the feed report exactly the changed rows, with their values before and after."""
    change = table.changes[min(table.changes)]
    rows = table.graph.diff(change.before, change.after)["Person"].updated()
    assert rows["id"].combine_chunks().equals(change.ids)
    states = [table.graph.snapshot(commit=one) for one in (change.before, change.after)]
    names = [name for name in states[0].table(KEY).schema().names if name != "id"]
    for state, name in zip(states, ("before", "after"), strict=True):
        stored = state.lookup(KEY, "id", pa.chunked_array([change.ids]), columns=["id", *names]).sort_by("id")
        images = rows[name].combine_chunks().flatten()
        fields = rows.schema.field(name).type
        for column in names:
            assert images[fields.get_field_index(column)].equals(stored[column].combine_chunks())
    page = table.graph.changes.of(change.after)
    assert [one.id for one in page.changes] == change.ids.to_pylist()


def by_size(
    bench: Benchmark, tables: tuple[Table, Table], what: str, work: Callable[[Table, int], None], rounds: int
) -> None:
    """Time some work on changes of each size, on the large table against the small one."""
    small, large = tables
    for table in tables:
        check(table)
    for count in large.changes:

        def timed(table: Table, count: int = count) -> Work:
            return lambda: work(table, count)

        name = f"{what} of {count:,} changed rows"
        peer = f"of {small.rows:,}"
        found = in_turns(
            bench,
            f"{name}, of {large.rows:,}",
            repeated(timed(large)),
            {peer: repeated(timed(small))},
            rounds if count < 100_000 else 3,
        )
        bench.goal(f"{name}, by the size of the table", 1 / found.speedup(peer), FLAT, "×")
        if count == min(large.changes):
            bench.goal(name, found.ours.median * 1000, FEW_MS, "ms")


def diffs(bench: Benchmark, tables: tuple[Table, Table]) -> None:
    by_size(bench, tables, "a diff", diff, rounds=9)


def feeds(bench: Benchmark, tables: tuple[Table, Table]) -> None:
    by_size(bench, tables, "the feed", feed, rounds=9)
