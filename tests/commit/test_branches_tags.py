"""Creating a branch copies no data, branches are isolated, any commit can be a source, and names can be reused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.commit.graphs import NODES, SEED, TABLES, Operation, assert_whole, contents, ids, put

from omnigraph.commit import branches, tags
from omnigraph.commit.branches import create_branch
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.store import Store
from omnigraph.engine import commit as commits
from omnigraph.engine.load import delete_failed_branch
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    InputError,
    NotFoundError,
    OmnigraphError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph, open

# Branches


def data_files(place: Path) -> set[Path]:
    return {path for folder in ("nodes", "edges") for path in (place / folder).rglob("*.lance")}


def test_creating_a_branch_copies_no_data(graph: Graph, place: Path) -> None:
    before = data_files(place)
    made = graph.branches.create("dev")
    assert (made.parent, made.head) == ("main", graph.snapshot().commit.id)
    assert data_files(place) == before
    assert not list(place.glob("*/*/tree")), "no table is forked before it is written"
    assert graph.snapshot(branch="dev").tables == graph.snapshot().tables
    assert contents(graph, "dev") == contents(graph)


def test_a_version_that_is_older_than_the_branch_is_refused_without_a_path(graph: Graph) -> None:
    put(graph, ["first"])
    graph.branches.create("dev")
    with pytest.raises(VersionReclaimedError, match=r"^version 1 of branch 'dev' no longer exists\n") as refused:
        graph.query("query q() { match { $n: A } return { $n.id } }", branch="dev", at=1)
    assert "__manifest" not in refused.value.render()


def test_only_written_tables_are_forked(graph: Graph) -> None:
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    mine, theirs = graph.snapshot(branch="dev"), graph.snapshot()
    assert {key for key in TABLES if mine.pin(key).ref != theirs.pin(key).ref} == {"node:A"}
    assert mine.pin("node:A").ref.path == theirs.pin("node:A").ref.path
    again = put(graph, ["own too"], branch="dev")
    assert graph.snapshot(branch="dev").pin("node:A").ref.branch == mine.pin("node:A").ref.branch, "forked once"
    assert again.parent == mine.commit.id
    assert_whole(graph)


@pytest.mark.parametrize("operation", list(Operation))
def test_writes_on_one_branch_do_not_change_another(graph: Graph, operation: Operation) -> None:
    graph.branches.create("dev")
    entities = ["s1"] if operation is Operation.DELETE else ["own"]
    put(graph, entities, NODES, branch="dev", operation=operation)
    assert contents(graph) == {key: sorted(SEED) for key in TABLES}
    there = contents(graph, "dev")
    put(graph, entities, NODES, operation=operation)
    put(graph, ["later"], NODES)
    assert contents(graph, "dev") == there
    assert_whole(graph)


def test_a_branch_of_a_branch_sees_the_writes_before_it_was_created(graph: Graph) -> None:
    graph.branches.create("a")
    put(graph, ["on a"], branch="a")
    graph.branches.create("b", source="a")
    put(graph, ["on b"], branch="b")
    graph.branches.create("c", source="b")
    put(graph, ["on c"], NODES, branch="c")
    put(graph, ["later on a"], branch="a")
    assert ids(graph, branch="c") == sorted([*SEED, "on a", "on b", "on c"])
    assert ids(graph, branch="b") == sorted([*SEED, "on a", "on b"])
    assert ids(graph, branch="a") == sorted([*SEED, "on a", "later on a"])
    assert [branch.parent for branch in graph.branches] == [None, "main", "a", "b"]
    assert_whole(graph)


def test_a_branch_can_start_at_any_commit_or_tag(graph: Graph) -> None:
    early = graph.snapshot().commit
    put(graph, ["one"])
    graph.branches.create("dev")
    on_branch = put(graph, ["two"], branch="dev")
    put(graph, ["three"], branch="dev")
    put(graph, ["four"])
    graph.tags.create("v1", commit=early.id)
    assert graph.branches.create("from-early", commit=early.id).head == early.id
    assert graph.branches.create("from-tag", commit="v1").head == early.id
    assert graph.branches.create("from-branch", commit=on_branch.id).parent == "dev"
    assert ids(graph, branch="from-early") == ids(graph, branch="from-tag") == sorted(SEED)
    assert ids(graph, branch="from-branch") == sorted([*SEED, "one", "two"])
    put(graph, ["own"], TABLES, branch="from-early")
    put(graph, ["own"], TABLES, branch="from-branch")
    assert ids(graph, branch="from-early") == sorted([*SEED, "own"])
    assert ids(graph, branch="from-branch") == sorted([*SEED, "one", "two", "own"])
    assert_whole(graph)
    with pytest.raises(InputError):
        graph.branches.create("x", source="dev", commit=early.id)
    with pytest.raises(NotFoundError):
        graph.branches.create("x", commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(BranchNotFoundError):
        graph.branches.create("x", source="nobody")


def test_creating_and_deleting_a_branch_makes_no_commit(graph: Graph) -> None:
    before = graph.snapshot()
    graph.branches.create("dev")
    graph.branches.delete("dev")
    assert graph.snapshot().manifest_version == before.manifest_version


def test_main_always_exists(graph: Graph) -> None:
    with pytest.raises(ConflictError):
        graph.branches.create("main")
    with pytest.raises(ConflictError, match="'main' cannot be deleted"):
        graph.branches.delete("main")


# Names


@pytest.mark.parametrize("name", ["dev", "a.b", "a-b_c", "x/y/z", "é", "ünï/çödé", "0", "-", "review-2", " padded "])
def test_valid_branch_names_are_accepted(graph: Graph, place: Path, name: str) -> None:
    graph.branches.create(name)
    put(graph, ["own"], branch=name.strip())
    with open(place, branch=name.strip()) as reopened:
        assert ids(reopened, branch=name.strip()) == sorted([*SEED, "own"])
        assert_whole(reopened)
    graph.branches.delete(name)
    assert [branch.name for branch in graph.branches] == ["main"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            " ",
            "/a",
            "a/",
            "a//b",
            "..",
            "a..b",
            ".",
            "./a",
            "a/.",
            "a\\b",
            "x.lock",
            "__x",
            "a b",
            "a\nb",
            "a%2Fb",
        ),
        *("a:b", "*", "~", "a\x00b", "x" * 201, "é" * 21),
    ],
)
def test_invalid_branch_names_are_refused(graph: Graph, place: Path, name: str) -> None:
    graph.branches.create("dev")
    before = sorted(place.rglob("*"))
    for attempt in (graph.branches.create, graph.branches.delete, graph.tags.create):
        with pytest.raises(InputError):
            attempt(name)
    assert sorted(place.rglob("*")) == before
    assert ids(graph, branch="dev") == sorted(SEED)


def test_a_branch_with_the_longest_name_can_be_written(graph: Graph) -> None:
    """A branch with the longest name can be written to, though names of leases and forks contain it."""
    for name in ("x" * 200, "é" * 20):
        graph.branches.create(name)
        put(graph, ["own"], branch=name)
        graph.branches.delete(name)
    assert_whole(graph)


def test_a_branch_name_cannot_be_a_path_below_another_branch(graph: Graph) -> None:
    graph.branches.create("review/x")
    graph.branches.create("review/y")
    graph.branches.create("review-z")
    for name in ("review", "review/x/deep"):
        with pytest.raises(ConflictError, match="path prefix"):
            graph.branches.create(name)
    put(graph, ["own"], branch="review/y")
    graph.branches.delete("review/x")
    assert ids(graph, branch="review/y") == sorted([*SEED, "own"])
    graph.branches.delete("review/y")
    graph.branches.create("review")
    put(graph, ["own"], branch="review")
    assert_whole(graph)


def test_creating_an_existing_branch_is_refused_and_keeps_its_rows(graph: Graph) -> None:
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    with pytest.raises(ConflictError, match="exists already"):
        graph.branches.create("dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "own"]), "a refused creation takes nothing away"


# Deleting


def test_a_deleted_branch_cannot_be_read_or_written(graph: Graph, place: Path) -> None:
    graph.branches.create("dev")
    made = put(graph, ["own"], NODES, branch="dev")
    graph.branches.delete("dev")
    assert "dev" not in graph.branches
    for attempt in (
        lambda: graph.snapshot(branch="dev"),
        lambda: put(graph, ["x"], branch="dev"),
        lambda: graph.branches.delete("dev"),
    ):
        with pytest.raises(BranchNotFoundError):
            attempt()
    with pytest.raises(NotFoundError):
        graph.commits.get(made.id)
    assert not list((place / "__refs").glob("*.json"))
    assert_whole(graph)


def test_a_handle_cannot_delete_the_branch_it_is_bound_to(graph: Graph, place: Path) -> None:
    graph.branches.create("dev")
    with open(place, branch="dev") as bound:
        with pytest.raises(ConflictError, match="bound"):
            bound.branches.delete("dev")
        assert ids(bound, branch="dev") == sorted(SEED)
    graph.branches.delete("dev")


def test_a_branch_with_child_branches_or_tags_cannot_be_deleted(graph: Graph) -> None:
    graph.branches.create("dev")
    head = put(graph, ["own"], branch="dev")
    graph.branches.create("child", source="dev")
    graph.tags.create("v1", branch="dev")
    with pytest.raises(ConflictError, match="child"):
        graph.branches.delete("dev")
    graph.branches.delete("child")
    with pytest.raises(ConflictError, match="v1"):
        graph.branches.delete("dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "own"])
    assert graph.snapshot(commit="v1").commit == head
    graph.tags.delete("v1")
    graph.branches.delete("dev")
    assert_whole(graph)


def test_a_branch_works_if_its_source_is_deleted_during_creation(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is deleted after it was read: its files stay while the new branch needs them."""
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    capture = Store.capture

    def late(self: Store, branch: str) -> object:
        view = capture(self, branch)
        if branch == "dev":
            monkeypatch.undo()
            graph.branches.delete("dev")
        return view

    monkeypatch.setattr(Store, "capture", late)
    graph.branches.create("child", source="dev")
    assert [branch.name for branch in graph.branches] == ["main", "child"]
    graph.cleanup(keep=1, orphans_older_than=timedelta(0))
    assert ids(graph, branch="child") == sorted([*SEED, "own"])
    put(graph, ["more"], branch="child")
    assert_whole(graph)


# Reused names


@pytest.mark.parametrize("written", [False, True])
def test_a_deleted_branch_name_can_be_reused(graph: Graph, written: bool) -> None:
    for turn in range(3):
        graph.branches.create("dev")
        if written:
            put(graph, [f"turn {turn}"], NODES, branch="dev")
            assert ids(graph, branch="dev") == sorted([*SEED, f"turn {turn}"])
        graph.branches.delete("dev")
    assert_whole(graph)


def test_files_without_a_reference_are_not_a_branch(graph: Graph, place: Path) -> None:
    """An interrupted creation or deletion leaves files. A branch exists only while its reference exists."""
    graph.branches.create("dev")
    put(graph, ["old"], NODES, branch="dev")
    (place / "__refs" / "dev.json").unlink()
    assert list((place / "__manifest" / "tree").iterdir())
    with open(place) as fresh:
        for handle in (graph, fresh):
            assert "dev" not in handle.branches
            with pytest.raises(BranchNotFoundError):
                handle.snapshot(branch="dev")
            with pytest.raises(BranchNotFoundError):
                put(handle, ["x"], branch="dev")
    graph.branches.create("dev")
    assert ids(graph, branch="dev") == sorted(SEED), "nothing of the old one shows"
    put(graph, ["new"], NODES, branch="dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "new"])
    assert_whole(graph)


def test_a_branch_reference_without_files_can_be_deleted(graph: Graph, place: Path) -> None:
    graph.branches.create("dev")
    shutil.rmtree(place / "__manifest" / "tree")
    with pytest.raises(OmnigraphError):
        graph.snapshot(branch="dev")
    put(graph, ["main goes on"])
    graph.branches.delete("dev")
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    assert_whole(graph)


def test_a_branch_name_can_be_reused_while_old_forks_remain(graph: Graph, place: Path) -> None:
    """A deletion that stopped after it removed the reference leaves forks. The name can be used again."""
    graph.branches.create("dev")
    put(graph, ["old"], NODES, branch="dev")
    (place / "__refs" / "dev.json").unlink()
    assert list(place.glob("nodes/*/tree/*"))
    graph.branches.create("dev")
    put(graph, ["new"], NODES, branch="dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "new"])
    assert_whole(graph)


# Tags


def test_tags_can_be_created_listed_read_and_deleted(graph: Graph, place: Path) -> None:
    first = graph.snapshot().commit
    tag = graph.tags.create("v1")
    assert (tag.commit_id, tag.branch, tag.manifest_version) == (first.id, "main", first.manifest_version)
    put(graph, ["later"])
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    graph.tags.create("v2", branch="dev")
    graph.tags.create("v3", commit="v1")
    with open(place, read_only=True) as reader:
        assert [tag.name for tag in reader.tags] == ["v1", "v2", "v3"]
        assert {tag.name: tag.commit_id for tag in reader.tags}["v3"] == first.id
        assert all(tag.created_at for tag in reader.tags)
        assert reader.snapshot(commit="v1").commit == first
    with pytest.raises(ConflictError, match="v1"):
        graph.tags.create("v1")
    assert graph.snapshot(commit="v1").commit == first, "a refused tag moves nothing"
    graph.tags.delete("v1")
    with pytest.raises(NotFoundError) as caught:
        graph.tags.delete("v1")
    assert "v2" in str(caught.value.hint) or "v3" in str(caught.value.hint)
    with pytest.raises(NotFoundError):
        graph.snapshot(commit="v1")
    with pytest.raises(NotFoundError):
        graph.tags.create("v9", commit="nothing")


@pytest.mark.parametrize("point", [Failpoint.BRANCH_CREATE_CHECKED, Failpoint.BRANCH_REF_PENDING])
def test_a_tag_that_is_created_during_a_branch_of_its_name_is_not_beside_it(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch, point: Failpoint
) -> None:
    first = point is Failpoint.BRANCH_CREATE_CHECKED  # no reference of the branch exists yet
    results: list[bool] = []

    def race(reached: Failpoint) -> None:
        if reached is point:
            with open(place) as other:
                results.append(succeeds(lambda: other.tags.create("x")))

    monkeypatch.setattr(branches, "reach", race)
    results.append(succeeds(lambda: graph.branches.create("x")))
    assert results == [first, not first]
    assert ("x" in [tag.name for tag in graph.tags], "x" in [branch.name for branch in graph.branches]) == (
        first,
        not first,
    )
    assert_whole(graph)


def test_a_branch_that_is_created_during_a_tag_of_its_name_wins(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def race(reached: Failpoint) -> None:
        if reached is Failpoint.TAG_CREATE_CHECKED:
            with open(place) as other:
                other.branches.create("x")

    monkeypatch.setattr(tags, "reach", race)
    assert not succeeds(lambda: graph.tags.create("x"))
    assert list(graph.tags) == []
    assert [branch.name for branch in graph.branches] == ["main", "x"]


def test_no_branch_gets_the_name_of_a_tag(graph: Graph) -> None:
    graph.tags.create("x")
    assert not succeeds(lambda: graph.branches.create("x"))
    assert not succeeds(lambda: create_branch(graph.session.store, "x", graph.snapshot().manifest))
    rows = [{"type": "A", "data": {"k": "new"}}]
    assert not succeeds(lambda: graph.load(rows, mode="append", branch="x", base="main"))
    assert [branch.name for branch in graph.branches] == ["main"]


def succeeds(create: Callable[[], object]) -> bool:
    try:
        create()
    except ConflictError:
        return False
    return True


def test_a_tag_on_a_new_branch_names_the_commit_that_the_branch_starts_at(graph: Graph) -> None:
    graph.branches.create("dev")
    assert graph.tags.create("t", branch="dev").branch == "main"
    graph.branches.delete("dev")
    assert graph.snapshot(commit="t").commit == graph.snapshot().commit


def test_a_failed_load_keeps_its_new_branch_if_another_writer_has_committed_to_it(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = graph.session.store.capture("main")
    dev = create_branch(graph.session.store, "dev", base)
    exclusive = type(graph.session.store).exclusive

    def held(self: Store, branch: str, **said: Any) -> Any:
        monkeypatch.setattr(type(graph.session.store), "exclusive", exclusive)
        put(graph, ["late"], ["node:A"], branch="dev")
        return exclusive(self, branch, **said)

    monkeypatch.setattr(type(graph.session.store), "exclusive", held)
    delete_failed_branch(graph.session, dev, base)
    assert "late" in ids(graph, branch="dev")
    idle = create_branch(graph.session.store, "idle", base)
    delete_failed_branch(graph.session, idle, base)
    assert "idle" not in graph.session.store.branch_names()


def test_a_failed_load_does_not_delete_a_newer_branch_of_the_same_name(graph: Graph) -> None:
    base = graph.session.store.capture("main")
    made = create_branch(graph.session.store, "dev", base)
    graph.branches.delete("dev")
    graph.branches.create("dev")
    delete_failed_branch(graph.session, made, base)
    assert "dev" in graph.branches


def test_a_merge_does_not_delete_a_newer_branch_of_the_same_name(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branches.create("side")
    put(graph, ["mine"], branch="side")
    graph.branches.create("dev", source="side")
    write = commits.write_tables

    def written(*arguments: Any) -> Any:
        made = write(*arguments)
        graph.branches.delete("dev")
        graph.branches.create("dev", source="side")  # with the same head
        return made

    monkeypatch.setattr("omnigraph.engine.merge.write_tables", written)
    receipt = graph.merge("dev", "main", delete_branch=True)
    assert receipt.branch_deleted is False
    assert "dev" in graph.branches
