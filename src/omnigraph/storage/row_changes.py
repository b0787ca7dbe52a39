"""Row changes by id: updates, inserts and deletes in one Lance transaction.

An updated row keeps its stable row id, so Lance and everything that uses row ids see an update, not a delete and an
insert. Indexes need no change: the row leaves the fragment that they cover.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError, InputError
from omnigraph.storage.blobs import blob_columns, filled, stored_columns
from omnigraph.storage.id_fragments import MOST_LOOKUPS, SMALL_ROWS, IdFragments
from omnigraph.storage.row_id_set import RowIdSet
from omnigraph.storage.scans import scanner

ROW_ID = "_rowid"
LOOKUP_LIMIT = 20_000
"""Maximum number of ids that are looked up. For more ids, reading the whole id column is cheaper."""

_ID = "id"
_ADDRESS = "_rowaddr"
_LOCATED = pa.schema([(_ID, pa.utf8()), (ROW_ID, pa.uint64()), (_ADDRESS, pa.uint64())])
COMPARE_ROWS = 1_000_000
"""Minimum number of rows that are compared at once."""


class RowSource(Protocol):
    """Rows that can be read several times, batch by batch, in the same order. They need not fit in memory."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows in memory."""

    table: pa.Table

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        chosen = self.table if columns is None else self.table.select(list(columns))
        yield from chosen.to_batches()


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A change whose files are written, but not committed.

    Attributes:
        operation: the Lance operation.
        added: number of rows that the table gains.
        removed: number of rows that the table loses.
        ids: the ids of all written and deleted rows, which were looked up.
        found: `id` and `_rowid` of the looked-up rows that exist.
        replaced: number of rows that get new values.
    """

    operation: LanceOperation.Update
    added: int
    removed: int
    ids: pa.Array
    found: pa.Table
    replaced: int

    def rebase(self, dataset: LanceDataset, places: IdFragments) -> StagedChange | None:
        """The same change for a later version, with the same new fragments.

        Returns:
            None if the ids that it writes or deletes belong to other rows in the later version.
        """
        found = locate(dataset, self.ids, places)
        known = _sorted(found)
        if known != _sorted(self.found):
            return None
        updated, gone = _without(dataset, found[_ADDRESS].combine_chunks())
        new = self.operation.new_fragments
        operation = LanceOperation.Update(removed_fragment_ids=gone, updated_fragments=updated, new_fragments=new)
        return replace(self, operation=operation)


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Rows of a table version whose row ids are known.

    Attributes:
        fingerprint: the fingerprint of the version.
        ids: the ids.
        row_ids: their row ids; null for an id that the version does not have.
    """

    fingerprint: str
    ids: pa.Array
    row_ids: pa.Array


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """Deletions that other processes wrote, for rows that are replaced.

    Attributes:
        left: fragments that lost some of their rows, as JSON.
        gone: numbers of fragments that lost all rows.
        rows: number of replaced rows.
    """

    left: tuple[str, ...] = ()
    gone: tuple[int, ...] = ()
    rows: int = 0


def write_deletions(dataset: LanceDataset, addresses: pa.Array) -> RemovedRows:
    """Write deletion files for rows, given their addresses. No reader sees them yet."""
    left, gone = _without(dataset, addresses)
    return RemovedRows(tuple(json.dumps(fragment.to_json()) for fragment in left), tuple(gone), len(addresses))


def write_change(
    dataset: LanceDataset, rows: RowSource, deleted: pa.Array, places: IdFragments, known: KnownRows | None = None
) -> StagedChange | None:
    """Write the files of a change. None if it changes nothing.

    Args:
        dataset: the version to change.
        rows: whole rows with distinct ids. Each replaces the row with its id, or is new.
        deleted: ids to delete. None of them may be among the rows. Unknown ids are ignored.
        places: where the ids of the table are.
        known: rows of the version whose row ids are known. The others are searched.
    """
    ids = _column(rows.batches([_ID]), _ID)
    if len(deleted) and pc.any(pc.is_in(deleted, value_set=ids)).as_py():
        raise InputError("a row is written and deleted in the same change")
    sought = pa.concat_arrays([ids, deleted])
    found = locate(dataset, sought, places) if known is None else _locate_known(dataset, sought, places, known)
    positions = pc.index_in(ids, value_set=found[_ID].combine_chunks())
    replaced = len(ids) - positions.null_count
    if len(ids) == 0 and found.num_rows == 0:
        return None
    updated, gone = _without(dataset, found[_ADDRESS].combine_chunks())
    row_ids = found[ROW_ID].combine_chunks().take(positions.drop_null())
    new = with_row_ids(_write(dataset, rows, positions), row_ids)
    operation = LanceOperation.Update(removed_fragment_ids=gone, updated_fragments=updated, new_fragments=new)
    known = found.select([_ID, ROW_ID])
    return StagedChange(operation, len(ids) - replaced, found.num_rows - replaced, sought, known, replaced)


def _sorted(found: pa.Table) -> pa.Table:
    return found.select([_ID, ROW_ID]).sort_by(_ID).combine_chunks()


def locate(dataset: LanceDataset, ids: pa.Array, places: IdFragments) -> pa.Table:
    """Find rows by id: their `id`, `_rowid` and `_rowaddr`. Skips unknown ids."""
    columns = [_ID, ROW_ID, _ADDRESS]
    if len(ids) == 0:
        return _LOCATED.empty_table()
    if len(ids) <= MOST_LOOKUPS:
        return places.rows(dataset, ids, columns)
    if len(ids) <= LOOKUP_LIMIT:
        return scanner(dataset, columns=columns, filter=pc.field(_ID).isin(ids)).to_table()
    reader = scanner(dataset, columns=columns).to_reader()
    return matching(reader, _ID, ids)


def _locate_known(dataset: LanceDataset, ids: pa.Array, places: IdFragments, known: KnownRows) -> pa.Table:
    """As `locate`, by row id where it is known."""
    at = pc.index_in(ids, value_set=known.ids)
    row_ids = known.row_ids.take(at)
    present = row_ids.is_valid()
    named = pa.table({_ID: ids.filter(present), ROW_ID: row_ids.filter(present)})
    addresses = _addresses(dataset, named[ROW_ID].combine_chunks())
    rest = locate(dataset, ids.filter(at.is_null()), places)
    return pa.concat_tables([rest.cast(_LOCATED), named.append_column(_ADDRESS, addresses).cast(_LOCATED)])


def _addresses(dataset: LanceDataset, row_ids: pa.Array) -> pa.Array:
    """The addresses of rows by row id.

    Raises:
        CorruptionError: one of the rows does not exist.
    """
    columns = [ROW_ID, _ADDRESS]
    if len(row_ids) == 0:
        return pa.array([], pa.uint64())
    if len(row_ids) <= LOOKUP_LIMIT:
        found = dataset._take_rows(row_ids, columns=columns)
    else:
        chosen = RowIdSet(row_ids)
        reader = scanner(dataset, columns=columns).to_reader()
        parts = (batch.filter(pa.array(chosen.among(batch.column(ROW_ID)))) for batch in reader)
        found = pa.Table.from_batches(parts, reader.schema)
    numbers, wanted = found[ROW_ID].to_numpy(), row_ids.to_numpy()
    order = np.argsort(numbers)
    numbers = numbers[order]
    places = np.minimum(np.searchsorted(numbers, wanted), max(len(numbers) - 1, 0))
    if len(numbers) == 0 or not np.array_equal(numbers[places], wanted):
        raise CorruptionError("a table does not have the rows that were recorded", hint="check the graph with 'verify'")
    return pa.array(found[_ADDRESS].to_numpy()[order][places])


def matching(reader: pa.RecordBatchReader, name: str, values: pa.Array) -> pa.Table:
    """The rows of a stream whose column has one of many values. Only matching rows are kept in memory."""
    found: list[pa.Table] = [reader.schema.empty_table()]
    held: list[pa.RecordBatch] = []
    count = 0

    def compare() -> None:
        rows = pa.Table.from_batches(held, reader.schema)
        found.append(rows.filter(pc.is_in(rows[name], value_set=values)))

    for batch in reader:
        held.append(batch)
        count += batch.num_rows
        # The hash table of the values is built for every comparison, so there should be few comparisons.
        if count >= max(COMPARE_ROWS, len(values)):
            compare()
            held, count = [], 0
    compare()
    return pa.concat_tables(found)


def _column(batches: Iterator[pa.RecordBatch], name: str) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.utf8()), *(batch.column(name) for batch in batches)])


def _without(dataset: LanceDataset, addresses: pa.Array) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that lose rows, and the numbers of those that lose all rows."""
    sorted_ = np.sort(addresses.to_numpy(zero_copy_only=False))
    fragments, starts = np.unique(sorted_ >> np.uint64(32), return_index=True)
    updated: list[FragmentMetadata] = []
    gone: list[int] = []
    for fragment_id, first, last in zip(fragments.tolist(), starts, [*starts[1:], len(sorted_)], strict=False):
        fragment = dataset.get_fragment(fragment_id)
        assert fragment is not None
        left = fragment.delete_rows((sorted_[first:last] & np.uint64(0xFFFFFFFF)).tolist())
        if left is None:
            gone.append(fragment_id)
        else:
            updated.append(left)
    return updated, gone


def _write(dataset: LanceDataset, rows: RowSource, positions: pa.Array) -> list[FragmentMetadata]:
    """Write new fragments with all rows, updated rows first."""
    if len(positions) == 0:
        return []
    known = positions.is_valid()
    parts = chain(_chosen(rows, known), _chosen(rows, pc.invert(known)))
    whole = (part for chosen in parts for part in filled(dataset, chosen))
    stored = (batch for part in whole for batch in stored_columns(part, dataset.schema).to_batches())
    failed: list[Exception] = []
    data: pa.Table | pa.RecordBatchReader
    if isinstance(rows, TableRows) and is_small(rows.table):
        data = pa.Table.from_batches(list(stored), dataset.schema)
    else:
        data = pa.RecordBatchReader.from_batches(dataset.schema, _noting(stored, failed))
    try:
        return list(write_fragments(data, dataset, mode="append", allow_external_blob_outside_bases=True))
    except Exception:
        if failed:
            raise failed[0] from None  # raise the original error: Lance has converted it to text
        raise


def is_small(rows: pa.Table) -> bool:
    """Whether rows are converted at once, and not batch by batch, which costs more for few rows."""
    return rows.num_rows <= SMALL_ROWS and not blob_columns(rows)


def _noting(batches: Iterator[pa.RecordBatch], failed: list[Exception]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        failed.append(error)
        raise


def _chosen(rows: RowSource, mask: pa.Array) -> Iterator[pa.Table]:
    """The rows that a mask over all rows selects, batch by batch."""
    if not pc.any(mask).as_py():
        return
    first = 0
    for batch in rows.batches():
        part = mask.slice(first, batch.num_rows)
        first += batch.num_rows
        chosen = pa.Table.from_batches([batch]).filter(part)
        if chosen.num_rows:
            yield chosen


def with_row_ids(fragments: list[FragmentMetadata], row_ids: pa.Array) -> list[FragmentMetadata]:
    """Set the row ids of the first rows of new fragments. Lance assigns new ids to the rest."""
    numbered = []
    for fragment in fragments:
        own, row_ids = row_ids[: fragment.physical_rows], row_ids[fragment.physical_rows :]
        if len(own):
            fragment = replace(fragment, row_id_meta=RowIdSequence(own).to_inline_metadata())
        numbered.append(fragment)
    return numbered
