"""Rows that replace others, brought together with those by tasks.

In one process the ids of all rows have to fit its memory. Here they meet on Spark: first it is found which rows of the
load replace a stored one, and where that lies; then tasks write down what every stored fragment loses, and write the
rows of every part of the input, those first that replace others. The driver gets names of files. What is committed is
what one process would have committed: the same rows in the same order, with the same row ids.
"""

# See docs/decisions/0103-a-large-merge-is-made-by-tasks.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.amounts import format_size, parse_amount
from omnigraph.pipeline.load.partition_task import KEY_BATCH, OwnRows
from omnigraph.pipeline.load.rules import Loaded, stored_pieces
from omnigraph.pipeline.spark.shuffle import Exchange, Relation, Side
from omnigraph.pipeline.spark.staging import Place
from omnigraph.settings import MERGE_THRESHOLD
from omnigraph.storage.row_changes import RemovedRows
from omnigraph.storage.staging import remove_rows, write_fragments
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.receipt import MergedType, MergeWay
from omnigraph.write.rules.duplicate_keys import ROW

_PART = "part"
_PLACE = "place"
_FRAGMENT = "fragment"
_ROW_ID = "_rowid"
_ADDRESS = "_rowaddr"
_STORED = pa.schema([("id", pa.utf8()), (_ROW_ID, pa.uint64()), (_ADDRESS, pa.uint64())])
_MATCHED = pa.schema([(_PART, pa.int64()), (_PLACE, pa.int64()), (_ROW_ID, pa.uint64()), (_ADDRESS, pa.uint64())])
_ASIDE = pa.schema([("path", pa.utf8()), ("rows", pa.int64())])
_LOST = pa.schema([("left", pa.utf8()), ("gone", pa.int64()), ("rows", pa.int64())])
_WRITTEN = pa.schema([("new", pa.bool_()), (_PART, pa.int64()), ("number", pa.int64()), ("text", pa.utf8())])


def merge_threshold(given: int | str | None) -> int:
    """From how many bytes on tasks merge: the argument, or else `OMNIGRAPH_MERGE_THRESHOLD`.

    Raises:
        InputError: it is not an amount.
    """
    if given is not None:
        return parse_amount("merge_threshold", str(given))
    return MERGE_THRESHOLD.amount()


def way_of(change: Loaded, threshold: int) -> MergedType:
    """Who merges the rows of a type."""
    size = sum(part.size for part in change.parts if part.staged is not None)
    way = MergeWay.TASKS if size >= threshold else MergeWay.PROCESS
    return MergedType(
        change.key, way, f"{format_size(size)} of rows, and from {format_size(threshold)} on tasks merge them"
    )


def merge_by_tasks(
    exchange: Exchange, place: Place, base: TableRef, change: Loaded, deleted: Sequence[str] = ()
) -> tuple[tuple[str, ...], RemovedRows]:
    """Write what a merge of the rows of one type changes. Nobody sees it yet.

    Args:
        exchange: brings rows together.
        place: the graph.
        base: the version to change.
        change: the rows; those that were put aside are merged.
        deleted: where ids were put aside whose rows go. None of them may be among the rows.

    Returns:
        What was written, in order, and what is gone for it: what `TableWrite` takes.
    """
    matched, rows = _matched(exchange, place, base, change, deleted)
    lost, written = exchange.gather(
        [_lost(exchange, place, base, matched), _written(exchange, place, base, change, matched)]
    )
    order = written.sort_by([("new", "ascending"), (_PART, "ascending"), ("number", "ascending")])
    left, gone = lost["left"].drop_null(), lost["gone"].drop_null()
    found = RemovedRows(tuple(left.to_pylist()), tuple(sorted(gone.to_pylist())), rows)
    return tuple(order["text"].to_pylist()), found


def _matched(
    exchange: Exchange, place: Place, base: TableRef, change: Loaded, deleted: Sequence[str]
) -> tuple[Relation, int]:
    """The rows that replace others, put aside: two jobs need them, and what is compared twice may be compared anew.

    Rows that go are found with them, in a part behind the last, of which nothing is written.
    """
    starts = np.array([*change.starts, change.read], np.int64)
    own = [
        OwnRows(place, part.keys, ("id",), first, change.dropped.get(i), numbered=True)
        for i, (part, first) in enumerate(zip(change.parts, change.starts, strict=True))
        if part.staged is not None and part.keys is not None
    ]
    own += [OwnRows(place, path, ("id",), change.read, numbered=True) for path in deleted]
    mine = exchange.read(own, pa.schema([("id", pa.utf8()), (ROW, pa.int64())]), change.count)
    pieces = stored_pieces(place, base, _STORED.names)
    stored = exchange.read(pieces, _STORED, place.tables.at(base).count())
    found = exchange.together([Side(mine, ["id"]), Side(stored, ["id"])], _replacing(starts))
    aside = exchange.gather([found.mapped(_put_aside(place))])[0]
    rows = sum(aside["rows"].to_pylist())
    return exchange.read([_Aside(place, path) for path in aside["path"].to_pylist()], _MATCHED, rows), rows


def _replacing(starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """Which rows of the load have a stored one under their id: their part, their place in it, and where that is."""

    def compare(own: pa.Table, stored: pa.Table) -> pa.Table:
        found = pc.index_in(own["id"], value_set=stored["id"].combine_chunks())
        rows = own[ROW].filter(found.is_valid()).to_numpy()
        part = np.searchsorted(starts, rows, side="right") - 1
        known = stored.select([_ROW_ID, _ADDRESS]).take(found.drop_null())
        return pa.table([pa.array(part), pa.array(rows - starts[part]), *known.columns], schema=_MATCHED)

    return compare


def _put_aside(place: Place) -> Callable[[pa.Table], pa.Table]:
    def put(rows: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return _ASIDE.empty_table()
        return pa.table({"path": [place.put("matched/rows", rows)], "rows": [rows.num_rows]}, schema=_ASIDE)

    return put


@dataclass(frozen=True, slots=True)
class _Aside:
    """Rows that were found to replace others."""

    place: Place
    path: str

    def tables(self) -> Iterator[pa.Table]:
        rows = self.place.table(self.path)
        for start in range(0, rows.num_rows, KEY_BATCH):
            yield rows.slice(start, KEY_BATCH).combine_chunks()


def _lost(exchange: Exchange, place: Place, base: TableRef, matched: Relation) -> Relation:
    """What every stored fragment loses: all rows that are gone from one meet in one task."""

    def numbered(rows: pa.Table) -> pa.Table:
        fragment = pc.shift_right(rows[_ADDRESS], pa.scalar(32, pa.uint64())).cast(pa.int64())
        return pa.table({_FRAGMENT: fragment, _ADDRESS: rows[_ADDRESS]})

    def remove(rows: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return _LOST.empty_table()
        found = remove_rows(place.tables.at(base), rows[_ADDRESS].combine_chunks())
        texts, gone = list(found.left), list(found.gone)
        counts = [found.rows, *[0] * (len(texts) + len(gone) - 1)]
        return pa.table([texts + [None] * len(gone), [None] * len(texts) + gone, counts], schema=_LOST)

    return exchange.together([Side(matched.mapped(numbered), [_FRAGMENT])], remove)


def _written(exchange: Exchange, place: Place, base: TableRef, change: Loaded, matched: Relation) -> Relation:
    """The rows of every part: those that replace others, with the row ids of those, and the new ones."""
    staged = {i: (part.staged, change.dropped.get(i)) for i, part in enumerate(change.parts) if part.staged is not None}
    numbers = exchange.read([_Numbers(tuple(staged))], pa.schema([(_PART, pa.int64())]), len(staged))

    def write(parts: pa.Table, rows: pa.Table) -> pa.Table:
        written: list[tuple[bool, int, int, str]] = []
        for part in sorted(parts[_PART].to_pylist()):
            path, dropped = staged[part]
            known = rows.filter(pc.equal(rows[_PART], part)).sort_by(_PLACE)
            whole = place.table(path)
            places = known[_PLACE].to_numpy()
            fresh = np.ones(whole.num_rows, bool)
            fresh[places] = False
            if dropped is not None:
                fresh[dropped] = False
            old, new = whole.take(pa.array(places)), whole.filter(pa.array(fresh))
            replacing = write_fragments(place.tables.at(base), old, known[_ROW_ID].combine_chunks())
            written += [(False, part, number, text) for number, text in enumerate(replacing)]
            added = write_fragments(place.tables.at(base), new)
            written += [(True, part, number, text) for number, text in enumerate(added)]
        columns = [list(column) for column in zip(*written, strict=True)] or [[] for _ in _WRITTEN]
        return pa.table(columns, schema=_WRITTEN)

    sides = [Side(numbers, [_PART]), Side(matched.mapped(_only([_PART, _PLACE, _ROW_ID])), [_PART])]
    return exchange.together(sides, write, tasks=len(staged))


def _only(names: Sequence[str]) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.select(list(names))


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The parts that there are, so that those are written, too, of which no row replaces another."""

    numbers: tuple[int, ...]

    def tables(self) -> Iterator[pa.Table]:
        yield pa.table({_PART: pa.array(self.numbers, pa.int64())})
