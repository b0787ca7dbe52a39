"""A backup is one consistent state of the whole graph, taken beside writers. A restore is complete or not a graph."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from tests.graph.moving import QUERIES, copy, listing, make_graph, people, poison, told, work
from tests.s3_server import S3Root, S3Server
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit import lease
from omnigraph.commit.copy_record import RECORD_PATH
from omnigraph.commit.store import PLACE
from omnigraph.errors import (
    ConflictError,
    CorruptionError,
    DamagedFileError,
    IncompleteCopyError,
    InputError,
    OmnigraphError,
    VersionReclaimedError,
)
from omnigraph.graph import init
from omnigraph.settings import FAILPOINT
from omnigraph.storage import copies
from omnigraph.storage.objects import local, open_store
from omnigraph.storage.table_ref import table_directory

World = tuple[Path, dict[str, object]]
NOW = timedelta(0)


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> World:
    place = tmp_path_factory.mktemp("original") / "g"
    os.environ["OMNIGRAPH_FSYNC"] = "0"
    with make_graph(place) as graph:
        return place, told(graph)


@pytest.fixture
def world(original: World, tmp_path: Path) -> World:
    place = copy(original[0], tmp_path / "g")
    omnigraph.open(place).close()
    return place, original[1]


def said(place: Path | str, options: dict[str, str] | None = None) -> dict[str, object]:
    with omnigraph.open(place, read_only=True, storage_options=options) as graph:
        return told(graph)


@pytest.mark.slow
def test_a_backup_is_a_graph(world: World, tmp_path: Path) -> None:
    place, before = world
    with omnigraph.open(place) as graph:
        receipt = graph.backup(tmp_path / "b")
        assert receipt.branches == {branch.name: branch.head for branch in graph.branches}
        history = [commit.id for commit in graph.commits]
        for commit in history:
            graph.snapshot(commit=commit).scan("node:Person", columns=["id"])
        assert all(not name.startswith("__") for name in graph.session.store.manifest.branches())
    names = {path.partition("/")[0] for path in listing(tmp_path / "b") if ".og-" not in path}
    assert not names & {"__lease", "__recovery", "__transactions", "__staging", "__work", "__cleanup"}
    shutil.rmtree(place)
    assert said(tmp_path / "b") == before
    with omnigraph.open(tmp_path / "b") as kept:
        assert [commit.id for commit in kept.commits] == history
        for commit in history:
            kept.snapshot(commit=commit).scan("node:Person", columns=["id"])
        work(kept)


@pytest.mark.slow
def test_a_restored_graph_is_independent_of_the_backup(world: World, tmp_path: Path) -> None:
    place, before = world
    with omnigraph.open(place) as graph:
        graph.backup(tmp_path / "b")
    poison(place)
    kept = listing(tmp_path / "b")
    omnigraph.restore(tmp_path / "b", tmp_path / "r")
    assert listing(tmp_path / "b") == kept
    assert not (tmp_path / "r" / RECORD_PATH).exists()
    left = poison(tmp_path / "b")
    assert said(tmp_path / "r") == before
    with omnigraph.open(tmp_path / "r") as graph:
        work(graph)
    assert listing(tmp_path / "b") == left


@pytest.mark.slow
def test_a_second_backup_copies_only_new_files(world: World, tmp_path: Path) -> None:
    place, _ = world
    target = tmp_path / "b"
    with omnigraph.open(place) as graph:
        first = graph.backup(target)
        again = graph.backup(target)
        assert (again.files_copied, again.bytes_copied) == (0, 0)
        graph.load({"Person": people(500, 5)}, mode="append", branch="dev")
        graph.mutate(QUERIES, name="leave", params={"name": "p0030"})
        graph.branches.delete("hotfix")
        graph.branches.create("hotfix")
        graph.mutate(QUERIES, name="leave", params={"name": "p0031"}, branch="hotfix")
        graph.tags.delete("first")
        graph.tags.create("second")
        graph.optimize()
        second = graph.backup(target)
        assert 0 < second.bytes_copied < first.bytes_copied / 3
        before = told(graph)
        assert said(target) == before
        graph.branches.delete("dev-child")
        graph.backup(target)
        assert said(target) == told(graph) != before
    with omnigraph.open(target) as kept:
        assert not kept.cleanup(keep=1, orphans_older_than=NOW).errors
        assert kept.verify(branch="dev").ok


def test_a_backup_can_keep_only_the_newest_commits(world: World, tmp_path: Path) -> None:
    place, before = world
    with omnigraph.open(place) as graph:
        commits = [commit.id for commit in graph.commits]
        short = graph.backup(tmp_path / "b", keep=1)
        assert said(tmp_path / "b") == before
        gone = pytest.raises(VersionReclaimedError, match=f"the state at commit {commits[2]} no longer exists")
        with omnigraph.open(tmp_path / "b", read_only=True) as kept, gone:
            kept.snapshot(commit=commits[2])
        whole = graph.backup(tmp_path / "b")
        assert whole.files_present >= short.files_copied - 10
        with omnigraph.open(tmp_path / "b", read_only=True) as kept:
            for commit in commits:
                kept.snapshot(commit=commit).scan("node:Person", columns=["id"])


def test_a_backup_through_a_read_only_handle_writes_nothing_to_the_graph(world: World, tmp_path: Path) -> None:
    place, before = world
    whole = listing(place)
    with omnigraph.open(place, read_only=True) as graph:
        graph.backup(tmp_path / "b")
    assert listing(place) == whole
    assert said(tmp_path / "b") == before


@pytest.mark.slow
def test_an_interrupted_write_is_not_in_the_backup(world: World, tmp_path: Path) -> None:
    """The backup has no part of an interrupted write: none of its tables is ahead of its manifest."""
    place, before = world
    code = "import omnigraph; g = omnigraph.open({0!r}); g.load([{{'type': 'Town', 'data': {{'name': 'x'}}}}], "
    code = (code + "mode='append', branch='dev')").format(str(place))
    environment = {**os.environ, FAILPOINT.name: "tables_committed=kill"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == -signal.SIGKILL
    with omnigraph.open(place, read_only=True) as graph:
        assert len(graph.recovery.pending()) == 1
        graph.backup(tmp_path / "b")
    assert said(tmp_path / "b") == before
    with omnigraph.open(tmp_path / "b") as kept:
        assert kept.recovery.pending() == []
        work(kept)


@pytest.mark.slow
def test_a_merge_in_a_backup_finds_its_base_on_a_deleted_branch(tmp_path: Path) -> None:
    """The best common ancestor lies on a deleted branch. Without it, a merge would restore rows or conflict."""
    place, target = tmp_path / "g", tmp_path / "b"
    with init(place, COUNTED) as graph:
        _set(graph, "main", a=1)
        for name in ("one", "two", "shared"):
            graph.branches.create(name)
        _set(graph, "shared", a=2, s=2, t=2)
        graph.backup(target)
        _set(graph, "one", o=1)
        _set(graph, "two", w=1)
        graph.merge("shared", into="one")
        graph.merge("shared", into="two", delete_branch=True)
        _set(graph, "two", a=3, s=5)
        graph.mutate('query drop() { delete Counter where name = "t" }', name="drop", branch="two")
        graph.backup(target)
        graph.backup(tmp_path / "short", keep=1)
    for copied in (target, tmp_path / "short"):
        restored = tmp_path / f"r-{copied.name}"
        omnigraph.restore(copied, restored)
        with omnigraph.open(restored) as graph:
            graph.cleanup(keep=1, orphans_older_than=NOW)
            assert [branch.name for branch in graph.branches] == ["main", "one", "two"]
    results = []
    for each in (place, tmp_path / "r-b", tmp_path / "r-short"):
        with omnigraph.open(each) as graph:
            assert graph.merge("one", into="two").outcome == "merged"
            graph.merge("two", into="main")
            rows = graph.query(COUNTERS).to_pylist()
            results.append({row["name"]: row["n"] for row in rows})
    assert results == [{"a": 3, "s": 5, "o": 1, "w": 1}] * 3


def test_a_backup_removes_deleted_branches_that_no_merge_needs(tmp_path: Path) -> None:
    with init(tmp_path / "g", COUNTED) as graph:
        graph.branches.create("dev")
        _set(graph, "dev", a=1)
        graph.branches.create("kid", source="dev")
        _set(graph, "kid", b=1)
        graph.backup(tmp_path / "b")
        graph.branches.delete("kid")
        graph.branches.delete("dev")
        graph.cleanup(keep=1, orphans_older_than=NOW)
        graph.backup(tmp_path / "b")
    with omnigraph.open(tmp_path / "b", read_only=True) as kept:
        assert [branch.name for branch in kept.branches] == ["main"]
        assert kept.session.store.manifest.branches() == {}


@pytest.mark.slow
def test_a_backup_copies_checksums(world: World, tmp_path: Path) -> None:
    """Damage of a file of the backup is detected as in the graph."""
    place, _ = world
    with omnigraph.open(place) as graph:
        graph.load({"Person": people(500, 1)}, mode="append", branch="dev")
        graph.backup(tmp_path / "b")
        graph.load({"Person": people(501, 1)}, mode="append", branch="dev")
        graph.backup(tmp_path / "b")
        found = {branch.name: graph.verify(branch=branch.name).files.unsummed for branch in graph.branches}
    omnigraph.restore(tmp_path / "b", tmp_path / "r")
    for copied in (tmp_path / "b", tmp_path / "r"):
        with omnigraph.open(copied) as kept:
            assert found == {name: kept.verify(branch=name).files.unsummed for name in found}
    file = max((tmp_path / "r").glob("nodes/*/data/*.lance"), key=lambda each: each.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with omnigraph.open(tmp_path / "r", read_only=True) as kept, pytest.raises(DamagedFileError, match=file.name):
        b"".join(kept.export())


def _set(graph: omnigraph.Graph, branch: str, **counters: int) -> None:
    rows: list[dict[str, object]] = [
        {"type": "Counter", "data": {"name": name, "n": n}} for name, n in counters.items()
    ]
    graph.load(rows, mode="merge", branch=branch)


# ---- concurrent writers


COUNTERS = "query counters() { match { $c: Counter } return { $c.name as name, $c.n as n } }"


COUNTED = "node Counter { name: String @key  n: I64 }\nnode Mark { name: String @key }"


def _writer(place: Path, branch: str, until: threading.Event, failures: list[BaseException]) -> None:
    """Each commit sets a counter and inserts a row with the same number."""
    try:
        with omnigraph.open(place) as graph:
            number = 0
            while not until.is_set():
                number += 1
                rows: list[dict[str, object]] = [
                    {"type": "Counter", "data": {"name": "c", "n": number}},
                    {"type": "Mark", "data": {"name": f"m{number:05d}"}},
                ]
                graph.load(rows, mode="merge", branch=branch, message=str(number))
    except BaseException as error:
        failures.append(error)


def _cleaner(place: Path, until: threading.Event, failures: list[BaseException]) -> None:
    try:
        with omnigraph.open(place) as graph:
            while not until.is_set():
                try:
                    graph.cleanup(keep=1)
                    graph.optimize()
                except (ConflictError, VersionReclaimedError):
                    continue
    except BaseException as error:
        failures.append(error)


@pytest.mark.slow
@pytest.mark.parametrize("backups", [2, pytest.param(200, marks=pytest.mark.soak)])
def test_a_backup_beside_writers_and_cleanup_is_consistent(tmp_path: Path, backups: int) -> None:
    """Every branch of every backup is at an existing commit, and is complete."""
    place = tmp_path / "g"
    with init(place, COUNTED) as graph:
        graph.load([{"type": "Counter", "data": {"name": "c", "n": 0}}], mode="append", message="0")
        graph.branches.create("dev")
    until, failures = threading.Event(), list[BaseException]()
    threads = [threading.Thread(target=_writer, args=(place, branch, until, failures)) for branch in ("main", "dev")]
    threads.append(threading.Thread(target=_cleaner, args=(place, until, failures)))
    for thread in threads:
        thread.start()
    receipts = []
    try:
        with omnigraph.open(place) as graph:
            for _ in range(backups):
                receipts.append(graph.backup(tmp_path / "b"))
                _check_counted(tmp_path / "b", receipts[-1].branches)
            receipts.append(graph.backup(tmp_path / "fresh"))
            _check_counted(tmp_path / "fresh", receipts[-1].branches)
    finally:
        until.set()
        for thread in threads:
            thread.join()
    assert failures == []
    with omnigraph.open(place) as graph:
        for branch in ("main", "dev"):
            existed = {commit.id for commit in graph.commits.list(branch=branch, limit=100_000).commits}
            assert all(receipt.branches[branch] in existed for receipt in receipts)
        moved = {receipt.branches["main"] for receipt in receipts}
        assert len(moved) > 1  # the writers made progress


def _check_counted(place: Path, heads: object) -> None:
    with omnigraph.open(place, read_only=True) as kept:
        assert {branch.name: branch.head for branch in kept.branches} == heads
        for branch in ("main", "dev"):
            assert kept.verify(branch=branch).ok
            commit = next(
                c for c in kept.commits.list(branch=branch, limit=1000).commits if c.message and c.message.isdigit()
            )
            view = kept.snapshot(branch=branch)
            number = int(commit.message or "")
            assert view.scan("node:Counter", columns=["n"])["n"].to_pylist() == [number]
            marks = sorted(view.scan("node:Mark", columns=["id"])["id"].to_pylist())
            assert marks == [f"m{each:05d}" for each in range(1, number + 1)]
    with omnigraph.open(place) as kept:
        assert kept.cleanup(keep=1, preview=True).errors == ()  # no table is ahead of the manifest


# ---- interrupted


def _killed(code: str, point: str) -> None:
    environment = {**os.environ, FAILPOINT.name: f"{point}=kill"}
    died = subprocess.run([sys.executable, "-c", f"import omnigraph; {code}"], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("point", ["copy_marked", "copy_file_copied#7", "copy_tables_published", "copy_published"])
def test_a_killed_restore_is_not_a_graph_and_can_be_repeated(world: World, tmp_path: Path, point: str) -> None:
    place, before = world
    target = tmp_path / "r"
    _killed(f"omnigraph.restore({str(place)!r}, {str(target)!r})", point)
    with pytest.raises(IncompleteCopyError, match="unfinished restore of"):
        omnigraph.open(target)
    if point != "copy_published":  # otherwise it is complete
        with pytest.raises(IncompleteCopyError):
            omnigraph.open(target, read_only=True)
        with pytest.raises(IncompleteCopyError):
            init(target, COUNTED)
    with omnigraph.open(place) as graph, pytest.raises(ConflictError, match="unfinished restore"):
        graph.backup(target)
    omnigraph.restore(place, target)
    poison(place)
    assert said(target) == before
    omnigraph.open(target).close()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["copy_files_copied", "copy_tables_published", "copy_published"])
def test_a_killed_second_backup_keeps_the_first_one_readable(world: World, tmp_path: Path, point: str) -> None:
    """The older backup stays readable: each branch is at its old or its new state."""
    place, before = world
    target = tmp_path / "b"
    with omnigraph.open(place) as graph:
        graph.backup(target)
        graph.load({"Person": people(500, 30)}, mode="append", branch="dev")
        graph.mutate(QUERIES, name="leave", params={"name": "p0030"})
        graph.mutate(QUERIES, name="leave", params={"name": "p0031"}, branch="dev-child")
        graph.tags.create("second")
        now = told(graph)
    _killed(f"omnigraph.open({str(place)!r}).backup({str(target)!r})", point)
    found = said(target)
    for name, each in found.items():
        assert each in (before.get(name), now.get(name))
    with pytest.raises(IncompleteCopyError, match="reads still work"):
        omnigraph.open(target)
    omnigraph.restore(target, tmp_path / "r")  # an incomplete backup can be restored, too
    assert said(tmp_path / "r") == found
    with omnigraph.open(place) as graph:
        graph.backup(target)
    assert said(target) == now


# ---- refused


def test_a_target_that_is_not_empty_is_refused(world: World, tmp_path: Path) -> None:
    place, _ = world
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with omnigraph.open(place) as graph:
        for target, refusal in ((other, ConflictError), (tmp_path / "file", InputError)):
            with pytest.raises(refusal, match=r"notes.txt|is not a directory"):
                graph.backup(target)
            with pytest.raises(refusal, match=r"notes.txt|is not a directory"):
                omnigraph.restore(place, target)
        with pytest.raises(ConflictError, match="is not empty"):
            omnigraph.restore(place, copy(place, tmp_path / "graph"))
        for inside in (place, place / "backup", tmp_path):
            with pytest.raises(InputError, match="one location contains the other"):
                graph.backup(inside)
        with pytest.raises(InputError, match="in memory"):
            graph.backup("memory://there")
        with pytest.raises(InputError, match="is not a number of commits"):
            graph.backup(tmp_path / "b", keep=0)
    assert listing(other) == {"notes.txt": b"mine"}


def test_a_backup_with_its_own_commits_is_not_overwritten(world: World, tmp_path: Path) -> None:
    place, _ = world
    target = tmp_path / "b"
    with omnigraph.open(place) as graph:
        graph.backup(target)
        with omnigraph.open(target) as kept:
            kept.mutate(QUERIES, name="leave", params={"name": "p0031"}, branch="dev")
        whole = listing(target)
        with pytest.raises(ConflictError, match="branch 'dev' of the backup"):
            graph.backup(target)
        assert listing(target) == whole


def test_a_backup_of_another_graph_is_not_overwritten(world: World, tmp_path: Path) -> None:
    place, _ = world
    with init(tmp_path / "other", COUNTED) as other:
        other.backup(tmp_path / "b")
    with omnigraph.open(place) as graph, pytest.raises(ConflictError, match="a backup of another graph"):
        graph.backup(tmp_path / "b")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 9}'])
def test_an_unreadable_backup_record_is_reported(world: World, tmp_path: Path, content: bytes) -> None:
    place, _ = world
    with omnigraph.open(place) as graph:
        graph.backup(tmp_path / "b")
        (tmp_path / "b" / RECORD_PATH).write_bytes(content)
        with pytest.raises(CorruptionError, match=RECORD_PATH):
            graph.backup(tmp_path / "b")


def test_restoring_from_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OmnigraphError, match="there is no graph"):
        omnigraph.restore(tmp_path / "nothing", tmp_path / "r")
    assert not (tmp_path / "r").exists()


# ---- buckets


@pytest.mark.slow
@pytest.mark.s3
def test_backups_and_restores_work_between_disks_and_buckets(
    world: World, tmp_path: Path, s3_server: S3Server, s3_root: S3Root
) -> None:
    """Disk to bucket, bucket to another bucket, and bucket to disk, each with one incremental backup."""
    place, before = world
    request = urllib.request.Request(f"{s3_server.endpoint}/safe", method="PUT")
    urllib.request.urlopen(request, timeout=300).close()
    options = s3_root.options
    with omnigraph.open(place) as graph:
        graph.backup(s3_root.uri, storage_options=options)
        graph.load({"Person": people(500, 2)}, mode="append", branch="dev-child")
        now = told(graph)
        assert graph.backup(s3_root.uri, storage_options=options).files_copied < 20
    poison(place)
    second = f"s3://safe/{s3_root.uri.rpartition('/')[2]}"
    omnigraph.restore(s3_root.uri, second, source_options=options, storage_options=options)
    with pytest.raises(ConflictError, match="is not empty"):
        omnigraph.restore(s3_root.uri, second, source_options=options, storage_options=options)
    store = open_store(s3_root.uri, options)
    store.delete_files([info.path for info in store.list()])
    assert said(second, options) == now != before
    omnigraph.restore(second, tmp_path / "r", source_options=options)
    assert said(tmp_path / "r") == now


@pytest.mark.slow
def test_a_large_file_is_copied_in_pieces(tmp_path: Path, thresholds: Thresholds) -> None:
    thresholds(local, CHUNK_BYTES=1000)
    thresholds(copies, CHUNK_BYTES=1000)
    with make_graph(tmp_path / "g") as graph:
        graph.backup(tmp_path / "b")
        assert said(tmp_path / "b") == told(graph)


def test_a_graph_with_a_missing_file_is_not_backed_up(world: World, tmp_path: Path) -> None:
    """A file that a branch needs is missing, so the backup fails."""
    place, _ = world
    file = max(place.glob("nodes/*/data/*.lance"), key=lambda each: each.stat().st_size)
    file.unlink()
    with omnigraph.open(place) as graph, pytest.raises(CorruptionError, match=file.name):
        graph.backup(tmp_path / "b")
    with pytest.raises(IncompleteCopyError):
        omnigraph.open(tmp_path / "b", read_only=True)


def test_a_missing_newest_version_is_detected_in_a_backup(world: World, tmp_path: Path) -> None:
    place, _ = world
    with omnigraph.open(place) as graph:
        graph.backup(tmp_path / "b")
        lines = {branch.name: graph.session.store.ledger_of(branch.name) for branch in graph.branches}
    omnigraph.restore(tmp_path / "b", tmp_path / "r")
    for there, (branch, ledger) in product((tmp_path / "b", tmp_path / "r"), lines.items()):
        versions = there / table_directory("__manifest", ledger) / "_versions"
        newest = min(versions.glob("*.manifest"))  # version numbers in names count down
        newest.rename(tmp_path / "aside")
        with pytest.raises(DamagedFileError, match=newest.name):
            omnigraph.open(there, read_only=True, branch=branch)
        (tmp_path / "aside").rename(newest)
        omnigraph.open(there, read_only=True, branch=branch).close()


@pytest.mark.slow
def test_a_paused_backup_removes_no_branch_of_a_later_backup(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues after a later backup has finished, and finds a branch that its own snapshot does not have."""
    place, _ = world
    with omnigraph.open(place) as graph, omnigraph.open(place) as other:
        graph.backup(tmp_path / "b")
        held = lease.Lease.check
        calls: list[lease.Lease] = []

        def overtaken(self: lease.Lease) -> None:
            held(self)
            if not calls:
                calls.append(self)
                monkeypatch.setattr(lease.Lease, "check", held)
                (tmp_path / "b" / lease.lease_path(PLACE)).unlink()  # as if it had expired
                other.branches.create("later")
                program = [sys.executable, "-m", "omnigraph.cli.main", "backup", str(place), str(tmp_path / "b")]
                subprocess.run(program, check=True, capture_output=True)

        monkeypatch.setattr(lease.Lease, "check", overtaken)
        with pytest.raises(OmnigraphError):
            graph.backup(tmp_path / "b")
        assert calls
    with omnigraph.open(tmp_path / "b", read_only=True) as copied:
        assert "later" in copied.branches
        assert copied.verify(branch="later").ok
