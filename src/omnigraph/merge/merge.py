"""A merge: the rows that a branch brings to another, the conflicts between them, and the writes that follow.

The commit of the source is fixed when the merge begins. What the target has is looked at anew in each attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.ancestors import History
from omnigraph.commit.manifest import Commit, Manifest, models_of
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.commit.writer import TableWrite
from omnigraph.errors import Conflict, ConflictKind, MergeSchemaError, cut
from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.merge.choices import Choices
from omnigraph.merge.classify import DIFFERS, VERDICT, Verdict
from omnigraph.merge.compare import MOST, Compared, Comparer
from omnigraph.merge.orphans import Orphans
from omnigraph.merge.receipt import MergedChanges, MergeOutcome
from omnigraph.merge.sides import Columns, Versions, differing_parts
from omnigraph.storage.blobs import row_schema
from omnigraph.write.changes import TableChange
from omnigraph.write.checks import Room, value_rules
from omnigraph.write.validate import Spell, broken, unique_groups

_KINDS = {
    "value": ConflictKind.VALUE_CONSTRAINT_VIOLATION,
    "unique": ConflictKind.UNIQUE_VIOLATION,
    "endpoint": ConflictKind.ORPHAN_EDGE,
    "cardinality": ConflictKind.CARDINALITY_VIOLATION,
}


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge comes to, against one state of the target.

    Attributes:
        outcome: how the branches are related.
        base: where they parted.
        tables: what becomes of each table that the source has changed, by type key.
        resolved: how many conflicts were resolved by choosing a side.
        conflicts: those that are left; of very many, the first.
        total: how many are left.
    """

    outcome: MergeOutcome
    base: Commit
    tables: Mapping[str, Compared]
    resolved: int
    conflicts: tuple[Conflict, ...]
    total: int
    brought: pa.Table | None = None

    @property
    def changes(self) -> dict[str, MergedChanges]:
        """What changes on the target, by type key."""
        return {
            key: MergedChanges(found.inserted, found.updated, len(found.deleted))
            for key, found in self.tables.items()
            if not found.is_empty
        }


class Merge:
    """Brings what a branch has done to another.

    Args:
        store: the graph.
        source: the branch that is merged, at its head.
        schema_of: the schema that a state of a branch follows.
        choices: which side is right where they disagree.
        comparer: compares the tables.
        room: how much memory a check of constraints may take.
    """

    def __init__(
        self,
        store: Store,
        source: Manifest,
        schema_of: Callable[[Manifest], AcceptedSchema],
        choices: Choices,
        comparer: Comparer,
        room: Room,
    ) -> None:
        self._store = store
        self._source = source
        self._schema_of = schema_of
        self._choices = choices
        self._comparer = comparer
        self._room = room

    def against(self, target: Manifest) -> Merged:
        """What the merge comes to.

        Raises:
            MergeSchemaError: rows cannot be carried between the schemas.
            VersionReclaimedError: cleanup has removed the commit at which the branches parted.
        """
        source = self._source
        history = History(self._store, source, target)
        common = history.common()
        base = history.commit(common.best[-1])
        if base.id == source.head.id:
            return Merged(MergeOutcome.ALREADY_UP_TO_DATE, base, {}, 0, (), 0)
        forward = base.id == target.head.id
        begun = target if forward else self._state_of(base)
        outcome = MergeOutcome.FAST_FORWARD if forward else MergeOutcome.MERGED
        tables = {}
        accepted = self._schema_of(target)
        for versions in self._changed(begun, target):
            checked = _checked(accepted, versions.key)
            tables[versions.key] = self._comparer.compare(versions, self._choices.of(versions.key), checked)
        found = _Conflicts(source.branch, target.branch)
        for compared in tables.values():
            found.add_torn(compared)
        named = {key: set(compared.named.to_pylist()) for key, compared in tables.items()}
        resolved = sum(compared.resolved for compared in tables.values())
        # What the source has was checked when it was written there, and with the same rules.
        if not forward or source.schema_hash != target.schema_hash:
            resolved += self._check(target, tables, found, named)
        self._choices.check_met(named)
        brought = history.brought(common)
        return Merged(outcome, base, tables, resolved, found.first(), found.total, brought)

    def weight(self, target: Manifest) -> int:
        """About how many bytes have to be compared."""
        history = History(self._store, self._source, target)
        base = history.commit(history.common().best[-1])
        if base.id == self._source.head.id:
            return 0
        tables = self._store.tables
        size = 0
        for versions in self._changed(target if base.id == target.head.id else self._state_of(base), target):
            apart = dict(zip(versions.all, differing_parts(tables, versions), strict=True))
            for ref, numbers in apart.items():
                chosen = set(numbers)
                size += sum(part.size for part in tables.fragments(ref) if part.number in chosen)
        return size

    def _state_of(self, base: Commit) -> Manifest:
        return self._store.manifest_of(base)

    # Tables

    def _changed(self, begun: Manifest, target: Manifest) -> list[Versions]:
        """The tables that the source has changed and that the target does not have just so.

        Raises:
            MergeSchemaError: one of them has other columns elsewhere.
        """
        source, tables = self._source, self._store.tables
        if source.schema_hash not in (begun.schema_hash, target.schema_hash):
            raise MergeSchemaError(
                f"'{source.branch}' has a schema that '{target.branch}' does not have",
                hint="a merge carries rows, and no schema: bring the schema there first",
            )
        found: list[Versions] = []
        apart: list[str] = []
        for key, pin in source.tables.items():
            before, there = begun.tables.get(key), target.tables.get(key)
            if before is not None and (pin.ref == before.ref or _same(tables.fingerprint, pin.ref, before.ref)):
                continue
            if there is not None and pin.ref == there.ref:
                continue
            refs = [one.ref for one in (before, pin, there) if one is not None and one.id == pin.id]
            schemas = [tables.schema(ref) for ref in refs]
            if before is None or there is None or len(refs) < 3 or any(not _alike(schemas[0], s) for s in schemas):
                apart.append(key)
                continue
            still = there.ref == before.ref or tables.fingerprint(there.ref) == tables.fingerprint(before.ref)
            columns = Columns.of(schemas[0])
            versions = Versions(
                key,
                before.ref,
                pin.ref,
                before.ref if still else there.ref,
                columns,
                columns.schema(schemas[0]),
            )
            found.append(versions)
        if apart:
            names = ", ".join(key.partition(":")[2] for key in apart)
            raise MergeSchemaError(
                f"'{source.branch}' has changed {names}, which '{target.branch}' does not have with the same columns",
                apart,
                hint="bring the rows to a branch with the schema of the target, and merge that",
            )
        return sorted(found, key=lambda versions: (versions.key.startswith("edge:"), versions.key))

    # Constraints

    def _check(
        self, target: Manifest, tables: dict[str, Compared], found: _Conflicts, named: dict[str, set[str]]
    ) -> int:
        """Find what the merge breaks, and resolve what choosing a side can resolve. Returns how much that was."""
        accepted = self._schema_of(target)
        snapshot = Snapshot(self._store, target)
        settled = 0
        while True:
            changes = {key: self._change(accepted, one) for key, one in tables.items() if not one.is_empty}
            orphans = Orphans(self._store, self._source, target, accepted, tables, self._choices)
            wrong: list[tuple[pa.Table, Spell]] = []
            for rows, spell in broken(accepted, changes, snapshot, self._room):
                if rows.num_rows:
                    wrong.append((orphans.settle(rows, spell(rows.slice(0, 1).to_pylist()[0])), spell))
            if not orphans.settled:
                break
            settled += orphans.settled
            for key, ids in orphans.named.items():
                named.setdefault(key, set()).update(ids)
            tables.update(orphans.tables)
        for rows, spell in wrong:
            found.add_broken(rows, spell, _kind_of(changes))
        return settled

    def _change(self, accepted: AcceptedSchema, compared: Compared) -> TableChange:
        kind, _, name = compared.versions.key.partition(":")
        declared = row_schema(arrow_schema(accepted, TypeKind(kind), name))
        fields = [field for field in declared if field.name in _checked(accepted, compared.versions.key)]
        rows = pa.table([compared.rows[field.name] for field in fields], schema=pa.schema(fields))
        return TableChange(TypeKind(kind), name, rows, compared.deleted, stranding=True)

    # Writing

    def writes(self, merged: Merged, target: Manifest) -> list[TableWrite]:
        """What the merge writes to the target."""
        changes = []
        for key, compared in merged.tables.items():
            if not compared.is_empty:
                ours, theirs = dict(target.tables[key].models), dict(self._source.tables[key].models)
                models = models_of({name: {*ours.get(name, ()), *theirs.get(name, ())} for name in {*ours, *theirs}})
                changes.append((compared, models))
        return self._comparer.writes(changes, target)


def _checked(accepted: AcceptedSchema, key: str) -> list[str]:
    """The columns of a type that constraints look at."""
    kind, _, name = key.partition(":")
    catalog = accepted.catalog
    declared = catalog.nodes[name] if kind == TypeKind.NODE.value else catalog.edges[name]
    ends = ("src", "dst") if kind == TypeKind.EDGE.value else ()
    unique = (field for group in unique_groups(declared) for field in group)
    return list(dict.fromkeys(["id", *ends, *unique, *(rule.property for rule in value_rules(declared))]))


def _same(of: Callable[..., str], one: object, other: object) -> bool:
    return of(one) == of(other)


def _alike(left: pa.Schema, right: pa.Schema) -> bool:
    """Whether two tables have the same columns, whatever is noted about them."""
    return [(f.name, f.type, f.nullable) for f in left] == [(f.name, f.type, f.nullable) for f in right]


class _Conflicts:
    """Conflicts as they are found: all are counted, and the first put into words."""

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target
        self._torn: list[Conflict] = []
        self._broken: list[Conflict] = []
        self.total = 0

    def first(self) -> tuple[Conflict, ...]:
        """The first, in an order that depends on nothing but the conflicts."""
        return (*sorted(self._torn, key=_order), *sorted(self._broken, key=_order))[:MOST]

    def add_torn(self, compared: Compared) -> None:
        kind, _, name = compared.versions.key.partition(":")
        self.total += compared.conflicts
        for row in compared.torn.slice(0, max(0, MOST - len(self._torn))).to_pylist():
            verdict = Verdict(row[VERDICT])
            what, message = self._spelled(verdict, compared.differing(row[DIFFERS]))
            self._torn.append(Conflict(kind, name, row["id"], what, message))

    def _spelled(self, verdict: Verdict, differing: list[str]) -> tuple[ConflictKind, str]:
        source, target = self._source, self._target
        where = f"and differ in {', '.join(differing)}"
        if verdict is Verdict.DIVERGENT_INSERT:
            return ConflictKind.DIVERGENT_INSERT, f"'{source}' and '{target}' have both made it, {where}"
        if verdict is Verdict.DIVERGENT_UPDATE:
            return ConflictKind.DIVERGENT_UPDATE, f"'{source}' and '{target}' have both changed it, {where}"
        gone, changed = (source, target) if verdict is Verdict.DELETED_BY_SOURCE else (target, source)
        return ConflictKind.DELETE_VS_UPDATE, f"'{gone}' has deleted what '{changed}' has changed"

    def add_broken(self, rows: pa.Table, spell: Spell, kind_of: Callable[[str, str], TypeKind]) -> None:
        self.total += rows.num_rows
        order = next(name for name in ("id", "node") if name in rows.column_names)
        for row in rows.sort_by(order).slice(0, max(0, MOST - len(self._broken))).to_pylist():
            said = spell(row)
            name = said.subject.partition(".")[0].partition(" ")[0]
            kind = _KINDS[said.kind]
            if kind is ConflictKind.ORPHAN_EDGE:
                self._broken.append(Conflict(TypeKind.EDGE.value, name, said.entity_id, kind, said.message))
                continue
            message = f"{said.subject}: '{cut(said.entity_id)}': {said.message}"
            if kind is ConflictKind.CARDINALITY_VIOLATION:
                self._broken.append(Conflict(TypeKind.EDGE.value, name, None, kind, message))
            else:
                about = kind_of(name, said.entity_id)
                self._broken.append(Conflict(about.value, name, said.entity_id, kind, message))


def _order(conflict: Conflict) -> tuple[bool, str, str, str, str]:
    """Nodes, then edges, each by name; then by what is wrong, and by id."""
    edge = conflict.entity_kind == TypeKind.EDGE.value
    return edge, conflict.type_name, conflict.kind.value, conflict.entity_id or "", conflict.message


def _kind_of(changes: Mapping[str, TableChange]) -> Callable[[str, str], TypeKind]:
    """Tells whether a type is one of nodes or of edges. Where both have the name, by which has the entity."""

    def kind(name: str, entity: str) -> TypeKind:
        named = [change for change in changes.values() if change.name == name]
        if len(named) == 1:
            return named[0].kind
        own = (c.kind for c in named if pc.any(pc.equal(c.rows["id"], entity)).as_py())
        return next(own, TypeKind.NODE)

    return kind
