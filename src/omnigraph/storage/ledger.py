"""A ledger: a small table whose versions are published strictly one after another.

`__manifest` and the recovery audit are ledgers. A ledger version consists of parts: immutable data files with rows. A
publish keeps some parts of the base version and adds new parts. It writes only the new rows, and succeeds only if the
base is still the newest version. This is the compare-and-swap that the whole commit protocol relies on.
"""

# See docs/decisions/0030-the-manifest-has-a-state-part.md

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.dataset import Session  # type: ignore[attr-defined]  # public, but not declared so
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    CorruptionError,
    DamagedFileError,
    OmnigraphError,
    StorageError,
    StorageErrorKind,
    VersionReclaimedError,
)
from omnigraph.storage.base_paths import at_root, open_dataset
from omnigraph.storage.lance_failures import (
    REF_ERRORS,
    UNREADABLE,
    is_conflict,
    is_missing,
    is_panic,
    lance_failure,
    read_refs,
    remove_ref,
    reporting,
)
from omnigraph.storage.latest_version import (
    VERSIONS,
    base_directories,
    latest_damage,
    missing_latest,
    versions_on_disk,
)
from omnigraph.storage.ledger_seal import Parts, read_seal, sealed_schema
from omnigraph.storage.staged import TableConflictError
from omnigraph.storage.table_files import Needs, below, data_file_name, needs, versions
from omnigraph.storage.table_ref import branch_ref_path, manifest_name, table_directory
from omnigraph.storage.tables import Sync

UNDECODABLE = (ArithmeticError, AttributeError, CorruptionError, LookupError, TypeError, ValueError, pa.ArrowException)
"""Exceptions that decoders raise for rows with invalid content."""

T = TypeVar("T")

_CACHE_BYTES = 1 << 20
"""Lance may cache so much metadata of the versions that follow an opened one.

A commit hands the cache of its base on to the new version and adds a manifest to it, so a process that writes for a
long time fills it. The default of Lance is 1 GiB. Only the newest version is needed, and its manifest is in its handle.
"""


def _new_session() -> Session:
    return Session(metadata_cache_size_bytes=_CACHE_BYTES, index_cache_size_bytes=_CACHE_BYTES)


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """One exact version of a ledger. Opaque except for its attributes.

    Attributes:
        branch: its branch; None for the main branch.
        parts: number of rows of each part, in order.
        path: the file of the version, below the root.
    """

    branch: str | None
    version: int
    parts: tuple[int, ...]
    path: str
    _dataset: LanceDataset
    _fragments: tuple[FragmentMetadata, ...]
    _files: tuple[tuple[str, str | None], ...]
    _checks: Parts
    _open_again: Callable[[], LanceDataset | None]

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self._dataset.schema
        return schema

    def read_part(self, index: int) -> pa.Table:
        """The rows of one part.

        Raises:
            DamagedFileError: its file is damaged.
        """
        return self._rows([index])

    def read_parts(self, indexes: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Columns of some parts, in order.

        Raises:
            DamagedFileError: a file is damaged.
        """
        return self._rows(sorted(indexes), columns)

    def read_rows(self, index: int, start: int, count: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Some consecutive rows of one part.

        Args:
            index: the part.
            start: number of its first row to read.
            count: number of rows.
            columns: the columns; by default all.

        Raises:
            DamagedFileError: its file is damaged.
        """
        return self._rows([index], columns, rows=(start, count))

    @property
    def part_names(self) -> tuple[str, ...]:
        """Name of each part. Parts of different versions or branches with the same name have the same rows."""
        return tuple(data_file_name(fragment.files[0]) for fragment in self._fragments)

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        indexes: Sequence[int] | None = None,
    ) -> pa.Table:
        """The rows of all parts, or of some.

        Raises:
            DamagedFileError: a file is damaged.
        """
        return self._rows(indexes if indexes is None else sorted(indexes), columns, filter)

    def _rows(
        self,
        indexes: Sequence[int] | None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        rows: tuple[int, int] | None = None,
    ) -> pa.Table:
        """The rows of some parts; None for all. `rows` is the first row and the number of rows, of a single part.

        All reads of parts go through here, and each file is verified by its checksum first. A process verifies a file
        once.
        """
        parts = range(len(self.parts)) if indexes is None else indexes
        try:
            for index in parts:
                self._checks.check(*self._files[index], self.path)
            with reporting(self._dataset.uri, "", UNREADABLE):
                return self._scan(indexes, list(columns) if columns else None, filter, rows)
        except StorageError as error:
            is_damaged = isinstance(error, DamagedFileError) and not error.is_missing
            if error.kind is StorageErrorKind.PERMANENT and not is_damaged and self._is_removed():
                raise VersionReclaimedError(
                    f"version {self.version} of {self.path.rpartition('/_versions/')[0]} no longer exists",
                    hint="cleanup has removed it: read the newest version",
                ) from error
            if error.kind is not StorageErrorKind.PERMANENT or isinstance(error, DamagedFileError):
                raise
            raise self._damaged(parts, error, lambda index: self._rows([index], columns)) from error

    def _is_removed(self) -> bool:
        """Whether cleanup has removed this version since it was opened. Then its parts may be missing, too."""
        try:
            return self._open_again() is None
        except OmnigraphError:
            return False

    def _scan(
        self,
        indexes: Sequence[int] | None,
        columns: list[str] | None,
        filter: pc.Expression | None,
        rows: tuple[int, int] | None,
    ) -> pa.Table:
        table: pa.Table
        if indexes is not None and rows is not None:
            start, count = rows
            table = self._dataset.get_fragments()[indexes[0]].to_table(columns, limit=count, offset=start)
        elif indexes is None:
            table = self._dataset.to_table(columns, filter)
        elif len(indexes) == 1:
            table = self._dataset.get_fragments()[indexes[0]].to_table(columns, filter)
        else:
            fragments = self._dataset.get_fragments()
            table = self._dataset.scanner(columns, filter, fragments=[fragments[i] for i in indexes]).to_table()
        return table

    def decoded(self, rows: pa.Table, decode: Callable[[pa.Table], T], indexes: Sequence[int] | None = None) -> T:
        """Decode rows. Rows that cannot be decoded are damage, and the error names their file.

        Args:
            rows: rows from parts of this version.
            decode: the decoder. After a failure, it is called for each part, to find the damaged one.
            indexes: numbers of the parts that the rows come from; by default all.

        Raises:
            DamagedFileError: they cannot be decoded.
        """
        try:
            return decode(rows)
        except UNDECODABLE as error:
            parts = range(len(self.parts)) if indexes is None else indexes
            raise self._damaged(parts, error, lambda index: decode(self.read_part(index))) from error

    def damaged_row(self, column: str, value: str, error: Exception) -> DamagedFileError | None:
        """The error for a row that cannot be decoded, with its file; None if this version does not have it."""
        for index in range(len(self.parts)):
            if value in self.read_parts([index], [column])[column].to_pylist():
                return self._damaged([index], error, self.read_part)
        return None

    def _damaged(self, indexes: Sequence[int], error: Exception, attempt: Callable[[int], object]) -> DamagedFileError:
        """The error for parts that cannot be read or decoded. Tries each part to find the damaged one."""
        if len(indexes) > 1:
            for index in indexes:
                try:
                    attempt(index)
                except DamagedFileError as found:
                    return found
                except UNDECODABLE as found:
                    return self._damaged([index], found, attempt)
        path = self._files[indexes[0]][0] if len(indexes) == 1 else self.path
        reason = error.message if isinstance(error, OmnigraphError) else f"{type(error).__name__}: {error}"
        return DamagedFileError(self._checks.root, path, f"it cannot be read: {reason}")


@dataclass(frozen=True, slots=True)
class LedgerBranch:
    """A branch: where it was created, and an identifier that differs for a later branch with the same name."""

    name: str
    parent: str | None
    parent_version: int
    identifier: str


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """The next version of a ledger: its new parts are written, but it is not published. Opaque except for its base."""

    base: LedgerVersion
    _transaction: Transaction
    _added: tuple[FragmentMetadata, ...]


@dataclass(frozen=True, slots=True)
class LedgerTag:
    name: str
    branch: str | None
    version: int
    created_at: datetime | None


class Ledger:
    """One ledger below a graph root.

    Args:
        root: the graph root in the form that Lance takes.
        path: path of the ledger below it.
        options: storage options for object stores.
        sync: makes files durable, given their paths below the root; None if the store does that itself.
    """

    def __init__(
        self,
        root: str,
        path: str,
        options: Mapping[str, str] | None = None,
        sync: Sync | None = None,
    ) -> None:
        self.path = path
        self._root = root
        self._options = dict(options) if options else None
        self._sync = sync
        self._parts = Parts(root)

    def create(self, schema: pa.Schema, rows: pa.Table) -> LedgerVersion:
        """Create the first version, with one part. Exactly one of several concurrent creators succeeds.

        Raises:
            TableConflictError: the ledger exists.
        """
        if self.open() is not None:
            raise TableConflictError(f"{self.path} exists")
        uri = self._uri(None)
        with reporting(self._root, self.path):
            fragments = write_fragments(rows, uri, schema=schema, mode="create", storage_options=self._options)
        sealed = sealed_schema(schema, 1, fragments, self._parts.sums(self.path, fragments))
        made = self._commit(uri, None, Transaction(0, LanceOperation.Overwrite(sealed, fragments)), fragments)
        found = self.open()  # a handle with a limited cache
        if found is None or found.version != made.version:
            # Another process created the ledger while this one was paused, and cleanup has removed its version 1.
            raise TableConflictError(f"{self.path} exists")
        return found

    def open(self, branch: str | None = None, version: int | None = None) -> LedgerVersion | None:
        """Open a version, by default the newest; None if the ledger or branch does not exist.

        Raises:
            VersionReclaimedError: the branch exists, but not the version.
            StorageError: it cannot be read, so it is unknown whether it exists.
        """
        dataset = self._find(branch, version)
        if dataset is not None:
            return self._version(branch, dataset, version)
        if version is None or self._find(branch, None) is None:
            return None
        directory = table_directory(self.path, branch)
        missing = f"there is no {directory}/_versions/{manifest_name(version)}"
        raise VersionReclaimedError(f"version {version} of {directory} no longer exists: {missing}")

    def _find(self, branch: str | None, version: int | None) -> LanceDataset | None:
        try:
            # No shared session: its cache keys are path and version, and a branch that was deleted and created again
            # has the same paths and versions with other contents.
            session = _new_session()
            return open_dataset(self._root, self.path, branch, version, options=self._options, session=session)
        except OmnigraphError:
            raise
        except Exception as error:
            if is_missing(error):
                return None
            raise self._unopened(error, branch, version) from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise self._unopened(error, branch, version) from error

    def _unopened(self, error: BaseException, branch: str | None, version: int | None) -> Exception:
        """The error for a version that Lance cannot open. Names the damaged file, if there is one."""
        directory = table_directory(self.path, branch)
        failure = lance_failure(error, self._root, directory)
        damaged = latest_damage(self._root, directory, version)
        if damaged is not None or failure.kind is not StorageErrorKind.PERMANENT or not self._parts.on_disk:
            return damaged or failure
        newest = max(versions_on_disk(self._root, directory), default=0) if version is None else version
        path = f"{directory}/{VERSIONS}/{manifest_name(newest)}"
        return DamagedFileError(self._root, path, f"it cannot be read: {failure.message}") if newest else failure

    def _version(self, branch: str | None, dataset: LanceDataset, requested: int | None = None) -> LedgerVersion:
        """Check a version that was opened. Lance reads a file of zeros as an empty version 0."""
        found = int(dataset.version)
        path = f"{table_directory(self.path, branch)}/_versions/{manifest_name(found)}"
        try:
            return self._read(branch, dataset, requested)
        except (OmnigraphError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise DamagedFileError(self._root, path, "it cannot be read") from error

    def _read(self, branch: str | None, dataset: LanceDataset, requested: int | None) -> LedgerVersion:
        directory = table_directory(self.path, branch)
        found = int(dataset.version)
        if found == 0 or requested not in (None, found):
            damaged = latest_damage(self._root, directory, requested)
            raise damaged or DamagedFileError(
                self._root, f"{directory}/_versions", "its newest file is not a valid version"
            )
        fragments = tuple(fragment.metadata for fragment in dataset.get_fragments())
        path = f"{directory}/_versions/{manifest_name(found)}"
        sums = read_seal(dataset, self._root, path, found, fragments) or {}
        shared = self._parts.on_disk and any(part.files[0].base_id is not None for part in fragments)
        bases = base_directories(dataset) if shared else {}
        files = tuple(
            (self._part_path(branch, bases, part), sums.get(data_file_name(part.files[0]))) for part in fragments
        )
        rows = tuple(int(fragment.num_rows) for fragment in fragments)
        again = partial(self._find, branch, found)
        return LedgerVersion(branch, found, rows, path, dataset, fragments, files, self._parts, again)

    def _part_path(self, branch: str | None, bases: Mapping[int, str], part: FragmentMetadata) -> str:
        """Path of a part's file, below the root. Parts of a branch may be in the directory of its parent."""
        file = part.files[0]
        directory = table_directory(self.path, branch)
        if file.base_id is not None and file.base_id in bases:
            directory = below(bases[file.base_id], self.path)
        return f"{directory}/data/{data_file_name(file)}"

    def versions(self, branch: str | None = None) -> list[int]:
        """All versions, oldest first; empty if the ledger or branch does not exist."""
        found = self._find(branch, None)
        if found is None:
            return []
        with reporting(self._root, self.path, UNREADABLE):
            return versions(found)

    def needs(self, branch: str | None, stay: Collection[int], gone: Collection[int]) -> Needs:
        """The files of the versions that cleanup keeps, and of the versions that it removes.

        Args:
            branch: the branch; None for the main branch.
            stay: the known versions that stay. New versions stay, too.
            gone: the versions that are removed.
        """
        found = self._find(branch, None)
        if found is None:
            return Needs()
        with reporting(self._root, self.path, UNREADABLE):
            # A ledger has no indexes, so its versions need not be opened one by one.
            return needs(found, self.path, (), gone, lambda version: self._find(branch, version))

    def open_whole(self) -> LedgerVersion | None:
        """The newest version, after a check that no newer version was lost; None if the ledger does not exist.

        Raises:
            DamagedFileError: the newest version is damaged or missing.
        """
        found = self.open()
        lost = missing_latest(self._root, self.path, 0 if found is None else found.version)
        if lost is not None:
            raise lost
        return found

    def newest(self, known: LedgerVersion) -> LedgerVersion | None:
        """The newest version of the same branch; cheap if the given version is still the newest."""
        try:
            latest = int(known._dataset.latest_version)
        except (OSError, ValueError, RuntimeError):
            return self.open(known.branch)
        if latest == known.version:
            return known
        return self.open(known.branch)

    def publish(
        self, base: LedgerVersion, keep: Sequence[int], add: Sequence[pa.Table], *, schema: pa.Schema | None = None
    ) -> LedgerVersion:
        """Publish the next version: the kept parts of the base, in order, then one part per added table.

        Raises:
            TableConflictError: another version was published since `base`. Nothing happened.
        """
        return self.commit(self.stage(base, keep, add, schema=schema))

    def stage(
        self, base: LedgerVersion, keep: Sequence[int], add: Sequence[pa.Table], *, schema: pa.Schema | None = None
    ) -> StagedVersion:
        """Write the new parts of the next version. Nothing is visible or flushed yet.

        Args:
            base: the version that must be the newest.
            keep: the parts of the base to keep.
            add: the new parts.
            schema: the same columns with other metadata; by default those of the base.
        """
        with reporting(self._root, self.path):
            added = [
                fragment
                for rows in add
                for fragment in write_fragments(rows, base._dataset, schema=base.schema, mode="append")
            ]
        fragments = [base._fragments[i] for i in keep] + added
        recorded = {data_file_name(part.files[0]): base._files[i][1] for i, part in enumerate(base._fragments)}
        sums = recorded | self._parts.sums(table_directory(self.path, base.branch), added)
        sealed = sealed_schema(schema or base.schema, base.version + 1, fragments, sums)
        # Overwrite without retries is the only operation that Lance commits only if the base is the newest version.
        transaction = Transaction(base.version, LanceOperation.Overwrite(sealed, fragments))
        return StagedVersion(base, transaction, tuple(added))

    def files_of(self, staged: StagedVersion) -> list[str]:
        """The files of the new parts of a staged version, below the root."""
        return self._part_files(staged.base.branch, staged._added)

    def commit(self, staged: StagedVersion, *, flushed: bool = False) -> LedgerVersion:
        """Publish a staged version.

        Args:
            staged: the version.
            flushed: whether the caller has flushed the files of its parts.

        Raises:
            TableConflictError: another version was published since its base. Nothing happened.
        """
        base = staged.base
        return self._commit(base._dataset, base.branch, staged._transaction, () if flushed else staged._added)

    def _commit(
        self,
        target: LanceDataset | str,
        branch: str | None,
        transaction: Transaction,
        added: Sequence[FragmentMetadata],
    ) -> LedgerVersion:
        if added:
            # Flush before the commit, so that a power failure leaves no version that points at an incomplete file.
            self._flush(branch, added, [], created=transaction.read_version == 0)
        try:
            made = LanceDataset.commit(target, transaction, max_retries=0, storage_options=self._options)
        except CommitConflictError as error:
            raise TableConflictError(f"{self.path}: {error}") from error
        except OSError as error:
            if is_conflict(error):
                raise TableConflictError(f"{self.path}: {error}") from error
            raise lance_failure(error, self._root, self.path, write=True) from error
        self._flush(branch, [], [int(made.version)], created=made.version == 1)
        return self._version(branch, self._at_root(made))

    def make_durable(self, version: LedgerVersion) -> None:
        """Flush a version. Its publisher may have died before it flushed the version."""
        self._flush(version.branch, version._fragments, [version.version], created=True)

    def _flush(
        self, branch: str | None, parts: Sequence[FragmentMetadata], versions: Sequence[int], *, created: bool
    ) -> None:
        if self._sync is None:
            return
        directory = table_directory(self.path, branch)
        files = self._part_files(branch, parts)
        files += [f"{directory}/_versions/{manifest_name(version)}" for version in versions]
        self._sync(files, levels=None if created else 2)

    def _part_files(self, branch: str | None, parts: Sequence[FragmentMetadata]) -> list[str]:
        """The files of some parts, below the root.

        Parts from before the branch was created are in the directory of its parent, and were flushed there.
        """
        own = [file for part in parts for file in part.files if file.base_id is None]
        return [f"{table_directory(self.path, branch)}/data/{data_file_name(file)}" for file in own]

    def _at_root(self, made: LanceDataset) -> LanceDataset:
        return at_root(made, self._root, self.path, options=self._options, session=made.session())

    def _uri(self, branch: str | None) -> str:
        return f"{self._root}/{table_directory(self.path, branch)}"

    def _main(self) -> LanceDataset:
        found = self._find(None, None)
        if found is None:
            raise CorruptionError(f"{self.path} is missing", hint="another program removed files")
        return found

    # Branches and tags

    def branches(self) -> dict[str, LedgerBranch]:
        """All branches by name."""
        with self._refs():
            listed = read_refs(self._main().branches.list)
        return {
            name: LedgerBranch(
                name, info["parent_branch"], int(info["parent_version"]), str(info["branch_identifier"][-1][1])
            )
            for name, info in sorted(listed.items())
        }

    def branch_ref(self, name: str) -> str:
        """Path of a branch's ref, below the root."""
        return f"{self.path}/{branch_ref_path(name)}"

    def create_branch(self, name: str, base: LedgerVersion) -> LedgerVersion:
        """Create a branch at a version. It exists as soon as its ref does."""
        # Use a new handle: Lance cannot create a branch with a handle that another thread reads with.
        own = self._find(base.branch, base.version)
        if own is None:
            raise VersionReclaimedError(
                f"version {base.version} of {table_directory(self.path, base.branch)} no longer exists"
            )
        with self._refs(write=True):
            made = own.create_branch(name, base.version)
        if self._sync is not None:
            manifest = f"{table_directory(self.path, name)}/_versions/{manifest_name(int(made.version))}"
            self._sync([manifest, self.branch_ref(name)])
        # Lance copied the base paths of the base version from disk. They may point to an old location of the graph.
        return self._version(name, self._at_root(made))

    def delete_branch(self, name: str) -> None:
        """Remove a branch: its ref first, then its files."""
        with self._refs(write=True):
            remove_ref(lambda: self._main().branches.delete(name))

    def tags(self) -> dict[str, LedgerTag]:
        """All tags by name. Only graphs of format 1 have them."""
        with self._refs():
            listed = read_refs(self._main().tags.list)
        return {
            name: LedgerTag(name, info["branch"], int(info["version"]), info["created_at"])
            for name, info in sorted(listed.items())
        }

    def delete_tag(self, name: str) -> None:
        """Remove a Lance tag of a graph of format 1, if it exists. Lance cannot remove a branch with a Lance tag."""
        if name in self.tags():
            with self._refs(write=True):
                self._main().tags.delete(name)

    def _refs(self, *, write: bool = False) -> AbstractContextManager[None]:
        return reporting(self._root, f"{self.path}/_refs", REF_ERRORS, write=write)
