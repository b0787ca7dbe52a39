"""Mock embedder for tests: deterministic vectors without meaning, fast and without files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.embed.embedder import Purpose, Vectors, unit_vectors

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class MockEmbedder:
    """Pseudo-random vectors: xorshift64 (13, 7, 17), seeded with the FNV-1a-64 hash of the text, scaled to [-1, 1]."""

    name: str = "mock"

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Vectors:
        state = np.array([_fnv1a(text.encode()) or _OFFSET for text in texts], np.uint64)
        drawn = np.empty((len(texts), dimension), np.float32)
        for column in range(dimension):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            drawn[:, column] = state.astype(np.float64) / float(_MASK)
        return unit_vectors(drawn * np.float32(2) - np.float32(1), len(texts), dimension, self.name)


def _fnv1a(data: bytes) -> int:
    value = _OFFSET
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value
