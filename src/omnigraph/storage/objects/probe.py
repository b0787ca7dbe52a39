"""Whether a store keeps the promises that writing a graph stands on."""

from __future__ import annotations

from contextlib import suppress

from ulid_transform import ulid_now

from omnigraph.errors import ObjectChangedError, ObjectExistsError, StorageError, StorageErrorKind
from omnigraph.storage.objects.contract import ObjectStore
from omnigraph.storage.objects.store_clock import check_clock
from omnigraph.storage.uri import Scheme

_ATTEMPTS = 3


def probe_create_if_absent(store: ObjectStore) -> None:
    """Write and remove one object to see that conditions on writes are honoured.

    There are stores that accept the conditions and ignore them; a graph in one of those would lose commits. The object
    also shows the time that it is for the store.

    Raises:
        StorageError: with kind `Configuration` when they are not honoured.
        ClockError: the clock of this machine is too far from that of the store.
    """
    for _ in range(_ATTEMPTS):
        path = f"__create_if_absent_probe_{ulid_now()}"
        with suppress(ObjectExistsError):
            store.create(path, b"first")
            break
    else:
        raise _not_honoured(store, "a new object is reported to exist")
    try:
        with suppress(ObjectExistsError):
            store.create(path, b"second")
            raise _not_honoured(store, "an object can be created twice")
        before = store.put(path, b"third")
        store.put(path, b"fourth")
        with suppress(ObjectChangedError):
            store.replace(path, b"fifth", before)
            raise _not_honoured(store, "an object can be replaced that was changed meanwhile")
        if store.uri.scheme is Scheme.S3:
            store.head(path)
            check_clock(store)
    finally:
        store.delete(path)


def _not_honoured(store: ObjectStore, what: str) -> StorageError:
    return StorageError(
        f"the store does not honour conditions on writes: {what}",
        kind=StorageErrorKind.CONFIGURATION,
        uri=str(store.uri),
        hint="a graph needs create-if-absent (If-None-Match) and replace-if-unchanged (If-Match); use another store",
    )
