"""The parts of a load around its rows: branch, receipt, idempotency, progress, and staging."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit import table_writes
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.table_writes import Append
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import (
    BadRowsError,
    BranchNotFoundError,
    ConstraintError,
    InputError,
    KeyConflictError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.graph import Graph
from omnigraph.storage import lookup, staging
from omnigraph.storage.table_view import TableView
from omnigraph.write.input.sources import LoadSource
from omnigraph.write.load import LoadMode, LoadPhase, LoadProgress

SCHEMA = """
node Person { name: String @key  age: I32? }
node Note { text: String }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA, actor="act-kim") as made:
        yield made


def people(*names: str) -> dict[str, pa.Table]:
    return {"Person": pa.table({"name": list(names)})}


def names(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(graph.snapshot(branch=branch).scan("node:Person", columns=["id"])["id"].to_pylist())


def branches(graph: Graph) -> list[str]:
    return [branch.name for branch in graph.branches]


# The branch


def test_a_missing_branch_is_forked_from_its_base(graph: Graph) -> None:
    graph.load(people("ann"), mode="append")
    receipt = graph.load(people("bob"), mode="append", branch="dev", base="main")
    assert (receipt.branch, receipt.base_branch, receipt.branch_created) == ("dev", "main", True)
    assert (names(graph), names(graph, "dev")) == (["ann"], ["ann", "bob"])
    again = graph.load(people("cid"), mode="append", branch="dev", base="main")
    assert (again.base_branch, again.branch_created) == ("main", False)


def test_without_a_base_a_branch_must_exist(graph: Graph) -> None:
    with pytest.raises(BranchNotFoundError):
        graph.load(people("ann"), mode="append", branch="dev")
    with pytest.raises(BranchNotFoundError):
        graph.load(people("ann"), mode="append", branch="dev", base="nowhere")
    assert branches(graph) == ["main"]


@pytest.mark.parametrize(
    ("tables", "error"),
    [
        ({"Person": pa.table({"nom": ["ann"]})}, InputError),
        ({"Knows": pa.table({"from": ["nobody"], "to": ["nobody"]})}, ConstraintError),
        ({"Person": pa.table({"name": ["old"]})}, KeyConflictError),
    ],
    ids=["rows", "constraint", "key conflict"],
)
def test_a_branch_created_by_a_failed_load_is_removed(
    graph: Graph, tables: dict[str, pa.Table], error: type[Exception]
) -> None:
    graph.load(people("old"), mode="append")
    with pytest.raises(error):
        graph.load(tables, mode="append", branch="dev", base="main")
    assert branches(graph) == ["main"]
    graph.load(people("new"), mode="append", branch="dev", base="main")


def test_a_failed_load_keeps_an_existing_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    with pytest.raises(ConstraintError):
        graph.load({"Knows": pa.table({"from": ["x"], "to": ["x"]})}, mode="append", branch="dev", base="main")
    assert branches(graph) == ["main", "dev"]


def test_a_branch_with_a_recoverable_write_is_kept(graph: Graph) -> None:
    with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
        graph.load(people("ann"), mode="append", branch="dev", base="main")
    assert "dev" in branches(graph)


# The receipt


def test_the_receipt_has_the_documented_json_form(graph: Graph) -> None:
    edges = {"Knows": pa.table({"from": ["ann"], "to": ["bob"]})}
    receipt = graph.load(people("ann", "bob") | edges, mode="append", branch="dev", base="main")
    said = json.loads(json.dumps(receipt.to_json()))
    commit = said.pop("commit")
    assert commit["graph_commit_id"] == graph.snapshot(branch="dev").commit.id
    assert said == {
        "branch": "dev",
        "base_branch": "main",
        "branch_created": True,
        "mode": "append",
        "nodes": [{"name": "Person", "entities_loaded": 2}],
        "edges": [{"name": "Knows", "entities_loaded": 1}],
        "total_entities": 3,
        "coerced": [],
        "actor_id": "act-kim",
        "engine": "local",
        "why": "0.0 MiB of input; Spark is used from 4.0 GiB",
    }


def test_a_repeated_load_returns_the_first_receipt(graph: Graph) -> None:
    first = graph.load(people("ann"), mode="append", idempotency_key="k", branch="dev", base="main")
    graph.load(people("bob"), mode="append", branch="dev")
    again = graph.load(people("ann"), mode="append", idempotency_key="k", branch="dev", base="main")
    assert again == first
    assert again.branch_created
    assert names(graph, "dev") == ["ann", "bob"]


def test_an_idempotency_key_belongs_to_one_mode_and_kind(graph: Graph) -> None:
    graph.load(people("ann"), mode="append", idempotency_key="k")
    with pytest.raises(InputError, match="made by a load with mode append"):
        graph.load(people("ann"), mode="merge", idempotency_key="k")
    write = Append("node:Person", graph.snapshot().scan("node:Person"))
    graph.write_tables(WriteRequest(idempotency_key="other"), lambda _: [write])
    with pytest.raises(InputError, match="made by a write of kind"):
        graph.load(people("bob"), mode="append", idempotency_key="other")


@pytest.mark.parametrize(
    "rows",
    [
        [{"name": "ann", "age": 1}],
        [{"name": "ann", "age": 1}, {"name": "bob"}, {"name": "cid"}],
        [{"name": "ann", "age": 1}, {"name": "cid"}],
        [{"name": "ann", "age": 2}, {"name": "bob"}],
        [{"name": "ann"}, {"name": "bob", "age": 1}],
    ],
)
def test_an_idempotency_key_is_refused_for_other_rows(graph: Graph, rows: list[dict[str, object]]) -> None:
    graph.load({"Person": [{"name": "ann", "age": 1}, {"name": "bob"}]}, mode="append", idempotency_key="k")
    with pytest.raises(InputError, match="made by a load of other rows"):
        graph.load({"Person": rows}, mode="append", idempotency_key="k")
    with pytest.raises(InputError, match="made by a load of other rows"):
        graph.load({"Person": rows, "Note": []}, mode="append", idempotency_key="k")
    assert names(graph) == ["ann", "bob"]


def test_an_idempotency_key_used_concurrently_for_other_rows_is_refused(graph: Graph) -> None:
    def overtake(progress: LoadProgress) -> None:
        if progress.phase is LoadPhase.CHECKING and "ann" not in names(graph):
            graph.load(people("ann"), mode="append", idempotency_key="k")

    with pytest.raises(InputError, match="made by a load of other rows"):
        graph.load(people("bob"), mode="append", idempotency_key="k", progress=overtake)
    assert names(graph) == ["ann"]


def test_a_handle_may_be_refreshed_during_a_load(graph: Graph) -> None:
    """Refreshing a handle reads the schema again. It is unchanged."""

    def refresh(progress: LoadProgress) -> None:
        if progress.phase is LoadPhase.CHECKING:
            graph.refresh()

    for mode in ("append", "merge", "overwrite"):
        graph.load(people(mode), mode=mode, progress=refresh)
    assert names(graph) == ["overwrite"]


# A schema change during a load


def changing(graph: Graph, times: int = 1) -> Callable[[LoadProgress], None]:
    """Add properties with defaults, one after each of the first calls."""
    left = list(range(times))

    def change(progress: LoadProgress) -> None:
        if progress.phase is LoadPhase.READING and left:
            added = "".join(f"  more{n}: I64 @default(7)" for n in range(times - len(left) + 1))
            left.pop()
            graph.schema.apply(SCHEMA.replace("age: I32?", f"age: I32?{added}"), allow="validated")

    return change


def sources(place: Path) -> dict[str, LoadSource]:
    rows = [{"name": "ann", "age": 1}, {"name": "bob", "age": 2}]
    (place / "Person.csv").write_text("name,age\nann,1\nbob,2\n")
    return {
        "table": {"Person": pa.Table.from_pylist(rows)},
        "records": {"Person": rows},
        "envelopes": [{"type": "Person", "data": row} for row in rows],
        "file": place / "Person.csv",
        "files": [place / "Person.csv"],
        "bytes": b"".join(json.dumps({"type": "Person", "data": row}).encode() + b"\n" for row in rows),
    }


@pytest.mark.parametrize("kind", ["table", "records", "envelopes", "file", "files", "bytes"])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_runs_again_if_the_schema_changes(graph: Graph, tmp_path: Path, mode: str, kind: str) -> None:
    receipt = graph.load(sources(tmp_path)[kind], mode=mode, progress=changing(graph), idempotency_key="k")
    found = graph.snapshot().scan("node:Person", columns=["id", "age", "more0"]).sort_by("id").to_pylist()
    assert found == [{"id": "ann", "age": 1, "more0": 7}, {"id": "bob", "age": 2, "more0": 7}]
    again = graph.load(sources(tmp_path)[kind], mode=mode, idempotency_key="k")
    assert again.commit is not None
    assert again.commit == receipt.commit


def test_a_load_into_a_new_branch_runs_again_if_the_schema_changes(graph: Graph) -> None:
    graph.load(people("ann"), mode="append", branch="side", base="main", progress=changing(graph, 2))
    assert names(graph, "side") == ["ann"]
    assert branches(graph) == ["main", "side"]


def test_a_load_whose_rows_do_not_fit_the_new_schema_writes_nothing(graph: Graph) -> None:
    def drop(progress: LoadProgress) -> None:
        if progress.phase is LoadPhase.READING and "age" in graph.catalog.nodes["Person"].properties:
            graph.schema.apply(SCHEMA.replace("age: I32?", ""), allow="data_loss")

    with pytest.raises(BadRowsError, match="age"):
        graph.load({"Person": [{"name": "ann", "age": 1}]}, mode="append", progress=drop)
    assert names(graph) == []


class Once:
    """Rows that can be read once, although their number is known: like a generator with a progress bar."""

    def __init__(self, rows: list[dict[str, object]]) -> None:
        self._rows = iter(rows)
        self._count = len(rows)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, object]]:
        return self._rows


@pytest.mark.parametrize(
    ("mode", "source"),
    [
        pytest.param("append", lambda: {"Person": Once([{"name": "ann"}])}, id="an iterator with a length"),
        pytest.param("merge", lambda: iter([{"type": "Person", "data": {"name": "ann"}}]), id="records of an iterator"),
        pytest.param("merge", lambda: io.BytesIO(b'{"type": "Person", "data": {"name": "ann"}}'), id="a stream"),
        pytest.param("append", lambda: {"Person": people("ann")["Person"].to_reader()}, id="an Arrow stream"),
        pytest.param("overwrite", lambda: people("ann"), id="an overwrite"),
    ],
)
def test_a_load_that_cannot_run_again_is_refused_if_the_schema_changes(
    graph: Graph, mode: str, source: Callable[[], LoadSource]
) -> None:
    graph.load(people("bob"), mode="append")
    with pytest.raises(ReadSetChangedError, match="schema changed"):
        graph.load(source(), mode=mode, progress=changing(graph))
    assert names(graph) == ["bob"]


def test_a_failed_precondition_is_reported_before_the_input_is_read(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(PreconditionFailedError):
        graph.load(tmp_path / "gone.ndjson", mode="append", expect_head="0" * 26)


def test_a_merge_without_rows_makes_no_commit(graph: Graph) -> None:
    before = graph.snapshot().commit
    receipt = graph.load({"Person": pa.table({"name": pa.array([], pa.utf8())})}, mode="merge")
    assert (receipt.total, receipt.commit, graph.snapshot().commit) == (0, None, before)


def test_a_table_without_rows_counts_as_an_overwrite_of_its_type(graph: Graph, tmp_path: Path) -> None:
    empty = pa.table({"name": pa.array([], pa.utf8())})
    pa.parquet.write_table(empty, tmp_path / "Person.parquet")
    (tmp_path / "Person.csv").write_text("name\n")
    sources: list[LoadSource] = [
        {"Person": empty},
        {"Person": []},
        tmp_path / "Person.parquet",
        tmp_path / "Person.csv",
    ]
    for source in sources:
        graph.load(people("ann"), mode="overwrite")
        receipt = graph.load(source, mode="overwrite")
        assert receipt.nodes == (("Person", 0),)
        assert receipt.commit is not None
        assert names(graph) == []


# Progress


def test_progress_reports_phase_and_rows(graph: Graph) -> None:
    told: list[LoadProgress] = []
    rows = pa.Table.from_batches(pa.table({"name": [f"p{i}" for i in range(30)]}).to_batches(10))
    graph.load({"Person": rows, "Note": pa.table({"text": ["x"]})}, mode="append", progress=told.append)
    assert [p.rows for p in told if p.phase is LoadPhase.READING] == [0, 10, 20, 30, 31]
    assert list(dict.fromkeys(p.phase for p in told)) == list(LoadPhase)
    assert told[-1].tables == {"node:Person": 30, "node:Note": 1}
    assert [p.bytes for p in told] == sorted(p.bytes for p in told)
    assert told[-1].bytes > 0


@pytest.mark.parametrize("phase", list(LoadPhase))
def test_an_error_of_the_progress_callback_ends_the_load(graph: Graph, phase: LoadPhase) -> None:
    before = graph.snapshot().commit

    def stop(told: LoadProgress) -> None:
        if told.phase is phase:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        graph.load(people("ann"), mode="append", progress=stop)
    assert graph.snapshot().commit == before


# Staging


def staged(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the staging methods that a load uses."""
    ways: list[str] = []
    staging_names = ("stage_append", "stage_change", "stage_overwrite")
    homes: list[tuple[object, str]] = [(home, name) for home in (staging, table_writes) for name in staging_names]
    for home, name in [*homes, (TableView, "lookup")]:
        original = getattr(home, name)

        def noted(*args: object, _name: str = name, _original: object = original, **more: object) -> object:
            ways.append(_name)
            return _original(*args, **more)  # type: ignore[operator]

        monkeypatch.setattr(home, name, noted)
    return ways


def test_generated_ids_are_not_looked_up(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load({"Note": pa.table({"text": ["x"]})}, mode="append")
    ways = staged(graph, monkeypatch)
    for mode in LoadMode.APPEND, LoadMode.MERGE:
        graph.load({"Note": pa.table({"text": ["y"]})}, mode=mode)
    assert ways == ["stage_append", "stage_append"]
    graph.load({"Note": pa.table({"id": ["mine"], "text": ["y"]})}, mode="append")
    assert ways[2:] == ["lookup", "stage_append"]


def test_generated_ids_are_in_the_order_of_the_input(graph: Graph) -> None:
    texts = [f"{i:03}" for i in range(200)]
    rows = pa.Table.from_batches(pa.table({"text": texts}).to_batches(7))
    graph.load({"Note": rows}, mode="append")
    stored = graph.snapshot().scan("node:Note").sort_by("id")
    assert stored["text"].to_pylist() == texts


def test_a_merge_into_an_empty_table_appends(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = staged(graph, monkeypatch)
    graph.load(people("ann"), mode="merge")
    assert ways == ["stage_append"]
    graph.load(people("ann", "bob"), mode="merge")
    assert ways[1:] == ["stage_change"]
    assert names(graph) == ["ann", "bob"]


@pytest.mark.parametrize("share", [1, 10**9], ids=["looked up", "streamed"])
def test_append_finds_existing_ids_by_lookup_and_by_scan(graph: Graph, thresholds: Thresholds, share: int) -> None:
    thresholds(lookup, MAX_LOOKUP_VALUES=0, LOOKUP_RATIO=share)
    graph.load(people(*(f"p{i}" for i in range(50))), mode="append")
    with pytest.raises(KeyConflictError, match=r"'p42' exists already \(and 1 more\)"):
        graph.load(people("x", "p42", "p30", "y"), mode="append")
    graph.load(people("x", "y"), mode="append")
    assert len(names(graph)) == 52


@pytest.mark.parametrize("share", [1, 10**9], ids=["looked up", "streamed"])
def test_uniqueness_is_checked_by_lookup_and_by_scan(tmp_path: Path, thresholds: Thresholds, share: int) -> None:
    thresholds(lookup, MAX_LOOKUP_VALUES=0, LOOKUP_RATIO=share)
    schema = "node Person { name: String @key  mail: String? @unique  city: String  house: I32  @unique(city, house) }"
    with omnigraph.init(tmp_path / "unique", schema) as graph:

        def put(*rows: tuple[str, str, str, int]) -> None:
            columns = dict(zip(("name", "mail", "city", "house"), map(list, zip(*rows, strict=True)), strict=True))
            graph.load({"Person": pa.table(columns)}, mode="merge")

        put(("ann", "a", "bern", 1), ("bob", "b", "bern", 2))
        with pytest.raises(ConstraintError, match=r"row 1: Person\.mail: 'cid': has '[^']+', and so has 'ann'"):
            put(("cid", "a", "bern", 3), ("dee", "d", "bern", 4))
        with pytest.raises(ConstraintError, match=r"house\): 'cid': has \('bern', 2\), and so has 'bob'"):
            put(("cid", "c", "bern", 2), ("dee", "d", "bern", 4))
        put(("cid", "c", "bern", 3), ("ann", "b", "basel", 2), ("bob", "a", "bern", 1))
        assert graph.verify().ok


def test_all_duplicate_keys_are_counted(graph: Graph) -> None:
    keys = [f"p{i:03}" for i in range(150)]
    with pytest.raises(ConstraintError) as caught:
        graph.load(people(*keys, *reversed(keys)), mode="merge")
    assert caught.value.total == 150
    assert [v.entity_id for v in caught.value.violations] == keys[:100]
