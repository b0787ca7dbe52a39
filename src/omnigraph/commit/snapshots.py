"""Snapshots: the graph at one commit, found by branch, commit, tag, manifest version or time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit, Manifest, Models, TablePin
from omnigraph.commit.manifest_rows import has_commit
from omnigraph.commit.read_set import pins, reads_of
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, NotFoundError, StorageError, VersionReclaimedError, cut, shown
from omnigraph.lang.arrow import readable
from omnigraph.lang.names import did_you_mean
from omnigraph.storage.blobs import StoredBlob, blob_info, stored_blobs
from omnigraph.storage.table_view import TableView
from omnigraph.storage.uri import GraphUri


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole graph at one commit. Reads always give the same result."""

    _store: Store
    _manifest: Manifest

    @property
    def uri(self) -> GraphUri:
        """Address of the graph."""
        return self._store.objects.uri

    def is_of(self, store: Store) -> bool:
        """Whether the snapshot reads from a store."""
        return self._store is store

    @property
    def is_whole(self) -> bool:
        """Whether the snapshot shows the whole graph, and not only the part that an actor may see."""
        return isinstance(self._store, Store)

    @property
    def branch(self) -> str:
        return self._manifest.branch

    @property
    def commit(self) -> Commit:
        """The newest commit in the snapshot."""
        return self._manifest.head

    @property
    def manifest_version(self) -> int:
        return self._manifest.version

    @property
    def manifest(self) -> Manifest:
        """The manifest that the snapshot was captured from."""
        return self._manifest

    @property
    def schema_hash(self) -> str:
        """Hash of the schema that was active at the commit."""
        return self._manifest.schema_hash

    @property
    def id(self) -> str:
        """Name of the snapshot in logs and output: the branch and the manifest version."""
        return f"manifest:{self.branch}:v{self.manifest_version}"

    @property
    def tables(self) -> Mapping[str, TablePin]:
        """The exact table versions, by type key."""
        return self._manifest.tables

    def to_json(self, internal_schema_version: int) -> dict[str, Any]:
        """The versions of all tables as a JSON object.

        Args:
            internal_schema_version: the storage format of the graph.
        """
        datasets = []
        for key, pin in self.tables.items():
            kind, _, name = key.partition(":")
            # The storage of a table, the numbers in its path and its versions tell of hidden types and writes.
            datasets.append(
                {
                    "entity_kind": kind,
                    "type_name": name,
                    "dataset_path": pin.ref.path if self.is_whole else f"{kind}s/{name}",
                    "published_dataset_version": pin.published_version if self.is_whole else self.manifest_version,
                    "native_dataset_branch": pin.ref.branch if self.is_whole else None,
                    "entity_count": pin.row_count,
                }
            )
        return {
            "graph_branch": self.branch,
            "graph_manifest_version": self.manifest_version,
            "graph_commit_id": self.commit.id,
            "internal_schema_version": internal_schema_version,
            "datasets": datasets,
        }

    def pin(self, key: str) -> TablePin:
        """The version of one table. Adds the whole table to the read set of a write.

        Raises:
            NotFoundError: the graph has no such type.
        """
        return self._pin_in(self.tables, key)

    def table(self, key: str) -> TableView:
        """The version of one table, for reading. Adds the whole table to the read set of a write.

        Raises:
            NotFoundError: the graph has no such type.
        """
        return self._store.tables.at(self.pin(key).ref)

    def _pin_in(self, tables: Mapping[str, TablePin], key: str) -> TablePin:
        found = tables.get(key)
        if found is None:
            raise NotFoundError(f"the graph has no type {cut(key)}", hint=did_you_mean(key, tables))
        return found

    def _untracked_pin(self, key: str) -> TablePin:
        """The version of one table, for a read that adds its own condition to the read set."""
        return self._pin_in(pins(self._manifest), key)

    def models(self, key: str) -> Models:
        """The embedding models that computed the vectors of a type."""
        return self._untracked_pin(key).models

    def is_without(self, key: str, ids: pa.ChunkedArray) -> bool:
        """Whether a type has no entities at all.

        In a write, the given ids become part of its read set: it conflicts with a write of another entity with one of
        these ids.
        """
        reads_of(self._manifest).add_lookup(key, "id", ids)
        return self._untracked_pin(key).row_count == 0

    def scan(self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """The entities of a type that match a filter."""
        reads_of(self._manifest).add_filter(key, filter)
        return self._store.tables.at(self._untracked_pin(key).ref).scan(columns=columns, filter=filter)

    def lookup(self, key: str, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        """The entities of a type whose column `by` has one of some values, in no order."""
        reads_of(self._manifest).add_lookup(key, by, values)
        return self._store.tables.at(self._untracked_pin(key).ref).lookup(by, values, columns=columns)

    def batches(self, key: str, *, columns: Sequence[str] | None = None, after: int = 0) -> pa.RecordBatchReader:
        """Stream the entities of a type.

        Args:
            key: the type.
            columns: the columns to read; by default all.
            after: the number of table fragments to skip at the beginning.
        """
        return self.table(key).batches(columns=columns, after=after)

    def place(self, key: str) -> str:
        """Address of the table of a type, the same for all its versions and branches."""
        return f"{self._store.objects.uri.identity}/{self.pin(key).ref.place}"

    def earlier_fingerprint(self, key: str, version: int) -> str | None:
        """Fingerprint of an earlier version of a type's table, on the same branch.

        Returns:
            None if the version cannot be read, a restore has undone its changes, or only a part of the rows is visible.
        """
        tables, ref = self._store.tables, self.pin(key).ref
        if not ref.is_whole:
            return None
        try:
            if version >= ref.version or tables.at(ref).is_restored_after(version):
                return None
            return tables.at(ref.at(version)).fingerprint()
        except VersionReclaimedError:
            return None

    def nearest(
        self, key: str, column: str, vector: Sequence[float], count: int, *, metric: str, probes: int, refine: int
    ) -> pa.Array:
        """Row ids of the entities with the nearest vectors, by an approximate index."""
        found = self.table(key).nearest(
            column, vector, count, metric=metric, columns=("_rowid",), probes=probes, refine=refine
        )
        return found["_rowid"].combine_chunks()

    def matching(self, key: str, column: str, words: str, *, phrase: bool, every_word: bool) -> pa.Array:
        """Row ids of the entities whose texts have some or all words, or the phrase, by a full-text index."""
        found = self.table(key).match(column, words, phrase=phrase, every_word=every_word, columns=("_rowid",))
        return found["_rowid"].combine_chunks()

    def entity(self, key: str, entity_id: str) -> dict[str, object] | None:
        """One entity by id; None if it does not exist. Has the metadata of blobs, not their content."""
        _check_id(entity_id)
        table = self.table(key)
        rows = table.take([entity_id])
        if rows.num_rows == 0:
            return None
        row = rows.slice(0, 1).combine_chunks()
        found: dict[str, object] = {name: readable(row[name].combine_chunks())[0].as_py() for name in row.column_names}
        for name in stored_blobs(table.schema()):
            found[name] = blob_info(row[name][0].as_py())
        return found

    def blob(self, key: str, column: str, entity_id: str) -> StoredBlob | None:
        """Metadata of one blob; None if the entity does not exist."""
        _check_id(entity_id)
        return self.table(key).blob(column, entity_id)


def _check_id(entity_id: object) -> None:
    """Check that an id is a string. It is a string even if the key property is a number."""
    if not isinstance(entity_id, str):
        raise InputError(f"an id must be a text, not {shown(entity_id)}", hint='also if the key is a number: "10"')


def at_branch(store: Store, branch: str) -> Snapshot:
    return Snapshot(store, store.capture(branch))


def at_commit(store: Store, commit_id: str) -> Snapshot:
    """The graph at a commit, given by its id or by a tag.

    Raises:
        NotFoundError: there is no such commit and no such tag.
        VersionReclaimedError: cleanup has removed it.
    """
    tag = store.found_tag(commit_id)
    if tag is not None:
        found = store.manifest_in(tag.ledger, tag.branch, tag.manifest_version)
        if found is None:
            raise VersionReclaimedError(
                f"tag '{tag.name}' names a commit that no longer exists", hint="its files were removed"
            )
        return Snapshot(store, found)
    from omnigraph.commit.kept_states import kept_state
    from omnigraph.commit.lineage import find_commit

    return Snapshot(store, kept_state(store, find_commit(store, commit_id)))


def at_version(store: Store, branch: str, version: int) -> Snapshot:
    """A manifest version of a branch.

    Raises:
        NotFoundError: the branch has no such version yet.
        VersionReclaimedError: cleanup has removed it.
    """
    if version < 1:
        raise InputError("manifest versions count from 1")
    try:
        found = store.manifest_at(branch, version)
        if not _is_in_history(store, found):
            # A paused writer published this version late, after cleanup had removed the original one of this number.
            raise VersionReclaimedError("another version replaced it")
    except VersionReclaimedError as error:
        newest = store.capture(branch).version
        if version <= newest:
            raise VersionReclaimedError(
                f"version {version} of branch '{branch}' no longer exists",
                hint="cleanup has removed it, or it is older than the branch: give a later version, or a time",
            ) from error
        message = f"branch '{branch}' has no version {version}"
        raise NotFoundError(message, hint=f"its newest is {newest}") from None
    from omnigraph.commit.kept_states import checked_state

    return Snapshot(store, checked_state(store, found))


def _is_in_history(store: Store, view: Manifest) -> bool:
    """Whether a state belongs to the history of its branch."""
    if (view.head.ledger, view.head.manifest_version) != (view.ledger.branch, view.version):
        return True  # this version has no commit of its own
    try:
        return has_commit(store.capture(view.branch).ledger, view.head.id)
    except StorageError:
        return True  # the newest state is damaged; older ones can still be read


def at_time(store: Store, branch: str, micros: int) -> Snapshot:
    """A branch at a time, in microseconds since 1970.

    Raises:
        NotFoundError: the branch has no commit that early.
    """
    from omnigraph.commit.kept_states import kept_state
    from omnigraph.commit.lineage import commits, newest_of

    def newest_before(view: Manifest) -> Commit | None:
        return next((commit for commit in commits(view) if commit.created_at <= micros), None)

    found = newest_of(store, branch, newest_before)
    if found is None:
        raise NotFoundError(f"branch '{branch}' has no commit before that time")
    return Snapshot(store, kept_state(store, found))
