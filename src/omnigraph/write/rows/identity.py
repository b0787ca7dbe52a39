"""Computes the ids of all rows of a column at once: derived from keys, or generated."""

# See docs/decisions/0062-generated-ids-count-upwards.md
# See docs/decisions/0091-each-part-has-a-range-of-ids.md

from __future__ import annotations

import os
import time

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema import canonical_text
from omnigraph.lang.types import Scalar, ValueType

_DIGITS = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CROCKFORD = np.frombuffer(_DIGITS, np.uint8)
_PART_BITS = 36
"""Number of bits of the counter in one part of the id range. The bits above it are the number of the part."""
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
    """The id of each row, from its key columns in key order: the text of a single value, or a JSON array of several."""
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
    """Texts as JSON strings. Escapes distinct texts one by one, but only if at least one needs escapes."""
    if pc.all(pc.match_substring_regex(texts, _SAFE_IN_JSON)).as_py() is not False:
        return pc.binary_join_element_wise('"', texts, '"', "")
    encoded = texts.dictionary_encode()
    quoted = [orjson.dumps(text).decode() for text in encoded.dictionary.to_pylist()]
    return pa.array(quoted, pa.utf8()).take(encoded.indices)


class Ulids:
    """Generates ULIDs that increase by one: 48 bits of time, then 79 bits that start at random.

    Consecutive ids sort in the order of creation and are close together, so they compress well and are fast to index.
    Several processes can generate the ids of one write. Each uses its own part of the id range. Ids of a part with a
    higher number sort after those of a lower part.

    Args:
        seed: the first id, from `seed`; by default a new one.
        part: the number of the part of the range.
    """

    def __init__(self, seed: int | None = None, part: int = 0) -> None:
        if seed is None:
            seed = self.seed()
        self._high = np.uint64(seed >> 64)
        # The highest bit is cleared, so that counting never overflows into the upper 64 bits.
        self._next = (seed & 0x7FFF_FFFF_FFFF_FFFF) + (part << _PART_BITS)

    @staticmethod
    def seed() -> int:
        """A new first id, from the time and random bits."""
        return time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10), "big")

    def take(self, count: int) -> pa.Array:
        """The next `count` ids."""
        if count == 0:
            return pa.array([], pa.utf8())
        first, self._next = self._next, self._next + count
        low = np.arange(first, self._next, dtype=np.uint64)
        text = np.empty((count, 26), np.uint8)
        # The ids differ only in their last digits, so the other digits are computed once.
        changing = (first ^ (self._next - 1)).bit_length() // 5 + 1
        whole = int(self._high) << 64 | first
        text[:] = np.frombuffer(bytes(_DIGITS[whole >> shift & 31] for shift in range(125, -1, -5)), np.uint8)
        for place in range(changing if count > 1 else 0):
            text[:, 25 - place] = _digit(self._high, low, place)
        offsets = np.arange(count + 1, dtype=np.int32) * 26
        return pa.Array.from_buffers(pa.utf8(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


_Numbers = np.ndarray[tuple[int], np.dtype[np.uint64]]


def _digit(high: np.uint64, low: _Numbers, place: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """One digit of each id. The ids have the same upper 64 bits; `place` counts digits from the last one."""
    shift = 5 * place
    if shift >= 64:
        value = np.full(len(low), high >> np.uint64(shift - 64))
    elif shift > 59:
        value = (low >> np.uint64(shift)) | (high << np.uint64(64 - shift))
    else:
        value = low >> np.uint64(shift)
    return _CROCKFORD[(value & np.uint64(31)).astype(np.intp)]


def generated_ids(count: int) -> pa.Array:
    """New ULIDs in ascending order."""
    return Ulids().take(count)
