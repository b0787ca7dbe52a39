"""Writes whose files could not be forced to disk: they are marked, and then only ever undone.

After a failed `fsync` the kernel may forget that data was not written, and the next `fsync` succeeds although the data
is lost. So the first failure decides. The mark is in the sidecar, where every process sees it that could finish the
write.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.commit.sidecar import Sidecar
from omnigraph.commit.store import Store

_unmarked: set[str] = set()
"""Operations of which this process knows that a flush failed, and that it could not mark yet."""


def mark_rollback_only(store: Store, sidecar: Sidecar) -> Sidecar:
    """Mark a sidecar as one that may only be rolled back, durably. Returns the marked one.

    Raises:
        ObjectNotFoundError: the sidecar is gone: another process has settled the write.
        ObjectChangedError: another process has marked it at this very moment.
        StorageError: it cannot be marked. This process remembers that, and marks it before it settles it.
    """
    _unmarked.add(sidecar.operation_id)
    marked = replace(sidecar, rollback_only=True)
    etag = store.objects.get(sidecar.path).etag
    store.objects.replace(sidecar.path, marked.dump(), etag)
    _unmarked.discard(sidecar.operation_id)
    return marked


def with_pending_mark(store: Store, sidecar: Sidecar) -> Sidecar:
    """A sidecar as it may be settled: with the mark that could not be written when the flush failed."""
    return mark_rollback_only(store, sidecar) if sidecar.operation_id in _unmarked else sidecar
