"""Reads of one exact table version."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.query import FullTextOperator, MatchQuery, PhraseQuery

from omnigraph.dataclass import dataclass
from omnigraph.errors import VersionReclaimedError
from omnigraph.storage.blobs import StoredBlob, find_blob, read_range, with_content
from omnigraph.storage.datasets import Datasets
from omnigraph.storage.difference import (
    ChangedRowIds,
    Difference,
    Part,
    changed_row_ids,
    count_written,
    difference,
    last_restore,
    row_ids_of,
    rows_of,
    touched_ids,
)
from omnigraph.storage.file_checks import FileDamage, VerifiedFiles
from omnigraph.storage.fingerprints import fingerprint
from omnigraph.storage.fragments import Fragment, column_bytes, fragments, read_fragments
from omnigraph.storage.id_fragments import IdFragments
from omnigraph.storage.indexes import (
    Coverage,
    IndexSpec,
    coverage,
    indexed_columns,
    uncovered_fragments,
    uncovered_values,
    undeclared_segments,
    vector_metrics,
)
from omnigraph.storage.lookup import matching
from omnigraph.storage.scans import any_null, filtered, full_text, nearest, scanner
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.transactions import read_transaction

ENGINE_MARK = "omnigraph:staged"
"""Property of every transaction that this engine commits to a table."""

_ID, _ROW_ID = "id", "_rowid"


@dataclass(frozen=True, slots=True)
class TableView:
    """One exact version of a table, for reading. Opens the dataset at the first read.

    All reads raise `VersionReclaimedError` if the version was removed, and `DamagedFileError` if a file of it is
    damaged.

    Attributes:
        datasets: opens the version.
        ref: the version.
    """

    datasets: Datasets
    ref: TableRef

    @property
    def dataset(self) -> LanceDataset:
        """The open dataset. It has no indexes if index files are damaged. For this package only."""
        return self.datasets.open(self.ref)

    @property
    def places(self) -> IdFragments:
        """The cached ids of the small fragments of the table. For this package only."""
        return self.datasets.id_fragments(self.ref)

    def reading(self) -> AbstractContextManager[None]:
        """Convert exceptions of failed reads to `OmnigraphError`."""
        return self.datasets.reading(self.ref)

    # Version

    def exists(self) -> bool:
        """Whether the version exists now. Reads storage, not the cache."""
        return self.datasets.exists(self.ref)

    def transaction_id(self) -> str | None:
        """Id of the transaction that made the version; None if Lance cannot read it."""
        try:
            transaction = read_transaction(self.dataset, self.ref.version)
        except (TypeError, VersionReclaimedError):
            # Lance cannot decode the transaction of a compaction of an indexed table.
            return None
        return None if transaction is None else str(transaction.uuid)

    def is_ours(self) -> bool:
        """Whether this engine committed the version, and not another program."""
        try:
            transaction = read_transaction(self.dataset, self.ref.version)
        except (TypeError, VersionReclaimedError):
            return False
        properties = None if transaction is None else transaction.transaction_properties
        return properties is not None and ENGINE_MARK in properties

    def is_restored_after(self, version: int) -> bool:
        """Whether a restore after `version` undid changes of that version, or of versions before it."""
        with self.reading():
            return last_restore(self.dataset) > version

    def damages(self) -> list[FileDamage]:
        """Damaged files, by a quick check: file sizes, and checksums of small files. Uses no cache."""
        return self.datasets.damages(self.ref)

    def verify_files(self) -> VerifiedFiles:
        """Compare all files with their recorded sizes and checksums.

        Raises:
            DamagedFileError: the manifest file is damaged.
            InputError: the graph is in an object store, which keeps its own checksums.
            VersionReclaimedError: the version does not exist.
        """
        return self.datasets.verify_files(self.ref)

    def fingerprint(self) -> str:
        """Digest of all rows. Versions with equal fingerprints consist of the same files."""
        return fingerprint(f"{self.datasets.root}/{self.ref.path}", self.fragment_digests())

    def fragment_digests(self) -> tuple[str, ...]:
        """Digest of each fragment, in order. Fragments with equal digests have equal rows."""
        return self.datasets.fragment_digests(self.ref)

    # Rows

    def schema(self) -> pa.Schema:
        """The stored columns."""
        with self.datasets.reporting(self.ref):
            schema: pa.Schema = self.dataset.schema
        return schema

    def column_bytes(self) -> dict[str, int]:
        """Bytes on disk of each column, with its nested fields. Reads the metadata of all data files."""
        with self.reading():
            return column_bytes(self.dataset)

    def count(self, where: pc.Expression | None = None) -> int:
        """Number of rows, or of rows that match a condition."""
        with self.reading():
            if where is None:
                return int(self.dataset.count_rows())
            return len(filtered(self.dataset, [_ID], where))

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows that match a filter, as one table."""
        dataset = self.dataset
        with self.reading():
            return filtered(dataset, columns, filter, limit)

    def take(self, ids: Sequence[str], *, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these ids."""
        return self.scan(columns=columns, filter=pc.field(_ID).isin(pa.array(ids, pa.utf8())))

    def find(self, entity_id: str, *, columns: Sequence[str]) -> pa.Table:
        """The row with an id, or no row. Uses the index of the ids, if there is one."""
        with self.reading():
            return filtered(self.dataset, columns, pc.field(_ID) == pa.scalar(entity_id), 1, few=True)

    def take_rows(self, row_ids: pa.Array, *, columns: Sequence[str]) -> pa.Table:
        """One row per row id, in the given order. All row ids must exist."""
        with self.reading():
            found: pa.Table = self.dataset._take_rows(row_ids, columns=list(columns))
        return found

    def lookup(self, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        """The rows whose column `by` has one of some values, in no order.

        Uses an index for few values, if there is one. For many values, streams the column once. Only matching rows
        are kept in memory.
        """
        with self.reading():
            return matching(self.dataset, by, values, columns, self.places)

    def batches(
        self, *, columns: Sequence[str] | None = None, after: int = 0, numbers: Sequence[int] | None = None
    ) -> pa.RecordBatchReader:
        """Stream rows, with descriptors in place of blobs.

        Args:
            columns: the columns to read; by default all.
            after: leave out this number of fragments at the start.
            numbers: read only the fragments with these numbers.
        """
        dataset = self.dataset
        with self.reading():
            chosen = dataset.get_fragments()[after:] if after else None
            if numbers is not None:
                wanted = set(numbers)
                chosen = [one for one in dataset.get_fragments() if one.fragment_id in wanted]
            reader = scanner(dataset, columns=columns, in_order=True, fragments=chosen).to_reader()

        def batches() -> Iterator[pa.RecordBatch]:
            with self.reading():
                yield from reader

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def fragments(self) -> list[Fragment]:
        """The fragments, in order. Processes can read them independently of each other."""
        with self.reading():
            return fragments(self.dataset)

    def read_fragments(
        self,
        numbers: Sequence[int],
        *,
        columns: Sequence[str],
        filter: pc.Expression | None = None,
        without: Sequence[str] = (),
        batch_rows: int,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows of some fragments, with the content of blobs.

        Args:
            numbers: the fragment numbers.
            columns: the columns to read.
            filter: a condition that Lance supports.
            without: read only rows in which at least one of these columns is null. Then `filter` is not used.
            batch_rows: the maximum number of rows per batch.
        """
        with self.reading():
            chosen = any_null(without) if without else filter
            yield from read_fragments(self.dataset, numbers, columns, chosen, batch_rows)

    # Blobs

    def content(self, rows: pa.Table, largest: int | None = None) -> Iterator[pa.Table]:
        """Add the content of blobs to scanned rows that have their `_rowid`; one chunk at a time.

        Skips blobs of more than `largest` bytes: their cells have neither bytes nor an address.
        """
        with self.reading():
            yield from with_content(self.dataset, rows, largest)

    def blob(self, column: str, entity_id: str) -> StoredBlob | None:
        """Metadata of one blob; None if the entity does not exist."""
        with self.reading():
            return find_blob(self.dataset, column, entity_id)

    def read_blob(self, column: str, row_id: int, start: int, end: int) -> bytes:
        """A byte range of a blob that is stored in the graph."""
        with self.reading():
            return read_range(self.dataset, column, row_id, start, end)

    # Changes

    def changes_since(self, begin: TableRef) -> Difference:
        """Net changes since an earlier version. The cost depends on the size of the change, not of the table.

        Args:
            begin: an earlier version of the same branch, or the version where this branch was forked.
        """
        with self.datasets.reading(begin), self.reading():
            return difference(self.datasets.open(self.ref.at(begin.version)), self.dataset)

    def touched_since(self, begin: TableRef) -> Iterator[pa.Array]:
        """Ids of the rows that changed since an earlier version, and possibly of some that did not.

        Args:
            begin: an earlier version, as for `changes_since`.
        """
        with self.datasets.reading(begin), self.reading():
            yield from touched_ids(self.datasets.open(self.ref.at(begin.version)), self.dataset)

    def changed_row_ids(
        self, begin: TableRef, shared: Sequence[tuple[str | None, str]], part: Part | None = None
    ) -> ChangedRowIds | None:
        """Rows that may differ from an ancestor version, by id and row id. The cost depends on the size of the change.

        Args:
            begin: an earlier version of the same branch, or of a branch that this branch was forked from.
            shared: the columns to compare: their names in the earlier version and in this one; None if the earlier
                version does not have the column.
            part: selects the rows to list; by default all.

        Returns:
            None if the records of changes are incomplete. Then all rows have to be compared.
        """
        with self.datasets.reading(begin), self.reading():
            return changed_row_ids(
                self.datasets.open(begin),
                self.dataset,
                shared,
                lambda version: self.datasets.open(self.ref.at(version)),
                part,
            )

    def count_written_since(self, begin: TableRef) -> int:
        """Estimate how many rows were written or removed since another version. Reads no rows."""
        with self.datasets.reading(begin), self.reading():
            return count_written(self.datasets.open(begin), self.dataset)

    def row_ids(self, fragments: Collection[int], part: Part | None = None) -> pa.Table:
        """`id` and `_rowid` of all rows of some fragments, or of those of a part."""
        with self.reading():
            return row_ids_of(self.dataset, fragments, part)

    def rows_of(self, row_ids: pa.Array, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the rows with many row ids, in no order, by a scan of the table. For few, use `take_rows`.

        The columns must include `_rowid`.
        """
        with self.reading():
            yield from rows_of(self.dataset, row_ids, columns)

    # Indexes

    def index_coverage(self, specs: Sequence[IndexSpec]) -> list[Coverage]:
        """How many rows each index covers."""
        with self.reading():
            return [coverage(self.dataset, spec) for spec in specs]

    def uncovered_values(self, spec: IndexSpec) -> int:
        """Number of values that an index does not cover, without nulls."""
        with self.reading():
            return uncovered_values(self.dataset, spec)

    def lacks_indexes(self, specs: Sequence[IndexSpec], allowed: Sequence[IndexSpec]) -> bool:
        """Whether some indexes do not cover all rows, or the table has indexes that are not allowed."""
        dataset = self.dataset
        with self.reading():
            unwanted = any(True for _ in undeclared_segments(self.datasets.open_with_indexes(self.ref), allowed))
            damaged = bool(self.datasets.damaged_indexes(self.ref))
            return unwanted or damaged or any(uncovered_fragments(dataset, spec) for spec in specs)

    def indexed_columns(self) -> frozenset[str]:
        """The columns with a BTREE or BITMAP index that covers all rows."""
        with self.reading():
            return indexed_columns(self.dataset)

    def vector_metrics(self) -> dict[str, str]:
        """The columns with a vector index, and the metric of each."""
        with self.reading():
            return vector_metrics(self.dataset)

    # Search

    def nearest(
        self,
        column: str,
        vector: Sequence[float],
        count: int,
        *,
        metric: str = "l2",
        columns: Sequence[str] = (_ID,),
        filter: pc.Expression | None = None,
        probes: int | None = None,
        refine: int | None = None,
    ) -> pa.Table:
        """The nearest vectors with their `_distance`. The filter applies before the search.

        With an index the search is approximate.

        Args:
            column: the vector column.
            vector: the query vector.
            count: the number of rows to return.
            metric: the distance metric.
            columns: the columns to return.
            filter: a condition.
            probes: the number of index partitions to search.
            refine: `refine * count` candidates from the index are compared by their exact distances.
        """
        query = {"column": column, "q": pa.array(vector, pa.float32()), "k": count, "metric": metric}
        query |= {"nprobes": probes} if probes is not None else {}
        query |= {"refine_factor": refine} if refine is not None else {}
        with self.reading():
            return nearest(self.dataset, query, [*columns, "_distance"], filter)

    def match(
        self,
        column: str,
        words: str,
        *,
        phrase: bool = False,
        every_word: bool = False,
        columns: Sequence[str] = (_ID,),
        filter: pc.Expression | None = None,
    ) -> pa.Table:
        """Full-text search: rows with some or all words, or the phrase, with their `_score`. Needs no index."""
        operator = FullTextOperator.AND if every_word else FullTextOperator.OR
        query = PhraseQuery(words, column) if phrase else MatchQuery(words, column, operator=operator)
        with self.reading():
            return full_text(self.dataset, query, [*columns, "_score"], filter)
