"""Control objects in memory: one set per name, shared by the whole process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from datetime import UTC, datetime
from itertools import count
from threading import Lock

from omnigraph.dataclass import dataclass
from omnigraph.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from omnigraph.storage.objects.contract import ObjectInfo, ObjectList, StoredObject, normal_path
from omnigraph.storage.uri import GraphUri


@dataclass(frozen=True, slots=True)
class _Entry:
    stored: StoredObject
    modified: datetime


@dataclass(slots=True)
class _Memory:
    lock: Lock = field(default_factory=Lock)
    versions: count[int] = field(default_factory=lambda: count(1))
    objects: dict[str, _Entry] = field(default_factory=dict)


_memories: dict[str, _Memory] = {}
_memories_lock = Lock()


class MemoryObjectStore:
    """Objects that exist as long as the process. Lance stores tables with the same address separately."""

    def __init__(self, uri: GraphUri) -> None:
        self._uri = uri
        with _memories_lock:
            self._memory = _memories.setdefault(uri.authority, _Memory())

    @property
    def uri(self) -> GraphUri:
        return self._uri

    def get(self, path: str) -> StoredObject:
        return self._find(path).stored

    def head(self, path: str) -> ObjectInfo:
        entry = self._find(path)
        return ObjectInfo(normal_path(path), len(entry.stored.data), entry.modified)

    def exists(self, path: str) -> bool:
        return self._key(path) in self._memory.objects

    def put(self, path: str, data: bytes) -> str:
        with self._memory.lock:
            return self._store(path, data)

    def create(self, path: str, data: bytes) -> str:
        with self._memory.lock:
            if self.exists(path):
                raise ObjectExistsError(str(self._uri), normal_path(path))
            return self._store(path, data)

    def replace(self, path: str, data: bytes, etag: str) -> str:
        with self._memory.lock:
            self._expect(path, etag)
            return self._store(path, data)

    def delete(self, path: str) -> None:
        with self._memory.lock:
            self._memory.objects.pop(self._key(path), None)

    def delete_if(self, path: str, etag: str) -> None:
        with self._memory.lock:
            self._expect(path, etag)
            del self._memory.objects[self._key(path)]

    def list(self, prefix: str = "") -> ObjectList:
        below = self._below(prefix)
        start = len(self._uri.path) + 1 if self._uri.path else 0
        with self._memory.lock:
            found = [(key, entry) for key, entry in self._memory.objects.items() if key.startswith(below)]
        return [
            ObjectInfo(key[start:], len(entry.stored.data), entry.modified) for key, entry in sorted(found, key=_by_key)
        ]

    def delete_prefix(self, prefix: str) -> None:
        below = self._below(normal_path(prefix))
        with self._memory.lock:
            for key in [key for key in self._memory.objects if key.startswith(below)]:
                del self._memory.objects[key]

    def delete_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def rewrite_file(self, path: str, data: bytes, etag: str) -> None:
        self.replace(path, data, etag)

    def sync_files(self, paths: Iterable[str], *, levels: int | None = None) -> None:
        """Does nothing: there are no files."""

    def _key(self, path: str) -> str:
        return self._uri.key(normal_path(path))

    def _below(self, prefix: str) -> str:
        key = self._uri.key(normal_path(prefix, root=True))
        return f"{key}/" if key else ""

    def _find(self, path: str) -> _Entry:
        entry = self._memory.objects.get(self._key(path))
        if entry is None:
            raise ObjectNotFoundError(str(self._uri), normal_path(path))
        return entry

    def _store(self, path: str, data: bytes) -> str:
        etag = str(next(self._memory.versions))
        self._memory.objects[self._key(path)] = _Entry(StoredObject(bytes(data), etag), datetime.now(UTC))
        return etag

    def _expect(self, path: str, etag: str) -> None:
        entry = self._memory.objects.get(self._key(path))
        if entry is None or entry.stored.etag != etag:
            raise ObjectChangedError(str(self._uri), normal_path(path))


def _by_key(found: tuple[str, _Entry]) -> str:
    return found[0]
