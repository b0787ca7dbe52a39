"""On-disk cache of inverted indexes, as derived files."""

from __future__ import annotations

from itertools import islice
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.arrow import PROPERTY_ID
from omnigraph.lang.query import ir
from omnigraph.read.columns.derived_files import (
    NO_FILES,
    DamagedError,
    DerivedFiles,
    Made,
    Origin,
    Stored,
    process_files,
)
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.table_changes import origin_of
from omnigraph.read.search.index_update import update_index
from omnigraph.read.search.inverted_index import InvertedIndex

MIN_SAVED_TOKENS = 1_000_000
"""An index with fewer tokens than this is not written to disk, because building it is as fast as loading it."""

SAVED_CHANGE_RATIO = 20
"""An updated index is written to disk if at least one in `SAVED_CHANGE_RATIO` texts changed since the last write."""

_MAX_BASES = 4
"""Maximum number of earlier indexes on disk for which an incremental update is tried."""

_OFFSETS, _LETTERS, _HAS_TEXT = "vocabulary.offsets", "vocabulary.letters", "told"
_ARRAYS = ("first", "entity", "begin", "place", "length")


@dataclass(frozen=True, slots=True)
class _Latest:
    """The inverted index of a property that was loaded last. It may belong to any version of the table.

    Attributes:
        made: the table version that the index was built from.
        words: weak reference to the index.
        unsaved: number of changed texts that are not in an index on disk yet.
    """

    made: Made
    words: ReferenceType[InvertedIndex]
    unsaved: int

    @property
    def nbytes(self) -> int:
        return 256 + self.made.edges.nbytes


def load_inverted_index(
    table: EntityTable, name: str, analyzer: ir.Analyzer, files: DerivedFiles | None = None
) -> InvertedIndex:
    """The inverted index of a text property: from disk, updated from an earlier version, or built from the column.

    Args:
        table: the entities.
        name: the property.
        analyzer: the text analyzer.
        files: on-disk cache; by default the one of this process.
    """
    files = (files or process_files()) if table.ref.is_whole else NO_FILES
    made = _made(table, name, analyzer)
    stored = files.find(made.table, table.fingerprint)
    words = None if stored is None else _of_version(stored, made)
    unsaved = 0
    if words is None:
        words, unsaved = _updated(table, name, analyzer, made, files)
    if words is None:
        words = InvertedIndex.of(table.whole(name), analyzer)
        unsaved = words.texts
    if unsaved and words.total >= MIN_SAVED_TOKENS and unsaved * SAVED_CHANGE_RATIO >= words.texts:
        files.write(made, _arrays(words))
        unsaved = 0
    table.keep_latest(made.table, _Latest(made, ref(words), unsaved))
    return words


def _of_version(stored: Stored, made: Made) -> InvertedIndex | None:
    """Load an index from disk; None if it was not built from the current table version, or is damaged."""
    if stored.made.table != made.table or _numbered(stored.made.edges) != _numbered(made.edges):
        return None
    return _loaded(stored)


def _updated(
    table: EntityTable, name: str, analyzer: ir.Analyzer, made: Made, files: DerivedFiles
) -> tuple[InvertedIndex | None, int]:
    """Update the index of an earlier version. Returns the index, and the number of changed texts that are not on disk.

    Returns None as the index if no earlier index can be updated.
    """
    if made.edges.base is None:
        return None, 0
    latest = table.find_latest(made.table)
    if isinstance(latest, _Latest) and (words := latest.words()) is not None:
        update = update_index(words, latest.made.edges, table, name, analyzer)
        if update is not None:
            return update.words, latest.unsaved + update.changed
    for stored in islice(files.others(made.table), _MAX_BASES):
        words = _loaded(stored) if stored.made.table == made.table else None
        update = None if words is None else update_index(words, stored.made.edges, table, name, analyzer)
        if update is not None:
            return update.words, update.changed
    return None, 0


def _made(table: EntityTable, name: str, analyzer: ir.Analyzer) -> Made:
    """Describe the data that an index is built from: table version, property and analyzer.

    The property is identified by its number, because its name can be reused after it is dropped.
    """
    number = table.schema.field(name).metadata[PROPERTY_ID.encode()].decode()
    origin = origin_of(table)
    return Made(f"{table.place} words of property {number} by {analyzer}", origin, origin, origin)


def _numbered(origin: Origin) -> tuple[str, int | None, int]:
    """The facts about a table version on which an index depends. Versions with the same files have equal facts."""
    return origin.fingerprint, origin.base, origin.slots


def _arrays(words: InvertedIndex) -> dict[str, Any]:
    vocabulary = words.vocabulary.cast(pa.large_utf8())
    _, offsets, letters = vocabulary.buffers()
    return {
        _OFFSETS: np.frombuffer(offsets, np.int64)[: len(vocabulary) + 1],
        _LETTERS: np.frombuffer(letters, np.uint8),
        _HAS_TEXT: words.has_text.view(np.uint8),
        **{name: getattr(words, name) for name in _ARRAYS},
    }


def _loaded(stored: Stored) -> InvertedIndex | None:
    """Load an index from disk; None if it is damaged."""
    try:
        # The arrays are copied, so that later changes of the file have no effect. This costs little, because the
        # checksum has to read the arrays completely, too.
        offsets, letters, has_text = (stored[name].copy() for name in (_OFFSETS, _LETTERS, _HAS_TEXT))
        first, entity, begin, place, length = (stored[name].copy() for name in _ARRAYS)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        vocabulary = pa.Array.from_buffers(pa.large_utf8(), len(offsets) - 1, buffers).cast(pa.utf8())
        return InvertedIndex(vocabulary, first, entity, begin, place, length, has_text.view(np.bool_))
    except (DamagedError, KeyError):
        return None
