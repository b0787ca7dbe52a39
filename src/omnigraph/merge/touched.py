"""The ids of rows that may differ between two versions of a table, as a filter for scans."""

# See docs/decisions/0113-a-merge-compares-what-was-written.md
# See docs/decisions/0176-only-rows-of-the-source-are-compared.md

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.storage.row_pairs import ID, changed_rows, shared_names
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rows.hashing import Digests, digests

MAX_LOOKUP_IDS = 20_000
"""Maximum number of ids whose rows are looked up. With more ids, the tables are scanned."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The ids of rows that may differ. All other rows are equal in all versions.

    Attributes:
        ids: the ids; None if there are more than `MAX_LOOKUP_IDS`.
        numbers: the sorted hashes of the ids. Hashes can collide, so a few ids of other rows may match, too.
    """

    ids: pa.Array | None
    numbers: Digests

    @property
    def count(self) -> int:
        return len(self.numbers)

    def among(self, ids: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Mask of the ids that may differ."""
        if len(self.numbers) == 0:
            return np.zeros(len(ids), bool)
        hashes = digests([ids])
        positions = np.minimum(np.searchsorted(self.numbers, hashes), len(self.numbers) - 1)
        return np.asarray(self.numbers[positions] == hashes)


def touched(
    tables: TableStorage,
    before: TableRef,
    after: TableRef,
    most: int | None = None,
    names: list[tuple[str | None, str]] | None = None,
) -> Touched | None:
    """The ids of rows that may differ between two versions of a table.

    None if the version history is incomplete, or if there are more than `most` rows.

    Args:
        tables: the table storage.
        before: the first version.
        after: the second version.
        most: the maximum number of rows.
        names: the compared columns, each by its names in both versions; by default those that both versions have.
    """
    compared = names or shared_names(*(tables.at(ref).schema() for ref in (before, after)))
    found = changed_rows(tables, before, after, compared)
    if found is None:
        return None
    count = found.before.num_rows + found.after.num_rows
    if most is not None and count > most:
        return None
    ids = pa.chunked_array([*found.before[ID].chunks, *found.after[ID].chunks], pa.utf8())
    return Touched(ids.unique() if count <= MAX_LOOKUP_IDS else None, np.unique(digests([ids])))
