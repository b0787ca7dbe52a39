"""Optimize gives fewer files and complete indexes in one commit, without any change of rows."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.commit.conftest import _no_fsync
from tests.commit.raw import directory

import omnigraph
from omnigraph.commit import table_writes
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.errors import InputError, ReadOnlyError
from omnigraph.graph import Graph
from omnigraph.storage.compaction import CompactedGroup
from omnigraph.upkeep.optimize import DRIFT, BuildJob, CompactJob, LocalWorkers, OptimizeReceipt
from omnigraph.upkeep.optimize import optimize as optimize_store

__all__ = ["_no_fsync"]

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    mood: enum(good, bad)?
    text: String?
    photo: Blob?
    @index(age)
    @index(mood, kind="bitmap")
    @index(text, kind="fts")
    @index(text, kind="ngram")
}
edge Knows: Person -> Person { since: I32? }
"""
STAMPS = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "g", SCHEMA)


def people(names: list[str], tag: int) -> pa.Table:
    return pa.table(
        {
            "name": names,
            "age": pa.array([(len(name) + tag) % 7 for name in names], pa.int32()),
            "mood": [("good", "bad")[(i + tag) % 2] for i in range(len(names))],
            "text": [f"word{(i + tag) % 5} of {name}" for i, name in enumerate(names)],
            "photo": pa.array([bytes([tag]) * (40 * i) for i in range(len(names))], pa.large_binary()),
        }
    )


def fill(graph: Graph, loads: int = 6, size: int = 8) -> None:
    for load in range(loads):
        names = [f"p{load * size + i}" for i in range(size)]
        edges = pa.table({"from": names, "to": names[::-1]})
        graph.load({"Person": people(names, load), "Knows": edges}, mode="append")


def seen(graph: Graph) -> dict[str, Any]:
    """All rows and query answers, with and without indexes."""
    found: dict[str, Any] = {"export": b"".join(graph.export())}
    tables, snapshot = graph.session.store.tables, graph.snapshot()
    for key in ("node:Person", "edge:Knows"):
        ref = snapshot.pin(key).ref
        columns = [name for name in tables.at(ref).schema().names if name != "photo"]
        found[key] = tables.at(ref).batches(columns=[*columns, *STAMPS]).read_all().sort_by("id").to_pylist()
    person = snapshot.pin("node:Person").ref
    wanted = [("age", pa.scalar(i, pa.int32())) for i in range(7)] + [("mood", "good"), ("mood", "bad")]
    wanted += [("name", f"p{i}") for i in range(0, 60, 7)]
    for column, value in wanted:
        rows = tables.at(person).scan(columns=["id"], filter=pc.field(column) == value)
        found[f"{column} {value}"] = sorted(rows["id"].to_pylist())
    search = "query q($w: String) { match { $p: Person search($p.text, $w) } return { $p.name } order { $p.name } }"
    for word in range(5):
        found[f"word{word}"] = graph.query(search, {"w": f"word{word}"}).to_arrow().to_pylist()
    return found


def fragments(graph: Graph, key: str = "node:Person") -> int:
    return len(graph.session.store.tables.at(graph.snapshot().pin(key).ref).fragments())


def covered(graph: Graph) -> set[int]:
    return {index.uncovered for index in graph.indexes()}


@pytest.mark.parametrize("indexed", ["before", "between", "never"])
def test_optimize_changes_only_files(graph: Graph, indexed: str) -> None:
    if indexed == "before":
        graph.ensure_indexes()
    fill(graph)
    if indexed == "between":
        graph.ensure_indexes()
        fill_more = people(["p1", "p9", "p30", "q1", "q2"], 3)
        graph.load({"Person": fill_more}, mode="merge")
    graph.mutate('query gone() { delete Person where name = "p13" }')
    before, commits = seen(graph), len(graph.commits.list().commits)
    pins = {key: graph.snapshot().pin(key).ref for key in ("node:Person", "edge:Knows")}
    receipt = graph.optimize()
    assert receipt.commit == graph.snapshot().commit
    assert receipt.commit is not None
    assert receipt.commit.writer == "Optimize"
    assert len(graph.commits.list().commits) == commits + 1
    assert seen(graph) == before
    assert covered(graph) == {0}
    assert graph.verify().ok
    for table in receipt.tables:
        assert table.committed
        assert table.skipped is None
        assert table.published_dataset_version == table.lance_head_version
        assert table.fragments_added < table.fragments_removed
    for key, ref in pins.items():
        assert graph.session.store.tables.at(graph.snapshot().pin(key).ref).changes_since(ref).is_empty
    again = graph.optimize()
    assert again.commit is None
    assert not any(table.committed or table.fragments_removed for table in again.tables)
    assert seen(graph) == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 7])
def test_optimize_between_random_writes_keeps_answers(graph: Graph, seed: int) -> None:
    """Random writes between optimizations: indexes never return old values."""
    chance = random.Random(seed)
    known: list[str] = []
    for step in range(24):
        what = chance.choice(["come", "come", "change", "change", "go", "optimize"])
        if what == "come" or not known:
            names = [f"p{step}x{i}" for i in range(chance.randint(1, 9))]
            graph.load({"Person": people(names, step)}, mode="append")
            known += names
        elif what == "change":
            graph.load({"Person": people(chance.sample(known, min(len(known), 5)), step)}, mode="merge")
        elif what == "go":
            name = known.pop(chance.randrange(len(known)))
            graph.mutate("query gone($n: String) { delete Person where name = $n }", {"n": name})
        else:
            graph.optimize(rows_per_fragment=chance.choice([4, 16, 1 << 20]))
            assert covered(graph) == {0}
        _by_index_and_without(graph)
    assert graph.verify().ok


def _by_index_and_without(graph: Graph) -> None:
    ref = graph.snapshot().pin("node:Person").ref
    rows = graph.session.store.tables.at(ref).scan(columns=["id", "age", "mood"])
    wanted = [("age", pa.scalar(i, pa.int32())) for i in range(7)] + [("mood", pa.scalar(m)) for m in ("good", "bad")]
    for column, value in wanted:
        found = (
            graph.session.store.tables.at(ref).scan(columns=["id"], filter=pc.field(column) == value)["id"].to_pylist()
        )
        expected = rows.filter(pc.equal(rows[column], value))["id"].to_pylist()
        assert sorted(found) == sorted(expected), (column, value)


def test_optimize_keeps_rows_of_a_concurrent_commit(graph: Graph) -> None:
    """The compacted files are used if their rows have not changed."""
    fill(graph)
    done: list[CompactJob] = []

    class Slow(LocalWorkers):
        def compact(self, jobs: Any) -> Any:
            if not done:
                graph.load({"Person": people(["between"], 1)}, mode="append")
            done.extend(jobs)
            return super().compact(jobs)

    catalog = graph.accepted_schema.catalog
    receipt = optimize_store(graph.session.store, lambda view: catalog, lambda size: Slow(graph.session.store.tables))
    assert receipt.commit == graph.snapshot().commit
    assert [job.ref.path.split("/")[0] for job in done] == ["edges", "nodes"]
    assert fragments(graph) == 2, "the rows that came meanwhile lie in a file of their own"
    assert graph.snapshot().pin("node:Person").row_count == 49
    assert graph.verify().ok
    leftover = [path.name for path in Path(graph.uri).rglob("d*.manifest")]
    assert leftover == []


def test_optimize_of_compact_tables_builds_only_indexes(graph: Graph) -> None:
    fill(graph, loads=1)
    receipt = graph.optimize()
    assert [(t.committed, t.fragments_removed) for t in receipt.tables] == [(True, 0), (True, 0)]
    assert covered(graph) == {0}


def test_optimize_keeps_branches_and_old_commits(graph: Graph) -> None:
    fill(graph, loads=2)
    graph.branches.create("draft")
    graph.load({"Person": people(["mine"], 2)}, mode="append", branch="draft")
    old, head = b"".join(graph.export(branch="draft")), graph.snapshot().commit.id
    main = b"".join(graph.export())
    graph.optimize()
    assert b"".join(graph.export(branch="draft")) == old
    assert b"".join(graph.export(at=head)) == main
    graph.load({"Person": people(["after"], 2)}, mode="append", branch="draft")
    assert graph.verify(branch="draft").ok


def test_a_table_with_drift_is_skipped(graph: Graph) -> None:
    fill(graph)
    ref = graph.snapshot().pin("node:Person").ref
    lance.dataset(str(directory(graph, graph.snapshot().pin("node:Person")))).update_config({"by": "others"})
    receipt = graph.optimize()
    told = {table.type_key: table for table in receipt.tables}
    assert told["node:Person"].skipped == DRIFT
    assert told["node:Person"].published_dataset_version == ref.version
    assert told["node:Person"].lance_head_version == ref.version + 1
    assert told["edge:Knows"].committed


def test_invalid_options_and_read_only_handles_are_refused(graph: Graph, tmp_path: Path) -> None:
    fill(graph, loads=2)
    with pytest.raises(InputError, match="rows_per_fragment must be at least 1"):
        graph.optimize(rows_per_fragment=0)
    with pytest.raises(ReadOnlyError):
        omnigraph.open(tmp_path / "g", read_only=True).optimize()


def test_optimize_recovers_interrupted_writes_first(graph: Graph) -> None:
    fill(graph, loads=2)
    with armed(Failpoint.TABLE_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
        graph.load({"Person": people(["x"], 1)}, mode="append")
    assert graph.optimize().commit is not None
    assert [record.kind for record in graph.recovery.list()] != []
    assert not graph.session.store.objects.list("__recovery")


class Meanwhile(LocalWorkers):
    """Workers in this process, beside writers that commit after each compaction job."""

    def __init__(self, graph: Graph, writes: list[Callable[[], object]]) -> None:
        super().__init__(graph.session.store.tables)
        object.__setattr__(self, "writes", writes)
        object.__setattr__(self, "packs", 0)

    def build(self, jobs: Sequence[BuildJob]) -> list[bytes]:
        built = super().build(jobs)
        if self.writes:  # type: ignore[attr-defined]
            self.writes.pop(0)()  # type: ignore[attr-defined]
        return built

    def compact(self, jobs: Sequence[CompactJob]) -> list[CompactedGroup]:
        object.__setattr__(self, "packs", self.packs + len(jobs))  # type: ignore[attr-defined]
        return super().compact(jobs)


def optimized_beside(graph: Graph, *writes: Callable[[], object]) -> tuple[OptimizeReceipt, int]:
    """Optimize beside other writers. Returns the number of compacted groups of files, including discarded ones."""
    workers = Meanwhile(graph, list(writes))
    receipt = optimize_store(
        graph.session.store,
        lambda view: graph.session.schemas.of(view).catalog,
        lambda size: workers,
        rows_per_fragment=24,
    )
    assert not workers.writes, "everybody has written"  # type: ignore[attr-defined]
    return receipt, workers.packs  # type: ignore[attr-defined]


def unindexed(graph: Graph, place: Path) -> dict[str, Any]:
    """The rows and answers of a graph with the same rows and without indexes."""
    with omnigraph.init(place, SCHEMA) as plain:
        for type_name in ("Person", "Knows"):
            rows = [line for line in b"".join(graph.export(types=type_name)).splitlines() if line]
            plain.load(io.BytesIO(b"\n".join(rows)), mode="append")
        return {name: found for name, found in seen(plain).items() if name not in ("node:Person", "edge:Knows")}


def test_rows_added_meanwhile_cause_no_repeated_compaction(graph: Graph, tmp_path: Path) -> None:
    """No group is compacted twice, no index is built twice, and indexes find every row in renumbered fragments."""
    fill(graph)
    receipt, packs = optimized_beside(graph, lambda: graph.load({"Person": people(["x", "y"], 2)}, mode="append"))
    assert receipt.commit == graph.branch().head
    assert packs == 4, "two tables with two groups each"
    assert {index.uncovered for index in graph.indexes() if index.type_key == "node:Person"} == {2}
    found = seen(graph)
    assert {name: found[name] for name in found if name[:4] not in ("node", "edge")} == unindexed(graph, tmp_path / "u")


def test_files_with_rows_changed_meanwhile_are_compacted_again(graph: Graph, tmp_path: Path) -> None:
    """Of two groups of files one is changed. The compacted files of the other are used."""
    fill(graph)
    change = 'query change() { update Person set { age: 3, mood: "good" } where name = "p2" }'
    receipt, packs = optimized_beside(graph, lambda: graph.mutate(change))
    assert receipt.commit == graph.branch().head
    assert packs == 5
    assert graph.entity("Person", "p2")["age"] == 3  # type: ignore[index]
    found = seen(graph)
    assert {name: found[name] for name in found if name[:4] not in ("node", "edge")} == unindexed(graph, tmp_path / "u")


def test_optimize_succeeds_beside_constant_updates(graph: Graph) -> None:
    """Its groups change again and again, so it finally compacts while it holds the lease."""
    fill(graph)

    def change() -> object:
        return graph.mutate("query change() { update Person set { age: 3 } where age >= 0 }")

    receipt, _ = optimized_beside(graph, change, change)
    assert receipt.commit == graph.branch().head
    assert fragments(graph) < 6


def test_indexes_are_built_beside_writers(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(graph)
    stage = table_writes.BuildIndexes.stage
    calls: list[str] = []

    def overtaken(*arguments: Any, **named: Any) -> Any:
        staged = stage(*arguments, **named)
        if not calls:
            calls.append("insert")
            graph.load({"Person": people(["x", "y"], 2)}, mode="append")
            graph.mutate('query change() { update Person set { age: 3 } where name = "p2" }')
        else:
            calls.append("again")
        return staged

    monkeypatch.setattr(table_writes.BuildIndexes, "stage", overtaken)
    receipt = graph.ensure_indexes()
    assert receipt.commit == graph.branch().head
    assert calls.count("again") == 1, "one call for the other table, and none again"
    found = seen(graph)
    assert "p2" in found["age 3"]
    assert {index.uncovered for index in graph.indexes() if index.type_key == "node:Person"} == {3}


@pytest.mark.parametrize("reached", [1, 2])
def test_a_partly_optimized_table_is_rolled_back(graph: Graph, reached: int) -> None:
    """It fails between the two commits that it makes to a table."""
    fill(graph)
    before = seen(graph)
    with armed(Failpoint.TABLE_PACKED, "error", reached=reached), pytest.raises(Exception, match="table_packed"):
        graph.optimize()
    assert seen(graph) == before
    assert [table.state for table in graph.recovery.list()[0].tables].count("IncompletePhaseB") == 1
    assert graph.optimize().commit is not None
    assert seen(graph) == before


@pytest.mark.slow
def test_repeated_optimize_does_not_accumulate_files_or_index_segments(graph: Graph) -> None:
    """Neither files nor index segments accumulate, although index coverage limits which files can be combined."""
    fill(graph, loads=1, size=64)
    graph.optimize()
    for round_ in range(7):
        graph.load({"Person": people([f"n{round_}", f"m{round_}", "p7"], round_)}, mode="merge")
        before = seen(graph)
        graph.optimize()
        assert seen(graph) == before
        assert covered(graph) == {0}
        assert fragments(graph) <= 2
        ref = graph.snapshot().pin("node:Person").ref
        segments = {i.name: len(i.segments) for i in graph.session.store.tables.at(ref).dataset.describe_indices()}
        assert max(segments.values()) <= 2, segments
        assert graph.optimize().commit is None
    assert graph.verify().ok
