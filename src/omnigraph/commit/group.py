"""A group: small writes of several threads that are prepared on one state and published as one commit.

Each write is prepared as if it was alone, on the same state. Then the group takes them in the order of their requests.
A write that read rows which an earlier member changes, or that changes the same rows, is left for the next group. So
the result is that of the members one after the other: no member would have read anything else after the members
before it. This is the same rule by which a write is moved onto a later head, see `read_set`.
"""

# See docs/decisions/0210-waiting-writers-are-committed-together.md

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc
from ulid_transform import ulid_now

from omnigraph.commit.lineage import ActorKey, find_all_idempotent
from omnigraph.commit.manifest import Commit, Manifest, Member, Models, TypeCounts, combined_models
from omnigraph.commit.read_set import ReadSet, reads_of, tracked, untracked
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.signal import Signal
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import Append, Change, DeleteIds, TableWrite, Upsert
from omnigraph.commit.write_request import Prepare, Prepared, WriteRequest
from omnigraph.dataclass import dataclass
from omnigraph.errors import CancelledError, ReadSetChangedError, RetryableError, StorageError, VersionReclaimedError
from omnigraph.storage.blobs import is_blob, stored_blobs
from omnigraph.storage.tables import TableStorage

MOST_MEMBERS = 64
"""Maximum number of members of a group."""

_MOST_CHANGED = 64
"""Maximum number of entities that a member changes: their ids are recorded in the commit."""

_MOST_BYTES = 16 << 10
"""Maximum size of the ids and labels of a member."""

_NO_IDS = pa.array([], pa.utf8())


@dataclass(eq=False)
class Waiting:
    """A write that waits for its turn, or for the outcome of its group.

    Attributes:
        store: the open graph of its caller.
        request: its metadata and preconditions.
        prepare: creates its table writes.
        deadline: the time until which it waits for other writers, on the monotonic clock.
        alone: whether it must not be a member of a group.
        id: its id, if it becomes a member.
        context: the context variables of its caller.
        woken: set when it has its turn, or its outcome.
        has_turn: whether it may write alone. Its caller ends the turn.
        is_gone: whether its caller does not wait any more.
        has_outcome: whether a group has decided it.
        commit: its commit; None if there was nothing to do, or if it failed.
        error: why it failed.
    """

    store: Store
    request: WriteRequest
    prepare: Prepare
    deadline: float
    alone: bool
    id: str = field(default_factory=ulid_now)
    context: Context = field(default_factory=copy_context)
    woken: Signal = field(default_factory=Signal)
    has_turn: bool = False
    is_gone: bool = False
    has_outcome: bool = False
    commit: Commit | None = None
    error: Exception | None = None

    def decide(self, commit: Commit | None = None, error: Exception | None = None) -> None:
        """Record the outcome. The caller is woken later."""
        self.commit, self.error, self.has_outcome = commit, error, True

    def fits(self, other: Waiting) -> bool:
        """Whether both may be members of one group."""
        return not self.alone and not other.alone and _are_alike(self.store, other.store)


def _are_alike(one: Store, other: Store) -> bool:
    """Whether two handles of a graph write in the same way, so that one can write for both."""
    if one is other:
        return True
    options = [store.objects.uri.storage_options for store in (one, other)]
    durable = [store.tables.is_durable for store in (one, other)]
    return options[0] == options[1] and durable[0] == durable[1] and one.timeouts == other.timeouts


def may_join(request: WriteRequest) -> bool:
    """Whether a write may be published in one commit with others.

    A precondition on the head would fail after an earlier member, a message belongs to one commit, and a timeout is
    that of one write.
    """
    conditions = (
        request.expect_head,
        request.unchanged,
        request.message,
        request.timeout,
        request.schema,
        request.work,
    )
    return request.kind is WriterKind.MUTATION and request.replayable and all(one is None for one in conditions)


@dataclass(slots=True)
class _Candidate:
    """A prepared write of a group.

    Attributes:
        writes: its table writes, by type key.
        ids: the ids of the rows that it changes, by type key.
        reads: its read set.
        labels: its labels.
        error: why it failed. Then it has no writes.
    """

    waiting: Waiting
    writes: Mapping[str, Append | Upsert | DeleteIds]
    ids: Mapping[str, pa.Array]
    reads: ReadSet
    labels: tuple[tuple[str, str], ...] = ()
    error: Exception | None = None

    def member(self, counts: Iterable[TypeCounts]) -> Member:
        request = self.waiting.request
        changed = tuple((key, tuple(ids.to_pylist())) for key, ids in sorted(self.ids.items()))
        return Member(self.waiting.id, request.actor, self.labels, request.idempotency_key, tuple(counts), changed)


class Group:
    """Prepares the writes of a group, for one attempt after the other.

    Args:
        members: the writes, in the order of their requests.

    Attributes:
        chosen: the members of the last attempt. The others have an outcome, or wait for the next group.
        is_publishing: whether the publish of the last attempt has begun.
    """

    def __init__(self, members: Sequence[Waiting]) -> None:
        self._members = members
        self._tables: TableStorage = members[0].store.tables
        self._candidates: list[_Candidate] = []
        self.is_publishing = False

    @property
    def chosen(self) -> list[Waiting]:
        return [candidate.waiting for candidate in self._candidates]

    @property
    def undecided(self) -> list[Waiting]:
        return [member for member in self._members if not member.has_outcome]

    def __call__(self, view: Manifest) -> Prepared:
        """Prepare all members on a state, and choose those that can be published together."""
        self.is_publishing, self._candidates = False, []
        plain = untracked(view)
        self._candidates = self._choose(plain, list(self._prepared(plain)))
        reads = reads_of(view)
        for candidate in self._candidates:
            reads.add(candidate.reads)
        keys = [_key(member) for member in self.chosen]
        writes = _combined(self._candidates)
        return Prepared(writes, keys=[key for key in keys if key is not None], members=self._recorded)

    def _prepared(self, view: Manifest) -> Iterable[_Candidate]:
        """The prepared writes, also those that failed or have nothing to do. Writes to be tried alone are marked."""
        undecided = [member for member in self.undecided if not member.alone]
        keys = [_key(member) for member in undecided]
        earlier = find_all_idempotent(view, {key for key in keys if key is not None})
        for member, key in zip(undecided, keys, strict=True):
            if key is not None and key in earlier:
                member.decide(earlier[key])
                continue
            own, reads = tracked(view)
            try:
                prepared = member.context.run(member.prepare, own)
            except CancelledError as error:  # its caller has left: no other attempt would go further
                member.decide(error=error)
            except (ReadSetChangedError, RetryableError, StorageError, VersionReclaimedError):
                member.alone = True  # an error of this attempt: alone, the write knows how to try again
            except Exception as error:
                yield _Candidate(member, {}, {}, reads, error=error)
            else:
                found = _candidate(member, prepared, reads)
                member.alone = found is None
                if found is not None:
                    yield found

    def _choose(self, view: Manifest, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """The candidates whose reads and rows the candidates before them do not change.

        Of these, the ones that failed or have nothing to do get their outcome.
        """
        changes = _Changes(self._tables, view, candidates)
        chosen: list[_Candidate] = []
        keys: set[ActorKey] = set()
        for candidate in candidates:
            key = _key(candidate.waiting)
            if key in keys or changes.affect(candidate):
                continue
            if not candidate.writes:
                candidate.waiting.decide(error=candidate.error)
                continue
            changes.add(candidate)
            chosen.append(candidate)
            if key is not None:
                keys.add(key)
        return chosen

    def _recorded(self, view: Manifest, counts: tuple[TypeCounts, ...]) -> tuple[Member, ...]:
        """The members, for the commit."""
        self.is_publishing = True
        totals = {one.key: one for one in counts}
        upserted = {
            key: [candidate.ids[key] for candidate in self._candidates if isinstance(candidate.writes.get(key), Upsert)]
            for key in totals
        }
        stored = {
            key: self._stored_ids(view, key, pa.concat_arrays(ids)) if totals[key].updated else set[str]()
            for key, ids in upserted.items()
            if ids
        }
        return tuple(candidate.member(_counts(candidate, stored)) for candidate in self._candidates)

    def _stored_ids(self, view: Manifest, key: str, ids: pa.Array) -> set[str]:
        table = self._tables.at(view.tables[key].ref)
        return set(table.lookup("id", pa.chunked_array([ids]), columns=["id"])["id"].to_pylist())


class _Changes:
    """The changes of the members that were chosen so far."""

    def __init__(self, tables: TableStorage, view: Manifest, candidates: Sequence[_Candidate]) -> None:
        self._tables = tables
        self._view = view
        self._candidates = candidates
        self._ids: dict[str, list[pa.Array]] = {}
        self._after: dict[str, list[pa.Table]] = {}
        self._stored: dict[str, pa.Table] = {}

    def add(self, candidate: _Candidate) -> None:
        for key, write in candidate.writes.items():
            self._ids.setdefault(key, []).append(candidate.ids[key])
            if not isinstance(write, DeleteIds):
                self._after.setdefault(key, []).append(write.rows)

    def affect(self, candidate: _Candidate) -> bool:
        """Whether the changes touch a row that a candidate read or changes."""
        for key in candidate.reads.keys | set(candidate.ids):
            if key not in self._ids:
                continue
            ids = pa.concat_arrays(self._ids[key])
            own = candidate.ids.get(key, _NO_IDS)
            if pc.any(pc.is_in(own, value_set=ids)).as_py():
                return True
            images = self._images(key, ids) if key in candidate.reads.keys_by_content else ()
            try:
                if candidate.reads.has_one_of(key, ids, images):
                    return True
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError):
                return True  # a condition that only Lance evaluates: the safe answer
        return False

    def _images(self, key: str, ids: pa.Array) -> list[pa.Table]:
        """The changed rows of a table before and after the changes."""
        before = self._stored_rows(key)
        return [*self._after.get(key, ()), before.filter(pc.is_in(before["id"], value_set=ids))]

    def _stored_rows(self, key: str) -> pa.Table:
        """The stored rows that the candidates replace or delete, read once for all candidates."""
        if key not in self._stored:
            replaced = [c.ids[key] for c in self._candidates if isinstance(c.writes.get(key), Upsert | DeleteIds)]
            ids = pa.chunked_array([pa.concat_arrays([_NO_IDS, *replaced])])
            table = self._tables.at(self._view.tables[key].ref)
            blobs = set(stored_blobs(table.schema()))
            columns = [name for name in table.schema().names if name not in blobs]
            self._stored[key] = table.lookup("id", ids, columns=columns)
        return self._stored[key]


def _key(member: Waiting) -> ActorKey | None:
    """The actor and the idempotency key of a write; None without a key."""
    key = member.request.idempotency_key
    return None if key is None else (member.request.actor, key)


def _candidate(member: Waiting, prepared: Prepared | Sequence[TableWrite], reads: ReadSet) -> _Candidate | None:
    """A prepared write as a candidate for a group; None if it has to be committed alone."""
    if not isinstance(prepared, Prepared):
        prepared = Prepared(prepared)
    writes: dict[str, Append | Upsert | DeleteIds] = {}
    for write in prepared.writes:
        if not isinstance(write, Append | Upsert | DeleteIds) or write.key in writes:
            return None
        if isinstance(write, Append | Upsert) and any(is_blob(column.type) for column in write.rows.schema):
            return None
        writes[write.key] = write
    ids = {key: _ids_of(write) for key, write in writes.items()}
    labels = tuple(sorted((dict(member.request.labels) | dict(prepared.labels)).items()))
    size = sum(found.nbytes for found in ids.values()) + sum(len(name) + len(value) for name, value in labels)
    if sum(map(len, ids.values())) > _MOST_CHANGED or size > _MOST_BYTES or not _is_plain(prepared):
        return None
    changing = {key: write for key, write in writes.items() if len(ids[key])}
    return _Candidate(member, changing, {key: ids[key] for key in changing}, reads, labels)


def _is_plain(prepared: Prepared) -> bool:
    """Whether a write consists only of its table writes and its labels."""
    optional = (prepared.merged_parent, prepared.ancestors, prepared.adopt, prepared.counts, prepared.touched)
    return all(one is None for one in optional) and not prepared.on_head and not prepared.needs


def _ids_of(write: Append | Upsert | DeleteIds) -> pa.Array:
    return write.ids if isinstance(write, DeleteIds) else pa.concat_arrays([_NO_IDS, *write.rows["id"].chunks])


def _combined(candidates: Sequence[_Candidate]) -> list[TableWrite]:
    """One write per table for all members. Their rows are distinct."""
    by_key: dict[str, list[Append | Upsert | DeleteIds]] = {}
    for candidate in candidates:
        for key, write in candidate.writes.items():
            by_key.setdefault(key, []).append(write)
    return [writes[0] if len(writes) == 1 else _merged(key, writes) for key, writes in by_key.items()]


def _merged(key: str, writes: Sequence[Append | Upsert | DeleteIds]) -> TableWrite:
    rows = [write.rows for write in writes if not isinstance(write, DeleteIds)]
    deleted = pa.concat_arrays([_NO_IDS, *(write.ids for write in writes if isinstance(write, DeleteIds))])
    models = _models(writes)
    if not rows:
        return DeleteIds(key, deleted, models=models)
    written = pa.concat_tables(rows).combine_chunks()
    if len(deleted):
        return Change(key, written, deleted, models=models)
    operation = Append if all(isinstance(write, Append) for write in writes) else Upsert
    return operation(key, written, models=models)


def _models(writes: Sequence[TableWrite]) -> Models | None:
    found: Models | None = None
    for write in writes:
        if write.models is not None:
            found = write.models if found is None else combined_models(found, write.models)
    return found


def _counts(candidate: _Candidate, stored: Mapping[str, set[str]]) -> Iterable[TypeCounts]:
    for key, write in sorted(candidate.writes.items()):
        changed = len(candidate.ids[key])
        if isinstance(write, DeleteIds):
            yield TypeCounts(key, deleted=changed)
            continue
        known = stored.get(key, set()) if isinstance(write, Upsert) else set()
        updated = sum(1 for one in candidate.ids[key].to_pylist() if one in known)
        yield TypeCounts(key, changed - updated, updated)
