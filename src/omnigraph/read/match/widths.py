"""How many bytes texts and lists take, before they are made for the rows of a match.

A row of a match is a few numbers. One text may be as large as a million of them, and a match may hold it in every row.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.match.frame import Binding, Frame
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.portions import PORTION
from omnigraph.read.space.space import NOTHING, Numbers, Space

_SMALL = 10_000
"""The columns of a table with no more entities are read whole. Of a larger one, few values are read by themselves."""


def is_wide(kind: pa.DataType) -> bool:
    """Whether values of a type are more than one number each."""
    return _is_text(kind) or pa.types.is_nested(kind)


def size_of(exprs: object, frame: Frame) -> int:
    """How many bytes of texts and lists some expressions take from the entities of rows.

    What is asked from a large table, for few rows and because it is not in memory, is not known, and counts as nothing.
    So does what a single row holds: it takes what it takes in its table.
    """
    total = 0
    for var, column in _columns(exprs):
        if frame.count > 1 and var in frame.bindings:
            total += column_size(frame.bindings[var], column)
    for var, part in _path_parts(exprs):
        path = frame.paths[var]
        total += column_size(path.nodes if part is ir.PathPart.NODES else path.edges, "id")
    return total


def made_at_once(expr: object, frame: Frame) -> int:
    """The same for what is made of a portion of rows at a time, and not kept."""
    size = size_of(expr, frame)
    return size if frame.count < 2 * PORTION else size * PORTION // frame.count


def column_size(binding: Binding, name: str) -> int:
    """How many bytes a column takes for what a variable holds, if its values are texts or lists."""
    total = 0
    for number, space in enumerate(binding.spaces):
        if _is_wide_in(space, name):
            mine = binding.numbers if binding.which is None else binding.numbers[binding.which == number]
            total += _size(space, name, mine)
    return total


_known: WeakKeyDictionary[Space, dict[str, bool]] = WeakKeyDictionary()
"""What `_is_wide_in` found: asking a schema takes longer than a small read may."""


def _is_wide_in(space: Space, name: str) -> bool:
    """Whether the entities of a type have texts or lists in a column."""
    known = _known.setdefault(space, {})
    if name not in known:
        known[name] = space.holds_plain(name) and is_wide(space.schema.field(name).type)
    return known[name]


def _size(space: Space, name: str, numbers: Numbers) -> int:
    if len(numbers) == 0 or space.count == 0:
        return 0
    if space.count > max(_SMALL, len(numbers)) and not space.has(name):
        return 0
    column = space.column(name)
    if not _is_text(column.type):
        return int(column.nbytes) * len(numbers) // len(column)
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    ends = np.frombuffer(column.buffers()[1], np.int64 if is_large else np.int32)[column.offset :]
    there = numbers[numbers != NOTHING]
    return int((ends.take(there + 1).astype(np.int64) - ends.take(there)).sum())


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


@remembered
def _columns(exprs: object) -> tuple[tuple[str, str], ...]:
    """The variables and columns of entities that expressions name."""
    found: dict[tuple[str, str], None] = {}
    for part in walk(exprs):
        match part:
            case ir.Prop(var=var, name=name):
                found[var, name] = None
            case ir.Ident(var=var, role=role):
                found[var, ROLE_COLUMNS[role]] = None
            case ir.Entity(var=var):
                found[var, "id"] = None
    return tuple(found)


@remembered
def _path_parts(exprs: object) -> tuple[tuple[str, ir.PathPart], ...]:
    """The paths whose nodes or edges expressions list."""
    found = {(part.var, part.part): None for part in walk(exprs) if isinstance(part, ir.PathValue)}
    return tuple(key for key in found if key[1] is not ir.PathPart.LENGTH)
