"""Recording the checksums of what a write staged, before its first table moves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from omnigraph.commit.store import Store
from omnigraph.errors import OmnigraphError
from omnigraph.storage.checksums import RECORDS_KEPT, fold_records, record_names, write_record
from omnigraph.storage.staged import Staged
from omnigraph.storage.uri import Scheme

_LOOK_AFTER = 32
_written = 0
"""How many records this process has written, about."""


def record_checksums(store: Store, operation_id: str, staged: Sequence[Staged]) -> None:
    """Record the length and checksum of every file that a write staged. On a local disk only.

    The record is not forced to disk: one that a power failure takes does no harm, and two more flushes would cost a
    small commit a quarter of its time. Folded records are.

    Raises:
        DamagedFileError: a file is gone.
    """
    if store.objects.uri.scheme is Scheme.LOCAL:
        write_record(store.leases, operation_id, store.tables.staged_checksums(staged))


def drop_checksums(store: Store) -> None:
    """Forget the checksums of files that are gone, for who has just removed some."""
    if store.objects.uri.scheme is Scheme.LOCAL:
        root = store.objects.uri.path
        fold_records(store.objects, keep=lambda path: os.path.exists(f"{root}/{path}"))


def compact_checksums(store: Store) -> None:
    """Fold records when they have become many. The write is done: a failure is of no consequence.

    To see how many there are takes a listing, which is made once in a while.
    """
    global _written
    _written += 1
    if store.objects.uri.scheme is Scheme.LOCAL and _written % _LOOK_AFTER == 1:
        with suppress(OmnigraphError):
            if len(record_names(store.leases)) > RECORDS_KEPT:
                fold_records(store.objects)
