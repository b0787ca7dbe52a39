"""The distinct values of a text column, so that a condition is evaluated once per value and not once per entity."""

# See docs/decisions/0275-conditions-on-texts-test-distinct-values.md

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import Integers

MIN_ENTITIES = 4_096
"""For smaller tables, conditions are evaluated on all entities."""

MAX_DISTINCT_VALUES = 4_096
"""Columns with more distinct values have no codes."""


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """Distinct values of a column.

    Attributes:
        values: the values; the last one is null.
        codes: for each entity number, the index of its value.
    """

    values: pa.Array
    codes: Integers

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + self.codes.nbytes


_TOO_MANY = DistinctValues(pa.array([], pa.string()), np.empty(0, np.int16))
"""In the cache, stands for a column with too many distinct values."""


def distinct_values(table: EntityTable, name: str) -> DistinctValues | None:
    """The distinct values of a text column.

    None if the column has too many of them, if it is not in memory, or if it was rarely used.
    """
    label = f"distinct values of {name}"
    if not table.is_cached(label):
        if table.count < MIN_ENTITIES or not table.is_cached(name):
            return None
        if not pa.types.is_string(table.schema.field(name).type) or table.should_defer(label, table.count):
            return None
    with table.slot(label) as slot:
        found: DistinctValues = slot.value or slot.keep(_encoded(table.column(name)))
    return None if found is _TOO_MANY else found


def _encoded(column: pa.Array) -> DistinctValues:
    known = pa.array([], column.type)
    for first, last in chunks(len(column)):
        checkpoint()
        known = pc.unique(pa.chunked_array([known, column.slice(first, last - first)]))
        if len(known) > MAX_DISTINCT_VALUES:
            return _TOO_MANY
    known = pc.drop_null(known)
    codes = np.empty(len(column), np.int16)
    for first, last in chunks(len(column)):
        checkpoint()
        found = pc.index_in(column.slice(first, last - first), known)
        codes[first:last] = found.fill_null(len(known)).to_numpy()
    return DistinctValues(pa.concat_arrays([known, pa.nulls(1, column.type)]), codes)
