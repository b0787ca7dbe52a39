"""What an embedder is, and what counts as a vector."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

import numpy as np

from omnigraph.errors import EmbeddingError

Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
Vectors: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float32]]

_ROWS = 4096  # vectors that are checked at a time, in twice their size


class Purpose(StrEnum):
    """What a vector is for. Some models embed a question and what it should find differently."""

    QUERY = "query"
    DOCUMENT = "document"


class Embedder(Protocol):
    """Turns texts into vectors. Bring your own with `omnigraph.open(…, embedder=…)`.

    It is called from several threads, with texts that are not blank, each once.

    An embedder may also have a `cache_key`, a text that tells it from every other one: its vectors are then kept on
    this machine's disk, and it is not asked again for a text that it has embedded. With `cache_from`, a number, that is
    done for so many texts at a time, and fewer are embedded without a look at what is kept.
    """

    @property
    def name(self) -> str:
        """The model, as `@embed(…, model="…")` names it."""
        ...

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Vectors:
        """A row of `dimension` numbers for each text. Rows of any length are scaled to length 1.

        Raises:
            EmbeddingError: it cannot be done, or not now.
        """
        ...


def unit_vectors(raw: object, count: int, dimension: int, name: str) -> Vectors:
    """What a model gave, checked and scaled to length 1.

    Raises:
        EmbeddingError: it is not `count` rows of `dimension` finite numbers, or a row is all zeros.
    """
    try:
        values = np.asarray(raw)
    except ValueError:  # rows of different lengths
        raise EmbeddingError(f"'{name}' gave vectors of different lengths") from None
    if count == 0:
        return np.empty((0, dimension), np.float32)
    if values.dtype.kind not in "fiu":
        raise EmbeddingError(f"'{name}' gave something that is not a vector")
    if values.shape != (count, dimension):
        got = " × ".join(map(str, values.shape))
        raise EmbeddingError(
            f"'{name}' gave {got} numbers, where {count} × {dimension} were asked for",
            hint="declare the vector with the dimension that the model gives, or configure another model",
        )
    result = np.empty((count, dimension), np.float32)
    for start in range(0, count, _ROWS):
        result[start : start + _ROWS] = _scaled(values[start : start + _ROWS].astype(np.float64), name)
    return result


def _scaled(rows: np.ndarray[tuple[int, int], np.dtype[np.float64]], name: str) -> Vectors:
    if not np.isfinite(rows).all():
        raise EmbeddingError(f"'{name}' gave a vector with a number that is not finite")
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not largest.all():
        raise EmbeddingError(f"'{name}' gave a vector of zeros, which has no direction")
    rows /= largest  # so that no square overflows or vanishes
    rows /= np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return rows.astype(np.float32)
