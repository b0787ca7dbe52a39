"""Changes between two versions of a table, by id. They are found without comparing the values of rows.

Lance records for each row the version that wrote it last. After a restore, rows have their old recorded versions again.
So if a restore after the earlier version undid visible changes, the rows of changed fragments are compared by row id
and recorded version instead.
"""

# See docs/decisions/0151-a-restore-of-visible-rows-is-noted.md
# See docs/decisions/0162-changes-between-compactions.md

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import LanceFragment

from omnigraph.dataclass import dataclass
from omnigraph.errors import VersionReclaimedError
from omnigraph.storage.base_paths import MovedDataset
from omnigraph.storage.blobs import with_content
from omnigraph.storage.files.scratch import RowCollector
from omnigraph.storage.row_changes import LOOKUP_LIMIT, ROW_ID, RowSource, matching
from omnigraph.storage.row_id_set import RowIdSet
from omnigraph.storage.scans import scanner
from omnigraph.storage.transactions import read_transaction

_ID = "id"
_CREATED = "_row_created_at_version"
_UPDATED = "_row_last_updated_at_version"
BATCH_BYTES = 16 << 20
"""Approximate size of the batches of a scan."""

MAX_WALKED_VERSIONS = 1_000
MAX_WALKED_COMPACTIONS = 32
"""Up to this many versions and compactions, the changes between the compactions are read step by step."""

RESTORED = "omnigraph:restored"
"""Configuration key of a table: the version of the last restore that undid visible changes."""

Numbers = np.ndarray[tuple[int], np.dtype[np.uint64]]
_NONE = pa.array([], pa.utf8())
_IDS = pa.schema([(_ID, pa.utf8()), (ROW_ID, pa.uint64())])
_CREATED_IDS = _IDS.append(pa.field(_CREATED, pa.uint64()))
FieldIds = frozenset[int]
"""The Lance field ids of a column: its own, and those of its nested fields."""

_NO_FIELD: FieldIds = frozenset()
"""Stands for the ids of a column that a version does not have."""

_SCANNED_FRAGMENTS = 4
"""Maximum number of fragments that are scanned together."""

_UPDATED_IDS = _IDS.append(pa.field(_UPDATED, pa.uint64()))
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Part = Callable[[pa.Array], Mask]
"""Selects a part of the entities: the mask of the given ids that belong to it."""


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
            batch_bytes=BATCH_BYTES,
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


@dataclass(frozen=True, slots=True)
class ChangedRowIds:
    """Rows that may differ between two versions: `id` and `_rowid` in each version, in no order.

    All other rows have equal values in both versions. A row that was rewritten with equal values is listed, too.

    Attributes:
        before: rows of the first version that were rewritten or removed.
        after: rows of the second version that are new or rewritten.
    """

    before: pa.Table
    after: pa.Table


def changed_row_ids(
    begin: LanceDataset,
    end: LanceDataset,
    shared: Sequence[tuple[str | None, str]],
    open_version: Callable[[int], LanceDataset],
    part: Part | None = None,
) -> ChangedRowIds | None:
    """Find the rows that may differ between a version and one of its descendants, on the same branch or on a fork.

    A fragment whose files with the shared columns are the same in both versions has equal rows, even if Lance recorded
    an update: an added column marks all rows of the table as updated.

    Args:
        begin: the ancestor.
        end: the descendant.
        shared: the columns to compare: their names in the first and in the second version; None if the first does not
            have the column. Then all rows of its files are listed.
        open_version: opens another version of the branch of the descendant.
        part: selects the rows to list; by default all. Other rows are not kept in memory while they are read.

    Returns:
        None if the changes that Lance recorded do not add up to the numbers of rows.
    """
    if last_restore(end) > begin.version:
        return _restored_row_ids(begin, end, part)
    fields = _field_ids(begin, [name for name, _ in shared]), _field_ids(end, [name for _, name in shared])
    with suppress(VersionReclaimedError):
        found = _walked_row_ids(begin, end, fields, open_version, part)
        if found is not None:
            return found
    return _recorded_row_ids(begin, end, fields, part)


Fields = tuple[Sequence[FieldIds], Sequence[FieldIds]]
"""The Lance field ids of the compared columns in the first and in the second version."""


def _recorded_row_ids(
    begin: LanceDataset, end: LanceDataset, fields: Fields, part: Part | None
) -> ChangedRowIds | None:
    """As `changed_row_ids`, from Lance's records in the newer version. Reads all row ids of compacted fragments."""
    old = {fragment.fragment_id: _column_files(fragment, fields[0]) for fragment in begin.get_fragments()}
    new = [f for f in end.get_fragments() if old.get(f.fragment_id) != _column_files(f, fields[1])]
    inserted_count = 0  # in all parts

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal inserted_count
        for batch in batches:
            inserted_count += pc.sum(pc.greater(batch.column(_CREATED), begin.version)).as_py() or 0
            yield batch

    written = counted(_scan(end, new, _CREATED_IDS.names, f"{_UPDATED} > {begin.version}"))
    found = _collected(_of_part(written, part), _CREATED_IDS)
    after = found.select(_IDS.names)
    # Rows with the same row id have the same id in both versions, so the ids of replaced rows are not read again.
    replaced = after.filter(pc.less_equal(found[_CREATED], begin.version))
    removed_count = begin.count_rows() + inserted_count - end.count_rows()
    removed = _IDS.empty_table()
    if removed_count:
        gone = _removed_rows(begin, end)
        if len(gone) != removed_count:
            return None
        removed, existing_count = _existing(begin, end, gone, part)
        if existing_count != removed_count:
            return None
    return ChangedRowIds(pa.concat_tables([replaced, removed]), after)


def _walked_row_ids(
    begin: LanceDataset,
    end: LanceDataset,
    fields: Fields,
    open_version: Callable[[int], LanceDataset],
    part: Part | None,
) -> ChangedRowIds | None:
    """As `changed_row_ids`, from the changes between compactions. None if there are no compactions, or too many.

    A compaction changes no row. So the cost depends on the changes before and after it, and not on its size.
    """
    steps = _steps_without_compactions(begin, end)
    if steps is None:
        return None
    touched: list[pa.Array] = []
    for first, last in steps:
        older, newer = (_version(number, begin, end, open_version) for number in (first, last))
        found = _recorded_row_ids(older, newer, (_fields_in(older, fields), _fields_in(newer, fields)), part)
        if found is None:
            return None
        touched += [side[ROW_ID].combine_chunks() for side in (found.before, found.after)]
    wanted = pa.concat_arrays([pa.array([], pa.uint64()), *touched]).unique()
    # They are already those of the part, because a row keeps its id in all versions.
    return ChangedRowIds(_existing(begin, end, wanted)[0], _existing(end, begin, wanted)[0])


def _steps_without_compactions(begin: LanceDataset, end: LanceDataset) -> list[tuple[int, int]] | None:
    """The version ranges between compactions. None if there are no compactions, or if the transactions are unknown."""
    if not 1 < end.version - begin.version <= MAX_WALKED_VERSIONS:
        return None
    try:
        kinds = {v: type(_transaction(end, v).operation) for v in range(begin.version + 1, end.version + 1)}
    except (OSError, TypeError, ValueError, RuntimeError):
        return None
    compactions = [version for version, kind in kinds.items() if kind is LanceOperation.Rewrite]
    if not 1 <= len(compactions) <= MAX_WALKED_COMPACTIONS:
        return None
    bounds = zip([begin.version, *compactions], [*(v - 1 for v in compactions), end.version], strict=True)
    return [(first, last) for first, last in bounds if first < last]


def _transaction(dataset: LanceDataset, version: int) -> Transaction:
    found = read_transaction(dataset, version)
    if found is None:
        raise ValueError(f"version {version} has no transaction")
    return found


def _version(
    number: int, begin: LanceDataset, end: LanceDataset, open_version: Callable[[int], LanceDataset]
) -> LanceDataset:
    return begin if number == begin.version else end if number == end.version else open_version(number)


def _fields_in(dataset: LanceDataset, fields: Fields) -> list[FieldIds]:
    """The field ids of the compared columns in an intermediate version. A column whose type changed has a new id."""
    known = {_with_nested(field) for field in dataset.lance_schema.fields()}
    return [old if old in known else new for old, new in zip(*fields, strict=True)]


def count_written(begin: LanceDataset, end: LanceDataset) -> int:
    """Estimate the number of rows that were written or removed between two versions. Reads no rows."""
    before = {fragment.fragment_id: fragment for fragment in begin.get_fragments()}
    count = 0
    for fragment in end.get_fragments():
        older = before.get(fragment.fragment_id)
        if older is not None and _files(older) == _files(fragment):
            count += older.metadata.num_rows - fragment.metadata.num_rows
            del before[fragment.fragment_id]
        else:
            count += fragment.metadata.num_rows
    return int(count + sum(fragment.metadata.num_rows for fragment in before.values()))


def row_ids_of(dataset: LanceDataset, fragments: Collection[int], part: Part | None = None) -> pa.Table:
    """`id` and `_rowid` of all rows of some fragments, or of those of a part."""
    chosen = [f for f in dataset.get_fragments() if f.fragment_id in fragments]
    return _collected(_of_part(_scan(dataset, chosen, _IDS.names), part), _IDS)


def rows_of(dataset: LanceDataset, row_ids: pa.Array, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Stream the rows with many row ids, in no order. Scans the newest fragments first, until all rows are found."""
    wanted = RowIdSet(row_ids)
    left = len(wanted)
    fragments = dataset.get_fragments()[::-1]
    together = 1  # the newest fragment often has all rows of a change
    while fragments and left:
        chosen, fragments = fragments[:together], fragments[together:]
        together = min(2 * together, _SCANNED_FRAGMENTS)
        scan = scanner(dataset, columns=list(columns), fragments=chosen, batch_bytes=BATCH_BYTES)
        for batch in scan.to_reader():
            rows = batch.filter(pa.array(wanted.among(batch.column(ROW_ID))))
            left -= rows.num_rows
            if rows.num_rows:
                yield rows


def _restored_row_ids(begin: LanceDataset, end: LanceDataset, part: Part | None) -> ChangedRowIds:
    sides = [
        _collected(_of_part(_scan(dataset, fragments, _UPDATED_IDS.names), part), _UPDATED_IDS)
        for dataset, fragments in zip((begin, end), _differing_fragments(begin, end), strict=True)
    ]
    # The same row with the same values has the same id, too, so it is in the same part.
    was, now = (side.select([ROW_ID, _UPDATED]) for side in sides)
    stays = now.join(was, [ROW_ID, _UPDATED], join_type="inner")[ROW_ID].combine_chunks()
    before, after = (
        side.filter(pc.invert(pc.is_in(side[ROW_ID], value_set=stays))).select(_IDS.names) for side in sides
    )
    return ChangedRowIds(before, after)


def _existing(
    dataset: LanceDataset, other: LanceDataset, wanted: pa.Array, part: Part | None = None
) -> tuple[pa.Table, int]:
    """The rows in `wanted` that `dataset` has: `id` and `_rowid` of those in the part, and the number of all.

    They must be in fragments that changed.
    """
    if len(wanted) == 0:
        return _IDS.empty_table(), 0
    if len(wanted) <= LOOKUP_LIMIT:
        taken = dataset._take_rows(wanted, columns=_IDS.names).select(_IDS.names).cast(_IDS)
        return _collected(_of_part(iter(taken.to_batches()), part), _IDS), taken.num_rows
    changed, _ = _differing_fragments(dataset, other)
    rows, count = RowIdSet(wanted), 0

    def matching_rows() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in _scan(dataset, changed, _IDS.names):
            found = batch.filter(pa.array(rows.among(batch.column(ROW_ID))))
            count += found.num_rows
            yield found

    return _collected(_of_part(matching_rows(), part), _IDS), count


def _scan(
    dataset: LanceDataset, fragments: Sequence[LanceFragment], columns: Sequence[str], filter: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Scan some fragments, batch by batch."""
    if fragments:
        yield from scanner(dataset, columns=columns, fragments=fragments, filter=filter).to_reader()


def _collected(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """A stream of rows as one table, in a temporary file if it is large."""
    with RowCollector(schema) as rows:
        for batch in batches:
            rows.add(batch)
        return rows.table()


def _of_part(batches: Iterator[pa.RecordBatch], part: Part | None) -> Iterator[pa.RecordBatch]:
    """Only the rows of a part."""
    if part is None:
        yield from batches
        return
    for batch in batches:
        if batch.num_rows:
            yield batch.filter(pa.array(part(batch.column(_ID))))


def _field_ids(dataset: LanceDataset, names: Sequence[str | None]) -> list[FieldIds]:
    numbers = {field.name(): _with_nested(field) for field in dataset.lance_schema.fields()}
    return [_NO_FIELD if name is None else numbers[name] for name in names]


def _with_nested(field: Any) -> FieldIds:
    """The id of a field, and those of its nested fields. Of a list, a file names only the field of the items."""
    return frozenset({field.id()}.union(*(_with_nested(child) for child in field.children())))


def _column_files(fragment: LanceFragment, fields: Sequence[FieldIds]) -> list[tuple[FieldIds, list[str]]]:
    """For each field, its ids and the files of the fragment that have it. Without a file, all its values are null."""
    files = [(file.path, set(file.fields)) for file in fragment.metadata.files]
    found = ((field, [path for path, ids in files if not field.isdisjoint(ids)]) for field in fields)
    return [(field, paths) if paths else (_NO_FIELD, paths) for field, paths in found]


def last_restore(dataset: LanceDataset) -> int:
    """Version number of the last restore that undid visible changes, up to this version; 0 if there is none."""
    return int(dataset.config().get(RESTORED, 0))


def _changes(begin: LanceDataset, end: LanceDataset) -> tuple[WrittenRows, pa.Array, pa.Array]:
    """The written rows, the ids of removed rows, and the ids that rewritten rows had before (only after a restore)."""
    if last_restore(end) > begin.version:
        return _compared(begin, end)
    return _written(begin, end), _ids(begin, _removed_rows(begin, end)), _NONE


def _compared(begin: LanceDataset, end: LanceDataset) -> tuple[WrittenRows, pa.Array, pa.Array]:
    """As `_changes`, but compares rows. A row is unchanged if its row id and the version that wrote it are the same."""
    old, new = _differing_fragments(begin, end)
    was, now = _recorded_versions(begin, old), _recorded_versions(end, new)
    stays = now.join(was, [ROW_ID, _UPDATED], join_type="inner")[ROW_ID].combine_chunks()
    written = now.filter(pc.invert(pc.is_in(now[ROW_ID], value_set=stays)))[ROW_ID].combine_chunks()
    changed = was.filter(pc.invert(pc.is_in(was[ROW_ID], value_set=stays)))[ROW_ID].combine_chunks()
    there = pc.is_in(changed, value_set=written)
    gone, replaced = changed.filter(pc.invert(there)), changed.filter(there)
    return WrittenRows(end, tuple(new), begin.version, written), _ids(begin, gone), _ids(begin, replaced)


def _differing_fragments(begin: LanceDataset, end: LanceDataset) -> tuple[list[LanceFragment], list[LanceFragment]]:
    """The fragments of each version whose files or deleted rows differ from those in the other version."""
    before = {fragment.fragment_id: (_files(fragment), _deletions(fragment)) for fragment in begin.get_fragments()}
    after = {fragment.fragment_id: (_files(fragment), _deletions(fragment)) for fragment in end.get_fragments()}
    old = [f for f in begin.get_fragments() if after.get(f.fragment_id) != before[f.fragment_id]]
    new = [f for f in end.get_fragments() if before.get(f.fragment_id) != after[f.fragment_id]]
    return old, new


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
        # Lance fails if another process rewrites base paths now, or if the first version is older than the fork.
        with suppress(OSError, ValueError, RuntimeError):
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
