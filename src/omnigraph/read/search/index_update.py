"""Incremental update of an inverted index: only inserted, deleted and updated texts are processed.

This is possible if the table version that the index was built from is in the history of the current version.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.derived_files import Origin
from omnigraph.read.columns.entity_table import EntityTable, as_one_array
from omnigraph.read.columns.numbers import Integers, Mask, Numbers
from omnigraph.read.columns.sorting import order_of
from omnigraph.read.columns.table_changes import change
from omnigraph.read.search.inverted_index import InvertedIndex

REBUILD_RATIO = 10
"""If more than one in `REBUILD_RATIO` texts changed, the index is built again."""


@dataclass(frozen=True, slots=True)
class Update:
    """An updated inverted index.

    Attributes:
        words: the index.
        changed: number of inserted, deleted and updated texts.
    """

    words: InvertedIndex
    changed: int


def update_index(
    words: InvertedIndex, origin: Origin, table: EntityTable, name: str, analyzer: ir.Analyzer
) -> Update | None:
    """Update the inverted index of an earlier version; None if this is not possible, or too many texts changed.

    Args:
        words: the index of the earlier version.
        origin: the earlier version.
        table: the current version.
        name: the property.
        analyzer: the text analyzer.
    """
    if origin.base is None or origin.slots == 0 or len(words.length) != origin.slots:
        return None
    if table.numbering.row_ids is not None:
        return None
    what = change(origin, table, [name], REBUILD_RATIO)
    stays = None if what is None else _stays(what.untouched, origin.base, origin.slots)
    if what is None or stays is None:
        return None
    base = table.numbering.base
    order = order_of(what.row_ids)
    added = InvertedIndex.of(as_one_array(what.values[name]).take(pa.array(order)), analyzer)
    merged = _merged(words, stays, origin.base - base, added, what.row_ids[order] - base, table.slots)
    gone = int(np.count_nonzero(words.has_text & ~stays))
    return Update(merged, len(order) + gone)


def _stays(untouched: Numbers | None, base: int, slots: int) -> Mask | None:
    """Mask, by earlier entity number, of the entities that did not change; None if a row id is out of range."""
    if untouched is None:
        return np.ones(slots, bool)
    numbers = untouched - base
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= slots):
        return None
    found = np.zeros(slots, bool)
    found[numbers] = True
    return found


# Merge


def _merged(
    old: InvertedIndex, stays: Mask, shift: int, new: InvertedIndex, numbers: Numbers, slots: int
) -> InvertedIndex:
    """Merge the postings of unchanged entities with the postings of changed entities.

    Args:
        old: the earlier index.
        stays: mask of the unchanged entities, by their earlier numbers.
        shift: difference between the current and the earlier number of an unchanged entity.
        new: index of the changed entities.
        numbers: current numbers of the changed entities, ascending.
        slots: the current entity numbers are 0 to `slots` - 1.
    """
    vocabulary, of_old, of_new = _vocabularies(old.vocabulary, new.vocabulary)
    kept = _Entries.of(old, of_old).where(stays)
    came = _Entries.of(new, of_new)
    entity = kept.entity.astype(np.int64) + shift
    key = kept.word * slots + entity
    others = came.word * slots + numbers[came.entity]
    came, others = came.in_order(order := np.argsort(others)), others[order]
    at = np.searchsorted(key, others)
    begin = np.concatenate([[0], np.cumsum(kept.counts)])
    word = np.insert(kept.word, at, came.word)
    present = np.bincount(word, minlength=len(vocabulary)) > 0
    first = np.concatenate([[0], np.cumsum(np.bincount(word, minlength=len(vocabulary)))])
    length, has_text = np.zeros(slots, np.int32), np.zeros(slots, bool)
    there = np.flatnonzero(stays)
    length[there + shift], has_text[there + shift] = old.length[there], old.has_text[there]
    length[numbers], has_text[numbers] = new.length, new.has_text
    return InvertedIndex(
        vocabulary if present.all() else as_one_array(vocabulary.filter(pa.array(present))),
        first if present.all() else np.append(first[:-1][present], first[-1]),
        np.insert(entity, at, numbers[came.entity]).astype(np.int32),
        np.concatenate([[0], np.cumsum(np.insert(kept.counts, at, came.counts))]),
        np.insert(kept.place, np.repeat(begin[at], came.counts), came.place),
        length,
        has_text,
    )


def _vocabularies(old: pa.Array, new: pa.Array) -> tuple[pa.Array, Numbers, Numbers]:
    """Merge two vocabularies. Returns the sorted result, and the new number of each word of both vocabularies."""
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
    return as_one_array(together.take(by_text)), rank[: len(old)], rank[place]


@dataclass(frozen=True, slots=True)
class _Entries:
    """Postings. Each posting has a word, an entity, the number of occurrences, and their positions."""

    word: Numbers
    entity: Integers
    counts: Numbers
    place: Integers

    @classmethod
    def of(cls, words: InvertedIndex, names: Numbers) -> _Entries:
        """All postings of an index. `names` has the new number of each word."""
        return cls(np.repeat(names, np.diff(words.first)), words.entity, np.diff(words.begin), words.place)

    def where(self, stays: Mask) -> _Entries:
        """The postings of the entities that a mask selects."""
        kept = stays[self.entity]
        if kept.all():
            return self
        places = self.place[np.repeat(kept, self.counts)]
        return _Entries(self.word[kept], self.entity[kept], self.counts[kept], places)

    def in_order(self, order: Numbers) -> _Entries:
        """The postings in another order."""
        counts = self.counts[order]
        begin = (np.cumsum(self.counts) - self.counts)[order]
        places = np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        return _Entries(self.word[order], self.entity[order], counts, self.place[places])
