"""Control objects in an S3-compatible store. Only this module and `s3_failures` use `obstore`."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar, cast

import obstore
from obstore.store import S3Store

from omnigraph.errors import (
    InputError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.storage.objects.contract import CHUNK_BYTES, TOMBSTONE, ObjectInfo, ObjectList, StoredObject, normal_path
from omnigraph.storage.objects.s3_failures import is_missing, is_precondition, s3_failure
from omnigraph.storage.objects.store_clock import StoreClock
from omnigraph.storage.s3_settings import S3Settings
from omnigraph.storage.uri import GraphUri

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from obstore import GetOptions, PutMode
    from obstore.store import S3Config

T = TypeVar("T")

_WRITER_ATTRIBUTE = "omnigraph-writer"
"""Attribute with the id of the call that wrote an object, to find the outcome after a lost response."""
RETRY_PAUSES_SECONDS = (0.05, 0.2, 0.8)
"""Pauses between the attempts of a conditional write, in seconds."""

PART_BYTES = 32 << 20
"""Bytes per part of a large upload. S3 allows 10,000 parts: enough for 300 GiB."""

_PARALLEL_PARTS = 3
"""Maximum number of parts that are sent at once."""


class S3ObjectStore:
    """A prefix in a bucket.

    Conditional writes use `If-None-Match` and `If-Match`. They are sent once per attempt, by a client without retries:
    if the first request succeeded and its response was lost, a retry would fail. After a lost response, an attribute of
    the object shows which call wrote it.
    """

    def __init__(self, uri: GraphUri) -> None:
        self._uri = uri
        self._settings = S3Settings.resolve(uri.storage_options, os.environ)
        try:
            self._patient = _client(uri.authority, self._settings, self._settings.max_retries)
            self._once = _client(uri.authority, self._settings, 0)
            self.clock = _clock(uri.authority, self._settings)
            return
        except Exception as error:
            failure = self._failure(error, "", write=False)
        raise failure

    @property
    def uri(self) -> GraphUri:
        return self._uri

    # Reading

    def get(self, path: str) -> StoredObject:
        path = normal_path(path)
        stored, _ = self._read(path)
        if stored.data == TOMBSTONE:
            raise ObjectNotFoundError(str(self._uri), path)
        return stored

    def head(self, path: str) -> ObjectInfo:
        path = normal_path(path)
        meta = self._call(path, lambda: obstore.head(self._patient, self._uri.key(path)))
        self.clock.read(self._uri.key(path), meta["e_tag"], meta["last_modified"])
        if self._is_tombstone(path, meta["size"]):
            raise ObjectNotFoundError(str(self._uri), path)
        return ObjectInfo(path, meta["size"], meta["last_modified"], meta["e_tag"])

    def read_range(self, path: str, start: int, end: int, etag: str | None = None) -> bytes:
        """Read a byte range, if the object is unchanged.

        Args:
            path: the object.
            start: the first byte.
            end: the byte after the last.
            etag: the expected etag; None accepts any.

        Raises:
            ObjectNotFoundError: it does not exist.
            ObjectChangedError: it has changed.
        """
        path = normal_path(path)
        options: GetOptions = {"range": (start, end)}
        if etag is not None:
            options["if_match"] = etag
        try:
            return bytes(obstore.get(self._patient, self._uri.key(path), options=options).bytes())
        except Exception as error:
            changed, missing = is_precondition(error), is_missing(error)
            failure = self._failure(error, path, write=False)
        if changed:
            raise ObjectChangedError(str(self._uri), path)
        raise ObjectNotFoundError(str(self._uri), path) if missing else failure

    def reading(self, path: str) -> Iterator[bytes]:
        """Read an object of any size in chunks.

        Raises:
            ObjectNotFoundError: it does not exist.
            ObjectChangedError: it has changed during the read.
        """
        info = self.head(path)
        for start in range(0, info.size, CHUNK_BYTES):
            yield self.read_range(path, start, min(start + CHUNK_BYTES, info.size), info.etag)

    def exists(self, path: str) -> bool:
        try:
            self.head(path)
        except ObjectNotFoundError:
            return False
        return True

    def list(self, prefix: str = "") -> ObjectList:
        return [info for info in self._list(prefix) if not self._is_tombstone(info.path, info.size)]

    # Writing

    def put(self, path: str, data: bytes) -> str:
        path = normal_path(path)
        _refuse_tombstone(data)
        key = self._uri.key(path)
        with self.clock.writing(key) as etags:
            result = self._call(path, lambda: obstore.put(self._patient, key, data, use_multipart=False), write=True)
            etags.append(self._etag(path, result["e_tag"]))
        return etags[-1]

    @contextmanager
    def writing(self, path: str) -> Iterator[ObjectWriter]:
        """Write an object of any size in chunks. It replaces the old one when the block ends without an error.

        After an error, the old object stays. S3 keeps the uploaded parts until a lifecycle rule of the bucket removes
        them.
        """
        path = normal_path(path)
        key = self._uri.key(path)
        writer = self._call(
            path,
            lambda: obstore.open_writer(self._patient, key, buffer_size=PART_BYTES, max_concurrency=_PARALLEL_PARTS),
            write=True,
        )
        yield ObjectWriter(lambda data: self._call(path, lambda: writer.write(data), write=True))
        self._call(path, writer.close, write=True)

    def create(self, path: str, data: bytes) -> str:
        path = normal_path(path)
        _refuse_tombstone(data)
        for _ in range(len(RETRY_PAUSES_SECONDS)):
            etag = self._conditional_put(path, data, "create")
            if etag is not None:
                return etag
            try:
                there, _ = self._read(path)
            except ObjectNotFoundError:
                continue  # just deleted
            if there.data != TOMBSTONE:
                break
            etag = self._conditional_put(path, data, {"e_tag": there.etag})
            if etag is not None:
                return etag
        raise ObjectExistsError(str(self._uri), path)

    def replace(self, path: str, data: bytes, etag: str) -> str:
        path = normal_path(path)
        _refuse_tombstone(data)
        return self._replace(path, data, etag)

    def delete(self, path: str) -> None:
        path = normal_path(path)
        try:
            self._call(path, lambda: obstore.delete(self._patient, self._uri.key(path)), write=True)
        except ObjectNotFoundError:
            return

    def delete_if(self, path: str, etag: str) -> None:
        """Replace an object by a tombstone.

        S3 clients have no conditional delete, and a delete after a read is a race. So a tombstone replaces the object.
        The tombstone is not removed at once, because this could remove a new object that another process has just
        written there. All methods treat a tombstone as a missing object. `delete` and `delete_prefix` remove it.
        """
        self._replace(normal_path(path), TOMBSTONE, etag)

    def delete_prefix(self, prefix: str) -> None:
        prefix = normal_path(prefix)
        keys = [self._uri.key(info.path) for info in self._list(prefix)]
        if keys:
            self._call(prefix, lambda: obstore.delete(self._patient, keys), write=True)

    def delete_files(self, paths: Iterable[str]) -> None:
        keys = [self._uri.key(normal_path(path)) for path in paths]
        if keys:
            self._call("", lambda: obstore.delete(self._patient, keys), write=True)

    def rewrite_file(self, path: str, data: bytes, etag: str) -> None:
        self._replace(normal_path(path), data, etag)

    def sync_files(self, paths: Iterable[str], *, levels: int | None = None) -> None:
        """Does nothing: an object store acknowledges only durable writes."""

    # Steps

    def _read(self, path: str) -> tuple[StoredObject, str | None]:
        """An object, and the id of the call that wrote it."""

        def read() -> tuple[bytes, str | None, str | None]:
            result = obstore.get(self._patient, self._uri.key(path))
            self.clock.read(self._uri.key(path), result.meta["e_tag"], result.meta["last_modified"])
            return bytes(result.bytes()), result.meta["e_tag"], result.attributes.get(_WRITER_ATTRIBUTE)

        data, etag, writer = self._call(path, read)
        return StoredObject(data, self._etag(path, etag)), writer

    def _list(self, prefix: str) -> ObjectList:
        prefix = normal_path(prefix, root=True)
        start = len(self._uri.path) + 1 if self._uri.path else 0
        below = self._uri.key(prefix) or None
        found = self._call(prefix, lambda: obstore.list(self._patient, below).collect())
        infos = [ObjectInfo(meta["path"][start:], meta["size"], meta["last_modified"], meta["e_tag"]) for meta in found]
        # A folder that was created in a web console is an empty object. It is listed without its final slash.
        folders = {prefix, *(parent for info in infos for parent in _parents(info.path))}
        return sorted((info for info in infos if info.size or info.path not in folders), key=lambda info: info.path)

    def _is_tombstone(self, path: str, size: int) -> bool:
        if size != len(TOMBSTONE):
            return False
        try:
            return self._read(path)[0].data == TOMBSTONE
        except ObjectNotFoundError:
            return True

    def _replace(self, path: str, data: bytes, etag: str) -> str:
        new = self._conditional_put(path, data, {"e_tag": etag})
        if new is None:
            raise ObjectChangedError(str(self._uri), path)
        return new

    def _conditional_put(self, path: str, data: bytes, mode: PutMode) -> str | None:
        """Write exactly once, if a condition holds. None if it does not hold.

        Raises:
            StorageError: with kind `Unknown`, if a response was lost and another call has written the object since.
        """
        with self.clock.writing(self._uri.key(path)) as etags:
            etag = self._put_if(path, data, mode)
            if etag is not None:
                etags.append(etag)
        return etag

    def _put_if(self, path: str, data: bytes, mode: PutMode) -> str | None:
        writer = token_hex(16)
        lost_answer: StorageError | None = None
        failure: StorageError | None = None
        for pause in (*RETRY_PAUSES_SECONDS, None):
            try:
                result = obstore.put(
                    self._once,
                    self._uri.key(path),
                    data,
                    mode=mode,
                    attributes={_WRITER_ATTRIBUTE: writer},
                    use_multipart=False,
                )
                return self._etag(path, result["e_tag"])
            except Exception as error:
                if is_precondition(error):
                    if lost_answer is None:
                        return None
                    break
                failure = self._failure(error, path, write=True)
            if failure.kind is StorageErrorKind.UNKNOWN:
                lost_answer = failure
            elif failure.kind is not StorageErrorKind.TRANSIENT:
                break
            if pause is not None:
                time.sleep(pause)
        if lost_answer is None:
            assert failure is not None
            raise failure
        return self._own(path, writer, lost_answer)

    def _own(self, path: str, writer: str, doubt: StorageError) -> str:
        """The etag of an object, if this call wrote it."""
        try:
            stored, wrote = self._read(path)
        except StorageError:
            raise doubt from None
        if wrote != writer:
            raise doubt
        return stored.etag

    def _etag(self, path: str, etag: str | None) -> str:
        if etag is None:
            raise StorageError(
                "the store returns no etag",
                kind=StorageErrorKind.CONFIGURATION,
                uri=str(self._uri),
                path=path,
                hint="the store lacks a feature that a graph needs; use another store",
            )
        return etag

    def _call(self, path: str, request: Callable[[], T], *, write: bool = False) -> T:
        try:
            return request()
        except Exception as error:
            missing = is_missing(error)
            failure = self._failure(error, path, write=write)
        # Raise outside of the handler. Otherwise Python would attach the client's exception, which may contain
        # credentials.
        if missing:
            raise ObjectNotFoundError(str(self._uri), path)
        raise failure

    def _failure(self, error: Exception, path: str, *, write: bool) -> StorageError:
        return s3_failure(error, str(self._uri), path, write=write, secrets=self._settings.secrets)


class ObjectWriter(io.RawIOBase):
    """An object that is being written. `close` does nothing: the end of the `with` block finishes the upload."""

    def __init__(self, send: Callable[[ReadableBuffer], int]) -> None:
        self._send = send

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        # The client keeps the buffer until a part is sent, so a buffer that the caller may change is copied.
        return self._send(data if isinstance(data, bytes) else bytes(data))


@lru_cache(maxsize=64)
def _client(bucket: str, settings: S3Settings, retries: int) -> S3Store:
    """One client, with one connection pool, for all stores in a bucket with the same options."""
    return S3Store(
        bucket,
        config=cast("S3Config", settings.client_config()),
        retry_config={
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=settings.retry_seconds),
            "backoff": {"init_backoff": timedelta(seconds=0.05), "max_backoff": timedelta(seconds=2), "base": 2},
        },
    )


def _parents(path: str) -> Iterator[str]:
    """All directories above a path."""
    parent = path.rpartition("/")[0]
    while parent:
        yield parent
        parent = parent.rpartition("/")[0]


@lru_cache(maxsize=64)
def _clock(bucket: str, settings: S3Settings) -> StoreClock:
    """The clock of a store, shared by all handles with the same options."""
    return StoreClock()


def _refuse_tombstone(data: bytes) -> None:
    if data == TOMBSTONE:
        raise InputError("this content marks a deleted object", hint="write something else")
