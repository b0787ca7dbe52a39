"""Changes between two versions of a table, by id. They are found without comparing the values of rows.

Lance records for each row the version that wrote it last. After a restore, rows have their old recorded versions again.
So if a restore after the earlier version undid visible changes, the rows of changed fragments are compared by row id
and recorded version instead.
"""

# See docs/decisions/0151-a-restore-of-visible-rows-is-noted.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import LanceFragment

from omnigraph.storage.base_paths import MovedDataset
from omnigraph.storage.blobs import with_content
from omnigraph.storage.row_changes import LOOKUP_LIMIT, ROW_ID, RowSource, matching
from omnigraph.storage.scans import scanner

_ID = "id"
_UPDATED = "_row_last_updated_at_version"
_BATCH_BYTES = 16 << 20
RESTORED = "omnigraph:restored"
"""Configuration key of a table: the version of the last restore that undid visible changes."""

Numbers = np.ndarray[tuple[int], np.dtype[np.uint64]]
_NONE = pa.array([], pa.utf8())


@dataclass(frozen=True, slots=True)
class Difference:
    """The net difference between two versions of a table.

    Attributes:
        rows: new and changed entities with their final values, each id once.
        count: number of these rows.
        deleted: ids that exist only in the first version, sorted.
    """

    rows: RowSource
    count: int
    deleted: pa.Array

    @property
    def is_empty(self) -> bool:
        return self.count == 0 and len(self.deleted) == 0


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The rows of a version that were written after an earlier version. Reads only new and rewritten fragments.

    After a restore, `_row_ids` lists these rows. Otherwise they are the rows whose recorded version is later than
    `_after`, the earlier version.
    """

    _dataset: LanceDataset
    _fragments: tuple[LanceFragment, ...]
    _after: int
    _row_ids: pa.Array | None = None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        if not self._fragments:
            return
        wanted = list(columns) if columns is not None else self._dataset.schema.names
        scan = scanner(
            self._dataset,
            columns=[*wanted, _UPDATED, ROW_ID],
            fragments=self._fragments,
            in_order=True,
            batch_bytes=_BATCH_BYTES,
        )
        for batch in scan.to_reader():
            # A compacted fragment also has rows that were written before the earlier version.
            if self._row_ids is None:
                written = pc.greater(batch.column(_UPDATED), self._after)
            else:
                written = pc.is_in(batch.column(ROW_ID), value_set=self._row_ids)
            rows = pa.Table.from_batches([batch]).filter(written)
            for part in with_content(self._dataset, rows):
                yield from part.select(wanted).to_batches()


def difference(begin: LanceDataset, end: LanceDataset) -> Difference:
    """Net changes between two versions of one branch of a table."""
    rows, removed, _ = _changes(begin, end)
    written = pa.concat_arrays([_NONE, *(batch.column(_ID) for batch in rows.batches([_ID]))])
    # An overwritten table has new row ids, but may have the same ids.
    removed = removed.filter(pc.invert(pc.is_in(removed, value_set=written)))
    return Difference(rows, len(written), removed.sort())


def touched_ids(begin: LanceDataset, end: LanceDataset) -> Iterator[pa.Array]:
    """Ids of all rows that were written or removed between two versions of one branch. May have duplicates."""
    rows, removed, replaced = _changes(begin, end)
    yield from (batch.column(_ID) for batch in rows.batches([_ID]))
    yield removed
    yield replaced


def last_restore(dataset: LanceDataset) -> int:
    """Version number of the last restore that undid visible changes, up to this version; 0 if there is none."""
    return int(dataset.config().get(RESTORED, 0))


def _changes(begin: LanceDataset, end: LanceDataset) -> tuple[WrittenRows, pa.Array, pa.Array]:
    """The written rows, the ids of removed rows, and the ids that rewritten rows had before (only after a restore)."""
    if last_restore(end) > begin.version:
        return _compared(begin, end)
    return _written(begin, end), _ids(begin, _removed_rows(begin, end)), _NONE


def _compared(begin: LanceDataset, end: LanceDataset) -> tuple[WrittenRows, pa.Array, pa.Array]:
    """As `_changes`, by comparing rows: a row is unchanged if its row id and the version that wrote it are the same."""
    before = {fragment.fragment_id: (_files(fragment), _deletions(fragment)) for fragment in begin.get_fragments()}
    after = {fragment.fragment_id: (_files(fragment), _deletions(fragment)) for fragment in end.get_fragments()}
    old = [f for f in begin.get_fragments() if after.get(f.fragment_id) != before[f.fragment_id]]
    new = [f for f in end.get_fragments() if before.get(f.fragment_id) != after[f.fragment_id]]
    was, now = _recorded_versions(begin, old), _recorded_versions(end, new)
    stays = now.join(was, [ROW_ID, _UPDATED], join_type="inner")[ROW_ID].combine_chunks()
    written = now.filter(pc.invert(pc.is_in(now[ROW_ID], value_set=stays)))[ROW_ID].combine_chunks()
    changed = was.filter(pc.invert(pc.is_in(was[ROW_ID], value_set=stays)))[ROW_ID].combine_chunks()
    there = pc.is_in(changed, value_set=written)
    gone, replaced = changed.filter(pc.invert(there)), changed.filter(there)
    return WrittenRows(end, tuple(new), begin.version, written), _ids(begin, gone), _ids(begin, replaced)


def _recorded_versions(dataset: LanceDataset, fragments: Sequence[LanceFragment]) -> pa.Table:
    """Row ids of some fragments, with the versions that wrote them last."""
    columns = [ROW_ID, _UPDATED]
    if not fragments:
        return pa.table({name: pa.array([], pa.uint64()) for name in columns})
    return scanner(dataset, columns=columns, fragments=fragments).to_table().select(columns)


def _written(begin: LanceDataset, end: LanceDataset) -> WrittenRows:
    before = {fragment.fragment_id: _files(fragment) for fragment in begin.get_fragments()}
    new = tuple(f for f in end.get_fragments() if before.get(f.fragment_id) != _files(f))
    return WrittenRows(end, new, begin.version)


def _files(fragment: LanceFragment) -> list[str]:
    return [file.path for file in fragment.metadata.files]


def _ids(dataset: LanceDataset, wanted: pa.Array) -> pa.Array:
    """The ids of the rows with the given row ids."""
    if len(wanted) == 0:
        return _NONE
    if len(wanted) <= LOOKUP_LIMIT:
        found = dataset._take_rows(wanted.to_pylist(), columns=[_ID])
    else:
        found = matching(scanner(dataset, columns=[_ID, ROW_ID]).to_reader(), ROW_ID, wanted)
    return found[_ID].combine_chunks()


def _removed_rows(begin: LanceDataset, end: LanceDataset) -> pa.Array:
    """Row ids that exist in the first version and not in the second. The cost depends on the size of the change.

    Lance opens the versions again for this, and reads their base paths from disk. If these name another location, the
    row ids of all rows in changed fragments are compared here instead.
    """
    if not isinstance(begin, MovedDataset) and not isinstance(end, MovedDataset):
        # Fails if another process rewrites base paths at the same time.
        with suppress(OSError, ValueError):
            found = end.delta(begin_version=begin.version, end_version=end.version).get_deleted_row_ids().read_all()
            return found[ROW_ID].combine_chunks()
    return _compared_row_ids(begin, end)


def _compared_row_ids(begin: LanceDataset, end: LanceDataset) -> pa.Array:
    after = {fragment.fragment_id: fragment for fragment in end.get_fragments()}
    gone = []
    for fragment in begin.get_fragments():
        later = after.get(fragment.fragment_id)
        if later is None or _files(later) != _files(fragment):
            gone.append(_row_ids(begin, fragment))
            continue
        del after[fragment.fragment_id]
        if _deletions(later) != _deletions(fragment):
            gone.append(np.setdiff1d(_row_ids(begin, fragment), _row_ids(end, later), assume_unique=True))
    found = np.concatenate([np.array([], np.uint64), *gone])
    for later in after.values():  # rewritten rows keep their row ids in other fragments
        if len(found) == 0:
            break
        found = found[~np.isin(found, _row_ids(end, later), assume_unique=True)]
    return pa.array(found)


def _row_ids(dataset: LanceDataset, fragment: LanceFragment) -> Numbers:
    read = scanner(dataset, columns=[ROW_ID], fragments=[fragment]).to_table()
    ids: Numbers = read[ROW_ID].combine_chunks().to_numpy(zero_copy_only=False)
    return ids


def _deletions(fragment: LanceFragment) -> str | None:
    made = fragment.metadata
    return None if made.deletion_file is None else str(made.deletion_file.path(made.id))
