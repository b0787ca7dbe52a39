"""Group codes: integers that are equal for equal values, so that rows can be grouped by integers.

The codes of a property are computed once for all entities of a type. For ids and keys, entity numbers are the codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.schema import Catalog
from omnigraph.lang.types import Scalar
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import NOTHING, Integers, Numbers, narrow
from omnigraph.read.columns.sort_keys import list_codes
from omnigraph.read.columns.sorting import dense_ranks, groups_of
from omnigraph.read.columns.stoppable import array_chunks, gather, running_counts, scatter
from omnigraph.read.rows.frame import Binding, Frame

WHOLE_COLUMN_RATIO = 4
"""If the number of rows is at least 1 / `WHOLE_COLUMN_RATIO` of the entities, codes are computed for a whole column."""

SLOTS_PER_ROW = 8
"""Maximum number of slots per row in a direct-address table of codes. If more are needed, codes are sorted."""

MIN_SLOTS = 1 << 16
"""A direct-address table of codes may always have this number of slots, even if there are few rows."""

MAX_UNCHUNKED_VALUES = 1 << 18
"""If there are more values than this, their codes are computed in chunks."""

_SAME_TEXT = frozenset(
    {Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.DATE, Scalar.DATETIME}
)
"""Types of a key property for which equal keys have equal ids.

Floats are not included, because 0.0 and -0.0 are equal but have different ids.
"""


@dataclass(frozen=True, slots=True)
class Codes:
    """A code for each row.

    Attributes:
        of_row: the code of each row.
        size: upper bound (exclusive) of the codes.
        apart: whether the code of row n is n, so that no two rows have equal codes.
    """

    of_row: Numbers
    size: int
    apart: bool = False


def _are_apart(codes: Codes) -> bool:
    """Whether all rows have different codes. False if this is expensive to find out."""
    if len(codes.of_row) > codes.size or codes.size > max(SLOTS_PER_ROW * len(codes.of_row), MIN_SLOTS):
        return False
    there = np.zeros(codes.size, bool)
    scatter(there, codes.of_row, True)
    return int(np.count_nonzero(there)) == len(codes.of_row)


def key_codes(keys: Mapping[str, ir.Expr], frame: Frame, values: Callable[[str], pa.Array], catalog: Catalog) -> Codes:
    """A code for each row. Two rows have equal codes if all of their keys are equal.

    Args:
        keys: the keys by name.
        frame: the rows.
        values: returns the values of a key.
        catalog: the schema.
    """
    whole = {var for expr in keys.values() if (var := _entity(expr, frame, catalog)) is not None}
    parts = [_entities(frame.bindings[var]) for var in sorted(whole)]
    if any(_are_apart(part) for part in parts):
        return Codes(np.arange(frame.count), frame.count, apart=True)
    for name, expr in keys.items():
        if isinstance(expr, ir.Prop | ir.Ident | ir.Entity | ir.TypeOf) and expr.var in whole:
            continue  # rows with the same entity have the same value of this key
        if isinstance(expr, ir.Prop) and (binding := frame.bindings[expr.var]).type_index is None:
            table = binding.tables[0]
            if has_table_codes(table, expr.name, frame.count):
                parts.append(_looked_up(table_codes(table, expr.name), binding.numbers, table))
                continue
        parts.append(value_codes(values(name)))
        checkpoint()
    return together(parts, frame.count)


def _entity(expr: ir.Expr, frame: Frame, catalog: Catalog) -> str | None:
    """The variable whose entity an expression identifies, because it is the id or key; None for other expressions."""
    match expr:
        case ir.Entity(var=var) if var in frame.bindings:
            return var
        case ir.Ident(var=var, role=ir.Role.ID) if var in frame.bindings and frame.bindings[var].type_index is None:
            return var
        case ir.Prop(var=var, name=name) if frame.bindings[var].type_index is None:
            table = frame.bindings[var].tables[0]
            # An edge type may have the same name as a node type.
            declared = catalog.nodes.get(table.type_name) if table.is_node else None
            if declared is not None and declared.key == (name,):
                return var if declared.properties[name].type.scalar in _SAME_TEXT else None
    return None


def _entities(binding: Binding) -> Codes:
    numbers = binding.numbers
    if binding.type_index is None and len(numbers) and numbers.min() != NOTHING:
        return Codes(numbers, binding.tables[0].slots)
    return Codes(*binding.keys())


def has_table_codes(table: EntityTable, name: str, rows: int) -> bool:
    """Whether the codes of a property are computed for all entities, for a number of rows."""
    return rows * WHOLE_COLUMN_RATIO >= table.count and table.is_comparable(name)


def table_codes(table: EntityTable, name: str) -> Integers:
    """For each entity number, the code of the value of a property. An additional last element is the code of null."""
    with table.slot(f"codes of {name}") as slot:
        found: Integers | None = slot.value
        return slot.keep(_narrow_codes(table.whole(name))) if found is None else found


def _narrow_codes(values: pa.Array) -> Integers:
    codes = value_codes(values)
    missing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
    # The additional last element is the code for `NOTHING` (-1), which stands for null.
    found: Numbers = np.append(codes.of_row, codes.of_row[missing[0]] if len(missing) else codes.size)
    return narrow(found, codes.size + 1)


def _looked_up(codes: Integers, numbers: Numbers, table: EntityTable) -> Codes:
    if table.live is None and numbers is table.all_numbers():
        return Codes(codes[:-1].astype(np.int64), int(codes.max()) + 1)
    # `NOTHING` is -1, the index of the last element.
    return Codes(gather(codes, numbers).astype(np.int64), int(codes.max()) + 1)


def value_codes(values: pa.Array) -> Codes:
    """Codes of values. Null has a code, too."""
    codes = _numbered(values)
    return Codes(codes, int(codes.max(initial=0)) + 1)


def _numbered(values: pa.Array) -> Numbers:
    if pa.types.is_nested(values.type):
        return list_codes(values, _numbered)
    if pa.types.is_floating(values.type):
        # 0.0 and -0.0 are equal.
        values = pc.add(values, pa.scalar(0, values.type))
    if len(values) > MAX_UNCHUNKED_VALUES:
        return dense_ranks(values)
    encoded = values.dictionary_encode(null_encoding="encode")
    codes: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def together(parts: Sequence[Codes], rows: int) -> Codes:
    """Combine several codes per row into one. Rows have equal combined codes if all of their codes are equal."""
    if not parts:
        return Codes(np.zeros(rows, np.int64), 1)
    first, *others = parts
    codes, size = first.of_row, first.size
    for part in others:
        checkpoint()
        if size >= 2**62 // part.size:
            codes, size = renumbered(Codes(codes, size))
        combined = np.empty(len(codes), np.int64)
        for begin, end in array_chunks(len(codes)):
            np.multiply(codes[begin:end], part.size, out=combined[begin:end])
            combined[begin:end] += part.of_row[begin:end]
        codes, size = combined, size * part.size
    return Codes(codes, size)


def renumbered(codes: Codes) -> tuple[Numbers, int]:
    """Replace codes by 0, 1, 2, … in the same order. Returns the new codes, and the number of distinct codes."""
    if codes.size > max(SLOTS_PER_ROW * len(codes.of_row), MIN_SLOTS):
        first, found = groups_of(codes.of_row)
        return found, len(first)
    there = np.zeros(codes.size, bool)
    scatter(there, codes.of_row, True)
    places = running_counts(there)
    count = int(places[-1]) if len(places) else 0
    if count == codes.size:
        return codes.of_row, count  # every code occurs
    places -= 1
    return gather(places, codes.of_row), count
