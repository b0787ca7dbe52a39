"""Check that a store honours conditional writes."""

from __future__ import annotations

from contextlib import suppress

from ulid_transform import ulid_now

from omnigraph.errors import ObjectChangedError, ObjectExistsError, StorageError, StorageErrorKind
from omnigraph.storage.objects.contract import ObjectStore
from omnigraph.storage.objects.store_clock import check_clock
from omnigraph.storage.uri import Scheme

_ATTEMPTS = 3


def probe_create_if_absent(store: ObjectStore) -> None:
    """Write and remove an object to check that the store honours conditional writes.

    Some stores accept the conditions and ignore them. A graph there would lose commits. The modification time of the
    object also shows the clock of the store.

    Raises:
        StorageError: with kind `Configuration`, if conditions are ignored.
        ClockError: the clock of this machine differs too much from that of the store.
    """
    for _ in range(_ATTEMPTS):
        path = f"__create_if_absent_probe_{ulid_now()}"
        with suppress(ObjectExistsError):
            _first(store, path)
            break
    else:
        raise _conditions_ignored(store, "a new object is reported as existing")
    try:
        with suppress(ObjectExistsError):
            store.create(path, b"second")
            raise _conditions_ignored(store, "an object can be created twice")
        before = store.put(path, b"third")
        store.put(path, b"fourth")
        with suppress(ObjectChangedError):
            store.replace(path, b"fifth", before)
            raise _conditions_ignored(store, "an object that has changed can be replaced")
        if store.uri.scheme is Scheme.S3:
            store.head(path)
            check_clock(store)
    finally:
        store.delete(path)


def _first(store: ObjectStore, path: str) -> None:
    """Create the first object in a store. An error names the store, because the user does not know the object."""
    try:
        store.create(path, b"first")
    except StorageError as error:
        error.message = f"cannot write to {error.message.replace(f'/{path}', '')}"
        error.args = (error.message,)
        raise


def _conditions_ignored(store: ObjectStore, what: str) -> StorageError:
    return StorageError(
        f"the store ignores the conditions of writes: {what}",
        kind=StorageErrorKind.CONFIGURATION,
        uri=str(store.uri),
        hint="a graph needs create-if-absent (If-None-Match) and replace-if-unchanged (If-Match); use another store",
    )
