"""Embed texts, with a cache in memory and on disk."""

# See docs/decisions/0121-vectors-are-kept-by-text.md

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.embed.embedder import Embedder, Purpose, Vectors, unit_vectors
from omnigraph.settings import EMBED_CACHE
from omnigraph.storage.files.cache_directory import cache_directory
from omnigraph.storage.files.vector_cache import Found, Keys, VectorCache, text_keys

PORTION = 2048
"""Texts per request to the embedder. Each result is cached at once, so a later failure does not lose it."""

_MEMORY = 128 << 20


class CachedVectors(Protocol):
    """A cache of vectors. The key of a vector is a hash of its text."""

    def find(self, keys: Keys) -> tuple[Found, Vectors]: ...

    def put(self, keys: Keys, vectors: Vectors) -> None: ...


@dataclass(slots=True)
class Tally:
    """Counts of one operation, such as a load, and a memory cache, so that the operation embeds no text twice.

    Attributes:
        computed: number of vectors that the embedder computed.
        found: number of cache hits, in memory or on disk.
        models: the embedding model and the text property of each computed vector property, by type and property.
    """

    computed: int = 0
    found: int = 0
    models: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    _known: dict[tuple[int, Purpose], _Memory] = field(default_factory=dict)

    def known(self, dimension: int, purpose: Purpose) -> CachedVectors:
        """The memory cache of the operation for vectors of this dimension and purpose."""
        return self._known.setdefault((dimension, purpose), _Memory(dimension))


def embed_texts(
    embedder: Embedder, texts: Sequence[str], dimension: int, purpose: Purpose, tally: Tally | None = None
) -> Vectors:
    """Return the unit vector of each text. The texts must be distinct and not blank.

    Raises:
        EmbeddingError: the embedder fails, or returns invalid vectors.
    """
    cached: CachedVectors | None = _on_disk(embedder, len(texts), dimension, purpose)
    if cached is None and tally is not None:
        cached = tally.known(dimension, purpose)
    if cached is None:
        return unit_vectors(embedder.embed(texts, dimension, purpose=purpose), len(texts), dimension, embedder.name)
    keys = text_keys(texts)
    found, vectors = cached.find(keys)
    missing = np.flatnonzero(~found)
    for start in range(0, len(missing), PORTION):
        positions = missing[start : start + PORTION]
        some = [texts[position] for position in positions]
        raw = embedder.embed(some, dimension, purpose=purpose)
        vectors[positions] = unit_vectors(raw, len(some), dimension, embedder.name)
        cached.put(keys[positions], vectors[positions])
    if tally is not None:
        tally.computed += len(missing)
        tally.found += len(texts) - len(missing)
    return vectors


def _on_disk(embedder: Embedder, count: int, dimension: int, purpose: Purpose) -> CachedVectors | None:
    """The disk cache of an embedder; None if it is not used, for example because there are few texts."""
    key = getattr(embedder, "cache_key", None)
    if not isinstance(key, str) or count < getattr(embedder, "cache_from", 1):
        return None
    directory = cache_directory(os.environ)
    limit = EMBED_CACHE.amount()
    if directory is None or limit == 0:
        return None
    return _vector_cache(str(directory), limit).model(f"{purpose} {key}", dimension)


@cache
def _vector_cache(directory: str, limit: int) -> VectorCache:
    return VectorCache(Path(directory) / "vectors", limit)


class _Memory:
    """A memory cache of vectors with a maximum size. It is cleared when it is full."""

    def __init__(self, dimension: int) -> None:
        self._positions: dict[bytes, int] = {}
        self._rows = np.empty((0, dimension), np.float32)
        self._most = max(PORTION, _MEMORY // (4 * dimension))

    def find(self, keys: Keys) -> tuple[Found, Vectors]:
        positions = np.array([self._positions.get(key.tobytes(), -1) for key in keys], np.int64)
        found = positions >= 0
        vectors = np.empty((len(keys), self._rows.shape[1]), np.float32)
        vectors[found] = self._rows[positions[found]]
        return found, vectors

    def put(self, keys: Keys, vectors: Vectors) -> None:
        count = len(self._positions)
        if count + len(keys) > self._most:
            self._positions, count = {}, 0
        if count + len(keys) > len(self._rows):
            larger = np.empty((max(2 * len(self._rows), count + len(keys)), vectors.shape[1]), np.float32)
            larger[:count] = self._rows[:count]
            self._rows = larger
        self._rows[count : count + len(keys)] = vectors
        self._positions |= {key.tobytes(): count + position for position, key in enumerate(keys)}
