"""Group, sort and project rows that do not fit the memory budget. The rows arrive in chunks and are spilled to disk.

If the limit is small, only the first rows so far are kept. If all aggregates are counts, equal rows are merged and
their weights added. All other rows are spilled and partitioned by sort keys or grouping keys. Each partition fits the
memory budget, and the shape operators run on one partition after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import note_spill
from omnigraph.read.budget.chunks import CHUNK_ROWS, chunks
from omnigraph.read.columns.entity_table import as_one_array
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sort_keys import Key, in_order
from omnigraph.read.columns.sorting import groups_of
from omnigraph.read.context.context import Context
from omnigraph.read.query.expression import Expression
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.frame import Frame, concat_frames
from omnigraph.read.rows.size_estimates import materialized_bytes
from omnigraph.read.rows.spilled_rows import SpilledRows, Weighted
from omnigraph.read.shape.grouping import type_column
from omnigraph.read.shape.groups import Groups
from omnigraph.read.shape.operator import MatchRows, ShapeOperator, ShapeRows, ShapeRun
from omnigraph.read.shape.project import project_frame
from omnigraph.read.shape.query_sort_keys import column_keys, group_keys, match_keys
from omnigraph.read.shape.result_columns import ResultColumns, result_table
from omnigraph.read.shape.sort import Sort, top_ranked
from omnigraph.storage.files.scratch import Scratch

MIN_BUFFER_BYTES = 1 << 20
"""Minimum size of the row buffer in bytes, unless this is more than a quarter of the memory budget."""

BUFFER_MEMORY_RATIO = 8
"""The row buffer takes 1 / `BUFFER_MEMORY_RATIO` of the memory budget."""

_SORT_ROW_BYTES = 64
"""Estimated number of bytes per row that sorting needs in addition to the row itself."""

MAX_PARTITIONS = 64
"""Maximum number of partitions into which rows are divided at a time."""

SAMPLES_PER_PARTITION = 16
"""Number of sampled rows per partition. The bounds of the partitions are computed from the samples."""

_COPIES = 2
"""Number of copies of the groups in memory while they are sorted."""

_DISK_HINT = "free disk space in this directory, set TMPDIR to another directory, or add a limit"

Keys = Callable[[Frame], Sequence[Key]]


def rows_exceed_disk(query: ReadQuery, size: float, context: Context) -> bool:
    """Whether a read returns all rows of its match, and `size` (the bytes of these rows) exceeds the disk budget."""
    disk, read = context.budget.budget.disk, query.read
    return not (read.grouped or read.distinct or read.limit) and disk is not None and size > disk


def shape_chunks(
    operators: Sequence[ShapeOperator], chunks_: Iterable[MatchRows], query: ReadQuery, context: Context
) -> pa.Table:
    """Compute the result of a match whose rows arrive in chunks. There is at least one chunk.

    Args:
        operators: the shape operators of the plan.
        chunks_: the rows of the match, in chunks.
        query: the query.
        context: the state of the running read: snapshot, parameters and budget.

    Raises:
        BudgetExceededError: a partition that cannot be divided exceeds the memory budget.
        StorageError: the disk is full.
    """
    return _ChunkShaping(operators, query, context).run(chunks_)


class _ChunkShaping:
    def __init__(self, operators: Sequence[ShapeOperator], query: ReadQuery, context: Context) -> None:
        self.operators = operators
        self.query = query
        self.context = context
        self.budget = context.budget
        self.sort = next(operator for operator in operators if isinstance(operator, Sort))
        most = self.budget.most
        self.room = 1 << 62 if most is None else max(most // BUFFER_MEMORY_RATIO, min(MIN_BUFFER_BYTES, most // 4))

    def run(self, chunks_: Iterable[MatchRows]) -> pa.Table:
        if self.query.read.grouped or self.query.read.distinct:
            return self._grouped(chunks_)
        offset, limit = self.sort.offset, self.sort.limit
        if limit is not None and (offset + limit) * _SORT_ROW_BYTES <= self.room:
            return self._top_rows(chunks_, offset + limit)
        return self._all_rows(chunks_)

    def _shape(self, rows: MatchRows) -> pa.Table:
        """Run all shape operators in memory."""
        return self._apply(self.operators, rows)

    def _apply(self, operators: Sequence[ShapeOperator], rows: ShapeRows) -> ShapeRows:
        run = ShapeRun(self.query, self.context)
        for operator in operators:
            rows = operator.execute(rows, run)
        return rows

    def _top_ranked(self, frame: Frame) -> Frame:
        return top_ranked(self.query, frame, self.context, self.sort.offset, self.sort.limit)

    def _match_order(self, frame: Frame, offset: int, limit: int | None) -> Numbers:
        return in_order(match_keys(self.query, frame, self.context), frame.count, offset, limit)

    def _top_rows(self, chunks_: Iterable[MatchRows], end: int) -> pa.Table:
        """Compute the result of a read with a small limit. Only the first rows are kept while chunks arrive."""
        best: Frame | None = None
        for rows in chunks_:
            frame = self._top_ranked(rows.frame)
            best = frame if best is None else concat_frames([best, frame])
            best = best.take(self._match_order(best, 0, end))
            self.budget.kept = best.nbytes
        self.budget.kept = 0
        assert best is not None, "there is at least one chunk"
        return self._shape(MatchRows(best))

    def _all_rows(self, chunks_: Iterable[MatchRows]) -> pa.Table:
        offset, limit = self.sort.offset, self.sort.limit
        with ExitStack() as stack:
            buffer = stack.enter_context(SpilledRows(self.room))
            for rows in chunks_:
                frame = self._top_ranked(rows.frame)
                buffer.add((frame, np.ones(frame.count, np.int64)))
                self.budget.kept = buffer.held
            end = buffer.count if limit is None else min(offset + limit, buffer.count)
            self.budget.note_returned(max(end - offset, 0))
            if not buffer.spilled and self._fits(frame := buffer.whole()[0]):
                self.budget.kept = 0
                return self._shape(MatchRows(frame))
            scratch, place = stack.enter_context(Scratch(self.query.schema, hint=_DISK_HINT)), 0
            for frame, _ in self._partitions(buffer, lambda rows: match_keys(self.query, rows, self.context)):
                first, last = max(offset - place, 0), min(end - place, frame.count)
                place += frame.count
                if first >= last:
                    continue
                chosen = self._match_order(frame, first, last - first)
                each = materialized_bytes(self.query.columns.values(), frame) // frame.count
                for begin, stop in chunks(len(chosen), max(min(CHUNK_ROWS, self.room // max(each, 1)), 1)):
                    _write(scratch, project_frame(self.query, frame.take(chosen[begin:stop]), self.context))
            return scratch.table()

    def _fits(self, frame: Frame) -> bool:
        """Whether the texts and lists of the result fit the memory budget, in addition to the rows of the match."""
        most = self.budget.most
        return most is None or materialized_bytes(self.query.columns.values(), frame) <= most // 2

    def _grouped(self, chunks_: Iterable[MatchRows]) -> pa.Table:
        query, countable = self.query, self.query.is_countable
        names = [column.name for column in (query.keys if query.read.grouped else query.read.columns)]
        with SpilledRows(self.room, _add_up_duplicates if countable else None) as buffer:
            for rows in chunks_:
                frame = _project_variables(rows.frame, query.result_variables)
                weights = np.ones(frame.count, np.int64) if rows.weights is None else rows.weights
                buffer.add((frame, weights))
                self.budget.kept = buffer.held
            if not buffer.spilled or not names:
                self.budget.kept = 0
                frame, weights = buffer.whole()
                return self._shape(MatchRows(frame, weights if countable else None))
            places = self._tie_places()
            ordered = sorted(names, key=lambda name: places.get(name, len(places)))
            by: Mapping[str, Expression] = {name: query.columns[name] for name in ordered}
            parts = (
                self._groups(MatchRows(frame, weights if countable else None))
                for frame, weights in self._partitions(buffer, lambda rows: column_keys(by, rows, self.context))
            )
            if not query.read.order and {*names} == places.keys():
                return self._in_order(parts)
            return self._collected(parts)

    def _tie_places(self) -> dict[str, int]:
        """Result columns that are tie-breakers, with their position among the tie-breakers."""
        ties = self.query.read.ties
        return {tie.name: place for place, tie in enumerate(ties) if isinstance(tie, ir.Column)}

    def _groups(self, rows: MatchRows) -> pa.Table:
        """Compute the groups of one partition, as a table with hidden type columns (see `type_column`)."""
        found = self._apply(self.operators[: self.operators.index(self.sort)], rows)
        assert isinstance(found, ResultColumns)
        columns = self.query.columns
        names = [*columns, *(type_column(n) for n, e in columns.items() if isinstance(e.expr, ir.Entity))]
        return pa.table({name: found[name] for name in names})

    def _in_order(self, parts: Iterable[pa.Table]) -> pa.Table:
        """Build the result from tables of groups, which arrive in the order of the result."""
        offset, limit = self.sort.offset, self.sort.limit
        place = returned = 0
        with Scratch(self.query.schema, hint=_DISK_HINT) as scratch:
            for groups in parts:
                left = None if limit is None else limit - returned
                kept = self._first_groups(groups, max(offset - place, 0), left)
                _write(scratch, result_table(self.query, {name: kept[name] for name in kept.column_names}))
                place += groups.num_rows
                returned += kept.num_rows
                self.budget.note_returned(returned)
                if returned == limit:
                    break
            return scratch.table()

    def _collected(self, parts: Iterable[pa.Table]) -> pa.Table:
        """Build the result from tables of groups, which arrive in any order.

        All groups are in memory; with a limit, only as many groups as the limit allows.
        """
        offset, limit = self.sort.offset, self.sort.limit
        found: pa.Table | None = None
        for groups in parts:
            found = groups if found is None else pa.concat_tables([found, groups])
            self.budget.hold(found.nbytes * _COPIES)
            if limit is not None:
                found = self._first_groups(found, 0, offset + limit)
        assert found is not None, "there is at least one part"
        self.budget.hold(0)
        return self._apply(self.operators[self.operators.index(self.sort) :], self._as_columns(found))

    def _first_groups(self, groups: pa.Table, offset: int, limit: int | None) -> pa.Table:
        keys = group_keys(self.query, self._as_columns(groups), self.context)
        return groups.take(pa.array(in_order(keys, groups.num_rows, offset, limit)))

    def _as_columns(self, groups: pa.Table) -> ResultColumns:
        columns = {name: as_one_array(column) for name, column in zip(groups.column_names, groups.columns, strict=True)}
        return ResultColumns(groups.num_rows, columns, {}, Frame(0), np.zeros(0, np.int64), self.context)

    # Partitions

    def _partitions(self, buffer: SpilledRows, keys: Keys) -> Iterator[Weighted]:
        """Partition rows by ranges of their keys into partitions that fit the memory budget, in key order.

        Rows with equal keys are in the same partition.
        """
        each = max(self.room * buffer.count // max(buffer.size + _SORT_ROW_BYTES * buffer.count, 1), 1)
        parts = min(-(-buffer.count // each), MAX_PARTITIONS)
        self.budget.kept = buffer.held
        if parts <= 1:
            whole = buffer.whole()
            self.budget.hold(whole[0].nbytes)
            yield whole
            return
        bounds = _bounds(buffer, keys, parts)
        with ExitStack() as stack:
            buffers = [stack.enter_context(SpilledRows(self.room // parts)) for _ in range(bounds.count + 1)]
            for frame, weights in buffer.parts():
                for first, last in chunks(frame.count, min(CHUNK_ROWS, each)):
                    for number, rows in _assign(frame.part(first, last), bounds, keys):
                        buffers[number].add((frame.take(rows + first), weights[rows + first]))
            for part in buffers:
                if part.count == buffer.count:
                    # All rows have equal keys, so this partition cannot be divided.
                    whole = part.whole()
                    self.budget.hold(whole[0].nbytes)
                    yield whole
                elif part.count:
                    yield from self._partitions(part, keys)


def _write(scratch: Scratch, rows: pa.Table) -> None:
    note_spill(rows.nbytes)
    scratch.write(rows)


def _project_variables(frame: Frame, names: frozenset[str]) -> Frame:
    """A copy of the frame with only the given variables and values."""
    return Frame(
        frame.count,
        {name: binding for name, binding in frame.bindings.items() if name in names},
        {name: path for name, path in frame.paths.items() if name in names},
        searching=frame.searching,
        values={name: values for name, values in frame.values.items() if name in names},
    )


def _add_up_duplicates(rows: Weighted) -> Weighted:
    """Merge rows that have the same entities in all variables and equal values, and add up their weights."""
    frame, weights = rows
    if frame.paths:
        return rows
    first, group = groups_of(frame.keys([*frame.bindings, *frame.values]))
    return frame.take(first), Groups(len(group), len(first), group).total(weights).to_numpy()


def _bounds(buffer: SpilledRows, keys: Keys, parts: int) -> Frame:
    """Sampled rows that are the bounds of partitions of about equal size."""
    step = max(buffer.count // (parts * SAMPLES_PER_PARTITION), 1)
    samples, start = [], 0
    for frame, _ in buffer.parts():
        samples.append(frame.take(np.arange(start, frame.count, step)))
        start = (start - frame.count) % step
    together = concat_frames(samples)
    order = in_order(keys(together), together.count, 0, None)
    return together.take(order[SAMPLES_PER_PARTITION::SAMPLES_PER_PARTITION])


def _assign(frame: Frame, bounds: Frame, keys: Keys) -> Iterator[tuple[int, Numbers]]:
    """Assign rows to partitions: for each partition, its number and its rows.

    A row that is equal to a bound belongs to the partition after the bound.
    """
    together = concat_frames([bounds, frame])
    order = in_order(keys(together), together.count, 0, None)
    ends = np.flatnonzero(order < bounds.count)
    for number, rows in enumerate(np.split(order, ends)):
        mine = np.sort(rows[rows >= bounds.count] - bounds.count)
        if len(mine):
            yield number, mine
