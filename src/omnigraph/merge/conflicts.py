"""Collects the conflicts of a merge. Counts all; describes only the first ones, with the values of all three sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.dataclass import dataclass
from omnigraph.errors import Conflict, ConflictKind, Violation, cut
from omnigraph.lang.arrow import readable
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import TypeKey, edge_key, type_key
from omnigraph.merge.classify import DIFFERS, ROW_ID, UNDECIDED, VERDICT, Verdict, compared
from omnigraph.merge.compare import MAX_CONFLICTS, Compared
from omnigraph.merge.schema_alignment import Alignment, fill_lacking
from omnigraph.merge.sides import BLOB_HASH, Columns
from omnigraph.merge.states import State
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rules.changes import TableChange
from omnigraph.write.rules.violations import Describe

_KINDS = {
    "value": ConflictKind.VALUE_CONSTRAINT_VIOLATION,
    "required": ConflictKind.VALUE_CONSTRAINT_VIOLATION,
    "unique": ConflictKind.UNIQUE_VIOLATION,
    "endpoint": ConflictKind.ORPHAN_EDGE,
    "cardinality": ConflictKind.CARDINALITY_VIOLATION,
}
_LONGEST_TEXT, _LONGEST_LIST = 1000, 100


@dataclass(frozen=True, slots=True)
class _Draft:
    """A conflict without its values.

    Attributes:
        key: the type key of the entities.
        names: the properties to show; if None, the properties that differ between the states that have the entity.
        node: for a cardinality conflict, the end (`src` or `dst`) and the id of the node whose edges are counted.
    """

    conflict: Conflict
    key: str
    names: tuple[str, ...] | None
    node: tuple[str, str] | None = None


class Conflicts:
    """The conflicts of a merge.

    Args:
        source: the name of the branch that is merged.
        target: the name of the branch that it is merged into.
    """

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target
        self._row_conflicts: list[_Draft] = []
        self._violations: list[_Draft] = []
        self.total = 0

    def add_conflicts(self, compared: Compared) -> None:
        """Add the rows on which the branches disagree."""
        key = compared.versions.key
        kind, name = TypeKey.parse(key)
        self.total += compared.conflicts
        for row in compared.conflict_rows.slice(0, max(0, MAX_CONFLICTS - len(self._row_conflicts))).to_pylist():
            verdict, differing = Verdict(row[VERDICT]), compared.differing(row[DIFFERS])
            what, message = self._describe(verdict, differing, undecided=row[UNDECIDED])
            conflict = Conflict(kind.value, name, row["id"], what, message, base_undecided=row[UNDECIDED])
            self._row_conflicts.append(_Draft(conflict, key, tuple(differing) if differing else None))

    def _describe(self, verdict: Verdict, differing: list[str], *, undecided: bool) -> tuple[ConflictKind, str]:
        source, target = self._source, self._target
        if verdict is Verdict.SAME_CHANGE:
            return ConflictKind.SAME_CHANGE, f"'{source}' and '{target}' have made the same change"
        where = f"differ in {', '.join(differing)}"
        if verdict in (Verdict.DIVERGENT_INSERT, Verdict.DIVERGENT_UPDATE):
            made = verdict is Verdict.DIVERGENT_INSERT
            kind = ConflictKind.DIVERGENT_INSERT if made else ConflictKind.DIVERGENT_UPDATE
            if undecided:
                return kind, f"'{source}' and '{target}' {where}, and the base value is unknown"
            return kind, f"'{source}' and '{target}' have both {'created' if made else 'changed'} it, and {where}"
        deleter, changer = (source, target) if verdict is Verdict.DELETED_BY_SOURCE else (target, source)
        if undecided:
            message = f"'{changer}' has it and '{deleter}' does not, and the base value is unknown"
            return ConflictKind.DELETE_VS_UPDATE, message
        return ConflictKind.DELETE_VS_UPDATE, f"'{deleter}' has deleted it, and '{changer}' has changed it"

    def add_violations(self, rows: pa.Table, describe: Describe, changes: Mapping[str, TableChange]) -> None:
        """Add the rows that break a constraint in the merged state."""
        self.total += rows.num_rows
        order = next(name for name in ("id", "node") if name in rows.column_names)
        for row in rows.sort_by(order).slice(0, max(0, MAX_CONFLICTS - len(self._violations))).to_pylist():
            self._violations.append(_violation_draft(describe(row), changes))

    def entities(self) -> dict[str, set[str]]:
        """The entities that have conflicts, by type key."""
        found: dict[str, set[str]] = {}
        for draft in (*self._row_conflicts, *self._violations):
            if draft.conflict.entity_id is not None:
                found.setdefault(draft.key, set()).add(draft.conflict.entity_id)
        return found

    def first(
        self,
        tables: TableStorage,
        base: State,
        source: Manifest,
        target: Manifest,
        alignment: Alignment | None = None,
    ) -> tuple[Conflict, ...]:
        """The first conflicts in a deterministic order, with the values of all sides."""
        drafts = [*sorted(self._row_conflicts, key=_order), *sorted(self._violations, key=_order)][:MAX_CONFLICTS]
        sides = _Sides(tables, base, State(source), State(target), alignment)
        by_key: dict[str, list[int]] = {}
        for i, draft in enumerate(drafts):
            by_key.setdefault(draft.key, []).append(i)
        found = [draft.conflict for draft in drafts]
        for key, numbers in by_key.items():
            for i, conflict in zip(numbers, sides.filled(key, [drafts[i] for i in numbers]), strict=True):
                found[i] = conflict
        return tuple(found)


def _violation_draft(violation: Violation, changes: Mapping[str, TableChange]) -> _Draft:
    name = violation.subject.partition(".")[0].partition(" ")[0]
    kind = _KINDS[violation.kind]
    edge, key = TypeKind.EDGE.value, edge_key(name)
    if kind is ConflictKind.ORPHAN_EDGE:
        return _Draft(Conflict(edge, name, violation.entity_id, kind, violation.message), key, ("src", "dst"))
    message = f"{violation.subject}: '{cut(violation.entity_id)}': {violation.message}"
    if kind is ConflictKind.CARDINALITY_VIOLATION:
        end = "dst" if violation.subject.endswith("@card_in") else "src"
        return _Draft(Conflict(edge, name, None, kind, message), key, (), (end, violation.entity_id))
    about = _kind_of(changes, name, violation.entity_id)
    names = violation.subject.partition(".")[2].removeprefix("(").removesuffix(")").split(", ")
    return _Draft(Conflict(about.value, name, violation.entity_id, kind, message), type_key(about, name), tuple(names))


def _order(draft: _Draft) -> tuple[bool, str, str, str, str]:
    """Sort key: nodes, then edges, each by name; then by kind of conflict, and by id."""
    conflict = draft.conflict
    edge = conflict.entity_kind == TypeKind.EDGE.value
    return edge, conflict.type_name, conflict.kind.value, conflict.entity_id or "", conflict.message


def _kind_of(changes: Mapping[str, TableChange], name: str, entity: str) -> TypeKind:
    """Whether a name is that of a node type or of an edge type. If both exist, the one that has the entity."""
    named = [change for change in changes.values() if change.name == name]
    if len(named) == 1:
        return named[0].kind
    kinds = (c.kind for c in named if pc.any(pc.equal(c.rows["id"], entity)).as_py())
    return next(kinds, TypeKind.NODE)


class _Sides:
    """The values of entities in the base, the target and the source."""

    def __init__(
        self, tables: TableStorage, base: State, source: State, target: State, alignment: Alignment | None
    ) -> None:
        self._tables = tables
        self._alignment = alignment
        self._base = base
        self._states = (base, target, source)

    def filled(self, key: str, drafts: Sequence[_Draft]) -> list[Conflict]:
        """Complete the conflicts of one type with the values of the entities in the three states."""
        ids = [draft.conflict.entity_id for draft in drafts if draft.conflict.entity_id is not None]
        named = {name for draft in drafts for name in draft.names or ()}
        whole = any(draft.names is None for draft in drafts)
        tables = self._completed(key, [self._rows(state, key, ids, None if whole else named) for state in self._states])
        found = [{} if rows is None else shown_rows(rows) for rows in tables]
        counts = [self._counts(state, key, drafts) for state in self._states]
        undecided = set(self._base.undecided(key).to_pylist())
        filled = []
        for draft in drafts:
            name = draft.conflict.entity_id
            undecided_base = draft.conflict.base_undecided or self._base.is_unknown(key) or name in undecided
            if draft.node is not None:
                base, ours, theirs = (None if count is None else {"edges": count[draft.node]} for count in counts)
            else:
                rows = [one.get(name or "") for one in found]
                base, ours, theirs = _chosen(draft.names, [None if undecided_base else rows[0], *rows[1:]])
            filled.append(
                replace(
                    draft.conflict,
                    base=None if undecided_base else base,
                    ours=ours,
                    theirs=theirs,
                    base_undecided=undecided_base,
                )
            )
        return filled

    def _rows(self, state: State, key: str, ids: list[str], names: set[str] | None) -> pa.Table | None:
        """The rows of some entities; None if they cannot be read."""
        pin = state.pin(key)
        if pin is None or state.is_unknown(key) or not ids or not self._tables.at(pin.ref).exists():
            return None
        every = Columns.of(self._tables.at(pin.ref).schema())
        columns = every if names is None else every.only(names)
        return state.rows(self._tables, key, pin.ref, pa.array(ids, pa.utf8()), columns).combine_chunks()

    def _completed(self, key: str, found: list[pa.Table | None]) -> list[pa.Table | None]:
        """The rows of the base, the target and the source, with values for the columns that one of them lacks."""
        base, target, source = found
        if self._alignment is None or target is None or source is None:
            return found
        pins = [state.pin(key) for state in self._states]
        refs = [None if pin is None else pin.ref for pin in pins]
        assert refs[1] is not None
        assert refs[2] is not None
        known = refs[1] if base is None or refs[0] is None else refs[0]
        some = self._alignment.lacking(known, refs[2], refs[1])
        lacking = some[0] & set(target.column_names), some[1] & set(target.column_names), some[2]
        rows = fill_lacking((target if base is None else base, source, target), lacking, self._alignment.fill(key))
        return [None if base is None else rows[0], rows[2], rows[1]]

    def _counts(self, state: State, key: str, drafts: Sequence[_Draft]) -> Mapping[tuple[str, str], int] | None:
        """The number of edges at each node in `drafts`, by end (`src` or `dst`) and node id; None if it is unknown."""
        wanted = [draft.node for draft in drafts if draft.node is not None]
        pin = state.pin(key)
        found = dict.fromkeys(wanted, 0)
        if not wanted:
            return found
        if pin is None or state.is_unknown(key) or key in state.overlays or not self._tables.at(pin.ref).exists():
            return None
        for end in ("src", "dst"):
            nodes = pa.chunked_array([[node for at, node in wanted if at == end]], pa.utf8())
            for node in self._tables.at(pin.ref).lookup(end, nodes, columns=[end])[end].to_pylist():
                found[end, node] += 1
        return found


def shown_rows(rows: pa.Table) -> dict[str, dict[str, Any]]:
    """Rows for display, by id. Long texts and lists are truncated. A blob is shown as a digest."""
    values = {name: _short(rows[name].combine_chunks()) for name in ("id", *compared(rows))}
    texts = {name: column.to_pylist() for name, column in values.items()}
    for name in (name for name in texts if rows.schema.field(name).type == BLOB_HASH):
        texts[name] = [None if cell is None else f"sha256:{cell[1:].hex()}" for cell in texts[name]]
    return {
        entity: {name: texts[name][i] for name in texts if name not in ("id", ROW_ID)}
        for i, entity in enumerate(texts["id"])
    }


def _chosen(names: Sequence[str] | None, rows: Sequence[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """The values to show for each state. If no property names are given: the values that differ between the states."""
    present = [row for row in rows if row is not None]
    if names is None:
        every = list(present[0]) if present else []
        names = [name for name in every if len(present) < 2 or any(row[name] != present[0][name] for row in present)]
    return [None if row is None else {name: row[name] for name in names if name in row} for row in rows]


def _short(column: pa.Array) -> pa.Array:
    """Values for display: long texts and lists are truncated."""
    kind = column.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(column, 0, _LONGEST_TEXT)
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pc.list_slice(readable(column), 0, _LONGEST_LIST, return_fixed_size_list=False)
    return readable(column)
