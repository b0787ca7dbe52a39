"""Convert the values of Arrow columns to cells of CSV files, a whole column at a time. A load reads the same values."""

# See docs/decisions/0361-csv-quotes-the-text-null.md

from __future__ import annotations

import binascii

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.export.json_text import ASIDE, TEXT, json_text
from omnigraph.storage.blobs import has_no_content

_QUOTED = '[,"\r\n]|^null$|^$'
"""Texts in quotes: those with special characters, and those that mean null without quotes."""


def csv_cells(column: pa.Array, type_: ValueType) -> pa.Array:
    """Values of a column as cells. Null is an empty cell, an empty text is `""`, and the text null is `"null"`.

    Numbers are written as in JSON, lists and vectors as JSON arrays, dates and times in ISO 8601, blobs as `base64:…`
    or as their addresses.
    """
    if type_.is_vector or type_.list:
        cells = _in_quotes(json_text(column, type_))
    elif type_.scalar is Scalar.STRING:
        cells = quoted_texts(column)
    elif type_.scalar is Scalar.DATE:
        cells = column.cast(pa.date32()).cast(pa.utf8()).cast(TEXT)
    elif type_.scalar is Scalar.DATETIME:
        moments = column.view(pa.int64()).cast(pa.timestamp("ms")).cast(pa.utf8()).cast(TEXT)
        cells = _joined(pc.replace_substring(moments, " ", "T"), "Z")
    elif type_.scalar is Scalar.BLOB:
        cells = _blobs(column)
    else:
        cells = json_text(column, type_)
    return cells.fill_null("")


def quoted_texts(column: pa.Array) -> pa.Array:
    """Texts as cells, in quotes where that is necessary."""
    column = column.cast(TEXT)
    return pc.if_else(pc.match_substring_regex(column, _QUOTED), _in_quotes(column), column)


def csv_rows(cells: list[pa.Array]) -> pa.Array:
    """The lines of a CSV file, with line feeds."""
    return _joined(pc.binary_join_element_wise(*cells, pa.scalar(",", TEXT)), "\n")


def first_with_nul(column: pa.Array) -> int | None:
    """The first row with a NUL character, which a CSV file cannot contain; None if there is none."""
    found = pc.index(pc.match_substring(column.cast(TEXT), ASIDE).fill_null(False), True).as_py()
    return None if found < 0 else int(found)


def _in_quotes(column: pa.Array) -> pa.Array:
    mark = pa.scalar('"', TEXT)
    return pc.binary_join_element_wise(mark, pc.replace_substring(column, '"', '""'), mark, pa.scalar("", TEXT))


def _joined(column: pa.Array, text: str) -> pa.Array:
    return pc.binary_join_element_wise(column, pa.scalar(text, TEXT), pa.scalar("", TEXT))


def _blobs(cells: pa.Array) -> pa.Array:
    encoded = [
        binascii.b2a_base64(value.as_buffer(), newline=False) if value.is_valid else None
        for value in pc.struct_field(cells, "data")
    ]
    content = pc.if_else(has_no_content(cells), ASIDE, pa.array(encoded, pa.large_binary()).cast(TEXT))
    managed = pc.binary_join_element_wise(pa.scalar("base64:", TEXT), content, pa.scalar("", TEXT))
    return pc.coalesce(managed, quoted_texts(pc.struct_field(cells, "uri")))
