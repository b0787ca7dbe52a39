"""Merges work in an object store and in memory as on disk."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.pipeline.in_process import InProcess
from tests.s3_server import S3Root

import omnigraph
from omnigraph.engine.engines import SparkOptions
from omnigraph.errors import InputError, MergeConflictsError
from omnigraph.graph import Graph

SCHEMA = "node Person { name: String @key  age: I64? }\nedge Knows: Person -> Person\n"


def _fill(graph: Graph) -> None:
    people = pa.table({"name": ["a", "b", "c"], "age": [1, 1, 1]})
    graph.load({"Person": people}, mode="append")
    graph.branches.create("side")
    for text, branch in (
        ('update Person set { age: 2 } where name = "a"', "side"),
        ('delete Person where name = "b"', "side"),
        ('insert Knows { from: "a", to: "c" }', "side"),
        ('update Person set { age: 3 } where name = "c"', "main"),
    ):
        graph.mutate(f"query q() {{ {text} }}", branch=branch)


def _check(graph: Graph) -> None:
    ages = {row["name"]: row["age"] for row in graph.snapshot().scan("node:Person").to_pylist()}
    assert ages == {"a": 2, "c": 3}
    assert graph.snapshot().pin("edge:Knows").row_count == 1
    assert graph.verify().ok
    assert graph.merge("side").outcome == "already_up_to_date"
    graph.mutate('query q() { update Person set { age: 8 } where name = "a" }', branch="side")
    graph.mutate('query q() { update Person set { age: 9 } where name = "a" }')
    with pytest.raises(MergeConflictsError):
        graph.merge("side")


@pytest.mark.slow
@pytest.mark.s3
def test_a_merge_in_an_object_store_has_the_same_result(s3_root: S3Root) -> None:
    with omnigraph.init(s3_root.uri, SCHEMA, storage_options=s3_root.options) as graph:
        _fill(graph)
        assert graph.merge("side").outcome == "merged"
        _check(graph)


@pytest.mark.slow
@pytest.mark.s3
def test_a_merge_by_tasks_in_an_object_store_has_the_same_result(s3_root: S3Root) -> None:
    with omnigraph.init(s3_root.uri, SCHEMA, storage_options=s3_root.options) as graph:
        _fill(graph)
        receipt = graph.merge("side", engine="spark", spark=SparkOptions(InProcess(), tasks=2, merge_threshold=1))
        assert (receipt.outcome, receipt.engine) == ("merged", "spark")
        _check(graph)


def test_a_merge_in_memory_has_the_same_result() -> None:
    with omnigraph.init("memory://merging", SCHEMA) as graph:
        _fill(graph)
        with pytest.raises(InputError, match="tasks cannot reach"):
            graph.merge("side", engine="spark", spark=SparkOptions(InProcess()))
        assert graph.merge("side").outcome == "merged"
        _check(graph)
