"""The one validator: every constraint of the schema, on the change alone, against what is stored.

What a constraint means is said in `checks`; here it is decided which rows it has to look at. That follows the change:
stored rows are looked up by the values that the change brings, never read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintError, Violation
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Cardinality, Catalog, EdgeType, NodeType, Unique
from omnigraph.write.changes import Committed, TableChange, chunked, surviving
from omnigraph.write.checks import Room, ValueRule, outside, sharing, unmatched, value_rules, wrong_values

SHOWN = 100

Spell = Callable[[dict[str, Any]], Violation]
"""Puts a row that breaks a constraint into words."""


class Violations:
    """What was found: everything is counted, the first hundred are put into words."""

    def __init__(self) -> None:
        self.first: list[Violation] = []
        self.total = 0

    def add(self, rows: pa.Table, spell: Spell, total: int | None = None) -> None:
        """Take in rows that break a constraint; `total` says how many there are, if these are only the first."""
        self.total += rows.num_rows if total is None else total
        self.first += [spell(row) for row in rows.slice(0, SHOWN - len(self.first)).to_pylist()]


def validate(
    accepted: AcceptedSchema, changes: Mapping[str, TableChange], committed: Committed, room: Room | None = None
) -> None:
    """Check a change against every constraint.

    Types and groups of properties are taken in name order, so that the first violation is always the same one.

    Args:
        accepted: the schema in force.
        changes: the change of each type, by type key.
        committed: what is stored.
        room: how much memory each check may take.

    Raises:
        ConstraintError: it breaks some.
        ResourceLimitError: a check does not fit the memory.
    """
    found = Violations()
    for rows, spell in _Validator(accepted.catalog, changes, committed, room or Room()).check():
        found.add(rows, spell)
    if found.total:
        raise ConstraintError(tuple(found.first), found.total)


Broken = Iterator[tuple[pa.Table, Spell]]


def in_order(changes: Mapping[str, TableChange]) -> list[TableChange]:
    """Changes in the order of checking: nodes, then edges, each by name."""
    return sorted(changes.values(), key=lambda change: (change.kind is TypeKind.EDGE, change.name))


def type_of(catalog: Catalog, change: TableChange) -> NodeType | EdgeType:
    return (catalog.nodes if change.kind is TypeKind.NODE else catalog.edges)[change.name]


def broken_values(catalog: Catalog, changes: Mapping[str, TableChange]) -> Broken:
    """What is wrong with single values: this comes before everything that compares entities."""
    for change in in_order(changes):
        for rule in value_rules(type_of(catalog, change)):
            yield wrong_values(rule, change.rows), spell_value(change.name, rule)


class _Validator:
    def __init__(self, catalog: Catalog, changes: Mapping[str, TableChange], committed: Committed, room: Room) -> None:
        self.catalog = catalog
        self.changes = changes
        self.committed = committed
        self.room = room
        self._taken: dict[str, pa.Array] = {}

    def check(self) -> Broken:
        yield from broken_values(self.catalog, self.changes)
        for change in in_order(self.changes):
            if change.kind is TypeKind.NODE:
                yield from self._uniques(change)
        for _, edge in sorted(self.catalog.edges.items()):
            own = self.changes.get(f"edge:{edge.name}")
            if own is not None:
                yield from self._uniques(own)
                yield from self._endpoints(own)
            yield from self._stranded(edge, own)
            if own is not None:
                yield from self._cardinalities(own)

    def _change(self, node: str) -> TableChange | None:
        return self.changes.get(f"node:{node}")

    def _uniques(self, change: TableChange) -> Broken:
        for fields in unique_groups(type_of(self.catalog, change)):
            rows = without_nulls(change.rows.select(["id", *fields]), fields)
            if rows.num_rows == 0:
                continue
            others = surviving(self.committed, change, change.key, fields, fields[0], with_zeros(rows[fields[0]]))
            together = pa.concat_tables([rows, without_nulls(others.select(rows.column_names), fields)])
            subject = unique_subject(change.name, fields)
            yield sharing(fields, together, subject, self.room), spell_unique(subject)

    def _endpoints(self, change: TableChange) -> Broken:
        edge = self.catalog.edges[change.name]
        ends = {"src": edge.from_type, "dst": edge.to_type}
        # Ends that lead to the same type are looked for together.
        missing = {node: self._missing(change, node, ends) for node in dict.fromkeys(ends.values())}
        for end, node in ends.items():
            if len(missing[node]):
                wrong = with_one_of(change.rows.select(["id", end]), end, missing[node])
                yield wrong, spell_endpoint(change.name, end, node)

    def _missing(self, change: TableChange, node: str, ends: Mapping[str, str]) -> pa.Array:
        """Nodes of a type that the edges of a change lead to, and that are neither in the change nor stored."""
        chunks = [chunk for end, at in ends.items() if at == node for chunk in change.rows[end].chunks]
        wanted = pa.chunked_array(chunks, pa.utf8())
        nodes = self._change(node)
        if nodes is not None:
            wanted = chunked(unmatched(wanted, nodes.rows["id"], self.room))
        if len(wanted) == 0:
            return wanted.unique()
        stored = surviving(self.committed, nodes, f"node:{node}", ["id"], "id", wanted)
        return unmatched(wanted, stored["id"], self.room)

    def _cardinalities(self, change: TableChange) -> Broken:
        edge = self.catalog.edges[change.name]
        for end, card, node in bounded_ends(edge):
            touched, gone = self._touched(change, end), self._gone(node)
            if len(gone):
                touched = touched.filter(pc.invert(pc.is_in(touched, value_set=gone)))
            if len(touched) == 0:
                continue
            kept = surviving(self.committed, change, change.key, [end], end, touched)
            ends = pa.chunked_array([*kept[end].chunks, *change.rows[end].chunks], pa.utf8())
            wrong = outside(card, pa.chunked_array([touched]), ends, self.room)
            yield wrong, spell_cardinality(edge.name, end, card)

    def _touched(self, change: TableChange, end: str) -> pa.Array:
        """The nodes that an added, changed, moved or deleted edge has, or had, at one end."""
        if change.replaced:
            before = self.committed.scan(change.key, columns=[end])
        else:
            before = surviving(self.committed, None, change.key, [end], "id", change.superseded)
        return pa.chunked_array([*change.rows[end].chunks, *before[end].chunks], pa.utf8()).unique()

    def _gone(self, node: str) -> pa.Array:
        """The stored nodes of a type that the change takes away."""
        if node not in self._taken:
            change = self._change(node)
            if change is None:
                self._taken[node] = pa.array([], pa.utf8())
            elif change.replaced:
                before = self.committed.scan(change.key, columns=["id"])["id"]
                self._taken[node] = unmatched(before, change.rows["id"], self.room)
            else:
                self._taken[node] = change.deleted
        return self._taken[node]

    def _stranded(self, edge: EdgeType, change: TableChange | None) -> Broken:
        """Stored edges that would lose a node which an overwrite takes away."""
        for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
            nodes = self._change(node)
            if nodes is not None and nodes.replaced and len(self._gone(node)):
                left = surviving(self.committed, change, f"edge:{edge.name}", [end], end, self._gone(node))
                yield left.sort_by("id"), spell_endpoint(edge.name, end, node)


# What the schema asks for


def unique_groups(declared: NodeType | EdgeType) -> list[tuple[str, ...]]:
    """The groups of properties whose values no two entities share, in name order."""
    return sorted(c.fields for c in declared.constraints if isinstance(c, Unique))


def bounded_ends(edge: EdgeType) -> Iterator[tuple[str, Cardinality, str]]:
    """The ends of an edge at which the number of edges is bounded, with the bound and the node type there."""
    for end, card, node in (("src", edge.card, edge.from_type), ("dst", edge.card_in, edge.to_type)):
        if card != Cardinality():
            yield end, card, node


def without_nulls(rows: pa.Table, fields: tuple[str, ...]) -> pa.Table:
    """The rows whose fields can equal those of others: a null equals nothing. Both zeros become one number."""
    for name in fields:
        if rows[name].null_count:
            rows = rows.filter(rows[name].is_valid())
    for name in fields:
        if pa.types.is_floating(rows[name].type):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place), pc.add(rows[name], pa.scalar(0.0, rows[name].type)))
    return rows


def with_zeros(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values to look up: where zero is one of them, stored ones may have either sign."""
    if not pa.types.is_floating(values.type) or not pc.any(pc.equal(values, 0.0)).as_py():
        return values
    return pa.chunked_array([*values.chunks, pa.array([-0.0], values.type)])


def with_one_of(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The rows whose column has one of some values, in their order."""
    return rows.filter(pc.is_in(rows[name], value_set=values))


# What is said about it


def unique_subject(owner: str, fields: tuple[str, ...]) -> str:
    return f"{owner}.{fields[0]}" if len(fields) == 1 else f"{owner}.({', '.join(fields)})"


def spell_value(owner: str, rule: ValueRule) -> Spell:
    subject = f"{owner}.{rule.property}"
    return lambda row: Violation("value", subject, row["id"], f"{row[rule.property]!r} {rule.reason}")


def spell_twin(subject: str) -> Spell:
    return lambda row: Violation("unique", subject, row["id"], "two records have this key")


def spell_unique(subject: str) -> Spell:
    return lambda row: Violation("unique", subject, row["id"], f"has the same value as '{row['other']}'")


def spell_endpoint(edge: str, end: str, node: str) -> Spell:
    return lambda row: Violation("endpoint", f"{edge}.{end}", row["id"], f"{end} '{row[end]}' not found in {node}")


def spell_cardinality(edge: str, end: str, card: Cardinality) -> Spell:
    subject = f"{edge} {'@card' if end == 'src' else '@card_in'}"
    bound = f"{card.min}..{'' if card.max is None else card.max}"
    return lambda row: Violation("cardinality", subject, row["node"], f"has {row['edges']} edges, allowed are {bound}")
