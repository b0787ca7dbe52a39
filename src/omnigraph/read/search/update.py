"""Bringing the words of a text property up to date: only texts that came, went or were written are taken apart.

That is possible when the version that they were made from lies on the way to the one that is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import ir
from omnigraph.read.derived import Origin
from omnigraph.read.search.words import Words
from omnigraph.read.sorting import order_of
from omnigraph.read.space.space import Integers, Mask, Numbers, Space, one_piece
from omnigraph.read.versions import change

_SMALL_CHANGE = 10
"""With more than one of so many texts written since, all are taken apart anew."""


@dataclass(frozen=True, slots=True)
class Update:
    """Words that were brought up to date.

    Attributes:
        changed: how many texts came, went or were written.
    """

    words: Words
    changed: int


def brought_up_to_date(words: Words, origin: Origin, space: Space, name: str, analyzer: ir.Analyzer) -> Update | None:
    """The words of another version, brought up to date; None when they cannot be, or when much has changed.

    Args:
        words: the words.
        origin: the version that they were made from.
        space: the version that they shall be of.
        name: the property.
        analyzer: how texts become words.
    """
    if origin.base is None or origin.slots == 0 or len(words.length) != origin.slots:
        return None
    if space.numbering.row_ids is not None:
        return None
    what = change(origin, space, [name], _SMALL_CHANGE)
    stays = None if what is None else _stays(what.untouched, origin.base, origin.slots)
    if what is None or stays is None:
        return None
    base = space.numbering.base
    order = order_of(what.row_ids)
    added = Words.of(one_piece(what.values[name]).take(pa.array(order)), analyzer)
    merged = _merged(words, stays, origin.base - base, added, what.row_ids[order] - base, space.slots)
    gone = int(np.count_nonzero(words.told & ~stays))
    return Update(merged, len(order) + gone)


def _stays(untouched: Numbers | None, base: int, slots: int) -> Mask | None:
    """Which of the earlier numbers are entities that were not touched; None where those were not all numbered."""
    if untouched is None:
        return np.ones(slots, bool)
    numbers = untouched - base
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= slots):
        return None
    found = np.zeros(slots, bool)
    found[numbers] = True
    return found


# Putting words together


def _merged(old: Words, stays: Mask, shift: int, new: Words, numbers: Numbers, slots: int) -> Words:
    """The words of entities that stay, and of others.

    Args:
        old: words of which some entities stay.
        stays: which.
        shift: what is added to their numbers.
        new: the words of others.
        numbers: the numbers of those, ascending.
        slots: how many numbers there are.
    """
    vocabulary, of_old, of_new = _vocabularies(old.vocabulary, new.vocabulary)
    kept = _Entries.of(old, of_old).where(stays)
    came = _Entries.of(new, of_new)
    entity = kept.entity.astype(np.int64) + shift
    key = kept.word * slots + entity
    others = came.word * slots + numbers[came.entity]
    came, others = came.in_order(order := np.argsort(others)), others[order]
    at = np.searchsorted(key, others)
    begin = np.concatenate([[0], np.cumsum(kept.often)])
    word = np.insert(kept.word, at, came.word)
    present = np.bincount(word, minlength=len(vocabulary)) > 0
    first = np.concatenate([[0], np.cumsum(np.bincount(word, minlength=len(vocabulary)))])
    length, told = np.zeros(slots, np.int32), np.zeros(slots, bool)
    there = np.flatnonzero(stays)
    length[there + shift], told[there + shift] = old.length[there], old.told[there]
    length[numbers], told[numbers] = new.length, new.told
    return Words(
        vocabulary if present.all() else one_piece(vocabulary.filter(pa.array(present))),
        first if present.all() else np.append(first[:-1][present], first[-1]),
        np.insert(entity, at, numbers[came.entity]).astype(np.int32),
        np.concatenate([[0], np.cumsum(np.insert(kept.often, at, came.often))]),
        np.insert(kept.place, np.repeat(begin[at], came.often), came.place),
        length,
        told,
    )


def _vocabularies(old: pa.Array, new: pa.Array) -> tuple[pa.Array, Numbers, Numbers]:
    """All words of two vocabularies, sorted, and the numbers of the words of both among them."""
    known = pc.index_in(new, value_set=old)
    unknown = new.filter(known.is_null())
    if len(unknown) == 0:
        return old, np.arange(len(old)), known.to_numpy(zero_copy_only=False).astype(np.int64)
    together = pa.concat_arrays([old, unknown])
    by_text = pc.sort_indices(together)
    rank = np.empty(len(together), np.int64)
    rank[by_text.to_numpy()] = np.arange(len(together))
    place = known.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    missing = known.is_null().to_numpy(zero_copy_only=False)
    place[missing] = len(old) + np.arange(len(unknown))
    return one_piece(together.take(by_text)), rank[: len(old)], rank[place]


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of words: which word, which entity, how often it stands there, and where."""

    word: Numbers
    entity: Integers
    often: Numbers
    place: Integers

    @classmethod
    def of(cls, words: Words, names: Numbers) -> _Entries:
        """The entries of all words, under other numbers of the words that sort alike."""
        return cls(np.repeat(names, np.diff(words.first)), words.entity, np.diff(words.begin), words.place)

    def where(self, stays: Mask) -> _Entries:
        """The entries of some entities."""
        kept = stays[self.entity]
        if kept.all():
            return self
        places = self.place[np.repeat(kept, self.often)]
        return _Entries(self.word[kept], self.entity[kept], self.often[kept], places)

    def in_order(self, order: Numbers) -> _Entries:
        """The entries in another order."""
        often = self.often[order]
        begin = (np.cumsum(self.often) - self.often)[order]
        places = np.repeat(begin - (np.cumsum(often) - often), often) + np.arange(int(often.sum()))
        return _Entries(self.word[order], self.entity[order], often, self.place[places])
