"""Snapshots never change, and the state of any commit can be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.commit.graphs import SEED, Operation, assert_whole, ids, put

from omnigraph.errors import BranchNotFoundError, InputError, NotFoundError
from omnigraph.graph import Graph, open


def shown(graph: Graph, **target: object) -> list[str]:
    snapshot = graph.snapshot(**target)  # type: ignore[arg-type]
    return sorted(snapshot.scan("node:A", columns=["id"])["id"].to_pylist())


def test_a_snapshot_never_changes(graph: Graph) -> None:
    snapshot = graph.snapshot()
    put(graph, ["new"])
    put(graph, ["other"], operation=Operation.OVERWRITE)
    put(graph, ["other"], operation=Operation.DELETE)
    assert sorted(snapshot.scan("node:A")["id"].to_pylist()) == sorted(SEED)
    assert snapshot.entity("node:A", "s1") == {"id": "s1", "k": "s1", "n": 0}
    assert snapshot.entity("node:A", "new") is None
    assert snapshot.pin("node:A").row_count == len(SEED)
    assert shown(graph) == []


def test_every_handle_reads_its_own_writes(graph: Graph, place: Path) -> None:
    """Every handle sees a write as soon as it has returned."""
    with open(place) as other, open(place, read_only=True) as reader:
        for number in range(5):
            put(graph if number % 2 else other, [f"n{number}"])
            for handle in (graph, other, reader):
                assert f"n{number}" in ids(handle)


def test_any_earlier_state_can_be_read(graph: Graph, place: Path) -> None:
    start = graph.snapshot().commit
    states = {start.id: sorted(SEED)}
    commits = [start]
    for number in range(6):
        commits.append(put(graph, [f"n{number}"]))
        states[commits[-1].id] = ids(graph)
    graph.tags.create("middle", commit=commits[3].id)
    with open(place, read_only=True) as reader:
        for commit in commits:
            moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=commit.created_at)
            assert shown(reader, commit=commit.id) == states[commit.id]
            assert shown(reader, version=commit.manifest_version) == states[commit.id]
            assert shown(reader, at=moment) == states[commit.id]
            assert shown(reader, at=moment.replace(tzinfo=None)) == states[commit.id], "without a zone, UTC"
        assert shown(reader, commit="middle") == states[commits[3].id]
        assert shown(reader, at=datetime.now(UTC)) == states[commits[-1].id]
        assert reader.entity("A", "n0", at=commits[0].id) is None
        assert reader.entity("A", "n0", at="middle") is not None


def test_earlier_states_of_a_branch_can_be_read(graph: Graph) -> None:
    """The history of a branch has the commits before its creation and its own, not later commits of its source."""
    before = put(graph, ["before"])
    graph.branches.create("dev")
    own = put(graph, ["own"], branch="dev")
    after = put(graph, ["after"])
    moment = datetime.fromtimestamp(0, UTC)
    assert shown(graph, branch="dev", at=moment + timedelta(microseconds=own.created_at)) == sorted(
        [*SEED, "before", "own"]
    )
    early = graph.snapshot(branch="dev", at=moment + timedelta(microseconds=before.created_at))
    assert early.commit == before
    assert shown(graph, branch="dev", at=moment + timedelta(microseconds=after.created_at)) == sorted(
        [*SEED, "before", "own"]
    )
    assert shown(graph, commit=own.id) == sorted([*SEED, "before", "own"])
    assert shown(graph, branch="dev", version=own.manifest_version) == sorted([*SEED, "before", "own"])


def test_snapshots_of_missing_commits_versions_and_branches_are_refused(graph: Graph) -> None:
    with pytest.raises(NotFoundError):
        graph.snapshot(commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(NotFoundError, match="no version 99"):
        graph.snapshot(version=99)
    with pytest.raises(InputError):
        graph.snapshot(version=0)
    with pytest.raises(NotFoundError):
        graph.snapshot(at=datetime(1990, 1, 1, tzinfo=UTC))
    with pytest.raises(BranchNotFoundError) as caught:
        graph.snapshot(branch="mian")
    assert "main" in str(caught.value.hint)
    with pytest.raises(InputError):
        graph.snapshot(version=1, at=datetime.now(UTC))
    with pytest.raises(InputError):
        graph.snapshot(branch="main", commit="x")
    with pytest.raises(NotFoundError, match="node:Z"):
        graph.snapshot().scan("node:Z")


@pytest.mark.parametrize("name", ["", "..", "../nodes", "a//b", "/a", "a/", "__refs", "a b", ".", "./dev", "a/../b"])
def test_a_branch_name_cannot_be_a_path_outside_the_graph(graph: Graph, place: Path, name: str) -> None:
    """A branch name is part of a path, so an invalid name is refused before any file is touched."""
    graph.branches.create("dev")
    before = sorted(place.rglob("*"))
    for attempt in (
        lambda: graph.snapshot(branch=name),
        lambda: put(graph, ["x"], branch=name),
        lambda: graph.branches.create(name),
        lambda: graph.branches.delete(name),
        lambda: graph.branches.create("fine", source=name) if name else graph.branches.create(name),
        lambda: open(place, branch=name),
    ):
        with pytest.raises(InputError):
            attempt()
    assert sorted(place.rglob("*")) == before
    assert ids(graph, branch="dev") == sorted(SEED)
    assert_whole(graph)


def test_a_commit_of_a_deleted_branch_is_not_found_in_its_successor(graph: Graph) -> None:
    """The new branch has the same name and version number, but another commit."""
    graph.branches.create("dev")
    lost = put(graph, ["lost"], branch="dev")
    graph.branches.delete("dev")
    graph.branches.create("dev")
    found = put(graph, ["found"], branch="dev")
    assert lost.manifest_version == found.manifest_version
    with pytest.raises(NotFoundError):
        graph.snapshot(commit=lost.id)
    assert shown(graph, commit=found.id) == sorted([*SEED, "found"])


def test_an_open_handle_reads_a_branch_that_was_created_again(graph: Graph, place: Path) -> None:
    """Another process deletes a branch and creates it again with as many commits. The old one is not read."""
    graph.branches.create("dev")
    put(graph, ["old"], branch="dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "old"])
    with open(place) as other:
        other.branches.delete("dev")
        other.branches.create("dev")
        put(other, ["new"], branch="dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "new"])
    put(graph, ["newer"], branch="dev")
    with open(place) as reopened:
        assert ids(reopened, branch="dev") == sorted([*SEED, "new", "newer"])
        assert_whole(reopened)


def test_a_commit_is_found_while_branches_are_deleted(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that is deleted after it was listed causes no error."""
    graph.branches.create("z")
    made = put(graph, ["own"], branch="z")
    names = graph.session.store.branch_names()
    monkeypatch.setattr(type(graph.session.store), "branch_names", lambda self: ["main", "ghost", *names[1:]])
    assert graph.commits.get(made.id) == made
