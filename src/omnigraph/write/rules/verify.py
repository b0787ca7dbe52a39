"""Integrity check: all constraints of the schema, on all stored rows.

A write checks only its own changes. This check reads the whole graph. So it also finds rows that another program has
changed, and nodes that never had the edges that `@card` requires. Tables are read in batches. Values that are compared
stay in memory up to a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit
from omnigraph.dataclass import dataclass
from omnigraph.errors import Violation, cut
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Cardinality, EdgeType, NodeType
from omnigraph.lang.schema.type_key import edge_key, node_key, type_key
from omnigraph.storage.file_checks import FileReport
from omnigraph.storage.lookup import in_groups
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rules.constraints import (
    COUNT,
    ROW,
    MemoryLimit,
    ValueRule,
    anti_join,
    bounded_ends,
    counts_by,
    holders_of,
    outside_bounds,
    shared_tuples,
    total_counts,
    unique_groups,
    value_rules,
    with_one_of,
    without_nulls,
    wrong_values,
)
from omnigraph.write.rules.search import Find, FirstRows, GroupedRows, LocalSearch, Search, Stored
from omnigraph.write.rules.violations import (
    Describe,
    Violations,
    describe_cardinality,
    describe_endpoint,
    describe_unique,
    describe_value,
    unique_subject,
)

_MEMBERS = ("kind", "subject", "entity_id", "message")
_GROUP = 1_000_000
"""Minimum number of edges that are joined with the nodes at once."""


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """The result of an integrity check.

    Attributes:
        commit: the checked state.
        entities: the number of entities by type key.
        violations: the first hundred violations, in the order of checking.
        total: the number of all violations.
        files: the result of the file check.
    """

    branch: str
    commit: Commit
    entities: Mapping[str, int]
    violations: tuple[Violation, ...]
    total: int
    files: FileReport

    @property
    def ok(self) -> bool:
        """Whether all constraints hold and no file is damaged."""
        return self.total == 0 and not self.files.damages

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object, which is the same in all interfaces."""
        return {
            "branch": self.branch,
            "graph_commit_id": self.commit.id,
            "ok": self.ok,
            "entities": dict(self.entities),
            "total": self.total,
            "violations": [{name: getattr(violation, name) for name in _MEMBERS} for violation in self.violations],
            "files": self.files.to_json(),
        }


def verify(accepted: AcceptedSchema, stored: Stored, memory: MemoryLimit | None = None) -> Violations:
    """Find all violations of all constraints.

    Args:
        accepted: the accepted schema.
        stored: the state.
        memory: the memory limit of each check.
    """
    found, memory = Violations(), memory or MemoryLimit()
    check = Verification(accepted, LocalSearch(stored, memory), found)
    catalog = accepted.catalog
    types: list[tuple[TypeKind, NodeType | EdgeType]] = [
        *((TypeKind.NODE, declared) for _, declared in sorted(catalog.nodes.items())),
        *((TypeKind.EDGE, declared) for _, declared in sorted(catalog.edges.items())),
    ]
    for kind, declared in types:
        check.values(kind, declared)
    for kind, declared in types:
        check.identities(kind, declared)
        check.uniques(kind, declared)
        if isinstance(declared, EdgeType):
            _check_endpoints(declared, stored, memory, found)
            check.cardinalities(declared)
    return found


class Verification:
    """Checks constraints on the rows of a stored state, and collects the violations.

    Args:
        accepted: the accepted schema.
        search: searches the rows of the state.
        found: collects the violations.
    """

    def __init__(self, accepted: AcceptedSchema, search: Search, found: Violations) -> None:
        self.accepted = accepted
        self.search = search
        self.found = found

    def _add(self, first: FirstRows | None, describe: Describe) -> None:
        if first is not None:
            self.found.add(first.rows, describe, first.total)

    def values(self, kind: TypeKind, declared: NodeType | EdgeType, properties: Collection[str] | None = None) -> None:
        """Check enum, range and pattern rules, of all properties or of some."""
        key = type_key(kind, declared.name)
        for rule in value_rules(declared):
            if properties is not None and rule.property not in properties:
                continue
            wrong = self.search.each(key, ["id", rule.property], _wrong(rule), "id")
            self._add(wrong, describe_value(declared.name, rule))

    def identities(self, kind: TypeKind, declared: NodeType | EdgeType) -> None:
        """Check that every id is unique, and equals the id that is derived from the key."""
        key, subject = type_key(kind, declared.name), f"{declared.name}.id"
        ids = GroupedRows(key, ("id",), ("id",), lambda rows: counts_by(rows, "id"))
        self._add(
            self.search.repeated(ids, _repeated_ids, "id"),
            lambda row: Violation("unique", subject, row["id"], f"{row[COUNT]} entities have this id"),
        )
        members = self.accepted.key_order(kind, declared.name)
        if members is not None:
            builder = RowBuilder(self.accepted, kind, declared.name, 0, Problems())
            self._add(
                self.search.each(key, ["id", *members], lambda rows: _misnamed(rows, builder, members), "id"),
                lambda row: Violation(
                    "value", subject, row["id"], f"differs from '{cut(row['derived'])}', the id derived from its key"
                ),
            )

    def required(self, kind: TypeKind, declared: NodeType | EdgeType, name: str) -> None:
        """Check that a property has a value in every row."""
        self._add(
            self.search.each(
                type_key(kind, declared.name),
                ["id", name],
                lambda rows: rows.filter(rows[name].is_null()).select(["id"]),
                "id",
            ),
            lambda row: Violation("required", f"{declared.name}.{name}", row["id"], "has no value"),
        )

    def uniques(
        self,
        kind: TypeKind,
        declared: NodeType | EdgeType,
        groups: Collection[tuple[str, ...]] | None = None,
    ) -> None:
        """Check unique constraints, of all groups of properties or of some."""
        key = type_key(kind, declared.name)
        for fields in unique_groups(declared):
            if groups is not None and fields not in groups:
                continue
            columns = tuple(dict.fromkeys(["id", *fields]))
            rows = GroupedRows(key, columns, fields, _holders(fields))
            shared = self.search.repeated(rows, _shared(fields), "other")
            self._add(shared, describe_unique(unique_subject(declared.name, fields)))

    def cardinalities(self, edge: EdgeType) -> None:
        """Check `@card` and `@card_in`."""
        for end, card, node in bounded_ends(edge):
            nodes = GroupedRows(node_key(node), ("id",), ("node",), lambda rows: rows.rename_columns(["node"]))
            edges = GroupedRows(edge_key(edge.name), (end,), ("node",), _counted_ends(end))
            self._add(
                self.search.grouped([nodes, edges], _outside(card), "node"), describe_cardinality(edge.name, end, card)
            )


def _wrong(rule: ValueRule) -> Find:
    return lambda rows: wrong_values(rule, rows).drop_columns([ROW])


def _repeated_ids(counted: pa.Table) -> pa.Table:
    totals = total_counts(counted, "id")
    return totals.filter(pc.greater(totals[COUNT], 1))


def _holders(fields: tuple[str, ...]) -> Find:
    """For each tuple of values, the smallest and the greatest id of the entities that have it."""
    return lambda rows: holders_of(without_nulls(rows, fields), fields)


def _shared(fields: tuple[str, ...]) -> Find:
    return lambda holders: shared_tuples(holders, fields)


def _counted_ends(end: str) -> Find:
    return lambda rows: counts_by(rows.rename_columns(["node"]), "node")


def _outside(card: Cardinality) -> Find:
    def find(nodes: pa.Table, counted: pa.Table) -> pa.Table:
        totals = total_counts(counted, "node").rename_columns(["node", "edges"])
        return outside_bounds(card, nodes["node"], totals, MemoryLimit())

    return find


def _check_endpoints(edge: EdgeType, stored: Stored, memory: MemoryLimit, found: Violations) -> None:
    """Check that both endpoints of every edge exist."""
    key = edge_key(edge.name)
    for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
        nodes = stored.batches(node_key(node), columns=["id"]).read_all()["id"]
        groups = in_groups(stored.batches(key, columns=["id", end]), max(_GROUP, len(nodes)))
        wrong = (with_one_of(rows, end, anti_join(rows[end], nodes, memory)) for rows in groups)
        first = FirstRows.of(wrong, "id")
        if first is not None:
            found.add(first.rows, describe_endpoint(edge.name, end, node), first.total)


def _misnamed(rows: pa.Table, builder: RowBuilder, members: Sequence[str]) -> pa.Table:
    ids = builder.key_ids({name: rows[name].combine_chunks() for name in members})
    named = pa.table({"id": rows["id"], "derived": ids})
    return named.filter(pc.not_equal(named["id"], named["derived"]))
