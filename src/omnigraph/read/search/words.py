"""The words of a text property: in which entities each of them occurs, how often and where."""

# See docs/decisions/0080-words-are-counted-here.md

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.search.analysis import Occurrences, Places
from omnigraph.read.search.scores import Scores, rounded
from omnigraph.read.search.typos import Spellings
from omnigraph.read.space.space import Mask, Numbers

K1 = 1.2
B = 0.75


@dataclass(frozen=True)
class Words:
    """The words of a text property of one type.

    Attributes:
        vocabulary: the distinct words, sorted.
        first: where the entries of each word begin.
        entity: the entity of each entry; ascending for each word.
        begin: where the places of each entry begin.
        place: places, ascending for each entry.
        length: how many words each entity has.
        told: which entities have a text.
    """

    vocabulary: pa.Array
    first: Numbers
    entity: Places
    begin: Numbers
    place: Places
    length: Places
    told: Mask
    _discounts: tuple[float, Scores] | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, texts: pa.Array, analyzer: ir.Analyzer) -> Words:
        """The words of a column, by the number of the entity."""
        found = Occurrences(texts, analyzer)
        ends = np.cumsum(found.often)
        total = int(ends[-1]) if len(ends) else 0
        free = ends - found.often  # where the next one of each word goes
        starts = np.zeros(total, bool)
        starts[free] = True
        entity, place = np.empty(total, np.int32), np.empty(total, np.int32)
        length = np.zeros(len(texts), np.int32)
        for portion in found:
            order = np.argsort(portion.word, kind="stable")
            often = np.bincount(portion.word, minlength=len(free))
            shift = free - (np.cumsum(often) - often)
            to = np.arange(len(order)) + shift[portion.word[order]]
            entity[to], place[to] = portion.text[order], portion.place[order]
            free += often
            if len(portion.text):
                start, end = int(portion.text[0]), int(portion.text[-1]) + 1
                length[start:end] += np.bincount(portion.text - start, minlength=end - start).astype(np.int32)
        starts[1:] |= entity[1:] != entity[:-1]
        begin = np.flatnonzero(starts)
        first = np.searchsorted(begin, np.concatenate([ends - found.often, [total]]))
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
        arrays = (self.first, self.entity, self.begin, self.place, self.length, self.told)
        discounts = 8 * len(self.length)
        return int(self.vocabulary.nbytes) + sum(int(array.nbytes) for array in arrays) + discounts

    @cached_property
    def spellings(self) -> Spellings:
        """The words, to find those that are nearly a given one."""
        return Spellings(self.vocabulary)

    def discounts(self, average: float) -> Scores:
        """By how much the length of each text makes its words count less, where texts have so many words on average."""
        if self._discounts is not None and self._discounts[0] == average:
            return self._discounts[1]
        found: Scores = K1 * (1 - B + B * self.length.astype(np.float64) / average)
        object.__setattr__(self, "_discounts", (average, found))
        return found

    @cached_property
    def texts(self) -> int:
        """How many entities have a text."""
        return int(np.count_nonzero(self.told))

    @property
    def total(self) -> int:
        """How many words all texts have together."""
        return len(self.place)

    def find(self, word: str) -> int | None:
        """The number of a word."""
        at = bisect_left(range(len(self.vocabulary)), word, key=lambda number: self.vocabulary[number].as_py())
        return at if at < len(self.vocabulary) and self.vocabulary[at].as_py() == word else None

    def having(self, word: str) -> Numbers:
        """The entities that have a word, ascending."""
        number = self.find(word)
        return self._entities(number) if number is not None else np.zeros(0, np.int64)

    def _entities(self, number: int) -> Numbers:
        return self.entity[self.first[number] : self.first[number + 1]].astype(np.int64)

    def _mask(self, parts: Sequence[Numbers]) -> Mask:
        mask = np.zeros(len(self.length), bool)
        for part in parts:
            mask[part] = True
        return mask

    # Which entities have

    def any_of(self, words: Sequence[str]) -> Mask:
        return self._mask([self.having(word) for word in words])

    def all_of(self, words: Sequence[str]) -> Mask:
        if not words:
            return self._mask([])
        return self._mask([reduce(_both, sorted(map(self.having, dict.fromkeys(words)), key=len))])

    def phrase(self, words: Sequence[str], places: Sequence[int]) -> Mask:
        """All words at their places, counted from wherever the first one stands."""
        if not words:
            return self._mask([])
        entities, starts = self._starts(words[0], places[0], None)
        for word, place in zip(words[1:], places[1:], strict=True):
            entities, starts = self._starts(word, place, (entities, starts))
        return self._mask([entities])

    def _starts(self, word: str, place: int, known: tuple[Numbers, Numbers] | None) -> tuple[Numbers, Numbers]:
        """Where a phrase may begin: entities and places. Narrows down what is known from other words."""
        number = self.find(word)
        if number is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        begin, end = int(self.first[number]), int(self.first[number + 1])
        places = self.place[self.begin[begin] : self.begin[end]].astype(np.int64) - place
        entities = np.repeat(self._entities(number), np.diff(self.begin[begin : end + 1]))
        if known is None:
            return entities, places
        # Places below zero are before the text; one more bit tells them apart.
        size = 1 << 33
        kept = np.isin(entities * size + places, known[0] * size + known[1], assume_unique=True)
        return entities[kept], places[kept]

    def nearly(self, words: Sequence[str], edits: int) -> Mask:
        """Any of some words, each spelled with a few letters more, less or different."""
        numbers = [number for word in words for number in self.spellings.near(word, edits)]
        return self._mask([self._entities(int(number)) for number in numbers])


def _both(left: Numbers, right: Numbers) -> Numbers:
    return np.intersect1d(left, right, assume_unique=True)


def relevance(collection: Sequence[Words], words: Sequence[str]) -> list[Scores]:
    """BM25 of each entity of several types for the words of a query; NaN where no word occurs.

    What is common is judged by all texts of these types: a word that n of N texts have weighs
    `ln(1 + (N - n + 0.5) / (n + 0.5))`. A word that stands f times in a text of L words, of A on average, counts
    `f * (K1 + 1) / (f + K1 * (1 - B + B * L / A))` times that; a word that the query repeats counts repeatedly. The
    sum is rounded to single precision.
    """
    texts = sum(part.texts for part in collection)
    average = sum(part.total for part in collection) / max(texts, 1)
    scores = [np.zeros(len(part.length)) for part in collection]
    for word in words:
        entries = [part.find(word) for part in collection]
        spans = [
            slice(0, 0) if number is None else slice(int(part.first[number]), int(part.first[number + 1]))
            for part, number in zip(collection, entries, strict=True)
        ]
        having = sum(span.stop - span.start for span in spans)
        weight = np.log1p((texts - having + 0.5) / (having + 0.5))
        for part, span, score in zip(collection, spans, scores, strict=True):
            if span.start == span.stop:
                continue
            entities = part.entity[span].astype(np.int64)
            often = np.diff(part.begin[span.start : span.stop + 1]).astype(np.float64)
            counted = often * (K1 + 1) / (often + part.discounts(average)[entities])
            score[entities] += weight * counted
    return [_told(score) for score in scores]


def _told(score: Scores) -> Scores:
    """Rounded, and NaN where nothing was added: every word that occurs counts something."""
    found = np.full(len(score), np.nan)
    there = np.flatnonzero(score)
    found[there] = rounded(score[there])
    return found
