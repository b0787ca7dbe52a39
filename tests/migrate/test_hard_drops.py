"""Hard drops remove the data from earlier commits, except where a branch or a tag needs it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.commit.child import Children
from tests.commit.graphs import assert_whole
from tests.commit.test_failed_flush import Flushes
from tests.migrate.garden import SCHEMA, content, create

from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.store import Store
from omnigraph.errors import ConflictError, VersionReclaimedError, WriteUndoneError
from omnigraph.graph import Graph, init, open
from omnigraph.migrate import hard_drops
from omnigraph.settings import FSYNC
from omnigraph.storage.table_files import Needs
from omnigraph.storage.tables import TableStorage

NO_OLD = SCHEMA.replace("    old: String?\n", "")
NO_BEDS = SCHEMA.replace("node Bed { name: String @key  size: I64?  kind: String? }\n", "").replace(
    "edge In: Plant -> Bed @card(0..3) { since: I32? }\n", ""
)


@pytest.fixture
def alone(tmp_path: Path) -> Graph:
    """The garden without other branches."""
    graph = create(tmp_path / "alone")
    for name in ("idle", "busy"):
        graph.branches.delete(name)
    return graph


def test_a_soft_drop_keeps_the_data_in_earlier_commits(alone: Graph) -> None:
    before, head = content(alone), alone.snapshot().commit.id
    done = alone.schema.apply(NO_OLD)
    assert done.hard_drops == ()
    assert content(alone, at=head) == before
    assert done.planned.plan.steps[0].to_json()["mode"] == "soft"


def test_a_hard_drop_of_a_property_removes_it_from_earlier_commits(alone: Graph) -> None:
    head = alone.snapshot().commit.id
    after = {name: dict(rows) for name, rows in content(alone).items()}
    done = alone.schema.apply(NO_OLD, allow="data_loss")
    assert done.planned.plan.steps[0].to_json()["mode"] == "hard"
    (drop,) = done.hard_drops
    assert (drop.type_key, drop.versions_kept, drop.error) == ("node:Plant", 0, None)
    assert drop.versions_removed > 0
    assert done.warnings == []
    with pytest.raises(VersionReclaimedError):
        content(alone, at=head)
    assert content(alone)["Plant"] == {
        id: {name: value for name, value in row.items() if name != "old"} for id, row in after["Plant"].items()
    }
    # Other types of earlier commits can still be read.
    assert alone.snapshot(commit=head).scan("node:Bed").num_rows == 3
    assert alone.commits.list().removed == frozenset()
    assert alone.verify().ok
    assert_whole(alone)
    with open(alone.uri) as reopened, pytest.raises(VersionReclaimedError):
        content(reopened, at=head)


def test_a_hard_drop_of_a_type_removes_its_table(alone: Graph) -> None:
    head, bed = alone.snapshot().commit.id, alone.snapshot().pin("node:Bed").ref.path
    done = alone.schema.apply(NO_BEDS, allow="data_loss")
    assert [(drop.type_key, drop.versions_kept, drop.error) for drop in done.hard_drops] == [
        ("edge:In", 0, None),
        ("node:Bed", 0, None),
    ]
    with pytest.raises(VersionReclaimedError):
        alone.snapshot(commit=head).scan("node:Bed")
    assert not list((Path(alone.uri) / bed).rglob("*.lance"))
    assert sorted(content(alone)) == ["Fits", "Plant", "Tool"]
    assert_whole(alone)


def test_a_hard_drop_keeps_what_branches_and_tags_need(graph: Graph) -> None:
    before, busy, head = content(graph), content(graph, branch="busy"), graph.snapshot().commit.id
    early = graph.snapshot(branch="busy").commit.id
    graph.mutate('query grow() { update Plant set { height: 8 } where code = "p21" }', branch="busy")
    later = content(graph, branch="busy")
    graph.tags.create("v1")
    done = graph.schema.apply(NO_OLD, allow="data_loss")
    (drop,) = done.hard_drops
    assert drop.versions_kept > 0
    assert drop.kept_for == ("branch 'busy'", "branch 'idle'", "tag 'v1'")
    assert done.warnings == [
        f"node:Plant: {drop.versions_kept} older versions still have the dropped data, because branch 'busy', "
        "branch 'idle' and tag 'v1' need them"
    ]
    assert done.to_json()["hard_drops"][0]["kept_for"] == list(drop.kept_for)
    assert content(graph, branch="idle") == before == content(graph, at="v1") == content(graph, at=head)
    assert content(graph, branch="busy") == later
    assert content(graph, at=early) == busy, "another branch keeps its history"
    assert_whole(graph)


def test_a_failed_removal_is_reported_and_not_raised(alone: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise ConflictError("the store is busy")

    monkeypatch.setattr(hard_drops, "cleanup", fail)
    head = alone.snapshot().commit.id
    done = alone.schema.apply(NO_OLD, allow="data_loss")
    assert done.applied
    (drop,) = done.hard_drops
    assert "the store is busy" in str(drop.error)
    assert "omnigraph upkeep" in done.warnings[0]
    assert done.to_json()["hard_drops"][0]["error"] == drop.error
    assert "old" in content(alone, at=head)["Plant"]["p01"]
    assert alone.status().unfinished_drops == ("node:Plant",)
    monkeypatch.undo()
    assert [drop.type_key for drop in alone.upkeep().hard_drops] == ["node:Plant"]
    with pytest.raises(VersionReclaimedError):
        content(alone, at=head)


SMALL = """
node Person { name: String @key  secret: String?  age: I64? }
node Note { title: String @key }
node Town { name: String @key }
"""
NO_SECRETS = """
node Person { name: String @key  age: I64? }
node Town { name: String @key }
"""
TYPES = ("node:Note", "node:Person")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three commits after the first: each adds a person, a note and a town."""
    place = tmp_path_factory.mktemp("template") / "small"
    with init(place, SMALL) as graph:
        for name in ("ann", "bob", "eve"):
            rows = {"Person": {"name": name, "secret": f"s-{name}"}, "Note": {"title": name}, "Town": {"name": name}}
            graph.load([{"type": kind, "data": data} for kind, data in rows.items()], mode="append")
    return place


@pytest.fixture
def small(made: Path, tmp_path: Path) -> Graph:
    shutil.copytree(made, tmp_path / "small")
    return open(tmp_path / "small")


def _is_readable(graph: Graph, key: str, commit: str) -> bool:
    try:
        graph.snapshot(commit=commit).scan(key)
    except VersionReclaimedError:
        return False
    return True


def _ids(graph: Graph) -> list[str]:
    """The commits of `main` with rows, oldest first."""
    return [commit.id for commit in reversed(list(graph.commits))][1:]


def test_a_hard_drop_keeps_the_other_types_of_all_earlier_commits(small: Graph) -> None:
    commits = _ids(small)
    small.schema.apply(NO_SECRETS, allow="data_loss")
    assert [small.snapshot(commit=one).scan("node:Town").num_rows for one in commits] == [1, 2, 3]
    assert not any(_is_readable(small, key, one) for key in TYPES for one in commits)


WRITE_POINTS = {
    Failpoint.CAPTURED: False,
    Failpoint.STAGED: False,
    Failpoint.LEASED: False,
    Failpoint.SIDECAR_WRITTEN: False,
    Failpoint.TABLE_COMMITTED: True,
    Failpoint.TABLES_COMMITTED: True,
    Failpoint.BEFORE_PUBLISH: True,
    Failpoint.PUBLISHED: True,
    Failpoint.SIDECAR_REMOVED: True,
    Failpoint.CLEANUP_LOOKED: True,
    Failpoint.CLEANUP_PROPOSED: True,
    Failpoint.CLEANUP_CHECKED: True,
    Failpoint.CLEANUP_DECIDED: True,
    Failpoint.CLEANUP_VERSIONS_REMOVED: True,
}
"""The failpoints of a hard drop of one table, and whether the change is visible after a crash there."""


def _interrupted() -> list[object]:
    """Each failpoint with each way to complete the removal. Quick runs have one way per failpoint."""
    return [
        pytest.param(point, visible, finish, id=f"{point}-{finish}", marks=() if quick else pytest.mark.slow)
        for number, (point, visible) in enumerate(WRITE_POINTS.items())
        for finish, quick in (("apply", number % 2 == 0), ("upkeep", number % 2 == 1))
    ]


@pytest.mark.parametrize(("point", "visible", "finish"), _interrupted())
def test_an_interrupted_hard_drop_is_named_and_completed(
    small: Graph, point: Failpoint, visible: bool, finish: str
) -> None:
    earlier = _ids(small)
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        small.schema.apply(NO_SECRETS, allow="data_loss")
    small.close()
    with open(small.uri) as graph:
        assert graph.schema.source == (NO_SECRETS if visible else SMALL)
        graph.mutate('query add() { insert Person { name: "new" } }')
        later = graph.snapshot().commit.id
        # Until the change is visible, nothing may be removed.
        assert visible or all(_is_readable(graph, key, one) for key in TYPES for one in earlier)
        _check_status(graph, earlier)
        if finish == "upkeep" and visible:
            left = graph.status().unfinished_drops
            assert tuple(one.type_key for one in graph.upkeep().hard_drops) == left
        else:
            assert graph.schema.apply(NO_SECRETS, allow="data_loss").applied is not visible
        assert graph.status().unfinished_drops == ()
        assert not any(_is_readable(graph, key, one) for key in TYPES for one in earlier)
        assert [graph.snapshot(commit=one).scan("node:Town").num_rows for one in earlier] == [1, 2, 3]
        assert not visible or graph.snapshot(commit=later).scan("node:Person").num_rows == 4, "no dropped data in it"
        assert graph.upkeep().is_idle
        assert graph.verify().ok
        assert_whole(graph)


def _check_status(graph: Graph, earlier: list[str]) -> None:
    """The status names a type exactly if the schema is changed and earlier commits still have its dropped data."""
    found, dropped = graph.status(), graph.schema.source == NO_SECRETS
    readable = tuple(key for key in TYPES if dropped and any(_is_readable(graph, key, one) for one in earlier))
    assert set(readable) <= set(found.unfinished_drops)
    # The files of a dropped type may still exist, although no version of it can be read any more.
    assert set(found.unfinished_drops) - set(readable) <= {"node:Note"}
    advised = [advice.command for advice in found.advice if "dropped data" in advice.reason]
    assert advised == ([f"omnigraph upkeep {graph.uri}"] if found.unfinished_drops else [])
    with open(graph.uri, read_only=True) as reader:
        assert reader.status().unfinished_drops == found.unfinished_drops
        assert reader.snapshot().scan("node:Person").num_rows == 4


def test_upkeep_completes_a_hard_drop_that_a_tag_prevented(small: Graph) -> None:
    earlier = _ids(small)
    small.tags.create("v1")
    small.schema.apply(NO_SECRETS, allow="data_loss")
    assert [_is_readable(small, "node:Person", one) for one in earlier] == [False, False, True]
    assert small.status().unfinished_drops == (), "the tag needs the rest"
    assert small.upkeep().is_idle
    again = small.schema.apply(NO_SECRETS, allow="data_loss")
    assert [(drop.type_key, drop.kept_for) for drop in again.hard_drops] == [(key, ("tag 'v1'",)) for key in TYPES]
    small.tags.delete("v1")
    assert small.status().unfinished_drops == TYPES
    done = small.upkeep().hard_drops
    assert [(drop.type_key, drop.versions_kept) for drop in done] == [(key, 0) for key in TYPES]
    assert not any(_is_readable(small, key, one) for key in TYPES for one in earlier)
    assert small.upkeep().is_idle


def _add(graph: Graph, name: str, branch: str = "main") -> None:
    graph.mutate(f'query add() {{ insert Person {{ name: "{name}" }} }}', branch=branch)


def test_later_versions_do_not_make_a_finished_hard_drop_unfinished(small: Graph) -> None:
    small.tags.create("v1")
    small.schema.apply(NO_SECRETS, allow="data_loss")
    for number in range(6):
        _add(small, f"p{number}")
    assert small.optimize().commit is not None
    assert small.status().unfinished_drops == ()
    small.branches.create("work")
    _add(small, "new", "work")
    small.branches.delete("work")
    assert small.status().unfinished_drops == ()
    assert small.upkeep().hard_drops == ()


@pytest.mark.parametrize("need", ["a branch", "a merge base", "an updated branch"])
def test_a_hard_drop_is_unfinished_when_nothing_needs_its_data_any_more(small: Graph, need: str) -> None:
    small.branches.create("work")
    _add(small, "new", "work")
    if need == "a merge base":
        _add(small, "merged")
        small.merge("main", "work")
        _add(small, "later")
    small.schema.apply(NO_SECRETS, allow="data_loss")
    if need == "an updated branch":
        small.branches.update("work")
    small.optimize(branch="work")
    assert small.status().unfinished_drops == ()
    _add(small, "more")
    _add(small, "more", "work")
    assert small.status().unfinished_drops == ()
    small.branches.delete("work")
    assert small.status().unfinished_drops == TYPES
    assert [(one.type_key, one.versions_kept) for one in small.upkeep().hard_drops] == [(key, 0) for key in TYPES]
    assert small.status().unfinished_drops == ()


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["main", "work"])
def test_the_cost_of_a_status_after_a_hard_drop_does_not_depend_on_the_number_of_commits(
    small: Graph, monkeypatch: pytest.MonkeyPatch, branch: str
) -> None:
    small.tags.create("v1")
    small.branches.create("work")
    small.schema.apply(NO_SECRETS, allow="data_loss")
    reads: list[object] = []
    read, files = Store.manifest_in, TableStorage.needs

    def counted(store: Store, *at: Any) -> Manifest | None:
        reads.append(at)
        return read(store, *at)

    def counted_files(tables: TableStorage, *at: Any) -> Needs:
        reads.append(at)
        return files(tables, *at)

    monkeypatch.setattr(Store, "manifest_in", counted)
    monkeypatch.setattr(TableStorage, "needs", counted_files)
    counts = []
    for number in range(0, 24, 12):
        for each in range(12):
            _add(small, f"p{number + each}", branch)
        with open(small.uri) as graph:
            reads.clear()
            assert graph.status().unfinished_drops == ()
            counts.append(len(reads))
    assert counts[0] == counts[1] <= 8


def test_a_branch_that_is_created_after_a_hard_drop_has_no_dropped_data(small: Graph) -> None:
    small.schema.apply(NO_SECRETS, allow="data_loss")
    small.branches.create("work")
    small.mutate('query add() { insert Person { name: "new" } }', branch="work")
    assert small.schema.apply(NO_SECRETS, allow="data_loss").hard_drops == ()
    assert small.status().unfinished_drops == ()


def test_the_removals_of_several_hard_drops_keep_the_commits_between_them(small: Graph) -> None:
    none = SMALL.replace("  age: I64?", "")
    with armed(Failpoint.SIDECAR_REMOVED, "crash"), pytest.raises(SimulatedCrashError):
        small.schema.apply(none, allow="data_loss")
    between = small.snapshot().commit.id
    with armed(Failpoint.SIDECAR_REMOVED, "crash"), pytest.raises(SimulatedCrashError):
        small.schema.apply(none.replace("node Note { title: String @key }\n", ""), allow="data_loss")
    assert small.status().unfinished_drops == TYPES
    small.upkeep()
    assert _is_readable(small, "node:Person", between)
    assert not _is_readable(small, "node:Note", between)
    assert small.upkeep().is_idle


def test_a_status_names_an_interrupted_hard_drop_beside_an_unreadable_sidecar(small: Graph) -> None:
    with armed(Failpoint.SIDECAR_REMOVED, "crash"), pytest.raises(SimulatedCrashError):
        small.schema.apply(NO_SECRETS, allow="data_loss")
    damaged = Path(small.uri) / "__recovery" / "01JD0000000000000000000000.json"
    damaged.write_bytes(b"{")
    assert small.status().unfinished_drops == TYPES
    damaged.unlink()
    small.upkeep()
    assert small.status().unfinished_drops == ()


def test_an_undone_hard_drop_removes_nothing(small: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, flushes = _ids(small), Flushes(Path(small.uri))
    small.close()
    monkeypatch.setenv(FSYNC.name, "1")
    monkeypatch.setattr(os, "fsync", flushes)
    with open(small.uri) as graph:
        with flushes.failing_in("__manifest/_versions/"), pytest.raises(WriteUndoneError):
            graph.schema.apply(NO_SECRETS, allow="data_loss")
        graph.refresh()
        assert graph.schema.source == SMALL
        assert graph.upkeep().is_idle
        assert all(_is_readable(graph, key, one) for key in TYPES for one in earlier)
        assert graph.snapshot().scan("node:Person")["secret"].to_pylist() == ["s-ann", "s-bob", "s-eve"]


KILLED = [
    Failpoint.TABLE_COMMITTED,
    Failpoint.BEFORE_PUBLISH,
    Failpoint.PUBLISHED,
    Failpoint.SIDECAR_REMOVED,
    Failpoint.CLEANUP_LOOKED,
    Failpoint.CLEANUP_PROPOSED,
    Failpoint.CLEANUP_DECIDED,
    Failpoint.CLEANUP_VERSIONS_REMOVED,
    Failpoint.CLEANUP_FILES_REMOVED,
]


@pytest.mark.slow
@pytest.mark.parametrize("point", KILLED, ids=str)
def test_a_killed_hard_drop_is_completed_by_upkeep(children: Children, alone: Graph, point: Failpoint) -> None:
    head = alone.snapshot().commit.id
    ending = children.run(
        "apply_schema", failpoint=f"{point.value}=kill", uri=alone.uri, source=NO_OLD, allow="data_loss"
    )
    assert ending.signal == signal.SIGKILL
    with open(alone.uri) as reopened:
        assert reopened.schema.source == NO_OLD
        assert "old" not in content(reopened)["Plant"]["p01"]
        assert reopened.schema.apply(NO_OLD).applied is False
        reopened.upkeep()
        with pytest.raises(VersionReclaimedError):
            content(reopened, at=head)
        assert reopened.status().unfinished_drops == ()
        assert reopened.verify().ok
        assert_whole(reopened)
