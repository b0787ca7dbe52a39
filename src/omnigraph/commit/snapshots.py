"""Snapshots: a view that never changes, found by branch, commit, tag, manifest version or time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.lineage import commits, find_commit
from omnigraph.commit.manifest import Commit, Manifest, Models, TablePin
from omnigraph.commit.read_set import pins, reads_of
from omnigraph.commit.ref_names import is_tag_name
from omnigraph.commit.refs import find_tag
from omnigraph.commit.store import Store
from omnigraph.errors import InputError, NotFoundError, VersionReclaimedError, cut, shown
from omnigraph.lang.arrow import readable
from omnigraph.lang.names import did_you_mean
from omnigraph.storage.blobs import StoredBlob, blob_info, stored_blobs
from omnigraph.storage.indexes import Coverage, IndexSpec
from omnigraph.storage.uri import GraphUri


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole graph at one commit. Reading from it always gives the same."""

    _store: Store
    _manifest: Manifest

    @property
    def uri(self) -> GraphUri:
        """Where the graph is."""
        return self._store.objects.uri

    @property
    def branch(self) -> str:
        return self._manifest.branch

    @property
    def commit(self) -> Commit:
        """The newest commit that it contains."""
        return self._manifest.head

    @property
    def manifest_version(self) -> int:
        return self._manifest.version

    @property
    def manifest(self) -> Manifest:
        """What the view is made of."""
        return self._manifest

    @property
    def schema_hash(self) -> str:
        """Which schema it was written with."""
        return self._manifest.schema_hash

    @property
    def id(self) -> str:
        """A name for the view, for people and logs: the branch and the manifest version."""
        return f"manifest:{self.branch}:v{self.manifest_version}"

    @property
    def tables(self) -> Mapping[str, TablePin]:
        """The exact table versions, by type key."""
        return self._manifest.tables

    def pin(self, key: str) -> TablePin:
        """The version of one table.

        Raises:
            NotFoundError: the graph has no such type.
        """
        return self._found(self.tables, key)

    def _found(self, tables: Mapping[str, TablePin], key: str) -> TablePin:
        found = tables.get(key)
        if found is None:
            raise NotFoundError(f"the graph has no type {cut(key)}", hint=did_you_mean(key, tables))
        return found

    def _unnoted(self, key: str) -> TablePin:
        """The version of one table, for a read that is noted by its condition."""
        return self._found(pins(self._manifest), key)

    def models(self, key: str) -> Models:
        """The models that computed the vectors of a type."""
        return self._unnoted(key).models

    def is_without(self, key: str, ids: pa.ChunkedArray) -> bool:
        """Whether a type certainly has none of some ids: because it has no entities at all."""
        reads_of(self._manifest).add_lookup(key, "id", ids)
        return self._unnoted(key).row_count == 0

    def scan(self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """The entities of a type."""
        reads_of(self._manifest).add_filter(key, filter)
        return self._store.tables.at(self._unnoted(key).ref).scan(columns=columns, filter=filter)

    def lookup(self, key: str, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        """The entities of a type whose column `by` has one of some values, in no order."""
        reads_of(self._manifest).add_lookup(key, by, values)
        return self._store.tables.at(self._unnoted(key).ref).lookup(by, values, columns=columns)

    def batches(self, key: str, *, columns: Sequence[str] | None = None, after: int = 0) -> pa.RecordBatchReader:
        """The entities of a type as a stream, for what need not fit memory.

        Args:
            key: the type.
            columns: what to read; by default everything.
            after: how many parts of the table to leave out at the beginning.
        """
        return self._store.tables.at(self.pin(key).ref).batches(columns=columns, after=after)

    def take_rows(self, key: str, row_ids: pa.Array, *, columns: Sequence[str]) -> pa.Table:
        """Entities by row id, one for each, in that order. They must be there."""
        return self._store.tables.at(self.pin(key).ref).take_rows(row_ids, columns=columns)

    def place(self, key: str) -> str:
        """Where the table of a type is: the same for all its versions and branches."""
        return f"{self._store.objects.uri.identity}/{self.pin(key).ref.path}"

    def fingerprint(self, key: str) -> str:
        """A name for the entities of a type. Snapshots that have the same one have the same entities."""
        return self._store.tables.at(self.pin(key).ref).fingerprint()

    def parts(self, key: str) -> tuple[str, ...]:
        """A name for each part of the table of a type. Parts that have the same one have the same entities."""
        return self._store.tables.at(self.pin(key).ref).fragment_digests()

    def earlier_fingerprint(self, key: str, version: int) -> str | None:
        """The same for an earlier version of the table, on the way to this one.

        None when that cannot be read, or when a restore has taken its changes back.
        """
        tables, ref = self._store.tables, self.pin(key).ref
        try:
            if version >= ref.version or tables.at(ref).is_restored_after(version):
                return None
            return tables.at(ref.at(version)).fingerprint()
        except VersionReclaimedError:
            return None

    def looked_up(self, key: str) -> frozenset[str]:
        """The columns of a type whose values can be looked up in an index."""
        return self._store.tables.at(self.pin(key).ref).indexed_columns()

    def vector_metrics(self, key: str) -> dict[str, str]:
        """The properties of a type that have an index of vectors, and the metric of each."""
        return self._store.tables.at(self.pin(key).ref).vector_metrics()

    def nearest(
        self, key: str, column: str, vector: Sequence[float], count: int, *, metric: str, probes: int, refine: int
    ) -> pa.Array:
        """The row ids of entities whose vectors are nearest, by an index: some may be missed."""
        found = self._store.tables.at(self.pin(key).ref).nearest(
            column, vector, count, metric=metric, columns=("_rowid",), probes=probes, refine=refine
        )
        return found["_rowid"].combine_chunks()

    def matching(self, key: str, column: str, words: str, *, phrase: bool, every_word: bool) -> pa.Array:
        """The row ids of entities whose texts have some or every word, or the phrase, by an index that covers all."""
        found = self._store.tables.at(self.pin(key).ref).match(
            column, words, phrase=phrase, every_word=every_word, columns=("_rowid",)
        )
        return found["_rowid"].combine_chunks()

    def index_coverage(self, key: str, specs: Sequence[IndexSpec]) -> list[Coverage]:
        """How many entities of a type each of some indexes covers."""
        return self._store.tables.at(self.pin(key).ref).index_coverage(specs)

    def content(self, key: str, rows: pa.Table, *, largest: int | None = None) -> Iterator[pa.Table]:
        """Entities that were read with their `_rowid`, with the content of their blobs; a portion at a time.

        Args:
            key: the type.
            rows: the entities.
            largest: blobs with more bytes are left out.
        """
        return self._store.tables.at(self.pin(key).ref).content(rows, largest)

    def entity(self, key: str, entity_id: str) -> dict[str, object] | None:
        """One entity by id, or None. A blob is given as what is known about it."""
        _check_id(entity_id)
        ref = self.pin(key).ref
        rows = self._store.tables.at(ref).take([entity_id])
        if rows.num_rows == 0:
            return None
        row = rows.slice(0, 1).combine_chunks()
        found: dict[str, object] = {name: readable(row[name].combine_chunks())[0].as_py() for name in row.column_names}
        for name in stored_blobs(self._store.tables.at(ref).schema()):
            found[name] = blob_info(row[name][0].as_py())
        return found

    def schema(self, key: str) -> pa.Schema:
        """The columns of a type, as they are stored."""
        return self._store.tables.at(self.pin(key).ref).schema()

    def blob(self, key: str, column: str, entity_id: str) -> StoredBlob | None:
        """What is stored about one blob. None when there is no such entity."""
        _check_id(entity_id)
        return self._store.tables.at(self.pin(key).ref).blob(column, entity_id)

    def read_blob(self, key: str, column: str, row_id: int, start: int, end: int) -> bytes:
        """Some of the bytes of a blob that the graph holds itself."""
        return self._store.tables.at(self.pin(key).ref).read_blob(column, row_id, start, end)


def _check_id(entity_id: object) -> None:
    """Also where a key is a number, the id is a text."""
    if not isinstance(entity_id, str):
        raise InputError(f"an id is a text, not {shown(entity_id)}", hint='also where a key is a number: "10"')


def at_branch(store: Store, branch: str) -> Snapshot:
    return Snapshot(store, store.capture(branch))


def at_commit(store: Store, commit_id: str) -> Snapshot:
    """The graph as a commit left it. A tag's name means the commit that it names.

    Raises:
        NotFoundError: no branch has the commit, and no tag the name.
        VersionReclaimedError: cleanup has removed it.
    """
    tag = find_tag(store.objects, commit_id) if is_tag_name(commit_id) else None
    if tag is not None:
        found = store.manifest_in(tag.ledger, tag.branch, tag.manifest_version)
        if found is None:
            raise VersionReclaimedError(f"tag '{tag.name}' names a commit that is gone", hint="files were removed")
        return Snapshot(store, found)
    return Snapshot(store, store.manifest_of(find_commit(store, commit_id, or_tag=True)))


def at_version(store: Store, branch: str, version: int) -> Snapshot:
    """A manifest version of a branch.

    Raises:
        NotFoundError: the branch has not come so far.
        VersionReclaimedError: it is gone.
    """
    if version < 1:
        raise InputError("manifest versions count from 1")
    try:
        return Snapshot(store, store.manifest_at(branch, version))
    except VersionReclaimedError:
        newest = store.capture(branch).version
        if version <= newest:
            raise
        message = f"branch '{branch}' has no version {version}"
        raise NotFoundError(message, hint=f"its newest is {newest}") from None


def at_time(store: Store, branch: str, micros: int) -> Snapshot:
    """A branch as it was at a time, in microseconds since 1970.

    Raises:
        NotFoundError: the graph is younger.
    """
    for commit in commits(store.capture(branch)):
        if commit.created_at <= micros:
            return Snapshot(store, store.manifest_of(commit))
    raise NotFoundError(f"branch '{branch}' has no commit as early as that")
