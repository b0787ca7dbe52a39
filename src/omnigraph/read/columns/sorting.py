"""Sorting of large arrays in chunks that fit the processor cache. A read can be stopped between two chunks.

This is a sample sort. Each chunk is sorted, and bounds are sampled from all chunks. Then the values between two bounds
are gathered from all chunks and sorted. There are about as many values between two bounds as in one chunk.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.stoppable import array_chunks, changes, gather, running_counts, scatter

SORT_CHUNK_ROWS = 1 << 17
"""Number of integers per chunk of a sort."""

MAX_UNPACKED_ROWS = 512
"""With at most this number of rows, the keys of a row are not packed into one integer before sorting."""

RANK_CHUNK_ROWS = 1 << 15
"""Number of values per chunk when `dense_ranks` ranks values of any type."""

SAMPLES_PER_BOUND = 8
"""For each bound, this number of values is sampled from each chunk."""

NEARLY_SORTED_ROWS_PER_DESCENT = 64
"""An array is nearly sorted if fewer than one in this many elements is smaller than the element before it."""

NUMBERS_PER_ROW = 4
"""Rows are grouped without sorting if their keys are in a range of at most this many numbers per row."""

_WORD_BITS = 64
_HALF_WORD_BITS = np.uint64(32)

Words = npt.NDArray[np.uint64]


# Numbers


def order_of(*keys: npt.NDArray[np.integer]) -> Numbers:
    """The stable order of rows by several integer keys; the first key is most significant.

    >>> order_of(np.array([2, 1, 1]), np.array([0, 7, 3])).tolist()
    [2, 1, 0]
    """
    count = len(keys[0])
    if count <= MAX_UNPACKED_ROWS:
        return np.lexsort(keys[::-1])
    parts = [_from_zero(key) for key in keys]
    order: Numbers | None = None
    # Pack the row number and as many of the last keys as possible into one 64-bit word.
    while parts:
        checkpoint()
        words, bits = parts.pop()
        while parts and bits + parts[-1][1] + _bits(count) <= _WORD_BITS:
            more, size = parts.pop()
            for first, last in array_chunks(count):
                words[first:last] |= more[first:last] << np.uint64(bits)
            bits += size
        if bits + _bits(count) > _WORD_BITS:
            parts += [(words >> _HALF_WORD_BITS, bits - 32), (words & np.uint64(2**32 - 1), 32)]
            continue
        found = _places(words if order is None else gather(words, order), _bits(count))
        order = found if order is None else gather(order, found)
    assert order is not None
    return order


def _from_zero(key: npt.NDArray[np.integer]) -> tuple[Words, int]:
    """The keys minus the smallest key, and the number of bits that the largest result needs."""
    low = np.uint64(min(int(key[a:b].min()) for a, b in array_chunks(len(key))) % 2**_WORD_BITS)
    words, high = np.empty(len(key), np.uint64), 0
    for first, last in array_chunks(len(key)):
        part = words[first:last]
        np.subtract(key[first:last].astype(np.uint64), low, out=part)
        high = max(high, int(part.max()))
    return words, high.bit_length()


def _bits(count: int) -> int:
    return max(count - 1, 1).bit_length()


def _places(words: Words, bits: int) -> Numbers:
    """The sort order of numbers, which are overwritten.

    The numbers are sorted together with their positions, in the lowest `bits` bits.
    """
    for first, last in array_chunks(len(words)):
        words[first:last] <<= np.uint64(bits)
        words[first:last] |= np.arange(first, last, dtype=np.uint64)
    keys = in_order(words)
    for first, last in array_chunks(len(keys)):
        keys[first:last] &= np.uint64((1 << bits) - 1)
    return keys.view(np.int64)


def in_order(keys: Words) -> Words:
    """Sort numbers. The argument is overwritten."""
    if len(keys) <= SORT_CHUNK_ROWS:
        _sort(keys)
        return keys
    pieces = [keys[first:last] for first, last in chunks(len(keys), SORT_CHUNK_ROWS)]
    for piece, _ in zip(pieces, chunks(len(pieces), 1), strict=True):
        _sort(piece)
    step = max(SORT_CHUNK_ROWS // (SAMPLES_PER_BOUND * len(pieces)), 1)
    samples = np.sort(np.concatenate([piece[::step] for piece in pieces]))
    bounds = samples[:: SAMPLES_PER_BOUND * len(pieces)][1:]
    cuts = [[0, *np.searchsorted(piece, bounds).tolist(), len(piece)] for piece in pieces]
    found, end = np.empty_like(keys), 0
    for number, _ in chunks(len(bounds) + 1, 1):
        slices = [piece[cut[number] : cut[number + 1]] for piece, cut in zip(pieces, cuts, strict=True)]
        together = np.concatenate(slices)
        # The array consists of several sorted runs, which a stable sort merges.
        together.sort(kind="stable")
        found[end : end + len(together)] = together
        end += len(together)
    return found


def _sort(piece: Words) -> None:
    # NumPy's stable sort needs one pass for nearly sorted input, which is common after a small change.
    descents = np.count_nonzero(piece[1:] < piece[:-1])
    piece.sort(kind="stable" if descents * NEARLY_SORTED_ROWS_PER_DESCENT < len(piece) else "quicksort")


def groups_of(keys: npt.NDArray[np.integer]) -> tuple[Numbers, Numbers]:
    """Group rows with equal numbers.

    Returns:
        The first row of each group, in the order of the numbers, and the group of each row.
    """
    low = int(keys.min(initial=0))
    size = int(keys.max(initial=0)) - low + 1
    if size <= NUMBERS_PER_ROW * len(keys):
        return _dense_groups(keys, low, size)
    if len(keys) <= SORT_CHUNK_ROWS:
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        return first, group
    order = order_of(keys)
    begins = changes(gather(keys, order))
    numbers = running_counts(begins)
    numbers -= 1
    group = np.empty(len(order), np.int64)
    scatter(group, order, numbers)
    checkpoint()
    return order[begins], group


def _dense_groups(keys: npt.NDArray[np.integer], low: int, size: int) -> tuple[Numbers, Numbers]:
    """Like `groups_of`, for numbers in a small range: from `low`, `size` different numbers at most."""
    numbers = keys.astype(np.int64)
    numbers -= low
    there = np.zeros(size, bool)
    there[numbers] = True
    checkpoint()
    group = (np.cumsum(there) - 1).take(numbers)
    checkpoint()
    first = np.empty(int(np.count_nonzero(there)), np.int64)
    # Of several rows of a group, the last assignment counts, and that is the first row.
    first[group[::-1]] = np.arange(len(keys) - 1, -1, -1)
    return first, group


def float_keys(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """An integer for each float, in the order of the floats. 0.0 and -0.0 have different integers."""
    bits = numbers.view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


BLOCK_ROWS = 64
"""Elements per block in `nth_least`. A block is skipped if its minimum shows that it cannot contain the result."""

MIN_BLOCKS_PER_RESULT = 4
"""If there are more than `MIN_BLOCKS_PER_RESULT` * n blocks, `nth_least` finds the n-th smallest block minimum first.

Then it searches only the values up to this bound.
"""

N = TypeVar("N", np.integer, np.floating)


def nth_least(values: npt.NDArray[N], count: int, *, largest: bool = False) -> N:
    """The n-th smallest value, where n is `count` and NaN is larger than all numbers.

    With `largest`, the n-th largest value; then NaN is not allowed.
    """
    width = len(values) // BLOCK_ROWS
    if width > MIN_BLOCKS_PER_RESULT * count:
        better = np.fmax if largest else np.fmin
        ends = better.reduce(values[: width * BLOCK_ROWS].reshape(BLOCK_ROWS, width), axis=0)
        # If the bound is a number, at least n values are as good as the bound or better. So worse values are ignored.
        bound = nth_least(ends, count, largest=largest)
        if not np.isnan(bound):
            values = values[values >= bound] if largest else values[values <= bound]
    place = len(values) - count if largest else count - 1
    found: N = np.partition(values, place)[place]
    return found


# Other values


def dense_ranks(values: pa.Array) -> Numbers:
    """Dense rank of each value (null is 0). Lists are not supported."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if len(values) <= RANK_CHUNK_ROWS:
        return _ranked(values)
    parts: list[tuple[Numbers, pa.Array]] = []
    for first, last in chunks(len(values), RANK_CHUNK_ROWS):
        parts.append(_encoded(values.slice(first, last - first)))
    distinct = [ordered for _, ordered in parts]
    ranks = _ranks_of_all(distinct)
    found = np.empty(len(values), np.int64)
    for (first, last), (codes, _), rank in zip(chunks(len(values), RANK_CHUNK_ROWS), parts, ranks, strict=True):
        found[first:last] = rank.take(codes)
    return found


def _ranked(values: pa.Array) -> Numbers:
    found = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    codes: Numbers = found.to_numpy(zero_copy_only=False).astype(np.int64)
    if values.null_count:
        codes[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return codes


def _encoded(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """Dictionary encoding with a sorted dictionary: the code of each value, and the dictionary.

    Null has the highest code.
    """
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    place = np.empty(len(order) + 1, np.int64)
    place[order.to_numpy()] = np.arange(len(order))
    place[-1] = len(order)
    codes = encoded.indices.fill_null(len(order)).to_numpy(zero_copy_only=False)
    return place.take(codes), encoded.dictionary.take(order)


def _ranks_of_all(distinct: list[pa.Array]) -> list[Numbers]:
    """For several sorted arrays, the dense rank of each value among the values of all arrays.

    Each result has an additional last element, the rank of null, which is 0.
    """
    found = [np.zeros(len(values) + 1, np.int64) for values in distinct]
    step = max(RANK_CHUNK_ROWS // (SAMPLES_PER_BOUND * len(distinct)), 1)
    samples = pa.concat_arrays([values.take(pa.array(np.arange(0, len(values), step))) for values in distinct])
    samples = samples.take(pc.sort_indices(samples))
    bounds = samples.take(pa.array(np.arange(0, len(samples), SAMPLES_PER_BOUND * len(distinct))[1:]))
    cuts = []
    for values, _ in zip(distinct, chunks(len(distinct), 1), strict=True):
        inner = pc.search_sorted(values, bounds, side="left").to_numpy() if len(values) else np.zeros(len(bounds), int)
        cuts.append([*pairwise([0, *inner.tolist(), len(values)])])
    before = 0
    for number, _ in chunks(len(bounds) + 1, 1):
        pieces = [
            values.slice(cut[number][0], cut[number][1] - cut[number][0])
            for values, cut in zip(distinct, cuts, strict=True)
        ]
        ranks = _ranked(pa.concat_arrays(pieces)) + before
        before = int(ranks.max(initial=before))
        end = 0
        for rank, cut in zip(found, cuts, strict=True):
            first, last = cut[number]
            rank[first:last] = ranks[end : end + last - first]
            end += last - first
    return found
