"""The functions of racing processes. A spawned process can import this module."""

from __future__ import annotations

import hashlib
import multiprocessing
import secrets
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier, Event

from tests.patience import PATIENCE
from tests.storage.places import Place

from omnigraph.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError

SPAWN = multiprocessing.get_context("spawn")


def start(work: Callable[..., None], *arguments: object) -> SpawnProcess:
    process = SPAWN.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def join(processes: list[SpawnProcess]) -> None:
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0, f"a racer ended with {process.exitcode}"


def create_rounds(place: Place, racer: int, rounds: int, barrier: Barrier, won: SimpleQueue[tuple[int, int]]) -> None:
    """In each round, all racers create the same object."""
    store = place.open()
    for number in range(rounds):
        barrier.wait(PATIENCE)
        try:
            store.create(f"claims/{number}", f"{racer}".encode())
        except ObjectExistsError:
            continue
        won.put((number, racer))


def increment(place: Place, times: int, barrier: Barrier) -> None:
    """Increment a counter many times by compare-and-swap."""
    store = place.open()
    barrier.wait(PATIENCE)
    for _ in range(times):
        while True:
            seen = store.get("counter")
            try:
                store.replace("counter", str(int(seen.data) + 1).encode(), seen.etag)
                break
            except ObjectChangedError:
                continue


def replace_keeping_base(place: Place, ready: Event, stop: Event) -> None:
    """Replace an object by a value that includes the value that was read."""
    store = place.open()
    ready.set()
    number = 0
    while not stop.is_set():
        number += 1
        try:
            seen = store.get("object")
            base = seen.data.split(b" ")[0]
            store.replace("object", base + f" {number} {secrets.token_hex(4)}".encode(), seen.etag)
        except (ObjectNotFoundError, ObjectChangedError):
            continue


def sealed(size: int) -> bytes:
    """Data in which a missing part can be detected."""
    payload = secrets.token_bytes(size)
    return hashlib.sha256(payload).digest() + payload


def is_whole(data: bytes) -> bool:
    return hashlib.sha256(data[32:]).digest() == data[:32]


def rewrite_forever(place: Place, size: int, ready: Event) -> None:
    """Replace, put, create and delete until killed."""
    store = place.open()
    ready.set()
    while True:
        seen = store.get("object")
        try:
            store.replace("object", sealed(size), seen.etag)
            store.put("other/object", sealed(size))
            store.delete_if("other/object", store.put("other/object", sealed(size)))
            store.create("other/object", sealed(size))
        except (ObjectChangedError, ObjectExistsError):
            continue


def write_steadily(place: Place, size: int, stop: Event) -> None:
    """Change one object constantly, and create and delete others."""
    store = place.open()
    number = 0
    while not stop.is_set():
        number += 1
        store.put("steady/always", sealed(size))
        store.put(f"steady/{number % 7}", sealed(size))
        store.delete(f"steady/{(number + 3) % 7}")
