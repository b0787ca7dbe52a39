"""Random numbers that belong to a row: any row of any stream can be drawn on its own.

A sequential generator would tie a value to everything drawn before it. Here a value is a hash of the seed, the
stream's name, the row and the lane, so that the data does not depend on batch sizes and batches need no state.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_ROW = np.uint64(0x9E3779B97F4A7C15)
_LANE = np.uint64(0xD1B54A32D192ED03)


class Stream:
    """One named column of random numbers."""

    __slots__ = ("_key",)

    def __init__(self, seed: int, name: str) -> None:
        digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
        self._key = np.uint64(int.from_bytes(digest, "little"))

    def uniform(self, rows: Ints, lanes: Ints | int = 0) -> Floats:
        """Numbers in [0, 1), one for each row and lane."""
        bits = rows.astype(np.uint64) * _ROW + np.asarray(lanes).astype(np.uint64) * _LANE + self._key
        bits ^= bits >> np.uint64(30)
        bits *= np.uint64(0xBF58476D1CE4E5B9)
        bits ^= bits >> np.uint64(27)
        bits *= np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, rows: Ints, bound: int | Ints, lanes: Ints | int = 0) -> Ints:
        """Integers in [0, bound)."""
        return (self.uniform(rows, lanes) * bound).astype(np.int64)

    def chance(self, rows: Ints, share: float, lanes: Ints | int = 0) -> Bools:
        """True for about this share of the rows."""
        return self.uniform(rows, lanes) < share

    def skewed(self, rows: Ints, bound: int | Ints, lanes: Ints | int = 0) -> Ints:
        """Integers in [0, bound) with a power law: small ones are far more frequent."""
        # A product, not a power: it rounds the same way on every machine.
        uniform = self.uniform(rows, lanes)
        return (uniform * uniform * bound).astype(np.int64)

    def heavy(self, rows: Ints, scale: float, cap: int, lanes: Ints | int = 0) -> Ints:
        """Integers from `scale` to `cap` with a heavy tail."""
        tail = scale / np.sqrt(1.0 - self.uniform(rows, lanes))
        return np.minimum(tail, cap).astype(np.int64)


class Streams:
    """The streams of one seed, by name."""

    __slots__ = ("_seed", "_streams")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, Stream] = {}

    def __getitem__(self, name: str) -> Stream:
        if name not in self._streams:
            self._streams[name] = Stream(self._seed, name)
        return self._streams[name]


def zipf_thresholds(count: int) -> Floats:
    """Cumulative shares of `count` choices with Zipf weights; search a uniform number in them to choose one."""
    weights = 1.0 / np.arange(2, count + 2)
    shares: Floats = np.cumsum(weights) / weights.sum()
    return shares


def repeat_rows(rows: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Each row `counts` times, with lanes that count from 0 within a row."""
    starts = np.cumsum(counts) - counts
    lanes = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(starts, counts)
    return np.repeat(rows, counts), lanes


def first_of_each(rows: Ints, values: Ints) -> Bools:
    """Which (row, value) pairs are met for the first time."""
    if not len(rows):
        return np.zeros(0, dtype=np.bool_)
    pairs = rows * (int(values.max()) + 1) + values
    kept = np.zeros(len(rows), dtype=np.bool_)
    kept[np.unique(pairs, return_index=True)[1]] = True
    return kept


def rank_in_row(rows: Ints) -> Ints:
    """The position of each entry within its run of equal rows, from 0."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    lengths = np.diff(np.append(starts, len(rows)))
    ranks: Ints = np.arange(len(rows), dtype=np.int64) - np.repeat(starts, lengths)
    return ranks
