"""Words that are nearly a given one."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.read.space.space import Numbers

Letters = npt.NDArray[np.uint32]


class Spellings:
    """Words by their letters.

    Args:
        words: distinct words; they are known by their places here.
    """

    def __init__(self, words: pa.Array) -> None:
        self._words = words

    @cached_property
    def _by_length(self) -> dict[int, tuple[Numbers, Letters]]:
        """For each number of letters, the words and a table of their letters."""
        lengths = pc.utf8_length(self._words).to_numpy(zero_copy_only=False)
        found = {}
        for length in np.unique(lengths):
            numbers = np.flatnonzero(lengths == length)
            texts = np.array(self._words.take(pa.array(numbers)).to_pylist(), f"U{max(length, 1)}")
            found[int(length)] = (numbers, texts.view(np.uint32).reshape(len(numbers), -1)[:, :length])
        return found

    def near(self, word: str, edits: int) -> Numbers:
        """The words that a number of edits at most makes of a word: a letter more, a letter less, or another one."""
        letters = np.array([word], f"U{max(len(word), 1)}").view(np.uint32)[: len(word)]
        parts = [np.zeros(0, np.int64)]
        for length in range(max(len(word) - edits, 0), len(word) + edits + 1):
            if length in self._by_length:
                numbers, table = self._by_length[length]
                parts.append(numbers[distances(letters, table) <= edits])
        return np.concatenate(parts)


def distances(word: Letters, words: Letters) -> npt.NDArray[np.int16]:
    """The least number of edits between a word and each of several words of one length."""
    # A row of the table of distances between beginnings, for all words at once.
    row = [np.full(len(words), place, np.int16) for place in range(words.shape[1] + 1)]
    for done, letter in enumerate(word, 1):
        above, row = row, [np.full(len(words), done, np.int16)]
        for place in range(words.shape[1]):
            other = above[place] + (words[:, place] != letter)
            row.append(np.minimum(np.minimum(above[place + 1], row[place]) + 1, other).astype(np.int16))
    return row[-1]
