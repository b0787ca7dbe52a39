"""Writes with a failed flush: their sidecar is marked, and they can only be rolled back.

After a failed `fsync` the kernel may forget that data was not written, and the next `fsync` succeeds although the data
is lost. So after the first failed `fsync`, the write is always undone. The sidecar is marked, so that no process
completes the write.
"""

# See docs/decisions/0140-a-failed-flush-decides.md

from __future__ import annotations

from dataclasses import replace

from omnigraph.commit.sidecar import Sidecar
from omnigraph.commit.store import Store

_unmarked: set[str] = set()
"""Ids of writes with a failed flush whose sidecars this process could not mark yet."""


def mark_rollback_only(store: Store, sidecar: Sidecar) -> Sidecar:
    """Mark a sidecar as rollback-only, durably. Returns the marked sidecar.

    Raises:
        ObjectNotFoundError: the sidecar is missing: another process has settled the write.
        ObjectChangedError: another process marks it at the same time.
        StorageError: the sidecar cannot be marked. This process remembers the write, and marks it before it settles it.
    """
    _unmarked.add(sidecar.operation_id)
    marked = replace(sidecar, rollback_only=True)
    etag = store.objects.get(sidecar.path).etag
    store.objects.replace(sidecar.path, marked.dump(), etag)
    _unmarked.discard(sidecar.operation_id)
    return marked


def with_pending_mark(store: Store, sidecar: Sidecar) -> Sidecar:
    """Mark the sidecar as rollback-only, if an earlier attempt of this process to write the mark failed."""
    return mark_rollback_only(store, sidecar) if sidecar.operation_id in _unmarked else sidecar
