"""Builds the indexes that a schema declares, and reports their coverage.

Indexes are derived data: query results are the same without them. So they are built on request and not by writes, and
only for rows that they do not cover yet.
"""

# See docs/decisions/0105-segments-of-indexes.md

from __future__ import annotations

from collections.abc import Callable

from omnigraph.commit.attempts import write
from omnigraph.commit.manifest import Commit, Manifest, TablePin
from omnigraph.commit.read_set import pins
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import BuildIndexes, TableWrite
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.commit.write_request import WriteRequest
from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage.tables import TableStorage
from omnigraph.upkeep.declared_indexes import DeclaredIndex, declared

FEWEST_VECTORS = 100_000
"""Below this number of vectors, an exact scan is as fast as an index."""


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """An index that the schema declares, and the rows that it covers.

    Attributes:
        type_key: `node:<Type>` or `edge:<Type>`.
        property: the property, or one of `id`, `src` and `dst`.
        kind: `btree`, `bitmap`, `ngram`, `fts` or `vector`.
        covered: rows that the index covers.
        uncovered: rows that it does not cover; queries scan them.
    """

    type_key: str
    property: str
    kind: str
    covered: int
    uncovered: int


@dataclass(frozen=True, slots=True)
class PendingIndex:
    """An index that was not built, with the reason."""

    type_key: str
    property: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class IndexReceipt:
    """The result of building indexes.

    Attributes:
        commit: the commit with the indexes; None if there was nothing to do.
        built: the indexes that cover more rows than before.
        pending: the indexes that do not cover all rows.
    """

    commit: Commit | None
    built: tuple[IndexCoverage, ...]
    pending: tuple[PendingIndex, ...]


def coverage(view: Snapshot, catalog: Catalog) -> list[IndexCoverage]:
    """The coverage of the indexes of a snapshot, by type and in the order of declaration."""
    return [
        IndexCoverage(key, index.property, index.kind.value, found.covered, found.uncovered)
        for key, indexes in declared(catalog).items()
        for index, found in zip(indexes, view.table(key).index_coverage([index.spec for index in indexes]), strict=True)
    ]


def ensure_indexes(
    store: Store,
    branch: str,
    catalog_of: Callable[[Manifest], Catalog],
    *,
    fewest_vectors: int = FEWEST_VECTORS,
) -> IndexReceipt:
    """Build the missing parts of the declared indexes, and drop indexes that are no longer declared.

    Args:
        store: the graph.
        branch: the branch.
        catalog_of: returns the catalogue of a state of the branch.
        fewest_vectors: with fewer vectors, no vector index is built.
    """
    plan = IndexPlan(store.tables, fewest_vectors)

    def prepare(view: Manifest) -> list[TableWrite]:
        plan.clear()
        tables = pins(view)  # rows do not change, so they are not part of the read set
        return [plan.add(tables[key], indexes) for key, indexes in declared(catalog_of(view)).items()]

    with at_work(store.leases, WorkKind.INDEXES) as work:
        commit = write(store, WriteRequest(branch=branch, kind=WriterKind.ENSURE_INDEXES, work=work), prepare)
    return IndexReceipt(commit, tuple(plan.built) if commit else (), tuple(plan.pending))


class IndexPlan:
    """The indexes to build, table by table."""

    def __init__(self, tables: TableStorage, fewest_vectors: int) -> None:
        self._tables = tables
        self._fewest_vectors = fewest_vectors
        self.built: list[IndexCoverage] = []
        self.pending: list[PendingIndex] = []

    def clear(self) -> None:
        self.built.clear()
        self.pending.clear()

    def add(self, pin: TablePin, indexes: tuple[DeclaredIndex, ...]) -> BuildIndexes:
        chosen = []
        found = self._tables.at(pin.ref).index_coverage([index.spec for index in indexes])
        for index, covered in zip(indexes, found, strict=True):
            if covered.uncovered == 0:
                continue
            reason = index.problem or self._too_few(pin, index, covered.uncovered)
            if reason is not None:
                self.pending.append(PendingIndex(pin.key, index.property, index.kind.value, reason))
                continue
            chosen.append(index.spec)
            total = covered.covered + covered.uncovered
            self.built.append(IndexCoverage(pin.key, index.property, index.kind.value, total, 0))
        allowed = tuple(index.spec for index in indexes)
        return BuildIndexes(pin.key, tuple(chosen), allowed)

    def _too_few(self, pin: TablePin, index: DeclaredIndex, rows: int) -> str | None:
        if index.kind is not IndexKind.VECTOR:
            return None
        vectors = rows
        if rows >= self._fewest_vectors:
            vectors = self._tables.at(pin.ref).uncovered_values(index.spec)
        if vectors >= max(self._fewest_vectors, 1):
            return None
        return f"fewer than {self._fewest_vectors} vectors are searched exactly"
