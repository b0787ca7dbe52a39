"""Property statistics without reading tables: from the schema, or from a sample of a column that is in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema.catalog import EdgeType, NodeType, Property, Unique
from omnigraph.lang.types import Scalar
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.context.context import Context
from omnigraph.read.plan.statistics import PropertyStatistics

_SAMPLE = 2_048
"""Number of values in a sample."""

_BOUNDS = 128
"""Number of values from the sorted sample that the statistics keep."""


def property_statistics(tables: Sequence[EntityTable], name: str, context: Context) -> PropertyStatistics | None:
    """Statistics of a property; None if nothing is known, or if the variable has several types."""
    if len(tables) != 1:
        return None
    (table,) = tables
    label = f"values of {name}"
    declared = _declared(table, name, context)
    if not table.is_cached(label) and not (table.count and table.is_comparable(name) and table.is_cached(name)):
        return declared
    with table.slot(label) as slot:
        found: PropertyStatistics = slot.value or slot.keep(sample_statistics(table.column(name), table.count))
    return found if declared is None else PropertyStatistics(declared.distinct, found.missing, found.sample)


def _declared(table: EntityTable, name: str, context: Context) -> PropertyStatistics | None:
    """Statistics from the schema: keys, unique properties, booleans and enums."""
    catalog = context.accepted.catalog
    kinds = catalog.nodes if table.is_node else catalog.edges
    declared: NodeType | EdgeType | None = kinds.get(table.type_name)
    prop: Property | None = None if declared is None else declared.properties.get(name)
    if declared is None or prop is None:
        return None
    if declared.key == (name,) or Unique((name,)) in declared.constraints:
        return PropertyStatistics(float(max(table.count, 1)))
    if prop.type.list:
        return None
    if prop.type.scalar is Scalar.BOOL:
        return PropertyStatistics(2.0)
    return PropertyStatistics(float(len(prop.type.enum_values))) if prop.type.enum_values else None


def sample_statistics(column: pa.Array, count: int) -> PropertyStatistics:
    """Estimate statistics of a column from a sample.

    The number of distinct values is estimated with the Guaranteed-Error Estimator (GEE): each value that occurs once in
    the sample stands for several values that are not in the sample.

    Args:
        column: values by entity number; null also for unused numbers (holes).
        count: number of entities.
    """
    places = np.unique(np.linspace(0, len(column) - 1, min(_SAMPLE, len(column))).astype(np.int64))
    some = column if len(places) == len(column) else column.take(pa.array(places))
    present = some.drop_null()
    # Unused numbers are null in the column, too. They must not be counted as entities whose value is null.
    expected = len(some) * count / len(column)
    missing = max(0.0, 1 - len(present) / expected)
    if len(present) == 0:
        return PropertyStatistics(1.0, missing)
    if pa.types.is_nested(present.type):
        return PropertyStatistics(float(count), missing)
    counts = pc.value_counts(present).field("counts").to_numpy()
    once = int((counts == 1).sum())
    repeated = len(counts) - once
    there = count * (1 - missing)
    distinct = repeated + once * math.sqrt(max(there / len(present), 1.0))
    return PropertyStatistics(max(1.0, distinct), missing, _ordered(present))


def _ordered(values: pa.Array) -> tuple[str | int | float, ...]:
    """Values of the sample as Python values, sorted; empty for types without an order."""
    if pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    elif pa.types.is_date64(values.type):
        values = values.view(pa.int64())
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    elif not (pa.types.is_integer(values.type) or pa.types.is_string(values.type)):
        return ()
    if len(values) == 0:
        return ()
    ordered = values.take(pc.sort_indices(values))
    places = np.unique(np.linspace(0, len(ordered) - 1, min(_BOUNDS, len(ordered))).astype(np.int64))
    return tuple(ordered.take(pa.array(places)).to_pylist())
