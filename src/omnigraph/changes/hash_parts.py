"""Divides the changes of a table into parts by the hash of the id, so that several processes can read them."""

# See docs/decisions/0198-a-stream-task-keeps-its-part.md

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.changes.aligned_types import TypePair
from omnigraph.changes.candidates import candidates
from omnigraph.changes.row_images import ChangedRows, changes_of
from omnigraph.storage.difference import Mask, Part
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rows.hashing import digests


def changed_rows(tables: TableStorage, pair: TypePair, part: int = 0, parts: int = 1) -> Iterator[ChangedRows]:
    """The changes of one part, with the content of blobs. Each entity belongs to exactly one part.

    The ids of all changed rows are read, and only those of the part are kept. So the memory depends on the size of the
    part. In addition, it has 8 bytes for each row that was removed in all parts.

    Args:
        tables: the table storage.
        pair: the type in both states, with the columns to compare and read.
        part: the number of the part.
        parts: the number of parts.
    """
    rows = candidates(tables, pair, part=None if parts == 1 else hash_part(part, parts))
    for found in changes_of(tables, pair, rows):
        yield from found.with_content(tables)


def hash_part(part: int, parts: int) -> Part:
    """Selects the ids of one part. Both rows of an entity, before and after a change, are in the same part."""

    def chosen(ids: pa.Array) -> Mask:
        if len(ids) == 0:
            return np.zeros(0, bool)
        return np.asarray(digests([pa.chunked_array([ids])]) % np.uint64(parts) == np.uint64(part))

    return chosen
