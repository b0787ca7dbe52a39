"""The validator: checks all constraints of the schema on a change, against the stored state.

`constraints` defines the constraints as relations. This module selects the rows that each check reads. The cost
depends on the size of the change: stored rows are looked up by the values of the change, and tables are not scanned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintError, Violation, cut, shown
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Cardinality, Catalog, EdgeType, NodeType, Unique
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key
from omnigraph.write.rules.changes import Committed, TableChange, chunked, surviving
from omnigraph.write.rules.constraints import (
    MemoryLimit,
    ValueRule,
    anti_join,
    cardinality_violations,
    duplicate_tuples,
    value_rules,
    wrong_values,
)

SHOWN = 100

Describe = Callable[[dict[str, Any]], Violation]
"""Converts a row that breaks a constraint to a violation with a message."""


class Violations:
    """Collected violations. All are counted; the first hundred are kept with their messages."""

    def __init__(self) -> None:
        self.first: list[Violation] = []
        self.total = 0

    def add(self, rows: pa.Table, describe: Describe, total: int | None = None) -> None:
        """Add rows that break a constraint. `total` is the number of such rows, if `rows` has only the first ones."""
        self.total += rows.num_rows if total is None else total
        self.first += [describe(row) for row in rows.slice(0, SHOWN - len(self.first)).to_pylist()]

    def refuse(self) -> None:
        """Raise the collected violations.

        Raises:
            ConstraintError: there are violations.
        """
        if self.total:
            raise ConstraintError(tuple(self.first), self.total)


def missing_values(accepted: AcceptedSchema, key: str, rows: pa.Table) -> Iterator[tuple[pa.Table, Describe]]:
    """Rows without a value of a required property. Rows that were written under another schema can lack one.

    Args:
        accepted: the accepted schema.
        key: the type key.
        rows: the rows, with all columns.
    """
    kind, name = TypeKey.parse(key)
    declared = accepted.catalog.declared(kind, name)
    for prop in declared.properties.values():
        if not prop.type.nullable and prop.name in rows.column_names and rows[prop.name].null_count:
            yield rows.filter(rows[prop.name].is_null()).select(["id"]), _missing(f"{name}.{prop.name}")


def _missing(subject: str) -> Describe:
    def describe(row: dict[str, Any]) -> Violation:
        return Violation("required", subject, row["id"], "the property is required")

    return describe


def validate(
    accepted: AcceptedSchema,
    changes: Mapping[str, TableChange],
    committed: Committed,
    memory: MemoryLimit | None = None,
) -> None:
    """Check a change against all constraints.

    Types and groups of properties are checked in name order, so the first violation is always the same.

    Args:
        accepted: the accepted schema.
        changes: the change of each type, by type key.
        committed: the stored state.
        memory: the memory limit of each check.

    Raises:
        ConstraintError: the change breaks a constraint.
        ResourceLimitError: a check exceeds its memory limit.
    """
    found = Violations()
    for rows, describe in violations(accepted, changes, committed, memory):
        found.add(rows, describe)
    found.refuse()


def violations(
    accepted: AcceptedSchema,
    changes: Mapping[str, TableChange],
    committed: Committed,
    memory: MemoryLimit | None = None,
) -> Violating:
    """The rows that break each constraint, in the order of `validate`."""
    return _Validator(accepted.catalog, changes, committed, memory or MemoryLimit()).check()


Violating = Iterator[tuple[pa.Table, Describe]]
"""Rows that break a constraint, and the function that describes them."""


class Change(Protocol):
    """The change of one type, in this process or on Spark."""

    @property
    def kind(self) -> TypeKind: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...


C = TypeVar("C", bound=Change)


def in_order(changes: Mapping[str, C]) -> list[C]:
    """Changes in the order of checking: nodes, then edges, each by name."""
    return sorted(changes.values(), key=lambda change: (change.kind is TypeKind.EDGE, change.name))


def type_of(catalog: Catalog, change: Change) -> NodeType | EdgeType:
    return (catalog.nodes if change.kind is TypeKind.NODE else catalog.edges)[change.name]


def value_violations(catalog: Catalog, changes: Mapping[str, TableChange]) -> Violating:
    """The rows that break a rule about single values. These rules are checked before all set-wide constraints."""
    for change in in_order(changes):
        for rule in value_rules(type_of(catalog, change)):
            wrong = wrong_values(rule, change.rows, ends_of(change))
            yield wrong, describe_value(change.name, rule, new=change.fresh)


R = TypeVar("R")
"""Rows that break a constraint: an Arrow table, or a search that Spark has still to run."""


class Validator(ABC, Generic[C, R]):
    """The constraints in the order of checking. Subclasses provide the rows, in this process or on Spark.

    Args:
        catalog: the types.
        changes: the change of each type, by type key.
    """

    def __init__(self, catalog: Catalog, changes: Mapping[str, C]) -> None:
        self.catalog = catalog
        self.changes = changes

    def check(self) -> Iterator[tuple[R, Describe]]:
        """The rows that break each constraint, and the function that describes them."""
        yield from self.values()
        for change in in_order(self.changes):
            if change.kind is TypeKind.NODE:
                yield from self.uniques(change)
        for _, edge in sorted(self.catalog.edges.items()):
            edge_change = self.changes.get(edge_key(edge.name))
            if edge_change is not None:
                yield from self.uniques(edge_change)
                yield from self.endpoints(edge_change)
            yield from self.stranded(edge, edge_change)
            if edge_change is not None:
                yield from self.cardinalities(edge_change)

    @abstractmethod
    def values(self) -> Iterator[tuple[R, Describe]]:
        """Values that break a rule."""

    @abstractmethod
    def uniques(self, change: C) -> Iterator[tuple[R, Describe]]:
        """Entities with duplicate values of a unique constraint."""

    @abstractmethod
    def endpoints(self, change: C) -> Iterator[tuple[R, Describe]]:
        """Edges with an endpoint that does not exist."""

    @abstractmethod
    def stranded(self, edge: EdgeType, change: C | None) -> Iterator[tuple[R, Describe]]:
        """Stored edges that lose a node through an overwrite or a merge."""

    @abstractmethod
    def cardinalities(self, change: C) -> Iterator[tuple[R, Describe]]:
        """Nodes with too many or too few edges."""

    def node_change(self, node: str) -> C | None:
        return self.changes.get(node_key(node))


class _Validator(Validator[TableChange, pa.Table]):
    """Checks rows in this process against a snapshot."""

    def __init__(
        self, catalog: Catalog, changes: Mapping[str, TableChange], committed: Committed, memory: MemoryLimit
    ) -> None:
        super().__init__(catalog, changes)
        self.committed = committed
        self.memory = memory
        self._deleted_by_type: dict[str, pa.Array] = {}

    def values(self) -> Violating:
        return value_violations(self.catalog, self.changes)

    def uniques(self, change: TableChange) -> Violating:
        for fields in unique_groups(type_of(self.catalog, change)):
            rows = without_nulls(change.rows.select(["id", *fields]), fields)
            if rows.num_rows == 0:
                continue
            others = surviving(self.committed, change, change.key, fields, fields[0], with_zeros(rows[fields[0]]))
            others = with_a_tuple_of(without_nulls(others.select(rows.column_names), fields), fields, rows)
            together = pa.concat_tables([rows, others])
            subject = unique_subject(change.name, fields)
            yield duplicate_tuples(fields, together, subject, self.memory), describe_unique(subject)

    def endpoints(self, change: TableChange) -> Violating:
        edge = self.catalog.edges[change.name]
        ends = {"src": edge.from_type, "dst": edge.to_type}
        # Endpoints of the same type are looked up together.
        missing = {node: self._missing(change, node, ends) for node in dict.fromkeys(ends.values())}
        for end, node in ends.items():
            if len(missing[node]):
                wrong = with_one_of(change.rows.select(["id", *ends]), end, missing[node])
                yield wrong, describe_endpoint(change.name, end, node, new=change.fresh)

    def _missing(self, change: TableChange, node: str, ends: Mapping[str, str]) -> pa.Array:
        """Nodes of a type that edges of the change refer to, and that are neither in the change nor stored."""
        chunks = [chunk for end, at in ends.items() if at == node for chunk in change.rows[end].chunks]
        wanted = pa.chunked_array(chunks, pa.utf8())
        nodes = self.node_change(node)
        if nodes is not None:
            wanted = chunked(anti_join(wanted, nodes.rows["id"], self.memory))
        if len(wanted) == 0:
            return wanted.unique()
        stored = surviving(self.committed, nodes, node_key(node), ["id"], "id", wanted)
        return anti_join(wanted, stored["id"], self.memory)

    def cardinalities(self, change: TableChange) -> Violating:
        edge = self.catalog.edges[change.name]
        for end, card, node in bounded_ends(edge):
            touched, deleted = self._touched(change, end), self._deleted_nodes(node)
            if len(deleted):
                touched = touched.filter(pc.invert(pc.is_in(touched, value_set=deleted)))
            if len(touched) == 0:
                continue
            unchanged = surviving(self.committed, change, change.key, [end], end, touched)
            ends = pa.chunked_array([*unchanged[end].chunks, *change.rows[end].chunks], pa.utf8())
            wrong = cardinality_violations(card, pa.chunked_array([touched]), ends, self.memory)
            yield wrong, describe_cardinality(edge.name, end, card)

    def _touched(self, change: TableChange, end: str) -> pa.Array:
        """The nodes at one end of the added, changed, moved or deleted edges, before and after the change."""
        if change.replaced:
            before = self.committed.scan(change.key, columns=[end])
        else:
            before = surviving(self.committed, None, change.key, [end], "id", change.superseded)
        return pa.chunked_array([*change.rows[end].chunks, *before[end].chunks], pa.utf8()).unique()

    def _deleted_nodes(self, node: str) -> pa.Array:
        """The stored nodes of a type that the change deletes."""
        if node not in self._deleted_by_type:
            change = self.node_change(node)
            if change is None:
                self._deleted_by_type[node] = pa.array([], pa.utf8())
            elif change.replaced:
                before = self.committed.scan(change.key, columns=["id"])["id"]
                self._deleted_by_type[node] = anti_join(before, change.rows["id"], self.memory)
            else:
                self._deleted_by_type[node] = change.deleted
        return self._deleted_by_type[node]

    def stranded(self, edge: EdgeType, change: TableChange | None) -> Violating:
        for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
            nodes = self.node_change(node)
            if nodes is not None and (nodes.replaced or nodes.stranding) and len(self._deleted_nodes(node)):
                orphans = surviving(self.committed, change, edge_key(edge.name), [end], end, self._deleted_nodes(node))
                yield orphans.sort_by("id"), describe_endpoint(edge.name, end, node)


# Constraints of the schema


def unique_groups(declared: NodeType | EdgeType) -> list[tuple[str, ...]]:
    """The groups of properties with a unique constraint, in name order."""
    return sorted(c.fields for c in declared.constraints if isinstance(c, Unique))


def bounded_ends(edge: EdgeType) -> Iterator[tuple[str, Cardinality, str]]:
    """The ends of an edge type that have a cardinality, each with its bounds and its node type."""
    for end, card, node in (("src", edge.card, edge.from_type), ("dst", edge.card_in, edge.to_type)):
        if card != Cardinality():
            yield end, card, node


def without_nulls(rows: pa.Table, fields: tuple[str, ...]) -> pa.Table:
    """The rows without null fields, because null equals nothing. Negative zero becomes zero."""
    for name in fields:
        if rows[name].null_count:
            rows = rows.filter(rows[name].is_valid())
    for name in fields:
        if pa.types.is_floating(rows[name].type):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place), pc.add(rows[name], pa.scalar(0.0, rows[name].type)))
    return rows


def with_zeros(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values to look up. If they contain zero, negative zero is added."""
    if not pa.types.is_floating(values.type) or not pc.any(pc.equal(values, 0.0)).as_py():
        return values
    return pa.chunked_array([*values.chunks, pa.array([-0.0], values.type)])


def with_a_tuple_of(others: pa.Table, fields: tuple[str, ...], rows: pa.Table) -> pa.Table:
    """The rows of `others` that have the same tuple as a row of `rows`."""
    if others.num_rows == 0 or len(fields) == 1:  # `others` was looked up by the values of this field
        return others
    # A join drops the nullability of columns.
    return others.join(rows.select(list(fields)), list(fields), join_type="left semi").cast(others.schema)


def with_one_of(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The rows whose column has one of the values, in row order."""
    return rows.filter(pc.is_in(rows[name], value_set=values))


# Messages


def unique_subject(owner: str, fields: tuple[str, ...]) -> str:
    return f"{owner}.{fields[0]}" if len(fields) == 1 else f"{owner}.({', '.join(fields)})"


def ends_of(change: Change) -> tuple[str, ...]:
    return ("src", "dst") if change.kind is TypeKind.EDGE else ()


def described(owner: str, row: Mapping[str, Any]) -> str:
    """A description of a new entity, for messages that do not show its generated id."""
    return f"from {shown(row['src'])} to {shown(row['dst'])}" if "src" in row else f"a new {owner}"


def describe_value(owner: str, rule: ValueRule, *, new: bool = False) -> Describe:
    subject = f"{owner}.{rule.property}"
    return lambda row: Violation(
        "value",
        subject,
        row["id"],
        f"{shown(row[rule.property])} {rule.reason}",
        described=described(owner, row) if new else "",
    )


def describe_duplicate_key(subject: str) -> Describe:
    return lambda row: Violation("unique", subject, row["id"], "two records have this key")


def describe_unique(subject: str) -> Describe:
    def describe(row: dict[str, Any]) -> Violation:
        values = [shown(value) for value in row["shared"].values()]
        held = values[0] if len(values) == 1 else f"({', '.join(values)})"
        return Violation("unique", subject, row["id"], f"has {held}, and so has '{cut(row['other'])}'", row["other"])

    return describe


def describe_endpoint(edge: str, end: str, node: str, *, new: bool = False) -> Describe:
    return lambda row: Violation(
        "endpoint",
        f"{edge}.{end}",
        row["id"],
        f"{end} {shown(row[end])} not found in {node}",
        described=described(edge, row) if new else "",
    )


def describe_cardinality(edge: str, end: str, card: Cardinality) -> Describe:
    subject = f"{edge} {'@card' if end == 'src' else '@card_in'}"
    bound = f"{card.min}..{'' if card.max is None else card.max}"
    return lambda row: Violation("cardinality", subject, row["node"], f"has {row['edges']} edges, allowed are {bound}")
