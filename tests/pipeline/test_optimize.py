"""Tasks compact rows and build indexes as one process does, and the driver commits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.in_process import InProcess
from tests.s3_server import S3Root
from tests.upkeep.test_optimize import SCHEMA, covered, fill, fragments, people, seen

import omnigraph
from omnigraph.commit.work_records import read_records
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.engines import Choice, SparkOptions
from omnigraph.engine.requests import OptimizeRequest
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.pipeline.optimize import SparkWorkers
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.session import Session
from omnigraph.storage.compaction import CompactedGroup
from omnigraph.upkeep.optimize import CompactJob, OptimizeReceipt
from omnigraph.write.receipt import MergeWay


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = omnigraph.init(tmp_path / "g", SCHEMA)
    fill(made)
    made.ensure_indexes()
    fill_again = people(["p1", "p9", "p30", "q1", "q2"], 3)
    made.load({"Person": fill_again}, mode="merge")
    made.mutate('query gone() { delete Person where name = "p13" }')
    return made


def by_tasks(graph: Graph, session: Session, **said: Any) -> OptimizeReceipt:
    options = SparkOptions(session, segment_rows=said.pop("segment_rows", 15))
    return graph.optimize(engine="spark", spark=options, **{"rows_per_fragment": 20, **said})


def _check(graph: Graph, session: Session) -> None:
    before, commits = seen(graph), len(graph.commits.list().commits)
    receipt = by_tasks(graph, session)
    assert (receipt.engine, receipt.why) == ("spark", "as requested")
    assert receipt.commit == graph.snapshot().commit
    assert len(graph.commits.list().commits) == commits + 1
    assert fragments(graph) > 1, "so that indexes have segments to be merged"
    assert covered(graph) == {0}
    assert seen(graph) == before
    assert graph.verify().ok
    assert by_tasks(graph, session).commit is None


def test_optimize_by_tasks_gives_the_same_result(graph: Graph) -> None:
    _check(graph, InProcess())


@pytest.mark.spark
@pytest.mark.slow
def test_optimize_on_spark_gives_the_same_result(graph: Graph, session: Session) -> None:
    _check(graph, session)


def test_all_indexes_are_built_in_segments(tmp_path: Path) -> None:
    """There are no indexes before: each is built by several tasks."""
    graph = omnigraph.init(tmp_path / "g", SCHEMA)
    fill(graph)
    before = seen(graph)
    by_tasks(graph, InProcess(), rows_per_fragment=8, segment_rows=8)
    assert fragments(graph) == 6
    assert seen(graph) == before
    ref = graph.snapshot().pin("node:Person").ref
    segments = {i.name: len(i.segments) for i in graph.session.store.tables.at(ref).dataset.describe_indices()}
    assert set(segments.values()) == {1}, "they were merged"
    graph.load({"Person": people(["p3", "p4", "new"], 4)}, mode="merge")
    before = seen(graph)
    by_tasks(graph, InProcess(), rows_per_fragment=8, segment_rows=8)
    assert seen(graph) == before


def test_the_engine_depends_on_the_amount_of_work_and_is_reported(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Choice] = []
    receipt = Pipeline(graph, InProcess()).optimize(engine="auto", chosen=told.append)
    assert receipt.engine == "local"
    assert receipt.why == "0.0 MiB to rewrite; Spark is used from 4.0 GiB"
    assert [str(choice) for choice in told] == [f"in this process: {receipt.why}"]
    assert receipt.to_json()["engine"] == "local"
    monkeypatch.setenv("OMNIGRAPH_SPARK_THRESHOLD", "1 KiB")
    assert choose_engine(graph.session, OptimizeRequest(), lambda: 1024).engine == "spark"
    assert choose_engine(graph.session, OptimizeRequest(engine="local"), lambda: 1 << 40).engine == "local"
    with pytest.raises(InputError, match="is not an engine"):
        Pipeline(graph, InProcess()).optimize(engine="bus")


@pytest.mark.slow
@pytest.mark.s3
def test_a_graph_in_s3_can_be_merged_and_optimized_by_tasks(s3_root: S3Root) -> None:
    """Tasks that merge or compact access it with its options."""
    graph = omnigraph.init(s3_root.uri, SCHEMA, storage_options=s3_root.options)
    fill(graph, loads=2)
    graph.ensure_indexes()
    again = people(["p1", "p9", "q1"], 3)
    merged = Pipeline(graph, InProcess()).load({"Person": again}, mode="merge", merge_threshold=0)
    assert [merge.way for merge in merged.merges] == [MergeWay.TASKS]
    assert graph.snapshot().pin("node:Person").row_count == 17
    before = seen(graph)
    assert by_tasks(graph, InProcess()).commit is not None
    assert seen(graph) == before
    assert covered(graph) == {0}
    assert not [info.path for info in graph.session.store.objects.list("nodes") if "/_versions/d" in info.path]


def test_cleanup_keeps_files_staged_by_running_tasks(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cleanup respects the work record of a running job, which is removed at its end."""
    at_work: list[int] = []
    pack = SparkWorkers.compact

    def packing(self: SparkWorkers, jobs: Sequence[CompactJob]) -> list[CompactedGroup]:
        packed = pack(self, jobs)
        graph.cleanup(keep=0, orphans_older_than=timedelta(0))
        at_work.append(len(read_records(graph.session.store.objects)))
        return packed

    monkeypatch.setattr(SparkWorkers, "compact", packing)
    before = seen(graph)
    assert by_tasks(graph, InProcess(), rows_per_fragment=8, segment_rows=8).commit is not None
    assert at_work == [2], "its own, and that of what tasks put aside"
    assert read_records(graph.session.store.objects) == []
    assert seen(graph) == before
    assert graph.verify().ok
