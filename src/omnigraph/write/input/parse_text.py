"""Parses columns of text cells, as in CSV files, to the types of their properties."""

# See docs/decisions/0070-a-csv-cell-is-read-by-its-type.md

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.errors import cut
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType
from omnigraph.write.rows.convert import Report, convert
from omnigraph.write.rows.problems import SHOWN
from omnigraph.write.rows.values import Fault, JsonNumber, column, json_integer, json_type

_WHOLE = r"^-?[0-9]+$"
_NOT_WHOLE = r"[0-9][^0-9]|^[^0-9+-]"
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_TRUTH = r"^(true|True|TRUE|false|False|FALSE)$"
_MOST_DIGITS = 21


def from_text(cells: pa.Array, kind: ValueType, report: Report, *, null_items: bool = False) -> pa.Array:
    """Parse cells to values that can be converted to a type without loss. An empty cell is null, except for a String.

    Numbers and truth values are written as in JSON (also `True` and `TRUE`), times as ISO 8601 and never as numbers,
    lists and vectors as JSON arrays.

    Args:
        cells: texts.
        kind: the property's type.
        report: called with the cells that do not fit. They become null.
        null_items: whether items of lists may be null. Items of another type then become null without a report.
    """
    if kind.scalar is Scalar.STRING and not kind.list:
        return cells
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.utf8()), cells)
    if kind.list or kind.is_vector:
        return _lists(cells, kind, report, null_items and not kind.is_vector)
    if kind.scalar.is_integer:
        return _integers(matching_cells(cells, _WHOLE, "a whole number", report), kind, report)
    if kind.scalar.is_float:
        return matching_cells(cells, _NUMBER, "a number", report).cast(arrow_type(kind))
    if kind.scalar is Scalar.BOOL:
        return pc.equal(pc.utf8_lower(matching_cells(cells, _TRUTH, "true or false", report)), "true")
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        return _times(cells, kind, report)
    return cells


def matching_cells(cells: pa.Array, pattern: str, expected: str, report: Report) -> pa.Array:
    """The cells that match a pattern. Reports the others, and returns null for them."""
    wrong = pc.invert(pc.match_substring_regex(cells, pattern)).fill_null(False)
    if not pc.any(wrong).as_py():
        return cells
    rest = wrong.to_numpy(zero_copy_only=False).copy()
    for text in cells.filter(wrong).slice(0, SHOWN).unique().to_pylist():
        same = pc.equal(cells, text).fill_null(False)
        report(same, f"expected {expected}, found {cut(repr(text))}", Fault.TYPE)
        rest &= ~same.to_numpy(zero_copy_only=False)
    if rest.any():
        report(pa.array(rest), f"expected {expected}", Fault.TYPE)
    return pc.if_else(wrong, pa.scalar(None, pa.utf8()), cells)


def parse_integers(cells: pa.Array, report: Report) -> pa.Array:
    """Parse whole numbers of 64 bits. Reports the other cells and returns null for them."""
    return _integers(matching_cells(cells, _WHOLE, "a whole number", report), ValueType(Scalar.I64), report)


def _integers(cells: pa.Array, kind: ValueType, report: Report) -> pa.Array:
    wanted = arrow_type(kind)
    try:
        return cells.cast(wanted)
    except pa.ArrowInvalid:
        pass
    shortest = pc.replace_substring_regex(cells, r"^(-?)0+([0-9])", r"\1\2")
    wrong = pc.greater(pc.utf8_length(shortest), _MOST_DIGITS).fill_null(False)
    numbers = pc.if_else(wrong, pa.scalar(None, pa.utf8()), shortest).cast(pa.decimal128(38, 0))
    low, high = (pa.scalar(bound, pa.decimal128(38, 0)) for bound in INTEGER_RANGES[kind.scalar])
    wrong = pc.or_(wrong, pc.or_(pc.less(numbers, low), pc.greater(numbers, high)).fill_null(False))
    report(wrong, f"out of range for {kind.scalar.value}")
    return pc.if_else(wrong, pa.scalar(None, numbers.type), numbers).cast(wanted)


def _times(cells: pa.Array, kind: ValueType, report: Report) -> pa.Array:
    """Parse times from texts. Refuses a bare number, because it may be a year, days or seconds."""
    expected = "a date like 2026-03-14" if kind.scalar is Scalar.DATE else "a time like 2026-03-14T09:30:00Z"
    return convert(matching_cells(cells, _NOT_WHOLE, f"{expected} (a mapping can name a format)", report), kind, report)


def _lists(cells: pa.Array, kind: ValueType, report: Report, null_items: bool) -> pa.Array:
    """Parse JSON arrays: all at once, or one by one if Arrow cannot read some of them."""
    present = cells.drop_null()
    if len(present) == 0:
        return pa.nulls(len(cells))
    lines = pc.binary_join_element_wise('{"v":', present, "}\n", "")
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    text = lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    for times_as_text in (True, False):
        options = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", json_type(kind, times_as_text))]),
            unexpected_field_behavior="error",
        )
        try:
            table = pj.read_json(pa.BufferReader(text), pj.ReadOptions(block_size=len(text) + 1), options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        if table.num_rows == len(present):
            return _spread(table["v"].combine_chunks(), cells)
    return _one_by_one(cells, kind, report, null_items)


def _spread(values: pa.Array, cells: pa.Array) -> pa.Array:
    """Put values back into the rows of the cells that they come from."""
    if cells.null_count == 0:
        return values
    present = cells.is_valid().to_numpy(zero_copy_only=False)
    positions = np.cumsum(present) - 1
    return values.take(pa.array(positions, mask=~present))


def _one_by_one(cells: pa.Array, kind: ValueType, report: Report, null_items: bool) -> pa.Array:
    wrong: dict[tuple[str, Fault], list[int]] = {}
    values: list[Any] = []
    for row, text in enumerate(cells.to_pylist()):
        try:
            values.append(None if text is None else _DECODER.decode(text))
        except (ValueError, RecursionError):
            values.append(None)
            wrong.setdefault(("expected a list as JSON, like [1, 2]", Fault.TYPE), []).append(row)

    def refuse(row: int, message: str, fault: Fault) -> None:
        if fault is not Fault.ITEM:
            wrong.setdefault((message, fault), []).append(row)

    converted = column(values, kind, refuse, null_items=null_items)
    for (message, fault), rows in wrong.items():
        mask = np.zeros(len(cells), bool)
        mask[rows] = True
        report(pa.array(mask), message, fault)
    return converted


def _no_constant(text: str) -> Any:
    raise ValueError(text)


_DECODER = json.JSONDecoder(parse_float=JsonNumber, parse_int=json_integer, parse_constant=_no_constant)
