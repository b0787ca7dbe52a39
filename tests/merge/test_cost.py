"""The cost of a merge depends on the changes: unchanged rows are not read, and rows need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.merge import compare, sides
from omnigraph.merge.choices import Choice, Resolved
from omnigraph.merge.compare import LocalComparer
from omnigraph.merge.property_level import compare_rows
from omnigraph.merge.receipt import MergedChanges
from omnigraph.merge.sides import Columns, Versions
from omnigraph.storage import row_pairs
from omnigraph.storage.blobs import BlobInfo
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView
from omnigraph.storage.tables import TableStorage

SCHEMA = """
node Person { name: String @key  age: I64? }
node City { name: String @key  size: I64? }
edge Lives: Person -> City { since: I64? }
"""
MANY = 5_000


@pytest.fixture
def graph(place: Path) -> Graph:
    made = omnigraph.init(place, SCHEMA)
    names = [f"p{i:06d}" for i in range(MANY)]
    made.load({"Person": pa.table({"name": names, "age": [1] * MANY})}, mode="append")
    made.load({"City": pa.table({"name": ["rome"], "size": [1]})}, mode="append")
    made.branches.create("side")
    return made


def _do(graph: Graph, text: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {text} }}", branch=branch)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """The number of rows of each version that merges compare, by table."""
    found: list[tuple[int, int, int]] = []
    original = compare_rows

    def noted(base: pa.Table, source: pa.Table, target: pa.Table, *more: Any, **options: Any) -> Resolved:
        found.append((base.num_rows, source.num_rows, target.num_rows))
        return original(base, source, target, *more, **options)

    monkeypatch.setattr(compare, "compare_rows", noted)
    return found


def test_tables_that_the_source_has_not_changed_are_not_compared(
    graph: Graph, compared: list[tuple[int, int, int]]
) -> None:
    _do(graph, 'insert City { name: "oslo" }', "side")
    _do(graph, 'update Person set { age: 2 } where name = "p000001"')
    graph.merge("side")
    assert compared == [(0, 1, 0)], "one row of one table"


def test_unchanged_rows_are_not_compared(graph: Graph, compared: list[tuple[int, int, int]]) -> None:
    _do(graph, 'update Person set { age: 2 } where name = "p000001"', "side")
    _do(graph, 'update Person set { age: 2 } where name = "p000002"')
    _do(graph, 'delete Person where name = "p000003"', "side")
    graph.merge("side")
    assert compared == [(2, 1, 2)]
    assert graph.snapshot().pin("node:Person").row_count == MANY - 1


def test_a_merge_after_a_merge_compares_only_touched_rows(graph: Graph, compared: list[tuple[int, int, int]]) -> None:
    """The base is on the other branch, and the tables share no versions after it."""
    for number in range(3):
        _do(graph, f'update Person set {{ age: 2 }} where name = "p00000{number}"', "side")
        _do(graph, f'update Person set {{ age: 3 }} where name = "p00001{number}"')
        graph.merge("side")
    assert compared == [(1, 1, 1)] * 3
    assert graph.snapshot().scan("node:Person").group_by("age").aggregate([([], "count_all")]).num_rows == 3


def test_an_added_column_does_not_increase_the_comparison(graph: Graph, compared: list[tuple[int, int, int]]) -> None:
    """Lance marks all rows as updated if a column with values is added. Only rows that were written are compared."""
    added = graph.schema.source.replace("age: I64?", "age: I64?  level: I64 @default(7)")
    assert graph.schema.apply(added).applied
    _do(graph, 'update Person set { age: 2 } where name = "p000001"')
    _do(graph, 'update Person set { age: 3 } where name = "p000002"', "side")
    graph.branches.update("side")
    assert compared == [(1, 1, 1)]
    rows = graph.snapshot(branch="side").scan("node:Person", columns=["id", "age", "level"]).to_pylist()
    assert {row["level"] for row in rows} == {7}
    assert {row["id"]: row["age"] for row in rows if row["age"] != 1} == {"p000001": 2, "p000002": 3}


def test_a_table_is_forked_by_the_first_merge_that_changes_it(graph: Graph) -> None:
    graph.branches.create("other")
    _do(graph, 'insert City { name: "oslo" }', "side")
    forks = graph.session.store.tables.forks
    person, city = (graph.snapshot().pin(key).ref.path for key in ("node:Person", "node:City"))
    assert (len(forks(person)), len(forks(city))) == (0, 1)
    graph.merge("side", into="other")
    assert (len(forks(person)), len(forks(city))) == (0, 2)
    pins = graph.snapshot(branch="other").tables
    assert pins["node:Person"] == graph.snapshot().tables["node:Person"]
    assert pins["node:City"].ref.branch not in (None, graph.snapshot(branch="side").tables["node:City"].ref.branch)
    assert graph.merge("side").outcome == "fast_forward"


def _everywhere(graph: Graph) -> None:
    """Change most rows on both sides, some of them in the same way."""
    half, third = MANY // 2, MANY // 3
    names = [f"p{i:06d}" for i in range(MANY)]
    side = pa.table({"name": [*names[:half], "new"], "age": [2] * (half + 1)})
    main = pa.table({"name": names[third:], "age": [2] * (MANY - third)})
    graph.load({"Person": side}, mode="merge", branch="side")
    graph.load({"Person": main}, mode="merge")


def _versions(graph: Graph) -> Versions:
    side, main = graph.snapshot(branch="side"), graph.snapshot()
    ref = side.tables["node:Person"].ref
    begun = TableRef(ref.path, None, graph.session.store.tables.fork_points(ref.path)[str(ref.branch)].version)
    columns = Columns.of(side.table("node:Person").schema())
    schema = columns.schema(side.table("node:Person").schema())
    return Versions("node:Person", begun, ref, main.tables["node:Person"].ref, columns, schema)


def test_a_comparison_in_parts_uses_less_memory(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds
) -> None:
    thresholds(row_pairs, SCAN_ROWS=0, SCAN_RATIO=1_000_000)
    _everywhere(graph)
    versions = _versions(graph)
    whole, parts = LocalComparer(graph.session.store.tables), LocalComparer(graph.session.store.tables, 64 << 10)
    largest = _largest(monkeypatch)
    one = whole.compare(versions, Choice(), ["id"])
    at_once = largest.pop()
    many = parts.compare(versions, Choice(), ["id"])
    assert whole.parts == 1
    assert parts.parts > 10
    assert max(largest) < at_once / 5, "no part holds what all hold together"
    assert many.rows.sort_by("id") == one.rows.sort_by("id")
    assert (many.inserted, many.updated) == (one.inserted, one.updated) == (1, MANY // 3)


def _largest(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    original = compare_rows

    def noted(base: pa.Table, source: pa.Table, target: pa.Table, *more: Any, **options: Any) -> Resolved:
        sizes.append(sum(table.nbytes for table in (base, source, target)))
        return original(base, source, target, *more, **options)

    monkeypatch.setattr(compare, "compare_rows", noted)
    return sizes


def test_without_the_versions_in_between_whole_tables_are_compared(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, compared: list[tuple[int, int, int]]
) -> None:
    """If cleanup has removed the versions in between, all rows in files that differ are compared."""
    _do(graph, 'update Person set { age: 2 } where name = "p000001"', "side")
    _do(graph, 'update Person set { age: 3 } where name = "p000002"')

    def gone(*_: Any) -> None:
        raise omnigraph.errors.VersionReclaimedError("gone")

    monkeypatch.setattr(TableView, "changed_row_ids", gone)
    receipt = graph.merge("side")
    assert compared == [(MANY, MANY, MANY)]
    assert {key: change.updated for key, change in receipt.changes.items()} == {"node:Person": 1}
    assert graph.entity("Person", "p000001") == {"id": "p000001", "name": "p000001", "age": 2}
    assert graph.entity("Person", "p000002") == {"id": "p000002", "name": "p000002", "age": 3}


def test_blobs_are_read_only_of_rows_that_may_differ(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = omnigraph.init(place, "node Note { name: String @key  text: Blob?  n: I64? }")
    names = [f"n{i}" for i in range(50)]
    blobs = pa.array([bytes([i]) * 100 for i in range(50)], pa.large_binary())
    graph.load({"Note": pa.table({"name": names, "text": blobs, "n": [1] * 50})}, mode="append")
    graph.branches.create("side")
    _do(graph, 'update Note set { n: 2 } where name = "n1"', "side")
    _do(graph, 'update Note set { n: 2 } where name = "n2"')
    read: list[int] = []
    original = sides.blob_cells

    def noted(tables: TableStorage, ref: TableRef, row_ids: pa.Array, *names: Any) -> Iterator[pa.Table]:
        read.append(len(row_ids))
        return original(tables, ref, row_ids, *names)

    monkeypatch.setattr(sides, "blob_cells", noted)
    graph.merge("side")
    assert read == [1, 1, 1], "of one row in the base and the source, and of the one that is written"
    assert graph.blob("Note", "n1", "text").read() == bytes([1]) * 100
    assert graph.entity("Note", "n1") == {"id": "n1", "name": "n1", "text": BlobInfo(100), "n": 2}


@pytest.mark.slow
def test_cleanup_and_optimize_between_merges_do_not_increase_the_comparison(
    graph: Graph, compared: list[tuple[int, int, int]]
) -> None:
    """Cleanup keeps the base of the next merge, and compaction does not count as a change of rows."""
    for number in range(3):
        for step in range(2):
            _do(graph, f'update Person set {{ age: {10 + step} }} where name = "p00000{number}"', "side")
            _do(graph, f'update Person set {{ age: {20 + step} }} where name = "p00001{number}"')
        assert graph.cleanup(keep=0, orphans_older_than=timedelta(0)).versions_removed > 0
        assert graph.merge("side").changes == {"node:Person": MergedChanges(0, 1, 0)}
        graph.optimize()
    assert compared == [(1, 1, 1)] * 3
    assert graph.verify().ok


def test_a_revert_compares_only_the_rows_of_its_commit(graph: Graph, compared: list[tuple[int, int, int]]) -> None:
    """The cost follows the commit, also if the branch has many later commits."""
    _do(graph, 'update Person set { age: 2 } where name = "p000001"')
    wrong = graph.branch("main").head.id
    for number in range(2, 6):
        _do(graph, f'update Person set {{ age: 3 }} where name = "p00000{number}"')
    graph.revert(wrong)
    assert compared == [(1, 1, 1)]
