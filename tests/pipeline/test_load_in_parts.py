"""Guarantees of a load by many tasks: one commit or nothing, on any branch, once."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.in_process import InProcess
from tests.pipeline.worlds import graph_at, outcome, rows, write

from omnigraph.errors import (
    CancelledError,
    ConstraintError,
    InputError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.graph import Graph, init
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.read.budget import Cancellation
from omnigraph.write.load import LoadPhase, LoadProgress
from omnigraph.write.receipt import LoadMode

_SPLIT = 6_000


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return graph_at(tmp_path / "graph")


@pytest.fixture
def source(tmp_path: Path) -> Any:
    return write(tmp_path / "input", rows(3, first=100), "ndjson")


def pipeline(graph: Graph) -> Pipeline:
    return Pipeline(graph, InProcess())


def files(graph: Graph) -> set[str]:
    root = Path(graph.uri)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "__lease" not in path.parts}


@pytest.mark.parametrize("mode", [mode.value for mode in LoadMode])
@pytest.mark.parametrize("forked", [False, True])
def test_a_partitioned_load_to_a_branch_gives_the_same_result(
    tmp_path: Path, source: Any, mode: str, forked: bool
) -> None:
    here, there = graph_at(tmp_path / "here"), graph_at(tmp_path / "there")
    for each in (here, there):
        each.branches.create("draft")
        if forked:
            each.load([{"type": "Person", "data": {"name": "early"}}], mode="append", branch="draft")
    expected = outcome(here, lambda: here.load(source, mode=mode, branch="draft"), "draft")
    found = outcome(there, lambda: pipeline(there).load(source, mode=mode, branch="draft", split_bytes=_SPLIT), "draft")
    assert found == expected
    assert outcome(there, lambda: there.load([], mode="merge")) == outcome(here, lambda: here.load([], mode="merge"))


def test_a_created_branch_is_removed_if_the_load_fails(tmp_path: Path, graph: Graph, source: Any) -> None:
    wrong = write(tmp_path / "wrong", {"Knows": [{"from": "nobody", "to": "nobody"}]}, "ndjson")
    with pytest.raises(ConstraintError):
        pipeline(graph).load(wrong, mode="append", branch="draft", base="main")
    assert [branch.name for branch in graph.branches] == ["main"]
    receipt = pipeline(graph).load(source, mode="append", branch="draft", base="main", split_bytes=_SPLIT)
    assert receipt.branch_created
    assert receipt.base_branch == "main"
    assert len(graph.commits.list(branch="main").commits) == 2


def test_a_failed_load_leaves_the_graph_unchanged(graph: Graph, tmp_path: Path) -> None:
    content = rows(3, first=100)
    content["Knows"][-1]["to"] = "nobody"
    source = write(tmp_path / "input", content, "ndjson")
    graph.branches.create("draft")
    before, said = files(graph), b"".join(graph.export())
    for branch in ("main", "draft"):
        with pytest.raises(ConstraintError):
            pipeline(graph).load(source, mode="append", branch=branch, split_bytes=_SPLIT)
    left = files(graph) - before
    assert {name.split("/")[2] for name in left} <= {"data"}, "fragments that nothing points at"
    assert b"".join(graph.export()) == said
    assert pipeline(graph).load(rows(4, 3, 3, first=500)["Person"], type_name="Person", mode="append").total == 3


def test_a_check_writes_nothing(graph: Graph, source: Any) -> None:
    before = files(graph)
    receipt = pipeline(graph).load(source, mode="append", check=True, split_bytes=_SPLIT)
    assert receipt.commit is None
    assert receipt == graph.load(source, mode="append", check=True)
    assert files(graph) == before
    again = pipeline(graph).load(source, mode="append", split_bytes=_SPLIT)
    assert again.total == receipt.total


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_check_reports_the_same_as_the_load(tmp_path: Path, graph: Graph, mode: str) -> None:
    source = write(tmp_path / "again", rows(1, 30, 20), "ndjson")
    by_load = outcome(graph, lambda: pipeline(graph).load(source, mode=mode, check=True))
    assert outcome(graph, lambda: graph.load(source, mode=mode, check=True)) == by_load
    if mode == "append":
        assert outcome(graph, lambda: graph.load(source, mode=mode)) == by_load


def test_an_idempotency_key_covers_local_and_spark_loads(graph: Graph, source: Any, tmp_path: Path) -> None:
    first = pipeline(graph).load(source, mode="append", idempotency_key="one", message="the first", split_bytes=_SPLIT)
    assert first.commit is not None
    assert first.commit.message == "the first"
    assert pipeline(graph).load(source, mode="append", idempotency_key="one").commit == first.commit
    assert graph.load(source, mode="append", idempotency_key="one").commit == first.commit
    other = write(tmp_path / "other", rows(3, first=300), "ndjson")
    with pytest.raises(InputError, match="belongs to commit"):
        pipeline(graph).load(other, mode="append", idempotency_key="one")
    by_process = graph.load(other, mode="append", idempotency_key="two")
    assert pipeline(graph).load(other, mode="append", idempotency_key="two").commit == by_process.commit


def test_an_outdated_expected_head_is_refused(graph: Graph, source: Any) -> None:
    head = graph.snapshot().commit.id
    graph.load([{"type": "Person", "data": {"name": "x"}}], mode="append")
    with pytest.raises(PreconditionFailedError):
        pipeline(graph).load(source, mode="append", expect_head=head)


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["main", "draft"])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_concurrent_commit_causes_a_retry(graph: Graph, source: Any, branch: str, mode: str) -> None:
    """The load continues from the new head, and checks again."""
    if branch != "main":
        graph.branches.create(branch)
    # On 'main' the second attempt holds the lease. On a branch, the load may have to start again.
    between = iter(
        [{"type": "Person", "data": {"name": "between"}}, {"type": "Note", "data": {"text": "x"}}][
            : 1 + (branch != "main")
        ]
    )

    def interfere(progress: LoadProgress) -> None:
        if progress.phase is LoadPhase.WRITING and (record := next(between, None)) is not None:
            graph.load([record], mode="append", branch=branch)

    receipt = pipeline(graph).load(source, mode=mode, branch=branch, progress=interfere, split_bytes=_SPLIT)
    snapshot = graph.snapshot(branch=branch)
    assert receipt.commit == snapshot.commit
    assert snapshot.pin("node:Person").row_count == 30 + 60 + 1
    assert graph.verify(branch=branch).ok


def test_an_overwrite_is_not_retried(graph: Graph, source: Any) -> None:
    def interfere(progress: LoadProgress) -> None:
        if progress.phase is LoadPhase.WRITING:
            graph.load([{"type": "Person", "data": {"name": f"x{progress.rows}"}}], mode="merge")

    with pytest.raises(ReadSetChangedError):
        pipeline(graph).load(source, mode="overwrite", progress=interfere, split_bytes=_SPLIT)


def test_a_load_can_be_cancelled(graph: Graph, source: Any) -> None:
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(CancelledError):
        pipeline(graph).load(source, mode="append", cancel=cancel)


def test_nodes_and_edges_can_be_passed_by_type(graph: Graph) -> None:
    content = rows(3, 5, 1, first=100)
    receipt = pipeline(graph).load(
        nodes={"Person": content["Person"]}, edges={"Knows": content["Knows"]}, mode="append"
    )
    assert (receipt.nodes, receipt.edges) == ((("Person", 5),), (("Knows", 15),))
    with pytest.raises(InputError, match="not both"):
        pipeline(graph).load([], nodes={}, mode="append")
    with pytest.raises(InputError, match="nothing to load"):
        pipeline(graph).load(mode="append")


@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_that_is_named_twice_is_read_twice(tmp_path: Path, indent: int | None) -> None:
    """Also if records span several lines, so that the file is one partition."""
    here, there = graph_at(tmp_path / "here"), graph_at(tmp_path / "there")
    note = {"type": "Note", "data": {"text": "once more"}}
    path = tmp_path / "notes.ndjson"
    path.write_text("\n".join(json.dumps(note, indent=indent) for _ in range(200)))
    assert pipeline(there).load([path, path], mode="append", split_bytes=1_000).total == 400
    with path.open("a") as file:
        file.write('\n{"type": "Note", "data": {"text": 1}}')
    expected = outcome(here, lambda: here.load([path, path], mode="append"))
    found = outcome(there, lambda: pipeline(there).load([path, path], mode="append", split_bytes=1_000))
    assert found.said == expected.said


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_bad_value_of_a_duplicate_key_is_reported_at_its_own_record(tmp_path: Path, mode: str) -> None:
    schema = "node T { k: String @key  e: enum(a, b) }"
    lines = ["k,e", "1,a", "2,c", *(f"x{i},b" for i in range(200)), "2,a", "2,d", "2,b"]
    (tmp_path / "T.csv").write_text("\n".join(lines))
    expected = [
        *(f"T.csv, line {lines.index(bad) + 1}: T.e: '2': '{bad[-1]}' is not one of a, b" for bad in ("2,c", "2,d")),
        f"T.csv, line {len(lines)}: T.k: '2': two records have this key",
    ]
    made = init(tmp_path / "duplicates", schema)
    for load in (made.load, partial(pipeline(made).load, split_bytes=200)):
        with pytest.raises(ConstraintError) as error:
            load(tmp_path / "T.csv", mode=mode)
        assert [str(violation) for violation in error.value.violations] == expected


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("parts", [1, 4])
def test_a_bad_value_in_a_replaced_record_is_reported_at_its_own_record(tmp_path: Path, mode: str, parts: int) -> None:
    schema = "node T { n: I32?  e: enum(a, b)?  @range(n, 0..9) }  edge R: T -> T { n: I32?  @range(n, 0..9) }"
    lines: list[dict[str, Any]] = [{"type": "T", "data": {"id": f"x{i}", "n": i % 10}} for i in range(60)]
    lines[3]["data"] = {"id": "x7", "n": 77}
    lines[5]["data"] = {"id": "x3", "e": "z", "n": -1}
    lines[20]["data"] = {"id": "x7", "n": 78, "e": "a"}
    lines += [{"type": "T", "data": {"id": name, "n": 1}} for name in ("x7", "x3", "x5", "x20")]
    lines += [{"edge": "R", "from": "x1", "to": "x2", "data": {"id": "r", "n": n}} for n in (10, 1)]
    (tmp_path / "all.ndjson").write_text("\n".join(map(json.dumps, lines)))
    expected = [
        "all.ndjson, line 6: T.e: 'x3': 'z' is not one of a, b",
        "all.ndjson, line 4: T.n: 'x7': 77 is outside 0..9",
        "all.ndjson, line 6: T.n: 'x3': -1 is outside 0..9",
        "all.ndjson, line 21: T.n: 'x7': 78 is outside 0..9",
        "all.ndjson, line 65: R.n: 'r': 10 is outside 0..9",
    ]
    made = init(tmp_path / "replaced", schema)
    size = (tmp_path / "all.ndjson").stat().st_size // parts
    for load in (made.load, partial(pipeline(made).load, split_bytes=size)):
        for check in (True, False):
            with pytest.raises(ConstraintError) as error:
                load(tmp_path / "all.ndjson", mode=mode, check=check)
            assert [str(violation) for violation in error.value.violations] == expected
            assert error.value.total == len(expected)
    assert len(made.commits.list().commits) == 1


@pytest.mark.parametrize("parts", [1, 4])
def test_constraints_between_entities_do_not_count_replaced_records(tmp_path: Path, parts: int) -> None:
    schema = "node T { m: String? @unique }  edge R: T -> T @card(0..1) { n: I32? }"
    people = [{"id": "a", "m": "x"}, {"id": "b", "m": "x"}, {"id": "a", "m": "y"}]
    edges: list[dict[str, Any]] = [{"id": "r", "from": "a", "to": "nobody"}, {"id": "s", "from": "a", "to": "b"}]
    edges += [{"id": "r", "from": "b", "to": "a"}]
    lines = [json.dumps({"type": "T", "data": each}) for each in people]
    lines += [json.dumps({"edge": "R", "data": {"id": each.pop("id")}, **each}) for each in edges]
    (tmp_path / "all.ndjson").write_text("\n".join(lines))
    for name, on_spark in (("local", False), ("spark", True)):
        made = init(tmp_path / name, schema)
        load = partial(pipeline(made).load, split_bytes=1 + 400 // parts) if on_spark else made.load
        assert load(tmp_path / "all.ndjson", mode="merge").total == 4
        assert [row["m"] for row in made.snapshot().scan("node:T").sort_by("id").to_pylist()] == ["y", "x"]
        ends = made.snapshot().scan("edge:R").sort_by("id").select(["id", "src", "dst"]).to_pylist()
        assert ends == [{"id": "r", "src": "b", "dst": "a"}, {"id": "s", "src": "a", "dst": "b"}]
