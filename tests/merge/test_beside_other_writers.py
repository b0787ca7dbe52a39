"""A merge beside other writers: nothing is lost or there twice, and what was fixed at its beginning stays fixed."""

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
    """Do something once, after the merge was compared and before it is written."""
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


def test_a_target_that_moves_is_compared_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _between(monkeypatch, lambda: _do(graph, 'update Person set { age: 5 } where name = "b"'))
    receipt = graph.merge("side")
    assert receipt.outcome == "merged", "it would have been a fast-forward"
    ages = {row["name"]: row["age"] for row in graph.snapshot().scan("node:Person").to_pylist()}
    assert ages == {"a": 2, "b": 5, "c": None}
    assert receipt.commit is not None
    assert receipt.commit.parent == graph.commits.list().commits[1].id


def test_a_target_that_moves_into_a_conflict(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _between(monkeypatch, lambda: _do(graph, 'insert Person { name: "d", mail: "m" }'))
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    assert [c.kind for c in caught.value.conflicts] == ["unique_violation"]
    assert graph.snapshot().pin("node:Person").row_count == 3


def test_the_source_is_what_it_was_when_the_merge_began(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    head = graph.branch("side").head.id
    _between(monkeypatch, lambda: _do(graph, 'insert Person { name: "late" }', "side"))
    receipt = graph.merge("side", delete_branch=True)
    assert receipt.source_commit == head
    assert receipt.commit is not None
    assert receipt.commit.merged_parent == head
    assert graph.entity("Person", "late") is None
    assert (receipt.branch_deleted, receipt.branch_delete_error) == (False, "'side' has new commits since the merge")
    assert graph.merge("side").changes["node:Person"].inserted == 1


def test_what_is_written_when_the_branch_is_about_to_go_stays(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last moment is when the branch is held: later nobody can write to it."""
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


def test_merges_and_writes_at_once(graph: Graph) -> None:
    """Branches merge into one target while others write to it."""
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
def test_processes_merge_the_same_branch(graph: Graph, children: Children) -> None:
    """Two merges of one branch at once: one commit has it, and the other finds nothing to do."""
    pids = [children.start("merge", uri=graph.uri, source="side") for _ in range(2)]
    endings = [children.wait(pid) for pid in pids]
    made = [ending.result for ending in endings if ending.result is not None]
    assert len(made) == 1, endings
    assert graph.branch("main").head.id == made[0]
    assert len([commit for commit in graph.commits if commit.merged_parent is not None]) == 1
