"""A handle works again after a full disk, after a crashed schema change, and beside stray files in `__recovery`."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.graphs import SCHEMA, SEED, assert_whole, create, evolve_to, ids, put, sidecars
from tests.s3_server import S3Root

from omnigraph.commit import lease
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.recovery import RECOVERY_ACTOR
from omnigraph.errors import LeaseTimeoutError, OmnigraphError
from omnigraph.graph import Graph, open

PAIR = ("node:A", "node:B")
MORE = SCHEMA + "node D { k: String @key }\n"


# A full disk


@contextmanager
def full(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> Iterator[None]:
    """Writes of this process fail after the given number of bytes. Files that Lance writes are not affected."""
    write, left = os.write, [after]

    def no_room(descriptor: int, data: bytes) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_room)
        yield


@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("after", range(4))
def test_writers_do_not_wait_for_a_lease_that_a_full_disk_left_behind(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch, after: int, reopens: bool
) -> None:
    """The lease could not be released. Its old owner knows that it is free, and does not wait for it to expire."""
    told: list[str] = []
    with full(monkeypatch, after):
        for _ in range(2):
            try:
                put(graph, ["new"], PAIR)
            except OmnigraphError as error:
                told.append(error.render())
    assert all("disk is full" in text or "was interrupted" in text for text in told)
    began = time.monotonic()
    if reopens:
        open(place).close()
        assert sidecars(graph) == [], "the read-write open has settled it"
    put(graph, ["next"], PAIR)
    assert time.monotonic() - began < lease.TTL_SECONDS / 3
    assert "next" in ids(graph)
    assert ids(graph) == ids(graph, "node:B")
    assert_whole(graph)


def test_a_filled_file_system_can_be_used_again_after_space_is_freed(tmp_path: Path) -> None:
    """Fill a real file system of a few megabytes, free some space, and write again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        with create(disk / "graph") as graph:
            ballast = disk / "ballast"
            for spare in (0, 8_000, 24_000, 60_000):
                filled = os.statvfs(disk)
                ballast.write_bytes(bytes(max(0, filled.f_bavail * filled.f_frsize - spare)))
                for number in range(3):
                    try:
                        put(graph, [f"full-{spare}-{number}"], PAIR)
                    except OmnigraphError:
                        continue
                ballast.unlink()
                began = time.monotonic()
                put(graph, [f"next-{spare}"], PAIR)
                assert time.monotonic() - began < lease.TTL_SECONDS / 3
                assert ids(graph) == ids(graph, "node:B")
                assert_whole(graph)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_lease_of_another_handle_is_not_taken_over(graph: Graph, place: Path) -> None:
    """A second handle of this process waits for the first one, and does not treat its lease as abandoned."""
    with graph.session.store.exclusive("main"), pytest.raises(LeaseTimeoutError):
        lease.acquire(graph.session.store.leases, "main", wait=0.1)


# A crashed schema change


@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.BEFORE_PUBLISH])
@pytest.mark.parametrize("by", ["load", "mutation"])
def test_recovery_runs_before_a_write_checks_its_types(graph: Graph, point: Failpoint, by: str) -> None:
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        evolve_to(graph, MORE, ["new"])
    finished = point is Failpoint.BEFORE_PUBLISH

    def write() -> object:
        if by == "load":
            return graph.load({"D": pa.table({"k": ["d"]})}, mode="append")
        return graph.mutate('query add() { insert D { k: "d" } }')

    if finished:
        write()
        assert ids(graph, "node:D") == ["d"]
    else:
        with pytest.raises(OmnigraphError, match="D"):
            write()
        put(graph, ["next"])
    assert [record.kind for record in graph.recovery.list()] == [
        RecoveryKind.ROLLED_FORWARD if finished else RecoveryKind.ROLLED_BACK
    ]
    assert_whole(graph)


# Stray files and temporary files


STRAYS = (
    ".DS_Store",
    "notes.txt",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV.json~",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV.json.bak",
    "a/b.json",
)


def test_stray_files_among_sidecars_are_ignored(graph: Graph, place: Path) -> None:
    directory = place / "__recovery"
    (directory / "a").mkdir(parents=True, exist_ok=True)
    for name in STRAYS:
        (directory / name).write_bytes(b"{")
    with open(place) as reopened:
        put(reopened, ["new"], PAIR)
        assert reopened.recovery.pending() == []
        reopened.cleanup(keep=1)
    assert all((directory / name).exists() for name in STRAYS), "they are not ours to remove"


@pytest.mark.s3
def test_a_folder_marker_object_among_sidecars_is_ignored(s3_root: S3Root) -> None:
    with create(s3_root.uri, s3_root.options) as graph:
        graph.session.store.objects.put("__recovery/.keep", b"")
        put(graph, ["new"], PAIR)
        assert graph.recovery.pending() == []


def test_old_temporary_files_of_killed_writers_are_removed(graph: Graph, place: Path) -> None:
    """Temporary files of killed writers are removed after an hour, when the graph is opened or cleaned up."""
    directory = place / "__recovery"
    directory.mkdir(exist_ok=True)
    old, young = directory / ".og-tmp-1-a", directory / ".og-tmp-1-b"
    for path in (old, young):
        path.write_bytes(b"half a sidecar")
    past = time.time() - 7200
    os.utime(old, (past, past))
    open(place).close()
    assert (old.exists(), young.exists()) == (False, True)
    os.utime(young, (past, past))
    graph.refresh()
    assert not young.exists(), "also in a process that runs for long"


# The list of recoveries


def test_every_recovery_is_listed(graph: Graph, place: Path) -> None:
    """Roll-forward and roll-back, by this process or another, with the actor, the writer and the table versions."""
    with armed(Failpoint.TABLES_COMMITTED, "error"):
        put(graph, ["settled at once, forward"], PAIR, actor="act-a")
    with armed(Failpoint.TABLE_COMMITTED, "error"), pytest.raises(Exception, match="table_committed"):
        put(graph, ["settled at once, back"], PAIR, actor="act-b")
    with armed(Failpoint.BEFORE_PUBLISH, "crash"), pytest.raises(SimulatedCrashError):
        put(graph, ["settled by the next write"], PAIR, actor="act-c")
    put(graph, ["next"], PAIR)
    with armed(Failpoint.SIDECAR_WRITTEN, "crash"), pytest.raises(SimulatedCrashError):
        put(graph, ["settled by the next opener"], PAIR, actor="act-d")
    with open(place) as reopened:
        records = reopened.recovery.list()
        forward, back = RecoveryKind.ROLLED_FORWARD, RecoveryKind.ROLLED_BACK
        assert [(r.actor, r.kind) for r in records] == [
            ("act-a", forward), ("act-b", back), ("act-c", forward), ("act-d", back)
        ]  # fmt: skip
        for record in records:
            assert (record.writer, record.branch) == ("Load", "main")
            assert {table.key for table in record.tables} == set(PAIR)
            assert all(table.from_version and table.to_version for table in record.tables)
        undone = [commit.id for commit in reopened.commits.list(actor=RECOVERY_ACTOR).commits]
        assert sorted(undone) == sorted(str(r.commit_id) for r in records if r.kind is back)
        assert ids(reopened) == sorted([*SEED, "settled at once, forward", "settled by the next write", "next"])
        assert_whole(reopened)
