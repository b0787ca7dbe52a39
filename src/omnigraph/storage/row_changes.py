"""Changing rows by id in one step: some are replaced, some come, some go, in one Lance transaction.

A replaced row keeps its stable row id, so that Lance, and whatever is built on row ids, sees an update and not a
removal beside an insertion. Indexes need no care: the row leaves the fragment that they cover.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph.errors import InputError
from omnigraph.storage.blobs import filled, stored_columns
from omnigraph.storage.scans import scanner

ROW_ID = "_rowid"
LOOKUP_LIMIT = 20_000
"""Up to so many ids, rows are looked up; above it, reading the whole column of ids is cheaper."""

_ID = "id"
_ADDRESS = "_rowaddr"
_TOGETHER = 1_000_000
"""How many ids of a table are compared at once, at least."""


class RowSource(Protocol):
    """Rows that can be read again and again, a batch at a time, in the same order: they need not fit memory."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows that are in memory."""

    table: pa.Table

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        chosen = self.table if columns is None else self.table.select(list(columns))
        yield from chosen.to_batches()


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A change whose files are written.

    Attributes:
        operation: the change.
        added: how many rows the table gains.
        removed: how many it loses.
        ids: the rows that were looked for: those that are written, and those that go.
        found: the `id` and `_rowid` of those that were there.
    """

    operation: LanceOperation.Update
    added: int
    removed: int
    ids: pa.Array
    found: pa.Table

    def again(self, dataset: LanceDataset) -> StagedChange | None:
        """The same change for a later version, with the fragments that were written before.

        None when the rows that it replaces or removes are others there.
        """
        found = locate(dataset, self.ids)
        known = _sorted(found)
        if known != _sorted(self.found):
            return None
        updated, gone = _without(dataset, found[_ADDRESS].combine_chunks())
        new = self.operation.new_fragments
        operation = LanceOperation.Update(removed_fragment_ids=gone, updated_fragments=updated, new_fragments=new)
        return replace(self, operation=operation)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What other processes wrote down about rows that others replace.

    Attributes:
        left: fragments that have lost rows, as JSON.
        gone: the numbers of fragments that have lost their last row.
        rows: how many rows are replaced.
    """

    left: tuple[str, ...] = ()
    gone: tuple[int, ...] = ()
    rows: int = 0


def replaced(dataset: LanceDataset, addresses: pa.Array) -> Replaced:
    """Write files that say that rows are gone, given where they are. Nobody sees them yet."""
    left, gone = _without(dataset, addresses)
    return Replaced(tuple(json.dumps(fragment.to_json()) for fragment in left), tuple(gone), len(addresses))


def stage(dataset: LanceDataset, rows: RowSource, deleted: pa.Array) -> StagedChange | None:
    """Write the files of a change. None when it changes nothing.

    Args:
        dataset: the version to change.
        rows: whole rows, one per id; each replaces the row of its id, or is new.
        deleted: ids of rows that go. None of them may be among the rows; those that do not exist do not matter.
    """
    ids = _column(rows.batches([_ID]), _ID)
    if len(deleted) and pc.any(pc.is_in(deleted, value_set=ids)).as_py():
        raise InputError("a row is written and deleted in the same change")
    sought = pa.concat_arrays([ids, deleted])
    found = locate(dataset, sought)
    positions = pc.index_in(ids, value_set=found[_ID].combine_chunks())
    replaced = len(ids) - positions.null_count
    if len(ids) == 0 and found.num_rows == 0:
        return None
    updated, gone = _without(dataset, found[_ADDRESS].combine_chunks())
    row_ids = found[ROW_ID].combine_chunks().take(positions.drop_null())
    new = with_row_ids(_write(dataset, rows, positions), row_ids)
    operation = LanceOperation.Update(removed_fragment_ids=gone, updated_fragments=updated, new_fragments=new)
    known = found.select([_ID, ROW_ID])
    return StagedChange(operation, len(ids) - replaced, found.num_rows - replaced, sought, known)


def _sorted(found: pa.Table) -> pa.Table:
    return found.select([_ID, ROW_ID]).sort_by(_ID).combine_chunks()


def locate(dataset: LanceDataset, ids: pa.Array) -> pa.Table:
    """Where the rows of some ids are: their `id`, `_rowid` and `_rowaddr`. Ids that do not exist are left out."""
    columns = [_ID, ROW_ID, _ADDRESS]
    if len(ids) <= LOOKUP_LIMIT:
        return scanner(dataset, columns=columns, filter=pc.field(_ID).isin(ids)).to_table()
    reader = scanner(dataset, columns=columns).to_reader()
    return matching(reader, _ID, ids)


def matching(reader: pa.RecordBatchReader, name: str, values: pa.Array) -> pa.Table:
    """The rows of a stream in which a column has one of many values; only those are kept in memory."""
    kept: list[pa.Table] = [reader.schema.empty_table()]
    held: list[pa.RecordBatch] = []
    count = 0

    def compare() -> None:
        rows = pa.Table.from_batches(held, reader.schema)
        kept.append(rows.filter(pc.is_in(rows[name], value_set=values)))

    for batch in reader:
        held.append(batch)
        count += batch.num_rows
        # The values are prepared anew for every comparison, so there should be few of those.
        if count >= max(_TOGETHER, len(values)):
            compare()
            held, count = [], 0
    compare()
    return pa.concat_tables(kept)


def _column(batches: Iterator[pa.RecordBatch], name: str) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.utf8()), *(batch.column(name) for batch in batches)])


def _without(dataset: LanceDataset, addresses: pa.Array) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that lose rows, and the ids of those that lose their last one."""
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
    """New fragments with all rows, those first that replace others."""
    if len(positions) == 0:
        return []
    known = positions.is_valid()
    parts = chain(_chosen(rows, known), _chosen(rows, pc.invert(known)))
    whole = (part for chosen in parts for part in filled(dataset, chosen))
    stored = (batch for part in whole for batch in stored_columns(part, dataset.schema).to_batches())
    failed: list[Exception] = []
    reader = pa.RecordBatchReader.from_batches(dataset.schema, _noting(stored, failed))
    try:
        return list(write_fragments(reader, dataset, mode="append", allow_external_blob_outside_bases=True))
    except Exception:
        if failed:
            raise failed[0] from None  # Lance would pass it on as text
        raise


def _noting(batches: Iterator[pa.RecordBatch], failed: list[Exception]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        failed.append(error)
        raise


def _chosen(rows: RowSource, mask: pa.Array) -> Iterator[pa.Table]:
    """The rows that a mask over all of them chooses, batch by batch."""
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
    """Fragments whose first rows keep the ids they had; Lance gives new ids to the rest."""
    numbered = []
    for fragment in fragments:
        own, row_ids = row_ids[: fragment.physical_rows], row_ids[fragment.physical_rows :]
        if len(own):
            fragment = replace(fragment, row_id_meta=RowIdSequence(own).to_inline_metadata())
        numbered.append(fragment)
    return numbered
