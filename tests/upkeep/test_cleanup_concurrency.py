"""Cleanup beside processes that create names, read, merge and write: no acknowledged write is lost.

A cleanup is stopped (`SIGSTOP`) right after each of its steps, for longer than its lease, while another process does a
conflicting action. Other tests run cleanups in a loop, without a grace period for orphans, beside all kinds of work.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.child import Children, Ending, end
from tests.commit.conftest import _no_fsync, children, parent
from tests.commit.matrix import CLEANUP_POINTS
from tests.patience import PATIENCE, until
from tests.thresholds import Thresholds

from omnigraph.commit import removal_list, work_records
from omnigraph.commit.failpoints import Failpoint, FailpointError, armed
from omnigraph.commit.lease import Owner
from omnigraph.commit.work_records import WorkKind, at_work, read_records
from omnigraph.errors import ConflictError, OmnigraphError, VersionReclaimedError
from omnigraph.graph import Graph, init, open

__all__ = ["_no_fsync", "children", "parent"]

SCHEMA = "node A { k: String @key  n: I64? }\nnode B { k: String @key  n: I64? }\n"
NOW = timedelta(0)
TTL = 0.5


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with init(tmp_path / "g", SCHEMA) as made:
        made.session.store.timeouts.ttl, made.session.store.timeouts.wait = TTL, PATIENCE
        yield made


def add(graph: Graph, *names: str, branch: str = "main", number: int = 0, mode: str = "append") -> None:
    rows = pa.table({"k": list(names), "n": [number] * len(names)})
    graph.load({"A": rows, "B": rows}, mode=mode, branch=branch)


def names(graph: Graph, branch: str | None = None, at: str | None = None) -> list[str]:
    view = graph.session.snapshot_at(branch, at)
    left, right = (sorted(view.scan(key)["k"].to_pylist()) for key in ("node:A", "node:B"))
    assert left == right, "half a commit"
    return left


class Paused:
    """A cleanup in a child process that is stopped at a failpoint, including its heartbeats."""

    def __init__(self, graph: Graph, children: Children, point: Failpoint, **more: object) -> None:
        self._children = children
        self._sign = Path(f"{graph.session.store.objects.uri.path}.held")
        job = {"uri": graph.uri, "keep": 1, "orphans": 0, "ttl": TTL, **more}
        self._pid = children.start("cleanup", failpoint=f"{point}=hold:{self._sign}", **job)
        until(self._sign.exists)
        end(self._pid, signal.SIGSTOP)

    def go_on(self) -> Ending:
        self._sign.unlink()
        end(self._pid, signal.SIGCONT)
        return self._children.wait(self._pid)


def history(graph: Graph, commits: int = 5) -> list[str]:
    """Make commits, and return their ids, oldest first."""
    for number in range(commits):
        add(graph, f"row {number}")
    return [commit.id for commit in reversed(graph.commits.list().commits)][1:]


def check_all(graph: Graph) -> None:
    """Check that every branch and tag can be read, and that writes, merges and cleanup work."""
    with open(graph.uri) as fresh:
        for branch in [branch.name for branch in fresh.branches]:
            assert fresh.verify(branch=branch).ok
            add(fresh, f"after on {branch}", branch=branch)
        for tag in fresh.tags:
            assert names(fresh, at=tag.name)
        assert fresh.cleanup(keep=1, orphans_older_than=NOW).errors == ()
        for branch in [branch.name for branch in fresh.branches]:
            assert f"after on {branch}" in names(fresh, branch)
        for tag in fresh.tags:
            assert names(fresh, at=tag.name)
        assert removal_list.read(fresh.session.store.objects).state is removal_list.ListState.NONE


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["one cleanup", "two cleanups"])
@pytest.mark.parametrize("point", CLEANUP_POINTS)
def test_a_cleanup_paused_after_any_step_loses_no_acknowledged_write(
    graph: Graph, children: Children, point: Failpoint, again: bool
) -> None:
    """Branches, tags, commits and work records that are acknowledged during the pause keep their versions."""
    commits = history(graph)
    child = Paused(graph, children, point)
    if again:
        time.sleep(TTL)  # its lease expires
        assert graph.cleanup(keep=1, orphans_older_than=NOW).errors == ()
    acknowledged: dict[str, list[str]] = {}
    for number, commit in enumerate(commits):
        with suppress(VersionReclaimedError):
            graph.tags.create(f"v{number}", commit=commit)
            acknowledged[f"v{number}"] = names(graph, at=f"v{number}")
        with suppress(VersionReclaimedError):
            graph.branches.create(f"b{number}", commit=commit)
            add(graph, "more", branch=f"b{number}")
            acknowledged[f"b{number}"] = names(graph, f"b{number}")
    pinned = graph.pin(at=commits[-1])
    view = pinned.__enter__()
    add(graph, "later", "and later")
    assert {"v4", "b4"} <= acknowledged.keys(), "the newest state can always be named"
    assert child.go_on().ok() is not None
    for name, rows in acknowledged.items():
        with open(graph.uri) as fresh:
            assert (names(fresh, name) if name.startswith("b") else names(fresh, at=name)) == rows
    assert view.scan("node:A").num_rows == 5
    pinned.__exit__(None, None, None)
    assert "later" in names(graph)
    check_all(graph)


@pytest.mark.slow
@pytest.mark.parametrize("point", CLEANUP_POINTS)
def test_a_cleanup_killed_after_any_step_is_completed_or_discarded(
    graph: Graph, children: Children, point: Failpoint
) -> None:
    """The next cleanup completes or discards the removal list, and listed versions cannot get a branch or tag."""
    commits = history(graph)
    job = {"uri": graph.uri, "keep": 1, "orphans": 0}
    assert children.run("cleanup", failpoint=f"{point}=kill", **job).signal == signal.SIGKILL
    listed = removal_list.read(graph.session.store.objects)
    for number, commit in enumerate(commits[:-1]):
        if listed.state is not removal_list.ListState.NONE:
            with pytest.raises(VersionReclaimedError):
                graph.tags.create(f"v{number}", commit=commit)
    assert [tag.name for tag in graph.tags] == []
    check_all(graph)
    assert graph.cleanup(keep=1, orphans_older_than=NOW).bytes_removed == 0


@pytest.mark.slow
@pytest.mark.parametrize("point", [Failpoint.STAGED, Failpoint.LEASED, Failpoint.SIDECAR_WRITTEN])
@pytest.mark.parametrize("job", ["mutate", "load", "merge"])
def test_a_paused_write_never_publishes_removed_staged_files(
    graph: Graph, children: Children, point: Failpoint, job: str
) -> None:
    """Its files are kept, or it stages them again. It never publishes removed files."""
    history(graph)
    graph.branches.create("dev")
    add(graph, "from dev", branch="dev")
    sign = Path(f"{graph.session.store.objects.uri.path}.held")
    given: dict[str, dict[str, object]] = {
        "mutate": {"text": 'query q() { insert A { k: "m" }  insert B { k: "m" } }', "params": {}},
        "load": {"source": {"A": {"k": ["m"]}, "B": {"k": ["m"]}}, "mode": "append"},
        "merge": {"source": "dev"},
    }
    pid = children.start(job, failpoint=f"{point}=hold:{sign}", uri=graph.uri, **given[job])
    until(sign.exists)
    end(pid, signal.SIGSTOP)
    for _ in range(2):
        assert graph.cleanup(keep=1, orphans_older_than=NOW).errors == ()
    sign.unlink()
    end(pid, signal.SIGCONT)
    children.wait(pid).ok()
    assert ("from dev" if job == "merge" else "m") in names(graph)
    check_all(graph)


def test_a_staged_merge_keeps_its_base_and_its_source(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would publish, and the two branches could never be merged again."""
    add(graph, "a", "b", "c")
    graph.branches.create("dev")
    add(graph, "a", branch="dev", number=1, mode="merge")
    add(graph, "b", number=2, mode="merge")
    done: list[bool] = []
    with open(graph.uri) as other:

        def meanwhile(self: object) -> None:
            if not done:
                done.append(True)
                # The source gets a new commit, so that only the merge needs the old one.
                add(other, "c", branch="dev", number=3, mode="merge")
                other.cleanup(keep=1, orphans_older_than=NOW)

        from omnigraph.commit import staged_writes

        stage = staged_writes.StagedWrites.stage

        def staged(self: staged_writes.StagedWrites, *args: object, **options: object) -> None:
            stage(self, *args, **options)  # type: ignore[arg-type]  # passed on
            if self.view.branch == "main":
                meanwhile(self)

        monkeypatch.setattr(staged_writes.StagedWrites, "stage", staged)
        graph.merge("dev")
    monkeypatch.undo()
    assert done
    graph.cleanup(keep=1, orphans_older_than=NOW)
    graph.merge("dev")
    rows = graph.snapshot().scan("node:A", columns=["k", "n"]).sort_by("k").to_pylist()
    assert rows == [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}]
    check_all(graph)


def test_a_merge_whose_source_was_removed_does_not_publish(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused process on another machine counts as dead. It notices that under the lease."""
    add(graph, "a", "b")
    graph.branches.create("dev")
    add(graph, "a", branch="dev", number=1, mode="merge")
    monkeypatch.setattr(Owner, "here", classmethod(lambda cls: cls("elsewhere", 1, "1")))
    from omnigraph.commit import staged_writes

    stage = staged_writes.StagedWrites.stage
    done: list[bool] = []

    def staged(self: staged_writes.StagedWrites, *args: object, **options: object) -> None:
        stage(self, *args, **options)  # type: ignore[arg-type]  # passed on
        if not done:
            done.append(True)
            monkeypatch.undo()
            monkeypatch.setattr(work_records.Work, "renew", lambda self: None)
            with open(graph.uri) as other:
                other.session.store.timeouts.ttl = 0.2
                add(other, "b", branch="dev", number=3, mode="merge")
                other.cleanup(keep=1, orphans_older_than=NOW)

    monkeypatch.setattr(staged_writes.StagedWrites, "stage", staged)
    head = graph.snapshot().commit.id
    with pytest.raises(VersionReclaimedError):
        graph.merge("dev")
    monkeypatch.undo()
    assert graph.snapshot().commit.id == head
    graph.merge("dev")
    check_all(graph)


# Readers


def test_an_export_keeps_its_version(graph: Graph, tmp_path: Path) -> None:
    add(graph, *(f"row {number:04}" for number in range(2000)))
    expected = b"".join(graph.export())
    pieces = graph.export()
    taken = [next(pieces)]
    (record,) = read_records(graph.session.store.objects)
    assert (record.kind, record.writes) == (WorkKind.EXPORT, False)
    for number in range(3):
        add(graph, f"later {number}", mode="overwrite")
    done = graph.cleanup(keep=1, orphans_older_than=NOW)
    assert [(work.kind, work.on_tables) for work in done.loads_at_work] == [("export", False)]
    assert b"".join([*taken, *pieces]) == expected
    assert read_records(graph.session.store.objects) == []
    graph.export(tmp_path / "out.ndjson")
    assert graph.cleanup(keep=1, orphans_older_than=NOW).versions_removed > 0


def test_a_pinned_snapshot_is_kept(graph: Graph) -> None:
    commits = history(graph)
    with graph.pin(at=commits[1]) as view:
        graph.cleanup(keep=1, orphans_older_than=NOW)
        assert view.scan("node:A").num_rows == 2
        assert names(graph, at=commits[1]) == ["row 0", "row 1"]
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with pytest.raises(VersionReclaimedError), graph.pin(at=commits[1]):
        pass
    assert read_records(graph.session.store.objects) == []


def test_only_a_long_query_writes_a_work_record(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds
) -> None:
    add(graph, "a")
    text = "query all() { match { $a: A } return { $a.k } }"
    assert graph.query(text).to_pylist() == [{"a.k": "a"}]
    assert (
        not (Path(graph.session.store.objects.uri.path) / "__work").exists()
        or read_records(graph.session.store.objects) == []
    )
    thresholds(work_records, LONG_SECONDS=0.1)
    seen: list[WorkKind | None] = []
    from omnigraph.engine import query as reading

    run = getattr(reading, "run")  # noqa: B009 (which it imports)

    def slow(*given: object) -> object:
        until(lambda: bool(read_records(graph.session.store.objects)))
        seen.extend(record.kind for record in read_records(graph.session.store.objects))
        return run(*given)

    monkeypatch.setattr(reading, "run", slow)
    graph.query(text)
    assert seen == [WorkKind.QUERY]
    assert read_records(graph.session.store.objects) == []


def test_reading_a_removed_version_is_a_typed_error(graph: Graph) -> None:
    """It is never an error of Lance, also in the middle of a stream."""
    add(graph, *(f"row {number}" for number in range(10)))
    graph.ensure_indexes()
    view = graph.snapshot()
    with open(graph.uri) as other:
        opened = other.snapshot()
        stream = iter(opened.batches("node:A"))
        for number in range(2):
            add(other, f"later {number}", mode="overwrite")
        other.cleanup(keep=1, orphans_older_than=NOW)
    tables = graph.session.store.tables
    ref = view.pin("node:A").ref
    reads: list[Callable[[], object]] = [
        lambda: view.scan("node:A"),
        lambda: list(view.batches("node:A")),
        lambda: view.entity("node:A", "row 1"),
        lambda: view.lookup("node:A", "k", pa.chunked_array([["row 1"]]), columns=["id"]),
        lambda: list(tables.at(ref).read_fragments([0], columns=["k"], batch_rows=5)),
        lambda: b"".join(graph.export(at=view)),
        lambda: graph.query("query q() { match { $a: A  $a.n > 0 } return { $a.k } }", at=view).to_pylist(),
    ]
    for read in reads:
        with pytest.raises(VersionReclaimedError, match="no longer exists"):
            read()
    with suppress(VersionReclaimedError):
        list(stream)


# Work records


def test_versions_on_the_removal_list_cannot_be_tagged_branched_or_pinned(graph: Graph) -> None:
    commits = history(graph)
    with armed(Failpoint.CLEANUP_PROPOSED), pytest.raises(FailpointError):
        graph.cleanup(keep=1)
    assert removal_list.read(graph.session.store.objects).state is removal_list.ListState.PROPOSED
    for make in (
        lambda: graph.tags.create("late", commit=commits[0]),
        lambda: graph.branches.create("late", commit=commits[0]),
        lambda: graph.pin(at=commits[0]).__enter__(),
    ):
        with pytest.raises(VersionReclaimedError):
            make()
    assert [branch.name for branch in graph.branches] == ["main"]
    assert list(graph.tags) == []
    assert read_records(graph.session.store.objects) == []
    graph.tags.create("newest")
    # The next cleanup discards the proposal of a crashed one, because it may keep more.
    graph.cleanup(keep=99)
    graph.tags.create("late", commit=commits[0])
    assert names(graph, at="late") == ["row 0"]


def test_work_whose_record_was_removed_fails(graph: Graph) -> None:
    with at_work(graph.session.store.objects, WorkKind.LOAD) as work:
        work.check()
        graph.session.store.objects.delete(work_records.record_path(work.name))
        work.renew()
        with pytest.raises(VersionReclaimedError, match="counted this load as dead"):
            work.check()
        with pytest.raises(VersionReclaimedError):
            work.need(graph.snapshot().manifest)


def test_work_records_of_this_process_renew_their_heartbeat(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(work_records, BEAT_SECONDS=0.05)
    with graph.pin():
        (first,) = read_records(graph.session.store.objects)
        until(lambda: read_records(graph.session.store.objects)[0].beat != first.beat)
        (later,) = read_records(graph.session.store.objects)
        assert (later.name, later.needs, later.commits) == (first.name, first.needs, first.commits)
        assert abs((later.began - first.began).total_seconds()) < 0.01, "it began when it began"


# Leftovers


def test_unknown_files_are_ignored(graph: Graph) -> None:
    add(graph, "a")
    root = Path(graph.session.store.objects.uri.path)
    strange = [
        root / "nodes" / ".DS_Store",
        root / "nodes" / "backup of mine" / "rows.csv",
        root / graph.snapshot().pin("node:A").ref.path / "notes.txt",
        root / "__work" / "notes.txt",
        root / "__cleanup" / "notes.txt",
        root / "__staging" / "mine" / "rows.csv",
    ]
    for file in strange:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"mine")
        os.utime(file, (1, 1))
    assert graph.cleanup(keep=1, orphans_older_than=NOW).errors == ()
    assert all(file.exists() for file in strange)


def test_temporary_files_of_crashed_processes_are_removed_in_all_directories(graph: Graph) -> None:
    add(graph, "a")
    root = Path(graph.session.store.objects.uri.path)
    places = [root / "__recovery", root / "__lease", root, root / "__refs"]
    for place in places:
        place.mkdir(exist_ok=True)
        (place / ".og-tmp-1-old").touch()
        os.utime(place / ".og-tmp-1-old", (1, 1))
        (place / ".og-tmp-1-new").touch()
    graph.cleanup(keep=99)
    assert list(root.rglob(".og-tmp-1-old")) == []
    assert len(list(root.rglob(".og-tmp-1-new"))) == len(places)


@pytest.mark.slow
def test_manifests_of_deleted_branches_are_removed_if_no_merge_needs_them(graph: Graph) -> None:
    add(graph, "a")
    for name in ("one", "two"):
        graph.branches.create(name)
        add(graph, f"from {name}", branch=name)
    graph.merge("one")
    graph.branches.create("beside", source="main")
    graph.merge("one", into="two")
    graph.branches.delete("one")
    assert graph.cleanup(keep=1, orphans_older_than=NOW).branches_removed == 0, "main and two have it in common"
    add(graph, "later")
    graph.merge("two")
    graph.merge("main", into="beside")
    graph.branches.delete("two")
    graph.branches.delete("beside")
    assert graph.cleanup(keep=1, orphans_older_than=NOW).branches_removed == 3
    assert graph.session.store.manifest.branches() == {}
    assert list(Path(graph.session.store.objects.uri.path).glob("__manifest/tree/*/*")) == []
    assert names(graph) == ["a", "from one", "from two", "later"]
    check_all(graph)


# A full disk


@pytest.mark.slow
def test_cleanup_works_on_a_full_disk(tmp_path: Path) -> None:
    """With no free byte on the disk, cleanup frees space."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=8m tmpfs {disk} 2>/dev/null") != 0:
        pytest.skip("only root can mount a small disk")
    try:
        with init(disk / "g", SCHEMA) as graph:
            graph.session.store.timeouts.ttl = TTL
            rows = pa.table({"k": [f"{i}" for i in range(2000)], "n": list(range(2000))})
            with suppress(OmnigraphError):
                while True:
                    graph.load({"A": rows}, mode="overwrite")
            filler = (disk / "filler").open("wb", buffering=0)
            with suppress(OSError):
                while True:
                    filler.write(b"x" * 4096)
            with suppress(OSError):
                while True:
                    filler.write(b"x")
            filler.close()
            assert os.statvfs(disk).f_bavail == 0
        with open(disk / "g") as graph:
            done = graph.cleanup(keep=1, orphans_older_than=NOW)
            assert done.errors == ()
            assert done.bytes_removed > 1_000_000
            assert graph.snapshot().scan("node:A").num_rows == 2000
            graph.load({"A": rows}, mode="overwrite")
            graph.cleanup(keep=1)
            assert (disk / "g" / "__cleanup" / "reserve").exists()
            assert graph.verify().ok
    finally:
        os.system(f"umount {disk}")


# Everything at once


def _beside(graph: Graph, rounds: int, children: Children, tmp_path: Path) -> None:
    until_done = tmp_path / "done"
    jobs = {
        "cleaner": children.start("clean_many", uri=graph.uri, stop=str(until_done)),
        "namer": children.start("name_many", uri=graph.uri, rounds=rounds, name="n"),
        "merger": children.start("merge_many", uri=graph.uri, rounds=rounds, name="m"),
        "exporter": children.start("export_many", uri=graph.uri, rounds=rounds),
        "loader": children.start("load_many", uri=graph.uri, rounds=rounds, name="l"),
    }
    said = {name: children.wait(pid).ok() for name, pid in jobs.items() if name != "cleaner"}
    until_done.touch()
    cleaned = children.wait(jobs["cleaner"]).ok()
    assert cleaned["calls"] > 0
    assert cleaned["failures"] == [], "\n".join(cleaned["failures"])
    for name, outcome in said.items():
        assert outcome["raw"] == [], name
        assert outcome["lost"] == [], name
        assert outcome["done"] == rounds, (name, outcome)
    rows = names(graph)
    assert set(said["loader"]["acknowledged"]) | set(said["merger"]["acknowledged"]) <= set(rows)
    check_all(graph)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.soak)])
def test_a_loop_of_cleanups_beside_all_kinds_of_work_loses_nothing(
    graph: Graph, children: Children, tmp_path: Path, rounds: int
) -> None:
    add(graph, "first")
    _beside(graph, rounds, children, tmp_path)


def test_two_cleanups_can_run_at_once(graph: Graph) -> None:
    history(graph, 8)
    failed: list[BaseException] = []

    def clean() -> None:
        try:
            with open(graph.uri) as own:
                for _ in range(4):
                    assert own.cleanup(keep=1, orphans_older_than=NOW).errors == ()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=clean) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(4):
        with suppress(ConflictError):
            graph.branches.create(f"b{number}")
            graph.branches.delete(f"b{number}")
    for thread in threads:
        thread.join()
    assert failed == []
    check_all(graph)
