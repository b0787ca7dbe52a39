"""A merge: compares two branches, finds conflicts, and computes the writes.

The commit of the source is fixed at the start. If the merge is tried again because the target has changed, it reads the
new state of the target.
"""

# See docs/decisions/0114-a-fast-forward-is-a-merge.md
# See docs/decisions/0116-a-merge-carries-no-schema.md

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.commit.ancestors import History
from omnigraph.commit.manifest import Manifest, models_of
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import TableWrite
from omnigraph.errors import Conflict, MergeSchemaError
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.base import UNKNOWN, Bases
from omnigraph.merge.changes import change_of
from omnigraph.merge.choices import Choices
from omnigraph.merge.compare import Compared, Comparer, LocalComparer
from omnigraph.merge.conflicts import Conflicts
from omnigraph.merge.orphans import Orphans
from omnigraph.merge.receipt import MergedChanges, MergeOutcome
from omnigraph.merge.restored_edges import Decisions, EdgeRestorer
from omnigraph.merge.sides import differing_fragments
from omnigraph.merge.states import State
from omnigraph.merge.three_way import SchemaOf, Tables, ThreeWay
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.validator import violations
from omnigraph.write.rules.violations import Describe


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge against one state of the target.

    Attributes:
        outcome: how the branches are related.
        bases: the ids of the best common ancestors; several are merged into a virtual base.
        tables: the changes of each table that the source changed, by type key.
        resolved: number of resolved conflicts.
        conflicts: the remaining conflicts; at most the first 10,000.
        total: number of remaining conflicts.
        edges_kept: number of edges that stay or are restored, because a choice keeps their node.
        new_commits: the commits that the target does not have yet, as rows of the manifest.
    """

    outcome: MergeOutcome
    bases: tuple[str, ...]
    tables: Mapping[str, Compared]
    resolved: int = 0
    conflicts: tuple[Conflict, ...] = ()
    total: int = 0
    edges_kept: int = 0
    new_commits: pa.Table | None = None

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


class Merge:
    """Merges a branch into another.

    Args:
        store: the graph.
        source: the branch that is merged, at its head.
        schema_of: returns the schema of a state.
        choices: the choices for conflicts.
        comparer: compares the tables.
        memory: the memory limit of a constraint check.
        name: the name of the source in conflicts; by default that of its branch.
    """

    def __init__(
        self,
        store: Store,
        source: Manifest,
        schema_of: SchemaOf,
        choices: Choices,
        comparer: Comparer,
        memory: MemoryLimit,
        name: str | None = None,
    ) -> None:
        self._name = name or source.branch
        self._store = store
        self._source = source
        self._schema_of = schema_of
        self._choices = choices
        self._comparer = comparer
        self._memory = memory

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
        if target.head.id in common.best:
            return self._merged(MergeOutcome.FAST_FORWARD, common.best, State(target), target, new_commits)
        by_strategy = self._choices.default is not None
        bases = Bases(self._store, history, self._schema_of, self._comparer, self._memory, by_strategy)
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
        comparison = _Comparison(self, base, target, self._choices, unchecked=outcome is MergeOutcome.FAST_FORWARD)
        unused = self._choices.unused(comparison.named)
        if unused:
            # An unused choice is valid if another choice has already resolved its conflict. To find this conflict, the
            # comparison runs again without choices.
            plain = _Comparison(self, base, target, Choices(), unchecked=False)
            unused.unused(plain.listed()).refuse()
        conflicts = comparison.found.first(self._store.tables, base, self._source, target)
        tables, resolved, kept = comparison.tables, comparison.resolved, comparison.edges_kept
        return Merged(outcome, bases, tables, resolved, conflicts, comparison.found.total, kept, new_commits)

    def weight(self, target: Manifest) -> int:
        """The approximate number of bytes to compare."""
        history = History(self._store, self._source, target)
        best = history.common().best
        if self._source.head.id in best:
            return 0
        bases = Bases(self._store, history, self._schema_of, self._comparer, self._memory)
        base_state = State(target) if target.head.id in best else bases.of(best[-1:])
        tables = self._store.tables
        size = 0
        for versions in ThreeWay(tables, self._comparer, base_state, State(self._source), target).versions(Tables()):
            fragments_by_ref = dict(zip(versions.all, differing_fragments(tables, versions), strict=True))
            for ref, numbers in fragments_by_ref.items():
                chosen = set(numbers)
                size += sum(part.size for part in tables.at(ref).fragments() if part.number in chosen)
        return size

    def writes(self, merged: Merged, target: Manifest) -> list[TableWrite]:
        """The writes of the merge to the target."""
        changes = []
        for key, compared in merged.tables.items():
            if not compared.is_empty:
                ours, theirs = dict(target.tables[key].models), dict(self._source.tables[key].models)
                models = models_of({name: {*ours.get(name, ()), *theirs.get(name, ())} for name in {*ours, *theirs}})
                changes.append((compared, models))
        return self._comparer.writes(changes, target)


class _Comparison:
    """One comparison of three states: the changes of the tables, and the conflicts.

    Attributes:
        tables: the changes of each table, by type key.
        found: the remaining conflicts.
        named: by type key, the ids of resolved conflicts for which the caller chose a side individually.
        resolved: number of resolved conflicts.
        edges_kept: number of edges that stay or are restored, because a choice keeps their node.
    """

    def __init__(self, merge: Merge, base: State, target: Manifest, choices: Choices, *, unchecked: bool) -> None:
        self._merge = merge
        self._base = base
        self._target = target
        self._choices = choices
        self._accepted = merge._schema_of(target)
        self.tables = self._compared()
        self.found = Conflicts(merge._name, target.branch)
        for compared in self.tables.values():
            self.found.add_conflicts(compared)
        self.named = {key: set(compared.named.to_pylist()) for key, compared in self.tables.items()}
        self.resolved = sum(compared.resolved for compared in self.tables.values())
        self.edges_kept = 0
        # A fast-forward needs no check: the same rules checked the rows of the source when they were written.
        if not unchecked or merge._source.schema_hash != target.schema_hash:
            self._check()

    def _compared(self) -> dict[str, Compared]:
        source, target = self._merge._source, self._target
        base_state = target if self._base.manifest is None else self._base.manifest
        if source.schema_hash not in (base_state.schema_hash, target.schema_hash):
            raise MergeSchemaError(
                f"'{source.branch}' has a schema that '{target.branch}' does not have",
                hint="a merge does not change schemas: apply the schema to the target first",
            )
        merge, budget = self._merge, self._merge._memory.limit
        comparison = ThreeWay(merge._store.tables, merge._comparer, self._base, State(source), target, budget=budget)
        found = comparison.compare(self._choices, self._accepted)
        if found.incompatible:
            names = ", ".join(TypeKey.parse(key).name for key in found.incompatible)
            raise MergeSchemaError(
                f"'{source.branch}' has changed {names}, which '{target.branch}' does not have with the same columns",
                found.incompatible,
                hint="copy the rows to a branch with the schema of the target, and merge that branch",
            )
        return found.compared

    def _check(self) -> None:
        """Find the constraints that the merge breaks, and resolve the conflicts that have a choice."""
        store, source, target, accepted = self._merge._store, self._merge._source, self._target, self._accepted
        snapshot = Snapshot(store, target)
        decisions = Decisions.of(self.tables, self._choices)
        restorer = EdgeRestorer(store.tables, self._base, source, target, accepted)
        while True:
            self.edges_kept += restorer.restore(self.tables, decisions)
            changes = {key: change_of(accepted, one) for key, one in self.tables.items() if not one.is_empty}
            orphans = Orphans(store, source, target, accepted, self.tables, self._choices, decisions)
            wrong: list[tuple[pa.Table, Describe]] = []
            for rows, describe in violations(accepted, changes, snapshot, self._merge._memory):
                if rows.num_rows:
                    wrong.append((orphans.resolve(rows, describe(rows.slice(0, 1).to_pylist()[0])), describe))
            if not orphans.changed:
                break
            self.resolved += orphans.resolved
            for key, ids in orphans.named.items():
                self.named.setdefault(key, set()).update(ids)
            self.tables.update(orphans.tables)
        for rows, describe in wrong:
            self.found.add_violations(rows, describe, changes)

    def listed(self) -> dict[str, set[str]]:
        """The entities that are in conflict, by type key."""
        return self.found.entities()


def compared_bytes(
    store: Store, schema_of: SchemaOf, source: Manifest, target: Manifest, exact_from: Callable[[], int]
) -> int:
    """The approximate size of the rows that a merge compares, in bytes.

    The size of the differing tables is an upper bound. It is returned if it is below `exact_from`; else the changes
    from the base are read, and their size is returned.
    """
    tables = store.tables
    pairs = [(pin.ref, target.tables[key].ref) for key, pin in source.tables.items() if key in target.tables]
    refs = {ref for pair in pairs if pair[0] != pair[1] for ref in pair}
    bound = sum(fragment.size for ref in refs for fragment in tables.at(ref).fragments())
    if bound < exact_from():
        return bound
    return Merge(store, source, schema_of, Choices(), LocalComparer(tables), MemoryLimit()).weight(target)
