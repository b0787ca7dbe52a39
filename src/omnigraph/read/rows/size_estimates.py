"""Memory estimates: how many bytes texts and lists will take when they are read for the rows of a match.

A row of a match consists of a few integers. But a text may be larger than a million integers, and many rows may have
the same text. So the size is estimated before the texts are copied into the rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.budget.chunks import CHUNK_ROWS, is_one_chunk
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import NOTHING, Numbers
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.frame import Binding, Frame

_SMALL = 10_000
"""If a table has at most this many rows, its columns are read as a whole.

Of larger tables, a few values may be read.
"""


def materialized_bytes(expressions: Iterable[Expression], frame: Frame) -> int:
    """Bytes of the texts and lists that expressions read, for all rows of a frame.

    A column whose size is unknown counts as 0. Such a column is not in memory, and only a few values of it are read.
    A single row counts as 0, too, because each of its values is in memory only once.
    """
    if frame.count <= 1 and not frame.paths:
        return 0
    total = 0
    for expression in expressions:
        if frame.count > 1:
            for var, column in expression.columns:
                if var in frame.bindings:
                    total += column_bytes(frame.bindings[var], column)
        if frame.paths:
            for var, part in expression.path_lists:
                path = frame.paths[var]
                total += column_bytes(path.nodes if part is ir.PathPart.NODES else path.edges, "id")
    return total


def chunk_bytes(expression: Expression, frame: Frame) -> int:
    """Like `materialized_bytes`, but for one expression that is evaluated in chunks: the bytes of one chunk."""
    size = materialized_bytes([expression], frame)
    return size if is_one_chunk(frame.count) else size * CHUNK_ROWS // frame.count


def column_bytes(binding: Binding, name: str) -> int:
    """Bytes of the values of a column for all rows of a binding, if they are texts or lists; else 0."""
    total = 0
    for number, table in enumerate(binding.tables):
        if table.is_wide(name):
            mine = binding.numbers if binding.type_index is None else binding.numbers[binding.type_index == number]
            total += _bytes(table, name, mine)
    return total


def _bytes(table: EntityTable, name: str, numbers: Numbers) -> int:
    if len(numbers) == 0 or table.count == 0:
        return 0
    if table.count > max(_SMALL, len(numbers)) and not table.is_cached(name):
        return 0
    column = table.column(name)
    if pa.types.is_nested(column.type):
        return int(column.nbytes) * len(numbers) // len(column)
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    ends = np.frombuffer(column.buffers()[1], np.int64 if is_large else np.int32)[column.offset :]
    present = numbers[numbers != NOTHING]
    return int((ends.take(present + 1).astype(np.int64) - ends.take(present)).sum())
