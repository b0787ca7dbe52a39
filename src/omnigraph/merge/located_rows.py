"""Where the rows that a merge compares are stored: their row ids in the base, the source and the target.

A row keeps its row id until it is deleted. So the records of written rows show which rows the source has changed since
the base, and where the base and the target have them. No version is searched for ids.
"""

# See docs/decisions/0113-a-merge-compares-what-was-written.md
# See docs/decisions/0176-only-rows-of-the-source-are-compared.md

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError
from omnigraph.merge.schema_alignment import stored_tables
from omnigraph.merge.sides import Versions, with_blob_hashes
from omnigraph.storage.column_changes import property_number
from omnigraph.storage.lookup import in_groups
from omnigraph.storage.row_changes import KnownRows
from omnigraph.storage.row_id_set import RowIdSet
from omnigraph.storage.row_pairs import AFTER, BEFORE, ID, ROW_ID, changed_rows, paired, scans, shared_names
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rows.hashing import digests

GROUP_ROWS = 1 << 16
"""Number of scanned rows that are processed at a time."""

TAKE_ROWS = 1 << 13
"""Number of rows that are looked up at a time."""

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """The rows that the source may have changed since the base.

    Attributes:
        versions: the versions of the table.
        ids: their ids, sorted.
        base: their row ids in the base; null if it does not have the row.
        source: their row ids in the source.
        target: their row ids in the target.
        moved: mask of the rows that the target may have changed since the base. The others are equal in both.
    """

    versions: Versions
    ids: pa.ChunkedArray
    base: pa.Array
    source: pa.Array
    target: pa.Array
    moved: Mask

    @classmethod
    def find(cls, tables: TableStorage, versions: Versions) -> LocatedRows | None:
        """Find the rows to compare.

        None if the history of the versions is incomplete, or if rows that only the target changed have to be compared,
        too.
        """
        if versions.is_unclear:
            return None
        stored = stored_tables(tables)
        base, source, target = versions.all
        found = changed_rows(stored, base, source, compared_names(stored, versions))
        if found is None:
            return None
        pairs = paired(found.before, found.after)
        ids, before = pairs[ID], pairs[BEFORE].combine_chunks()
        moved = np.zeros(len(ids), bool)
        row_ids = before
        if base != target:
            names = shared_names(stored.at(base).schema(), stored.at(target).schema())
            others = changed_rows(stored, base, target, names)
            if others is None:
                return None
            rewritten = RowIdSet(others.before[ROW_ID].combine_chunks()).among(before.fill_null(0))
            rewritten &= before.is_valid().to_numpy(zero_copy_only=False)
            written = others.after.filter(pc.is_in(others.after[ID], value_set=ids))
            places = pc.index_in(ids, value_set=written[ID].combine_chunks()).combine_chunks()
            kept = pc.if_else(pa.array(rewritten), pa.scalar(None, pa.uint64()), before)
            row_ids = pc.coalesce(written[ROW_ID].combine_chunks().take(places), kept)
            moved = rewritten | places.is_valid().to_numpy(zero_copy_only=False)
        return cls(versions, ids, before, pairs[AFTER].combine_chunks(), row_ids, moved)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shares_rows(self) -> bool:
        """Whether rows that the target has not changed are read once, for the base and the target."""
        return not any(self.versions.lacking)

    @property
    def moved_ids(self) -> pa.Array:
        """The ids of the rows that the target may have changed."""
        return self.ids.filter(pa.array(self.moved)).combine_chunks()

    def known(self, tables: TableStorage) -> KnownRows:
        """The rows of the target, as input of a write."""
        return KnownRows(tables.at(self.versions.target).fingerprint(), self.ids.combine_chunks(), self.target)

    def base_rows(self, tables: TableStorage) -> Iterator[pa.Table]:
        return self._rows(tables, self.versions.base, self.base)

    def source_rows(self, tables: TableStorage) -> Iterator[pa.Table]:
        return self._rows(tables, self.versions.source, self.source)

    def target_rows(self, tables: TableStorage) -> Iterator[pa.Table]:
        """The rows of the target; without those that are read from the base, if `shares_rows`."""
        row_ids = self.target
        if self.shares_rows:
            row_ids = pc.if_else(pa.array(self.moved), row_ids, pa.scalar(None, pa.uint64()))
        return self._rows(tables, self.versions.target, row_ids)

    def _rows(self, tables: TableStorage, ref: TableRef, row_ids: pa.Array) -> Iterator[pa.Table]:
        """The rows of a version with the columns to compare, in no order.

        Raises:
            CorruptionError: the version has other rows under these row ids.
        """
        columns = self.versions.columns
        known = row_ids.is_valid()
        ids, wanted = self.ids.filter(known), row_ids.drop_null()
        if len(wanted) == 0:
            return
        view = tables.at(ref)
        read = list(dict.fromkeys([*columns.read, ROW_ID]))
        total = sum(part.rows for part in view.fragments())
        expected, found = _Checksum(), _Checksum()
        expected.add(ids, wanted)
        if scans(len(wanted), total):
            parts = (part.combine_chunks() for part in in_groups(view.rows_of(wanted, columns=read), GROUP_ROWS))
        else:
            parts = (
                view.take_rows(wanted.slice(first, TAKE_ROWS), columns=read)
                for first in range(0, len(wanted), TAKE_ROWS)
            )
        for part in parts:
            found.add(part[ID], part[ROW_ID].combine_chunks())
            yield with_blob_hashes(tables, ref, part, columns)
        if found != expected:
            raise CorruptionError(
                f"the rows of {self.versions.key} do not match the records of their changes",
                hint="check the graph with 'verify'",
            )


def compared_names(tables: TableStorage, versions: Versions) -> list[tuple[str | None, str]]:
    """The columns in which the source can differ from the base.

    A column that the source lacks is unchanged there. If only the base lacks a column, its rows are compared with the
    default of the column, so all rows in its files may differ.
    """
    base, source, target = (tables.at(ref).schema() for ref in versions.all)
    names = shared_names(base, source)
    known = {new for _, new in names}
    numbers = {property_number(field) for field in target}
    return [*names, *((None, f.name) for f in source if f.name not in known and property_number(f) in numbers)]


@dataclass(slots=True)
class _Checksum:
    """A checksum of pairs of an id and a row id, independent of their order."""

    count: int = 0
    total: int = 0

    def add(self, ids: pa.ChunkedArray, row_ids: pa.Array) -> None:
        # All arithmetic is modulo 2**64.
        mixed = digests([ids]) * (np.uint64(2) * row_ids.to_numpy() + np.uint64(1))
        self.count += len(ids)
        self.total = (self.total + int(np.sum(mixed, dtype=np.uint64))) % (1 << 64)
