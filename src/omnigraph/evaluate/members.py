"""Whether a value is in a list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.compare import compare, fitting
from omnigraph.evaluate.values import Value, gathered, spread
from omnigraph.lang.query import ir


def is_member(value: Value, items: Value) -> Value:
    """Whether a list holds the value; null where either is null. An item that is null equals nothing."""
    if isinstance(items, pa.Scalar) and items.is_valid:
        found = _in_one_list(spread(value, 1), items.values)
    else:
        count = next((len(v) for v in (value, items) if isinstance(v, pa.Array)), 1)
        value_column, lists = spread(value, count), spread(items, count)
        known = pc.and_(value_column.is_valid(), lists.is_valid())
        found = pc.if_else(known, _in_own_list(value_column, lists), pa.scalar(None, pa.bool_()))
    return gathered(found, value, items)


def _in_one_list(values: pa.Array, items: pa.Array) -> pa.Array:
    """Every value looked up in the same list."""
    items = items.drop_null()
    if len(items) == 0:
        found = pa.repeat(False, len(values))
    else:
        items = fitting(items, values.type)
        if pa.types.is_floating(values.type):
            # Hashing tells the zeros apart, comparing does not.
            values, items = pc.add(values, 0.0), pc.add(items, 0.0)
        found = pc.is_in(values, value_set=items)
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.bool_()))


def _in_own_list(values: pa.Array, lists: pa.Array) -> pa.Array:
    """Each value looked up in the list of its row."""
    items = pc.list_flatten(lists)
    if len(items) == 0:
        return pa.repeat(False, len(values))
    # Arrow's own parent indices count items that lie behind a null, which flattening leaves out.
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(len(values)), lengths)
    equal = compare(ir.CompareOp.EQ, items, values.take(pa.array(owners))).fill_null(False)
    found = np.zeros(len(values), bool)
    found[owners[equal.to_numpy(zero_copy_only=False)]] = True
    return pa.array(found)
