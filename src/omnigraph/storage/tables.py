"""Tables of one graph: creation, forks, versions and commits.

`TableStorage.at` returns a `TableView` for all reads of one version. The functions of `staging` write files and
return a `Staged`; only `commit_staged` moves a table to a new version.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError

from omnigraph.errors import DamagedFileError, StorageError
from omnigraph.storage.blobs import stored_schema
from omnigraph.storage.checksums import Checksums, file_checksums
from omnigraph.storage.datasets import Datasets
from omnigraph.storage.lance_failures import (
    REF_ERRORS,
    UNREADABLE,
    is_conflict,
    lance_failure,
    read_refs,
    remove_ref,
    reporting,
)
from omnigraph.storage.staged import Staged, TableConflictError
from omnigraph.storage.table_files import Needs, needs, versions
from omnigraph.storage.table_ref import TableRef, branch_ref_path
from omnigraph.storage.table_view import TableView

SYNC_LEVELS = 2
"""Directories to flush above each file of a commit: a commit may create the directory of a file, but not its parent."""


class Sync(Protocol):
    """Makes files durable, given their paths below the root, and the directories above them."""

    def __call__(self, paths: Iterable[str], *, levels: int | None = None) -> None: ...


class TableStorage:
    """The tables below one root.

    Args:
        root: the graph root in the form that Lance takes.
        options: storage options for object stores.
        sync: makes files durable; None if the store does that itself.
    """

    def __init__(
        self,
        root: str,
        options: Mapping[str, str] | None = None,
        sync: Sync | None = None,
    ) -> None:
        self._root = root
        self.datasets = Datasets(root, options)
        self._sync = sync

    @property
    def is_durable(self) -> bool:
        """Whether files are flushed before a commit is acknowledged."""
        return self._sync is not None

    def at(self, ref: TableRef) -> TableView:
        """One exact version of a table, for reading and staging. Opens nothing yet."""
        return TableView(self.datasets, ref)

    # Creation and forks: no reader sees the new files until a manifest points at them

    def create(self, path: str, schema: pa.Schema) -> TableRef:
        """Create an empty table."""
        with reporting(self._root, path, write=True):
            made = LanceDataset.commit(
                f"{self._root}/{path}",
                LanceOperation.Overwrite(stored_schema(schema), []),
                storage_options=self.datasets.options,
                enable_stable_row_ids=True,
            )
        ref = TableRef(path, None, int(made.version))
        self._sync_version(ref)
        return self.sealed(ref)

    def fork(self, ref: TableRef, name: str) -> TableRef:
        """Create a branch of a table at an exact version. Copies nothing."""
        # Use a new handle: Lance cannot create a branch with a handle that another thread reads with.
        base = self.datasets.open_uncached(ref)
        with reporting(self._root, ref.path, write=True):
            branch = base.create_branch(name, ref.version)
        fork = TableRef(ref.path, name, int(branch.version))
        self._sync_version(fork)
        if self._sync is not None:
            self._sync([f"{ref.path}/{branch_ref_path(name)}"])
        return fork

    def drop_fork(self, path: str, branch: str) -> None:
        """Remove a branch of a table. No manifest may point at it."""
        try:
            with reporting(self._root, path, REF_ERRORS, write=True):
                remove_ref(lambda: self.datasets.open_main(path).branches.delete(branch))
        except StorageError:
            if branch in self.forks(path):
                raise  # otherwise another process has removed it
        self.datasets.forget_branch(path, branch)

    def forks(self, path: str) -> list[str]:
        """The branches of a table, sorted."""
        with reporting(self._root, path, REF_ERRORS):
            return sorted(read_refs(self.datasets.open_main(path).branches.list))

    def fork_points(self, path: str) -> dict[str, TableRef]:
        """The version at which each branch of a table was created."""
        with reporting(self._root, path, REF_ERRORS):
            listed = read_refs(self.datasets.open_main(path).branches.list)
        return {
            name: TableRef(path, info["parent_branch"], int(info["parent_version"])) for name, info in listed.items()
        }

    # Versions

    def head(self, path: str, branch: str | None) -> int | None:
        """The newest version of a table; None if the table or branch does not exist."""
        found = self.datasets.find(path, branch, None)
        return None if found is None else int(found.version)

    def is_head(self, ref: TableRef) -> bool:
        """Whether a version is certainly the newest of its branch. Reads no file of the table."""
        try:
            return int(self.datasets.open(ref).latest_version) == ref.version
        except (OSError, ValueError, RuntimeError):
            return False

    def versions(self, path: str, branch: str | None) -> list[int]:
        """All versions of a table, oldest first; empty if the table or branch does not exist."""
        found = self.datasets.find(path, branch, None, cached=False)
        if found is None:
            return []
        with reporting(self._root, path, UNREADABLE):
            return versions(found)

    def needs(self, path: str, branch: str | None, stay: Collection[int], gone: Collection[int]) -> Needs:
        """The files of the versions that cleanup keeps, and of the versions that it removes."""

        def at(version: int | None) -> LanceDataset | None:
            return self.datasets.find(path, branch, version, cached=False)

        found = at(None)
        if found is None:
            return Needs()
        with reporting(self._root, path, UNREADABLE):
            return needs(found, path, stay, gone, at)

    def forget(self, path: str) -> None:
        """Drop everything that is cached of a table. To be called after versions of it were removed."""
        self.datasets.forget(path)

    # Commits

    def commit_staged(self, staged: Staged) -> TableRef:
        """Commit a staged write as the next version after its base. Tries once.

        Raises:
            TableConflictError: the table has a newer version. If Lance rebased the write onto a version of another
                program, the table now has a version that no manifest points at; recovery undoes it.
            VersionReclaimedError: the base, or the version to restore, was removed.
        """
        base, restores = staged.base, staged.restores
        handle = self.datasets.open_with_indexes(base) if restores is None else self.datasets.open_unchecked(restores)
        try:
            made = LanceDataset.commit(handle, staged.transaction, max_retries=0)
        except CommitConflictError as error:
            raise TableConflictError(f"{base.path}: {error}") from error
        except OSError as error:
            if is_conflict(error):
                raise TableConflictError(f"{base.path}: {error}") from error
            raise lance_failure(error, self._root, base.path, write=True) from error
        ref = base.at(int(made.version))
        if ref.version != base.version + 1:
            raise TableConflictError(f"{base.path}: expected version {base.version + 1}, got {ref.version}")
        # After a restore, the files are checked at the next read.
        if restores is None and not self.datasets.damaged_indexes(base):
            self.datasets.add(ref, made)
            if staged.written is not None:
                self.datasets.id_fragments(ref).note(made, *staged.written)
        return ref

    def make_durable(self, committed: Sequence[Staged]) -> None:
        """Flush committed writes to disk, all at once. To be called before a manifest points at them."""
        if self._sync is not None:
            self._sync(self.written_files(committed), levels=SYNC_LEVELS)

    def written_files(self, committed: Sequence[Staged]) -> list[str]:
        """All files that committed writes have written, below the root."""
        files: list[str] = []
        for staged in (step for each in committed for step in each.steps):
            base = staged.base
            files += staged.paths
            files.append(f"{base.directory}/_transactions/{base.version}-{staged.transaction_id}.txn")
            files.append(base.at(base.version + 1).manifest_path)
        return files

    def staged_checksums(self, staged: Sequence[Staged]) -> Checksums:
        """Checksums of all files of staged writes, on a local disk.

        Raises:
            DamagedFileError: a file is missing.
        """
        try:
            return file_checksums(self._root, [path for each in staged for step in each.steps for path in step.paths])
        except OSError as error:
            path = os.path.relpath(str(error.filename), self._root)
            raise DamagedFileError(self._root, path, "it was removed before its write was committed") from error

    def sealed(self, ref: TableRef) -> TableRef:
        """The version with the checksum of its manifest file, to be recorded in the graph's manifest.

        Raises:
            DamagedFileError: the file is damaged.
        """
        return ref if ref.seal is not None else replace(ref, seal=self.datasets.seal(ref))

    def _sync_version(self, ref: TableRef) -> None:
        if self._sync is not None:
            self._sync([ref.manifest_path])
