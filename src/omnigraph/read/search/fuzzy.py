"""Fuzzy word search: find the words within an edit distance of a word."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.numbers import Mask, Numbers

Letters = npt.NDArray[np.uint32]


class FuzzyWords:
    """A vocabulary for fuzzy search. Words of equal length are stored as a matrix of letters.

    Args:
        words: distinct words. Results are indices into this array.
    """

    def __init__(self, words: pa.Array) -> None:
        self._words = words

    @cached_property
    def _by_length(self) -> dict[int, tuple[Numbers, Letters]]:
        """For each word length, the indices of the words, and a matrix with one row of letters per word."""
        lengths = pc.utf8_length(self._words).to_numpy(zero_copy_only=False)
        found = {}
        for length in np.unique(lengths):
            checkpoint()
            numbers = np.flatnonzero(lengths == length)
            texts = np.array(self._words.take(pa.array(numbers)).to_pylist(), f"U{max(length, 1)}")
            found[int(length)] = (numbers, texts.view(np.uint32).reshape(len(numbers), -1)[:, :length])
        return found

    def near(self, word: str, edits: int) -> Numbers:
        """Indices of the words whose Levenshtein distance from a word is at most `edits`."""
        letters = np.array([word], f"U{max(len(word), 1)}").view(np.uint32)[: len(word)]
        parts = [np.zeros(0, np.int64)]
        for length in range(max(len(word) - edits, 0), len(word) + edits + 1):
            if length in self._by_length:
                numbers, table = self._by_length[length]
                parts.append(numbers[within(letters, table, edits)])
        return np.concatenate(parts)


def within(word: Letters, words: Letters, edits: int) -> Mask:
    """Mask of the words whose Levenshtein distance from a word is at most `edits`.

    All `words` have the same length. It differs from the length of `word` by at most `edits`.
    """
    # `row` is one row of the edit-distance matrix, for all words at once. Only elements near the diagonal are needed.
    # In row i, element n is the distance of the first i letters of `word` from the first i + n - edits letters of each
    # of the words.
    size, band, far = words.shape[1], 2 * edits + 1, edits + 1
    beyond = np.full(len(words), far, np.uint8)
    row = [np.full(len(words), more, np.uint8) if 0 <= more <= size else beyond for more in range(-edits, far)]
    for done, letter in enumerate(word, 1):
        checkpoint()
        above, row = [*row, beyond], [beyond]
        for at in range(band):
            place = done + at - edits
            if not 0 <= place <= size:
                row.append(beyond)
                continue
            best = np.minimum(np.minimum(above[at + 1], row[at]) + 1, beyond)
            if place:
                np.minimum(best, above[at] + (words[:, place - 1] != letter), out=best)
            row.append(best)
        row = row[1:]
    found: Mask = row[size - len(word) + edits] <= edits
    return found
