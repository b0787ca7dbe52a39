"""The faulty store injects each fault once."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest
from tests.storage.faults import FaultyStore

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.objects import ObjectStore, open_store, probe_create_if_absent


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(open_store(f"memory://{uuid4().hex}"))


def test_a_faulty_store_is_an_object_store(store: FaultyStore) -> None:
    typed: ObjectStore = store
    probe_create_if_absent(typed)
    assert typed.list() == []


def test_fail_before_raises_without_effect(store: FaultyStore) -> None:
    store.fail_before("put")
    with pytest.raises(StorageError) as raised:
        store.put("a", b"1")
    assert raised.value.kind is StorageErrorKind.TRANSIENT
    assert not store.exists("a")
    store.put("a", b"1")
    assert store.count("put") == 2


def test_fail_after_takes_effect_and_raises(store: FaultyStore) -> None:
    store.fail_after("create", nth=2, path="b")
    store.create("a", b"1")
    store.create("b", b"1")
    store.delete("b")
    with pytest.raises(StorageError) as raised:
        store.create("b", b"2")
    assert raised.value.kind is StorageErrorKind.UNKNOWN
    assert store.get("b").data == b"2"
    assert store.count("create", "b") == 2


def test_any_exception_can_be_injected(store: FaultyStore) -> None:
    store.fail_before("list", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.list("a")


def test_calls_can_be_delayed_and_faults_reset(store: FaultyStore) -> None:
    store.delay("exists", 0.05)
    start = time.monotonic()
    assert not store.exists("a")
    assert time.monotonic() - start >= 0.05
    store.fail_before("exists")
    store.reset()
    assert not store.exists("a")
    assert store.calls == [("exists", "a")]


def test_the_probe_detects_a_store_without_conditional_writes(store: FaultyStore) -> None:
    class Careless(FaultyStore):
        def create(self, path: str, data: bytes) -> str:
            return self.inner.put(path, data)

    class HalfCareless(FaultyStore):
        def replace(self, path: str, data: bytes, etag: str) -> str:
            return self.inner.put(path, data)

    for careless in (Careless(store), HalfCareless(store)):
        with pytest.raises(StorageError) as raised:
            probe_create_if_absent(careless)
        assert raised.value.kind is StorageErrorKind.CONFIGURATION
        assert store.list() == []
