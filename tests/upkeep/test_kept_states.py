"""A commit is marked as not kept if, and only if, its state cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from tests.commit.conftest import _no_fsync

import omnigraph
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.store import Store
from omnigraph.errors import OmnigraphError, VersionReclaimedError
from omnigraph.graph import Graph

__all__ = ["_no_fsync"]

SCHEMA = "node A { k: String @key  n: I64? }\nnode B { k: String @key  n: I64? }"
NOW = timedelta(0)


def put(graph: Graph, type_name: str, number: int, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ insert {type_name} {{ k: "x", n: {number} }} }}', branch=branch)


def is_readable(graph: Graph, commit_id: str) -> bool:
    """Whether all rows of all types can be read at a commit."""
    try:
        snapshot = graph.snapshot(commit=commit_id)
        for key in snapshot.tables:
            snapshot.scan(key)
    except VersionReclaimedError as error:
        if error.message != f"the state at commit {commit_id} no longer exists":
            raise
        return False
    return True


def check_marks(place: Path) -> tuple[int, int]:
    """Compare the marks of all branches with reads. Returns the number of commits that are kept, and of the others."""
    kept: set[str] = set()
    removed: set[str] = set()
    with omnigraph.open(place, read_only=True) as graph:
        for branch in graph.branches.list():
            page = graph.commits.list(branch=branch.name)
            wanted = {one.id for one in page.commits if not is_readable(graph, one.id)}
            assert page.removed == wanted
            some = graph.commits.list(branch=branch.name, actor="kim")
            assert some.removed == wanted & {one.id for one in some.commits}
            kept |= {one.id for one in page.commits} - wanted
            removed |= wanted
    return len(kept), len(removed)


@pytest.mark.parametrize("later", [0, 3])
def test_the_parent_of_the_head_is_marked_after_cleanup(tmp_path: Path, later: int) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        for number in range(6):
            put(graph, "A", number)
        graph.tags.create("t", commit=list(graph.commits)[3].id)
        graph.cleanup(keep=1, orphans_older_than=NOW)
        for number in range(later):
            put(graph, "B", number)
    assert check_marks(tmp_path / "g") == (2 + later, 5)


def test_a_schema_change_that_removed_data_marks_no_commit(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        put(graph, "A", 1)
        put(graph, "B", 1)
        graph.schema.apply("node A { k: String @key  n: I64? }\nnode B { k: String @key }", allow="data_loss")
        put(graph, "A", 2)
    with omnigraph.open(tmp_path / "g") as graph:
        page = graph.commits.list()
        assert page.removed == frozenset()
        before = graph.snapshot(commit=page.commits[2].id)
        assert before.scan("node:A").num_rows == 1
        with pytest.raises(VersionReclaimedError):
            before.scan("node:B")


NO_NUMBER = "node A { k: String @key  n: I64? }\nnode B { k: String @key }"


@pytest.mark.parametrize("created", ["before", "after"])
def test_a_schema_change_that_removed_data_does_not_hide_removed_states_of_branches(
    tmp_path: Path, created: str
) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA.replace("n: I64? }\nnode B", "n: I64?  m: I64? }\nnode B")) as graph:
        put(graph, "A", 1)
        if created == "before":
            graph.branches.create("dev")
        graph.schema.apply(SCHEMA, allow="data_loss")
        if created == "after":
            graph.branches.create("dev")
        for number in range(4):
            put(graph, "A", number, "dev")
        graph.cleanup(keep=1, orphans_older_than=NOW)
        own = [one for one in graph.commits.list(branch="dev").commits if one.branch == "dev"]
        assert [is_readable(graph, one.id) for one in own] == [True, False, False, False]
        assert graph.commits.list(branch="dev").removed >= {one.id for one in own[1:]}


def test_a_schema_change_that_removed_data_marks_no_commit_from_before_a_reset(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        put(graph, "A", 1)
        graph.branches.create("dev")
        for name in "BAB":
            put(graph, name, 2, "dev")
        commit = graph.commits.list(branch="dev").commits[1].id
        graph.tags.create("t", branch="dev")
        graph.branches.reset("dev", graph.branch("main").head.id)
        graph.schema.apply(NO_NUMBER, allow="data_loss")
        before = graph.snapshot(commit=commit)
        assert before.scan("node:A").num_rows == 1
        with pytest.raises(VersionReclaimedError, match="version"):
            before.scan("node:B")


def test_a_backup_marks_the_commits_whose_tables_it_leaves_out(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        for number in range(6):
            put(graph, "AB"[number % 2], number)
        graph.backup(tmp_path / "b", keep=2)
    assert check_marks(tmp_path / "g") == (7, 0)
    assert check_marks(tmp_path / "b") == (2, 5)
    omnigraph.restore(tmp_path / "b", tmp_path / "r")
    assert check_marks(tmp_path / "r") == (2, 5)


def test_every_reader_names_the_removed_commit(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        for number in range(4):
            put(graph, "A", number)
        head, before = (one.id for one in list(graph.commits)[:2])
        version = graph.snapshot().manifest_version
        graph.cleanup(keep=1, orphans_older_than=NOW)
    readers: dict[str, Callable[[Graph], object]] = {
        "query": lambda g: g.query("query q() { match { $a: A } return { $a.k } }", at=before),
        "version": lambda g: g.entity("A", "x", at=version - 1),
        "diff": lambda g: g.diff(before, head),
        "restore": lambda g: g.restore("A", ["x"], at=before),
        "tag": lambda g: g.tags.create("t", commit=before),
        "branch": lambda g: g.branches.create("b", commit=before),
        "revert": lambda g: g.revert(before),
        "pick": lambda g: g.cherry_pick(before),
        "unchanged": lambda g: g.mutate('query q() { insert A { k: "x", n: 7 } }', unchanged_since=before),
    }
    with omnigraph.open(tmp_path / "g") as graph:
        for name, read in readers.items():
            with pytest.raises(VersionReclaimedError, match=f"the state at commit {before} no longer exists"):
                pytest.fail(f"{name}: {read(graph)}")
        assert not list(graph.tags)
        assert [one.name for one in graph.branches.list()] == ["main"]
        with pytest.raises(VersionReclaimedError, match=f"at its parent {before} no longer exists"):
            graph.revert(head)


def test_marks_are_found_without_reading_every_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        for number in range(40):
            put(graph, "AB"[number % 2], number)
        graph.cleanup(keep=30, orphans_older_than=NOW)
    reads: list[Commit] = []
    read = Store.manifest_of

    def counted(store: Store, commit: Commit) -> Manifest:
        reads.append(commit)
        return read(store, commit)

    monkeypatch.setattr(Store, "manifest_of", counted)
    with omnigraph.open(tmp_path / "g", read_only=True) as graph:
        assert len(graph.commits.list().removed) == 11
    assert len(reads) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_marks_after_any_history(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        names = ["main"]
        for number in range(40):
            branch, roll = chance.choice(names), chance.random()
            with suppress(OmnigraphError):
                if roll < 0.6:
                    put(graph, chance.choice("AB"), number, branch)
                elif roll < 0.7:
                    graph.branches.create(f"b{number}", source=branch)
                    names.append(f"b{number}")
                elif roll < 0.8:
                    graph.branches.update(branch, strategy="theirs")
                elif roll < 0.86:
                    extra = f"\nnode C{number} {{ k: String @key }}" if number % 2 else ""
                    graph.schema.apply(SCHEMA + extra, allow=chance.choice(["drops", "data_loss"]))
                elif roll < 0.92:
                    graph.tags.create(f"t{number}", branch=branch)
                else:
                    graph.cleanup(keep=chance.choice([1, 1, 2, 4]), orphans_older_than=NOW)
        graph.backup(tmp_path / "b", keep=2)
    check_marks(tmp_path / "g")
    check_marks(tmp_path / "b")
