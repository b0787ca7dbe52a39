"""An object store with injected failures, delays and call counts, for tests of code that writes control objects.

store = FaultyStore(open_store("memory://test"))
store.fail_before("replace")             # the next replace raises, and nothing happened
store.fail_after("put", nth=2)           # the second put from now takes effect, then raises
store.delay("get", 0.1, path="lease")    # the next get of this path waits first
...
assert store.count("put") == 2
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Literal, TypeVar

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.objects import ObjectInfo, ObjectStore, StoredObject
from omnigraph.storage.uri import GraphUri

T = TypeVar("T")
ObjectList = list[ObjectInfo]

Operation = Literal[
    "get",
    "head",
    "exists",
    "put",
    "create",
    "replace",
    "delete",
    "delete_if",
    "list",
    "delete_prefix",
    "delete_files",
    "sync_files",
    "rewrite_file",
]


@dataclass
class _Fault:
    operation: Operation
    path: str | None
    calls_left: int
    before: BaseException | None = None
    after: BaseException | None = None
    seconds: float = 0


class FaultyStore:
    """Passes all calls to another store, except for injected faults. Each fault happens once."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.calls: list[tuple[Operation, str]] = []
        self._faults: list[_Fault] = []
        self._lock = Lock()

    def fail_before(
        self, operation: Operation, nth: int = 1, *, path: str | None = None, error: BaseException | None = None
    ) -> None:
        """Make the nth such call from now raise without doing anything."""
        before = error or self._error(operation, StorageErrorKind.TRANSIENT)
        self._faults.append(_Fault(operation, path, nth, before=before))

    def fail_after(
        self, operation: Operation, nth: int = 1, *, path: str | None = None, error: BaseException | None = None
    ) -> None:
        """Make the nth such call from now take effect and then raise, like a lost answer."""
        after = error or self._error(operation, StorageErrorKind.UNKNOWN)
        self._faults.append(_Fault(operation, path, nth, after=after))

    def delay(self, operation: Operation, seconds: float, nth: int = 1, *, path: str | None = None) -> None:
        """Make the nth such call from now wait before it does anything."""
        self._faults.append(_Fault(operation, path, nth, seconds=seconds))

    def count(self, operation: Operation | None = None, path: str | None = None) -> int:
        """The number of calls, including failed ones."""
        return sum(1 for op, at in list(self.calls) if operation in (None, op) and path in (None, at))

    def reset(self) -> None:
        """Clear the pending faults and the recorded calls."""
        with self._lock:
            self._faults.clear()
            self.calls.clear()

    def _error(self, operation: Operation, kind: StorageErrorKind) -> StorageError:
        return StorageError(f"injected fault in {operation}", kind=kind, uri=str(self.inner.uri))

    def _pass(self, operation: Operation, path: str, call: Callable[[], T]) -> T:
        due: list[_Fault] = []
        with self._lock:
            self.calls.append((operation, path))
            for fault in list(self._faults):
                if fault.operation == operation and fault.path in (None, path):
                    fault.calls_left -= 1
                    if fault.calls_left == 0:
                        self._faults.remove(fault)
                        due.append(fault)
        for fault in due:
            time.sleep(fault.seconds)
            if fault.before is not None:
                raise fault.before
        result = call()
        for fault in due:
            if fault.after is not None:
                raise fault.after
        return result

    # The contract

    @property
    def uri(self) -> GraphUri:
        return self.inner.uri

    def get(self, path: str) -> StoredObject:
        return self._pass("get", path, lambda: self.inner.get(path))

    def head(self, path: str) -> ObjectInfo:
        return self._pass("head", path, lambda: self.inner.head(path))

    def exists(self, path: str) -> bool:
        return self._pass("exists", path, lambda: self.inner.exists(path))

    def put(self, path: str, data: bytes) -> str:
        return self._pass("put", path, lambda: self.inner.put(path, data))

    def create(self, path: str, data: bytes) -> str:
        return self._pass("create", path, lambda: self.inner.create(path, data))

    def replace(self, path: str, data: bytes, etag: str) -> str:
        return self._pass("replace", path, lambda: self.inner.replace(path, data, etag))

    def rewrite_file(self, path: str, data: bytes, etag: str) -> None:
        self._pass("rewrite_file", path, lambda: self.inner.rewrite_file(path, data, etag))

    def delete(self, path: str) -> None:
        self._pass("delete", path, lambda: self.inner.delete(path))

    def delete_if(self, path: str, etag: str) -> None:
        self._pass("delete_if", path, lambda: self.inner.delete_if(path, etag))

    def list(self, prefix: str = "") -> ObjectList:
        return self._pass("list", prefix, lambda: self.inner.list(prefix))

    def delete_prefix(self, prefix: str) -> None:
        self._pass("delete_prefix", prefix, lambda: self.inner.delete_prefix(prefix))

    def delete_files(self, paths: Iterable[str]) -> None:
        self._pass("delete_files", "", lambda: self.inner.delete_files(paths))

    def sync_files(self, paths: Iterable[str], *, levels: int | None = None) -> None:
        self._pass("sync_files", "", lambda: self.inner.sync_files(paths, levels=levels))
