"""The staged table writes of one commit attempt, and the forks (Lance branches of tables) that were made for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ulid_transform import ulid_now

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.manifest import MAIN, Manifest, TablePin, TypeCounts
from omnigraph.commit.read_set import ReadSet
from omnigraph.commit.removal_list import files_token
from omnigraph.commit.schema_tables import create_table, table_keys
from omnigraph.commit.sidecar import AdoptedTables, SchemaIntent, TableIntent
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import TableWrite
from omnigraph.commit.work_records import Work
from omnigraph.commit.write_request import SchemaChange
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, ReadSetChangedError
from omnigraph.lang.schema import ir_hash
from omnigraph.storage.staged import Staged
from omnigraph.storage.table_ref import TableRef


class CleanupStartedError(Exception):
    """A cleanup started after the write staged its files, and may remove them."""

    def __init__(self, head: str) -> None:
        super().__init__(head)
        self.head = head


def fork_table(store: Store, view: Manifest, pin: TablePin) -> TableRef:
    """Fork a table for the first write to it on a branch. No manifest points at the fork yet."""
    return store.tables.fork(pin.ref, f"{view.incarnation}-{ulid_now().lower()}")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A staged table write, and the change of the table in the sidecar."""

    write: TableWrite
    staged: Staged
    intent: TableIntent


class StagedWrites:
    """The staged writes of one attempt, and the forks that were made for them.

    A retry reuses the staged files of an earlier attempt, if it writes the same rows to the same branch.

    Attributes:
        view: the state that they are staged against.
        schema: the schema change that belongs to the commit.
        adopted: the tables that the branch takes over from its parent.
    """

    def __init__(self, store: Store, work: Work | None) -> None:
        self.store = store
        self._work = work
        self._token: str | None = None
        self.view: Manifest
        self.schema: SchemaIntent | None = None
        self.adopted: AdoptedTables | None = None
        self._entries: list[_Entry] = []
        self._earlier: dict[str, _Entry] = {}
        self._forks: list[TableRef] = []

    @property
    def staged(self) -> list[Staged]:
        return [entry.staged for entry in self._entries]

    @property
    def intents(self) -> list[TableIntent]:
        return [entry.intent for entry in self._entries]

    @property
    def replaced(self) -> set[str]:
        """The tables whose rows are all replaced."""
        return {entry.intent.key for entry in self._entries if entry.write.replaces_table}

    @property
    def counts(self) -> tuple[TypeCounts, ...]:
        """The number of entities that the writes insert, update and delete, by type. Omits unchanged types.

        A type that a schema change renames has its new name. All entities of a type that it drops are deleted.
        """
        names = {} if self.schema is None else dict(self.schema.renames)
        found = [
            TypeCounts(names.get(key, key), staged.rows_added, staged.rows_updated, staged.rows_removed)
            for key, staged in ((entry.intent.key, entry.staged) for entry in self._entries)
        ]
        if self.schema is not None:
            found += [TypeCounts(key, deleted=self.view.tables[key].row_count) for key in self.schema.drops]
        # A type may get the name of a dropped one.
        sums: dict[str, TypeCounts] = {}
        for one in found:
            old = sums.get(one.key, TypeCounts(one.key))
            numbers = (old.inserted + one.inserted, old.updated + one.updated, old.deleted + one.deleted)
            sums[one.key] = TypeCounts(one.key, *numbers)
        return tuple(sorted(one for one in sums.values() if one.inserted or one.updated or one.deleted))

    def begin(self, view: Manifest) -> None:
        """Begin an attempt on a captured state."""
        self._earlier |= {entry.intent.key: entry for entry in self._entries}
        if self._work is None and not self._earlier:
            # Later attempts reuse files of the first attempt, so the token must be read before any file is written.
            self._token = files_token(self.store.objects)
        self._entries = []
        self.schema = None
        self.adopted = None
        self.view = view

    def stage(self, writes: Sequence[TableWrite], reads: ReadSet, adopt: Manifest | None = None) -> None:
        """Write the files of an attempt, and add the rows that it depends on to the read set.

        Args:
            writes: the writes.
            reads: the read set.
            adopt: for a branch update, the state whose tables the branch takes over. The writes apply to these tables.
        """
        tables = self.view.tables if adopt is None else adopt.tables
        keys = [write.key for write in writes]
        if len(set(keys)) != len(keys):
            raise InputError("a write can have one operation per table")
        for write in sorted(writes, key=lambda write: write.key):
            pin = tables.get(write.key)
            if pin is None:
                raise InputError(f"the graph has no table {write.key}")
            write.note_reads(reads)
            if write.is_empty(self.store.tables.at(pin.ref), pin.row_count):
                continue
            staged, base = self._reuse(write, pin), None
            if staged is None:
                base = self._given_fork(write, pin) or self._base(pin)
                staged = write.stage(self.store.tables.at(base))
            if staged is None:
                assert base is not None
                self._drop_fork(base)
                continue
            if staged.ids is not None:
                reads.add_lookup(write.key, "id", staged.ids)
            self._entries.append(_entry(write, staged, pin))
        if adopt is not None:
            self.adopted = self._adopted(adopt)
        reach(Failpoint.STAGED)

    def _adopted(self, adopt: Manifest) -> AdoptedTables:
        """The tables of another state that this branch takes over, except those that the write changes."""
        changed = {entry.intent.key for entry in self._entries}
        keys = {pin.id: key for key, pin in adopt.tables.items()}
        own = {pin.id: key for key, pin in self.view.tables.items()}
        return AdoptedTables(
            adopt.schema_hash,
            tuple(pin for key, pin in adopt.tables.items() if key not in changed),
            tuple(key for identity, key in own.items() if identity not in keys),
            tuple((key, keys[i]) for i, key in own.items() if i in keys and keys[i] != key),
        )

    def check_files(self) -> None:
        """Check that no cleanup has removed staged files. Call it after the sidecar, which protects them, is written.

        Raises:
            CleanupStartedError: a cleanup may have removed them; stage everything again.
            VersionReclaimedError: a cleanup has removed the work record, and perhaps the files.
        """
        if self._work is not None:
            self._work.check()
        elif files_token(self.store.objects) != self._token:
            raise CleanupStartedError(self.view.head.id)

    def _reuse(self, write: TableWrite, pin: TablePin) -> Staged | None:
        """The staged files of an earlier attempt, if they are valid for this attempt."""
        earlier = self._earlier.get(write.key)
        if earlier is None or not write.is_retry_of(earlier.write):
            return None
        base = earlier.intent.base if earlier.intent.pin == pin.ref else pin.ref
        if not self.view.owns(replace(pin, ref=base)):
            return None
        return write.restage(self.store.tables.at(pin.ref), earlier.staged, base)

    def rebase(self, view: Manifest) -> str | None:
        """Rebase the staged writes onto a later state, in which the rows of the read set are the same.

        Returns:
            The key of a table whose write cannot be rebased; None on success.
        """
        entries = []
        for entry in self._entries:
            pin = view.tables[entry.intent.key]
            before = self.view.tables[entry.intent.key]
            if pin == before:
                entries.append(entry)
                continue
            staged = entry.staged.rebase(pin.ref) if pin.models == before.models and view.owns(pin) else None
            if staged is None:
                return pin.key
            entries.append(_entry(entry.write, staged, pin))
        self._entries = entries
        self.view = view
        return None

    def _given_fork(self, write: TableWrite, pin: TablePin) -> TableRef | None:
        """The fork that other processes wrote fragments into, because the branch had no own files of the table."""
        if not write.has_fragments or (self.view.owns(pin) and write.fork is None):
            return None
        fork = write.fork
        if fork is None:
            raise InputError(
                f"{write.key} has no files of its own on branch '{self.view.branch}', so it cannot get fragments",
                hint="first write some rows of the type to the branch, then write the fragments again",
            )
        if self.view.owns(pin) or (fork.path, fork.version) != (pin.ref.path, pin.ref.version):
            raise ReadSetChangedError(write.key, fork.version, pin.ref.version)
        self._forks.append(fork)
        return fork

    def _base(self, pin: TablePin) -> TableRef:
        """The version to stage against. Forks the table at the first write to it on a branch."""
        if self.view.owns(pin):
            return pin.ref
        fork = fork_table(self.store, self.view, pin)
        self._forks.append(fork)
        reach(Failpoint.FORKED)
        return fork

    def add_schema(self, change: SchemaChange) -> None:
        """Create the tables of new types, and record which types are removed or renamed."""
        if self.view.branch != MAIN:
            raise InputError("a schema can only be changed on 'main'")
        schema_hash = ir_hash(change.accepted)
        if schema_hash == self.view.schema_hash:
            return
        if change.replaces != self.view.schema_hash:
            raise ReadSetChangedError("schema", change.replaces, self.view.schema_hash)
        wanted = table_keys(change.accepted)
        keys = {pin.id: key for key, pin in self.view.tables.items()}
        kept = {identity: key for key, identity in wanted.items() if identity in keys}
        self.schema = SchemaIntent(
            schema_hash,
            tuple(create_table(self.store, change.accepted, k, i) for k, i in wanted.items() if i not in keys),
            tuple(key for identity, key in keys.items() if identity not in kept),
            tuple((keys[identity], key) for identity, key in kept.items() if keys[identity] != key),
            change.hard,
        )

    def abandon(self) -> None:
        """Remove the forks that were made for the write. Cleanup removes new tables."""
        self._entries, self._earlier = [], {}
        for fork in list(self._forks):
            self._drop_fork(fork)

    def drop_unused_forks(self) -> None:
        """Remove the forks that only earlier attempts used."""
        used = {entry.intent.base for entry in self._entries}
        for fork in [fork for fork in self._forks if fork not in used]:
            self._drop_fork(fork)

    def _drop_fork(self, base: TableRef) -> None:
        """Remove a fork, if it was made for this write."""
        if base in self._forks:
            assert base.branch is not None
            self._forks.remove(base)
            with suppress(Exception):  # cleanup removes it later
                self.store.tables.drop_fork(base.path, base.branch)


def _entry(write: TableWrite, staged: Staged, pin: TablePin) -> _Entry:
    rows = pin.row_count + staged.rows_added - staged.rows_removed
    models = write.models
    if models is None:
        models = () if write.replaces_table else pin.models
    steps = list(staged.steps)
    last = steps[-1].transaction_id
    return _Entry(write, staged, TableIntent(pin.key, pin.id, pin.ref, staged.base, last, rows, models, len(steps)))
