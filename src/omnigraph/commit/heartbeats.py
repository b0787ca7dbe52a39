"""Heartbeats: show other processes that the owner of a record is alive.

The owner increments a counter in its record. A watcher reads the record repeatedly. If the record has not changed for
one lease time (by default 30 seconds) on the clock of the watcher, its owner is dead. Clocks of different machines are
never compared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from omnigraph.dataclass import dataclass
from omnigraph.errors import ObjectChangedError, OmnigraphError
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.objects import ObjectStore


@dataclass(slots=True)
class _Record:
    objects: ObjectStore
    path: str
    dump: Callable[[int], bytes]
    etag: str
    seconds: float
    due: float
    beat: int = 0


class HeartbeatSender:
    """Increments the counters of all records of this process. Its thread ends when there are no records."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._lock = threading.RLock()
        """To be taken itself: an interrupt in the methods of the condition would leave it taken."""
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def keep(
        self, name: str, objects: ObjectStore, path: str, dump: Callable[[int], bytes], etag: str, seconds: float
    ) -> None:
        """Keep a record alive until it is dropped.

        Args:
            name: its name for `drop`.
            objects: the store of the record.
            path: its path.
            dump: returns its content for a counter value.
            etag: its current etag. Its counter is 0.
            seconds: the interval between heartbeats.
        """
        with self._lock:
            self._records[name] = _Record(objects, path, dump, etag, seconds, time.monotonic() + seconds)
            if self._thread is None or not self._thread.is_alive():  # a forked child process has no thread
                self._thread = threading.Thread(target=self._run, name="omnigraph heartbeats", daemon=True)
                self._thread.start()
            self._changed.notify()

    def drop(self, name: str) -> None:
        """Stop keeping a record alive."""
        with self._lock:
            self._records.pop(name, None)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._records:
                    self._thread = None
                    return
                name, record = min(self._records.items(), key=lambda item: item[1].due)
                wait = record.due - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
            self._beat(name, record)

    def _beat(self, name: str, record: _Record) -> None:
        record.due = time.monotonic() + record.seconds
        try:
            # Replace the record, but never create it: a process that considers the owner dead may have removed it.
            record.etag = record.objects.replace(record.path, record.dump(record.beat + 1), record.etag)
            record.beat += 1
        except ObjectChangedError:
            with suppress(OmnigraphError):  # the response of the last heartbeat may have been lost
                found = record.objects.get(record.path)
                if found.data == record.dump(record.beat + 1):
                    record.etag, record.beat = found.etag, record.beat + 1
                    return
            self.drop(name)
        except OmnigraphError:
            return  # the next heartbeat tries again


_WATCHED = 10_000
"""Maximum number of records that are watched. Most of them end without being removed by this process."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The content of a record, when this process first saw it, and whether it had another content before."""

    content: bytes
    since: float
    has_changed: bool


class HeartbeatWatch:
    """Remembers the content of records, and when this process first saw it."""

    def __init__(self) -> None:
        self._seen: LruCache[_Seen] = LruCache(_WATCHED)
        self._lock = threading.Lock()

    def silent_for(self, name: str, content: bytes) -> float:
        """Seconds since a record was first seen with its current content; 0 if it was not seen before."""
        now = time.monotonic()
        with self._lock:
            known = self._seen.get(name)
            if known is None or known.content != content:
                known = self._seen.put(name, _Seen(content, now, known is not None))
            return now - known.since

    def has_changed(self, name: str) -> bool:
        """Whether a record has changed since it was first seen, so that its owner was alive."""
        known = self._seen.get(name)
        return known is not None and known.has_changed

    def forget(self, name: str) -> None:
        self._seen.discard(lambda known: known == name)
