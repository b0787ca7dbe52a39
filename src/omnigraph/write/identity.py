"""Ids for whole columns: derived from keys, or generated."""

from __future__ import annotations

import os
import time

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema import canonical_text
from omnigraph.lang.types import Scalar, ValueType

_CROCKFORD = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_SAFE_IN_JSON = r'^[^"\\\x00-\x1f\x7f]*$'


def canonical_texts(column: pa.Array, kind: ValueType) -> pa.Array:
    """The canonical text of each value of a key property; null stays null."""
    if kind.scalar is Scalar.STRING:
        return column
    if kind.scalar.is_integer:
        return column.cast(pa.utf8())
    if kind.scalar is Scalar.BOOL:
        return pc.if_else(column, "true", "false")
    if kind.scalar is Scalar.DATE:
        return column.cast(pa.int32()).cast(pa.utf8())
    if kind.scalar is Scalar.DATETIME:
        return column.view(pa.int64()).cast(pa.utf8())
    encoded = column.dictionary_encode()
    texts = [canonical_text(kind.scalar, value) for value in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.utf8()).take(encoded.indices)


def derived_ids(members: list[tuple[pa.Array, ValueType]]) -> pa.Array:
    """The id of each row from its key members, in key order: the text of one, or a JSON array of several."""
    texts = [canonical_texts(column, kind) for column, kind in members]
    if len(texts) == 1:
        return texts[0]
    quoted = [_json_strings(text) for text in texts]
    parts: list[pa.Array | pa.Scalar] = [pa.scalar("[")]
    for i, text in enumerate(quoted):
        parts += [text] if i == 0 else [pa.scalar(","), text]
    parts.append(pa.scalar("]"))
    return pc.binary_join_element_wise(*parts, "")


def _json_strings(texts: pa.Array) -> pa.Array:
    """Texts as JSON strings. Only those that need escapes are taken one by one, and each of them once."""
    if pc.all(pc.match_substring_regex(texts, _SAFE_IN_JSON)).as_py() is not False:
        return pc.binary_join_element_wise('"', texts, '"', "")
    encoded = texts.dictionary_encode()
    quoted = [orjson.dumps(text).decode() for text in encoded.dictionary.to_pylist()]
    return pa.array(quoted, pa.utf8()).take(encoded.indices)


def generated_ids(count: int) -> pa.Array:
    """Fresh ULIDs: 48 bits of time, 80 random bits."""
    if count == 0:
        return pa.array([], pa.utf8())
    raw = np.frombuffer(os.urandom(count * 16), np.uint8).reshape(count, 16).copy()
    raw[:, :6] = np.frombuffer((time.time_ns() // 1_000_000).to_bytes(6, "big"), np.uint8)
    high, low = raw.view(">u8").astype(np.uint64).T
    text = np.empty((count, 26), np.uint8)
    for place in range(26):
        shift = 5 * place
        if shift >= 64:
            digit = high >> np.uint64(shift - 64)
        elif shift > 59:
            digit = (low >> np.uint64(shift)) | (high << np.uint64(64 - shift))
        else:
            digit = low >> np.uint64(shift)
        text[:, 25 - place] = _CROCKFORD[(digit & np.uint64(31)).astype(np.intp)]
    offsets = np.arange(count + 1, dtype=np.int32) * 26
    return pa.Array.from_buffers(pa.utf8(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())])
