"""Control objects: small files that are read and written as a whole, with one contract for every store.

Example:
    >>> store = open_store("memory://example")
    >>> etag = store.create("greeting", b"hello")
    >>> store.get("greeting").data
    b'hello'
    >>> _ = store.replace("greeting", b"hello again", etag)
    >>> [info.path for info in store.list()]
    ['greeting']
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.storage.objects.contract import ObjectInfo, ObjectStore, StoredObject
from omnigraph.storage.objects.probe import probe_create_if_absent
from omnigraph.storage.uri import GraphUri, Scheme

__all__ = ["ObjectInfo", "ObjectStore", "StoredObject", "open_store", "probe_create_if_absent"]


def open_store(
    uri: GraphUri | str, storage_options: Mapping[str, str] | None = None, *, fsync: bool = True
) -> ObjectStore:
    """Open the object store at an address. Accesses nothing yet. Handles are cheap and thread-safe.

    Args:
        uri: the root.
        storage_options: options to reach an S3 store; override the environment.
        fsync: flush every write to a directory before it returns.

    Raises:
        InputError: the address is invalid, or an option has an invalid value.
        StorageError: with kind `Configuration`, for an unknown option.
    """
    if isinstance(uri, str):
        uri = GraphUri.parse(uri, storage_options)
    elif storage_options is not None:
        uri = uri.with_options(storage_options)
    # Import each backend when it is used: a command that reads a local graph should not load an S3 client.
    if uri.scheme is Scheme.S3:
        from omnigraph.storage.objects.s3 import S3ObjectStore

        return S3ObjectStore(uri)
    if uri.scheme is Scheme.MEMORY:
        from omnigraph.storage.objects.memory import MemoryObjectStore

        return MemoryObjectStore(uri)
    from omnigraph.storage.objects.local import LocalObjectStore

    return LocalObjectStore(uri, fsync=fsync)
