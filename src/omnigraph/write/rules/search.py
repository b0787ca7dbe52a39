"""Searches whole tables for rows that break a constraint, in this process or on Spark.

A search counts all rows that break the constraint, and keeps only the first ones. Rows that share a value are compared
in hash partitions: each partition has all rows with its values, and fits into the memory limit.
"""

# See docs/decisions/0199-whole-table-checks-are-searches.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.write.rows.hashing import Digests, digests
from omnigraph.write.rules.constraints import (
    HASH_ROW_BYTES,
    JOIN_ROW_BYTES,
    MemoryLimit,
    repeated_values,
    without_nulls,
)
from omnigraph.write.rules.violations import SHOWN
from omnigraph.write.spill import Spool

_WAYS = 16
"""Number of hash partitions that rows are split into. A partition that is still too large is split again."""

_MOST_SPLITS = 12
"""Maximum number of times that rows are split. After that, the rows of a partition have equal values."""

_HASH = "hash"


class Stored(Protocol):
    """A stored state of the graph that can be read."""

    def batches(self, key: str, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader: ...


Find = Callable[..., pa.Table]
"""Returns the rows that break a constraint. It is sent to tasks on other machines."""


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows of one type that are compared with other rows that have the same values.

    Attributes:
        key: the type key.
        columns: the columns to read.
        by: the columns whose values are the same in rows that are compared. They have no nulls after `reduce`.
        reduce: converts each batch, before rows are brought together. If it aggregates rows with the same values, a
            value that very many rows have needs little memory.
    """

    key: str
    columns: tuple[str, ...]
    by: tuple[str, ...]
    reduce: Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows that break a constraint, and the number of all such rows."""

    rows: pa.Table
    total: int

    @classmethod
    def of(cls, parts: Iterator[pa.Table], order: str) -> FirstRows | None:
        """Collect parts. None if they have no rows.

        Args:
            parts: the rows of each part.
            order: the column to sort the rows by.
        """
        first: pa.Table | None = None
        total = 0
        for part in parts:
            if part.num_rows == 0:
                continue
            total += part.num_rows
            together = part if first is None else pa.concat_tables([first, part])
            first = together.sort_by(order).slice(0, SHOWN)
        return None if first is None else cls(first, total)


class Search(Protocol):
    """Searches stored rows for violations, in this process or on Spark."""

    def each(self, key: str, columns: Sequence[str], find: Find, order: str) -> FirstRows | None:
        """Search row by row.

        Args:
            key: the type key.
            columns: the columns to read.
            find: returns the rows of a batch that break the constraint.
            order: the column that decides which rows are the first.
        """
        ...

    def grouped(self, sides: Sequence[GroupedRows], find: Find, order: str) -> FirstRows | None:
        """Compare rows that have the same values.

        Args:
            sides: the rows. Rows of all sides are brought together.
            find: receives the rows of all sides in one hash partition, and returns the rows that break the constraint.
            order: the column that decides which rows are the first.
        """
        ...

    def repeated(self, rows: GroupedRows, find: Find, order: str) -> FirstRows | None:
        """Compare rows that have the same values as another row. Other rows need not be passed to `find`.

        The columns of `by` are stored columns. Rows with a null in one of them are left out.
        """
        ...


class LocalSearch:
    """Searches in this process. Rows that exceed the memory limit spill to temporary files.

    Args:
        stored: the rows.
        memory: the memory limit.
    """

    def __init__(self, stored: Stored, memory: MemoryLimit | None = None) -> None:
        self._stored = stored
        self._memory = memory or MemoryLimit()

    def each(self, key: str, columns: Sequence[str], find: Find, order: str) -> FirstRows | None:
        return FirstRows.of((find(rows) for rows in self._tables(key, columns)), order)

    def grouped(self, sides: Sequence[GroupedRows], find: Find, order: str) -> FirstRows | None:
        inputs = [self._input(side) for side in sides]
        return FirstRows.of((find(*part) for part in partitioned(inputs, self._memory.limit)), order)

    def repeated(self, rows: GroupedRows, find: Find, order: str) -> FirstRows | None:
        hashes = self._repeated_hashes(rows)
        if hashes is not None:
            if len(hashes) == 0:
                return None
            rows = replace(rows, reduce=_Repeated(rows, hashes))
        return self.grouped([rows], find, order)

    def _repeated_hashes(self, rows: GroupedRows) -> Digests | None:
        """The hashes of values that may occur twice or more, sorted; None if they exceed a part of the memory limit."""
        numbers = (
            pa.table({_HASH: _hashes(without_nulls(table, rows.by), rows.by)})
            for table in self._tables(rows.key, rows.by)
        )
        schema = pa.schema([(_HASH, pa.uint64())])
        found: list[Digests] = [np.zeros(0, np.uint64)]
        size = 0
        inputs = [_Input(numbers, (_HASH,), schema, HASH_ROW_BYTES)]
        for (part,) in partitioned(inputs, self._memory.limit // 2):
            found.append(repeated_values(part[_HASH].to_numpy()))
            size += found[-1].nbytes
            if size > self._memory.limit // 4:
                return None
        return np.sort(np.concatenate(found))

    def _input(self, side: GroupedRows) -> _Input:
        schema = side.reduce(self._stored.batches(side.key, columns=side.columns).schema.empty_table()).schema
        tables = (side.reduce(rows) for rows in self._tables(side.key, side.columns))
        return _Input(tables, side.by, schema, JOIN_ROW_BYTES)

    def _tables(self, key: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        for batch in self._stored.batches(key, columns=columns):
            yield pa.Table.from_batches([batch])


@dataclass(frozen=True, slots=True)
class _Repeated:
    """Keeps only rows with one of the hashes, and converts them like `rows.reduce`."""

    rows: GroupedRows
    hashes: Digests

    def __call__(self, table: pa.Table) -> pa.Table:
        by = self.rows.by
        table = without_nulls(table, by)
        return self.rows.reduce(table.filter(pa.array(np.isin(_hashes(table, by), self.hashes))))


def _hashes(rows: pa.Table, by: Sequence[str]) -> Digests:
    return digests([rows[name] for name in by])


@dataclass(frozen=True, slots=True)
class _Input:
    """Rows to partition.

    Attributes:
        tables: the rows.
        by: the columns that are hashed.
        schema: the columns of the rows.
        row_bytes: bytes of memory per row in addition to its values.
    """

    tables: Iterator[pa.Table]
    by: tuple[str, ...]
    schema: pa.Schema
    row_bytes: int


def partitioned(sides: Sequence[_Input], limit: int, split: int = 0) -> Iterator[list[pa.Table]]:
    """Partition the rows of several sides by hash, so that each partition fits into a memory limit.

    Rows that fit together are one partition. Otherwise they spill to temporary files, and each file is partitioned
    again if it is too large.

    Args:
        sides: the rows.
        limit: the memory limit in bytes.
        split: how often the rows were split before.
    """
    kept: list[list[pa.Table]] = [[side.schema.empty_table()] for side in sides]
    spool: Spool | None = None
    size = 0
    for number, side in enumerate(sides):
        for rows in side.tables:
            if spool is not None:
                _spill(spool, number, rows, side.by, split)
                continue
            kept[number].append(rows)
            size += rows.nbytes + rows.num_rows * side.row_bytes
            if size > limit and split < _MOST_SPLITS:
                spool = Spool(limit >> (2 + split))
                for earlier, tables in enumerate(kept):
                    while tables:
                        _spill(spool, earlier, tables.pop(), sides[earlier].by, split)
    if spool is None:
        yield [pa.concat_tables(tables) for tables in kept]
        return
    for part in range(_WAYS):
        names = [_name(part, number) for number in range(len(sides))]
        if any(name in spool.keys for name in names):
            some = [
                replace(side, tables=_taken(spool, name) if name in spool.keys else iter(()))
                for side, name in zip(sides, names, strict=True)
            ]
            yield from partitioned(some, limit, split + 1)


def _taken(spool: Spool, name: str) -> Iterator[pa.Table]:
    for batch in spool.take(name).to_batches():
        yield pa.Table.from_batches([batch])


def _spill(spool: Spool, number: int, rows: pa.Table, by: tuple[str, ...], split: int) -> None:
    if rows.num_rows == 0:
        return
    # Each split uses other bits of the hash.
    hashes = _hashes(rows, by) // np.uint64(_WAYS**split)
    places = (hashes % np.uint64(_WAYS)).astype(np.uint8)
    for part in np.unique(places).tolist():
        spool.add(_name(part, number), rows.filter(pa.array(places == part)))


def _name(part: int, side: int) -> str:
    return f"{part:02d}/{side}"
