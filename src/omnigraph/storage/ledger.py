"""A ledger: a small table that is replaced part by part, strictly one version after another.

`__manifest` and the recovery audit are ledgers. A publish names the parts it keeps and the rows it adds, writes only
those rows, and succeeds only if nobody published since: the compare-and-swap that everything else leans on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import CorruptionError, VersionReclaimedError
from omnigraph.storage.base_paths import at_root, open_dataset
from omnigraph.storage.files import Needs, needs, versions
from omnigraph.storage.lance_failures import (
    REF_ERRORS,
    is_conflict,
    is_missing,
    lance_failure,
    reporting,
    with_refs,
    without_ref,
)
from omnigraph.storage.tables import Sync, TableConflictError, branch_ref_path, manifest_name, table_directory


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """One exact version of a ledger. Opaque but for its members.

    Attributes:
        branch: the branch that it is on; None is the ledger itself.
        parts: the number of rows of each part, in order.
    """

    branch: str | None
    version: int
    parts: tuple[int, ...]
    _dataset: LanceDataset
    _fragments: tuple[FragmentMetadata, ...]

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self._dataset.schema
        return schema

    def read_part(self, index: int) -> pa.Table:
        """The rows of one part."""
        with reporting(self._dataset.uri, ""):
            fragment = self._dataset.get_fragments()[index]
            table: pa.Table = fragment.to_table()
        return table

    def read(self, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """Rows of all parts."""
        with reporting(self._dataset.uri, ""):
            table: pa.Table = self._dataset.to_table(columns=list(columns) if columns else None, filter=filter)
        return table


@dataclass(frozen=True, slots=True)
class LedgerBranch:
    """A branch: where it began, and an identifier that a later branch of the same name does not share."""

    name: str
    parent: str | None
    parent_version: int
    identifier: str


@dataclass(frozen=True, slots=True)
class LedgerTag:
    name: str
    branch: str | None
    version: int
    created_at: datetime | None


class Ledger:
    """One ledger below a graph root.

    Args:
        root: the graph root as Lance takes it.
        path: the ledger's place below it.
        options: storage options for object stores.
        sync: makes files durable, given their paths below the root; None when the store does that by itself.
    """

    def __init__(
        self,
        root: str,
        path: str,
        options: Mapping[str, str] | None = None,
        sync: Sync | None = None,
    ) -> None:
        self.path = path
        self._root = root
        self._options = dict(options) if options else None
        self._sync = sync

    def create(self, schema: pa.Schema, rows: pa.Table) -> LedgerVersion:
        """The first version, with one part. Exactly one of several creators succeeds.

        Raises:
            TableConflictError: the ledger exists.
        """
        if self.open() is not None:
            raise TableConflictError(f"{self.path} exists")
        uri = self._uri(None)
        with reporting(self._root, self.path):
            fragments = write_fragments(rows, uri, schema=schema, mode="create", storage_options=self._options)
        return self._commit(uri, None, Transaction(0, LanceOperation.Overwrite(schema, fragments)), fragments)

    def open(self, branch: str | None = None, version: int | None = None) -> LedgerVersion | None:
        """A version, by default the newest; None when there is no such ledger or branch.

        Raises:
            VersionReclaimedError: the branch is there, and the version is not.
            StorageError: it cannot be read, so nobody can say whether it is there.
        """
        dataset = self._find(branch, version)
        if dataset is not None:
            return _version(branch, dataset)
        if version is None or self._find(branch, None) is None:
            return None
        raise VersionReclaimedError(f"version {version} of {table_directory(self.path, branch)} is gone")

    def _find(self, branch: str | None, version: int | None) -> LanceDataset | None:
        try:
            # No shared session: its caches go by path and version, and a branch that was deleted and made again has
            # the same paths and versions with other contents.
            return open_dataset(self._root, self.path, branch, version, options=self._options)
        except ValueError as error:
            if is_missing(error):
                return None
            raise lance_failure(error, self._root, table_directory(self.path, branch)) from error

    def versions(self, branch: str | None = None) -> list[int]:
        """The versions that there are, oldest first; none when there is no such ledger or branch."""
        found = self._find(branch, None)
        if found is None:
            return []
        with reporting(self._root, self.path):
            return versions(found)

    def needs(self, branch: str | None, stay: Collection[int], gone: Collection[int]) -> Needs:
        """The files that some versions need, and those that others do."""
        found = self._find(branch, None)
        if found is None:
            return Needs()
        with reporting(self._root, self.path):
            return needs(found, self.path, stay, gone, lambda version: self._find(branch, version))

    def newest(self, known: LedgerVersion) -> LedgerVersion | None:
        """The newest version of the branch of a version; cheap when that is the newest still."""
        try:
            latest = int(known._dataset.latest_version)
        except (OSError, ValueError):
            return self.open(known.branch)
        if latest == known.version:
            return known
        return self.open(known.branch)

    def publish(self, base: LedgerVersion, keep: Sequence[int], add: Sequence[pa.Table]) -> LedgerVersion:
        """The next version: the kept parts of the base, in order, then one part for each added table.

        Raises:
            TableConflictError: somebody published since `base`. Nothing happened.
        """
        with reporting(self._root, self.path):
            added = [
                fragment
                for rows in add
                for fragment in write_fragments(rows, base._dataset, schema=base.schema, mode="append")
            ]
        fragments = [base._fragments[i] for i in keep] + added
        # Overwrite without retries is the one operation that Lance commits strictly.
        transaction = Transaction(base.version, LanceOperation.Overwrite(base.schema, fragments))
        return self._commit(base._dataset, base.branch, transaction, added)

    def _commit(
        self,
        target: LanceDataset | str,
        branch: str | None,
        transaction: Transaction,
        added: Sequence[FragmentMetadata],
    ) -> LedgerVersion:
        # Before the commit, so that a power failure leaves no version that points at half a file.
        self._flush(branch, added, [], created=transaction.read_version == 0)
        try:
            made = LanceDataset.commit(target, transaction, max_retries=0, storage_options=self._options)
        except CommitConflictError as error:
            raise TableConflictError(f"{self.path}: {error}") from error
        except OSError as error:
            if is_conflict(error):
                raise TableConflictError(f"{self.path}: {error}") from error
            raise lance_failure(error, self._root, self.path, write=True) from error
        self._flush(branch, [], [int(made.version)], created=made.version == 1)
        return _version(branch, at_root(made, self._root, self.path, options=self._options))

    def make_durable(self, version: LedgerVersion) -> None:
        """Force a version to disk whose publisher may have died before it did so itself."""
        self._flush(version.branch, version._fragments, [version.version], created=True)

    def _flush(
        self, branch: str | None, parts: Sequence[FragmentMetadata], versions: Sequence[int], *, created: bool
    ) -> None:
        if self._sync is None:
            return
        directory = table_directory(self.path, branch)
        # A branch also has parts that lie with its parent, and were forced to disk there.
        own = [file for part in parts for file in part.files if file.base_id is None]
        files = [f"{directory}/data/{file.path}" for file in own]
        files += [f"{directory}/_versions/{manifest_name(version)}" for version in versions]
        self._sync(files, levels=None if created else 2)

    def _uri(self, branch: str | None) -> str:
        return f"{self._root}/{table_directory(self.path, branch)}"

    def _main(self) -> LanceDataset:
        found = self._find(None, None)
        if found is None:
            raise CorruptionError(f"{self.path} is gone", hint="the files were changed from outside")
        return found

    # Branches and tags

    def branches(self) -> dict[str, LedgerBranch]:
        """All branches by name."""
        with self._refs():
            listed = with_refs(self._main().branches.list)
        return {
            name: LedgerBranch(
                name, info["parent_branch"], int(info["parent_version"]), str(info["branch_identifier"][-1][1])
            )
            for name, info in sorted(listed.items())
        }

    def branch_ref(self, name: str) -> str:
        """Where the ref of a branch is, below the root."""
        return f"{self.path}/{branch_ref_path(name)}"

    def tag_ref(self, name: str) -> str:
        """Where the ref of a tag is, below the root."""
        return f"{self.path}/_refs/tags/{quote(name, safe='')}.json"

    def create_branch(self, name: str, base: LedgerVersion) -> LedgerVersion:
        """A branch that begins at a version. It exists from the moment its ref does."""
        # A handle of its own: Lance refuses to branch from one that another thread is reading with.
        own = self._find(base.branch, base.version)
        if own is None:
            raise VersionReclaimedError(f"version {base.version} of {table_directory(self.path, base.branch)} is gone")
        with self._refs(write=True):
            made = own.create_branch(name, base.version)
        if self._sync is not None:
            manifest = f"{table_directory(self.path, name)}/_versions/{manifest_name(int(made.version))}"
            self._sync([manifest, self.branch_ref(name)])
        # The branch has the base paths that its base has on disk.
        return _version(name, at_root(made, self._root, self.path, options=self._options))

    def delete_branch(self, name: str) -> None:
        """Remove a branch: its ref first, then its files."""
        with self._refs(write=True):
            without_ref(lambda: self._main().branches.delete(name))

    def tags(self) -> dict[str, LedgerTag]:
        """All tags by name."""
        with self._refs():
            listed = with_refs(self._main().tags.list)
        return {
            name: LedgerTag(name, info["branch"], int(info["version"]), info["created_at"])
            for name, info in sorted(listed.items())
        }

    def create_tag(self, name: str, target: LedgerVersion) -> None:
        where = target.version if target.branch is None else (target.branch, target.version)
        with self._refs(write=True):
            self._main().tags.create(name, where)
        if self._sync is not None:
            self._sync([f"{self.path}/_refs/tags"])

    def delete_tag(self, name: str) -> None:
        with self._refs(write=True):
            self._main().tags.delete(name)

    def _refs(self, *, write: bool = False) -> AbstractContextManager[None]:
        return reporting(self._root, f"{self.path}/_refs", REF_ERRORS, write=write)


def _version(branch: str | None, dataset: LanceDataset) -> LedgerVersion:
    fragments = tuple(fragment.metadata for fragment in dataset.get_fragments())
    rows = tuple(int(fragment.num_rows) for fragment in fragments)
    return LedgerVersion(branch, int(dataset.version), rows, dataset, fragments)
