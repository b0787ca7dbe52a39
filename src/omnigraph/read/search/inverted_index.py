"""Inverted index of a text property. A posting is a word and an entity whose text contains the word."""

# See docs/decisions/0080-words-are-counted-here.md

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Mask, Numbers
from omnigraph.read.search.analysis import Occurrences, Places
from omnigraph.read.search.fuzzy import FuzzyWords
from omnigraph.read.search.scores import Scores

K1 = 1.2
B = 0.75


@dataclass(frozen=True)
class InvertedIndex:
    """Inverted index of a text property of one type.

    Attributes:
        vocabulary: distinct words, sorted.
        first: index of the first posting of each word, and then the number of all postings.
        entity: entity number of each posting, ascending within a word.
        begin: index in `place` of the first position of each posting, and then the length of `place`.
        place: positions of words in texts, counted in words, ascending within a posting.
        length: number of words in the text of each entity.
        has_text: mask of the entities that have a text.
    """

    vocabulary: pa.Array
    first: Numbers
    entity: Places
    begin: Numbers
    place: Places
    length: Places
    has_text: Mask
    _discounts: tuple[float, Scores] | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, texts: pa.Array, analyzer: ir.Analyzer) -> InvertedIndex:
        """Build the index of a text column. The texts are in the order of entity numbers."""
        found = Occurrences(texts, analyzer)
        ends = np.cumsum(found.counts)
        total = int(ends[-1]) if len(ends) else 0
        free = ends - found.counts  # index for the next occurrence of each word
        starts = np.zeros(total, bool)
        starts[free] = True
        entity, place = np.empty(total, np.int32), np.empty(total, np.int32)
        length = np.zeros(len(texts), np.int32)
        for batch in found:
            order = np.argsort(batch.word, kind="stable")
            counts = np.bincount(batch.word, minlength=len(free))
            shift = free - (np.cumsum(counts) - counts)
            to = np.arange(len(order)) + shift[batch.word[order]]
            entity[to], place[to] = batch.text[order], batch.place[order]
            free += counts
            if len(batch.text):
                start, end = int(batch.text[0]), int(batch.text[-1]) + 1
                length[start:end] += np.bincount(batch.text - start, minlength=end - start).astype(np.int32)
        starts[1:] |= entity[1:] != entity[:-1]
        begin = np.flatnonzero(starts)
        first = np.searchsorted(begin, np.concatenate([ends - found.counts, [total]]))
        return cls(
            found.vocabulary,
            first,
            entity[begin],
            np.append(begin, total),
            place,
            length,
            texts.is_valid().to_numpy(zero_copy_only=False),
        )

    @property
    def nbytes(self) -> int:
        arrays = (self.first, self.entity, self.begin, self.place, self.length, self.has_text)
        discounts = 8 * len(self.length)
        return int(self.vocabulary.nbytes) + sum(int(array.nbytes) for array in arrays) + discounts

    @cached_property
    def spellings(self) -> FuzzyWords:
        """The vocabulary, prepared for fuzzy search."""
        return FuzzyWords(self.vocabulary)

    def discounts(self, average: float) -> Scores:
        """The length normalisation of BM25 for each text of L words: `K1 * (1 - B + B * L / average)`."""
        if self._discounts is not None and self._discounts[0] == average:
            return self._discounts[1]
        found: Scores = K1 * (1 - B + B * self.length.astype(np.float64) / average)
        object.__setattr__(self, "_discounts", (average, found))
        return found

    @cached_property
    def texts(self) -> int:
        """Number of entities that have a text."""
        return int(np.count_nonzero(self.has_text))

    @property
    def total(self) -> int:
        """Number of tokens of all texts."""
        return len(self.place)

    def find(self, word: str) -> int | None:
        """Index of a word in the vocabulary; None if it does not occur."""
        at = bisect_left(range(len(self.vocabulary)), word, key=lambda number: self.vocabulary[number].as_py())
        return at if at < len(self.vocabulary) and self.vocabulary[at].as_py() == word else None

    def containing(self, word: str) -> Numbers:
        """Numbers of the entities whose text contains a word, ascending."""
        number = self.find(word)
        return self._entities(number) if number is not None else np.zeros(0, np.int64)

    def _entities(self, number: int) -> Numbers:
        return self.entity[self.first[number] : self.first[number + 1]].astype(np.int64)

    def _mask(self, parts: Sequence[Numbers]) -> Mask:
        mask = np.zeros(len(self.length), bool)
        for part in parts:
            mask[part] = True
        return mask

    # Masks of matching entities

    def any_of(self, words: Sequence[str]) -> Mask:
        return self._mask([self.containing(word) for word in words])

    def all_of(self, words: Sequence[str]) -> Mask:
        if not words:
            return self._mask([])
        return self._mask([reduce(_both, sorted(map(self.containing, dict.fromkeys(words)), key=len))])

    def phrase(self, words: Sequence[str], places: Sequence[int]) -> Mask:
        """Mask of the entities whose text contains all words at these relative positions."""
        if not words:
            return self._mask([])
        entities, starts = self._starts(words[0], places[0], None)
        for word, place in zip(words[1:], places[1:], strict=True):
            entities, starts = self._starts(word, place, (entities, starts))
        return self._mask([entities])

    def _starts(self, word: str, place: int, known: tuple[Numbers, Numbers] | None) -> tuple[Numbers, Numbers]:
        """Possible starts of a phrase, as entities and positions in their texts.

        Args:
            word: a word of the phrase.
            place: position of the word in the phrase.
            known: possible starts according to earlier words; None for the first word.
        """
        number = self.find(word)
        if number is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        begin, end = int(self.first[number]), int(self.first[number + 1])
        places = self.place[self.begin[begin] : self.begin[end]].astype(np.int64) - place
        entities = np.repeat(self._entities(number), np.diff(self.begin[begin : end + 1]))
        if known is None:
            return entities, places
        # Positions of starts can be negative, so the key has one more bit for the sign.
        size = 1 << 33
        kept = np.isin(entities * size + places, known[0] * size + known[1], assume_unique=True)
        return entities[kept], places[kept]

    def fuzzy(self, words: Sequence[str], edits: int) -> Mask:
        """Mask of the entities whose text contains a word within an edit distance of one of the given words."""
        numbers = [number for word in words for number in self.spellings.near(word, edits)]
        return self._mask([self._entities(int(number)) for number in numbers])


def _both(left: Numbers, right: Numbers) -> Numbers:
    return np.intersect1d(left, right, assume_unique=True)
