"""A lock of a directory that a stopped process holds does not block others for ever."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from tests.thresholds import Thresholds

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.objects import local
from omnigraph.storage.objects.local import LocalObjectStore
from omnigraph.storage.uri import GraphUri


def test_a_lock_that_is_not_released_is_reported(tmp_path: Path, thresholds: Thresholds) -> None:
    store = LocalObjectStore(GraphUri.parse(str(tmp_path)))
    store.put("place/object", b"first")
    thresholds(local, LOCK_WAIT_SECONDS=0.05)
    (lock,) = (tmp_path / "place").glob("*lock*")
    with lock.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="has locked this directory") as failure:
            store.put("place/object", b"second")
    assert failure.value.kind is StorageErrorKind.TRANSIENT
    assert "continue or end it" in str(failure.value.hint)
    assert bytes(store.get("place/object").data) == b"first"
    store.put("place/object", b"third")
    assert bytes(store.get("place/object").data) == b"third"
