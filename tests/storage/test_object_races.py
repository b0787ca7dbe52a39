"""The store contract between processes: one winner, no lost update, no torn object, and no stale lock."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until
from tests.storage import racers
from tests.storage.places import Place

from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.uri import Scheme

pytestmark = pytest.mark.slow

SHARED = ["local", "local-fsync", pytest.param("s3", marks=pytest.mark.s3)]
"""The kinds of stores that processes can share."""


@pytest.fixture(params=SHARED)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "s3":
        root = request.getfixturevalue("s3_root")
        return Place(root.uri, root.options, fsync=True)
    return Place(str(tmp_path), {}, fsync=request.param == "local-fsync")


def test_create_has_one_winner_among_processes(place: Place, store: ObjectStore) -> None:
    count, rounds = 8, 20
    barrier = racers.SPAWN.Barrier(count)
    won = racers.SPAWN.SimpleQueue()
    racers.join([racers.start(racers.create_rounds, place, racer, rounds, barrier, won) for racer in range(count)])
    winners = {}
    while not won.empty():
        number, racer = won.get()
        assert number not in winners, "two winners"
        winners[number] = racer
    assert sorted(winners) == list(range(rounds))
    for number, racer in winners.items():
        assert store.get(f"claims/{number}").data == str(racer).encode()


def test_no_increment_is_lost(place: Place, store: ObjectStore) -> None:
    store.put("counter", b"0")
    count, times = 4, 50
    barrier = racers.SPAWN.Barrier(count)
    racers.join([racers.start(racers.increment, place, times, barrier) for _ in range(count)])
    assert store.get("counter").data == str(count * times).encode()
    assert [info.path for info in store.list()] == ["counter"]


def test_a_replace_never_undoes_a_put_or_a_delete(place: Place, store: ObjectStore) -> None:
    """A replace that has not read the newest put must fail."""
    stop = racers.SPAWN.Event()
    events = [racers.SPAWN.Event() for _ in range(2)]
    writers = [racers.start(racers.replace_keeping_base, place, ready, stop) for ready in events]
    assert all(ready.wait(PATIENCE) for ready in events)
    replaced, number = 0, 0
    rounds = 20 if store.uri.scheme is Scheme.S3 else 200
    end = time.monotonic() + PATIENCE
    while number < rounds or not replaced:
        assert time.monotonic() < end, "nobody replaced anything, so nothing was tested"
        number += 1
        base = str(number).encode()
        store.put("object", base)
        for _ in range(8):
            data = store.get("object").data
            assert data.split(b" ")[0] == base
            replaced += data != base
        if number % 2:
            store.delete("object")
            assert not any(store.exists("object") for _ in range(4))
    stop.set()
    racers.join(writers)


def test_killed_writers_leave_whole_objects_and_no_lock(place: Place, store: ObjectStore) -> None:
    chance = random.Random(7)
    size = 300_000
    etag = store.put("object", racers.sealed(size))
    for _ in range(2):
        events = [racers.SPAWN.Event() for _ in range(3)]
        writers = [racers.start(racers.rewrite_forever, place, size, ready) for ready in events]
        assert all(ready.wait(PATIENCE) for ready in events)
        until(lambda before=etag: store.get("object").etag != before)  # type: ignore[misc]
        for writer in writers:
            time.sleep(chance.uniform(0.01, 0.1))
            writer.kill()
            writer.join()
            assert racers.is_whole(store.get("object").data)
        # With a stale lock of a killed process, these calls would wait forever.
        etag = store.replace("object", racers.sealed(size), store.get("object").etag)
        store.put("other/object", racers.sealed(size))
        for info in store.list():
            assert info.path in ("object", "other/object")
            assert info.size == size + 32
            assert racers.is_whole(store.get(info.path).data)


@pytest.fixture
def steady_writers(place: Place, store: ObjectStore) -> Iterator[int]:
    """Processes that write objects of this size for as long as the test runs."""
    size = 100_000
    store.put("steady/always", racers.sealed(size))
    stop = racers.SPAWN.Event()
    writers = [racers.start(racers.write_steadily, place, size, stop) for _ in range(2)]
    yield size
    stop.set()
    racers.join(writers)


def test_a_listing_during_writes_shows_whole_objects_only(store: ObjectStore, steady_writers: int) -> None:
    names = {"steady/always", *(f"steady/{number}" for number in range(7))}
    first = store.get("steady/always").etag
    seen: set[str] = set()
    changed = listings = 0
    began = time.monotonic()
    while time.monotonic() < began + 1.5 or listings < 10 or not changed or seen == {"steady/always"}:
        assert time.monotonic() < began + PATIENCE, "nothing was written, so nothing was tested"
        changed += store.get("steady/always").etag != first
        listing = store.list("steady")
        listings += 1
        paths = [info.path for info in listing]
        assert paths == sorted(set(paths))
        assert set(paths) <= names
        assert "steady/always" in paths, "an object that is being replaced vanished"
        assert {info.size for info in listing} == {steady_writers + 32}
        assert racers.is_whole(store.get("steady/always").data)
        seen.update(paths)
