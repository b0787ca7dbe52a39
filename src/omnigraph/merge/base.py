"""The base of a merge: the best common ancestor, or a virtual base if there are several.

Several best ancestors are merged with each other first, recursively. Rows on which they conflict are undecided: the
base has no value for them.
"""

# See docs/decisions/0142-several-bases-make-a-virtual-one.md

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.commit.ancestors import History
from omnigraph.commit.manifest import MANIFEST_PATH, Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.errors import BranchNotFoundError, CorruptionError, DamagedFileError, VersionReclaimedError
from omnigraph.merge.changes import change_of
from omnigraph.merge.choices import Choices
from omnigraph.merge.compare import Compared, Comparer
from omnigraph.merge.sides import Columns
from omnigraph.merge.states import Overlay, State
from omnigraph.merge.three_way import SchemaOf, ThreeWay
from omnigraph.merge.violating_entities import violating_entities
from omnigraph.storage.latest_version import VERSIONS
from omnigraph.storage.table_ref import manifest_name, table_directory
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.validator import violations

MAX_DEPTH = 100
"""Maximum depth of recursion. If it is exceeded, the base counts as unknown."""

UNKNOWN = State(None)
"""The state of a commit that cannot be read."""


@dataclass(frozen=True, slots=True)
class Bases:
    """Computes the base of a merge.

    Attributes:
        store: the graph.
        history: the commits of both branches.
        schema_of: returns the schema of a state.
        comparer: compares the tables.
        memory: the memory limit of a constraint check.
        by_strategy: whether a strategy resolves all conflicts. Then a damaged base is an error: without a base, rows
            that only one side has would be conflicts, and the strategy could delete them.
    """

    store: Store
    history: History
    schema_of: SchemaOf
    comparer: Comparer
    memory: MemoryLimit
    by_strategy: bool = False

    def of(self, best: Sequence[str], depth: int = 0) -> State:
        """Compute the base from the ids of the best common ancestors."""
        if depth > MAX_DEPTH:
            return UNKNOWN
        views = [self._view(name) for name in best]
        known = [view for view in views if view is not None]
        if not known or len(known) < len(views):
            return UNKNOWN
        if len(known) > 1 and not all(self._is_readable(view) for view in known):
            return UNKNOWN
        state = State(known[0])
        for i, view in enumerate(known[1:], 1):
            common = self.history.common_of(best[:i], [best[i]])
            base = self.of(common.best, depth + 1) if common.is_certain else UNKNOWN
            state = self._merged(base, state, view)
        return state

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
        """Whether all tables of an ancestor can be read. A single ancestor is checked later, table by table."""
        heads = {pin.ref for head in (self.history.source, self.history.target) for pin in head.tables.values()}
        return all(pin.ref in heads or self.store.tables.at(pin.ref).exists() for pin in view.tables.values())

    def _merged(self, base: State, source: State, target: Manifest) -> State:
        """Merge one ancestor into another. Rows in conflict become undecided: the base has no value for them."""
        accepted = self.schema_of(target)
        budget = self.memory.limit
        work = ThreeWay(self.store.tables, self.comparer, base, source, target, virtual=True, budget=budget)
        tables = work.compare(Choices(), accepted)
        undecided = {key: [one.conflict_rows["id"].combine_chunks()] for key, one in tables.compared.items()}
        for key in source.overlays:
            undecided.setdefault(key, []).append(source.undecided(key))
        changes = {key: change_of(accepted, one) for key, one in tables.compared.items() if not one.is_empty}
        committed = Snapshot(self.store, target)
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
        schema = self.store.tables.at(target.tables[key].ref).schema()
        return Overlay(Columns.of(schema).schema(schema).empty_table(), undecided=undecided)
