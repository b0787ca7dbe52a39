"""A merge: compares two branches, finds conflicts, and computes the writes.

The commit of the source is fixed at the start. If the merge is tried again because the target has changed, it reads the
new state of the target.
"""

# See docs/decisions/0114-a-fast-forward-is-a-merge.md
# See docs/decisions/0116-a-merge-carries-no-schema.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.ancestors import History
from omnigraph.commit.manifest import Manifest, TablePin, combined_models
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.table_writes import TableWrite
from omnigraph.dataclass import dataclass
from omnigraph.errors import Conflict, MergeSchemaError
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.base import UNKNOWN, Bases
from omnigraph.merge.changes import change_of
from omnigraph.merge.choices import Choice, Choices
from omnigraph.merge.compare import Compared, Comparer, LocalComparer
from omnigraph.merge.conflicts import Conflicts
from omnigraph.merge.invalid_values import InvalidValues
from omnigraph.merge.left_out import check_left_out
from omnigraph.merge.orphans import Orphans
from omnigraph.merge.preview import PreviewedChange, previewed
from omnigraph.merge.property_level import Levels, MergeLevel
from omnigraph.merge.receipt import MergedChanges, MergeOutcome
from omnigraph.merge.restored_edges import Decisions, EdgeRestorer
from omnigraph.merge.schema_alignment import Alignment, Schemas, alignment_of
from omnigraph.merge.sides import Columns, Versions, differing_fragments
from omnigraph.merge.states import State
from omnigraph.merge.three_way import Tables, ThreeWay
from omnigraph.merge.violating_entities import changed_entities
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.rules.changes import TableChange
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.validator import missing_values, violations
from omnigraph.write.rules.violations import Describe


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge against one state of the target.

    Attributes:
        outcome: how the branches are related.
        bases: the ids of the best common ancestors; several are merged into a virtual base.
        tables: the changes of each table that the source changed, by type key; without entities with conflicts.
        resolved: number of resolved conflicts.
        conflicts: the remaining conflicts; at most the first 10,000.
        total: number of remaining conflicts.
        edges_kept: number of edges that stay or are restored, because a choice keeps their node.
        edges_omitted: number of edges that a revert does not restore, because one of their nodes no longer exists.
        new_commits: the commits that the target does not have yet, as rows of the manifest.
        left_out: types and properties that the source has changed, and that the schema of the target does not have.
        alignment: converts rows of the source to the schema of the target; None if both have the same schema.
        conflicting: the entities that take part in remaining conflicts, by type key; of conflicts between rows only the
            first 10,000, unless the merge lists all conflicts.
    """

    outcome: MergeOutcome
    bases: tuple[str, ...]
    tables: Mapping[str, Compared]
    resolved: int = 0
    conflicts: tuple[Conflict, ...] = ()
    total: int = 0
    edges_kept: int = 0
    edges_omitted: int = 0
    new_commits: pa.Table | None = None
    left_out: tuple[str, ...] = ()
    alignment: Alignment | None = None
    conflicting: Mapping[str, pa.Array] = field(default_factory=dict)

    @property
    def base_refs(self) -> set[TableRef]:
        """The base versions that rows were compared with. The commit checks that cleanup has not removed them."""
        return {one.versions.base for one in self.tables.values()}

    @property
    def changes(self) -> dict[str, MergedChanges]:
        """The changes of the target, by type key."""
        return {
            key: MergedChanges(found.inserted, found.updated, len(found.deleted))
            for key, found in self.tables.items()
            if not found.is_empty
        }


CheckConflicts = Callable[[Sequence[Conflict], int, Sequence[Manifest]], None]
"""Gets the first conflicts, the number of all, and the compared states: source, target, and base if it is stored."""


class Merge:
    """Merges a branch into another.

    Args:
        store: the graph.
        source: the branch that is merged, at its head.
        schemas: returns the schema of a state of the graph.
        choices: the choices for conflicts.
        comparer: compares the tables.
        memory: the memory limit of a constraint check.
        name: the name of the source in descriptions of conflicts; by default the name of its branch.
        restoring: whether the merge undoes a commit. Then a deleted edge is restored only if both of its nodes exist.
        level: the merge level (row or property) for all types; by default, the schema of the target sets it.
        complete: whether to list all entities with conflicts in `Merged.conflicting`.
        exclusive: whether an entity that both sides changed is a conflict, even if they made the same change.
        check: checks the conflicts that the merge has without choices, before it uses the choices.
    """

    def __init__(
        self,
        store: Store,
        source: Manifest,
        schemas: Schemas,
        choices: Choices,
        comparer: Comparer,
        memory: MemoryLimit,
        name: str | None = None,
        *,
        restoring: bool = False,
        level: MergeLevel | None = None,
        complete: bool = False,
        exclusive: bool = False,
        check: CheckConflicts | None = None,
    ) -> None:
        self._name = name or source.branch
        self._store = store
        self._source = source
        self._schemas = schemas
        self._choices = choices
        self._comparer = comparer
        self._memory = memory
        self._restoring = restoring
        self.now = now_micros() // 1000
        """The value of `now()` in defaults, in milliseconds."""
        self._level = level
        self._complete = complete
        self._exclusive = exclusive
        self._check_conflicts = check

    @property
    def engine(self) -> str:
        """Where rows were compared: `local` or `spark`."""
        return self._comparer.engine

    def against(self, target: Manifest, base: Manifest | None = None) -> Merged:
        """Compute the merge.

        Args:
            target: the branch that the source is merged into.
            base: the base of both branches, if the caller knows it. Then the commit history is not read to find it.

        Raises:
            MergeSchemaError: the schemas do not allow the merge.
            InputError: there is a choice for an entity without a conflict.
        """
        if base is not None:
            return self._merged(MergeOutcome.MERGED, (base.head.id,), State(base), target)
        source = self._source
        history = History(self._store, source, target)
        common = history.common()
        if source.head.id in common.best:
            return Merged(MergeOutcome.ALREADY_UP_TO_DATE, common.best, {})
        new_commits = history.missing_in_target(common)
        check_left_out(self._store, self._schemas, history, new_commits)
        if target.head.id in common.best:
            return self._merged(MergeOutcome.FAST_FORWARD, common.best, State(target), target, new_commits)
        by_strategy = self._choices.default is not None
        levels = self._levels(target)
        bases = Bases(self._store, history, self._schemas, self._comparer, self._memory, levels, by_strategy, self.now)
        base_state = bases.of(common.best) if common.is_certain else UNKNOWN
        return self._merged(MergeOutcome.MERGED, common.best, base_state, target, new_commits)

    def _merged(
        self,
        outcome: MergeOutcome,
        bases: tuple[str, ...],
        base: State,
        target: Manifest,
        new_commits: pa.Table | None = None,
    ) -> Merged:
        unchecked = outcome is MergeOutcome.FAST_FORWARD
        comparison = _Comparison(self, base, target, self._choices, unchecked=unchecked)
        if self._check_conflicts is not None:
            plain = _Comparison(self, base, target, Choices(), unchecked=unchecked) if self._choices else comparison
            stored = () if base.manifest is None or base.overlays or base.unknown else (base.manifest,)
            self._check_conflicts(plain.described(), plain.found.total, (self._source, target, *stored))
        unused = self._choices.unused(comparison.named)
        if unused:
            # An unused choice is valid if another choice has already resolved its conflict. To find this conflict, the
            # comparison runs again without choices.
            plain = _Comparison(self, base, target, Choices(), unchecked=False)
            unused.unused(plain.listed()).refuse()
        conflicts = comparison.described()
        return Merged(
            outcome,
            bases,
            comparison.tables,
            comparison.resolved,
            conflicts,
            comparison.found.total,
            comparison.edges_kept,
            comparison.edges_omitted,
            new_commits,
            comparison.left_out,
            comparison.alignment,
            comparison.conflicting,
        )

    def _levels(self, target: Manifest) -> Levels:
        return Levels(self._schemas.of(target), self._level)

    def weight(self, target: Manifest, base: Manifest | None = None) -> int:
        """The approximate number of bytes to compare. If the caller knows the base, it passes it as `base`."""
        if base is not None:
            base_state = State(base)
        else:
            history = History(self._store, self._source, target)
            best = history.common().best
            if self._source.head.id in best:
                return 0
            bases = Bases(self._store, history, self._schemas, self._comparer, self._memory)
            base_state = State(target) if target.head.id in best else bases.of(best[-1:])
        tables, source = self._store.tables, self._source
        others = [view for view in (base_state.manifest, source) if view is not None]
        alignment = alignment_of(self._store, self._schemas, target, others, self.now)
        if alignment is not None:
            tables, source = alignment.tables, alignment.view(source)
            if base_state.manifest is not None:
                aligned = alignment.view(base_state.manifest)
                base_state = State(aligned, base_state.overlays, base_state.unknown)
        work = ThreeWay(tables, self._comparer, base_state, State(source), target, None, alignment)
        size = 0
        for versions in work.versions(Tables()):
            fragments_by_ref = dict(zip(versions.all, differing_fragments(tables, versions), strict=True))
            for ref, numbers in fragments_by_ref.items():
                chosen = set(numbers)
                size += sum(part.size for part in tables.at(ref).fragments() if part.number in chosen)
        return size

    def previewed(self, merged: Merged, target: Manifest) -> tuple[PreviewedChange, ...]:
        """The first changes of the target, with their values."""
        tables = self._store.tables if merged.alignment is None else merged.alignment.tables
        return previewed(tables, merged.tables, target)

    def writes(self, merged: Merged, target: Manifest) -> list[TableWrite]:
        """The writes of the merge to the target."""
        alignment = merged.alignment
        source = self._source if alignment is None else alignment.view(self._source)
        comparer = self._comparer if alignment is None else self._comparer.aligned(alignment.tables)
        changes = []
        for key, compared in merged.tables.items():
            if not compared.is_empty:
                pin = source.tables[key]
                theirs = pin.models if alignment is None else alignment.models(pin)
                changes.append((compared, combined_models(target.tables[key].models, theirs)))
        return comparer.writes(changes, target)


class _Comparison:
    """One comparison of three states: the changes of the tables, and the conflicts.

    Attributes:
        tables: the changes of each table, by type key; without entities with conflicts.
        found: the remaining conflicts.
        conflicting: the entities that take part in remaining conflicts, by type key.
        named: by type key, the ids of entities with resolved conflicts for which the caller chose a side individually.
        resolved: number of resolved conflicts.
        edges_kept: number of edges that stay or are restored, because a choice keeps their node.
        edges_omitted: number of edges that a revert does not restore, because one of their nodes no longer exists.
        alignment: converts rows of all states to the schema of the target; None if all have the same schema.
        left_out: types and properties that the source has changed, and that the target does not have.
    """

    def __init__(self, merge: Merge, base: State, target: Manifest, choices: Choices, *, unchecked: bool) -> None:
        self._merge = merge
        self._target = target
        self._choices = choices
        self._accepted = merge._schemas.of(target)
        self._align(base)
        self.tables = self._compared()
        self.found = Conflicts(merge._name, target.branch)
        for compared in self.tables.values():
            self.found.add_conflicts(compared)
        self.named = {key: set(compared.named.to_pylist()) for key, compared in self.tables.items()}
        self.resolved = sum(compared.resolved for compared in self.tables.values())
        self.conflicting = {
            key: compared.conflict_rows["id"].combine_chunks()
            for key, compared in self.tables.items()
            if compared.conflicts
        }
        self.edges_kept = 0
        self.edges_omitted = 0
        # A fast-forward needs no check: the same rules checked the rows of the source when they were written.
        if not unchecked or merge._source.schema_hash != target.schema_hash:
            self._check()

    def _align(self, base: State) -> None:
        """Convert the states to the schema of the target, if their schemas differ."""
        merge, target, source = self._merge, self._target, self._merge._source
        self.left_out: tuple[str, ...] = ()
        self._base, self._source, self._tables = base, source, merge._store.tables
        others = [view for view in (base.manifest, source) if view is not None]
        self.alignment = alignment = alignment_of(merge._store, merge._schemas, target, others, merge.now)
        if alignment is None:
            return
        self.left_out = tuple(alignment.left_out(base.manifest, source, merge._name, self._is_changed))
        self._tables, self._source = alignment.tables, alignment.view(source)
        if base.manifest is not None:
            self._base = State(alignment.view(base.manifest), base.overlays, base.unknown)

    def _is_changed(self, key: str, before: TableRef, after: TableRef) -> bool:
        """Whether the source has inserted or updated rows of a table since the base.

        Other versions may have the same rows: after an optimize, or if changes were undone. If base and source have
        different schemas, their rows are not compared, and count as changed.
        """
        tables, base = self._merge._store.tables, self._base
        if base.manifest is None or base.manifest.schema_hash != self._source.schema_hash:
            return True
        if key in base.overlays or base.is_unknown(key) or not tables.at(before).exists():
            return True
        stored = tables.at(after).schema()
        columns = Columns.of(stored)
        versions = Versions(key, before, after, before, columns, columns.schema(stored))
        found = LocalComparer(tables, self._merge._memory.limit).compare(versions, Choice(), ["id"])
        return found.updated > 0 or found.inserted > 0

    def _compared(self) -> dict[str, Compared]:
        merge, target, budget = self._merge, self._target, self._merge._memory.limit
        comparer = merge._comparer if self.alignment is None else merge._comparer.aligned(self._tables)
        states = self._base, State(self._source), target
        levels = merge._levels(target)
        comparison = ThreeWay(
            self._tables,
            comparer,
            *states,
            levels,
            self.alignment,
            complete=merge._complete,
            exclusive=merge._exclusive,
            budget=budget,
        )
        found = comparison.compare(self._choices, self._accepted)
        if found.incompatible:
            names = ", ".join(TypeKey.parse(key).name for key in found.incompatible)
            raise MergeSchemaError(
                f"'{merge._name}' has changed {names}, which '{target.branch}' does not have with the same columns",
                found.incompatible,
                hint="copy the rows to a branch with the schema of the target, and merge that branch",
            )
        return found.compared

    def _check(self) -> None:
        """Find the constraints that the merge breaks, and resolve the conflicts that have a choice."""
        source, target, accepted = self._source, self._target, self._accepted
        snapshot = Snapshot(self._merge._store, target)
        decisions = Decisions.of(self.tables, self._choices)
        restorer = EdgeRestorer(self._tables, self._base, source, target, accepted, self.alignment)
        invalid = InvalidValues(self._tables, target, accepted, self._choices, decisions)
        while True:
            restorer.restore(self.tables, decisions)
            if self.alignment is not None:
                invalid.resolve(self.tables)
            changes = {key: change_of(accepted, one) for key, one in self.tables.items() if not one.is_empty}
            unchanged = restorer.unchanged_table
            orphans = Orphans(self._tables, unchanged, target, accepted, self.tables, self._choices, decisions)
            orphans.restoring = self._merge._restoring
            wrong: list[tuple[pa.Table, Describe]] = []
            for rows, describe in self._violations(changes, snapshot):
                if rows.num_rows:
                    wrong.append((orphans.resolve(rows, describe(rows.slice(0, 1).to_pylist()[0])), describe))
            if not orphans.changed:
                break
            self.resolved += orphans.resolved
            self.edges_omitted += orphans.omitted
            for key, ids in orphans.named.items():
                self.named.setdefault(key, set()).update(ids)
            self.tables.update(orphans.tables)
        self.resolved += invalid.resolved
        for key, names in invalid.named.items():
            self.named.setdefault(key, set()).update(names)
        for rows, describe in wrong:
            self.found.add_violations(rows, describe, changes)
            if rows.num_rows:
                violation = describe(rows.slice(0, 1).to_pylist()[0])
                for key, ids in changed_entities(accepted, changes, snapshot, rows, violation):
                    known = self.conflicting.get(key)
                    self.conflicting[key] = ids if known is None else pa.concat_arrays([known, ids]).unique()
        self._leave_out_conflicting()
        self.edges_kept = restorer.count(self.tables, self.conflicting)

    def _leave_out_conflicting(self) -> None:
        """Leave out the changes of entities with conflicts: no merge writes them as they are."""
        for key, ids in self.conflicting.items():
            one = self.tables.get(key)
            if one is None:
                continue
            written = one.rows["id"].filter(pc.is_in(one.rows["id"], value_set=ids))
            if len(written):
                known = self._tables.at(self._target.tables[key].ref).lookup("id", written, columns=["id"])
                one = one.without_rows(ids, inserted=len(written) - known.num_rows)
            self.tables[key] = one.without_deleted(ids)

    def _violations(
        self, changes: Mapping[str, TableChange], snapshot: Snapshot
    ) -> Iterator[tuple[pa.Table, Describe]]:
        if self.alignment is not None:
            # Rows of another schema can lack values that the schema of the target requires.
            for key, one in self.tables.items():
                yield from missing_values(self._accepted, key, one.rows)
        yield from violations(self._accepted, changes, snapshot, self._merge._memory)

    def listed(self) -> dict[str, set[str]]:
        """The entities that are in conflict, by type key."""
        return self.found.entities()

    def described(self) -> tuple[Conflict, ...]:
        """The first conflicts with the values of all sides."""
        return self.found.first(self._tables, self._base, self._source, self._target, self.alignment)


def compared_bytes(
    store: Store,
    schemas: Schemas,
    source: Manifest,
    target: Manifest,
    exact_from: Callable[[], int],
    base: Manifest | None = None,
) -> int:
    """The approximate size of the rows that a merge compares, in bytes.

    The size of the tables that differ is an upper bound. If it is below `exact_from`, it is returned. Otherwise the
    changes since the base are determined, and their size is returned. If the caller knows the base, it passes `base`.
    """
    tables = store.tables
    changed = source.tables if base is None else _changed(source, base)
    by_id = {pin.id: pin.ref for pin in target.tables.values()}
    pairs = [(pin.ref, by_id[pin.id]) for pin in changed.values() if pin.id in by_id]
    refs = {ref for pair in pairs if pair[0] != pair[1] for ref in pair}
    bound = sum(fragment.size for ref in refs for fragment in tables.at(ref).fragments())
    if bound < exact_from():
        return bound
    return Merge(store, source, schemas, Choices(), LocalComparer(tables), MemoryLimit()).weight(target, base)


def _changed(source: Manifest, base: Manifest) -> dict[str, TablePin]:
    """The tables of the source whose version differs from that in the base."""
    return {key: pin for key, pin in source.tables.items() if key not in base.tables or base.tables[key].ref != pin.ref}
