"""The base of a merge: the best common ancestor, or a virtual base if there are several.

Several best ancestors are merged with each other first, recursively. Rows on which they conflict are undecided: the
base has no value for them.
"""

# See docs/decisions/0142-several-bases-make-a-virtual-one.md

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from omnigraph.commit.ancestors import History
from omnigraph.commit.manifest import MANIFEST_PATH, Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    BranchNotFoundError,
    CorruptionError,
    DamagedFileError,
    MergeSchemaError,
    VersionReclaimedError,
)
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.changes import change_of
from omnigraph.merge.choices import Choices
from omnigraph.merge.compare import Compared, Comparer
from omnigraph.merge.property_level import Levels
from omnigraph.merge.schema_alignment import Alignment, Schemas, alignment_of
from omnigraph.merge.sides import Columns
from omnigraph.merge.states import Overlay, State
from omnigraph.merge.three_way import ThreeWay
from omnigraph.merge.violating_entities import violating_entities
from omnigraph.storage.latest_version import VERSIONS
from omnigraph.storage.table_ref import manifest_name, table_directory
from omnigraph.write.rules.changes import Committed
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.validator import violations

MAX_DEPTH = 100
"""Maximum depth of recursion. If it is exceeded, the base counts as unknown."""

UNKNOWN = State(None)
"""The state of a commit that cannot be read."""


class _DifferentSchemasError(Exception):
    """The ancestors of a merge have different schemas."""

    def __init__(self, view: Manifest) -> None:
        super().__init__(view.schema_hash)
        self.view = view


@dataclass(frozen=True, slots=True)
class Bases:
    """Computes the base of a merge.

    Attributes:
        store: the graph.
        history: the commits of both branches.
        schemas: returns the schema of a state of the graph.
        comparer: compares the tables.
        memory: the memory limit of a constraint check.
        levels: the merge level of each type (row or property).
        by_strategy: whether a strategy resolves all conflicts. In this case, a damaged base is an error: without a
            base, rows that only one side has would be conflicts, and the strategy could delete them.
        now: the value of `now()` in defaults, in milliseconds.
        alignment: converts rows of all states to the schema of the target; None while all have the same schema.
    """

    store: Store
    history: History
    schemas: Schemas
    comparer: Comparer
    memory: MemoryLimit
    levels: Levels | None = None
    by_strategy: bool = False
    now: int = 0
    alignment: Alignment | None = None

    def of(self, best: Sequence[str]) -> State:
        """Compute the base from the ids of the best common ancestors.

        Raises:
            MergeSchemaError: the states have different schemas, the rows of a type are unknown in the base for this
                reason, and a strategy would resolve their conflicts.
        """
        try:
            return self._of(best)
        except _DifferentSchemasError as difference:
            target, source = self.history.target, self.history.source
            others = [difference.view, source]
            aligned = replace(self, alignment=alignment_of(self.store, self.schemas, target, others, self.now))
        found = aligned._of(best)
        if self.by_strategy and found.manifest is not None and found.unknown:
            names = ", ".join(sorted(TypeKey.parse(key).name for key in found.unknown))
            raise MergeSchemaError(
                f"the common ancestors have different schemas, so a strategy could delete entities of {names}",
                sorted(found.unknown),
                hint="merge without a strategy, and resolve the conflicts of these types one by one",
            )
        # The caller aligns the stored state. The overlays already have the types and columns of the target.
        stored = None if found.manifest is None else self._view(found.manifest.head.id)
        return replace(found, manifest=stored)

    def _of(self, best: Sequence[str], depth: int = 0) -> State:
        if depth > MAX_DEPTH:
            return UNKNOWN
        views = [self._view(name) for name in best]
        known = [view for view in views if view is not None]
        if not known or len(known) < len(views):
            return UNKNOWN
        if len(known) > 1 and not all(self._is_readable(view) for view in known):
            return UNKNOWN
        if self.alignment is None and (depth or len(known) > 1):
            heads = self.history.source, self.history.target
            for view in (*known, *heads):
                if view.schema_hash != self.history.target.schema_hash:
                    raise _DifferentSchemasError(view)
        state = State(self._aligned(known[0]) if depth or len(known) > 1 else known[0])
        for i, view in enumerate(known[1:], 1):
            common = self.history.common_of(best[:i], [best[i]])
            base = self._of(common.best, depth + 1) if common.is_certain else UNKNOWN
            state = self._merged(base, state, self._aligned(view))
        return state

    def _aligned(self, view: Manifest) -> Manifest:
        if self.alignment is None:
            return view
        self.alignment.include(view, self.schemas.version_at(Snapshot(self.store, view))[1])
        return self.alignment.view(view)

    def _view(self, name: str) -> Manifest | None:
        try:
            commit = self.history.commit(name)
        except (VersionReclaimedError, BranchNotFoundError, CorruptionError):
            return None
        try:
            return self.store.manifest_of(commit)
        except (VersionReclaimedError, BranchNotFoundError, CorruptionError):
            if not self.by_strategy or self.store.manifest.open(commit.ledger) is None:
                return None
        # The missing version is damage: cleanup removes the manifest of a deleted branch only as a whole, and never a
        # single version that a merge needs.
        path = f"{table_directory(MANIFEST_PATH, commit.ledger)}/{VERSIONS}/{manifest_name(commit.manifest_version)}"
        raise DamagedFileError(
            str(self.store.objects.uri),
            path,
            "it is missing, and it is the base of the merge",
            hint="restore the file from a backup; or merge without a strategy, so that differing rows are conflicts",
        )

    def _is_readable(self, view: Manifest) -> bool:
        """Whether all tables of an ancestor can be read.

        This is called if there are several ancestors. The tables of a single ancestor are checked during the merge.
        """
        heads = {pin.ref for head in (self.history.source, self.history.target) for pin in head.tables.values()}
        return all(pin.ref in heads or self.store.tables.at(pin.ref).exists() for pin in view.tables.values())

    def _merged(self, base: State, source: State, target: Manifest) -> State:
        """Merge one ancestor into another. Rows in conflict become undecided: the virtual base lacks their values."""
        alignment, budget = self.alignment, self.memory.limit
        # Without an alignment, the ancestors have the schema of the branch, too.
        tables_of_states, comparer, accepted = self.store.tables, self.comparer, self.schemas.of(self.history.target)
        committed: Committed = Snapshot(self.store, target)
        if alignment is not None:
            tables_of_states = alignment.tables
            comparer = comparer.aligned(tables_of_states)
            committed = alignment.rows(target)
        states = base, source, target
        work = ThreeWay(tables_of_states, comparer, *states, self.levels, alignment, complete=True, budget=budget)
        tables = work.compare(Choices(), accepted)
        undecided = {key: [one.conflict_rows["id"].combine_chunks()] for key, one in tables.compared.items()}
        for key in source.overlays:
            undecided.setdefault(key, []).append(source.undecided(key))
        changes = {key: change_of(accepted, one) for key, one in tables.compared.items() if not one.is_empty}
        for rows, describe in violations(accepted, changes, committed, self.memory):
            if rows.num_rows:
                violation = describe(rows.slice(0, 1).to_pylist()[0])
                for key, ids in violating_entities(accepted, changes, committed, rows, violation):
                    undecided.setdefault(key, []).append(ids)
        overlays = {}
        for key, ids in undecided.items():
            if key in target.tables:
                overlay = self._overlay(key, tables.compared.get(key), pa.concat_arrays(ids).unique(), target)
                if len(overlay.ids):
                    overlays[key] = overlay
        return State(target, overlays, frozenset([*tables.incompatible, *tables.unknown]))

    def _overlay(self, key: str, compared: Compared | None, undecided: pa.Array, target: Manifest) -> Overlay:
        if compared is not None:
            return Overlay(compared.rows, compared.deleted, undecided)
        tables = self.store.tables if self.alignment is None else self.alignment.tables
        schema = tables.at(target.tables[key].ref).schema()
        return Overlay(Columns.of(schema).schema(schema).empty_table(), undecided=undecided)
