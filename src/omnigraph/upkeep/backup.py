"""Copies a whole graph while it is written to: backup and restore.

A copy captures one state of all branches. All files of that state are immutable, so they can be copied at any speed,
and later commits are not part of the copy. The manifest versions are copied last. So an interrupted copy is either not
a graph yet or still the previous backup, and the next attempt copies only the missing files.
"""

# See docs/decisions/0135-a-backup-is-a-graph.md

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import cast

from ulid_transform import ulid_now

from omnigraph.commit.copy_record import (
    BACKUP,
    RECORD_PATH,
    RESTORE,
    BranchState,
    CopyRecord,
    States,
    read_record,
)
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import LEASE_DIRECTORY, Lease, lease_path
from omnigraph.commit.lineage import find_in
from omnigraph.commit.location import STAMP_PATH, location_stamp
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Manifest
from omnigraph.commit.refs import delete_branch_ref, delete_tag_ref, list_branch_refs, list_tag_refs
from omnigraph.commit.schema_files import STAGED, promote_contract, read_contract, stage_contract
from omnigraph.commit.store import PLACE, Store
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    CorruptionError,
    InputError,
    LeaseLostError,
    NotFoundError,
    ObjectChangedError,
    ObjectNotFoundError,
    OmnigraphError,
    StorageError,
    VersionReclaimedError,
)
from omnigraph.storage.checksums import read_records, record_names, write_record
from omnigraph.storage.copies import FileStore, copy_files, in_parallel
from omnigraph.storage.latest_version import HINT, VERSIONS, dump_hint
from omnigraph.storage.ledger import LedgerBranch
from omnigraph.storage.objects import ObjectInfo
from omnigraph.storage.table_ref import table_directory
from omnigraph.storage.uri import GraphUri, Scheme
from omnigraph.upkeep.copy_plan import CopyPlan, plan_copy, published
from omnigraph.upkeep.reachable import Refs

_CAPTURE_READS = 20
_ATTEMPTS = 8
_PLANS = 32
_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class CopyReceipt:
    """The result of a backup or a restore.

    Attributes:
        source: the URI of the graph that was copied.
        uri: the URI of the copy.
        branches: the head commit of every copied branch.
        files_copied: number of copied files.
        bytes_copied: their size.
        files_present: number of files that the copy already had.
    """

    source: str
    uri: str
    branches: Mapping[str, str]
    files_copied: int
    bytes_copied: int
    files_present: int


@dataclass(frozen=True, slots=True)
class GraphState:
    """A consistent state of all branches and tags at one moment."""

    refs: Refs
    heads: Mapping[str, Manifest]

    @property
    def states(self) -> States:
        return {name: BranchState(view.incarnation, view.version, view.head.id) for name, view in self.heads.items()}


def backup(store: Store, target: Store, *, keep: int | None = None, hold: bool = True) -> CopyReceipt:
    """Copy a graph to an empty location, or update an earlier backup there.

    Args:
        store: the graph.
        target: the location of the copy.
        keep: number of readable commits per branch in the copy, from the newest; None for all that are readable here.
        hold: whether to protect the copied files from cleanup. This writes a work record to the graph.

    Raises:
        ConflictError: the location holds other files, or the backup there was changed after it was made.
        VersionReclaimedError: `hold` is off, and cleanup removed files during every attempt.
    """
    if keep is not None and keep < 1:
        raise InputError(f"keep: {keep} is not a number of commits")
    _check_separate(store.objects.uri, target.objects.uri)
    with _exclusive_copy(target, BACKUP) as held:
        record = read_record(target.objects) or CopyRecord(BACKUP, str(store.objects.uri), None, None)
        if record.kind != BACKUP:
            raise ConflictError(
                f"{target.objects.uri} holds an unfinished {record.kind} of {record.source}",
                hint="choose another location",
            )
        _check_unchanged(store, target, record)
        return _copy(store, _Target(target, held, record), keep, hold=hold)


def restore(store: Store, target: Store) -> CopyReceipt:
    """Copy a graph, usually a backup, to an empty location. An interrupted restore continues.

    Raises:
        ConflictError: the location is not empty.
    """
    _check_separate(store.objects.uri, target.objects.uri)
    with _exclusive_copy(target, RESTORE) as held:
        fresh = CopyRecord(RESTORE, str(store.objects.uri), None, None)
        record = read_record(target.objects) or fresh
        if record.kind != RESTORE or record.source != fresh.source:
            raise ConflictError(
                f"{target.objects.uri} is not empty: it holds a {record.kind} of {record.source}",
                hint="restore to an empty location",
            )
        return _copy(store, _Target(target, held, fresh), None, hold=False)


@contextmanager
def _exclusive_copy(target: Store, what: str) -> Iterator[Lease]:
    """Hold the lease of a location for a copy. It must be empty or have a copy record. Removes the lease at the end."""
    if read_record(target.objects) is None:
        _check_empty(target, what)
    with target.exclusive_place() as held:
        try:
            yield held
        finally:
            with suppress(OmnigraphError):
                held.check()
                target.leases.delete(lease_path(PLACE))


def _check_separate(source: GraphUri, target: GraphUri) -> None:
    for uri in (source, target):
        if uri.scheme is Scheme.MEMORY:
            raise InputError(
                f"{uri} is in memory: only graphs in a directory or in S3 can be copied",
                hint="use another location; 'export' and 'load' also work with graphs in memory",
            )
    here, there = (f"{uri.identity.rstrip('/')}/" for uri in (source, target))
    if here.startswith(there) or there.startswith(here):
        raise InputError(
            f"{target} and {source} overlap: one location contains the other",
            hint="choose a separate location for the copy",
        )


def _check_empty(target: Store, what: str) -> None:
    uri = target.objects.uri
    found = [info for info in target.objects.list() if not info.path.startswith(f"{LEASE_DIRECTORY}/")]
    if found:
        raise ConflictError(
            f"{uri} is not empty: it holds {found[0].path}" + (" and more" if len(found) > 1 else ""),
            hint=f"{what} to an empty location" + (", or to an earlier backup of this graph" if what == BACKUP else ""),
        )


def _check_unchanged(store: Store, target: Store, record: CopyRecord) -> None:
    """Check that an earlier backup is unchanged, and that it is a backup of this graph.

    Raises:
        ConflictError: the backup was changed, or it is a backup of another graph.
    """
    if record.done is None:
        return
    for name in target.branch_names():
        there = _state(target, name)
        known = there in (record.done.get(name), (record.going or {}).get(name))
        if not known and not _has(store, name, there):
            raise ConflictError(
                f"branch '{name}' of the backup at {target.objects.uri} was written to since it was copied",
                hint="it has diverged from this graph: back up to another location",
            )
    if not _has(store, MAIN, record.done[MAIN]):
        raise ConflictError(
            f"{target.objects.uri} is a backup of another graph, or of a state that {store.objects.uri} never had",
            hint="back up to another location",
        )


def _has(store: Store, name: str, state: BranchState | None) -> bool:
    """Whether a branch of the graph has, or once had, the given state."""
    if state is None:
        return True
    try:
        view = store.capture(name)
        if view.incarnation != state.incarnation:
            return False
        # Cleanup removes old manifest versions, but the newest one has the commits of the whole history.
        commit = find_in(view, state.head)
        if commit is not None and (commit.ledger, commit.manifest_version) == (view.ledger.branch, state.version):
            return True
        return store.manifest_at(name, state.version).head.id == state.head
    except (VersionReclaimedError, BranchNotFoundError):
        return False


def _state(store: Store, name: str) -> BranchState | None:
    try:
        view = store.capture(name)
    except BranchNotFoundError:
        return None
    return BranchState(view.incarnation, view.version, view.head.id)


# Capturing


def capture(store: Store, *, hold: bool) -> GraphState:
    """Capture one state of all branches and tags.

    Reads all heads until two reads in a row are equal: that state existed between them. If writers commit too often, it
    takes the leases of all branches for one read.

    Raises:
        ConflictError: a branch or tag changed between any two reads, and `hold` is off.
    """
    last = _read_heads(store)
    for _ in range(_CAPTURE_READS):
        again = _read_heads(store)
        if again.states == last.states and again.refs == last.refs:
            return again
        last = again
    if not hold:
        raise ConflictError("branches changed faster than they could be read", hint="try again")
    with ExitStack() as leases:
        for name in last.heads:
            leases.enter_context(store.exclusive(name))
        leases.enter_context(store.exclusive_refs())
        return _read_heads(store)


def _read_heads(store: Store) -> GraphState:
    refs = Refs.of(store)
    heads = {MAIN: store.capture(MAIN)}
    branches = {}
    for name, branch in refs.branches.items():
        if branch.is_hidden:
            continue
        try:
            heads[name] = store.capture(name)
            branches[name] = branch
        except BranchNotFoundError:
            continue  # deleted meanwhile
    return GraphState(Refs(branches, refs.tags), heads)


# Copying


@dataclass(frozen=True, slots=True)
class _Target:
    """The location of a copy.

    Attributes:
        held: the lease of the location.
        record: the record of the previous copy.
    """

    store: Store
    held: Lease
    record: CopyRecord


def _copy(store: Store, target: _Target, keep: int | None, *, hold: bool) -> CopyReceipt:
    source, there = cast(FileStore, store.objects), cast(FileStore, target.store.objects)
    work = _Work(store, target.store, target.held, source, there, target.record, keep)
    for attempt in range(_ATTEMPTS):
        try:
            state = capture(store, hold=hold)
            # While the work record exists, cleanup keeps the files of the heads, and of the commits that a later merge
            # of the heads needs as a base.
            with at_work(store.leases, WorkKind.BACKUP, *state.heads.values()) if hold else nullcontext():
                return work.run(state)
        except (VersionReclaimedError, ObjectNotFoundError, ObjectChangedError, BranchNotFoundError):
            # Cleanup removed a version of the history, or a branch was deleted: capture again.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


@dataclass(slots=True)
class _Work:
    store: Store
    target: Store
    held: Lease
    source: FileStore
    there: FileStore
    record: CopyRecord
    keep: int | None
    files: int = 0
    size: int = 0
    record_etag: str = ""

    def run(self, state: GraphState) -> CopyReceipt:
        """Copy a state. Because of the order of the steps, an interruption at any point is safe."""
        self._start_record(state)
        reach(Failpoint.COPY_MARKED)
        self.held.check()
        present = self._remove_branches(state)
        plan = self._copy_files(state)
        reach(Failpoint.COPY_FILES_COPIED)
        self._record_sums(plan)
        source, accepted = read_contract(self.store.objects, state.heads[MAIN])
        # Before `promote_contract` runs, readers of the copy look for the schema files that are staged under the id of
        # the operation that created the head.
        operation = state.heads[MAIN].head.operation_id or state.heads[MAIN].head.id
        stage_contract(self.target.objects, source, accepted, operation)
        for path in plan.schemas:
            self.target.objects.put(path, self.store.objects.get(path).data)
        self.held.check()
        written = self._publish(plan, present)
        self._write_hints(state)
        promote_contract(self.target.objects, state.heads[MAIN].schema_hash, operation)
        for path in present:
            if "/" not in path and path.endswith(STAGED):  # left by an interrupted attempt
                self.target.objects.delete(path)
        reach(Failpoint.COPY_PUBLISHED)
        self._remove_ledgers(plan)
        self._finish(state)
        self.target.objects.put(STAMP_PATH, location_stamp(self.target))
        kept = max(0, len(plan.files) + len(plan.manifests) - self.files - written)
        heads = {name: view.head.id for name, view in state.heads.items()}
        return CopyReceipt(str(self.source.uri), str(self.there.uri), heads, self.files + written, self.size, kept)

    def _write_hints(self, state: GraphState) -> None:
        """Write Lance's version hints. With them, readers can detect that the newest manifest version is missing."""
        for view in state.heads.values():
            directory = table_directory(MANIFEST_PATH, view.ledger.branch)
            self.target.objects.put(f"{directory}/{VERSIONS}/{HINT}", dump_hint(view.version))

    def _copy_files(self, state: GraphState) -> CopyPlan:
        """Copy all files that a state needs and that are missing in the copy.

        Cleanup may remove history during the copy. The heads stay, so each new plan is a subset of the one before, and
        the loop ends.
        """
        lost = None
        for _ in range(_PLANS):
            try:
                plan = plan_copy(self.store, state.refs, state.heads, self.keep, self._copied_commits())
                present = {info.path: info.size for info in self.there.list()}
                missing = [info for info in plan.files if present.get(info.path) != info.size]
                copy_files(self.source, self.there, missing, self._copied)
                self.there.sync_files([info.path for info in plan.files])
                self._check_sizes(plan)
                return plan
            except StorageError as error:
                if not self._is_missing(error):
                    raise
                if str(error) == lost:
                    break  # a version still needs this missing file: the graph is damaged
                lost = str(error)
        raise CorruptionError(
            f"the graph cannot be copied: {lost}", hint="run 'omnigraph verify'; restore missing files from a backup"
        )

    def _is_missing(self, error: StorageError) -> bool:
        """Whether an error means that a file of the source graph is missing."""
        missing = isinstance(error, ObjectNotFoundError) or "Not found" in str(error)
        return missing and error.uri in (str(self.source.uri), self.source.uri.lance_uri())

    def _copied_commits(self) -> frozenset[str]:
        """The commits that the copy has with their whole history."""
        record = self.record
        if record.done is None or record.going is not None or (record.keep or _ALL) < (self.keep or _ALL):
            return frozenset()
        return frozenset(state.head for state in record.done.values())

    def _start_record(self, state: GraphState) -> None:
        going = CopyRecord(self.record.kind, str(self.source.uri), self.record.done, state.states, self.record.keep)
        self.record_etag = self.target.objects.put(RECORD_PATH, going.dump())
        # Without the location stamp, opening the location for writing checks the copy record.
        self.target.objects.delete(STAMP_PATH)

    def _check_record(self) -> None:
        """Check that no later copy to this location has started.

        Raises:
            LeaseLostError: a later copy has started.
        """
        if self.target.objects.get(RECORD_PATH).etag != self.record_etag:
            raise LeaseLostError(f"another copy to {self.there.uri} has started", hint="run it again")

    def _finish(self, state: GraphState) -> None:
        if self.record.kind == RESTORE:
            self.target.objects.delete(RECORD_PATH)
        else:
            done = CopyRecord(self.record.kind, str(self.source.uri), state.states, None, self.keep)
            self.target.objects.put(RECORD_PATH, done.dump())

    def _copied(self, info: ObjectInfo) -> None:
        self.files += 1
        self.size += info.size
        reach(Failpoint.COPY_FILE_COPIED)

    def _remove_branches(self, state: GraphState) -> dict[str, int]:
        """Remove branches and tags of an earlier backup that the graph no longer has. Returns the remaining files."""
        objects = self.target.objects
        if self.record.done is not None:
            branches, tags = list_branch_refs(objects), list_tag_refs(objects)
            self._check_record()
            # A delete that is delayed from here on does no harm: a later copy does not need these objects, or has
            # rewritten them.
            for name, branch in branches.items():
                if state.refs.branches.get(name) != branch:
                    with suppress(ObjectChangedError):
                        delete_branch_ref(objects, branch)
                    self.target.forget(name)
            for name, tag in tags.items():
                if state.refs.tags.get(name) != tag:
                    with suppress(ObjectChangedError):
                        delete_tag_ref(objects, tag)
        return {info.path: info.size for info in self.there.list()}

    def _remove_ledgers(self, plan: CopyPlan) -> None:
        """Remove manifests of deleted branches from an earlier backup if they are no longer needed."""
        manifest = self.target.manifest
        if self.record.done is not None:
            there = manifest.branches()
            unneeded = [name for name in there if name not in plan.ledgers]
            self._check_record()
            for name in sorted(unneeded, key=lambda name: _depth(there, name), reverse=True):
                manifest.delete_branch(name)

    def _record_sums(self, plan: CopyPlan) -> None:
        """Record the checksums of files before versions refer to them. Checksums of an earlier backup are kept."""
        objects = self.target.objects
        known = read_records(objects, record_names(objects)).values()
        there = {path for sums in known for path in sums or ()}
        write_record(objects, ulid_now(), {path: each for path, each in plan.sums.items() if path not in there})

    def _publish(self, plan: CopyPlan, present: Mapping[str, int]) -> int:
        """Copy the version files: those of tables, then those of the manifest, with the newest of `main` last."""
        root = self.there.uri.lance_uri()
        written = 0
        for point, paths in ((Failpoint.COPY_TABLES_PUBLISHED, plan.table_manifests), (None, plan.graph_manifests)):
            for stage in paths:
                made = in_parallel(lambda path: self._publish_one(plan, path, root, present), stage)
                written += sum(made)
                self.there.sync_files([path for path, new in zip(stage, made, strict=True) if new])
            if point is not None:
                reach(point)
        return written

    def _publish_one(self, plan: CopyPlan, path: str, root: str, present: Mapping[str, int]) -> bool:
        try:
            data = published(path, self.store.objects.get(path).data, root)
        except ObjectNotFoundError:
            if path not in plan.dispensable:
                raise
            return False  # cleanup removed a version of the history during the copy
        if present.get(path) == len(data) and self.there.get(path).data == data:
            return False
        with self.there.writing(path) as file:
            file.write(data)
        return True

    def _check_sizes(self, plan: CopyPlan) -> None:
        """Check that every file was copied completely."""
        found = {info.path: info.size for info in self.there.list()}
        for info in plan.files:
            if found.get(info.path) != info.size:
                raise NotFoundError(
                    f"{info.path} is incomplete at {self.there.uri}: it has {found.get(info.path, 0)} of "
                    f"{info.size} bytes",
                    hint="another program changed files there; try again",
                )


def _depth(ledgers: Mapping[str, LedgerBranch], name: str) -> int:
    """The depth of a Lance branch in the tree of branches. Lance can only delete leaves."""
    depth, found = 0, ledgers.get(name)
    while found is not None and found.parent is not None:
        depth, found = depth + 1, ledgers.get(found.parent)
    return depth
