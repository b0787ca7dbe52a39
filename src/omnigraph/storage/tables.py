"""Tables: the only code that talks to Lance.

Writing is staged: a primitive writes files and returns a `Staged` handle, and only `commit_staged` moves a table's
HEAD. No method does both, so nobody can move a HEAD and forget to publish it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.dataset import Index, Session  # type: ignore[attr-defined]  # public, but not declared so
from lance.fragment import FragmentMetadata, write_fragments
from lance.query import FullTextOperator, MatchQuery, PhraseQuery

from omnigraph.errors import (
    WAY_OUT,
    ConflictError,
    DamagedFileError,
    InputError,
    KeyConflictError,
    OmnigraphError,
    StorageError,
    StorageErrorKind,
    VersionReclaimedError,
)
from omnigraph.storage.base_paths import at_root, open_dataset
from omnigraph.storage.blobs import (
    StoredBlob,
    check_blobs_by,
    find_blob,
    read_range,
    stored_blobs,
    stored_columns,
    stored_schema,
    with_content,
)
from omnigraph.storage.change import Replaced, RowSource, StagedChange, TableRows, replaced, with_row_ids
from omnigraph.storage.change import stage as stage_rows
from omnigraph.storage.checksums import Sums, sum_files
from omnigraph.storage.difference import RESTORED, Difference, difference, restored, touched
from omnigraph.storage.file_checks import FileChecks, FileDamage, Looked
from omnigraph.storage.files import Needs, below, needs, versions
from omnigraph.storage.fingerprints import fingerprint, parts
from omnigraph.storage.fragments import Fragment, fragments, read_fragments
from omnigraph.storage.handles import HandleCache
from omnigraph.storage.indexes import (
    Coverage,
    IndexSpec,
    build,
    coverage,
    damaged_segments,
    distinct,
    fit,
    looked_up,
    others,
    superseded,
    uncovered,
    uncovered_values,
    vector_metrics,
)
from omnigraph.storage.lance_failures import (
    REF_ERRORS,
    UNREADABLE,
    is_conflict,
    is_missing,
    lance_failure,
    panics,
    reporting,
    with_refs,
    without_ref,
)
from omnigraph.storage.lookup import matching
from omnigraph.storage.newest import base_directories, damaged_newest, opened_without_indexes
from omnigraph.storage.scans import filtered, lacking, scanner

_ID = "id"
_WITH_INDEXES = "with indexes"
_LOG = logging.getLogger("omnigraph")

_MARK = "omnigraph:staged"
"""The property of every transaction that this engine commits to a table."""

_BELOW_TABLE = 2
"""A commit adds files to a table's directories, and may be the first to need one of them."""


class Sync(Protocol):
    """Makes files durable, given their paths below the root, and the directories above them."""

    def __call__(self, paths: Iterable[str], *, levels: int | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class TableRef:
    """One exact version of one table.

    Attributes:
        path: the dataset's place below the graph root.
        branch: the Lance branch that the version is on; None is the dataset itself.
        version: the version, never "latest".
        seal: a checksum of the version's manifest file, where it is known.
    """

    path: str
    branch: str | None
    version: int
    seal: str | None = field(default=None, compare=False)

    def at(self, version: int) -> TableRef:
        return TableRef(self.path, self.branch, version)


@dataclass(frozen=True, slots=True)
class Staged:
    """A write whose files exist and that no reader can see. Opaque outside this package.

    Attributes:
        base: the version that it was staged against.
        transaction_id: how the commit is recognised afterwards.
        rows_added: rows that the table gains.
        rows_removed: rows that the table loses.
        then: what is committed right after it, as a part of the same write.
        files: the files that it stands on, below the root; of an index in an object store, its directory.
        ids: the rows that staging looked for, if it did.
    """

    base: TableRef
    transaction_id: str
    rows_added: int
    rows_removed: int
    _transaction: Transaction
    _files: tuple[str, ...]
    then: Staged | None = None
    files: tuple[str, ...] = ()
    ids: pa.ChunkedArray | None = field(default=None, compare=False, repr=False)
    _again: Callable[[TableRef], Staged | None] | None = field(default=None, compare=False, repr=False)
    _restores: TableRef | None = None

    def again(self, base: TableRef) -> Staged | None:
        """The same write for another version of the same files, without writing its rows again.

        None when that cannot be done, because the version differs in what the write depends on.
        """
        if self._again is None or (base.path, base.branch) != (self.base.path, self.base.branch):
            return None
        return self._again(base)

    @property
    def steps(self) -> Iterator[Staged]:
        """The commits that it takes, in order."""
        step: Staged | None = self
        while step is not None:
            yield step
            step = step.then


class TableConflictError(ConflictError):
    """A staged write could not become the next version of its table. Internal to the engine."""


class TableStorage:
    """Reads at exact versions, and staged writes, of the tables below one root.

    Args:
        root: the graph root as Lance takes it.
        options: storage options for object stores.
        sync: makes files durable, given their paths below the root; None when the store does that by itself.
    """

    def __init__(
        self,
        root: str,
        options: Mapping[str, str] | None = None,
        sync: Sync | None = None,
    ) -> None:
        self._root = root
        self._options = dict(options) if options else None
        self._sync = sync
        self._session = Session()
        self._checks = FileChecks(root) if "://" not in root else None
        self._handles: HandleCache[LanceDataset] = HandleCache(64)
        self._without_indexes: dict[TableRef, frozenset[str]] = {}
        self._told: set[str] = set()
        self._parts: HandleCache[tuple[str, ...]] = HandleCache(256)

    # Opening

    def _uri(self, path: str, branch: str | None) -> str:
        return f"{self._root}/{table_directory(path, branch)}"

    def _open(self, ref: TableRef) -> LanceDataset:
        return self._handles.get(ref, lambda: self._load(ref))

    def _load(self, ref: TableRef) -> LanceDataset:
        """A version for reading. If files of its indexes are damaged, it is opened as if it had none."""
        damaged = self._check(ref)
        found = self._found(ref)
        if damaged:
            found = opened_without_indexes(found, self._options)
        if self._checks is not None and stored_blobs(found.schema):
            bases = base_directories(found)
            own = table_directory(ref.path, ref.branch)

            def check(name: str, base: int | None) -> None:
                directory = own if base is None else below(bases[base], ref.path)
                checks.check_file(f"{directory}/data/{name}")

            checks = self._checks
            check_blobs_by(found, check)
        return found

    def _intact(self, ref: TableRef) -> LanceDataset:
        """A version with all its indexes, damaged ones too: for commits, and for changing indexes."""
        handle = self._open(ref)
        if ref not in self._without_indexes:
            return handle
        return self._handles.get((ref, _WITH_INDEXES), lambda: self._found(ref))

    def _found(self, ref: TableRef) -> LanceDataset:
        found = self._find(ref.path, ref.branch, ref.version)
        if found is None:
            raise _gone(ref)
        return found

    def _check(self, ref: TableRef) -> bool:
        """Check the files of a version. Whether some of its indexes are damaged.

        Raises:
            DamagedFileError: a file of it is damaged that nothing can stand in for.
        """
        if self._checks is None:
            return False
        directory = table_directory(ref.path, ref.branch)
        manifest = self._checks.manifest(_manifest_path(ref), ref.version, ref.seal)
        if manifest is None:
            return False  # only its makers know of it, or it is gone
        damages = self._checks.check(ref.path, directory, manifest)
        if not damages:
            self._without_indexes.pop(ref, None)
            return False
        for each in damages:
            if each.path in self._told:
                continue
            self._told.add(each.path)
            _LOG.warning(
                "%s is damaged: %s; indexes of the table are left out of account, which is slow; "
                "run 'omnigraph repair', then 'omnigraph optimize'",
                each.path,
                each.reason,
            )
        self._without_indexes[ref] = frozenset(str(each.index) for each in damages)
        return True

    @contextmanager
    def _reporting(self, ref: TableRef, *, write: bool = False) -> Iterator[None]:
        """Turn what Lance raises into errors of the family. If a file of the version is damaged, that is the error."""
        try:
            with reporting(self._root, ref.path, write=write):
                yield
        except StorageError as error:
            if error.kind not in (StorageErrorKind.TRANSIENT, StorageErrorKind.CONFIGURATION):
                self._blame(ref, error)
            raise
        except (OmnigraphError, GeneratorExit):
            raise
        except Exception as error:
            self._blame(ref, error)
            raise

    def _blame(self, ref: TableRef, error: Exception) -> None:
        """Look for a damaged file, after something failed that should not."""
        if self._checks is None:
            return
        damages = self.look(ref).damages
        if damages:
            raise damages[0].error(self._root) from error

    def damages(self, ref: TableRef) -> list[FileDamage]:
        """The damaged files of a version, as far as a first look shows: lengths, and checksums of small files.

        Nothing is remembered from earlier looks.
        """
        if self._checks is None:
            missing = self._find(ref.path, ref.branch, ref.version, remembered=False) is None
            return [FileDamage(_manifest_path(ref), "it is missing")] if missing else []
        return FileChecks(self._root).damages(
            ref.path, table_directory(ref.path, ref.branch), _manifest_path(ref), ref.version, ref.seal
        )

    def look(self, ref: TableRef) -> Looked:
        """Compare all files of a version with what is recorded about them, however large they are.

        Of an object store only their presence can be told, and their lengths: it keeps checksums of its own.

        Raises:
            DamagedFileError: its manifest file is damaged.
            VersionReclaimedError: the version is gone.
        """
        directory = table_directory(ref.path, ref.branch)
        if self._checks is None:
            raise InputError("the files of a graph in an object store are checked by reading them")
        manifest = self._checks.manifest(_manifest_path(ref), ref.version, ref.seal)
        if manifest is None:
            raise VersionReclaimedError(f"{_manifest_path(ref)} is gone", hint=WAY_OUT)
        return self._checks.look(ref.path, directory, manifest)

    def _find(
        self, path: str, branch: str | None, version: int | None, *, remembered: bool = True
    ) -> LanceDataset | None:
        """A dataset, or None when there certainly is none: a store out of reach says nothing about what it holds.

        What was read before counts, unless nothing is to be `remembered`: a version never changes, but it may go.
        """
        session = self._session if remembered else None
        try:
            found = open_dataset(self._root, path, branch, version, options=self._options, session=session)
        except OmnigraphError:
            raise
        except Exception as error:
            if is_missing(error):
                return None
            raise self._unopened(error, path, branch, version) from error
        except BaseException as error:
            if not panics(error):
                raise
            raise self._unopened(error, path, branch, version) from error
        if found.version == 0 or version not in (None, found.version):
            raise self._unopened(ValueError("its newest file is no version"), path, branch, version)
        return found

    def _unopened(self, error: BaseException, path: str, branch: str | None, version: int | None) -> OmnigraphError:
        """What to say about a version that Lance cannot open: which file is damaged, if one is."""
        directory = table_directory(path, branch)
        return damaged_newest(self._root, directory, version) or lance_failure(error, self._root, directory)

    def _trunk(self, path: str) -> LanceDataset:
        found = self._find(path, None, None)
        if found is None:
            raise VersionReclaimedError(f"{path} is gone", hint="the files were changed from outside")
        return found

    def head(self, path: str, branch: str | None) -> int | None:
        """The newest version of a table, or None when there is no such table or branch."""
        found = self._find(path, branch, None)
        return None if found is None else int(found.version)

    def transaction_id(self, ref: TableRef) -> str | None:
        """The id of the transaction that made a version, or None when it cannot be told."""
        try:
            transaction = self._open(ref).read_transaction(ref.version)
        except (TypeError, VersionReclaimedError):
            # Lance cannot decode the transaction of a compaction of an indexed table.
            return None
        return None if transaction is None else str(transaction.uuid)

    def is_ours(self, ref: TableRef) -> bool:
        """Whether a version was committed by this engine, and not by another program."""
        try:
            transaction = self._open(ref).read_transaction(ref.version)
        except (TypeError, VersionReclaimedError):
            return False
        properties = None if transaction is None else transaction.transaction_properties
        return properties is not None and _MARK in properties

    # Creating and forking: these make files that nothing points at until a manifest does

    def create(self, path: str, schema: pa.Schema) -> TableRef:
        """A new, empty table."""
        with reporting(self._root, path, write=True):
            made = LanceDataset.commit(
                self._uri(path, None),
                LanceOperation.Overwrite(stored_schema(schema), []),
                storage_options=self._options,
                enable_stable_row_ids=True,
            )
        ref = TableRef(path, None, int(made.version))
        self._sync_version(ref)
        return self.sealed(ref)

    def fork(self, ref: TableRef, name: str) -> TableRef:
        """A branch of a table that begins at an exact version. Copies nothing."""
        # A handle of its own: Lance refuses to branch from one that another thread is reading with.
        base = self._load(ref)
        with reporting(self._root, ref.path, write=True):
            branch = base.create_branch(name, ref.version)
        fork = TableRef(ref.path, name, int(branch.version))
        self._sync_version(fork)
        if self._sync is not None:
            self._sync([f"{ref.path}/{branch_ref_path(name)}"])
        return fork

    def drop_fork(self, path: str, branch: str) -> None:
        """Remove a branch of a table that nothing points at."""
        try:
            with reporting(self._root, path, REF_ERRORS, write=True):
                without_ref(lambda: self._trunk(path).branches.delete(branch))
        except StorageError:
            if branch in self.forks(path):
                raise  # else somebody else has removed it meanwhile
        self._handles.discard(lambda ref: isinstance(ref, TableRef) and (ref.path, ref.branch) == (path, branch))

    def forks(self, path: str) -> list[str]:
        """The branches of a table, sorted."""
        with reporting(self._root, path, REF_ERRORS):
            return sorted(with_refs(self._trunk(path).branches.list))

    def fork_points(self, path: str) -> dict[str, TableRef]:
        """Where each branch of a table began: the version that it was made from."""
        with reporting(self._root, path, REF_ERRORS):
            listed = with_refs(self._trunk(path).branches.list)
        return {
            name: TableRef(path, info["parent_branch"], int(info["parent_version"])) for name, info in listed.items()
        }

    # What lies there

    def has(self, ref: TableRef) -> bool:
        """Whether a version is there, by looking."""
        return self._find(ref.path, ref.branch, ref.version, remembered=False) is not None

    def versions(self, path: str, branch: str | None) -> list[int]:
        """The versions of a table that are there, oldest first; none when there is no such table or branch."""
        found = self._find(path, branch, None, remembered=False)
        if found is None:
            return []
        with reporting(self._root, path, UNREADABLE):
            return versions(found)

    def needs(self, path: str, branch: str | None, stay: Collection[int], gone: Collection[int]) -> Needs:
        """The files that the versions of a table need that stay, and those that versions need that go."""

        def at(version: int | None) -> LanceDataset | None:
            return self._find(path, branch, version, remembered=False)

        found = at(None)
        if found is None:
            return Needs()
        with reporting(self._root, path, UNREADABLE):
            return needs(found, path, stay, gone, at)

    def forget(self, path: str) -> None:
        """Drop the handles of a table, some of whose versions are gone."""
        self._session = Session()
        self._handles.discard(lambda ref: isinstance(ref, TableRef) and ref.path == path)
        self._parts.discard(lambda ref: isinstance(ref, TableRef) and ref.path == path)
        if self._checks is not None:
            self._checks.forget(path)

    # Staging

    def stage_append(self, base: TableRef, rows: pa.Table) -> Staged | None:
        """New rows, without looking at what is there. Nothing for no rows."""
        if rows.num_rows == 0:
            return None
        dataset = self._open(base)
        with self._reading(base):
            transaction = write_fragments(
                _stream(rows, dataset.schema),
                dataset,
                return_transaction=True,
                allow_external_blob_outside_bases=True,
            )
        operation = transaction.operation
        assert isinstance(operation, LanceOperation.Append)
        return self._appended(base, list(operation.fragments), rows.num_rows)

    def _appended(self, base: TableRef, fragments: Sequence[FragmentMetadata], rows: int) -> Staged:
        """Fragments that are written, as a staged write: to this version or any other."""
        staged = self._staged(base, Transaction(base.version, LanceOperation.Append(list(fragments))), added=rows)
        return replace(staged, _again=lambda later: self._appended(later, fragments, rows))

    def stage_upsert(self, base: TableRef, rows: pa.Table) -> Staged | None:
        """Rows that replace those of the same id, and are added otherwise. Ids must be distinct."""
        if rows.num_rows == 0:
            return None
        if self.count(base) == 0:
            staged = self.stage_append(base, rows)
            return None if staged is None else replace(staged, ids=rows[_ID])
        # Not Lance's own merge: that one brings all rows into memory, and does not take every blob.
        return self.stage_change(base, rows, pa.array([], pa.utf8()))

    def stage_insert(self, base: TableRef, rows: pa.Table) -> Staged | None:
        """New rows whose ids must not exist.

        Raises:
            KeyConflictError: an id exists.
        """
        if rows.num_rows == 0:
            return None
        taken = self.lookup(base, _ID, rows[_ID], columns=[_ID])
        if taken.num_rows:
            raise KeyConflictError(base.path, pc.min(taken[_ID]).as_py())
        staged = self.stage_append(base, rows)
        return None if staged is None else replace(staged, ids=rows[_ID])

    def stage_overwrite(self, base: TableRef, rows: pa.Table) -> Staged:
        """A new content for the whole table, which may be empty."""
        dataset = self._open(base)
        fragments: list[FragmentMetadata] = []
        if rows.num_rows:
            with self._reading(base):
                fragments = write_fragments(
                    _stream(rows, dataset.schema), dataset, mode="append", allow_external_blob_outside_bases=True
                )
        operation = LanceOperation.Overwrite(dataset.schema, fragments)
        transaction = Transaction(base.version, operation)
        return self._staged(base, transaction, added=rows.num_rows, removed=dataset.count_rows())

    def stage_delete(self, base: TableRef, where: pc.Expression) -> Staged | None:
        """The removal of all rows for which a condition holds. Nothing when there are none."""
        ids = self.scan(base, columns=[_ID], filter=where)
        return self.stage_delete_ids(base, ids[_ID])

    def stage_delete_ids(self, base: TableRef, ids: pa.ChunkedArray) -> Staged | None:
        """The removal of rows by id. Nothing when none of them exists."""
        if len(ids) == 0:
            return None
        keys = pa.table({_ID: ids})
        merge = self._open(base).merge_insert(_ID).when_matched_delete()
        with self._reading(base):
            transaction, stats = merge.execute_uncommitted(keys)
        if stats["num_deleted_rows"] == 0:
            return None
        staged = self._staged(base, transaction, removed=stats["num_deleted_rows"])
        return replace(staged, ids=ids, _again=lambda later: self.stage_delete_ids(later, ids))

    def stage_change(
        self, base: TableRef, rows: pa.Table | RowSource, deleted: pa.Array, fragments: Sequence[str] = ()
    ) -> Staged | None:
        """Rows that replace those of the same id or are added, and ids that go, as one step. Nothing for no effect.

        Ids must be distinct, and none may be both written and deleted. Fragments that other processes wrote have rows
        whose ids are new.
        """
        source = TableRows(rows) if isinstance(rows, pa.Table) else rows
        with self._reading(base):
            change = stage_rows(self._open(base), source, deleted)
        if change is None:
            return self.stage_fragments(base, fragments)
        parts = [FragmentMetadata.from_json(text) for text in fragments]
        change.operation.new_fragments = [*(change.operation.new_fragments or ()), *parts]
        return self._changed(base, replace(change, added=change.added + sum(part.num_rows for part in parts)))

    def _changed(self, base: TableRef, change: StagedChange) -> Staged:
        def again(later: TableRef) -> Staged | None:
            with reporting(self._root, later.path):
                moved = change.again(self._open(later))
            return None if moved is None else self._changed(later, moved)

        transaction = Transaction(base.version, change.operation)
        staged = self._staged(base, transaction, added=change.added, removed=change.removed)
        return replace(staged, ids=pa.chunked_array([change.ids]), _again=again)

    def stage_replaced(self, base: TableRef, fragments: Sequence[str], gone: Replaced) -> Staged:
        """Rows that replace others or are new, as one step, all of which other processes wrote.

        Args:
            base: the version.
            fragments: what `write_fragments` returned, in order.
            gone: what `remove_rows` returned, for every row that is replaced.
        """
        parts = [FragmentMetadata.from_json(text) for text in fragments]
        operation = LanceOperation.Update(
            removed_fragment_ids=list(gone.gone),
            updated_fragments=[FragmentMetadata.from_json(text) for text in gone.left],
            new_fragments=parts,
        )
        added = sum(part.num_rows for part in parts) - gone.rows
        return self._staged(base, Transaction(base.version, operation), added=added)

    def remove_rows(self, base: TableRef, addresses: pa.Array) -> Replaced:
        """Write down that rows are gone, for `stage_replaced`, in whatever process.

        Args:
            base: the version that will be changed.
            addresses: where the rows are; all that are gone from a fragment have to be told at once.
        """
        with self._reporting(base, write=True):
            return replaced(self._open(base), addresses)

    def write_fragments(self, base: TableRef, rows: pa.Table, row_ids: pa.Array | None = None) -> tuple[str, ...]:
        """Write rows into a table's directory for `stage_fragments`, in whatever process. Returns what it takes.

        Args:
            base: a version of the table, on the branch that the rows are for.
            rows: may lie in a file.
            row_ids: the ids of the rows that they replace; None for rows that are new.
        """
        if rows.num_rows == 0:
            return ()
        dataset = self._open(base)
        with self._reporting(base, write=True):
            written = write_fragments(
                _stream(rows, dataset.schema), dataset, mode="append", allow_external_blob_outside_bases=True
            )
            if row_ids is not None:
                written = with_row_ids(written, row_ids)
        return tuple(json.dumps(fragment.to_json()) for fragment in written)

    def stage_fragments(self, base: TableRef, fragments: Sequence[str], *, replacing: bool = False) -> Staged | None:
        """Fragments that other processes wrote into the table's directory, as JSON, in the order they should have.

        Args:
            base: the version.
            fragments: what `write_fragments` returned.
            replacing: whether they replace everything that is there.
        """
        if not fragments and not replacing:
            return None
        parts = [FragmentMetadata.from_json(text) for text in fragments]
        added = sum(part.num_rows for part in parts)
        if replacing:
            dataset = self._open(base)
            overwrite = LanceOperation.Overwrite(dataset.schema, parts)
            return self._staged(base, Transaction(base.version, overwrite), added=added, removed=dataset.count_rows())
        return self._appended(base, parts, added)

    def stage_indexes(
        self, base: TableRef, specs: Sequence[IndexSpec], *, kept: Sequence[IndexSpec] | None = None
    ) -> Staged | None:
        """Indexes for all that they do not cover yet. Nothing when they cover everything.

        Args:
            base: the version.
            specs: the indexes.
            kept: the indexes that the table may have; all others go. None keeps all.
        """
        dataset = self._open(base)
        with self._reading(base):
            built = [index for spec in specs if (index := build(dataset, spec)) is not None]
            whole = self._intact(base)
            dropped = list(damaged_segments(whole, self._without_indexes.get(base, ())))
            dropped += [] if kept is None else others(whole, kept)
            gone = distinct([*dropped, *superseded(whole, built)]) if built or dropped or kept is not None else []
        if not built and not gone:
            return None
        return self._indexed(base, built, gone)

    def _indexed(self, base: TableRef, built: Sequence[Index], gone: Sequence[Index]) -> Staged:
        def again(later: TableRef) -> Staged | None:
            with reporting(self._root, later.path):
                fits = fit(self._open(later), built, gone)
            return self._indexed(later, built, gone) if fits else None

        staged = self._staged(base, Transaction(base.version, LanceOperation.CreateIndex(list(built), list(gone))))
        return replace(staged, _again=again)

    def index_coverage(self, ref: TableRef, specs: Sequence[IndexSpec]) -> list[Coverage]:
        """How much of a version each of some indexes covers."""
        with self._reading(ref):
            return [coverage(self._open(ref), spec) for spec in specs]

    def vector_metrics(self, ref: TableRef) -> dict[str, str]:
        """The columns that have an index of vectors, and the metric of each."""
        with self._reading(ref):
            return vector_metrics(self._open(ref))

    def uncovered_values(self, ref: TableRef, spec: IndexSpec) -> int:
        """How many values, nulls aside, an index does not cover yet."""
        with self._reading(ref):
            return uncovered_values(self._open(ref), spec)

    def lacks_indexes(self, ref: TableRef, specs: Sequence[IndexSpec], kept: Sequence[IndexSpec]) -> bool:
        """Whether some indexes do not cover everything, or others are there that should go."""
        dataset = self._open(ref)
        with self._reading(ref):
            unwanted = any(True for _ in others(self._intact(ref), kept))
            return unwanted or ref in self._without_indexes or any(uncovered(dataset, spec) for spec in specs)

    def stage_restore(self, base: TableRef, version: int, *, visible: bool = False) -> Staged:
        """The content of an earlier version as the next one: how an interrupted write is undone.

        Lance refuses no restore that comes late: it lands on whatever is the newest version by then. It carries the
        mark of this engine, so the next writer undoes it.

        Args:
            base: the newest version, of which nothing is read: its files may be damaged.
            version: the version whose content comes back.
            visible: whether the graph has pointed at a later version than that. Then one more commit notes the
                restore, because Lance's records do not show which rows it changed.
        """
        staged = self._staged(base, Transaction(base.version, LanceOperation.Restore(version)))
        staged = replace(staged, _restores=base.at(version))
        if not visible:
            return staged
        made = base.at(base.version + 1)
        note = LanceOperation.UpdateMap({RESTORED: str(made.version)})
        noted = self._staged(made, Transaction(made.version, LanceOperation.UpdateConfig(config_updates=note)))
        return replace(staged, then=noted)

    def is_restored_after(self, ref: TableRef, version: int) -> bool:
        """Whether a restore between two versions took back changes of the earlier one, or of versions before it."""
        with self._reading(ref):
            return restored(self._open(ref)) > version

    def _staged(self, base: TableRef, transaction: Transaction, *, added: int = 0, removed: int = 0) -> Staged:
        transaction.transaction_properties = {_MARK: "1"}
        directory = table_directory(base.path, base.branch)
        files = [f"{directory}/{name}" for name in _new_files(transaction.operation)]
        # Large blobs lie in a directory beside the data file that they belong to.
        blobs = [file.removesuffix(".lance") for file in files if file.endswith(".lance")]
        files += [name for name in blobs if os.path.isdir(f"{self._root}/{name}")]
        members = tuple(member for file in files for member in self._members(file))
        return Staged(base, str(transaction.uuid), added, removed, transaction, tuple(files), None, members)

    def _members(self, name: str) -> list[str]:
        """A file, or the files in a directory."""
        place = f"{self._root}/{name}"
        if not os.path.isdir(place):
            return [name]
        return [f"{name}{found[len(place) :]}/{file}" for found, _, files in os.walk(place) for file in files]

    def staged_sums(self, staged: Sequence[Staged]) -> Sums:
        """The checksums of all files of staged writes, on a local disk.

        Raises:
            DamagedFileError: a file is gone.
        """
        try:
            return sum_files(self._root, [file for each in staged for step in each.steps for file in step._files])
        except OSError as error:
            path = os.path.relpath(str(error.filename), self._root)
            raise DamagedFileError(self._root, path, "it is gone before its write was committed") from error

    # Committing

    def commit_staged(self, staged: Staged) -> TableRef:
        """Make a staged write the next version of its table: one attempt, at the version that it was staged against.

        Raises:
            TableConflictError: the table moved. Lance may have rebased the write onto a foreign version; then the
                table has a version that nobody published, which recovery undoes.
            VersionReclaimedError: the version is gone that the write was staged against, or that it restores.
        """
        base, restores = staged.base, staged._restores
        handle = self._intact(base) if restores is None else self._found(restores)
        try:
            made = LanceDataset.commit(handle, staged._transaction, max_retries=0)
        except CommitConflictError as error:
            raise TableConflictError(f"{base.path}: {error}") from error
        except OSError as error:
            if is_conflict(error):
                raise TableConflictError(f"{base.path}: {error}") from error
            raise lance_failure(error, self._root, base.path, write=True) from error
        ref = base.at(int(made.version))
        if ref.version != base.version + 1:
            raise TableConflictError(f"{base.path}: expected version {base.version + 1}, got {ref.version}")
        # Files that a restore brings back are checked when they are read.
        if restores is None and base not in self._without_indexes:
            home = at_root(made, self._root, base.path, options=self._options, session=self._session)
            self._handles.put(ref, home)
        return ref

    def make_durable(self, committed: Sequence[Staged]) -> None:
        """Force committed writes to disk, all at once: to be done before anything points at them."""
        if self._sync is None:
            return
        files: list[str] = []
        for staged in (step for each in committed for step in each.steps):
            base = staged.base
            directory = table_directory(base.path, base.branch)
            files += staged._files
            files.append(f"{directory}/_transactions/{base.version}-{staged.transaction_id}.txn")
            files.append(f"{directory}/_versions/{manifest_name(base.version + 1)}")
        self._sync(files, levels=_BELOW_TABLE)

    def sealed(self, ref: TableRef) -> TableRef:
        """A version with the checksum of its manifest file, for whoever is about to point at it.

        Raises:
            DamagedFileError: the file is damaged already.
        """
        if self._checks is None or ref.seal is not None:
            return ref
        return replace(ref, seal=self._checks.seal_of(_manifest_path(ref), ref.version))

    def _sync_version(self, ref: TableRef) -> None:
        if self._sync is not None:
            self._sync([f"{table_directory(ref.path, ref.branch)}/_versions/{manifest_name(ref.version)}"])

    # Reading

    def schema(self, ref: TableRef) -> pa.Schema:
        with self._reporting(ref):
            schema: pa.Schema = self._open(ref).schema
        return schema

    @contextmanager
    def _reading(self, ref: TableRef) -> Iterator[None]:
        """Report a failed read. If the version is gone, cleanup took it, however Lance puts it.

        Cleanup removes versions before the files that they need, so whoever misses a file can see why.
        """
        try:
            with self._reporting(ref):
                yield
        except StorageError as error:
            with suppress(StorageError):
                if not self.has(ref):
                    raise _gone(ref) from error
            raise

    def count(self, ref: TableRef, where: pc.Expression | None = None) -> int:
        with self._reading(ref):
            if where is None:
                return int(self._open(ref).count_rows())
            return len(filtered(self._open(ref), [_ID], where))

    def scan(
        self,
        ref: TableRef,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows of a version, as one table."""
        dataset = self._open(ref)
        with self._reading(ref):
            return filtered(dataset, columns, filter, limit)

    def lookup(self, ref: TableRef, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        """The rows whose column `by` has one of some values, in no order.

        Few values are looked up, by an index where there is one. For many, the column is read once as a stream. Either
        way only what is found is kept in memory.
        """
        with self._reading(ref):
            return matching(self._open(ref), by, values, columns)

    def batches(self, ref: TableRef, *, columns: Sequence[str] | None = None, after: int = 0) -> pa.RecordBatchReader:
        """All rows of a version as a stream, for what need not fit memory. Those of the first parts may be left out."""
        dataset = self._open(ref)
        with self._reading(ref):
            chosen = dataset.get_fragments()[after:] if after else None
            reader = scanner(dataset, columns=columns, in_order=True, fragments=chosen).to_reader()

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(ref):
                yield from reader

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def fragments(self, ref: TableRef) -> list[Fragment]:
        """The parts of a version that can be read apart from each other, in their order."""
        with self._reading(ref):
            return fragments(self._open(ref))

    def read_fragments(
        self,
        ref: TableRef,
        numbers: Sequence[int],
        *,
        columns: Sequence[str],
        filter: pc.Expression | None = None,
        without: Sequence[str] = (),
        batch_rows: int,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some parts of a version as a stream, blobs with their content.

        Args:
            ref: the version.
            numbers: the parts.
            columns: what to read.
            filter: a condition that Lance can take.
            without: instead of it, columns of which one must be null.
            batch_rows: how many rows a batch may have.
        """
        with self._reading(ref):
            chosen = lacking(without) if without else filter
            yield from read_fragments(self._open(ref), numbers, columns, chosen, batch_rows)

    def take_rows(self, ref: TableRef, row_ids: pa.Array, *, columns: Sequence[str]) -> pa.Table:
        """Rows by row id, one for each, in that order. They must be there."""
        with self._reading(ref):
            found: pa.Table = self._open(ref)._take_rows(row_ids, columns=list(columns))
        return found

    def fingerprint(self, ref: TableRef) -> str:
        """A name for the rows of a version. Versions that have the same one are made of the same files."""
        return fingerprint(f"{self._root}/{ref.path}", self.parts(ref))

    def parts(self, ref: TableRef) -> tuple[str, ...]:
        """A name for each part of a version. Parts that have the same one have the same rows."""
        return self._parts.get(ref, lambda: parts(self._open(ref)))

    def looked_up(self, ref: TableRef) -> frozenset[str]:
        """The columns whose values can be looked up in an index that covers every row."""
        with self._reading(ref):
            return looked_up(self._open(ref))

    def content(self, ref: TableRef, rows: pa.Table, largest: int | None = None) -> Iterator[pa.Table]:
        """Scanned rows, with their `_rowid`, with the content of their blobs; a portion at a time.

        Blobs with more than `largest` bytes are left out: their cells have neither bytes nor an address.
        """
        with self._reading(ref):
            yield from with_content(self._open(ref), rows, largest)

    def blob(self, ref: TableRef, column: str, entity_id: str) -> StoredBlob | None:
        """What is stored about one blob. None when there is no such entity."""
        with self._reading(ref):
            return find_blob(self._open(ref), column, entity_id)

    def read_blob(self, ref: TableRef, column: str, row_id: int, start: int, end: int) -> bytes:
        """Some of the bytes of a blob that the graph holds itself."""
        with self._reading(ref):
            return read_range(self._open(ref), column, row_id, start, end)

    def difference(self, begin: TableRef, end: TableRef) -> Difference:
        """What was done between two versions. What it costs follows the change, not the table.

        Args:
            begin: the earlier version.
            end: the later one, on the same branch or on a fork that began at `begin`.
        """
        with self._reading(begin), self._reading(end):
            return difference(self._open(end.at(begin.version)), self._open(end))

    def touched(self, begin: TableRef, end: TableRef) -> Iterator[pa.Array]:
        """The ids of the rows that differ between two versions, and perhaps of some that do not.

        Args:
            begin: the earlier version.
            end: the later one, as for `difference`.
        """
        with self._reading(begin), self._reading(end):
            yield from touched(self._open(end.at(begin.version)), self._open(end))

    def scan_with_pending(
        self,
        ref: TableRef,
        pending: pa.Table,
        hidden: pa.Array,
        *,
        columns: Sequence[str],
        filter: pc.Expression | None = None,
    ) -> pa.Table:
        """The rows of a version as a write sees them that has not been committed.

        Args:
            ref: the version.
            pending: the write's own rows, which stand for those of the same id.
            hidden: ids that the write removes.
            columns: what to return; a blob cannot be among them.
            filter: a condition on both.
        """
        wanted = list(dict.fromkeys([_ID, *columns]))
        stored = self.scan(ref, columns=wanted, filter=filter)
        superseded = pa.concat_arrays([pending[_ID].combine_chunks(), hidden])
        stored = stored.filter(pc.invert(pc.is_in(stored[_ID], value_set=superseded)))
        own = pd.dataset(pending).to_table(columns=wanted, filter=filter)
        return pa.concat_tables([stored, own.cast(stored.schema)]).select(list(columns))

    def nearest(
        self,
        ref: TableRef,
        column: str,
        vector: Sequence[float],
        count: int,
        *,
        metric: str = "l2",
        columns: Sequence[str] = (_ID,),
        filter: pc.Expression | None = None,
        probes: int | None = None,
        refine: int | None = None,
    ) -> pa.Table:
        """The rows whose vectors are nearest, with their `_distance`. The filter applies before rows are chosen.

        With an index, some of the nearest may be missed.

        Args:
            ref: the version.
            column: the vectors.
            vector: what they are compared with.
            count: how many rows.
            metric: how they are compared.
            columns: what to return.
            filter: a condition.
            probes: in how many parts of an index to look.
            refine: how many times as many rows to compare exactly.
        """
        query = {"column": column, "q": pa.array(vector, pa.float32()), "k": count, "metric": metric}
        query |= {"nprobes": probes} if probes is not None else {}
        query |= {"refine_factor": refine} if refine is not None else {}
        with self._reading(ref):
            found: pa.Table = scanner(
                self._open(ref), columns=[*columns, "_distance"], nearest=query, filter=filter
            ).to_table()
        return found

    def match(
        self,
        ref: TableRef,
        column: str,
        words: str,
        *,
        phrase: bool = False,
        every_word: bool = False,
        columns: Sequence[str] = (_ID,),
        filter: pc.Expression | None = None,
    ) -> pa.Table:
        """The rows whose text has some or every word, or the phrase, with their `_score`. Works without an index."""
        operator = FullTextOperator.AND if every_word else FullTextOperator.OR
        query = PhraseQuery(words, column) if phrase else MatchQuery(words, column, operator=operator)
        with self._reading(ref):
            found: pa.Table = scanner(
                self._open(ref), columns=[*columns, "_score"], text=query, filter=filter
            ).to_table()
        return found

    def take(self, ref: TableRef, ids: Sequence[str], *, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these ids."""
        return self.scan(ref, columns=columns, filter=pc.field(_ID).isin(pa.array(ids, pa.utf8())))


def _stream(rows: pa.Table, stored: pa.Schema) -> pa.RecordBatchReader:
    """Rows in the layout of a table, a batch at a time: rows that lie in a file need not all come into memory."""
    batches = (
        part
        for batch in rows.to_batches()
        for part in stored_columns(pa.Table.from_batches([batch]), stored).to_batches()
    )
    return pa.RecordBatchReader.from_batches(stored, batches)


def _gone(ref: TableRef) -> VersionReclaimedError:
    return VersionReclaimedError(
        f"version {ref.version} of {table_directory(ref.path, ref.branch)} is gone",
        hint="it was removed by cleanup, or the files were changed from outside",
    )


def table_directory(path: str, branch: str | None) -> str:
    """Where the files of a branch of a table are, below the root."""
    return path if branch is None else f"{path}/tree/{branch}"


def _manifest_path(ref: TableRef) -> str:
    """The file of a version, below the root."""
    return f"{table_directory(ref.path, ref.branch)}/_versions/{manifest_name(ref.version)}"


def branch_ref_path(name: str) -> str:
    """Where the ref of a branch is, below its dataset."""
    return f"_refs/branches/{quote(name, safe='')}.json"


def manifest_name(version: int) -> str:
    """Lance counts manifests downwards, so that the newest is listed first."""
    return f"{2**64 - 1 - version:020d}.manifest"


def _new_files(operation: Any) -> list[str]:
    """The files, or directories of files, below a dataset that a staged operation wrote."""
    groups = [fragment for group in getattr(operation, "groups", ()) for fragment in group.new_fragments]
    fragments = [*getattr(operation, "fragments", ()), *getattr(operation, "new_fragments", ()), *groups]
    files = [f"data/{file.path}" for fragment in fragments for file in fragment.files]
    for fragment in getattr(operation, "updated_fragments", ()):
        if fragment.deletion_file is not None:
            files.append(fragment.deletion_file.path(fragment.id))
    return files + [f"_indices/{index.uuid}" for index in getattr(operation, "new_indices", ())]
