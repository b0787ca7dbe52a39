"""Record the checksums of staged files before the first table changes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from omnigraph.commit.store import Store
from omnigraph.errors import OmnigraphError
from omnigraph.storage.checksums import RECORDS_KEPT, merge_records, record_names, write_record
from omnigraph.storage.staged import Staged
from omnigraph.storage.uri import Scheme

_LOOK_AFTER = 32
_written = 0
"""Approximate number of checksum records that this process has written."""


def record_checksums(store: Store, operation_id: str, staged: Sequence[Staged]) -> None:
    """Record the size and checksum of every staged file. Only on a local disk.

    The record is not flushed: a loss in a power failure does no harm, and two more flushes would make a small commit
    25% slower. Compacted records are flushed.

    Raises:
        DamagedFileError: a file is missing.
    """
    if store.objects.uri.scheme is Scheme.LOCAL:
        write_record(store.leases, operation_id, store.tables.staged_checksums(staged))


def drop_checksums(store: Store) -> None:
    """Drop the checksums of files that were just removed."""
    if store.objects.uri.scheme is Scheme.LOCAL:
        root = store.objects.uri.path
        merge_records(store.objects, keep=lambda path: os.path.exists(f"{root}/{path}"))


def compact_checksums(store: Store) -> None:
    """Compact the records if there are many. The write is done, so a failure is ignored.

    To save requests, most calls do not list the records.
    """
    global _written
    _written += 1
    if store.objects.uri.scheme is Scheme.LOCAL and _written % _LOOK_AFTER == 1:
        with suppress(OmnigraphError):
            if len(record_names(store.leases)) > RECORDS_KEPT:
                merge_records(store.objects)
