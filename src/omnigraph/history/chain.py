"""The commits that lead to a commit, and the readable states of one entity along them.

Lance records for each row the table version that wrote it last. So the search goes from a state of the entity directly
to the commit that wrote it, and does not read the commits in between. A schema change and a branch update can change
rows without such a record: a branch update points the branch at tables of its parent, whose version numbers are not
comparable. So the search compares the entity before and after each of these commits.

Commits that cleanup has removed, and those of branches that the actor may not read, are skipped. If the entity changed
in such a range of commits, the change is assigned to the only commit in it that changed the type. If there are several,
the commit is unknown. If the entity is missing at both ends of such a range, commits in it may have inserted and
deleted it. The range is then reported as incomplete.
"""

# See docs/decisions/0182-an-entity-is-traced-by-its-row-versions.md

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit, Manifest, TableId, TablePin
from omnigraph.commit.manifest_rows import RowKind, read_commits
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import Store, state_removed
from omnigraph.dataclass import dataclass
from omnigraph.errors import NotFoundError, VersionReclaimedError, cut
from omnigraph.history.rows import EntityRow, changed_properties, new_values, property_ids, read_row
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema.type_key import TypeKey, either_kind
from omnigraph.merge.receipt import adopts_tables
from omnigraph.storage.table_ref import TableRef

_KINDS = pa.array([RowKind.GRAPH_COMMIT.value, RowKind.ANCESTOR.value])


def _is_unrecorded(commit: Commit) -> bool:
    """Whether a commit can change entities without an entry in the counts and in the row versions."""
    return commit.writer == WriterKind.SCHEMA_APPLY or adopts_tables(commit)


@dataclass(frozen=True, slots=True)
class Step:
    """A difference of the entity between two readable commits that follow each other.

    Attributes:
        commit: the commit that made the change; None if it is unknown because cleanup has removed commits.
        newer: the first readable commit with the change.
        older: the last readable commit before the change; None for the first commit of the graph.
        before: the entity before the change; None if it did not exist.
        after: the entity after the change; None if it was deleted.
        properties: the properties that changed.
        new: the properties after the change whose values are new, also if a property was added and is null.
        may_have_more: whether removed commits may have changed other properties, and changed them back.
        may_be_replaced: whether removed commits may have deleted the entity, and inserted it again.
        is_linear: whether there is no merge among the commits that may have made the change.
    """

    commit: Commit | None
    newer: Commit
    older: Commit | None
    before: EntityRow | None
    after: EntityRow | None
    properties: tuple[str, ...]
    new: tuple[str, ...] = ()
    may_have_more: bool = False
    may_be_replaced: bool = False
    is_linear: bool = True

    @property
    def is_change(self) -> bool:
        """Whether the entity changed. A new property that is null is no change."""
        return bool(self.properties) or (self.before is None) != (self.after is None)


@dataclass(slots=True)
class Chain:
    """The commits from a given commit back to its ancestors, along first parents.

    Attributes:
        commits: the commits, newest first.
        is_whole: whether no commits are missing at the end: the last one is the first of the graph, or a given commit.
        kept_from: the oldest readable commit, if older commits can no longer be read. Set when `steps` has ended.
        gaps: pairs of readable commits, the earlier one first, that both lack the entity. The commits between them are
            removed, and may have inserted and deleted it. Newest first, set when `steps` has ended.
    """

    entity: EntityHistory
    commits: Sequence[Commit]
    is_whole: bool
    kept_from: Commit | None = None
    gaps: list[tuple[Commit, Commit]] = field(default_factory=list)

    def steps(self) -> Iterator[Step]:
        """The changes of the entity, and the commits that added a property to it, newest first."""
        start = 0
        while True:
            places = [i for i, one in enumerate(self.commits) if i >= start and self.entity.is_kept(one)]
            if not places:
                return
            try:
                last = self._end(places)
                newer = self.commits[places[last - 1]]
                after = self.entity.row(newer)
                older = self.commits[places[last]] if last < len(places) else None
                before = None if older is None else self.entity.row(older)
            except VersionReclaimedError:
                continue  # `EntityHistory` has marked the commit as removed; try again without it
            if older is None:
                yield from self._end_of_history(places[-1], newer, after)
                return
            changed = () if before is after is None else changed_properties(before, after)
            between = self.commits[places[last - 1] : places[last]]
            possible = between if len(between) == 1 else [one for one in between if self.entity.may_change(one)]
            more = len(possible) > 1 and after is not None and self._may_be_written(between, older, after)
            made = possible[0] if len(possible) == 1 and self.entity.store.finds_commit(possible[0]) else None
            linear = all(one.merged_parent is None for one in possible)
            replaced = more and any(self.entity.may_delete(one) for one in possible)
            step = Step(made, newer, older, before, after, changed, new_values(before, after), more, replaced, linear)
            if step.is_change or step.new or more:
                yield step
            if before is after is None and self.entity.may_come_and_go(between):
                self.gaps.append((older, newer))
            start = places[last]

    def _end(self, places: Sequence[int]) -> int:
        """The position of the readable commit at which the search continues. The state there may be the same."""
        row = self.entity.row(self.commits[places[0]])
        return self._next_deletion(places) if row is None else self._last_written(places, row) + 1

    def may_miss_changes(self) -> bool:
        """Whether commits may have changed the entity that `steps` has not found, because states are not readable.

        These are commits at either end, and commits between two readable ones that both lack the entity.
        """
        if self.gaps:
            return True
        kept = [i for i, one in enumerate(self.commits) if self.entity.is_kept(one)]
        first, last = (kept[0], kept[-1]) if kept else (0, 0)
        unread = (*self.commits[:first], *self.commits[last:-1])
        return not self.is_whole or any(self.entity.may_change(one) for one in unread)

    def _end_of_history(self, place: int, oldest: Commit, row: EntityRow | None) -> Iterator[Step]:
        if place < len(self.commits) - 1 or not self.is_whole:
            self.kept_from = oldest
        elif row is not None and oldest.parent is None:
            yield Step(oldest, oldest, None, None, row, changed_properties(None, row), new_values(None, row))

    def _last_written(self, places: Sequence[int], row: EntityRow) -> int:
        """The position of the oldest readable commit with the same version of the row."""
        if self.entity.is_restored(self._ref(self.commits[places[0]]), row.written):
            return 0  # restored rows have old version numbers, so these cannot be used to skip commits
        low, high = 0, self._comparable(places)
        while low < high:
            middle = (low + high + 1) // 2
            found = self.entity.pin(self.commits[places[middle]])
            if found is not None and found.ref.version >= row.written:
                low = middle
            else:
                high = middle - 1
        return low

    def _comparable(self, places: Sequence[int]) -> int:
        """The position of the oldest readable commit whose row versions can be compared with those of the first."""
        first = next((i for i in range(places[0], len(self.commits)) if _is_unrecorded(self.commits[i])), None)
        return len(places) - 1 if first is None else bisect_right(places, first) - 1

    def _next_deletion(self, places: Sequence[int]) -> int:
        """The position of the readable commit before the newest deletion that may have removed the entity."""
        for last in range(1, len(places)):
            if any(self.entity.may_delete(commit) for commit in self.commits[places[last - 1] : places[last]]):
                return last
        return len(places)

    def _may_be_written(self, between: Sequence[Commit], older: Commit, row: EntityRow) -> bool:
        """Whether commits after a readable one may have written the row."""
        pin = self.entity.pin(older)
        if pin is None or any(adopts_tables(one) for one in between):
            return True
        return row.written > pin.ref.version or self.entity.is_restored(self._ref(between[0]), row.written)

    def _ref(self, commit: Commit) -> TableRef:
        pin = self.entity.pin(commit)
        assert pin is not None
        return pin.ref


@dataclass(slots=True)
class EntityHistory:
    """The states of one entity, read when they are needed.

    Attributes:
        store: the graph.
        view: the state whose history is read.
        table: the stable id of the entity's table. A rename of the type does not change it.
        entity_id: the entity.
        known: all ancestors of the head, by id.
    """

    store: Store
    view: Manifest
    table: TableId
    entity_id: str
    known: dict[str, Commit]
    _states: dict[str, Manifest] = field(default_factory=dict)
    _rows: dict[TableRef, EntityRow | None] = field(default_factory=dict)
    _versions: dict[str | None, set[int]] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)
    _key: str | None = None

    @classmethod
    def of(cls, store: Store, view: Manifest, key: str, entity_id: str) -> EntityHistory:
        """The history of an entity up to a state."""
        table = next((pin.id for pin in view.tables.values() if pin.key == key), None)
        known = _ancestors(view)
        if table is None:
            former, hint = former_type(store, view, key, known) or (key, did_you_mean(key, view.tables))
            if hint is not None and hint.endswith(_DROPPED):
                hint += "; give an earlier state"
            raise NotFoundError(f"the graph has no type {cut(former)}", hint=hint)
        found = cls(store, view, table, entity_id, known)
        found._states[view.head.id] = view
        # If the schema has changed, earlier commits may have recorded their counts under another name of the type.
        if all(commit.writer != WriterKind.SCHEMA_APPLY for commit in known.values()):
            found._key = key
        return found

    def newest(self) -> EntityRow | None:
        """The entity at the state whose history is read; None if it does not exist there.

        Raises:
            VersionReclaimedError: the state was removed.
        """
        try:
            return self.row(self.view.head)
        except VersionReclaimedError as error:
            raise state_removed(self.view.head.id) from error

    def present_name(self, property: str) -> str | None:
        """A hint with the present name of a property, if the given one is its former name."""
        row = self.row(self.view.head)
        names = {} if row is None else row.by_identity()
        for commit in self.chain(self.view.head).commits:
            if not _is_unrecorded(commit) or (before := self.known.get(commit.parent or "")) is None:
                continue
            if not self.store.finds_commit(commit) or not self.store.finds_commit(before):
                continue
            with suppress(VersionReclaimedError):
                pin = self.pin(before)
                fields = {} if pin is None else property_ids(self.store.tables.at(pin.ref).schema())
                if property in fields:
                    found = names.get(fields[property])
                    return f"commit {commit.id} dropped it" if found is None else f"it is now named {found}"
        return None

    def chain(self, start: Commit, until: Collection[str] = ()) -> Chain:
        """The commits from `start` back to the first one that is in `until`, or to the first commit of the graph."""
        commits: list[Commit] = []
        at: Commit | None = start
        while at is not None:
            commits.append(at)
            at = None if at.parent is None or at.id in until else self.known.get(at.parent)
        last = commits[-1]
        return Chain(self, commits, last.parent is None or last.id in until)

    def ancestors(self, commit_id: str | None) -> set[str]:
        """The ids of a commit and all its ancestors."""
        found: set[str] = set()
        waiting = [commit_id]
        while waiting:
            name = waiting.pop()
            commit = None if name is None or name in found else self.known.get(name)
            if commit is not None:
                found.add(commit.id)
                waiting += [commit.parent, commit.merged_parent]
        return found

    def is_kept(self, commit: Commit) -> bool:
        """Whether the manifest version of a commit exists, and the actor may know of its branch."""
        if commit.id in self._states or commit.id in self._lost:
            return commit.id not in self._lost
        if not self.store.finds_commit(commit):
            return False
        if commit.ledger not in self._versions:
            self._versions[commit.ledger] = set(self.store.manifest.versions(commit.ledger))
        return commit.manifest_version in self._versions[commit.ledger]

    def pin(self, commit: Commit) -> TablePin | None:
        """The table version at a commit; None if the type did not exist.

        Raises:
            VersionReclaimedError: cleanup has removed the commit.
        """
        state = self._states.get(commit.id)
        if state is None:
            try:
                state = self._states[commit.id] = self.store.manifest_of(commit)
            except VersionReclaimedError:
                self._lost.add(commit.id)
                raise
        return next((pin for pin in state.tables.values() if pin.id == self.table), None)

    def row(self, commit: Commit) -> EntityRow | None:
        """The entity at a commit; None if it did not exist.

        Raises:
            VersionReclaimedError: cleanup has removed the commit, or its table version.
        """
        pin = self.pin(commit)
        if pin is None or pin.is_empty:
            return None
        ref = pin.ref
        if ref not in self._rows:
            try:
                self._rows[ref] = read_row(self.store.tables.at(ref), self.entity_id)
            except VersionReclaimedError:
                self._lost.add(commit.id)
                raise
        return self._rows[ref]

    def is_restored(self, ref: TableRef, version: int) -> bool:
        """Whether an earlier content of the table was restored after a version, which undid visible changes."""
        return self.store.tables.at(ref).is_restored_after(version)

    def may_change(self, commit: Commit) -> bool:
        """Whether a commit may have changed entities of the type, by its recorded counts."""
        return self._may(commit, deletes=False)

    def may_delete(self, commit: Commit) -> bool:
        """Whether a commit may have deleted entities of the type, by its recorded counts."""
        return self._may(commit, deletes=True)

    def may_come_and_go(self, commits: Sequence[Commit]) -> bool:
        """Whether one of the commits may have inserted the entity, and a later one deleted it.

        Args:
            commits: the commits, newest first.
        """
        inserted = False
        for commit in reversed(commits):
            if commit.writer == WriterKind.SCHEMA_APPLY:
                continue  # it changes values, but inserts and deletes no entities
            if inserted and self.may_delete(commit):
                return True
            inserted = inserted or self._may_insert(commit)
        return False

    def _may_insert(self, commit: Commit) -> bool:
        if commit.counts is None or _is_unrecorded(commit):
            return True
        return any(one.inserted for one in commit.counts if self._key in (None, one.key))

    def _may(self, commit: Commit, *, deletes: bool) -> bool:
        if commit.counts is None or _is_unrecorded(commit):
            return True
        counts = [one for one in commit.counts if self._key in (None, one.key)]
        return any(one.deleted if deletes else one.inserted or one.updated or one.deleted for one in counts)


def _ancestors(view: Manifest) -> dict[str, Commit]:
    """All ancestors of the head of a state, and the head itself, by id."""
    rows = view.ledger.read(filter=pc.field("object_type").isin(_KINDS))
    known = {commit.id: commit for commit in view.ledger.decoded(rows, read_commits)}
    known.setdefault(view.head.id, view.head)
    return known


_DROPPED = "dropped it"


def former_type(
    store: Store, view: Manifest, key: str, known: Mapping[str, Commit] | None = None
) -> tuple[str, str] | None:
    """A type that an earlier state had: its key, and a hint with its present name or the commit that dropped it.

    The state does not have the type, so a caller that gave only its name does not know its kind. Both are looked up.

    Args:
        store: the graph.
        view: the present state.
        key: the key of the type; the type of the other kind with this name is looked up, too.
        known: the ancestors of the head of the state, if the caller has read them.
    """
    known = _ancestors(view) if known is None else known
    present = {pin.id: name for name, pin in view.tables.items()}
    at: Commit | None = view.head
    while at is not None:
        before = known.get(at.parent or "")
        if _is_unrecorded(at) and before is not None and store.finds_commit(at) and store.finds_commit(before):
            with suppress(VersionReclaimedError):
                tables = store.manifest_of(before).tables
                for one in (one for one in either_kind(key) if one in tables and one not in view.tables):
                    pin = tables[one]
                    if pin.id in present:
                        return one, f"it is now named {TypeKey.parse(present[pin.id]).name}"
                    return one, f"commit {at.id} {_DROPPED}"
        at = before
    return None
