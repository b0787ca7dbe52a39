"""Staging: each function writes the files of one change to a table version, and commits nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation, Transaction
from lance.dataset import Index
from lance.fragment import FragmentMetadata
from lance.fragment import write_fragments as lance_write_fragments

from omnigraph.errors import KeyConflictError
from omnigraph.storage.blobs import stored_columns
from omnigraph.storage.difference import RESTORED
from omnigraph.storage.id_fragments import SMALL_ROWS
from omnigraph.storage.indexes import (
    IndexSpec,
    build,
    damaged_segments,
    distinct_segments,
    segments_fit,
    superseded,
    undeclared_segments,
)
from omnigraph.storage.lance_failures import reporting
from omnigraph.storage.row_changes import (
    KnownRows,
    RemovedRows,
    RowSource,
    StagedChange,
    TableRows,
    is_small,
    with_row_ids,
    write_change,
    write_deletions,
)
from omnigraph.storage.staged import Staged, staged
from omnigraph.storage.table_files import data_file_name
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView

_ID = "id"


def stage_append(table: TableView, rows: pa.Table) -> Staged | None:
    """Stage new rows, without a check for duplicate ids. Returns None if there are no rows."""
    if rows.num_rows == 0:
        return None
    dataset = table.dataset
    with table.reading():
        transaction = lance_write_fragments(
            _stream(rows, dataset.schema),
            dataset,
            return_transaction=True,
            allow_external_blob_outside_bases=True,
        )
    operation = transaction.operation
    assert isinstance(operation, LanceOperation.Append)
    return _append(table, list(operation.fragments), rows.num_rows, rows[_ID])


def _append(
    table: TableView, fragments: Sequence[FragmentMetadata], rows: int, ids: pa.ChunkedArray | None = None
) -> Staged:
    """Stage the append of fragments whose files are already written. It can be rebased to any later version."""
    base = table.ref
    append = Transaction(base.version, LanceOperation.Append(list(fragments)))
    made = staged(table.datasets.root, base, append, added=rows)
    return replace(
        made,
        written=_written(base, fragments, ids),
        restage=lambda later: _append(_at(table, later), fragments, rows, ids),
    )


def _written(
    base: TableRef, fragments: Sequence[FragmentMetadata], ids: pa.ChunkedArray | None
) -> tuple[str, pa.Array] | None:
    """The file and the ids of a single new fragment, if there are few."""
    if ids is None or len(fragments) != 1 or len(ids) > SMALL_ROWS:
        return None
    return f"{base.directory}/data/{data_file_name(fragments[0].files[0])}", ids.combine_chunks()


def stage_insert(table: TableView, rows: pa.Table) -> Staged | None:
    """Stage new rows whose ids must not exist. Returns None if there are no rows.

    Raises:
        KeyConflictError: an id exists.
    """
    if rows.num_rows == 0:
        return None
    taken = table.lookup(_ID, rows[_ID], columns=[_ID])
    if taken.num_rows:
        raise key_conflict(table.ref.path, taken)
    made = stage_append(table, rows)
    return None if made is None else replace(made, ids=rows[_ID])


SHOWN_IDS = 100
"""Number of existing ids in the error about them."""


def key_conflict(key: str, taken: pa.Table) -> KeyConflictError:
    """The error about ids that exist already.

    Args:
        key: the type key.
        taken: the existing ids.
    """
    ids = taken.sort_by(_ID)[_ID].slice(0, SHOWN_IDS).to_pylist()
    return KeyConflictError(key, ids[0], ids=tuple(ids), total=taken.num_rows)


def stage_upsert(table: TableView, rows: pa.Table) -> Staged | None:
    """Stage rows that replace those with the same id, and are added otherwise. Returns None if there are no rows.

    Ids must be distinct.
    """
    if rows.num_rows == 0:
        return None
    if table.count() == 0:
        made = stage_append(table, rows)
        return None if made is None else replace(made, ids=rows[_ID])
    # Not Lance's merge_insert: it holds all rows in memory, and does not support all kinds of blobs.
    return stage_change(table, rows, pa.array([], pa.utf8()))


def stage_overwrite(table: TableView, rows: pa.Table) -> Staged:
    """Stage new content for the whole table. It may be empty."""
    dataset = table.dataset
    fragments: list[FragmentMetadata] = []
    if rows.num_rows:
        with table.reading():
            fragments = lance_write_fragments(
                _stream(rows, dataset.schema), dataset, mode="append", allow_external_blob_outside_bases=True
            )
    return _overwrite(table, fragments, rows.num_rows)


def _overwrite(table: TableView, fragments: Sequence[FragmentMetadata], rows: int) -> Staged:
    dataset, base = table.dataset, table.ref
    # The schema has the ids of its columns. By names alone, Lance would number them anew, and the files have other ids.
    overwrite = Transaction(base.version, LanceOperation.Overwrite(dataset.lance_schema, list(fragments)))
    return staged(table.datasets.root, base, overwrite, added=rows, removed=dataset.count_rows())


def stage_delete(table: TableView, where: pc.Expression) -> Staged | None:
    """Stage the deletion of all rows that match a condition. None if there are none."""
    ids = table.scan(columns=[_ID], filter=where)
    return stage_delete_ids(table, ids[_ID])


def stage_delete_ids(table: TableView, ids: pa.ChunkedArray) -> Staged | None:
    """Stage the deletion of rows by id. None if none of the ids exists."""
    if len(ids) == 0:
        return None
    keys = pa.table({_ID: ids})
    merge = table.dataset.merge_insert(_ID).when_matched_delete()
    with table.reading():
        transaction, stats = merge.execute_uncommitted(keys)
    if stats["num_deleted_rows"] == 0:
        return None
    made = staged(table.datasets.root, table.ref, transaction, removed=stats["num_deleted_rows"])
    return replace(made, ids=ids, restage=lambda later: stage_delete_ids(_at(table, later), ids))


def stage_change(
    table: TableView,
    rows: pa.Table | RowSource,
    deleted: pa.Array,
    fragments: Sequence[str] = (),
    known: KnownRows | None = None,
) -> Staged | None:
    """Stage upserts and deletions as one commit. None if nothing changes.

    Args:
        table: the version to change.
        rows: whole rows with distinct ids.
        deleted: ids to delete. None of them may be among the rows.
        fragments: results of `write_fragments` in other processes, with rows whose ids are new.
        known: rows whose row ids are known. Those of a version with other files are ignored.
    """
    source = TableRows(rows) if isinstance(rows, pa.Table) else rows
    valid = known if known is not None and known.fingerprint == table.fingerprint() else None
    with table.reading():
        change = write_change(table.dataset, source, deleted, table.places, valid)
    if change is None:
        return stage_fragments(table, fragments)
    if not fragments:
        return _change(table, change)
    parts = [FragmentMetadata.from_json(text) for text in fragments]
    change.operation.new_fragments = [*(change.operation.new_fragments or ()), *parts]
    return _change(table, replace(change, added=change.added + sum(part.num_rows for part in parts)), whole=False)


def _change(table: TableView, change: StagedChange, *, whole: bool = True) -> Staged:
    """Stage a change whose files are written.

    Args:
        table: the version to change.
        change: the change.
        whole: whether the ids of all rows are known.
    """

    def restage(later: TableRef) -> Staged | None:
        other = _at(table, later)
        with reporting(table.datasets.root, later.path):
            moved = change.rebase(other.dataset, other.places)
        return None if moved is None else _change(other, moved, whole=whole)

    transaction = Transaction(table.ref.version, change.operation)
    added, removed, updated = change.added, change.removed, change.replaced
    made = staged(table.datasets.root, table.ref, transaction, added=added, removed=removed, updated=updated)
    ids = pa.chunked_array([change.ids])
    written = _written(table.ref, change.operation.new_fragments or (), ids) if whole else None
    return replace(made, ids=ids, written=written, restage=restage)


# Fragments that other processes write


def write_fragments(table: TableView, rows: pa.Table, row_ids: pa.Array | None = None) -> tuple[str, ...]:
    """Write rows into a table's directory, in any process. Returns the input of `stage_fragments`.

    Args:
        table: a version of the table, on the branch that the rows are for.
        rows: the rows. They may be memory-mapped.
        row_ids: row ids of the rows that they replace; None for new rows.
    """
    if rows.num_rows == 0:
        return ()
    dataset = table.dataset
    with table.datasets.reporting(table.ref, write=True):
        written = lance_write_fragments(
            _stream(rows, dataset.schema), dataset, mode="append", allow_external_blob_outside_bases=True
        )
        if row_ids is not None:
            written = with_row_ids(written, row_ids)
    return tuple(json.dumps(fragment.to_json()) for fragment in written)


def remove_rows(table: TableView, addresses: pa.Array) -> RemovedRows:
    """Write deletion files for rows, in any process. Returns the input of `stage_replaced`.

    Args:
        table: the version to change.
        addresses: addresses of the rows. All deletions in one fragment must be in the same call.
    """
    with table.datasets.reporting(table.ref, write=True):
        return write_deletions(table.dataset, addresses)


def stage_fragments(table: TableView, fragments: Sequence[str], *, replacing: bool = False) -> Staged | None:
    """Stage fragments that other processes wrote. None for no fragments, unless they replace the content.

    Args:
        table: the version to change.
        fragments: results of `write_fragments`, in order.
        replacing: replace the whole content of the table.
    """
    if not fragments and not replacing:
        return None
    parts = [FragmentMetadata.from_json(text) for text in fragments]
    added = sum(part.num_rows for part in parts)
    return _overwrite(table, parts, added) if replacing else _append(table, parts, added)


def stage_replaced(table: TableView, fragments: Sequence[str], gone: RemovedRows) -> Staged:
    """Stage new and replaced rows as one commit, all written by other processes.

    Args:
        table: the version to change.
        fragments: results of `write_fragments`, in order.
        gone: results of `remove_rows` for all replaced rows.
    """
    parts = [FragmentMetadata.from_json(text) for text in fragments]
    operation = LanceOperation.Update(
        removed_fragment_ids=list(gone.gone),
        updated_fragments=[FragmentMetadata.from_json(text) for text in gone.left],
        new_fragments=parts,
    )
    added = sum(part.num_rows for part in parts) - gone.rows
    transaction = Transaction(table.ref.version, operation)
    return staged(table.datasets.root, table.ref, transaction, added=added, updated=gone.rows)


# Indexes and restores


def stage_indexes(
    table: TableView, specs: Sequence[IndexSpec], *, allowed: Sequence[IndexSpec] | None = None
) -> Staged | None:
    """Build indexes for all rows that they do not cover, and drop damaged segments. None if nothing changes.

    Args:
        table: the version to index.
        specs: the indexes to build.
        allowed: the indexes that the table may have; all others are dropped. None keeps all.
    """
    dataset = table.dataset
    with table.reading():
        built = [index for spec in specs if (index := build(dataset, spec)) is not None]
        whole = table.datasets.open_with_indexes(table.ref)
        dropped = list(damaged_segments(whole, table.datasets.damaged_indexes(table.ref)))
        dropped += [] if allowed is None else undeclared_segments(whole, allowed)
        gone = (
            distinct_segments([*dropped, *superseded(whole, built)]) if built or dropped or allowed is not None else []
        )
    if not built and not gone:
        return None
    return _index(table, built, gone)


def _index(table: TableView, built: Sequence[Index], gone: Sequence[Index]) -> Staged:
    def restage(later: TableRef) -> Staged | None:
        other = _at(table, later)
        with reporting(table.datasets.root, later.path):
            fits = segments_fit(other.dataset, built, gone)
        return _index(other, built, gone) if fits else None

    transaction = Transaction(table.ref.version, LanceOperation.CreateIndex(list(built), list(gone)))
    return replace(staged(table.datasets.root, table.ref, transaction), restage=restage)


def stage_restore(table: TableView, version: int, *, visible: bool = False) -> Staged:
    """Stage the content of an earlier version as the next one, to undo an interrupted write.

    If a restore is delayed and the table has newer versions by then, Lance does not refuse it, and the restore undoes
    these versions. It has `ENGINE_MARK`, so the next writer recognises such a restore and undoes it.

    Args:
        table: the newest version. Nothing is read from it, since its files may be damaged.
        version: the version to restore.
        visible: whether a manifest has pointed at a version after `version`. Then a second commit records the
            restore, because Lance does not record which rows a restore changed.
    """
    base, root = table.ref, table.datasets.root
    made = staged(root, base, Transaction(base.version, LanceOperation.Restore(version)))
    made = replace(made, restores=base.at(version))
    if not visible:
        return made
    after = base.at(base.version + 1)
    note = LanceOperation.UpdateMap({RESTORED: str(after.version)})
    noted = staged(root, after, Transaction(after.version, LanceOperation.UpdateConfig(config_updates=note)))
    return replace(made, then=noted)


def _at(table: TableView, ref: TableRef) -> TableView:
    return TableView(table.datasets, ref)


def _stream(rows: pa.Table, stored: pa.Schema) -> pa.Table | pa.RecordBatchReader:
    """Convert rows to a table's layout; many rows batch by batch, so that memory-mapped rows need not fit in memory."""
    if is_small(rows):
        return stored_columns(rows, stored)
    batches = (
        part
        for batch in rows.to_batches()
        for part in stored_columns(pa.Table.from_batches([batch]), stored).to_batches()
    )
    return pa.RecordBatchReader.from_batches(stored, batches)
