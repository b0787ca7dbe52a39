"""Cleanup removes all unreachable versions and files, and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace

import lance
import orjson
import pyarrow as pa
import pytest
from tests.commit.child import Children
from tests.commit.conftest import _no_fsync, children, parent
from tests.commit.graphs import SCHEMA as SMALL
from tests.commit.graphs import evolve_to
from tests.s3_server import S3Root
from tests.upkeep.reached import listing, pins, reached, unreached, views
from ulid_transform import ulid_at_time, ulid_now

from omnigraph.commit import work_records
from omnigraph.commit.failpoints import Failpoint, FailpointError, armed
from omnigraph.commit.lease import Owner
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.errors import (
    ConflictError,
    CorruptionError,
    DriftError,
    InputError,
    OmnigraphError,
    ReadOnlyError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph, init, open
from omnigraph.storage.staging import write_fragments
from omnigraph.upkeep import cleanup as cleanup_module
from omnigraph.upkeep import reachable
from omnigraph.upkeep.cleanup import CleanupReport
from omnigraph.upkeep.optimize import _Work

__all__ = ["_no_fsync", "children", "parent"]

SCHEMA = """
node Person { name: String @key  age: I64? @index  text: String?  photo: Blob?  @index(text, kind="fts") }
node Town { name: String @key }
edge Knows: Person -> Person { since: I64? }
"""
NOW = timedelta(0)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with init(tmp_path / "g", SCHEMA) as made:
        yield made


def root(graph: Graph) -> Path:
    return Path(graph.session.store.objects.uri.path)


def people(graph: Graph, *names: str, age: int = 0, mode: str = "append", branch: str = "main", photo: int = 0) -> None:
    columns = {"name": list(names), "age": [age] * len(names), "text": [f"about {name} {age}" for name in names]}
    if photo:
        columns["photo"] = [os.urandom(photo) for _ in names]
    graph.load({"Person": pa.table(columns)}, mode=mode, branch=branch)


def orphan(graph: Graph, key: str = "node:Person", branch: str = "main") -> None:
    """Write rows that are never committed."""
    ref = graph.snapshot(branch=branch).pin(key).ref
    schema = graph.session.store.tables.at(ref).schema()
    rows = pa.table({"id": ["lost"], "name": ["lost"]}) if key == "node:Town" else None
    if rows is None:
        empty = pa.Table.from_pylist([], schema=graph.snapshot().scan(key).schema)
        columns = {f.name: pa.nulls(1, f.type) for f in empty.schema} | {"id": pa.array(["lost"]), "name": ["lost"]}
        rows = pa.table(columns).select(schema.names)
    write_fragments(graph.session.store.tables.at(ref), rows)


def states(graph: Graph, keep: int) -> dict[str, bytes]:
    """The exports of all states that stay readable."""
    found = {f"branch {name}": b"".join(graph.export(branch=name)) for name in graph.session.store.branch_names()}
    found |= {f"tag {tag.name}": b"".join(graph.export(at=tag.name)) for tag in graph.tags}
    for name in graph.session.store.branch_names():
        for commit in list(graph.commits.list(branch=name).commits)[:keep]:
            found[f"commit {commit.id}"] = b"".join(graph.export(at=commit.id))
    return found


def live_through(graph: Graph, chance: Random, steps: int) -> None:
    """Make a random history with writes, branches, tags and crashed writers."""
    for step in range(steps):
        names = graph.session.store.branch_names()
        branch = chance.choice(names)
        act = chance.randrange(12)
        if act < 3:
            people(graph, *(f"p{step}-{i}" for i in range(3)), branch=branch, photo=chance.choice([0, 10, 200_000]))
        elif act == 3:
            people(graph, f"p{chance.randrange(step + 1)}-1", age=step, mode="merge", branch=branch)
        elif act == 4:
            graph.mutate("query gone($age: I64) { delete Person where age = $age }", {"age": step - 2}, branch=branch)
        elif act == 5:
            graph.load({"Town": pa.table({"name": [f"t{step}"]})}, mode="overwrite", branch=branch)
        elif act == 6 and chance.random() < 0.5:
            graph.optimize()
        elif act == 6:
            graph.ensure_indexes(branch=branch)
        elif act == 7 and len(names) < 4:
            history = list(graph.commits.list(branch=branch).commits)
            graph.branches.create(f"b{step}", commit=chance.choice(history[:3]).id)
        elif act == 8 and branch != "main":
            with suppress(ConflictError):  # another branch was created from it
                graph.branches.delete(branch)
        elif act == 9:
            history = list(graph.commits.list(branch=branch).commits)
            graph.tags.create(f"v{step}", commit=chance.choice(history[:4]).id)
        elif act == 10:
            orphan(graph, chance.choice(["node:Person", "node:Town"]), branch)
        else:
            with armed(Failpoint.STAGED), pytest.raises(Exception, match=r"."):
                people(graph, f"dead-{step}", branch=branch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_reachable_states_are_unchanged_and_unreachable_files_are_removed(graph: Graph, seed: int) -> None:
    chance = Random(seed)
    live_through(graph, chance, 30)
    keep = chance.choice([0, 1, 2, 5])
    before, files = states(graph, keep), listing(root(graph))
    refs = pins(graph, views(graph, keep))
    names = reached(root(graph), refs)
    said = graph.cleanup(keep=keep, orphans_older_than=NOW, preview=True)
    assert listing(root(graph)) == files
    done = graph.cleanup(keep=keep, orphans_older_than=NOW)
    assert done.errors == ()
    assert done.tables == said.tables
    left = listing(root(graph))
    assert left.items() <= files.items()
    assert {path for path in files if names & set(path.split("/"))} <= set(left)
    assert unreached(root(graph), refs) == set()
    with open(graph.uri) as reopened:
        assert states(reopened, keep) == before
        for name in reopened.session.store.branch_names():
            assert reopened.verify(branch=name).ok
            people(reopened, f"afterwards {name}", branch=name)
    assert states(graph, 0).keys() == {name for name in before if not name.startswith("commit")}
    removed = done.tables
    assert sum(table.bytes_removed for table in graph.cleanup(keep=99, orphans_older_than=NOW).tables) == 0, removed


def test_keep_and_older_than_decide_which_commits_stay(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(8):
        people(graph, f"p{i}")
    history = [commit.id for commit in graph.commits.list().commits]

    def readable() -> list[bool]:
        found = []
        with open(graph.uri) as fresh:
            for commit in history:
                try:
                    found.append(len(b"".join(fresh.export(at=commit))) >= 0)
                except VersionReclaimedError:
                    found.append(False)
        return found

    graph.cleanup(keep=2, older_than=timedelta(days=1))
    assert readable() == [True] * 9, "they are young"
    graph.cleanup(keep=5)
    assert readable() == [True] * 5 + [False] * 4
    graph.cleanup(older_than=timedelta(days=1))
    assert readable() == [True] * 5 + [False] * 4
    later = cleanup_module.now() + timedelta(days=2)
    monkeypatch.setattr("omnigraph.upkeep.cleanup.now", lambda: later)
    graph.cleanup(keep=3, older_than=timedelta(days=1))
    assert readable() == [True] * 3 + [False] * 6
    graph.cleanup(older_than=timedelta(days=1))
    assert readable() == [True] + [False] * 8
    assert [commit.id for commit in graph.commits.list().commits] == history, "history itself stays"


def test_invalid_cleanup_options_are_refused(graph: Graph) -> None:
    for said in (
        {},
        {"keep": -1},
        {"older_than": timedelta(days=-1)},
        {"keep": 1, "orphans_older_than": -NOW.resolution},
    ):
        with pytest.raises(InputError):
            graph.cleanup(**said)
    with open(graph.uri, read_only=True) as reader:
        assert reader.cleanup(keep=1, preview=True).versions_removed == 0
        with pytest.raises(ReadOnlyError):
            reader.cleanup(keep=1)
    with init("memory://cleanup", SCHEMA) as memory, pytest.raises(InputError, match="memory"):
        memory.cleanup(keep=1)


def test_a_removed_commit_cannot_get_a_branch_or_tag(graph: Graph) -> None:
    people(graph, "a")
    old = graph.commits.list().commits[0]
    view = graph.snapshot(commit=old.id)._manifest
    for i in range(3):
        people(graph, f"p{i}")
    graph.cleanup(keep=1)
    for make in (
        lambda: graph.branches.create("late", commit=old.id),
        lambda: graph.tags.create("late", commit=old.id),
    ):
        with pytest.raises(VersionReclaimedError):
            make()
    assert view.tables["node:Person"].row_count == 1
    assert graph.branches.create("dev").head == graph.commits.list().commits[0].id


def test_a_tag_created_during_cleanup_keeps_its_commit(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    people(graph, "a")
    old = graph.commits.list().commits[0]
    for i in range(3):
        people(graph, f"p{i}")
    before = b"".join(graph.export(at=old.id))
    read = reachable.reach
    made: list[bool] = []

    def overtaken(*given: object) -> object:
        found = read(*given)  # type: ignore[arg-type]  # passed on
        if not made:
            made.append(True)
            with open(graph.uri) as other:
                other.tags.create("kept", commit=old.id)
        return found

    monkeypatch.setattr(reachable, "reach", overtaken)
    graph.cleanup(keep=1)
    with open(graph.uri) as fresh:
        assert b"".join(fresh.export(at="kept")) == before


def test_a_branch_created_and_written_during_cleanup_is_kept(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    people(graph, "a")
    read = reachable.reach
    made: list[bool] = []

    def overtaken(*given: object) -> object:
        found = read(*given)  # type: ignore[arg-type]  # passed on
        if not made:
            made.append(True)
            with open(graph.uri) as other:
                other.branches.create("late")
                people(other, "b", branch="late")
        return found

    monkeypatch.setattr(reachable, "reach", overtaken)
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with open(graph.uri) as fresh:
        assert b'"b"' in b"".join(fresh.export(branch="late"))
        assert fresh.verify().ok


def test_a_tag_created_during_cleanup_keeps_a_dropped_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with init(tmp_path / "g", SMALL) as graph:
        graph.load({"B": pa.table({"k": ["x"]})}, mode="append")
        old = graph.commits.list().commits[0]
        before = b"".join(graph.export(at=old.id))
        evolve_to(graph, SMALL.replace("node C { k: String @key n: I64? }\n", "").replace("edge BC: B -> C\n", ""), [])
        read = reachable.reach
        made: list[bool] = []

        def overtaken(*given: object) -> object:
            found = read(*given)  # type: ignore[arg-type]  # passed on
            if not made:
                made.append(True)
                graph.tags.create("kept", commit=old.id)
            return found

        monkeypatch.setattr(reachable, "reach", overtaken)
        graph.cleanup(keep=1, orphans_older_than=NOW)
        assert b"".join(graph.export(at="kept")) == before


def test_a_load_started_during_cleanup_keeps_its_files(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    people(graph, "a")
    listed = type(graph.session.store.objects).list
    begun: list[object] = []

    def overtaken(self: object, prefix: str = "") -> object:
        if prefix == "nodes" and not begun:
            begun.append(True)
            work.enter_context(at_work(graph.session.store.objects, WorkKind.LOAD))
            orphan(graph)
            aged(root(graph) / "nodes", 60)  # the clock of the store is slow
        return listed(self, prefix)  # type: ignore[arg-type]  # passed on

    with ExitStack() as work:
        monkeypatch.setattr(type(graph.session.store.objects), "list", overtaken)
        assert graph.cleanup(keep=9, orphans_older_than=NOW).bytes_removed == 0
    assert begun


# Files of crashed processes


def staged(graph: Graph, owner: Owner | None, began: float) -> str:
    """The directory of a load."""
    name = ulid_at_time(began).lower()
    directory = root(graph) / "__staging" / name
    directory.mkdir(parents=True)
    (directory / "rows.arrow").write_bytes(b"rows")
    if owner is not None:
        record(graph, name, owner)
    return name


def record(graph: Graph, name: str, owner: Owner, beat: int = 0, **more: object) -> Path:
    """A record of a load."""
    members = {"version": 1, "kind": "load", "owner": asdict(owner), "beat": beat, "began": None, "commits": []}
    path = root(graph) / "__work" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(orjson.dumps(members | {"needs": {}} | more))
    return path


def aged(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    for file in [path, *path.rglob("*")]:
        os.utime(file, (then, then))


def left_over(graph: Graph) -> int:
    return sum(table.orphans_removed for table in graph.cleanup(keep=9, orphans_older_than=NOW, preview=True).tables)


def test_orphaned_files_are_removed_after_the_grace_period(graph: Graph) -> None:
    people(graph, "a")
    orphan(graph)
    assert graph.cleanup(keep=9).bytes_removed == 0, "it may belong to a write that is at work"
    aged(root(graph) / "nodes", 8 * 86400)
    assert sum(table.orphans_removed for table in graph.cleanup(keep=9).tables) == 1
    assert left_over(graph) == 0
    assert len(b"".join(graph.export())) > 0


DEAD = Owner(Owner.here().host, 2**22 + 5, "1")
ELSEWHERE = Owner("another machine", 7, "1")


def test_cleanup_keeps_the_files_of_a_running_load(graph: Graph) -> None:
    people(graph, "a")
    name = ulid_now().lower()
    with at_work(graph.session.store.objects, WorkKind.LOAD, name=name):
        orphan(graph)
        fork = _fork(graph)
        assert graph.cleanup(keep=9, orphans_older_than=NOW).bytes_removed == 0
        assert (root(graph) / "__work" / f"{name}.json").exists()
        assert fork in _forks(graph)
    assert not (root(graph) / "__work" / f"{name}.json").exists()
    aged(root(graph) / "nodes", 1)
    # A record with a live owner counts as running, and one with a dead owner does not.
    kept = record(graph, name, Owner.here())
    aged(kept, 60)
    assert graph.cleanup(keep=9, orphans_older_than=NOW).bytes_removed == 0
    record(graph, name, DEAD)
    done = graph.cleanup(keep=9, orphans_older_than=NOW)
    assert sum(table.forks_removed for table in done.tables) == 1
    assert sum(table.orphans_removed for table in done.tables) == 1
    assert left_over(graph) == 0
    assert _forks(graph) == []
    assert not kept.exists()


def _fork(graph: Graph) -> str:
    """A fork that a load made on a branch, and that the manifest does not name yet."""
    graph.branches.create("dev")
    view = graph.session.store.capture("dev")
    fork = graph.session.store.tables.fork(view.tables["node:Person"].ref, f"{view.incarnation}-{ulid_now().lower()}")
    assert fork.branch is not None
    return fork.branch


def _forks(graph: Graph) -> list[str]:
    return graph.session.store.tables.forks(graph.snapshot().pin("node:Person").ref.path)


def test_work_records_of_other_machines_are_judged_by_heartbeat_and_not_by_age(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record counts as dead when its heartbeat has not changed for one lease time, independent of clocks."""
    people(graph, "a")
    orphan(graph)
    aged(root(graph) / "nodes", 1)
    graph.session.store.timeouts.ttl = 0.6
    name = ulid_now().lower()
    aged(record(graph, name, ELSEWHERE), 30 * 86400)
    here, slept, beats = threading.get_ident(), [0.0], True

    def sleep(seconds: float) -> None:
        if threading.get_ident() != here:
            time.sleep(seconds)
            return
        slept.append(seconds)
        if beats:
            aged(record(graph, name, ELSEWHERE, len(slept)), 30 * 86400)

    monkeypatch.setattr(work_records, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=sleep))
    assert graph.cleanup(keep=9, orphans_older_than=NOW).bytes_removed == 0
    beats, began = False, sum(slept)
    done = graph.cleanup(keep=9, orphans_older_than=NOW)
    assert 0.5 <= sum(slept) - began < 1.2
    assert sum(table.orphans_removed for table in done.tables) == 1
    assert not (root(graph) / "__work" / f"{name}.json").exists()


def test_abandoned_staged_rows_do_not_keep_orphaned_table_files(graph: Graph) -> None:
    people(graph, "a")
    name = staged(graph, None, time.time() - 7200)
    orphan(graph)
    aged(root(graph) / "nodes", 60)
    aged(root(graph) / "__staging" / name, 60)
    done = graph.cleanup(keep=9, orphans_older_than=NOW)
    assert (done.loads_removed, sum(table.orphans_removed for table in done.tables)) == (0, 1)
    (kept,) = done.loads_at_work
    assert (kept.name, kept.on_tables, kept.host, kept.pid) == (name, False, None, None), "a write may yet want them"
    aged(root(graph) / "__staging" / name, 3700)
    done = graph.cleanup(keep=9, orphans_older_than=NOW)
    assert (done.loads_removed, done.loads_at_work) == (1, ())
    assert not (root(graph) / "__staging").exists()


def test_an_unreadable_work_record_counts_as_running(graph: Graph) -> None:
    people(graph, "a")
    name = staged(graph, None, time.time() - 60)
    (root(graph) / "__work").mkdir(exist_ok=True)
    (root(graph) / "__work" / f"{name}.json").write_bytes(b"{")
    orphan(graph)
    done = graph.cleanup(keep=9, orphans_older_than=NOW, preview=True)
    assert done.bytes_removed == 0
    assert [(load.name, load.on_tables, load.pid) for load in done.loads_at_work] == [(name, True, None)]


def test_empty_staging_directories_are_removed_after_the_grace_period(graph: Graph) -> None:
    staging = root(graph) / "__staging"
    hours = {"bare": 2, "locked": 2, "deep/within": 2, "killed": 2, "young": 0, "used": 2}
    for name, hour in hours.items():
        (staging / name).mkdir(parents=True)
        (staging / name / ".og-lock").touch()
        aged(staging / name, 3600 * hour)
    (staging / "bare" / ".og-lock").unlink()
    (staging / "killed" / ".og-tmp-1-a").touch()
    (staging / "used" / "rows.arrow").write_bytes(b"rows")
    for name in ("bare", "deep", "killed", "used"):
        aged(staging / name, 7200)
    graph.cleanup(keep=9, orphans_older_than=timedelta(hours=1), preview=True)
    assert len(list(staging.iterdir())) == 6
    graph.cleanup(keep=9, orphans_older_than=timedelta(hours=1))
    assert sorted(path.name for path in staging.iterdir()) == ["used", "young"]
    (staging / "used" / "rows.arrow").unlink()
    aged(staging, 10)
    graph.cleanup(keep=9, orphans_older_than=NOW)
    assert not staging.exists()


def test_the_report_names_running_loads_that_keep_files(graph: Graph) -> None:
    people(graph, "a")
    here = Owner.here()
    name = ulid_now().lower()
    with at_work(graph.session.store.objects, WorkKind.LOAD, name=name):
        assert graph.cleanup(keep=9).loads_at_work == (), "what is that old stays for nobody's sake"
        for preview in (True, False):
            (load,) = graph.cleanup(keep=9, orphans_older_than=NOW, preview=preview).loads_at_work
            assert (load.name, load.on_tables, load.host, load.pid) == (name, True, here.host, here.pid)
            assert load.began <= load.seen + timedelta(seconds=1)


def test_files_of_crashed_loads_are_removed_after_the_grace_period(graph: Graph) -> None:
    young = staged(graph, DEAD, time.time() - 60)
    old = staged(graph, None, time.time() - 9 * 86400)
    aged(root(graph) / "__staging" / old, 8 * 86400)
    done = graph.cleanup(keep=9)
    assert (done.loads_removed, done.load_bytes_removed) == (1, 4)
    assert not (root(graph) / "__work" / f"{young}.json").exists()
    assert [path.name for path in (root(graph) / "__staging").iterdir() if not path.name.startswith(".")] == [young]


def test_forks_of_deleted_branches_are_removed(graph: Graph) -> None:
    people(graph, "a")
    graph.branches.create("dev")
    people(graph, "b", branch="dev")
    graph.branches.create("kid", source="dev")
    people(graph, "c", branch="kid")
    assert len(_forks(graph)) == 2
    graph.branches.delete("kid")
    graph.branches.delete("dev")
    before = b"".join(graph.export())
    done = graph.cleanup(keep=9)
    assert [table.forks_removed for table in done.tables if table.type_key == "node:Person"] == [2]
    assert _forks(graph) == []
    assert not any("tree" in path for path in listing(root(graph)))
    assert b"".join(graph.export()) == before


def test_a_dropped_type_is_removed_with_its_last_commit(tmp_path: Path) -> None:
    with init(tmp_path / "g", SMALL) as graph:
        graph.load({"B": pa.table({"k": ["x"]})}, mode="append")
        place = root(graph) / graph.snapshot().pin("node:C").ref.path
        graph.tags.create("before")
        evolve_to(
            graph, SMALL.replace("node C { k: String @key n: I64? }\n", "").replace("edge BC: B -> C\n", ""), ["a"]
        )
        graph.cleanup(keep=1, orphans_older_than=NOW)
        assert place.exists(), "a tag has it"
        graph.tags.delete("before")
        done = graph.cleanup(keep=1)
        assert {(table.type_key, table.old_versions_removed) for table in done.tables if table.bytes_removed} >= {
            ("node:C", 1),
            ("edge:BC", 1),
        }
        assert sum(table.orphans_removed for table in done.tables) == 0
        assert not place.exists()
        assert graph.verify().ok


def table_files(graph: Graph) -> tuple[int, int]:
    """The number of table versions on disk, and the size of all table files."""
    files = [file for kind in ("nodes", "edges") for file in (root(graph) / kind).rglob("*") if file.is_file()]
    return sum(file.suffix == ".manifest" for file in files), sum(file.stat().st_size for file in files)


@pytest.mark.slow
def test_removed_versions_are_counted_with_those_of_removed_forks_and_tables(graph: Graph, tmp_path: Path) -> None:
    for step in range(4):
        people(graph, f"p{step}")
    graph.load({"Town": pa.table({"name": ["t"]})}, mode="append")
    graph.branches.create("dev")
    for step in range(3):
        people(graph, f"d{step}", branch="dev")
    graph.merge("dev")
    graph.branches.delete("dev")
    people(graph, "p0", age=9, mode="merge")
    graph.schema.apply(SCHEMA.replace("node Town { name: String @key }\n", ""))
    people(graph, "p1", age=9, mode="merge")
    found = {}
    for keep in range(10):
        copy = tmp_path / f"copy-{keep}"
        shutil.copytree(root(graph), copy)
        with open(copy) as copied:
            before = table_files(copied)
            preview = copied.cleanup(keep=keep, preview=True)
            done = copied.cleanup(keep=keep)
            after = table_files(copied)
        assert preview.tables == done.tables
        found[keep] = done.versions_removed, sum(table.bytes_removed for table in done.tables)
        assert found[keep] == (before[0] - after[0], before[1] - after[1])
    assert [found[keep] for keep in sorted(found)] == sorted(found.values(), reverse=True)
    assert found[0][0] > found[5][0] > found[9][0]


# Running and crashed processes


def test_cleanup_refuses_drift_and_unreadable_sidecars(graph: Graph) -> None:
    people(graph, "a")
    place = root(graph) / graph.snapshot().pin("node:Person").ref.path
    lance.dataset(str(place)).delete("true")  # by another program
    for preview in (True, False):
        with pytest.raises(DriftError):
            graph.cleanup(keep=1, preview=preview)
    (root(graph) / "__recovery").mkdir(exist_ok=True)
    (root(graph) / "__recovery" / f"{ulid_now()}.json").write_bytes(b"{")
    for preview in (True, False):
        with pytest.raises(CorruptionError, match="cannot be read"):
            graph.cleanup(keep=1, preview=preview)


def test_cleanup_recovers_interrupted_writes_first(graph: Graph) -> None:
    people(graph, "a")
    with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(BaseException, match="tables_committed"):
        people(graph, "b")
    with pytest.raises(ConflictError, match="a write is in flight or interrupted"):
        graph.cleanup(keep=1, preview=True)
    graph.cleanup(keep=1)
    assert len(graph.snapshot().scan("node:Person")) == 2


@pytest.mark.slow
def test_a_cleanup_killed_between_versions_and_files_is_completed_by_the_next_one(
    graph: Graph, children: Children
) -> None:
    for i in range(4):
        people(graph, f"p{i}", mode="overwrite")
    before = states(graph, 1)
    refs = pins(graph, views(graph, 1))
    job = {"uri": graph.uri, "keep": 1}
    assert children.run("cleanup", failpoint="cleanup_versions_removed=kill", **job).signal == signal.SIGKILL
    assert unreached(root(graph), refs) != set()
    graph.cleanup(keep=1, orphans_older_than=NOW)
    assert unreached(root(graph), refs) == set()
    with open(graph.uri) as fresh:
        assert states(fresh, 1) == before


def test_files_of_a_crashed_compaction_are_removed(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(4):
        people(graph, f"p{i}")
    before, exported = set(listing(root(graph))), b"".join(graph.export())
    monkeypatch.setattr(_Work, "remove_layouts", lambda self: None)  # a crashed process does not do it
    with armed(Failpoint.STAGED), pytest.raises(FailpointError):
        graph.optimize()
    assert any("/_versions/d" in path for path in set(listing(root(graph))) - before)
    graph.cleanup(keep=99)
    assert set(listing(root(graph))) > before, "it may be at work"
    graph.cleanup(keep=99, orphans_older_than=NOW)
    assert set(listing(root(graph))) <= before
    assert b"".join(graph.export()) == exported


def test_cleanup_keeps_the_versions_of_a_running_transaction(graph: Graph) -> None:
    people(graph, "a", "b")
    graph.ensure_indexes()
    with graph.branch().transaction() as transaction:
        transaction.load({"Person": pa.table({"name": ["c"]})}, mode="append")
        transaction.mutate('query gone() { delete Person where name = "a" }', {})
        graph.cleanup(keep=0)
        transaction.load({"Person": pa.table({"name": ["b"], "age": [7]})}, mode="merge")
        graph.cleanup(keep=0)
    rows = graph.snapshot().scan("node:Person", columns=["id", "age"]).sort_by("id").to_pylist()
    assert rows == [{"id": "b", "age": 7}, {"id": "c", "age": None}]


def test_cleanup_keeps_the_bases_of_later_merges(graph: Graph) -> None:
    people(graph, "a", "b", "c")
    graph.branches.create("dev")
    for i in range(3):
        people(graph, "a", age=i, mode="merge", branch="dev")
        people(graph, "b", age=i, mode="merge")
        graph.cleanup(keep=1, orphans_older_than=NOW)
        graph.merge("dev")
        graph.cleanup(keep=1, orphans_older_than=NOW)
    rows = graph.snapshot().scan("node:Person", columns=["id", "age"]).sort_by("id").to_pylist()
    assert rows == [{"id": "a", "age": 2}, {"id": "b", "age": 2}, {"id": "c", "age": 0}]


@pytest.mark.slow
def test_cleanup_does_not_disturb_writers_and_readers(graph: Graph) -> None:
    """Work on versions that are kept is not disturbed."""
    people(graph, "a")
    wrong: list[BaseException] = []
    ended = threading.Event()

    def write(name: str) -> None:
        try:
            with open(graph.uri) as own:
                for i in range(12):
                    people(own, f"{name}-{i}", photo=100_000 if i % 4 == 0 else 0)
        except BaseException as error:
            wrong.append(error)

    def read() -> None:
        try:
            with open(graph.uri, read_only=True) as own:
                while not ended.is_set():
                    view = own.snapshot()
                    assert len(view.scan("node:Person", columns=["id"])) == view.pin("node:Person").row_count
        except BaseException as error:
            wrong.append(error)

    writers = [threading.Thread(target=write, args=(f"w{i}",)) for i in range(2)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    removed = 0
    while any(thread.is_alive() for thread in writers):
        removed += graph.cleanup(keep=20).versions_removed
    ended.set()
    for thread in (*writers, reader):
        thread.join()
    removed += graph.cleanup(keep=2).versions_removed
    assert wrong == []
    assert removed >= 20
    assert len(graph.snapshot().scan("node:Person")) == 25
    assert graph.verify().ok


def test_a_failure_in_one_table_does_not_stop_cleanup_of_the_others(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        people(graph, f"p{i}")
        graph.load({"Town": pa.table({"name": [f"t{i}"]})}, mode="append")
    failing = graph.snapshot().pin("node:Person").ref.path
    needs = type(graph.session.store.tables).needs

    def broken(self: object, path: str, *more: object) -> object:
        if path == failing:
            raise OmnigraphError("the disk is on fire")
        return needs(self, path, *more)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(type(graph.session.store.tables), "needs", broken)
    done: CleanupReport = graph.cleanup(keep=1)
    assert done.errors == ("node:Person: the disk is on fire",)
    assert [table.old_versions_removed for table in done.tables if table.type_key == "node:Town"] == [3]


@pytest.mark.slow
@pytest.mark.s3
def test_cleanup_works_in_s3(s3_root: S3Root) -> None:
    with init(s3_root.uri, SCHEMA, storage_options=s3_root.options) as graph:
        for i in range(4):
            people(graph, f"p{i}", photo=200_000)
        graph.ensure_indexes()
        graph.branches.create("dev")
        people(graph, "p1", age=5, mode="merge", branch="dev")
        people(graph, "p2", mode="overwrite")
        before = states(graph, 1)
        orphan(graph)
        name = ulid_now().lower()
        with at_work(graph.session.store.objects, WorkKind.LOAD, name=name):
            assert graph.cleanup(keep=9, orphans_older_than=NOW).bytes_removed == 0
        graph.session.store.objects.put(f"__staging/{name}/rows.arrow", b"rows")
        dead = {"version": 1, "kind": "load", "owner": asdict(DEAD), "beat": 0, "began": None, "commits": []}
        graph.session.store.objects.put(f"__work/{name}.json", orjson.dumps(dead | {"needs": {}}))
        # A folder marker that a user created in a console.
        for place in ("nodes/", "__staging/", f"{graph.snapshot().pin('node:Person').ref.path}/data/"):
            made = f"{s3_root.options['endpoint']}/{s3_root.uri.removeprefix('s3://')}/{place}"
            urllib.request.urlopen(urllib.request.Request(made, data=b"", method="PUT"), timeout=60).close()
        time.sleep(1.1)  # the store's clock counts seconds
        done = graph.cleanup(keep=1, orphans_older_than=NOW)
        assert (done.errors, done.loads_removed) == ((), 1)
        assert done.versions_removed >= 3
        assert sum(table.orphans_removed for table in done.tables) == 1
        assert states(graph, 1) == before
        assert graph.cleanup(keep=1, orphans_older_than=NOW).bytes_removed == 0
        assert graph.session.store.objects.list("__staging") == []


def test_the_source_of_an_unfinished_branch_is_kept_until_that_is_removed(graph: Graph) -> None:
    """The creation of a branch stopped before it wrote its reference. Its source is kept as long as its files."""
    graph.branches.create("side")
    people(graph, "a", branch="side")
    store = graph.session.store
    ledger = store.capture("side").ledger
    store.manifest.create_branch(ulid_now().lower(), ledger)
    graph.branches.delete("side")
    graph.cleanup(keep=0, orphans_older_than=timedelta(0))
    assert ledger.branch in store.manifest.branches()
