"""Convert the values of Arrow columns to JSON texts, a whole column at a time. `joined` combines them into rows."""

from __future__ import annotations

import binascii

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.blobs import has_no_content

NULL = "null"
TEXT = pa.large_string()

ASIDE = "\0"
"""Placeholder for the content of a large blob, which is added later. JSON never contains this character unescaped."""
_ESCAPED = ("\\", '"', *map(chr, range(0x20)))
"""Characters that JSON strings escape. The backslash comes first, since the other escapes contain it."""
_IS_ESCAPED = np.zeros(256, bool)
_IS_ESCAPED[[ord(character) for character in _ESCAPED]] = True


def joined(*parts: pa.Array | str) -> pa.Array:
    """Concatenate columns of JSON texts and constant texts, row by row. Null is written as `null`."""
    return pc.binary_join_element_wise(
        *(pa.scalar(part, TEXT) if isinstance(part, str) else part for part in parts),
        pa.scalar("", TEXT),
        null_handling="replace",
        null_replacement=NULL,
    )


def one_text(texts: pa.Array, separator: str) -> bytes:
    """All texts in UTF-8, with a separator between them.

    >>> one_text(pa.array(["a", "b"], TEXT), ", ")
    b'a, b'
    """
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    return bytes(pc.binary_join(whole, pa.scalar(separator, TEXT))[0].as_buffer())


def literal(text: str) -> str:
    """A text as a JSON string, with quotes."""
    return orjson.dumps(text).decode()


def json_text(column: pa.Array, type_: ValueType) -> pa.Array:
    """Values of a column as JSON texts. Null stays null.

    A Date is written as days, a DateTime as milliseconds since 1970. Integers are exact. A float is written as the
    shortest text that is parsed as the same float (32 or 64 bits).
    """
    if type_.is_vector or type_.list:
        item = ValueType(Scalar.F32) if type_.is_vector else type_.item
        return _lists(column, item)
    match type_.scalar:
        case Scalar.STRING:
            return quoted(column)
        case Scalar.BOOL:
            return pc.if_else(column, "true", "false").cast(TEXT)
        case Scalar.F32 | Scalar.F64:
            return _floats(column)
        case Scalar.DATE:
            return column.cast(pa.int32()).cast(TEXT)
        case Scalar.DATETIME:
            return column.view(pa.int64()).cast(TEXT)
        case Scalar.BLOB:
            return _blobs(column)
        case _:
            return column.cast(TEXT)


def quoted(column: pa.Array) -> pa.Array:
    """Texts in quotes, escaped for JSON."""
    column = column.cast(TEXT)
    for character in _escaped_in(column):
        column = pc.replace_substring(column, character, literal(character)[1:-1])
    return _around('"', column, '"')


def _escaped_in(column: pa.Array) -> list[str]:
    """The characters in a text column that JSON strings have to escape. Each of them is a single byte in UTF-8."""
    _, ends, data = column.buffers()
    if data is None:
        return []
    places = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    used = np.frombuffer(data, np.uint8)[places[0] : places[-1]]
    if not _IS_ESCAPED[used].any():
        return []
    found = np.bincount(used, minlength=256)
    return [character for character in _ESCAPED if found[ord(character)]]


def _around(before: str, column: pa.Array, after: str) -> pa.Array:
    """Add a prefix and a suffix to every text; null stays null."""
    return pc.binary_join_element_wise(pa.scalar(before, TEXT), column, pa.scalar(after, TEXT), pa.scalar("", TEXT))


def _floats(column: pa.Array) -> pa.Array:
    """Floats as text.

    Whole numbers get the suffix `.0`, because a reader would parse `-0` as an integer without its sign.
    """
    text = column.cast(TEXT)
    whole = pc.equal(pc.trunc(column), column)
    if pc.any(whole).as_py():
        bare = pc.and_(whole, pc.invert(pc.match_substring_regex(text, "[.e]")))
        text = pc.if_else(bare, _around("", text, ".0"), text)
    if pa.types.is_float32(column.type):
        # A JSON parser reads a double, which is then rounded to 32 bits. In rare cases, the result is another number.
        twice = pc.not_equal(text.cast(pa.float64()).cast(pa.float32(), safe=False), column)
        if pc.any(twice).as_py():
            text = pc.if_else(twice, column.cast(pa.float64()).cast(TEXT), text)
    return text


def _lists(column: pa.Array, item: ValueType) -> pa.Array:
    items = json_text(pc.list_flatten(column), item).fill_null(NULL)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    lists = pa.LargeListArray.from_arrays(ends, items)
    text = _around("[", pc.binary_join(lists, pa.scalar(",", TEXT)), "]")
    return pc.if_else(column.is_valid(), text, pa.scalar(None, TEXT))


def _blobs(cells: pa.Array) -> pa.Array:
    """Blob content as `base64:…`, and references as their addresses. The content of the whole column is in memory."""
    encoded = [
        binascii.b2a_base64(value.as_buffer(), newline=False) if value.is_valid else None
        for value in pc.struct_field(cells, "data")
    ]
    content = pa.array(encoded, pa.large_binary()).cast(TEXT)
    content = _around('"base64:', pc.if_else(has_no_content(cells), ASIDE, content), '"')
    return pc.coalesce(content, quoted(pc.struct_field(cells, "uri")))
