"""A staged write: its files exist, and no reader sees them until it is committed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import field
from typing import Any

import pyarrow as pa
from lance import Transaction

from omnigraph.dataclass import dataclass
from omnigraph.errors import ConflictError
from omnigraph.storage.table_files import data_file_name
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import ENGINE_MARK


class TableConflictError(ConflictError):
    """A staged write could not become the next version of its table. Internal to the engine."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A write whose files exist and that no reader can see. Opaque outside this package.

    Attributes:
        base: the version that it was staged against.
        transaction_id: id of the Lance transaction. The committed version records it.
        rows_added: the number of rows that the table gains.
        rows_removed: the number of rows that the table loses.
        rows_updated: the number of rows that are replaced.
        then: the next commit of the same write; None if there is none.
        files: paths of all its files, below the root. In an object store, an index is listed as its directory.
        ids: the ids that staging looked up; None if it looked up none.
        transaction: the Lance transaction.
        paths: as `files`, but with directories (indexes, large blobs) instead of the files in them.
        restage: stages the same files against another version.
        restores: the version that a restore restores; None for other writes.
        written: the data file of its only new fragment, and the ids of all rows in it; None if they are not known.
    """

    base: TableRef
    transaction_id: str
    rows_added: int
    rows_removed: int
    transaction: Transaction
    paths: tuple[str, ...]
    then: Staged | None = None
    files: tuple[str, ...] = ()
    ids: pa.ChunkedArray | None = field(default=None, compare=False, repr=False)
    restage: Callable[[TableRef], Staged | None] | None = field(default=None, compare=False, repr=False)
    restores: TableRef | None = None
    rows_updated: int = 0
    written: tuple[str, pa.Array] | None = field(default=None, compare=False, repr=False)

    def rebase(self, base: TableRef) -> Staged | None:
        """The same write for another version of the same branch, without writing its rows again.

        Returns:
            None if the versions differ in something that the write depends on.
        """
        if self.restage is None or (base.path, base.branch) != (self.base.path, self.base.branch):
            return None
        return self.restage(base)

    @property
    def steps(self) -> Iterator[Staged]:
        """The commits of the write, in order."""
        step: Staged | None = self
        while step is not None:
            yield step
            step = step.then


def staged(
    root: str,
    base: TableRef,
    transaction: Transaction,
    *,
    added: int = 0,
    removed: int = 0,
    updated: int = 0,
    known: Collection[str] = (),
) -> Staged:
    """Mark a transaction as one of this engine, and list its files.

    Args:
        root: the graph root.
        base: the version that it was staged against.
        transaction: the transaction, which was not committed yet.
        added: the number of rows that the table gains.
        removed: the number of rows that the table loses.
        updated: the number of rows that are replaced.
        known: data files of the base that the transaction lists again.
    """
    transaction.transaction_properties = {ENGINE_MARK: "1"}
    paths = [f"{base.directory}/{name}" for name in _new_files(transaction.operation, known)]
    # Large blobs are in a directory beside their data file.
    blobs = [path.removesuffix(".lance") for path in paths if path.endswith(".lance")]
    paths += [path for path in blobs if os.path.isdir(f"{root}/{path}")]
    files = tuple(file for path in paths for file in _files_at(root, path))
    return Staged(
        base, str(transaction.uuid), added, removed, transaction, tuple(paths), None, files, rows_updated=updated
    )


def _files_at(root: str, path: str) -> list[str]:
    """The path itself if it is a file, else all files below it."""
    place = f"{root}/{path}"
    if not os.path.isdir(place):
        return [path]
    return [f"{path}{found[len(place) :]}/{file}" for found, _, files in os.walk(place) for file in files]


def _new_files(operation: Any, known: Collection[str]) -> list[str]:
    """Files and directories below the dataset that a staged operation wrote."""
    groups = [fragment for group in getattr(operation, "groups", ()) for fragment in group.new_fragments]
    fragments = [*getattr(operation, "fragments", ()), *getattr(operation, "new_fragments", ()), *groups]
    names = [data_file_name(file) for fragment in fragments for file in fragment.files]
    files = [f"data/{name}" for name in names if name not in known]
    for fragment in getattr(operation, "updated_fragments", ()):
        if fragment.deletion_file is not None:
            files.append(fragment.deletion_file.path(fragment.id))
    return files + [f"_indices/{index.uuid}" for index in getattr(operation, "new_indices", ())]
