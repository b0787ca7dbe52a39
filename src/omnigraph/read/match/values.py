"""What is known about the values of properties without reading any: from the schema, or from what is in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema.catalog import EdgeType, NodeType, Property, Unique
from omnigraph.lang.types import Scalar
from omnigraph.read.context import Context
from omnigraph.read.plan.statistics import Values
from omnigraph.read.space.space import Space

_SAMPLE = 2_048
"""How many values tell about all."""

_BOUNDS = 128
"""How many of those are kept, in their order."""


def values_of(spaces: Sequence[Space], name: str, context: Context) -> Values | None:
    """What is known about a property of the entities of a type; None where nothing is, or there are several types."""
    if len(spaces) != 1:
        return None
    (space,) = spaces
    label = f"values of {name}"
    declared = _declared(space, name, context)
    if not space.has(label) and not (space.count and space.holds_plain(name) and space.has(name)):
        return declared
    found = space.kept(label, lambda: sampled(space.column(name), space.count))
    return found if declared is None else replace(found, distinct=declared.distinct)


def _declared(space: Space, name: str, context: Context) -> Values | None:
    """What the schema says."""
    catalog = context.accepted.catalog
    kinds = catalog.nodes if space.key.startswith("node:") else catalog.edges
    declared: NodeType | EdgeType | None = kinds.get(space.type_name)
    prop: Property | None = None if declared is None else declared.properties.get(name)
    if declared is None or prop is None:
        return None
    if declared.key == (name,) or Unique((name,)) in declared.constraints:
        return Values(float(max(space.count, 1)))
    if prop.type.list:
        return None
    if prop.type.scalar is Scalar.BOOL:
        return Values(2.0)
    return Values(float(len(prop.type.enum_values))) if prop.type.enum_values else None


def sampled(column: pa.Array, count: int) -> Values:
    """What some values of a column tell about all of them.

    A value that is found once in the sample stands for many that are not found at all.

    Args:
        column: by number; null in holes, too.
        count: how many entities there are.
    """
    places = np.unique(np.linspace(0, len(column) - 1, min(_SAMPLE, len(column))).astype(np.int64))
    some = column if len(places) == len(column) else column.take(pa.array(places))
    present = some.drop_null()
    # Holes are null as well, and no entity.
    expected = len(some) * count / len(column)
    missing = max(0.0, 1 - len(present) / expected)
    if len(present) == 0:
        return Values(1.0, missing)
    if pa.types.is_nested(present.type):
        return Values(float(count), missing)
    counts = pc.value_counts(present).field("counts").to_numpy()
    once = int((counts == 1).sum())
    repeated = len(counts) - once
    there = count * (1 - missing)
    distinct = repeated + once * math.sqrt(max(there / len(present), 1.0))
    return Values(max(1.0, distinct), missing, _ordered(present))


def _ordered(values: pa.Array) -> tuple[str | int | float, ...]:
    """Some values in their order, as constants of a query have them; none where they have no order."""
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
