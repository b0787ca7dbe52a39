"""Frames: the rows of a match. For each variable, a frame has an array with the entity number in each row.

A frame can also have values: columns that belong to its rows, such as the result of an `exists` block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.entity_table import EntityTable, as_one_array, places
from omnigraph.read.columns.hash_groups import distinct_share, hash_groups
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.columns.sort_keys import ranks
from omnigraph.read.columns.sorting import order_of
from omnigraph.read.columns.stoppable import array_chunks, gather, join_arrays, weight_sums
from omnigraph.read.rows.folded_column import FoldedColumn

KEYS_PER_ROW = 4
"""Duplicate rows are removed if there are at most this many possible rows per row, plus `MIN_KEYS`."""

MIN_KEYS = 1 << 16

MIN_HASHED_ROWS = 1 << 12
"""With at least this number of rows, duplicates are also removed by hashing, if there are many."""

MAX_DISTINCT_SHARE = 0.5
"""Duplicates are removed by hashing if at most this fraction of the rows is expected to be left."""

_LARGEST_KEY = 2**62

_LARGEST_SUM = float(2**62)
"""Weights are not added if their sum may be larger."""

WHOLE_TABLE_RATIO = 4
"""If a frame has at least one row per `WHOLE_TABLE_RATIO` entities, id ranks are computed for the whole table."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The entities of a variable, one per row.

    Attributes:
        tables: entity tables of the types that the variable can have.
        numbers: entity number in each row; `NOTHING` for null.
        type_index: type of the entity in each row, as an index into `tables`; None if there is only one table.
    """

    tables: tuple[EntityTable, ...]
    numbers: Numbers
    type_index: Numbers | None = None

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + (0 if self.type_index is None else self.type_index.nbytes)

    def take(self, rows: Numbers) -> Binding:
        """The binding for the given rows. A row `NOTHING` becomes null."""
        if rows.min(initial=0) != NOTHING:
            return self.take_present(rows)
        missing = rows == NOTHING
        if len(self.numbers) == 0:
            numbers = np.full(len(rows), NOTHING, np.int64)
            return Binding(self.tables, numbers, None if self.type_index is None else np.zeros(len(rows), np.int64))
        numbers = gather(self.numbers, rows)
        numbers[missing] = NOTHING
        return Binding(self.tables, numbers, None if self.type_index is None else gather(self.type_index, rows))

    def take_present(self, rows: Numbers) -> Binding:
        """Like `take`, if no row is `NOTHING`."""
        type_index = None if self.type_index is None else gather(self.type_index, rows)
        return Binding(self.tables, gather(self.numbers, rows), type_index)

    def part(self, first: int, last: int) -> Binding:
        """The binding for the rows from `first` to `last` (exclusive)."""
        return Binding(
            self.tables, self.numbers[first:last], None if self.type_index is None else self.type_index[first:last]
        )

    def values(self, name: str) -> pa.Array:
        """Values of a column for the entity in each row; null if there is no entity, or its type has no such column."""
        if self.type_index is None:
            return self.tables[0].take(name, self.numbers)
        kinds = {table.schema.field(name).type for table in self.tables if table.has_column(name)}
        if not kinds:
            return pa.nulls(len(self.numbers))  # the type of the variable is an interface that no node type implements
        parts, place = [pa.nulls(1, next(iter(kinds)))], np.zeros(len(self.numbers), np.int64)
        start = 1
        for number, table in enumerate(self.tables):
            rows = np.flatnonzero((self.type_index == number) & (self.numbers != NOTHING))
            if len(rows) and table.has_column(name):
                parts.append(table.take(name, self.numbers[rows]))
                place[rows] = np.arange(start, start + len(rows))
                start += len(rows)
        return as_one_array(pa.chunked_array(parts)).take(pa.array(place))

    def id_ranks(self) -> pa.Array | None:
        """For each row, the position of its entity in id order, or null. Returns None if comparing ids is cheaper."""
        if self.type_index is not None:
            return None
        table = self.tables[0]
        if len(self.numbers) * WHOLE_TABLE_RATIO < table.count and not table.has_id_ranks:
            return None
        missing = self.numbers == NOTHING
        found = table.id_ranks().take(self.numbers, mode="wrap") if table.slots else self.numbers
        return pa.array(found, mask=missing) if missing.any() else pa.array(found)

    @property
    def has_id_ranks(self) -> bool:
        """Whether the table has its id ranks in the cache."""
        return len(self.tables) == 1 and self.tables[0].has_id_ranks

    def type_names(self) -> pa.Array:
        names = pa.array([table.type_name for table in self.tables], pa.utf8())
        type_index = np.zeros(len(self.numbers), np.int64) if self.type_index is None else self.type_index
        return names.take(places(np.where(self.numbers == NOTHING, NOTHING, type_index)))

    @property
    def key_count(self) -> int:
        """Upper bound (exclusive) of the integers that `keys` returns."""
        return sum(table.slots for table in self.tables) + 1

    def keys(self) -> tuple[Numbers, int]:
        """For each row, an integer that identifies its entity among all types; 0 for null.

        Also returns an upper bound (exclusive) of these integers.
        """
        starts = np.cumsum([0, *(table.slots for table in self.tables)])
        start = starts[0] if self.type_index is None else starts[self.type_index]
        return np.where(self.numbers == NOTHING, 0, self.numbers + start + 1), self.key_count


@dataclass(frozen=True, slots=True)
class Path:
    """Paths, one per row.

    The nodes of row n are the elements `node_first[n]` to `node_first[n + 1]` (exclusive) of `nodes`. The edges are
    stored in the same way.
    """

    nodes: Binding
    node_first: Numbers
    edges: Binding
    edge_first: Numbers

    @property
    def nbytes(self) -> int:
        return self.nodes.nbytes + self.node_first.nbytes + self.edges.nbytes + self.edge_first.nbytes

    def take(self, rows: Numbers) -> Path:
        node_rows, node_first = _take_ranges(self.node_first, rows)
        edge_rows, edge_first = _take_ranges(self.edge_first, rows)
        return Path(self.nodes.take(node_rows), node_first, self.edges.take(edge_rows), edge_first)


def concat_frames(frames: Sequence[Frame]) -> Frame:
    """Concatenate the rows of several frames. All frames bind the same variables."""
    first = frames[0]
    assert not any(frame.fused for frame in frames)
    origins = [frame.origin for frame in frames if frame.origin is not None]
    return Frame(
        sum(frame.count for frame in frames),
        {name: _joined_bindings([frame.bindings[name] for frame in frames]) for name in first.bindings},
        {name: _joined_paths([frame.paths[name] for frame in frames]) for name in first.paths},
        origin=join_arrays(origins) if origins else None,
        searching=first.searching,
        values={name: pa.concat_arrays([frame.values[name] for frame in frames]) for name in first.values},
        weight=_joined_weights(frames),
    )


def can_merge(possible: float, rows: float) -> bool:
    """Whether duplicates among a number of rows can be merged fast, if this many different rows are possible."""
    return possible <= KEYS_PER_ROW * rows + MIN_KEYS


def _joined_weights(frames: Sequence[Frame]) -> Numbers | None:
    if all(frame.weight is None for frame in frames):
        return None
    return join_arrays([np.ones(f.count, np.int64) if f.weight is None else f.weight for f in frames])


def _joined_bindings(parts: Sequence[Binding]) -> Binding:
    type_index = [part.type_index for part in parts if part.type_index is not None]
    numbers = join_arrays([part.numbers for part in parts])
    return Binding(parts[0].tables, numbers, join_arrays(type_index) if type_index else None)


def _joined_paths(parts: Sequence[Path]) -> Path:
    return Path(
        _joined_bindings([part.nodes for part in parts]),
        _joined_firsts([part.node_first for part in parts]),
        _joined_bindings([part.edges for part in parts]),
        _joined_firsts([part.edge_first for part in parts]),
    )


def _joined_firsts(parts: Sequence[Numbers]) -> Numbers:
    lengths = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _take_ranges(first: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """All positions in the ranges of the given rows, concatenated, and the offset of each range in the result."""
    begins = np.zeros(len(rows) + 1, np.int64)
    if len(first) < 2:
        return np.zeros(0, np.int64), begins
    for low, high in array_chunks(len(rows)):
        there = rows[low:high] != NOTHING
        some = np.where(there, rows[low:high], 0)
        begins[low + 1 : high + 1] = np.where(there, first.take(some + 1) - first.take(some), 0)
    np.cumsum(begins, out=begins)
    found = np.empty(int(begins[-1]), np.int64)
    longest = int(np.diff(begins).max(initial=0))
    for low, high in array_chunks(len(rows), longest):
        ends = begins[low : high + 1]
        starts = first.take(np.maximum(rows[low:high], 0)) - ends[:-1]
        places = np.repeat(starts, np.diff(ends))
        places += np.arange(ends[0], ends[-1])
        found[ends[0] : ends[-1]] = places
    return found, begins


@dataclass(frozen=True, slots=True)
class FusedRanks:
    """Result of a rank fusion, one element per entity or per row.

    Attributes:
        score: fused score; larger is better. NaN if the entity has no score, or is certainly not in the top rows. If
            only the order is needed, the negative position instead.
        place: position in the fused order, from 0; `NOTHING` if the score is NaN.
    """

    score: npt.NDArray[np.float64]
    place: Numbers

    def take(self, rows: Numbers) -> FusedRanks:
        return FusedRanks(self.score[rows], self.place[rows])


class Searching(Protocol):
    """Evaluates text matches and ranks for the entities of a binding."""

    def values(self, expr: ir.TextMatch | ir.Bm25 | ir.Nearest, binding: Binding) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows of a match.

    Attributes:
        count: number of rows.
        bindings: bindings of the node and edge variables, by name.
        paths: paths of the path variables, by name.
        origin: for rows of an inner block, the index of the input row that each row belongs to.
        weight: number of rows of the match that each row stands for; None if each row stands for itself.
        searching: evaluates text matches and ranks.
        fused: fused ranks of each row. They are set when the match is complete.
        values: values of the rows, by name (see `ir.Value`).
        folded: combined properties of variables that are not in the rows, by variable and property. They are set when
            the match is complete, and belong to exactly these rows: frames that are derived from this one lack them.
    """

    count: int
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    origin: Numbers | None = None
    searching: Searching | None = None
    fused: Mapping[ir.Fusion, FusedRanks] = field(default_factory=dict)
    values: Mapping[str, pa.Array] = field(default_factory=dict)
    weight: Numbers | None = None
    _columns: dict[tuple[str, str], pa.Array] = field(default_factory=dict)
    folded: Mapping[tuple[str, str], FoldedColumn] = field(default_factory=dict)

    @property
    def variables(self) -> frozenset[str]:
        """The variables, and the names of the values."""
        return frozenset({*self.bindings, *self.paths, *self.values})

    @property
    def width(self) -> int:
        """Number of array elements per row. A path counts as four."""
        width = sum(1 if b.type_index is None else 2 for b in self.bindings.values())
        return width + 4 * len(self.paths) + len(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        held = sum(binding.nbytes for binding in self.bindings.values()) + sum(p.nbytes for p in self.paths.values())
        held += sum(int(values.nbytes) for values in self.values.values())
        return held + sum(numbers.nbytes for numbers in (self.origin, self.weight) if numbers is not None)

    def bind(self, name: str, binding: Binding) -> Frame:
        """A copy of the frame with one more variable."""
        return self._with({**self.bindings, name: binding}, self.paths)

    def bind_path(self, name: str, path: Path) -> Frame:
        return self._with(self.bindings, {**self.paths, name: path})

    def _with(
        self,
        bindings: Mapping[str, Binding],
        paths: Mapping[str, Path],
        columns: dict[tuple[str, str], pa.Array] | None = None,
    ) -> Frame:
        # The function `replace` of dataclasses takes ten times as long.
        rest = self.origin, self.searching, self.fused, self.values, self.weight
        return Frame(self.count, bindings, paths, *rest, {} if columns is None else columns)

    def only(self, names: frozenset[str]) -> Frame:
        """A copy of the frame without the variables and values that are not in `names`."""
        bindings = {name: binding for name, binding in self.bindings.items() if name in names}
        paths = {name: path for name, path in self.paths.items() if name in names}
        values = {name: values for name, values in self.values.items() if name in names}
        columns = {key: values for key, values in self._columns.items() if key[0] in names}
        return replace(self, bindings=bindings, paths=paths, values=values, _columns=columns)

    def with_value(self, name: str, values: pa.Array) -> Frame:
        """A copy of the frame with one more value."""
        return replace(self, values={**self.values, name: values}, _columns={})

    def with_fused(self, fused: Mapping[ir.Fusion, FusedRanks]) -> Frame:
        """A copy of the frame with fused ranks."""
        return replace(self, fused=fused, _columns={}) if fused else self

    def take(self, rows: Numbers) -> Frame:
        """A frame with the given rows, which may be in any order and repeat."""
        present = rows.min(initial=0) != NOTHING
        return Frame(
            len(rows),
            {name: b.take_present(rows) if present else b.take(rows) for name, b in self.bindings.items()},
            {name: path.take(rows) for name, path in self.paths.items()},
            self._origin_at(rows, present=present),
            self.searching,
            {fusion: values.take(rows) for fusion, values in self.fused.items()},
            _values_at(self.values, rows) if self.values else {},
            None if self.weight is None else gather(self.weight, rows),
        )

    def _origin_at(self, rows: Numbers, *, present: bool) -> Numbers | None:
        if self.origin is None or present:
            return None if self.origin is None else gather(self.origin, rows)
        return np.where(rows == NOTHING, NOTHING, self.origin[rows])

    def part(self, first: int, last: int) -> Frame:
        """The rows from `first` to `last` (exclusive)."""
        if self.paths or self.fused:
            return self.take(np.arange(first, last))
        return Frame(
            last - first,
            {name: binding.part(first, last) for name, binding in self.bindings.items()},
            origin=None if self.origin is None else self.origin[first:last],
            searching=self.searching,
            values={name: values.slice(first, last - first) for name, values in self.values.items()},
            weight=None if self.weight is None else self.weight[first:last],
            _columns={key: values.slice(first, last - first) for key, values in self._columns.items()},
        )

    def filter(self, mask: Mask) -> Frame:
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def merged(self, *, counting: bool) -> Frame:
        """The frame with fewer or no duplicate rows, in any order.

        Duplicates are removed if this is fast: if there are not many more possible rows than rows, or if there are many
        duplicates.

        Args:
            counting: whether the weight of a row becomes the sum of the weights of its duplicates.
        """
        if self.paths or self.fused or self.values or self.count < 2:
            return self
        size = 1
        columns = [b.numbers if b.type_index is None else b.keys()[0] for b in self.bindings.values()]
        columns += [] if self.origin is None else [self.origin]
        # The numbers of a part of the rows are often in a small range.
        lows = [int(column.min()) for column in columns]
        parts = [(column, low, int(column.max()) - low + 1) for column, low in zip(columns, lows, strict=True)]
        for _, _, values in parts:
            size *= values
        by_key = can_merge(size, self.count)
        if not by_key and (self.count < MIN_HASHED_ROWS or size > _LARGEST_KEY):
            return self
        if self.weight is not None and float(self.weight.max()) * self.count > _LARGEST_SUM:
            return self
        result = np.zeros(self.count, np.int64)
        for first, last in array_chunks(self.count):
            some = result[first:last]
            for numbers, low, values in parts:
                some *= values
                some += numbers[first:last]
                some -= low
        checkpoint()
        if not by_key:
            share = distinct_share(result)
            return self if share > MAX_DISTINCT_SHARE else self._hashed(result, share * self.count, counting=counting)
        if counting:
            sums = weight_sums(result, self.weight, size)
            found = np.flatnonzero(sums)
        else:
            there = np.zeros(size, bool)
            there[result] = True
            found = np.flatnonzero(there)
        checkpoint()
        if len(found) == self.count:
            return self
        weight = sums.take(found) if counting else None
        if any(binding.type_index is not None for binding in self.bindings.values()):
            rows = np.empty(size, np.int64)
            rows[result] = np.arange(self.count)
            return replace(self.take(rows.take(found)), weight=weight)
        decoded = _decoded(found, parts)
        return Frame(
            len(found),
            {
                name: Binding(b.tables, numbers)
                for (name, b), numbers in zip(self.bindings.items(), decoded, strict=False)
            },
            origin=None if self.origin is None else decoded[-1],
            searching=self.searching,
            weight=weight,
        )

    def _hashed(self, keys: Numbers, expected: float, *, counting: bool) -> Frame:
        """One row for each distinct key. The arguments are those of `hash_groups` and `merged`."""
        rows, group = hash_groups(keys, expected)
        # Rows that are grouped by the first variable stay so (see `Meet`).
        order = order_of(rows)
        weight = gather(weight_sums(group, self.weight, len(rows)), order) if counting else None
        return replace(self.take(gather(rows, order)), weight=weight)

    def keys(self, names: list[str]) -> Numbers:
        """An integer for each row.

        Two rows have equal integers if each of the given variables has the same entity in both rows, and each of the
        given values is equal.
        """
        result = np.zeros(self.count, np.int64)
        for name in names:
            numbers, size = _value_keys(self.values[name]) if name in self.values else self.bindings[name].keys()
            if self.count and int(result.max()) >= 2**62 // size:
                result = np.unique(result, return_inverse=True)[1]
            result = result * size + numbers
        return result

    # Values for expressions

    def prop(self, var: str, name: str) -> pa.Array:
        if (var, name) not in self._columns:
            self._columns[var, name] = self.bindings[var].values(name)
        return self._columns[var, name]

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        if var in self.paths:
            # A path has no id. Its length is used instead: it is null if and only if the path is null.
            return self.path(var, ir.PathPart.LENGTH)
        return self.prop(var, ROLE_COLUMNS[role])

    def type_of(self, var: str) -> pa.Array:
        return self.bindings[var].type_names()

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        path = self.paths[var]
        if part is ir.PathPart.LENGTH:
            nothing = path.node_first[1:] == path.node_first[:-1]
            return pa.array(np.diff(path.edge_first), pa.int64(), mask=nothing)
        binding, first = (path.nodes, path.node_first) if part is ir.PathPart.NODES else (path.edges, path.edge_first)
        nothing = path.node_first[1:] == path.node_first[:-1]
        return pa.ListArray.from_arrays(
            pa.array(first, pa.int32()), binding.values("id"), mask=pa.array(nothing) if nothing.any() else None
        )

    def column(self, name: str) -> pa.Array:
        raise AssertionError(f"a match has no column {name}")

    def value(self, name: str) -> pa.Array:
        return self.values[name]

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        if isinstance(expr, ir.Fusion):
            score = self.fused[expr].score
            return pa.array(score, mask=np.isnan(score))
        assert self.searching is not None, "these rows cannot be searched"
        return self.searching.values(expr, self.bindings[expr.field.var])


def _decoded(keys: Numbers, parts: Sequence[tuple[Numbers, int, int]]) -> list[Numbers]:
    """The numbers that keys were made of: for each column its lowest number, and the size of its range."""
    found: list[Numbers] = []
    for place, (_, low, values) in enumerate(reversed(parts)):
        if place == len(parts) - 1:
            found.append(keys + low)
        else:
            above = keys // values
            found.append(keys - above * values + low)
            keys = above
    return found[::-1]


def _values_at(values: Mapping[str, pa.Array], rows: Numbers) -> dict[str, pa.Array]:
    """The values of the given rows. A row `NOTHING` becomes null."""
    missing = rows == NOTHING
    at = pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
    return {name: of.take(at) for name, of in values.items()}


def _value_keys(values: pa.Array) -> tuple[Numbers, int]:
    """For each value, an integer that is equal for equal values, and an upper bound (exclusive) of these integers."""
    numbers = ranks(values)
    numbers -= numbers.min(initial=0)
    return numbers, int(numbers.max(initial=0)) + 1


def true_rows(mask: pa.Array) -> Mask:
    found: Mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return found
