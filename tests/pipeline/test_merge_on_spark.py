"""A merge on Spark gives the same graph, receipt and conflicts as a local merge, for any number of partitions."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.merge.model import SCHEMA, World
from tests.merge.repository_model import empty
from tests.pipeline.in_process import InProcess
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.engine.engines import SparkOptions
from omnigraph.engine.merge import merge
from omnigraph.engine.requests import MergeRequest
from omnigraph.errors import MergeConflictsError
from omnigraph.graph import Graph
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.pipeline import merge as on_spark
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.session import Session

SEEDS = range(8)


def _world(place: Path, seed: int) -> World:
    random = Random(seed)
    world = World(omnigraph.init(place, SCHEMA))
    world.record("main", empty())
    for _ in range(8):
        world.write("main", random)
    world.branch("side", "main")
    for _ in range(5):
        world.write("side", random)
        if seed % 4:
            world.write("main", random)
    world.branch("dev", "main")
    return world


def _told(graph: Graph, how: Any, target: str = "main") -> object:
    """The receipt or error of a merge, and the graph after it."""
    try:
        receipt = replace(how(graph), commit=None, engine="")
    except MergeConflictsError as error:
        receipt = (error.conflicts, error.total)
    assert not list(Path(graph.uri).glob("__staging/*")), "nothing is left lying about"
    whole = graph.snapshot(branch=target).tables.values()
    assert all(graph.session.store.tables.at(pin.ref).count() == pin.row_count for pin in whole)
    return receipt, b"".join(graph.export(branch=target))


def _copy(world: World, place: Path) -> Graph:
    """Copy the graph back. A graph with branches cannot be moved, so the copy replaces the original."""
    shutil.rmtree(world.graph.uri)
    shutil.copytree(place, world.graph.uri)
    return omnigraph.open(world.graph.uri)


def by_spark(graph: Graph, request: MergeRequest, options: SparkOptions) -> MergeReceipt:
    return merge(graph.session, replace(request, engine="spark", spark=options))


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, "property"])
@pytest.mark.parametrize("strategy", [None, "theirs"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_partitioned_merge_gives_the_same_graph(
    tmp_path: Path, seed: int, strategy: str | None, level: str | None, thresholds: Thresholds
) -> None:
    world = _world(tmp_path / "graph", seed)
    kept = tmp_path / "kept"
    shutil.copytree(world.graph.uri, kept)
    target = "dev" if seed % 2 else "main"  # one has its own files, the other does not
    wanted = _told(world.graph, lambda graph: graph.merge("side", target, strategy=strategy, level=level), target)
    request = MergeRequest("side", target, strategy, level=level)
    for tasks, threshold in ((1, None), (2, "1 B"), (7, "1 B")):
        thresholds(on_spark, MAX_CANDIDATES=0 if tasks == 2 else 1_000_000)
        options = SparkOptions(InProcess(), tasks=tasks, merge_threshold=threshold)
        graph = _copy(world, kept)
        assert _told(graph, lambda graph, o=options: by_spark(graph, request, o), target) == wanted, f"{tasks} tasks"
        assert graph.verify(branch=target).ok
        graph.mutate('query q() { insert B { k: "next" } }', branch=target)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_merge_on_spark_gives_the_same_graph(tmp_path: Path, session: Session, seed: int) -> None:
    world = _world(tmp_path / "graph", seed)
    kept = tmp_path / "kept"
    shutil.copytree(world.graph.uri, kept)
    wanted = _told(world.graph, lambda graph: graph.merge("side", strategy="theirs"))
    for tasks, threshold in ((1, None), (2, "1 B"), (7, "1 B")):
        options = SparkOptions(session, tasks=tasks, merge_threshold=threshold)
        request = MergeRequest("side", "main", "theirs")
        found = _told(_copy(world, kept), lambda graph, o=options, r=request: by_spark(graph, r, o))
        assert found == wanted, f"{tasks} tasks"
    graph = _copy(world, kept)
    receipt = Pipeline(graph, session).merge("side", strategy="theirs", delete_branch=True, message="by tasks")
    assert (receipt.engine, receipt.branch_deleted) == ("spark", True)
    assert receipt.commit is not None
    assert receipt.commit.message == "by tasks"
    assert receipt.commit.merged_parent == receipt.source_commit


PLAIN = """
node Ship { name: String @key  tons: I64? }
edge Meets: Ship -> Ship { year: I64? }
"""


def _fleet(place: Path) -> Graph:
    """Two branches with many changes, and an orphan on each side."""
    graph = omnigraph.init(place, PLAIN)
    names = [f"s{i:03d}" for i in range(200)]
    graph.load({"Ship": pa.table({"name": names, "tons": [1] * 200})}, mode="append")
    graph.load({"Meets": pa.table({"from": names[:-1], "to": names[1:], "year": [1] * 199})}, mode="append")
    graph.branches.create("side")
    graph.load({"Ship": pa.table({"name": [*names[:80], "new"], "tons": [2] * 81})}, mode="merge", branch="side")
    graph.load({"Ship": pa.table({"name": names[100:150], "tons": [3] * 50})}, mode="merge")
    for text, branch in (
        ('delete Ship where name = "s160"', "side"),
        ('insert Meets { from: "s160", to: "s161", year: 9 }', "main"),
        ('delete Ship where name = "s170"', "main"),
        ('insert Meets { from: "new", to: "s170", year: 9 }', "side"),
        ('delete Ship where name = "s180"', "side"),
    ):
        graph.mutate(f"query q() {{ {text} }}", branch=branch)
    return graph


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_tasks_write_large_changes(tmp_path: Path, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also rows that conflict resolution reverts, restores and removes; existing row ids stay."""
    graph = _fleet(tmp_path / "graph")
    kept = tmp_path / "kept"
    shutil.copytree(graph.uri, kept)
    world = World(graph)
    wanted = _told(graph, lambda graph: graph.merge("side", strategy=strategy))
    numbers = _row_ids(graph)
    written: list[str] = []
    original = on_spark.SparkComparer._tasks_write

    def noted(self: Any, compared: Any, *rest: Any) -> Any:
        written.append(compared.versions.key)
        return original(self, compared, *rest)

    monkeypatch.setattr(on_spark.SparkComparer, "_tasks_write", noted)
    again = _copy(world, kept)
    options = SparkOptions(InProcess(), tasks=3, merge_threshold=1)
    assert _told(again, lambda graph: by_spark(graph, MergeRequest("side", "main", strategy), options)) == wanted
    assert written[:1] == ["node:Ship"]
    assert again.verify().ok
    assert _row_ids(again).items() >= {name: numbers[name] for name in numbers if "s000" <= name < "s080"}.items()


def _row_ids(graph: Graph) -> dict[str, int]:
    rows = graph.snapshot().scan("node:Ship", columns=["id", "_rowid"]).to_pylist()
    return {row["id"]: row["_rowid"] for row in rows}


@pytest.mark.parametrize("outcome", ["moves", "conflicts", "fails"])
def test_a_concurrent_commit_on_the_target_discards_staged_rows(
    tmp_path: Path, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that tasks staged for one state are not used for another, and no unreferenced fork is left."""
    graph = _fleet(tmp_path / "graph")
    graph.branches.create("dev", commit=graph.commits.list().commits[-3].id)
    original = on_spark.SparkComparer._tasks_write
    calls: list[str] = []

    def noted(self: Any, compared: Any, *rest: Any) -> Any:
        calls.append(compared.versions.key)
        if len(calls) == 2 and outcome == "fails":
            raise RuntimeError("no, wait")
        made = original(self, compared, *rest)
        if len(calls) == 1 and outcome != "fails":
            tons = 2 if outcome == "moves" else 7
            graph.load({"Ship": pa.table({"name": ["s001"], "tons": [tons]})}, mode="merge", branch="dev")
        return made

    monkeypatch.setattr(on_spark.SparkComparer, "_tasks_write", noted)
    request, options = MergeRequest("side", "dev"), SparkOptions(InProcess(), tasks=2, merge_threshold=1)
    if outcome == "fails":
        with pytest.raises(RuntimeError, match="no, wait"):
            by_spark(graph, request, options)
    elif outcome == "conflicts":
        with pytest.raises(MergeConflictsError) as caught:
            by_spark(graph, request, options)
        assert [(c.kind.value, c.entity_id) for c in caught.value.conflicts] == [("divergent_update", "s001")]
    else:
        receipt = by_spark(graph, request, options)
        assert (receipt.outcome, receipt.changes["node:Ship"].updated) == ("merged", 79)
        assert calls.count("node:Ship") == 2
        assert graph.verify(branch="dev").ok
    identifier = graph.session.store.branch_identifier("dev")
    pins = graph.snapshot(branch="dev").tables.values()
    for pin in pins:
        own = [fork for fork in graph.session.store.tables.forks(pin.ref.path) if fork.startswith(f"{identifier}-")]
        assert own == [pin.ref.branch] * (pin.ref.branch in own), pin.key


def _crossed(place: Path, seed: int) -> World:
    """Two branches that merged each other at the same time, and have changed since."""
    world = _world(place, seed)
    random = Random(1000 + seed)
    world.branch("was-side", "side")
    world.merge("main", "side", "ours")
    world.merge("was-side", "main", "ours")
    for _ in range(3):
        world.write("side", random)
        world.write("main", random)
    return world


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [None, "theirs"])
@pytest.mark.parametrize("seed", [1, 10, 11])
def test_a_virtual_base_is_merged_on_spark(
    tmp_path: Path, seed: int, strategy: str | None, thresholds: Thresholds
) -> None:
    """The inner merges for a virtual base run on Spark, too."""
    world = _crossed(tmp_path / "graph", seed)
    kept = tmp_path / "kept"
    shutil.copytree(world.graph.uri, kept)
    assert len(world.graph.merge("side", preview=True).base_commits) == 2
    wanted = _told(world.graph, lambda graph: graph.merge("side", strategy=strategy))
    request = MergeRequest("side", "main", strategy)
    for tasks, threshold in ((2, None), (3, "1 B")):
        thresholds(on_spark, MAX_CANDIDATES=0 if tasks == 2 else 1_000_000)
        graph = _copy(world, kept)
        options = SparkOptions(InProcess(), tasks=tasks, merge_threshold=threshold)
        assert _told(graph, lambda graph, o=options: by_spark(graph, request, o)) == wanted, f"{tasks} tasks"
        assert graph.verify().ok


BLOBS = "node Doc @merge(property) { name: String @key  n: I64?  a: Blob?  b: Blob? }"


@pytest.mark.parametrize("strategy", [None, "ours"])
def test_properties_and_blobs_of_both_sides_are_combined_by_tasks(tmp_path: Path, strategy: str | None) -> None:
    def put(graph: Graph, branch: str, a: str, b: str, n: int) -> None:
        rows = [{"type": "Doc", "data": {"name": f"d{i}", "n": n + i % 2, "a": a, "b": b}} for i in range(40)]
        graph.load(rows, mode="merge", branch=branch)

    found = []
    for tasks in (0, 3):
        with omnigraph.init(tmp_path / str(tasks), BLOBS) as graph:
            put(graph, "main", "base64:YTA=", "base64:YjA=", 0)
            graph.branches.create("side")
            put(graph, "side", "base64:YTE=", "base64:YjA=", 1)
            put(graph, "main", "base64:YTA=", "base64:YjE=", 0 if strategy is None else 2)
            request, options = MergeRequest("side", "main", strategy), SparkOptions(InProcess(), tasks=tasks)
            receipt = by_spark(graph, request, options) if tasks else merge(graph.session, request)
            found.append((receipt.changes, receipt.resolved, b"".join(graph.export())))
            assert graph.blob("Doc", "d1", "a").read() + graph.blob("Doc", "d1", "b").read() == b"a1b1"
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_orphan_edges_with_properties_of_both_sides_are_written_by_tasks(tmp_path: Path, strategy: str) -> None:
    """Conflict resolution changes the endpoints of staged rows."""
    schema = "node Ship { name: String @key }\nedge Meets: Ship -> Ship @merge(property) { year: I64?  note: String? }"

    def put(graph: Graph, branch: str, to: str, year: int) -> None:
        rows = [{"edge": "Meets", "from": "a", "to": to, "data": {"id": f"e{i}", "year": year}} for i in range(20)]
        graph.load(rows, mode="merge", branch=branch)

    found = []
    for mover, other in (("main", "side"), ("side", "main")):
        for tasks in (0, 3):
            with omnigraph.init(tmp_path / f"{mover}{tasks}", schema) as graph:
                graph.load([{"type": "Ship", "data": {"name": name}} for name in "abc"], mode="append")
                put(graph, "main", "b", 1)
                graph.branches.create("side")
                put(graph, mover, "c", 1)
                put(graph, other, "b", 2)
                graph.mutate('query q() { update Meets set { note: "n" } where id = "e7" }', branch="side")
                graph.mutate('query q() { delete Ship where name = "c" }', branch=other)
                request = MergeRequest("side", "main", strategy)
                options = SparkOptions(InProcess(), tasks=tasks, merge_threshold=1)
                receipt = by_spark(graph, request, options) if tasks else merge(graph.session, request)
                found.append((receipt.changes, receipt.resolved, b"".join(graph.export())))
                rows = graph.snapshot().scan("edge:Meets", columns=["dst", "year", "note"]).to_pylist()
                end = "c" if (mover == "main") == (strategy == "ours") else "b"
                assert [(row["dst"], row["year"]) for row in rows] == [(end, 2)] * 20
                assert [row["note"] for row in rows].count("n") == 1
        assert found[-1] == found[-2]


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [None, "1 B"])
def test_a_revert_by_tasks_gives_the_same_graph(tmp_path: Path, threshold: str | None) -> None:
    found = []
    for tasks in (0, 3):
        graph = _fleet(tmp_path / str(tasks))
        graph.mutate("query q() { update Ship set { tons: 77 } where tons > 50 }")
        wrong = graph.branch("main").head.id
        graph.mutate('query q() { delete Ship where name = "s101" }')
        spark = {"engine": "spark", "spark": SparkOptions(InProcess(), tasks=tasks, merge_threshold=threshold)}
        receipt = graph.revert(wrong, strategy="ours", **(spark if tasks else {}))  # type: ignore[arg-type]
        assert receipt.commit is not None
        assert receipt.engine == ("spark" if tasks else "local")
        rows = graph.snapshot().scan("node:Ship").sort_by("id").to_pylist()
        found.append((receipt.changes, receipt.resolved, receipt.total_conflicts, rows))
    assert found[0] == found[1]
