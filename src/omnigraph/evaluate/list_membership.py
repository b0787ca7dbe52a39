"""The `in` operator."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.compare import compare, exactly_representable
from omnigraph.evaluate.values import Value, broadcast, collapse_constant
from omnigraph.lang.query import ir


def in_list(value: Value, items: Value) -> Value:
    """Whether a list contains a value. Null if either is null. A null item matches no value."""
    if isinstance(items, pa.Scalar) and items.is_valid:
        found = _in_one_list(broadcast(value, 1), items.values)
    else:
        count = next((len(v) for v in (value, items) if isinstance(v, pa.Array)), 1)
        value_column, lists = broadcast(value, count), broadcast(items, count)
        known = pc.and_(value_column.is_valid(), lists.is_valid())
        found = pc.if_else(known, _in_own_list(value_column, lists), pa.scalar(None, pa.bool_()))
    return collapse_constant(found, value, items)


def _in_one_list(values: pa.Array, items: pa.Array) -> pa.Array:
    """Look up all values in one list."""
    items = items.drop_null()
    if len(items) == 0:
        found = pa.repeat(False, len(values))
    else:
        items = exactly_representable(items, values.type)
        if pa.types.is_floating(values.type):
            # 0.0 and -0.0 are equal but have different hashes. Adding 0.0 turns -0.0 into 0.0.
            values, items = pc.add(values, 0.0), pc.add(items, 0.0)
        found = pc.is_in(values, value_set=items)
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.bool_()))


def _in_own_list(values: pa.Array, lists: pa.Array) -> pa.Array:
    """Look up each value in the list of its row."""
    items = pc.list_flatten(lists)
    if len(items) == 0:
        return pa.repeat(False, len(values))
    # Arrow's `list_parent_indices` includes items under null lists, which `flatten` skips.
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(len(values)), lengths)
    equal = compare(ir.CompareOp.EQ, items, values.take(pa.array(owners))).fill_null(False)
    found = np.zeros(len(values), bool)
    found[owners[equal.to_numpy(zero_copy_only=False)]] = True
    return pa.array(found)
