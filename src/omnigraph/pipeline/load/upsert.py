"""Merges loaded rows with stored rows by tasks.

A merge in one process needs memory for the ids of all rows. Here a shuffle finds the loaded rows that replace a stored
row, and the address of this row. Then tasks write a deletion file for every stored fragment from which rows are
removed. They also write the rows of every part of the input: first the rows that replace stored rows, then the new
rows. The driver receives only file names. The result is the same as in one process: the same rows in the same order,
with the same row ids.
"""

# See docs/decisions/0103-a-large-merge-is-made-by-tasks.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.amounts import format_size, parse_amount
from omnigraph.dataclass import dataclass
from omnigraph.pipeline.load.partition_task import KEY_BATCH, LoadedRows
from omnigraph.pipeline.load.rules import LoadedType, stored_inputs
from omnigraph.pipeline.spark.shuffle import Relation, Shuffle, Side
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.settings import MERGE_THRESHOLD
from omnigraph.storage.row_changes import RemovedRows
from omnigraph.storage.staging import remove_rows, write_fragments
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.receipt import MergedType, MergeWay
from omnigraph.write.rules.constraints import ROW

_PART = "part"
_POSITION = "position"
_FRAGMENT = "fragment"
_ROW_ID = "_rowid"
_ADDRESS = "_rowaddr"
_STORED = pa.schema([("id", pa.utf8()), (_ROW_ID, pa.uint64()), (_ADDRESS, pa.uint64())])
_MATCHED = pa.schema([(_PART, pa.int64()), (_POSITION, pa.int64()), (_ROW_ID, pa.uint64()), (_ADDRESS, pa.uint64())])
_STAGED_FILES = pa.schema([("path", pa.utf8()), ("rows", pa.int64())])
_REMOVALS = pa.schema([("left", pa.utf8()), ("gone", pa.int64()), ("rows", pa.int64())])
_WRITTEN = pa.schema([("new", pa.bool_()), (_PART, pa.int64()), ("number", pa.int64()), ("text", pa.utf8())])


def merge_threshold(given: int | str | None) -> int:
    """The size of rows in bytes from which on tasks merge them: the argument, or `OMNIGRAPH_MERGE_THRESHOLD`.

    Raises:
        InputError: the text is not a valid size.
    """
    if given is not None:
        return parse_amount("merge_threshold", str(given))
    return MERGE_THRESHOLD.amount()


def choose_merge(change: LoadedType, threshold: int) -> MergedType:
    """Choose how the rows of a type are merged: by tasks or in one process."""
    size = sum(part.size for part in change.parts if part.staged is not None)
    method = MergeWay.TASKS if size >= threshold else MergeWay.PROCESS
    return MergedType(change.key, method, f"{format_size(size)} of rows; tasks merge {format_size(threshold)} or more")


def merge_by_tasks(
    shuffle: Shuffle, staging: Staging, base: TableRef, change: LoadedType, deleted: Sequence[str] = ()
) -> tuple[tuple[str, ...], RemovedRows]:
    """Write the files of a merge of one type. They become visible with the commit.

    Args:
        shuffle: the shuffle.
        staging: the staging directory.
        base: the table version to change.
        change: the loaded rows. Only rows in staged files are merged.
        deleted: staged files with the ids of rows to delete. None of these ids may be in `change`.

    Returns:
        The new fragments, in order, and the removed rows. These are arguments of `ChangeFragments`.
    """
    matched, rows = _matched(shuffle, staging, base, change, deleted)
    removals, written = shuffle.collect(
        [_removals(shuffle, staging, base, matched), _writes(shuffle, staging, base, change, matched)]
    )
    order = written.sort_by([("new", "ascending"), (_PART, "ascending"), ("number", "ascending")])
    left, gone = removals["left"].drop_null(), removals["gone"].drop_null()
    found = RemovedRows(tuple(left.to_pylist()), tuple(sorted(gone.to_pylist())), rows)
    return tuple(order["text"].to_pylist()), found


def _matched(
    shuffle: Shuffle, staging: Staging, base: TableRef, change: LoadedType, deleted: Sequence[str]
) -> tuple[Relation, int]:
    """Find the loaded rows that replace stored rows. The matches are staged, because they are read twice.

    Rows to delete are matched, too. Their part number is one after the last part, so no rows are written for them.
    """
    starts = np.array([*change.starts, change.read], np.int64)
    loaded_inputs = [
        LoadedRows(staging, part.keys, ("id",), first, change.dropped.get(i), numbered=True)
        for i, (part, first) in enumerate(zip(change.parts, change.starts, strict=True))
        if part.staged is not None and part.keys is not None
    ]
    loaded_inputs += [LoadedRows(staging, path, ("id",), change.read, numbered=True) for path in deleted]
    loaded = shuffle.read(loaded_inputs, pa.schema([("id", pa.utf8()), (ROW, pa.int64())]), change.count)
    inputs = stored_inputs(staging, base, _STORED.names)
    stored = shuffle.read(inputs, _STORED, staging.tables.at(base).count())
    found = shuffle.cogroup([Side(loaded, ["id"]), Side(stored, ["id"])], _replacing(starts))
    staged = shuffle.collect([found.map(_stage_matches(staging))])[0]
    rows = sum(staged["rows"].to_pylist())
    return shuffle.read([_StagedMatches(staging, path) for path in staged["path"].to_pylist()], _MATCHED, rows), rows


def _replacing(starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """Returns a function that matches loaded rows with stored rows by id.

    The result has the part, the position in the part, and the row id and address of the stored row.
    """

    def compare(loaded: pa.Table, stored: pa.Table) -> pa.Table:
        found = pc.index_in(loaded["id"], value_set=stored["id"].combine_chunks())
        rows = loaded[ROW].filter(found.is_valid()).to_numpy()
        part = np.searchsorted(starts, rows, side="right") - 1
        known = stored.select([_ROW_ID, _ADDRESS]).take(found.drop_null())
        return pa.table([pa.array(part), pa.array(rows - starts[part]), *known.columns], schema=_MATCHED)

    return compare


def _stage_matches(staging: Staging) -> Callable[[pa.Table], pa.Table]:
    def put(rows: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return _STAGED_FILES.empty_table()
        return pa.table({"path": [staging.put("matched/rows", rows)], "rows": [rows.num_rows]}, schema=_STAGED_FILES)

    return put


@dataclass(frozen=True, slots=True)
class _StagedMatches:
    """Staged matches, as a task reads them."""

    staging: Staging
    path: str

    def tables(self) -> Iterator[pa.Table]:
        rows = self.staging.table(self.path)
        for start in range(0, rows.num_rows, KEY_BATCH):
            yield rows.slice(start, KEY_BATCH).combine_chunks()


def _removals(shuffle: Shuffle, staging: Staging, base: TableRef, matched: Relation) -> Relation:
    """Remove the replaced rows from the stored fragments. One task handles all removed rows of a fragment."""

    def numbered(rows: pa.Table) -> pa.Table:
        fragment = pc.shift_right(rows[_ADDRESS], pa.scalar(32, pa.uint64())).cast(pa.int64())
        return pa.table({_FRAGMENT: fragment, _ADDRESS: rows[_ADDRESS]})

    def remove(rows: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return _REMOVALS.empty_table()
        found = remove_rows(staging.tables.at(base), rows[_ADDRESS].combine_chunks())
        texts, gone = list(found.left), list(found.gone)
        counts = [found.rows, *[0] * (len(texts) + len(gone) - 1)]
        return pa.table([texts + [None] * len(gone), [None] * len(texts) + gone, counts], schema=_REMOVALS)

    return shuffle.cogroup([Side(matched.map(numbered), [_FRAGMENT])], remove)


def _writes(shuffle: Shuffle, staging: Staging, base: TableRef, change: LoadedType, matched: Relation) -> Relation:
    """Write the rows of every part. A row that replaces a stored row gets the row id of that row."""
    staged = {i: (part.staged, change.dropped.get(i)) for i, part in enumerate(change.parts) if part.staged is not None}
    numbers = shuffle.read([_PartNumbers(tuple(staged))], pa.schema([(_PART, pa.int64())]), len(staged))

    def write(parts: pa.Table, rows: pa.Table) -> pa.Table:
        written: list[tuple[bool, int, int, str]] = []
        for part in sorted(parts[_PART].to_pylist()):
            path, dropped = staged[part]
            known = rows.filter(pc.equal(rows[_PART], part)).sort_by(_POSITION)
            whole = staging.table(path)
            positions = known[_POSITION].to_numpy()
            fresh = np.ones(whole.num_rows, bool)
            fresh[positions] = False
            if dropped is not None:
                fresh[dropped] = False
            old, new = whole.take(pa.array(positions)), whole.filter(pa.array(fresh))
            replacing = write_fragments(staging.tables.at(base), old, known[_ROW_ID].combine_chunks())
            written += [(False, part, number, text) for number, text in enumerate(replacing)]
            added = write_fragments(staging.tables.at(base), new)
            written += [(True, part, number, text) for number, text in enumerate(added)]
        columns = [list(column) for column in zip(*written, strict=True)] or [[] for _ in _WRITTEN]
        return pa.table(columns, schema=_WRITTEN)

    sides = [Side(numbers, [_PART]), Side(matched.map(_only([_PART, _POSITION, _ROW_ID])), [_PART])]
    return shuffle.cogroup(sides, write, tasks=len(staged))


def _only(names: Sequence[str]) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.select(list(names))


@dataclass(frozen=True, slots=True)
class _PartNumbers:
    """The numbers of all parts, as input of the tasks, so that parts without replaced rows are written, too."""

    numbers: tuple[int, ...]

    def tables(self) -> Iterator[pa.Table]:
        yield pa.table({_PART: pa.array(self.numbers, pa.int64())})
