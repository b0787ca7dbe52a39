"""Rows of a match: for each variable, the number of the entity that it holds in each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.search.fusion import Fused
from omnigraph.read.space.space import NOTHING, Mask, Numbers, Space, one_piece, places

_OFTEN = 4
"""With at least one row for so many entities, all entities are put in order once."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a variable holds.

    Attributes:
        spaces: the types that it ranges over.
        numbers: the entity in each row, or `NOTHING`.
        which: of several types, which one; None when there is one only.
    """

    spaces: tuple[Space, ...]
    numbers: Numbers
    which: Numbers | None = None

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + (0 if self.which is None else self.which.nbytes)

    def take(self, rows: Numbers) -> Binding:
        """The same for other rows; a row `NOTHING` holds nothing."""
        missing = rows == NOTHING
        if not missing.any():
            return Binding(self.spaces, self.numbers[rows], None if self.which is None else self.which[rows])
        if len(self.numbers) == 0:
            numbers = np.full(len(rows), NOTHING, np.int64)
            return Binding(self.spaces, numbers, None if self.which is None else np.zeros(len(rows), np.int64))
        numbers = np.where(missing, NOTHING, self.numbers[rows])
        return Binding(self.spaces, numbers, None if self.which is None else self.which[rows])

    def part(self, first: int, last: int) -> Binding:
        """The same for the rows from one place to another, the last one excluded."""
        return Binding(self.spaces, self.numbers[first:last], None if self.which is None else self.which[first:last])

    def values(self, name: str) -> pa.Array:
        """A column of the entities; null where there is no entity, or its type has no such column."""
        if self.which is None:
            return self.spaces[0].take(name, self.numbers)
        kinds = {space.schema.field(name).type for space in self.spaces if space.declares(name)}
        if not kinds:
            return pa.nulls(len(self.numbers))  # of an interface that no type implements
        parts, place = [pa.nulls(1, next(iter(kinds)))], np.zeros(len(self.numbers), np.int64)
        start = 1
        for number, space in enumerate(self.spaces):
            rows = np.flatnonzero((self.which == number) & (self.numbers != NOTHING))
            if len(rows) and space.declares(name):
                parts.append(space.take(name, self.numbers[rows]))
                place[rows] = np.arange(start, start + len(rows))
                start += len(rows)
        return one_piece(pa.chunked_array(parts)).take(pa.array(place))

    def places_by_id(self) -> pa.Array | None:
        """The place of each entity in the order of ids; null for nothing. None where ids are compared more cheaply."""
        if self.which is not None:
            return None
        space = self.spaces[0]
        if len(self.numbers) * _OFTEN < space.count and not space.knows_id_order:
            return None
        missing = self.numbers == NOTHING
        found = space.id_order().take(self.numbers, mode="wrap") if space.slots else self.numbers
        return pa.array(found, mask=missing) if missing.any() else pa.array(found)

    @property
    def knows_places(self) -> bool:
        """Whether places in the order of ids are at hand."""
        return len(self.spaces) == 1 and self.spaces[0].knows_id_order

    def type_names(self) -> pa.Array:
        names = pa.array([space.type_name for space in self.spaces], pa.utf8())
        which = np.zeros(len(self.numbers), np.int64) if self.which is None else self.which
        return names.take(places(np.where(self.numbers == NOTHING, NOTHING, which)))

    def keys(self) -> tuple[Numbers, int]:
        """Each entity as one number that no entity of another type has, and how many such numbers there are.

        Nothing is the number zero.
        """
        starts = np.cumsum([0, *(space.slots for space in self.spaces)])
        start = starts[0] if self.which is None else starts[self.which]
        return np.where(self.numbers == NOTHING, 0, self.numbers + start + 1), int(starts[-1]) + 1


@dataclass(frozen=True, slots=True)
class Path:
    """What a path variable holds: for row n, the entities from `first[n]` to `first[n + 1]`."""

    nodes: Binding
    node_first: Numbers
    edges: Binding
    edge_first: Numbers

    @property
    def nbytes(self) -> int:
        return self.nodes.nbytes + self.node_first.nbytes + self.edges.nbytes + self.edge_first.nbytes

    def take(self, rows: Numbers) -> Path:
        node_rows, node_first = _stretches(self.node_first, rows)
        edge_rows, edge_first = _stretches(self.edge_first, rows)
        return Path(self.nodes.take(node_rows), node_first, self.edges.take(edge_rows), edge_first)


def joined_frames(frames: Sequence[Frame]) -> Frame:
    """The rows of several frames that bind the same variables, one after another."""
    first = frames[0]
    assert not any(frame.fused for frame in frames)
    origins = [frame.origin for frame in frames if frame.origin is not None]
    return Frame(
        sum(frame.count for frame in frames),
        {name: _joined_bindings([frame.bindings[name] for frame in frames]) for name in first.bindings},
        {name: _joined_paths([frame.paths[name] for frame in frames]) for name in first.paths},
        origin=np.concatenate(origins) if origins else None,
        searching=first.searching,
    )


def _joined_bindings(parts: Sequence[Binding]) -> Binding:
    which = [part.which for part in parts if part.which is not None]
    numbers = np.concatenate([part.numbers for part in parts])
    return Binding(parts[0].spaces, numbers, np.concatenate(which) if which else None)


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


def _stretches(first: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """The places of several stretches one after another, and where each begins."""
    missing = rows == NOTHING
    safe = np.where(missing, 0, rows)
    lengths = np.where(missing, 0, (first[1:] - first[:-1])[safe] if len(first) > 1 else 0)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    starts = first[:-1][safe] if len(first) > 1 else np.zeros(len(rows), np.int64)
    return np.repeat(starts - begins[:-1], lengths) + np.arange(begins[-1]), begins


class Searching(Protocol):
    """What finds words and ranks for the entities of a variable."""

    def values(self, expr: ir.TextMatch | ir.Bm25 | ir.Nearest, binding: Binding) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows of a match.

    Attributes:
        count: how many there are.
        bindings: what variables of nodes and edges hold.
        paths: what path variables hold.
        origin: the row of the frame that a block was run on, for each row that came of it.
        searching: finds words and ranks.
        fused: what fusions give to each row, once the match is complete.
    """

    count: int
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    origin: Numbers | None = None
    searching: Searching | None = None
    fused: Mapping[ir.Fusion, Fused] = field(default_factory=dict)
    _columns: dict[tuple[str, str], pa.Array] = field(default_factory=dict)

    @property
    def variables(self) -> frozenset[str]:
        return frozenset({*self.bindings, *self.paths})

    @property
    def width(self) -> int:
        """How many numbers a row takes. What a path takes depends on its length, and counts as four."""
        return sum(1 if b.which is None else 2 for b in self.bindings.values()) + 4 * len(self.paths)

    @property
    def nbytes(self) -> int:
        """How many bytes the rows take."""
        held = sum(binding.nbytes for binding in self.bindings.values()) + sum(p.nbytes for p in self.paths.values())
        return held + (0 if self.origin is None else self.origin.nbytes)

    def bind(self, name: str, binding: Binding) -> Frame:
        """With one variable more."""
        return replace(self, bindings={**self.bindings, name: binding}, _columns={})

    def bind_path(self, name: str, path: Path) -> Frame:
        return replace(self, paths={**self.paths, name: path}, _columns={})

    def with_fused(self, fused: Mapping[ir.Fusion, Fused]) -> Frame:
        """With what fusions give to each row."""
        return replace(self, fused=fused, _columns={}) if fused else self

    def take(self, rows: Numbers) -> Frame:
        """Other rows, made of these."""
        return Frame(
            len(rows),
            {name: binding.take(rows) for name, binding in self.bindings.items()},
            {name: path.take(rows) for name, path in self.paths.items()},
            None if self.origin is None else np.where(rows == NOTHING, NOTHING, self.origin[rows]),
            self.searching,
            {fusion: values.take(rows) for fusion, values in self.fused.items()},
        )

    def part(self, first: int, last: int) -> Frame:
        """The rows from one place to another, the last one excluded."""
        if self.paths or self.fused:
            return self.take(np.arange(first, last))
        return Frame(
            last - first,
            {name: binding.part(first, last) for name, binding in self.bindings.items()},
            origin=None if self.origin is None else self.origin[first:last],
            searching=self.searching,
            _columns={key: values.slice(first, last - first) for key, values in self._columns.items()},
        )

    def filter(self, mask: Mask) -> Frame:
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def keys(self, names: list[str]) -> Numbers:
        """Rows as one number each, equal when some variables hold the same."""
        result = np.zeros(self.count, np.int64)
        for name in names:
            numbers, size = self.bindings[name].keys()
            if self.count and int(result.max()) >= 2**62 // size:
                result = np.unique(result, return_inverse=True)[1]
            result = result * size + numbers
        return result

    # What expressions ask for

    def prop(self, var: str, name: str) -> pa.Array:
        if (var, name) not in self._columns:
            self._columns[var, name] = self.bindings[var].values(name)
        return self._columns[var, name]

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        if var in self.paths:
            # A path has no id; what is asked is whether there is one.
            return self.path(var, ir.PathPart.LENGTH)
        return self.prop(var, ROLE_COLUMNS[role])

    def type_of(self, var: str) -> pa.Array:
        return self.bindings[var].type_names()

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        path = self.paths[var]
        if part is ir.PathPart.LENGTH:
            nothing = path.node_first[1:] == path.node_first[:-1]
            return pa.array(np.diff(path.edge_first), pa.int64(), mask=nothing)
        which, first = (path.nodes, path.node_first) if part is ir.PathPart.NODES else (path.edges, path.edge_first)
        nothing = path.node_first[1:] == path.node_first[:-1]
        return pa.ListArray.from_arrays(
            pa.array(first, pa.int32()), which.values("id"), mask=pa.array(nothing) if nothing.any() else None
        )

    def column(self, name: str) -> pa.Array:
        raise AssertionError(f"a match has no column {name}")

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        if isinstance(expr, ir.Fusion):
            score = self.fused[expr].score
            return pa.array(score, mask=np.isnan(score))
        assert self.searching is not None, "these rows cannot be searched"
        return self.searching.values(expr, self.bindings[expr.field.var])


@remembered
def variables(expr: object) -> frozenset[str]:
    """The variables that an expression is about."""
    return frozenset(
        name
        for part in walk(expr)
        for name in (
            (part.left, part.right)
            if isinstance(part, ir.SameEntity)
            else (part.var,)
            if isinstance(part, ir.Prop | ir.Ident | ir.Entity | ir.TypeOf | ir.PathValue | ir.VarIsNull)
            else ()
        )
    )


def true_rows(mask: pa.Array) -> Mask:
    found: Mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return found
