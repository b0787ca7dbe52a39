"""Values as numbers: equal numbers where values are equal, so that grouping is arithmetic.

The values of a property are numbered once for all entities of a type, and entities stand for their ids and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import ir
from omnigraph.lang.schema import Catalog
from omnigraph.lang.types import Scalar
from omnigraph.read.budget import checkpoint
from omnigraph.read.match.frame import Binding, Frame
from omnigraph.read.shape.order import list_codes
from omnigraph.read.sorting import dense_ranks, groups_of
from omnigraph.read.space.numbers import narrow
from omnigraph.read.space.space import Integers, Numbers, Space

_WORTHWHILE = 4
"""With at least one row for so many entities, the values of all entities are numbered at once."""

_ROOM = 8
_LEAST = 1 << 16
"""Codes are told apart in an array while it has at most so many places for each row, or so many in all."""

_MANY = 1 << 18
"""Beyond so many values, they are numbered in portions."""

_SAME_TEXT = frozenset(
    {Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.DATE, Scalar.DATETIME}
)
"""The types of keys that are equal exactly when ids are: two zeros of a float are equal, and two ids."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A number for each row.

    Attributes:
        size: all numbers are below.
        apart: whether they are known to be those from zero on, one for each row.
    """

    of_row: Numbers
    size: int
    apart: bool = False


def _are_apart(codes: Codes) -> bool:
    """Whether no two rows have the same number."""
    if len(codes.of_row) > codes.size or codes.size > max(_ROOM * len(codes.of_row), _LEAST):
        return False
    there = np.zeros(codes.size, bool)
    there[codes.of_row] = True
    return int(np.count_nonzero(there)) == len(codes.of_row)


def key_codes(keys: Mapping[str, ir.Expr], frame: Frame, values: Callable[[str], pa.Array], catalog: Catalog) -> Codes:
    """Numbers that are equal where all of several keys are.

    Args:
        keys: the keys by name.
        frame: the rows.
        values: gives the values of a key.
        catalog: says what is a key of a type.
    """
    whole = {var for expr in keys.values() if (var := _entity(expr, frame, catalog)) is not None}
    parts = [_entities(frame.bindings[var]) for var in sorted(whole)]
    if any(_are_apart(part) for part in parts):
        return Codes(np.arange(frame.count), frame.count, apart=True)
    for name, expr in keys.items():
        if isinstance(expr, ir.Prop | ir.Ident | ir.Entity | ir.TypeOf) and expr.var in whole:
            continue  # the entity decides it
        if isinstance(expr, ir.Prop) and (binding := frame.bindings[expr.var]).which is None:
            space = binding.spaces[0]
            if frame.count * _WORTHWHILE >= space.count and space.holds_plain(expr.name):
                parts.append(_looked_up(space_codes(space, expr.name), binding.numbers))
                continue
        parts.append(value_codes(values(name)))
        checkpoint()
    return together(parts, frame.count)


def _entity(expr: ir.Expr, frame: Frame, catalog: Catalog) -> str | None:
    """The variable whose entity is the same in two rows exactly when they have equal values."""
    match expr:
        case ir.Entity(var=var) if var in frame.bindings:
            return var
        case ir.Ident(var=var, role=ir.Role.ID) if var in frame.bindings and frame.bindings[var].which is None:
            return var
        case ir.Prop(var=var, name=name) if frame.bindings[var].which is None:
            space = frame.bindings[var].spaces[0]
            # An edge may be called like a node.
            declared = catalog.nodes.get(space.type_name) if space.key.startswith("node:") else None
            if declared is not None and declared.key == (name,):
                return var if declared.properties[name].type.scalar in _SAME_TEXT else None
    return None


def _entities(binding: Binding) -> Codes:
    return Codes(*binding.keys())


def space_codes(space: Space, name: str) -> Integers:
    """A number for the value of each entity; what is above all is nothing."""
    return space.derived(f"codes of {name}", name, _narrow_codes)


def _narrow_codes(values: pa.Array) -> Integers:
    codes = value_codes(values)
    missing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
    # One more than there are entities: the last stands for nothing, which is null.
    found: Numbers = np.append(codes.of_row, codes.of_row[missing[0]] if len(missing) else codes.size)
    return narrow(found, codes.size + 1)


def _looked_up(codes: Integers, numbers: Numbers) -> Codes:
    found = codes.take(numbers, mode="wrap") if len(numbers) else np.array([], np.int64)
    return Codes(found.astype(np.int64), int(codes.max()) + 1)


def value_codes(values: pa.Array) -> Codes:
    """Numbers that are equal where values are. Null is a value like any other."""
    codes = _numbered(values)
    return Codes(codes, int(codes.max(initial=0)) + 1)


def _numbered(values: pa.Array) -> Numbers:
    if pa.types.is_nested(values.type):
        return list_codes(values, _numbered)
    if pa.types.is_floating(values.type):
        # Both zeros are equal.
        values = pc.add(values, pa.scalar(0, values.type))
    if len(values) > _MANY:
        return dense_ranks(values)
    encoded = values.dictionary_encode(null_encoding="encode")
    codes: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def together(parts: Sequence[Codes], rows: int) -> Codes:
    """Numbers that are equal where several are."""
    if not parts:
        return Codes(np.zeros(rows, np.int64), 1)
    first, *others = parts
    codes, size = first.of_row, first.size
    for part in others:
        checkpoint()
        if size >= 2**62 // part.size:
            codes, size = renumbered(Codes(codes, size))
        codes, size = codes * part.size + part.of_row, size * part.size
    return Codes(codes, size)


def renumbered(codes: Codes) -> tuple[Numbers, int]:
    """The same numbers without gaps, in their order, and how many there are."""
    if codes.size > max(_ROOM * len(codes.of_row), _LEAST):
        first, found = groups_of(codes.of_row)
        return found, len(first)
    checkpoint()
    there = np.zeros(codes.size, bool)
    there[codes.of_row] = True
    places = np.cumsum(there)
    count = int(places[-1]) if len(places) else 0
    places -= 1
    return places.take(codes.of_row), count
