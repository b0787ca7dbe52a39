"""The contract of an object store, checked on each kind of store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from random import Random
from typing import cast

import pytest
from tests.storage.places import Place

from omnigraph.errors import (
    InputError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.storage.copies import FileStore
from omnigraph.storage.objects import ObjectInfo, ObjectStore, probe_create_if_absent
from omnigraph.storage.objects.contract import TOMBSTONE
from omnigraph.storage.uri import Scheme


def paths(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.path for info in store.list(prefix)]


# ---- reading and writing


def test_an_object_is_read_as_it_was_put(store: ObjectStore) -> None:
    etag = store.put("a/b.json", b"one")
    stored = store.get("a/b.json")
    assert (stored.data, stored.etag) == (b"one", etag)
    assert store.exists("a/b.json")


def test_put_replaces_an_object(store: ObjectStore) -> None:
    first = store.put("a", b"a long first content")
    second = store.put("a", b"short")
    assert first != second
    assert store.get("a").data == b"short"


@pytest.mark.parametrize("size", [0, 1, len(TOMBSTONE), 3_000_000])
def test_objects_can_have_any_size(store: ObjectStore, size: int) -> None:
    data = b"x" * size
    etag = store.create("big", data)
    assert store.get("big").data == data
    assert store.head("big").size == size
    assert paths(store) == ["big"]
    store.replace("big", data + b"y", etag)
    assert store.get("big").data == data + b"y"


def test_a_file_is_rewritten_only_if_it_is_unchanged(store: ObjectStore) -> None:
    """On disk, it keeps its modification time, and no other file is left."""
    store.put("d/a", b"one")
    before = store.head("d/a").modified
    found = store.get("d/a")
    store.rewrite_file("d/a", b"another", found.etag)
    assert store.get("d/a").data == b"another"
    if store.uri.scheme is Scheme.LOCAL:
        assert store.head("d/a").modified == before
    with pytest.raises(ObjectChangedError):
        store.rewrite_file("d/a", b"late", found.etag)
    store.delete("d/a")
    with pytest.raises(ObjectChangedError):
        store.rewrite_file("d/a", b"late", found.etag)
    assert paths(store) == []


@pytest.mark.parametrize("size", [0, 5, 9 << 20])
def test_a_file_of_any_size_is_streamed(store: ObjectStore, size: int) -> None:
    if store.uri.scheme is Scheme.MEMORY:
        pytest.skip("no graph is copied to memory")
    files = cast(FileStore, store)
    data = Random(size).randbytes(size)
    with files.writing("d/a") as file:
        file.write(data[:3])
        file.write(data[3:])
    assert b"".join(files.reading("d/a")) == data
    with pytest.raises(ZeroDivisionError), files.writing("d/b"):
        raise ZeroDivisionError
    assert paths(store) == ["d/a"]
    with pytest.raises(ObjectNotFoundError):
        next(iter(files.reading("d/b")))


def test_a_missing_object_is_reported(store: ObjectStore) -> None:
    store.put("directory/file", b"1")
    for path in ("a", "a/b", "directory"):
        with pytest.raises(ObjectNotFoundError) as raised:
            store.get(path)
        assert raised.value.kind is StorageErrorKind.NOT_FOUND
        assert (raised.value.uri, raised.value.path) == (str(store.uri), path)
        with pytest.raises(ObjectNotFoundError):
            store.head(path)
        assert not store.exists(path)


def assert_modified_since(moment: datetime, info: ObjectInfo) -> None:
    """Check a modification time. A store may use whole seconds and its own clock."""
    slack = timedelta(seconds=2)
    assert moment - slack <= info.modified <= datetime.now(UTC) + slack


def test_head_returns_size_and_time(store: ObjectStore) -> None:
    before = datetime.now(UTC)
    store.put("a/b", b"12345")
    info = store.head("a/b")
    assert (info.path, info.size) == ("a/b", 5)
    assert_modified_since(before, info)


# ---- conditions


def test_create_has_one_winner(store: ObjectStore) -> None:
    etag = store.create("claim", b"mine")
    assert store.get("claim").etag == etag
    with pytest.raises(ObjectExistsError) as raised:
        store.create("claim", b"also mine")
    assert raised.value.kind is StorageErrorKind.PRECONDITION
    assert store.get("claim").data == b"mine"


def test_create_has_one_winner_among_threads(store: ObjectStore) -> None:
    def attempt(number: int) -> bool:
        try:
            store.create("claim", str(number).encode())
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(8)))
    assert store.get("claim").data == str(won.index(True)).encode()
    assert won.count(True) == 1


def test_an_object_can_be_created_after_it_was_deleted(store: ObjectStore) -> None:
    store.create("claim", b"1")
    store.delete("claim")
    store.create("claim", b"2")
    assert store.get("claim").data == b"2"


def test_replace_succeeds_if_the_object_is_unchanged(store: ObjectStore) -> None:
    etag = store.create("counter", b"1")
    etag = store.replace("counter", b"2", etag)
    etag = store.replace("counter", b"3", etag)
    assert store.get("counter").data == b"3"
    assert store.get("counter").etag == etag


def test_replace_refuses_a_changed_object(store: ObjectStore) -> None:
    old = store.create("counter", b"1")
    store.put("counter", b"2")
    with pytest.raises(ObjectChangedError) as raised:
        store.replace("counter", b"3", old)
    assert raised.value.kind is StorageErrorKind.PRECONDITION
    assert store.get("counter").data == b"2"


def test_replace_refuses_a_deleted_object(store: ObjectStore) -> None:
    etag = store.create("a/counter", b"1")
    store.delete("a/counter")
    for path in ("a/counter", "never/was"):
        with pytest.raises(ObjectChangedError):
            store.replace(path, b"2", etag)
        assert not store.exists(path)


def test_replace_refuses_an_etag_of_another_object(store: ObjectStore) -> None:
    etag = store.put("a", b"1")
    store.put("b", b"2")
    with pytest.raises(ObjectChangedError):
        store.replace("b", b"3", etag)


def test_replace_has_one_winner_among_threads(store: ObjectStore) -> None:
    etag = store.create("counter", b"start")

    def attempt(number: int) -> bool:
        try:
            store.replace("counter", str(number).encode(), etag)
        except ObjectChangedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(8)))
    assert won.count(True) == 1
    assert store.get("counter").data == str(won.index(True)).encode()


def test_an_object_that_was_changed_back_counts_as_changed(store: ObjectStore) -> None:
    for _ in range(50):
        first = store.put("a", b"same")
        store.put("a", b"other")
        store.put("a", b"same")
        if store.uri.scheme is Scheme.S3:
            # In S3 an etag is a hash of the content, as the contract says.
            store.replace("a", b"new", first)
        else:
            with pytest.raises(ObjectChangedError):
                store.replace("a", b"new", first)


# ---- deleting


def test_delete_is_idempotent(store: ObjectStore) -> None:
    store.put("a/b", b"1")
    for path in ("a/b", "a/b", "a", "never/was"):
        store.delete(path)
    assert paths(store) == []


def test_delete_if_deletes_an_unchanged_object(store: ObjectStore) -> None:
    etag = store.create("lease", b"me")
    store.delete_if("lease", etag)
    assert not store.exists("lease")
    assert paths(store) == []
    with pytest.raises(ObjectNotFoundError):
        store.get("lease")
    with pytest.raises(ObjectNotFoundError):
        store.head("lease")


def test_delete_if_refuses_a_changed_or_deleted_object(store: ObjectStore) -> None:
    etag = store.create("lease", b"me")
    now = store.replace("lease", b"you", etag)
    with pytest.raises(ObjectChangedError):
        store.delete_if("lease", etag)
    assert store.get("lease").data == b"you"
    store.delete_if("lease", now)
    with pytest.raises(ObjectChangedError):
        store.delete_if("lease", now)
    with pytest.raises(ObjectChangedError):
        store.delete_if("never/was", now)
    with pytest.raises(ObjectChangedError):
        store.replace("lease", b"me", now)


def test_create_after_delete_if_has_one_winner(store: ObjectStore) -> None:
    for round_number in range(3):
        etag = store.create("lease", b"me")
        store.delete_if("lease", etag)

        def attempt(number: int) -> bool:
            try:
                store.create("lease", f"{round_number} {number}".encode())  # noqa: B023
            except ObjectExistsError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert won.count(True) == 1
        assert store.get("lease").data == f"{round_number} {won.index(True)}".encode()
        store.delete_if("lease", store.get("lease").etag)
    store.put("lease", b"plain")
    store.delete("lease")
    assert not store.exists("lease")


# ---- listing


def test_list_is_sorted_and_recursive(store: ObjectStore) -> None:
    before = datetime.now(UTC)
    for path in ("b", "a/z", "a/y/x", "a0", "Z", "ä"):
        store.put(path, b"12")
    assert paths(store) == ["Z", "a/y/x", "a/z", "a0", "b", "ä"]
    (info,) = store.list("a/y")
    assert (info.path, info.size) == ("a/y/x", 2)
    assert_modified_since(before, info)


def test_list_excludes_siblings_with_the_same_prefix(store: ObjectStore) -> None:
    for path in ("a/x", "ab/x", "a.x", "a-/x", "b/a/x"):
        store.put(path, b"1")
    assert paths(store, "a") == ["a/x"]
    assert paths(store, "a/") == ["a/x"]
    assert paths(store, "a/x") == []
    assert paths(store, "nowhere") == []


def test_list_returns_many_objects(store: ObjectStore) -> None:
    wanted = [f"many/{number:04d}" for number in range(120)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda path: store.put(path, b"1"), reversed(wanted)))
    assert paths(store, "many") == wanted


def test_delete_prefix_deletes_all_objects_below_it(store: ObjectStore) -> None:
    for path in ("a/x", "a/deep/er/x", "ab/x", "b"):
        store.put(path, b"1")
    store.delete_if("a/deep/er/x", store.get("a/deep/er/x").etag)
    store.delete_prefix("a")
    store.delete_prefix("a")
    store.delete_prefix("b")
    assert paths(store) == ["ab/x", "b"]
    store.put("a/x", b"2")
    assert paths(store, "a") == ["a/x"]


def test_delete_prefix_refuses_the_root(store: ObjectStore) -> None:
    store.put("a", b"1")
    for prefix in ("", ".", "/", "./"):
        with pytest.raises(InputError):
            store.delete_prefix(prefix)
    assert paths(store) == ["a"]


# ---- names


@pytest.mark.parametrize(
    "path", ["../a", "a/../../b", "a/..", "/etc/passwd", "..", "", ".", "a\0b", "a\nb", ".og-lock", "a/.og-tmp-1"]
)
def test_invalid_object_names_are_refused(store: ObjectStore, path: str) -> None:
    for call in (store.get, store.head, store.exists, store.delete, store.delete_prefix):
        with pytest.raises(InputError):
            call(path)
    for write in (store.put, store.create):
        with pytest.raises(InputError):
            write(path, b"1")
    with pytest.raises(InputError):
        store.replace(path, b"1", "etag")
    with pytest.raises(InputError):
        store.delete_if(path, "etag")


def test_an_object_name_has_one_spelling(store: ObjectStore) -> None:
    store.put("a//b/./c/", b"1")
    assert store.get("a/b/c").data == b"1"
    assert paths(store, "./a/") == ["a/b/c"]


@pytest.mark.parametrize(
    "path",
    [
        "ünïcödé/日本語.json",
        "e\u0301/x",
        "a b/c",
        "100%/50%25",
        "#/?",
        "a+b&c=d",
        "'\"",
        "..a/...",
        "*",
        "~/x",
        "a:b",
        "back\\slash",
    ],
)
def test_unusual_object_names_work(store: ObjectStore, path: str) -> None:
    etag = store.create(path, b"1")
    assert store.get(path).data == b"1"
    assert paths(store) == [path]
    assert paths(store, path.rpartition("/")[0]) == [path]
    store.delete_if(path, store.replace(path, b"2", etag))
    store.put(path, b"3")
    store.delete(path)
    assert paths(store) == []


# ---- roots


def test_handles_of_one_root_see_the_same_objects(place: Place) -> None:
    one, other = place.open(), place.open()
    etag = one.create("a", b"1")
    assert other.get("a").etag == etag
    other.replace("a", b"2", etag)
    assert one.get("a").data == b"2"


def test_a_root_inside_another_root_shares_its_objects(place: Place) -> None:
    outer = place.open()
    inner = Place(f"{place.uri}/graphs/one", place.options, place.fsync).open()
    sibling = Place(f"{place.uri}/graphs/one-two", place.options, place.fsync).open()
    etag = inner.create("a", b"1")
    sibling.create("b", b"1")
    outer.replace("graphs/one/a", b"2", etag)
    with pytest.raises(ObjectChangedError):
        inner.replace("a", b"3", etag)
    assert [info.path for info in inner.list()] == ["a"]
    assert paths(outer) == ["graphs/one-two/b", "graphs/one/a"]


def test_opening_a_store_changes_nothing(store: ObjectStore) -> None:
    assert store.list() == []
    assert not store.exists("a")
    store.sync_files([])


# ---- the probe


def test_the_probe_leaves_no_object(store: ObjectStore) -> None:
    probe_create_if_absent(store)
    probe_create_if_absent(store)
    assert paths(store) == []


def test_store_errors_belong_to_the_error_family(store: ObjectStore) -> None:
    with pytest.raises(StorageError) as raised:
        store.get("missing")
    error = raised.value
    assert (error.code, error.retryable) == ("storage", False)
    assert error.hint
    assert str(error) == f"{store.uri}/missing: there is no such object"


def test_many_files_can_be_deleted_at_once(store: ObjectStore) -> None:
    for name in ("t/data/1", "t/data/2", "t/_versions/1", "other"):
        store.put(name, b"x")
    store.delete_files(["t/data/1", "t/_versions/1", "t/data/missing", "nothing/at/all"])
    assert paths(store) == ["other", "t/data/2"]
    store.delete_files([])
    with pytest.raises(InputError):
        store.delete_files(["../outside"])
