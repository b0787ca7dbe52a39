"""A merge beside other writers: no row is lost or duplicated, and the source stays at its first snapshot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commit.child import Children

import omnigraph
from omnigraph.commit import branches
from omnigraph.errors import MergeConflictsError
from omnigraph.graph import Graph
from omnigraph.merge.merge import Merge

SCHEMA = "node Person { name: String @key  age: I64?  mail: String?  @unique(mail) }"


@pytest.fixture
def graph(place: Path) -> Graph:
    made = omnigraph.init(place, SCHEMA)
    made.load({"Person": pa.table({"name": ["a", "b"], "age": [1, 1]})}, mode="append")
    made.branches.create("side")
    made.mutate('query q() { update Person set { age: 2 } where name = "a" }', branch="side")
    made.mutate('query q() { insert Person { name: "c", mail: "m" } }', branch="side")
    return made


def _between(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Act once, after the merge has compared and before it writes."""
    original = Merge.writes
    done: list[bool] = []

    def writes(self: Merge, *arguments: Any) -> Any:
        found = original(self, *arguments)
        if not done:
            done.append(True)
            act()
        return found

    monkeypatch.setattr(Merge, "writes", writes)


def _do(graph: Graph, text: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {text} }}", branch=branch)


def test_a_merge_compares_again_if_the_target_has_new_commits(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _between(monkeypatch, lambda: _do(graph, 'update Person set { age: 5 } where name = "b"'))
    receipt = graph.merge("side")
    assert receipt.outcome == "merged", "it would have been a fast-forward"
    ages = {row["name"]: row["age"] for row in graph.snapshot().scan("node:Person").to_pylist()}
    assert ages == {"a": 2, "b": 5, "c": None}
    assert receipt.commit is not None
    assert receipt.commit.parent == graph.commits.list().commits[1].id


def test_a_new_commit_of_the_target_can_cause_a_conflict(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _between(monkeypatch, lambda: _do(graph, 'insert Person { name: "d", mail: "m" }'))
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    assert [c.kind for c in caught.value.conflicts] == ["unique_violation"]
    assert graph.snapshot().pin("node:Person").row_count == 3


def test_a_merge_uses_the_source_as_of_its_start(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    head = graph.branch("side").head.id
    _between(monkeypatch, lambda: _do(graph, 'insert Person { name: "late" }', "side"))
    receipt = graph.merge("side", delete_branch=True)
    assert receipt.source_commit == head
    assert receipt.commit is not None
    assert receipt.commit.merged_parent == head
    assert graph.entity("Person", "late") is None
    assert (receipt.branch_deleted, receipt.branch_delete_error) == (False, "'side' has new commits since the merge")
    assert graph.merge("side").changes["node:Person"].inserted == 1


def test_a_merge_does_not_delete_a_branch_with_new_commits(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is committed just before the deletion gets the lease of the branch. Later writes are impossible."""
    exclusive = type(graph.session.store).exclusive
    deleting = branches.delete_branch
    written: list[bool] = []

    def held(self: Any, branch: str, *given: Any, **said: Any) -> Any:
        if branch == "side" and not written:
            written.append(True)
            monkeypatch.setattr(type(graph.session.store), "exclusive", exclusive)
            with omnigraph.open(graph.uri) as other:
                _do(other, 'insert Person { name: "late" }', "side")
        return exclusive(self, branch, *given, **said)

    def delete(*given: Any) -> None:
        monkeypatch.setattr(type(graph.session.store), "exclusive", held)
        deleting(*given)

    monkeypatch.setattr(branches, "delete_branch", delete)
    receipt = graph.merge("side", delete_branch=True)
    assert written
    assert (receipt.branch_deleted, receipt.branch_delete_error) == (False, "'side' has new commits since the merge")
    assert graph.merge("side").changes["node:Person"].inserted == 1


@pytest.mark.slow
def test_concurrent_merges_and_writes_lose_no_rows(graph: Graph) -> None:
    """Branches are merged into one target while other writers commit to it."""
    names = [f"branch{i}" for i in range(4)]
    for name in names:
        graph.branches.create(name)
        _do(graph, f'insert Person {{ name: "{name}" }}', name)

    def write(number: int) -> None:
        with omnigraph.open(graph.uri) as own:
            own.load({"Person": pa.table({"name": [f"w{number}"], "age": [number]})}, mode="append")

    def merge(name: str) -> str:
        with omnigraph.open(graph.uri) as own:
            return own.merge(name).outcome.value

    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(write, number) for number in range(4)]
        outcomes = [found.result() for found in [pool.submit(merge, name) for name in names]]
        for found in writes:
            found.result()
    assert set(outcomes) <= {"merged", "fast_forward"}
    people = sorted(graph.snapshot().scan("node:Person", columns=["id"])["id"].to_pylist())
    assert people == sorted(["a", "b", *names, *(f"w{n}" for n in range(4))])
    history = list(graph.commits)
    assert len([commit for commit in history if commit.merged_parent is not None]) == 4


@pytest.mark.slow
def test_two_processes_merge_the_same_branch_once(graph: Graph, children: Children) -> None:
    """Of two concurrent merges of one branch, one makes a commit and the other is already up to date."""
    pids = [children.start("merge", uri=graph.uri, source="side") for _ in range(2)]
    endings = [children.wait(pid) for pid in pids]
    made = [ending.result for ending in endings if ending.result is not None]
    assert len(made) == 1, endings
    assert graph.branch("main").head.id == made[0]
    assert len([commit for commit in graph.commits if commit.merged_parent is not None]) == 1
