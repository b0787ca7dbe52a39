"""A small embedding model over the library's own vocabulary.

It stands in for a real one where a test or a benchmark needs vectors that mean something: texts about one subject
are near each other, subjects of one field are nearer than subjects of two, and the same text always gives the same
vector. A generated paper's `abstract_vec` is `embed` of its abstract.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from papers.vocabulary import FIELDS, SUBJECTS

DIMENSIONS = 64

_WORD = re.compile(r"[^\W\d_]+")
_MODEL_SEED = 20_240_229
"""Fixed, whatever the seed of the data: vectors of two libraries can be compared."""

Vectors = npt.NDArray[np.float32]


def embed(texts: Sequence[str]) -> Vectors:
    """One unit vector for each text; a text without any known word gets the zero vector."""
    return unit(sums(texts)).round(4)


def sums(texts: Sequence[str]) -> Vectors:
    """The sum of the word vectors of each text. Sums of parts add up to the sum of the whole."""
    words = _word_vectors()
    result = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in _WORD.findall(text.lower()):
            if word in words:
                result[row] += words[word]
    return result


def unit(matrix: Vectors) -> Vectors:
    """The rows of a matrix at length 1."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(lengths == 0, 1.0, lengths)).astype(np.float32)


@cache
def _word_vectors() -> dict[str, Vectors]:
    """A word points to the subjects whose terms use it, with a direction of its own mixed in."""
    random = np.random.default_rng(_MODEL_SEED)

    def direction() -> Vectors:
        drawn = random.standard_normal(DIMENSIONS)
        return (drawn / np.linalg.norm(drawn)).astype(np.float32)

    fields = {field: direction() for field in FIELDS}
    words: dict[str, Vectors] = {}
    for subject in SUBJECTS:
        centre = direction() + np.float32(0.5) * fields[subject.field]
        for word in sorted({word for term in subject.terms for word in _WORD.findall(term)}):
            own = np.float32(0) if word in words else np.float32(0.5) * direction()
            words[word] = words.get(word, np.zeros(DIMENSIONS, dtype=np.float32)) + centre + own
    return words
