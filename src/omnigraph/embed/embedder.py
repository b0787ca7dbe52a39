"""The `Embedder` protocol, and the validation of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

import numpy as np

from omnigraph.errors import EmbeddingError

Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
Vectors: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float32]]

_ROWS = 4096  # vectors that are validated at a time, to limit the memory of their float64 copy


class Purpose(StrEnum):
    """The purpose of a vector. Some models compute different vectors for queries and for documents."""

    QUERY = "query"
    DOCUMENT = "document"


class Embedder(Protocol):
    """Computes vectors from texts. Pass your own embedder with `omnigraph.open(…, embedder=…)`.

    It must be thread-safe. The texts are distinct and not blank.

    An embedder can have a `cache_key`, a text that is unique to its model and settings. Then its vectors are cached on
    disk. It can also have `cache_from`, a number: calls with fewer texts do not use the disk cache.
    """

    @property
    def name(self) -> str:
        """The model name, as in `@embed(…, model="…")`."""
        ...

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Vectors:
        """Return one row of `dimension` numbers per text. The caller scales the rows to length 1.

        Raises:
            EmbeddingError: the vectors cannot be computed.
            EmbeddingUnavailableError: the provider is busy or not reachable.
        """
        ...


def unit_vectors(raw: object, count: int, dimension: int, name: str) -> Vectors:
    """Validate the vectors of a model, and scale them to length 1.

    Raises:
        EmbeddingError: there are not `count` rows of `dimension` finite numbers, or a row is all zeros.
    """
    try:
        values = np.asarray(raw)
    except ValueError:  # rows of different lengths
        raise EmbeddingError(f"'{name}' returned vectors of different lengths") from None
    if count == 0:
        return np.empty((0, dimension), np.float32)
    if values.dtype.kind not in "fiu":
        raise EmbeddingError(f"'{name}' returned a value that is not a vector")
    if values.shape != (count, dimension):
        got = " × ".join(map(str, values.shape))
        raise EmbeddingError(
            f"'{name}' returned {got} numbers instead of {count} × {dimension}",
            hint="declare the vector with the dimension of the model, or configure another model",
        )
    result = np.empty((count, dimension), np.float32)
    for start in range(0, count, _ROWS):
        result[start : start + _ROWS] = _scaled(values[start : start + _ROWS].astype(np.float64), name)
    return result


def _scaled(rows: np.ndarray[tuple[int, int], np.dtype[np.float64]], name: str) -> Vectors:
    if not np.isfinite(rows).all():
        raise EmbeddingError(f"'{name}' returned a vector with a number that is not finite")
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not largest.all():
        raise EmbeddingError(f"'{name}' returned a vector of zeros, which has no direction")
    rows /= largest  # scale the numbers, so that their squares neither overflow nor underflow
    rows /= np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return rows.astype(np.float32)
