"""Properties of a store in a directory: durability, temporary files, symbolic links."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import pytest
from tests.patience import PATIENCE

from omnigraph.errors import FlushFailedError, ObjectChangedError, ObjectNotFoundError, StorageError, StorageErrorKind
from omnigraph.storage.objects import ObjectStore, open_store


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Record the order in which files and directories are flushed, renamed and linked."""
    events: list[str] = []
    fsync, rename, link = os.fsync, os.rename, os.link

    def place(name: str) -> str:
        path = Path(name)
        return "temporary" if path.name.startswith(".og-tmp-") else str(path.relative_to(tmp_path))

    def traced_fsync(descriptor: int) -> None:
        events.append(f"flush {place(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        fsync(descriptor)

    def traced_rename(source: str, target: str) -> None:
        events.append(f"rename {place(target)}")
        rename(source, target)

    def traced_link(source: str, target: str) -> None:
        events.append(f"link {place(target)}")
        link(source, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "rename", traced_rename)
    monkeypatch.setattr(os, "link", traced_link)
    return events


linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks up open files in /proc")


@linux
def test_data_is_flushed_before_it_is_renamed(tmp_path: Path, traced: list[str]) -> None:
    store = open_store(str(tmp_path / "graph"))
    etag = store.put("a/b", b"1")
    made = ["flush .", "flush graph"]
    assert traced == [*made, "flush temporary", "rename graph/a/b", "flush graph/a"]
    traced.clear()
    store.replace("a/b", b"2", etag)
    assert traced == ["flush temporary", "rename graph/a/b", "flush graph/a"]
    traced.clear()
    store.create("a/c", b"1")
    assert traced == ["flush temporary", "link graph/a/c", "flush graph/a"]
    traced.clear()
    store.delete("a/c")
    assert traced == ["flush graph/a"]


@linux
def test_without_fsync_nothing_is_flushed(tmp_path: Path, traced: list[str]) -> None:
    store = open_store(str(tmp_path / "graph"), fsync=False)
    store.replace("a/b", b"2", store.create("a/b", b"1"))
    store.sync_files(["a/b"])
    store.delete("a/b")
    assert [event for event in traced if event.startswith("flush")] == []


@linux
def test_files_of_lance_are_flushed_before_their_directories(tmp_path: Path, traced: list[str]) -> None:
    (tmp_path / "nodes/t/data").mkdir(parents=True)
    for name in ("nodes/t/data/1.lance", "nodes/t/data/2.lance", "nodes/t/v.manifest"):
        (tmp_path / name).write_bytes(b"1")
    store = open_store(str(tmp_path))
    store.sync_files(["nodes/t/data/1.lance", "nodes/t/v.manifest"])
    # Files are flushed in any order.
    assert sorted(traced[:2]) == ["flush nodes/t/data/1.lance", "flush nodes/t/v.manifest"]
    assert traced[2:] == ["flush nodes/t/data", "flush nodes/t", "flush nodes", "flush ."]
    traced.clear()
    store.sync_files(["nodes/t"])
    files = ["flush nodes/t/data/1.lance", "flush nodes/t/data/2.lance", "flush nodes/t/v.manifest"]
    assert sorted(traced[:3]) == files
    assert set(traced[3:]) == {"flush nodes/t/data", "flush nodes/t", "flush nodes"}, "'nodes' is known to be durable"
    with pytest.raises(FlushFailedError, match="no such file"):
        store.sync_files(["nodes/t/missing"])


def test_reading_writes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    store = open_store(str(root))
    with pytest.raises(ObjectNotFoundError):
        store.get("a/b")
    store.list()
    store.delete("a/b")
    store.delete_prefix("a")
    assert not root.exists()


def test_temporary_files_of_killed_writers_are_not_listed_and_are_removed_after_an_hour(tmp_path: Path) -> None:
    old, young = tmp_path / "a/.og-tmp-1-old", tmp_path / "a/.og-tmp-1-young"
    old.parent.mkdir()
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    long_ago = time.time() - 7200
    os.utime(old, (long_ago, long_ago))
    store = open_store(str(tmp_path))
    assert store.list() == []
    assert old.exists(), "a read removes nothing"
    store.put("a/b", b"1")
    assert not old.exists()
    assert young.exists(), "its writer may be alive"
    store.delete_prefix("a")
    assert list(tmp_path.iterdir()) == []


def test_writers_leave_only_objects_and_one_lock_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.replace("a", b"2", store.create("a", b"1"))
    store.put("b", b"1")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".og-lock", "a", "b"]


def test_symbolic_links_inside_the_root_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "graph", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"1")
    (root / "directory").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    store = open_store(str(root))
    assert store.list() == []
    assert store.list("directory") == []
    for call in (store.get, store.delete, store.head):
        with pytest.raises(StorageError) as raised:
            call("directory/secret")
        assert raised.value.kind is StorageErrorKind.CONFIGURATION
    with pytest.raises(StorageError):
        store.put("directory/new", b"1")
    with pytest.raises(StorageError):
        store.get("file")
    store.delete_prefix("directory")
    store.put("file", b"2")
    assert store.get("file").data == b"2"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"1"


def test_delete_prefix_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"1")
    store = open_store(str(tmp_path / "graph"))
    store.put("a/b", b"1")
    (tmp_path / "graph/a/link").symlink_to(outside)
    store.delete_prefix("a")
    assert not (tmp_path / "graph/a").exists()
    assert (outside / "kept").exists()


def test_a_root_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    open_store(str(tmp_path / "link")).put("a/b", b"1")
    assert (tmp_path / "real/a/b").read_bytes() == b"1"


def test_store_calls_leave_no_files_open(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"))

    store.put("a", b"1")
    before = open_files()
    for _ in range(50):
        store.replace("a", b"1", store.get("a").etag)
        store.list()
        with pytest.raises(StorageError):
            store.create("a", b"1")
    assert open_files() == before


WRITES: dict[str, Callable[[ObjectStore, str], object]] = {
    "put": lambda store, etag: store.put("a/b", b"other"),
    "delete": lambda store, etag: store.delete("a/b"),
    "replace": lambda store, etag: store.replace("a/b", b"other", etag),
    "delete_if": lambda store, etag: store.delete_if("a/b", etag),
    "delete_prefix": lambda store, etag: store.delete_prefix("a"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_replace_is_atomic_beside_other_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str) -> None:
    store, other = open_store(str(tmp_path)), open_store(str(tmp_path))
    etag = store.put("a/b", b"old")
    rename, looked, act = os.rename, Event(), Event()

    def hesitating_rename(source: str, target: str) -> None:
        if not looked.is_set():
            looked.set()
            assert act.wait(PATIENCE)
        rename(source, target)

    monkeypatch.setattr(os, "rename", hesitating_rename)
    with ThreadPoolExecutor(2) as pool:
        replacing = pool.submit(store.replace, "a/b", b"new", etag)
        assert looked.wait(PATIENCE)
        writing = pool.submit(WRITES[write], other, etag)
        try:
            assert not wait([writing], timeout=0.1).done, "it did not wait for its turn"
        finally:
            act.set()
        replacing.result(PATIENCE)
        if write in ("replace", "delete_if"):
            assert isinstance(writing.exception(PATIENCE), ObjectChangedError)
            assert store.get("a/b").data == b"new"
        else:
            writing.result(PATIENCE)
            assert [info.path for info in store.list()] == (["a/b"] if write == "put" else [])
