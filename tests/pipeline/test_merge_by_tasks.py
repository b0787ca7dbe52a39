"""Tasks that merge rows give the same tables as one process: the same rows, order and row ids."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.pipeline.in_process import InProcess
from tests.pipeline.worlds import Rows, graph_at, outcome, rows, write

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.errors import InputError
from omnigraph.graph import Graph, init
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.write.load import LoadPhase, LoadProgress
from omnigraph.write.receipt import LoadReceipt, MergeWay

_SPLIT = 1_500
_STAMPS = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
_NAMED = ("node:Person", "node:Note", "edge:Wrote")
"""The types whose ids are derived from the input, so that they are equal in two graphs."""


def by_tasks(graph: Graph, source: Any, threshold: int | str | None = 0, **said: Any) -> LoadReceipt:
    said = {"mode": "merge", "split_bytes": _SPLIT, **said}
    return Pipeline(graph, InProcess()).load(source, merge_threshold=threshold, **said)


def stamped(graph: Graph, key: str, branch: str = "main") -> list[dict[str, Any]]:
    """All rows of a table in storage order, with Lance's system columns."""
    ref = graph.snapshot(branch=branch).pin(key).ref
    tables = graph.session.store.tables
    columns = [*tables.at(ref).schema().names, *_STAMPS]
    found: list[dict[str, Any]] = tables.at(ref).batches(columns=columns).read_all().to_pylist()
    return found


def changed(graph: Graph, key: str, before: Any) -> tuple[dict[str, list[Any]], list[str]]:
    """The changes of one step as a feed reports them: inserted, updated and deleted ids."""
    after = graph.snapshot().pin(key).ref
    dataset = graph.session.store.tables.at(after).dataset
    delta = dataset.delta(begin_version=before.version, end_version=after.version)
    came = delta.get_inserted_rows().read_all()["id"].to_pylist()
    written = delta.get_updated_rows().read_all()["id"].to_pylist()
    found = graph.session.store.tables.at(after).changes_since(before)
    return {"came": sorted(came), "written": sorted(written)}, found.deleted.to_pylist()


def _updates(content: Rows) -> Rows:
    notes = [{"id": f"n{i}", "text": f"another {i}", "size": 900 + i} for i in range(20)]
    return {"Person": rows(5, 30, 1)["Person"], "Note": notes}


def _inserts(content: Rows) -> Rows:
    return content


def _both(content: Rows) -> Rows:
    old = _updates(content)
    return {"Person": [*content["Person"], *old["Person"][3:17]], "Note": [*old["Note"][:9], *content["Note"]]}


def _several_with_one_id(content: Rows) -> Rows:
    notes = [{"id": f"n{i % 30}", "text": f"number {i}", "size": i} for i in range(90)]
    return {"Note": notes}


WORLDS = [_updates, _inserts, _both, _several_with_one_id]


@pytest.mark.parametrize("indexed", [False, True], ids=["", "indexed"])
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__.strip("_"))
def test_tasks_write_the_same_tables_as_one_process(tmp_path: Path, world: Any, indexed: bool) -> None:
    source = write(tmp_path / "input", world(rows(3, first=100)), "ndjson")
    here, there = graph_at(tmp_path / "here"), graph_at(tmp_path / "there")
    if indexed:
        for graph in (here, there):
            graph.ensure_indexes()
    before = {key: [graph.snapshot().pin(key).ref for graph in (here, there)] for key in _NAMED}
    expected = outcome(here, lambda: here.load(source, mode="merge"))
    receipt = by_tasks(there, source)
    assert {merge.way for merge in receipt.merges} == {MergeWay.TASKS}
    assert outcome(there, lambda: receipt) == expected
    for key in _NAMED:
        assert stamped(there, key) == stamped(here, key)
        one, other = (changed(graph, key, ref) for graph, ref in zip((here, there), before[key], strict=True))
        assert one == other
    assert there.verify().ok
    assert _found(there) == _found(here)


def _found(graph: Graph) -> list[list[str]]:
    """The rows that are found by indexed values, if there are indexes."""
    tables, person = graph.session.store.tables, graph.snapshot().pin("node:Person").ref
    wanted = [("name", f"person {i}") for i in range(0, 140, 7)] + [("email", f"person {i}@x.org") for i in range(12)]
    return [
        sorted(tables.at(person).scan(columns=["id"], filter=pc.field(c) == v)["id"].to_pylist()) for c, v in wanted
    ]


@pytest.mark.parametrize("forked", [False, True], ids=["first", "later"])
def test_tasks_write_the_same_tables_on_a_branch(tmp_path: Path, forked: bool) -> None:
    source = write(tmp_path / "input", _both(rows(3, first=100)), "ndjson")
    here, there = graph_at(tmp_path / "here"), graph_at(tmp_path / "there")
    for graph in (here, there):
        graph.branches.create("draft")
        if forked:
            graph.load([{"type": "Person", "data": {"name": "early"}}], mode="append", branch="draft")
    main = b"".join(there.export())
    expected = outcome(here, lambda: here.load(source, mode="merge", branch="draft"), "draft")
    assert outcome(there, lambda: by_tasks(there, source, branch="draft"), "draft") == expected
    for key in _NAMED:
        assert stamped(there, key, "draft") == stamped(here, key, "draft")
    assert b"".join(there.export()) == main
    forks = {key: there.session.store.tables.forks(there.snapshot().pin(key).ref.path) for key in _NAMED}
    assert {key: len(names) for key, names in forks.items()} == {"node:Person": 1, "node:Note": 1, "edge:Wrote": 0}


def test_tasks_merge_rows_with_blobs(tmp_path: Path) -> None:
    schema = "node Ship { name: String @key  crew: I32?  photo: Blob? }"
    old = pa.table({"name": [f"s{i}" for i in range(40)], "photo": [bytes([i]) * 300 for i in range(40)]})
    names = [f"s{i}" for i in range(20, 60)]
    photos = [None if i % 5 == 0 else b"" if i % 7 == 0 else bytes([i]) * 100_000 for i in range(40)]
    new = pa.table({"name": names, "photo": pa.array(photos, pa.large_binary())})
    here, there = init(tmp_path / "here", schema), init(tmp_path / "there", schema)
    for graph in (here, there):
        graph.load({"Ship": old}, mode="append")
    here.load({"Ship": new}, mode="merge")
    by_tasks(there, {"Ship": new}, split_bytes=500_000)
    assert b"".join(there.export()) == b"".join(here.export())
    assert there.verify().ok


@pytest.mark.parametrize("branch", ["main", "draft"])
def test_a_concurrent_commit_discards_the_matched_rows(tmp_path: Path, branch: str) -> None:
    """Rows that were matched with an older state are discarded, and matched again."""
    graph = graph_at(tmp_path / "graph")
    source = write(tmp_path / "input", _both(rows(3, first=100)), "ndjson")
    if branch != "main":
        graph.branches.create(branch)
    # It is the first write to the table on the branch.
    between = iter([{"name": "person 103", "age": 7}])
    seen = []

    def interfere(progress: LoadProgress) -> None:
        if progress.phase is LoadPhase.WRITING:
            seen.append(progress)
            if (record := next(between, None)) is not None:
                graph.load([{"type": "Person", "data": record}], mode="merge", branch=branch)

    receipt = by_tasks(graph, source, branch=branch, progress=interfere)
    assert len(seen) > 1, "it was done again"
    snapshot = graph.snapshot(branch=branch)
    assert receipt.commit == snapshot.commit
    assert snapshot.pin("node:Person").row_count == 30 + 60
    ids = [row["id"] for row in stamped(graph, "node:Person", branch)]
    assert len(ids) == len(set(ids)) == 90
    assert graph.verify(branch=branch).ok
    assert len(graph.session.store.tables.forks(snapshot.pin("node:Person").ref.path)) == (branch != "main")


@pytest.mark.slow
def test_the_merge_method_depends_on_the_size_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "input", _both(rows(3, first=100)), "ndjson")
    graph = graph_at(tmp_path / "graph")
    receipt = by_tasks(graph, source, threshold=None)
    assert [(merge.type_key, merge.way) for merge in receipt.merges] == [
        ("node:Note", MergeWay.PROCESS),
        ("node:Person", MergeWay.PROCESS),
    ]
    assert receipt.to_json()["merges"][0] == {
        "type_key": "node:Note",
        "way": "process",
        "why": "0.0 MiB of rows; tasks merge 1.0 GiB or more",
    }
    monkeypatch.setenv("OMNIGRAPH_MERGE_THRESHOLD", "1 KiB")
    assert {merge.way for merge in by_tasks(graph, source, threshold=None).merges} == {MergeWay.TASKS}
    assert {merge.way for merge in by_tasks(graph, source, threshold="1 GiB").merges} == {MergeWay.PROCESS}
    others = write(tmp_path / "others", rows(4, first=500), "ndjson")
    assert by_tasks(graph, others, mode="append").merges == ()
    assert "merges" not in graph.load(source, mode="merge").to_json()
    with pytest.raises(InputError, match="merge_threshold: 'much' is not an amount"):
        by_tasks(graph, source, threshold="much")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "done"),
    [
        (Failpoint.STAGED, False),
        (Failpoint.TABLE_COMMITTED, False),
        (Failpoint.TABLES_COMMITTED, True),
        (Failpoint.PUBLISHED, True),
    ],
)
def test_a_crashed_merge_is_recovered(tmp_path: Path, point: Failpoint, done: bool) -> None:
    """The next open of the graph completes or undoes it, and it can be repeated."""
    source = write(tmp_path / "input", _both(rows(3, first=100)), "ndjson")
    graph = graph_at(tmp_path / "graph")
    whole = graph_at(tmp_path / "whole")
    before = b"".join(graph.export())
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        by_tasks(graph, source)
    whole.load(source, mode="merge")
    after = b"".join(whole.export())
    with omnigraph.open(tmp_path / "graph") as reopened:
        assert _without_ids(b"".join(reopened.export())) == _without_ids(after if done else before)
        by_tasks(reopened, source)
        assert _without_ids(b"".join(reopened.export())) == _without_ids(after)
        assert reopened.verify().ok


def _without_ids(exported: bytes) -> bytes:
    """Generated ids differ from graph to graph."""
    return re.sub(rb"\b[0-9A-HJKMNP-TV-Z]{26}\b", b"ID", exported)
