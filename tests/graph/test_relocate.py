"""A copied or moved graph is complete at its new location, and never reads from the old one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest
from tests.graph.moving import EVERYONE, QUERIES, copy, listing, make_graph, people, poison, told, work
from tests.s3_server import S3Root, S3Server

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.location import STAMP_PATH, adopt_location
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.graph import Graph
from omnigraph.settings import FAILPOINT
from omnigraph.storage.objects import open_store
from omnigraph.storage.objects.contract import TOMBSTONE


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A graph that tests copy, and all of its answers."""
    place = tmp_path_factory.mktemp("original") / "g"
    os.environ["OMNIGRAPH_FSYNC"] = "0"
    with make_graph(place) as graph:
        return place, told(graph)


@pytest.fixture
def world(original: tuple[Path, dict[str, object]], tmp_path: Path) -> tuple[Path, dict[str, object]]:
    """A graph that was opened for writing at its location, so that it no longer counts as a copy."""
    place = copy(original[0], tmp_path / "old")
    omnigraph.open(place).close()
    return place, original[1]


World = tuple[Path, dict[str, object]]


def names(graph: Graph, branch: str = "main") -> list[str]:
    return [row["name"] for row in graph.query(EVERYONE, branch=branch).to_pylist()]


def paths_on_disk(place: Path) -> set[bytes]:
    """The parent directories in the stored base paths."""
    found = set()
    for file in place.rglob("tree/**/_versions/*.manifest"):
        text = file.read_bytes()
        found |= {part.rpartition(b'"')[2][1:] for part in text.split(b"/nodes/")[:-1]}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["removed", "poisoned", "moved"])
def test_a_moved_graph_reads_and_writes_only_at_the_new_location(world: World, tmp_path: Path, fate: str) -> None:
    place, before = world
    new = tmp_path / "somewhere else, with a longer name"
    if fate == "moved":
        place.rename(new)
    else:
        copy(place, new)
        poison(place) if fate == "poisoned" else shutil.rmtree(place)
    left = listing(place)
    whole = listing(new)
    with omnigraph.open(new, read_only=True) as reader:
        assert told(reader) == before
        assert not reader.cleanup(keep=1, preview=True).errors
        assert reader.merge("dev-child", into="dev", preview=True).conflicts == ()
    assert listing(new) == whole
    with omnigraph.open(new) as writer:
        assert told(writer) == before
        assert str(place).encode() not in b"".join(paths_on_disk(new))
        work(writer)
    assert listing(place) == left


@pytest.mark.slow
def test_a_copy_can_be_read_without_rewriting_base_paths(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored base paths are not trusted, because another mount may have written them. Every open replaces them."""
    place, before = world
    new = copy(place, tmp_path / "new")
    left = poison(place)
    monkeypatch.setattr("omnigraph.engine.session.adopt_location", lambda store: None)
    with omnigraph.open(new) as writer:
        assert told(writer) == before
        with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
            writer.load({"Person": people(500, 1)}, mode="append", branch="dev")
        with armed(Failpoint.TABLE_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
            writer.mutate(QUERIES, name="leave", params={"name": "p0005"}, branch="dev-child")
    with omnigraph.open(new) as writer:
        assert "p0500" in names(writer, "dev")
        writer.mutate(QUERIES, name="leave", params={"name": "p0500"}, branch="dev")
        work(writer)
    assert listing(place) == left


def test_base_paths_are_rewritten_once(world: World, tmp_path: Path) -> None:
    place, _ = world
    new = copy(place, tmp_path / "new")
    store = Store.at(open_store(str(new)).uri, durable=False)
    first = adopt_location(store)
    assert first is not None
    assert 0 < first.rewritten == first.manifests
    assert adopt_location(store) is None
    again = adopt_location(store, always=True)
    assert again is not None
    assert (again.rewritten, again.manifests) == (0, first.manifests)


@pytest.mark.slow
def test_spellings_of_one_location_are_the_same_graph(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link, a relative path and a URI are one location: nothing is rewritten, and both can be used at once."""
    place, before = world
    link = tmp_path / "link"
    link.symlink_to(place)
    monkeypatch.chdir(tmp_path)
    stamp = (place / STAMP_PATH).stat().st_ino
    for spelling in (str(link), "old", f"file://{place}", f"{place}/", "./link/../old"):
        with omnigraph.open(spelling) as there:
            assert told(there) == before
    with omnigraph.open(place) as here, omnigraph.open(link) as there:
        for number, graph in enumerate((here, there, here, there)):
            graph.load({"Person": people(500 + number, 1)}, mode="append", branch="dev-child")
            assert names(here, "dev-child") == names(there, "dev-child")
        there.branches.create("by-link", source="dev-child")
        here.load({"Person": people(600, 1)}, mode="append", branch="by-link")
        there.merge("by-link", into="dev")
        here.mutate(QUERIES, name="leave", params={"name": "p0600"}, branch="dev")
        assert "p0600" not in names(there, "dev")
        here.merge("dev", into="dev-child")
        assert names(there, "dev-child") == (found := names(here, "dev-child"))
    link.unlink()
    with omnigraph.open(place) as here:
        assert names(here, "dev-child") == found
        for number in range(4):
            here.mutate(QUERIES, name="leave", params={"name": f"p050{number}"}, branch="dev-child")
        work(here)
    assert (place / STAMP_PATH).stat().st_ino == stamp


@pytest.mark.slow
def test_two_paths_of_a_directory_are_each_adopted_once(world: World, tmp_path: Path) -> None:
    """A mount in a container has another path. Each path is adopted once, even if they alternate."""
    place, before = world
    other = tmp_path / "mounted"

    def opened(at: Path, back: Path) -> int:
        back.rename(at)
        with omnigraph.open(at) as graph:
            assert told(graph) == before
        return (at / STAMP_PATH).stat().st_ino

    first = opened(other, place)
    assert [opened(place, other), opened(other, place), opened(place, other)] == [first] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["place_manifest_rewritten#1", "place_manifest_rewritten#4", "place_rewritten", "place_ended"]
)
def test_a_killed_relocation_can_be_repeated(world: World, tmp_path: Path, point: str) -> None:
    place, before = world
    new = copy(place, tmp_path / "new")
    left = poison(place)
    code = f"import omnigraph; omnigraph.open({str(new)!r})"
    child = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, FAILPOINT.name: f"{point}=kill"}, check=False
    )
    assert child.returncode == -signal.SIGKILL
    with omnigraph.open(new, read_only=True) as reader:
        assert told(reader) == before
    with omnigraph.open(new) as writer:
        assert told(writer) == before
        work(writer)
    assert listing(place) == left


def test_several_first_openers_can_relocate_at_once(world: World, tmp_path: Path) -> None:
    place, _ = world
    new = copy(place, tmp_path / "new")
    shutil.rmtree(place)
    failures: list[BaseException] = []

    def come(number: int) -> None:
        try:
            with omnigraph.open(new) as graph:
                graph.load({"Person": people(700 + number, 1)}, mode="merge", branch="dev")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with omnigraph.open(new) as graph:
        assert {f"p070{number}" for number in range(4)} <= set(names(graph, "dev"))


def test_a_copied_lease_of_a_live_owner_does_not_block_the_copy(world: World, tmp_path: Path) -> None:
    """The live owner holds the lease of the original. That has no effect on the copy, and does not change."""
    place, _ = world
    with (
        omnigraph.open(place) as old,
        old.session.store.exclusive("dev") as held,
        old.session.store.exclusive_refs() as refs,
    ):
        new = copy(place, tmp_path / "new")
        began = time.monotonic()
        with omnigraph.open(new) as graph:
            graph.load({"Person": people(500, 1)}, mode="append", branch="dev")
            graph.branches.create("more", source="dev")
        assert time.monotonic() - began < 15
        held.check()
        refs.check()


def test_a_lease_is_kept_if_the_directory_is_the_same(world: World, tmp_path: Path) -> None:
    """Another path may be another mount of the same directory, whose lease owner is running."""
    place, _ = world
    with omnigraph.open(place) as old, old.session.store.exclusive("dev"):
        new = tmp_path / "new"
        place.rename(new)
        with omnigraph.open(new) as graph:
            graph.session.store.timeouts.wait = 0.2
            with pytest.raises(omnigraph.errors.LeaseTimeoutError):
                graph.load({"Person": people(500, 1)}, mode="append", branch="dev")
        new.rename(place)


@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
def test_an_interrupted_write_is_recovered_in_the_copy_only(world: World, tmp_path: Path, point: Failpoint) -> None:
    """It is recovered in the copy, and unchanged in the original."""
    place, _ = world
    with omnigraph.open(place) as old:
        with armed(point, "crash"), pytest.raises(SimulatedCrashError):
            old.load({"Person": people(500, 2), "Town": [{"name": "x"}]}, mode="append", branch="dev-child")
        new = copy(place, tmp_path / "new")
        left = listing(place)
        with omnigraph.open(new) as graph:
            assert graph.recovery.pending() == []
            there = "p0500" in names(graph, "dev-child")
            assert there == (point is Failpoint.TABLES_COMMITTED)
            assert graph.verify(branch="dev-child").ok
            graph.mutate(QUERIES, name="leave", params={"name": "p0001"}, branch="dev-child")
        assert listing(place) == left
        assert len(old.recovery.pending()) == 1


def test_a_transaction_of_the_original_is_not_in_the_copy(world: World, tmp_path: Path) -> None:
    """The copy does not have it, and it continues in the original."""
    place, _ = world
    with omnigraph.open(place) as old:
        with old.branch("dev").transaction() as tx:
            tx.mutate(QUERIES, name="rename", params={"name": "p0021", "age": 55})
            new = copy(place, tmp_path / "new")
            with omnigraph.open(new) as graph:
                assert list((new / "__transactions").glob("*.json")) == []
                assert all(not name.startswith("__tx") for name in graph.session.store.manifest.branches())
        aged = old.query(QUERIES, name="aged", params={"age": 55}, branch="dev").to_pylist()
        assert [row["name"] for row in aged] == ["p0021"]


def test_a_work_record_of_the_original_does_not_count_in_the_copy(world: World, tmp_path: Path) -> None:
    """Otherwise cleanup of the copy would keep versions that only a process of the original reads."""
    place, _ = world
    with (
        omnigraph.open(place) as old,
        at_work(old.session.store.leases, WorkKind.PIN, old.session.store.capture("dev")) as record,
    ):
        new = copy(place, tmp_path / "new")
        assert list((new / "__work").glob("*.json"))
        with omnigraph.open(new):
            assert list((new / "__work").glob("*.json")) == []
        record.check()


def test_the_files_of_an_interrupted_merge_are_kept_in_the_copy(world: World, tmp_path: Path) -> None:
    """Its commits are in a staged ancestors file. Without it, recovery could not complete the merge."""
    place, _ = world
    with omnigraph.open(place) as old:
        with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
            old.merge("dev-child", into="main")
        new = copy(place, tmp_path / "new")
    with omnigraph.open(new) as graph:
        assert graph.recovery.pending() == []
        assert "p0080" in names(graph)
        assert graph.merge("dev-child", into="main").outcome == "already_up_to_date"


def test_tombstones_copied_from_a_bucket_are_ignored(world: World, tmp_path: Path) -> None:
    """A tool that copies a bucket to a disk also copies the tombstones of deleted references."""
    place, before = world
    new = copy(place, tmp_path / "new")
    for file in (new / "__refs" / "gone.json", new / "__tags" / "gone_tag.json"):
        file.write_bytes(TOMBSTONE)
    with omnigraph.open(new, read_only=True) as reader:
        assert told(reader) == before
    with omnigraph.open(new) as graph:
        assert told(graph) == before
        graph.branches.create("gone")
        graph.tags.create("gone_tag")


@pytest.mark.parametrize("table", ["__manifest", "nodes/*"])
def test_a_damaged_base_path_is_detected(world: World, table: str) -> None:
    """The checksum of a version does not cover its base paths, but one that names another table is detected."""
    place, _ = world
    with omnigraph.open(place, read_only=True) as graph:
        ledger = graph.session.store.ledger_of("dev-child")
        pins = graph.snapshot(branch="dev-child").tables.values()
        forks = [pin.ref.branch for pin in pins if pin.ref.branch and pin.ref.path.startswith("nodes/")]
    directory = ledger if table == "__manifest" else forks[0]
    file = min(place.glob(f"{table}/tree/{directory}/_versions/*.manifest"))  # the newest has the smallest name
    data = bytearray(file.read_bytes())
    data[data.rfind(str(place).encode()) + len(str(place)) + 3] ^= 1
    file.write_bytes(data)
    with (
        pytest.raises(omnigraph.errors.DamagedFileError, match=file.name),
        omnigraph.open(place, read_only=True) as graph,
    ):
        names(graph, "dev-child")


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b'{"root": 3}', b'{"root": "/nowhere/at/all"}'])
def test_a_missing_or_invalid_location_stamp_is_rewritten(world: World, content: bytes | None) -> None:
    place, before = world
    stamp = place / STAMP_PATH
    stamp.unlink()
    if content is not None:
        stamp.write_bytes(content)
    with omnigraph.open(place, read_only=True) as reader:
        assert told(reader) == before
    with omnigraph.open(place) as writer:
        assert told(writer) == before
    assert str(place).encode() in stamp.read_bytes()


# ---- buckets


def _copied(source: str, to: str, options: dict[str, str]) -> None:
    """Copy object by object, like `aws s3 sync`."""
    here, there = open_store(source, options), open_store(to, options)
    for info in here.list():
        there.put(info.path, here.get(info.path).data)


def _zeroed(place: str, options: dict[str, str]) -> dict[str, int]:
    store = open_store(place, options)
    for info in store.list():
        store.put(info.path, bytes(max(1, info.size)))
    return {info.path: info.size for info in store.list()}


@pytest.mark.slow
@pytest.mark.s3
def test_a_graph_can_be_copied_to_buckets_and_back(
    world: World, tmp_path: Path, s3_server: S3Server, s3_root: S3Root
) -> None:
    """Disk, bucket, another bucket, another prefix, disk: each copy gives the same answers; the last is writable."""
    place, before = world
    request = urllib.request.Request(f"{s3_server.endpoint}/others", method="PUT")
    urllib.request.urlopen(request, timeout=300).close()
    stops = [str(place), s3_root.uri, "s3://others/x", "s3://others/a b/é", str(tmp_path / "back")]
    for here, there in pairwise(stops):
        _copied(here, there, s3_root.options)
        left = _zeroed(here, s3_root.options)
        with omnigraph.open(there, storage_options=s3_root.options, read_only=True) as reader:
            assert names(reader, "dev-child") == sorted(names(reader, "dev-child"))
        with omnigraph.open(there, storage_options=s3_root.options) as writer:
            assert told(writer) == before
        assert {info.path: info.size for info in open_store(here, s3_root.options).list()} == left
    with omnigraph.open(stops[-1]) as graph:
        work(graph)


@pytest.mark.slow
@pytest.mark.s3
def test_a_copy_in_a_bucket_can_be_written(world: World, s3_root: S3Root) -> None:
    place, _ = world
    _copied(str(place), s3_root.uri, s3_root.options)
    poison(place)
    with omnigraph.open(s3_root.uri, storage_options=s3_root.options) as graph:
        work(graph)
