"""Words on disk: derived files, so that another process need not take the texts apart again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import pyarrow as pa

from omnigraph.lang.arrow import PROPERTY_ID
from omnigraph.lang.query import ir
from omnigraph.read.derived import DamagedError, DerivedFiles, Made, Origin, Stored, process_files
from omnigraph.read.search.update import brought_up_to_date
from omnigraph.read.search.words import Words
from omnigraph.read.space.space import Space
from omnigraph.read.versions import origin_of

_WORTH_KEEPING = 1_000_000
"""With fewer words than this, texts are taken apart about as fast as files are found and checked."""

_KEPT_CHANGE = 20
"""Words that were brought up to date are kept on disk when at least one of so many texts changed."""

_TRIED = 4
"""How many words of earlier versions are looked at."""

_OFFSETS, _LETTERS, _TOLD = "vocabulary.offsets", "vocabulary.letters", "told"
_ARRAYS = ("first", "entity", "begin", "place", "length")


@dataclass(frozen=True, slots=True)
class _Latest:
    """The words of a property that were found last, of whatever version; for as long as something else holds them.

    Attributes:
        made: what they are made from.
        unsaved: how many texts are not on disk as they are now.
    """

    made: Made
    words: ReferenceType[Words]
    unsaved: int

    @property
    def nbytes(self) -> int:
        return 256


def words_of_column(space: Space, name: str, analyzer: ir.Analyzer, files: DerivedFiles | None = None) -> Words:
    """The words of a text property: found on disk, brought up to date, or made from the column.

    Args:
        space: the entities.
        name: the property.
        analyzer: how texts become words.
        files: where words are kept; by default where the environment says.
    """
    files = files or process_files()
    made = _made(space, name, analyzer)
    stored = files.find(made.table, space.fingerprint)
    words = None if stored is None else _of_version(stored, made)
    unsaved = 0
    if words is None:
        words, unsaved = _updated(space, name, analyzer, made, files)
    if words is None:
        words = Words.of(space.whole(name), analyzer)
        unsaved = words.texts
    if unsaved and words.total >= _WORTH_KEEPING and unsaved * _KEPT_CHANGE >= words.texts:
        files.write(made, _arrays(words))
        unsaved = 0
    space.keep_latest(made.table, _Latest(made, ref(words), unsaved))
    return words


def _of_version(stored: Stored, made: Made) -> Words | None:
    """Words on disk, if they are those of a version."""
    if stored.made.table != made.table or _numbered(stored.made.edges) != _numbered(made.edges):
        return None
    return _loaded(stored)


def _updated(
    space: Space, name: str, analyzer: ir.Analyzer, made: Made, files: DerivedFiles
) -> tuple[Words | None, int]:
    """The words of an earlier version, brought up to date, and how many of their texts are not on disk like that."""
    if made.edges.base is None:
        return None, 0
    latest = space.find_latest(made.table)
    if isinstance(latest, _Latest) and (words := latest.words()) is not None:
        update = brought_up_to_date(words, latest.made.edges, space, name, analyzer)
        if update is not None:
            return update.words, latest.unsaved + update.changed
    for stored in islice(files.others(made.table), _TRIED):
        words = _loaded(stored) if stored.made.table == made.table else None
        update = None if words is None else brought_up_to_date(words, stored.made.edges, space, name, analyzer)
        if update is not None:
            return update.words, update.changed
    return None, 0


def _made(space: Space, name: str, analyzer: ir.Analyzer) -> Made:
    """What the words are made from. A property is known by its number: another may get its name."""
    number = space.schema.field(name).metadata[PROPERTY_ID.encode()].decode()
    origin = origin_of(space)
    return Made(f"{space.place} words of property {number} by {analyzer}", origin, origin, origin)


def _numbered(origin: Origin) -> tuple[str, int | None, int]:
    """What decides about words: versions that are made of the same files have the same."""
    return origin.fingerprint, origin.base, origin.slots


def _arrays(words: Words) -> dict[str, Any]:
    vocabulary = words.vocabulary.cast(pa.large_utf8())
    _, offsets, letters = vocabulary.buffers()
    return {
        _OFFSETS: np.frombuffer(offsets, np.int64)[: len(vocabulary) + 1],
        _LETTERS: np.frombuffer(letters, np.uint8),
        _TOLD: words.told.view(np.uint8),
        **{name: getattr(words, name) for name in _ARRAYS},
    }


def _loaded(stored: Stored) -> Words | None:
    """Words on disk; None where they are not what they should be: then they are made anew."""
    try:
        # Copied: they are checked, and read as a whole, anyway, and what is done with a file later does not matter.
        offsets, letters, told = (stored[name].copy() for name in (_OFFSETS, _LETTERS, _TOLD))
        first, entity, begin, place, length = (stored[name].copy() for name in _ARRAYS)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        vocabulary = pa.Array.from_buffers(pa.large_utf8(), len(offsets) - 1, buffers).cast(pa.utf8())
        return Words(vocabulary, first, entity, begin, place, length, told.view(np.bool_))
    except (DamagedError, KeyError):
        return None
