"""Arrow columns from numpy arrays, without a Python object per row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from papers.randomness import Bools, Floats, Ints


def pick(pool: Sequence[str], indices: Ints) -> pa.StringArray:
    """One text of a pool for each index."""
    return pa.array(pool, pa.string()).take(pa.array(indices))


def join(*pieces: pa.Array | str) -> pa.StringArray:
    """Texts put together row by row; null when a piece is null."""
    return pc.binary_join_element_wise(*pieces, "")


def keep(values: pa.Array, valid: Bools) -> pa.Array:
    """The values where `valid`, null elsewhere."""
    return pc.if_else(pa.array(valid), values, pa.scalar(None, values.type))


def characters(codes: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Texts of equal length from a matrix of ASCII codes."""
    rows, width = codes.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(codes)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def digit_codes(numbers: Ints, width: int, base: int = 10) -> Ints:
    """The digits of numbers, most significant first, one row each."""
    powers = base ** np.arange(width - 1, -1, -1, dtype=np.int64)
    digits: Ints = numbers[:, None] // powers % base
    return digits


def digits(numbers: Ints, width: int) -> pa.StringArray:
    """Numbers as decimal text with leading zeros."""
    return characters((digit_codes(numbers, width) + ord("0")).astype(np.uint8))


def text(numbers: Ints) -> pa.StringArray:
    return pa.array(numbers).cast(pa.string())


def dates(days: Ints) -> pa.Array:
    """Days since 1970 as dates."""
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def instants(days: Floats) -> pa.Array:
    """Days since 1970, with a fraction, as points in time to the second."""
    seconds = (days * 86_400).round().astype(np.int64)
    return pa.array(seconds * 1_000).cast(pa.timestamp("ms", "UTC"))


def years(days: Ints) -> Ints:
    """The calendar years of days since 1970."""
    return days.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64) + 1970


def lists(values: pa.Array, counts: Ints, valid: Bools | None = None) -> pa.ListArray:
    """Lists of `counts` consecutive values each; null where not `valid` (its count must be 0 then)."""
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    mask = None if valid is None else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def vectors(matrix: npt.NDArray[np.float32], valid: Bools) -> pa.FixedSizeListArray:
    """One vector for each row of a matrix; null where not `valid`."""
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1], mask=pa.array(~valid))
