"""Divides the changes of a table into parts by the hash of the id, so that several processes can read them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.changes.aligned_types import TypePair
from omnigraph.changes.candidates import candidates
from omnigraph.changes.row_images import ChangedRows, changes_of
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rows.hashing import digests


def changed_rows(tables: TableStorage, pair: TypePair, part: int = 0, parts: int = 1) -> Iterator[ChangedRows]:
    """The changes of one part, with the content of blobs. Each entity belongs to exactly one part.

    Args:
        tables: the table storage.
        pair: the type in both states, with the columns to compare and read.
        part: the number of the part.
        parts: the number of parts.
    """
    rows = candidates(tables, pair)
    if parts > 1 and rows.num_rows:
        rows = rows.filter(pa.array(digests([rows["id"]]) % np.uint64(parts) == part))
    for found in changes_of(tables, pair, rows):
        yield from found.with_content(tables)
