"""Words on disk: derived files, so that another process need not take the texts apart again."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.lang.arrow import PROPERTY_ID
from omnigraph.lang.query import ir
from omnigraph.read.amounts import amount
from omnigraph.read.derived import (
    DEFAULT_DISK,
    DISK_VARIABLE,
    DamagedError,
    DerivedFiles,
    Made,
    Origin,
    Stored,
    cache_directory,
)
from omnigraph.read.search.words import Words
from omnigraph.read.space.space import Space

_WORTH_KEEPING = 1_000_000
"""With fewer words than this, texts are taken apart about as fast as files are found and checked."""

_OFFSETS, _LETTERS, _TEXTS = "vocabulary.offsets", "vocabulary.letters", "texts"
_ARRAYS = ("first", "entity", "begin", "place", "length")


def words_of_column(space: Space, name: str, analyzer: ir.Analyzer, files: DerivedFiles | None = None) -> Words:
    """The words of a text property: found on disk, or made from the column.

    Args:
        space: the entities.
        name: the property.
        analyzer: how texts become words.
        files: where words are kept; by default where the environment says.
    """
    files = files or process_files()
    made = _made(space, name, analyzer)
    stored = files.find(made.table, space.fingerprint)
    if stored is not None and stored.made == made:
        try:
            return _loaded(stored)
        except (DamagedError, KeyError):
            pass  # then they are made anew
    words = Words.of(space.whole(name), analyzer)
    if words.total >= _WORTH_KEEPING:
        files.write(made, _arrays(words))
    return words


def _made(space: Space, name: str, analyzer: ir.Analyzer) -> Made:
    """What the words are made from. A property is known by its number: another may get its name."""
    number = space.schema.field(name).metadata[PROPERTY_ID.encode()].decode()
    known = space.numbering
    base = None if known.row_ids is not None else known.base
    # Versions that are made of the same files have the same words.
    origin = Origin(space.fingerprint, 0, base, space.slots)
    return Made(f"{space.place} words of property {number} by {analyzer}", origin, origin, origin)


def _arrays(words: Words) -> dict[str, Any]:
    vocabulary = words.vocabulary.cast(pa.large_utf8())
    _, offsets, letters = vocabulary.buffers()
    return {
        _OFFSETS: np.frombuffer(offsets, np.int64)[: len(vocabulary) + 1],
        _LETTERS: np.frombuffer(letters, np.uint8),
        _TEXTS: np.array([words.texts]),
        **{name: getattr(words, name) for name in _ARRAYS},
    }


def _loaded(stored: Stored) -> Words:
    offsets, letters = (pa.py_buffer(stored[name]) for name in (_OFFSETS, _LETTERS))
    count = len(stored[_OFFSETS]) - 1
    vocabulary = pa.Array.from_buffers(pa.large_utf8(), count, [None, offsets, letters]).cast(pa.utf8())
    first, entity, begin, place, length = (stored[name] for name in _ARRAYS)
    return Words(vocabulary, first, entity, begin, place, length, int(stored[_TEXTS][0]))


@cache
def process_files() -> DerivedFiles:
    """The files that this process uses."""
    directory = cache_directory(os.environ)
    limit = amount(os.environ, DISK_VARIABLE, DEFAULT_DISK)
    return DerivedFiles(None if directory is None else directory / "words", limit)
