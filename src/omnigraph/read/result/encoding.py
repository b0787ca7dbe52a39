"""Convert the values of result columns to text, a whole column at a time: JSON for programs, plain text for people.

Dates and times are written as in the query language. Integers are exact. Floats that JSON numbers cannot represent are
the strings `NaN`, `Infinity` and `-Infinity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.bind import JS_SAFE
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.export.json_text import NULL, TEXT, joined, json_text, literal, one_text, quoted

_FLOATS = {pa.float32(): ValueType(Scalar.F32), pa.float64(): ValueType(Scalar.F64)}


def encoded(column: pa.Array, *, js_safe: bool = False) -> pa.Array:
    """Values of a column as JSON texts. Null stays null.

    Args:
        column: a result column.
        js_safe: whether integers beyond ±(2^53 - 1) are written as JSON strings.
    """
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, js_safe)
    text = plain(column)
    if pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return quoted(text)
    if kind in _FLOATS:
        return pc.if_else(pc.is_finite(column), text, quoted(text))
    if js_safe and kind in (pa.int64(), pa.uint64()):
        large = pc.greater(column, pa.scalar(JS_SAFE, kind))
        if pa.types.is_signed_integer(kind):
            large = pc.or_(large, pc.less(column, pa.scalar(-JS_SAFE, kind)))
        return pc.if_else(large, quoted(text), text)
    return text


def plain(column: pa.Array) -> pa.Array:
    """Values of a column as plain text: strings without quotes, lists as JSON. Null stays null."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, js_safe=False)
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "true", "false").cast(TEXT)
    if pa.types.is_timestamp(kind):
        moments = column.view(pa.int64()).view(pa.timestamp("ms")).cast(TEXT)
        return pc.replace_substring_regex(moments, "^(.*) (.*)$", r"\1T\2Z")
    if kind in _FLOATS:
        return _floats(column)
    return column.cast(TEXT)


def _floats(column: pa.Array) -> pa.Array:
    finite = pc.is_finite(column)
    text = json_text(pc.if_else(finite, column, pa.scalar(0, column.type)), _FLOATS[column.type])
    if pc.all(finite).as_py() is not False:
        return text
    sign = pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity")
    return pc.if_else(finite, text, pc.if_else(pc.is_nan(column), "NaN", sign).cast(TEXT))


def _lists(column: pa.Array, js_safe: bool) -> pa.Array:
    items = encoded(pc.list_flatten(column), js_safe=js_safe).fill_null(NULL)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    lists = pa.LargeListArray.from_arrays(ends, items)
    text = joined("[", pc.binary_join(lists, pa.scalar(",", TEXT)), "]")
    return pc.if_else(column.is_valid(), text, pa.scalar(None, TEXT))


def json_parts(batches: Iterable[pa.RecordBatch], separator: str, *, js_safe: bool = False) -> Iterator[bytes]:
    """The rows of each batch as JSON objects in UTF-8, with a separator between them, but not between two batches."""
    for batch in batches:
        if batch.num_rows:
            yield one_text(objects(batch, js_safe=js_safe), separator)


def objects(batch: pa.RecordBatch, *, js_safe: bool = False) -> pa.Array:
    """Rows of a batch as JSON objects, with members in column order."""
    if batch.num_columns == 0:
        return pa.array(["{}"] * batch.num_rows, TEXT)
    parts: list[pa.Array | str] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += [f"{',' if parts else '{'}{literal(name)}:", encoded(column, js_safe=js_safe)]
    return joined(*parts, "}")
