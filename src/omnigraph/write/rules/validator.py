"""The validator: checks all constraints of the schema on a change, against the stored state.

`constraints` defines the checks. This module selects the rows that each check reads. The cost
depends on the size of the change: stored rows are looked up by the values of the change, and tables are not scanned.
"""

# See docs/decisions/0242-kept-unique-values-are-not-searched.md

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key
from omnigraph.write.rules.changes import Committed, TableChange, chunked, surviving
from omnigraph.write.rules.constraints import (
    C,
    MemoryLimit,
    anti_join,
    bounded_ends,
    cardinality_violations,
    duplicate_tuples,
    ends_of,
    in_order,
    type_of,
    unique_groups,
    value_rules,
    with_a_tuple_of,
    with_one_of,
    with_zeros,
    without_nulls,
    wrong_values,
)
from omnigraph.write.rules.violations import (
    Describe,
    Violations,
    describe_cardinality,
    describe_endpoint,
    describe_missing,
    describe_unique,
    describe_value,
    unique_subject,
)

_FEW = 1_000
"""Maximum number of rows whose stored values are looked up before a search for equal ones."""


def missing_values(accepted: AcceptedSchema, key: str, rows: pa.Table) -> Iterator[tuple[pa.Table, Describe]]:
    """Rows that lack a value of a required property. This is possible if they were written under another schema.

    Args:
        accepted: the accepted schema.
        key: the type key.
        rows: the rows, with all columns.
    """
    kind, name = TypeKey.parse(key)
    declared = accepted.catalog.declared(kind, name)
    for prop in declared.properties.values():
        if not prop.type.nullable and prop.name in rows.column_names and rows[prop.name].null_count:
            yield rows.filter(rows[prop.name].is_null()).select(["id"]), describe_missing(f"{name}.{prop.name}")


def require_values(accepted: AcceptedSchema, tables: Mapping[str, pa.Table]) -> None:
    """Check that rows of another schema have the values that the schema requires.

    Args:
        accepted: the accepted schema.
        tables: the rows by type key, with all columns.

    Raises:
        ConstraintError: a value is missing.
    """
    found = Violations()
    for key, rows in tables.items():
        for missing, describe in missing_values(accepted, key, rows):
            found.add(missing, describe)
    found.refuse()


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


def value_violations(catalog: Catalog, changes: Mapping[str, TableChange]) -> Violating:
    """The rows that break a rule about single values. These rules are checked before all set-wide constraints."""
    for change in in_order(changes):
        wrong = wrong_records(catalog, change) if change.wrong is None else change.wrong
        for rule, rows in zip(value_rules(type_of(catalog, change)), wrong, strict=True):
            yield rows, describe_value(change.name, rule, new=change.fresh)


def wrong_records(catalog: Catalog, change: TableChange) -> Iterator[pa.Table]:
    """The rows of a change that break a rule about single values, for each rule."""
    for rule in value_rules(type_of(catalog, change)):
        yield wrong_values(rule, change.rows, ends_of(change))


R = TypeVar("R")
"""Rows that break a constraint: an Arrow table, or a Spark job that has not run yet."""


class Validator(ABC, Generic[C, R]):
    """Checks the constraints in a fixed order. Subclasses find the rows, in this process or on Spark.

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
            new = self._with_new_values(change, rows, fields)
            together = rows
            if new.num_rows:
                others = surviving(self.committed, change, change.key, fields, fields[0], with_zeros(new[fields[0]]))
                others = with_a_tuple_of(without_nulls(others.select(rows.column_names), fields), fields, rows)
                together = pa.concat_tables([rows, others.cast(rows.schema)])
            subject = unique_subject(change.name, fields)
            yield duplicate_tuples(fields, together, subject, self.memory), describe_unique(subject)

    def _with_new_values(self, change: TableChange, rows: pa.Table, fields: Sequence[str]) -> pa.Table:
        """The rows whose values differ from those of the stored row with the same id.

        No other stored row has the values of a row that keeps them. So they need no search, which may read the whole
        column: there is no index for `@unique`.
        """
        if change.fresh or change.replaced or rows.num_rows > _FEW:
            return rows
        stored = surviving(self.committed, None, change.key, fields, "id", rows["id"])
        if stored.num_rows == 0:
            return rows
        before = stored.take(pc.index_in(rows["id"], value_set=stored["id"].combine_chunks()))
        same = [pc.fill_null(pc.equal(rows[name], before[name]), False) for name in fields]
        return rows.filter(pc.invert(reduce(pc.and_, same)))

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
        """Missing nodes: edges of the change refer to them, but they are neither in the change nor stored."""
        chunks = [chunk for end, at in ends.items() if at == node for chunk in change.rows[end].chunks]
        wanted = pa.chunked_array(chunks, pa.utf8())
        nodes = self.changes.get(node_key(node))
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
        """The nodes at one end of all edges that the write adds, changes or deletes: the old and the new endpoints."""
        if change.replaced:
            before = self.committed.scan(change.key, columns=[end])
        else:
            before = surviving(self.committed, None, change.key, [end], "id", change.superseded)
        return pa.chunked_array([*change.rows[end].chunks, *before[end].chunks], pa.utf8()).unique()

    def _deleted_nodes(self, node: str) -> pa.Array:
        """The stored nodes of a type that the change deletes."""
        if node not in self._deleted_by_type:
            change = self.changes.get(node_key(node))
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
            nodes = self.changes.get(node_key(node))
            if nodes is not None and (nodes.replaced or nodes.stranding) and len(self._deleted_nodes(node)):
                orphans = surviving(self.committed, change, edge_key(edge.name), [end], end, self._deleted_nodes(node))
                yield orphans.sort_by("id"), describe_endpoint(edge.name, end, node)
