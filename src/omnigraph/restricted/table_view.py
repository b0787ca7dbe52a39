"""Reads of one table version that show only the visible rows and columns."""

# See docs/decisions/0310-a-restricted-graph-is-a-store.md

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import NoReturn, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import AccessDeniedError
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.restricted.refs import RestrictedRef
from omnigraph.restricted.visible_rows import ID, ROW_ID, Mask, VisibleRows, mask_of, needed_columns, visible_rows
from omnigraph.storage.blobs import StoredBlob
from omnigraph.storage.difference import Part
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.indexes import Coverage, IndexSpec
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView

FEW_ROWS = 1_000
"""While the visible rows of a version are unknown, up to this number of rows is tested without reading all rows."""


class Tables(Protocol):
    """Opens table versions as the actor sees them."""

    def at(self, ref: TableRef) -> TableView: ...


class RestrictedView:
    """One table version as an actor sees it. It has the read methods of `TableView`; other methods are denied.

    Args:
        tables: the tables as the actor sees them.
        base: the stored version.
        ref: the restricted version.
        cache: caches the visible rows.
    """

    def __init__(self, tables: Tables, base: TableView, ref: RestrictedRef, cache: ColumnCache) -> None:
        self.ref = ref
        self._tables = tables
        self._base = base
        self._visible = ref.visible
        self._cache = cache
        self._rows: VisibleRows | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AccessDeniedError(None, name, hint="this needs all rows, and the actor may see only a part of them")

    # Version

    def exists(self) -> bool:
        return self._base.exists()

    def reading(self) -> AbstractContextManager[None]:
        return self._base.reading()

    def is_restored_after(self, version: int) -> bool:
        """As for `TableView`. The visible rows of edges also change with their nodes, so no version tells when."""
        return bool(self._visible.ends) or self._base.is_restored_after(version)

    def fingerprint(self) -> str:
        return _digest(self._base.fingerprint(), self._scope())

    def fragment_digests(self) -> tuple[str, ...]:
        scope = self._scope()
        return tuple(_digest(one, scope) for one in self._base.fragment_digests())

    def _scope(self) -> str:
        """Digest of everything that decides which rows of a fragment are visible."""
        ends = [self._tables.at(ref).fingerprint() for _, ref in self._visible.ends]
        return _digest(self._visible.digest, *ends)

    # Visible rows

    def visible_rows(self) -> VisibleRows:
        """The visible rows. All rows are read on the first call for a version, and the result is cached."""
        if self._rows is None:
            with self._cache.slot(self._label(), ("visible rows", self.ref.place, self.ref.branch)) as slot:
                found: VisibleRows | None = slot.value
                self._rows = slot.keep(self._read_visible()) if found is None else found
        return self._rows

    def _label(self) -> tuple[str, str, RestrictedRef]:
        return "visible rows", self.fingerprint(), self.ref

    def _read_visible(self) -> VisibleRows:
        batches = self._base.batches(columns=needed_columns(self._visible))
        return visible_rows(self._visible, batches, self._all_ids)

    def _all_ids(self, ref: RestrictedRef, ids: pa.ChunkedArray) -> pa.ChunkedArray:
        return self._tables.at(ref).batches(columns=[ID]).read_all()[ID]

    def _ids_among(self, ref: RestrictedRef, ids: pa.ChunkedArray) -> pa.ChunkedArray:
        wanted = pa.chunked_array([ids.unique()])
        return self._tables.at(ref).lookup(ID, wanted, columns=[ID])[ID]

    def is_visible(self, row_ids: pa.Array) -> Mask:
        """Mask of the visible rows among existing rows."""
        if not self._visible.filters:
            return np.ones(len(row_ids), bool)
        known = self._rows or self._cache.find(self._label())
        if known is None and len(row_ids) <= FEW_ROWS < self._base.count():
            rows = self._base.take_rows(row_ids, columns=needed_columns(self._visible))
            return mask_of(self._visible, rows, self._ids_among)
        return self.visible_rows().among(row_ids)

    def _shown(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The visible rows of a table that has the column `_rowid`."""
        if self._visible.filters and rows.num_rows:
            rows = rows.filter(pa.array(self.is_visible(rows[ROW_ID].combine_chunks())))
        return rows.select(list(columns))

    def _with_row_id(self, columns: Sequence[str] | None) -> tuple[list[str], list[str]]:
        """The wanted columns, and those to read."""
        wanted = self.schema().names if columns is None else list(columns)
        self._check(wanted)
        if not self._visible.filters or ROW_ID in wanted:
            return wanted, wanted
        return wanted, [*wanted, ROW_ID]

    def _check(self, columns: Sequence[str]) -> None:
        if self._visible.hidden.intersection(columns):
            raise AccessDeniedError(None, "read", hint="the actor may not see all of these properties")

    # Rows

    def schema(self) -> pa.Schema:
        whole = self._base.schema()
        return pa.schema([field for field in whole if field.name not in self._visible.hidden], whole.metadata)

    def count(self, where: pc.Expression | None = None) -> int:
        if where is not None:
            return int(self.scan(columns=[ID], filter=where).num_rows)
        return len(self.visible_rows()) if self._visible.filters else self._base.count()

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        wanted, read = self._with_row_id(columns)
        found = self._base.scan(columns=read, filter=filter, limit=None if self._visible.filters else limit)
        shown = self._shown(found, wanted)
        return shown if limit is None else shown.slice(0, limit)

    def take(self, ids: Sequence[str], *, columns: Sequence[str] | None = None) -> pa.Table:
        return self.scan(columns=columns, filter=pc.field(ID).isin(pa.array(ids, pa.utf8())))

    def find(self, entity_id: str, *, columns: Sequence[str]) -> pa.Table:
        wanted, read = self._with_row_id(columns)
        return self._shown(self._base.find(entity_id, columns=read), wanted)

    def take_rows(self, row_ids: pa.Array, *, columns: Sequence[str]) -> pa.Table:
        """One row per row id. Only row ids that another method of this view returned may be given."""
        self._check(columns)
        return self._base.take_rows(row_ids, columns=columns)

    def rows_of(self, row_ids: pa.Array, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows with many row ids. Only row ids that another method of this view returned may be given."""
        self._check(columns)
        return self._base.rows_of(row_ids, columns=columns)

    def lookup(self, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        self._check([by])
        wanted, read = self._with_row_id(columns)
        return self._shown(self._base.lookup(by, values, columns=read), wanted)

    def batches(
        self, *, columns: Sequence[str] | None = None, after: int = 0, numbers: Sequence[int] | None = None
    ) -> pa.RecordBatchReader:
        wanted, read = self._with_row_id(columns)
        reader = self._base.batches(columns=read, after=after, numbers=numbers)
        if not self._visible.filters:
            return reader

        def batches() -> Iterator[pa.RecordBatch]:
            known = self.visible_rows()
            for batch in reader:
                chosen = known.among(batch.column(ROW_ID))
                yield batch.select(wanted) if chosen.all() else batch.select(wanted).filter(pa.array(chosen))

        schema = pa.schema([reader.schema.field(name) for name in wanted], reader.schema.metadata)
        return pa.RecordBatchReader.from_batches(schema, batches())

    def fragments(self) -> list[Fragment]:
        return self._base.fragments()

    def row_ids(self, fragments: Collection[int], part: Part | None = None) -> pa.Table:
        found = self._base.row_ids(fragments, part)
        return self._shown(found, found.column_names)

    # Blobs

    def content(self, rows: pa.Table, largest: int | None = None) -> Iterator[pa.Table]:
        self._check(rows.column_names)
        return self._base.content(rows, largest)

    def blob(self, column: str, entity_id: str) -> StoredBlob | None:
        self._check([column])
        found = self._base.blob(column, entity_id)
        if found is None or not self.is_visible(pa.array([found.row_id], pa.uint64()))[0]:
            return None
        return found

    def read_blob(self, column: str, row_id: int, start: int, end: int) -> bytes:
        self._check([column])
        return self._base.read_blob(column, row_id, start, end)

    # Indexes and search

    def index_coverage(self, specs: Sequence[IndexSpec]) -> list[Coverage]:
        return self._base.index_coverage(specs)

    def indexed_columns(self) -> frozenset[str]:
        return self._base.indexed_columns() - self._visible.hidden

    def vector_metrics(self) -> dict[str, str]:
        """The columns with a vector index. An index finds hidden rows, too, so it is not used if there may be some."""
        if self._visible.filters:
            return {}
        return {
            name: metric for name, metric in self._base.vector_metrics().items() if name not in self._visible.hidden
        }

    @property
    def nearest(self) -> Callable[..., pa.Table]:
        if self._visible.filters:
            raise AssertionError("the vector index of a table with hidden rows is not used")
        return self._base.nearest

    def match(
        self,
        column: str,
        words: str,
        *,
        phrase: bool = False,
        every_word: bool = False,
        columns: Sequence[str] = (ID,),
        filter: pc.Expression | None = None,
    ) -> pa.Table:
        self._check([column])
        wanted, read = self._with_row_id(columns)
        found = self._base.match(column, words, phrase=phrase, every_word=every_word, columns=read, filter=filter)
        return self._shown(found, wanted)


def _digest(*parts: str) -> str:
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
