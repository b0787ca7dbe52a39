"""When the answer to a conditional write is lost, the caller gets the true result, or an unknown outcome."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.s3_server import S3Root
from tests.storage.flaky_proxy import FlakyProxy, Trouble, flaky_proxy

from omnigraph.errors import Disposition, ObjectChangedError, ObjectExistsError, StorageError, StorageErrorKind
from omnigraph.storage.objects import ObjectStore, open_store

pytestmark = pytest.mark.s3

TOOK_EFFECT = [Trouble.LOST_ANSWER, Trouble.LATE_ERROR]
HAD_NONE = [Trouble.EARLY_ERROR, Trouble.BUSY]


@pytest.fixture
def proxy(s3_root: S3Root) -> Iterator[tuple[FlakyProxy, ObjectStore]]:
    """A proxy without faults, and a store behind it."""
    with flaky_proxy(s3_root.options["endpoint"]) as (proxy, address):
        yield proxy, open_store(s3_root.uri, s3_root.options | {"endpoint": address})


@pytest.fixture
def direct(s3_root: S3Root) -> ObjectStore:
    """The same store without the proxy."""
    return open_store(s3_root.uri, s3_root.options)


@pytest.mark.parametrize("trouble", TOOK_EFFECT + HAD_NONE)
def test_create_with_a_lost_answer_returns_its_result(
    proxy: tuple[FlakyProxy, ObjectStore], direct: ObjectStore, trouble: Trouble
) -> None:
    flaky, store = proxy
    flaky.troubles = [trouble]
    etag = store.create("claim", b"mine")
    assert (direct.get("claim").data, direct.get("claim").etag) == (b"mine", etag)
    with pytest.raises(ObjectExistsError):
        store.create("claim", b"mine")


@pytest.mark.parametrize("trouble", TOOK_EFFECT + HAD_NONE)
def test_replace_with_a_lost_answer_returns_its_result(
    proxy: tuple[FlakyProxy, ObjectStore], direct: ObjectStore, trouble: Trouble
) -> None:
    flaky, store = proxy
    old = direct.put("counter", b"1")
    flaky.troubles = [trouble]
    etag = store.replace("counter", b"2", old)
    assert (direct.get("counter").data, direct.get("counter").etag) == (b"2", etag)


def test_a_create_that_lost_the_race_does_not_report_success(
    proxy: tuple[FlakyProxy, ObjectStore], direct: ObjectStore
) -> None:
    flaky, store = proxy
    direct.create("claim", b"same")
    flaky.troubles = [Trouble.BUSY]
    with pytest.raises(ObjectExistsError):
        store.create("claim", b"same")
    flaky.troubles = [Trouble.LOST_ANSWER]
    with pytest.raises(StorageError) as raised:
        store.create("claim", b"same")
    assert raised.value.kind is StorageErrorKind.UNKNOWN


def test_a_replace_that_lost_the_race_does_not_report_success(
    proxy: tuple[FlakyProxy, ObjectStore], direct: ObjectStore
) -> None:
    """Two writers of the same content: the result of the call decides who wrote it, not the content."""
    flaky, store = proxy
    old = direct.put("counter", b"1")
    direct.replace("counter", b"2", old)
    with pytest.raises(ObjectChangedError):
        store.replace("counter", b"2", old)
    flaky.troubles = [Trouble.EARLY_ERROR]
    with pytest.raises(StorageError) as raised:
        store.replace("counter", b"2", old)
    assert raised.value.kind is StorageErrorKind.UNKNOWN


def test_a_successful_replace_that_was_overwritten_is_an_unknown_outcome(
    proxy: tuple[FlakyProxy, ObjectStore], direct: ObjectStore
) -> None:
    flaky, store = proxy
    old = direct.put("counter", b"1")

    def another_writer() -> Iterator[None]:
        direct.put("counter", b"3")
        yield

    flaky.troubles = [Trouble.LOST_ANSWER]
    flaky.after_write = another_writer()
    with pytest.raises(StorageError) as raised:
        store.replace("counter", b"2", old)
    assert not isinstance(raised.value, ObjectChangedError)
    assert raised.value.kind is StorageErrorKind.UNKNOWN
    assert raised.value.disposition is Disposition.UNKNOWN
    assert direct.get("counter").data == b"3"


def test_a_busy_store_is_retried_a_limited_number_of_times(proxy: tuple[FlakyProxy, ObjectStore]) -> None:
    flaky, store = proxy
    flaky.troubles = [Trouble.BUSY] * 10
    with pytest.raises(StorageError) as raised:
        store.create("claim", b"mine")
    assert raised.value.kind is StorageErrorKind.TRANSIENT
    assert raised.value.retryable
    assert flaky.writes == 4
    flaky.troubles = []
    assert not store.exists("claim")


def test_delete_if_with_a_lost_answer_deletes_the_object(
    proxy: tuple[FlakyProxy, ObjectStore], direct: ObjectStore
) -> None:
    flaky, store = proxy
    etag = direct.put("lease", b"mine")
    flaky.troubles = [Trouble.LOST_ANSWER]
    store.delete_if("lease", etag)
    assert not direct.exists("lease")


@pytest.mark.parametrize("trouble", TOOK_EFFECT + HAD_NONE)
def test_put_with_a_lost_answer_takes_effect(
    proxy: tuple[FlakyProxy, ObjectStore], direct: ObjectStore, trouble: Trouble
) -> None:
    flaky, store = proxy
    flaky.troubles = [trouble]
    store.put("a", b"1")
    assert direct.get("a").data == b"1"
