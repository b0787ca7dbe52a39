"""Integrity check: all constraints of the schema, on all stored rows.

A write checks only its own changes. This check reads the whole graph. So it also finds rows that another program has
changed, and nodes that never had the edges that `@card` requires. Tables are read in batches, and only the values
that are compared stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit
from omnigraph.errors import Violation, cut
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.type_key import edge_key, node_key, type_key
from omnigraph.storage.file_checks import FileReport
from omnigraph.storage.lookup import in_groups
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.hashing import digests
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rules.constraints import (
    MemoryLimit,
    anti_join,
    bounded_ends,
    cardinality_violations,
    duplicate_hashes,
    duplicate_tuples,
    unique_groups,
    value_rules,
    with_one_of,
    without_nulls,
    wrong_values,
)
from omnigraph.write.rules.violations import (
    SHOWN,
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


class Stored(Protocol):
    """A stored state of the graph that can be read."""

    def batches(self, key: str, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader: ...


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

    Raises:
        ResourceLimitError: a check exceeds its memory limit.
    """
    found = Violations()
    check = _Verification(accepted, stored, memory or MemoryLimit(), found)
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
            check.endpoints(declared)
            check.cardinalities(declared)
    return found


class _Verification:
    def __init__(self, accepted: AcceptedSchema, stored: Stored, memory: MemoryLimit, found: Violations) -> None:
        self.accepted = accepted
        self.stored = stored
        self.memory = memory
        self.found = found

    def _tables(self, key: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        for batch in self.stored.batches(key, columns=columns):
            yield pa.Table.from_batches([batch])

    def _column(self, key: str, name: str) -> pa.ChunkedArray:
        return self.stored.batches(key, columns=[name]).read_all()[name]

    def _add(self, parts: Iterator[pa.Table], describe: Describe, by: str = "id") -> None:
        """Count the violations in all parts of a table. Keeps the first ones, sorted by `by`, with their messages."""
        first: pa.Table | None = None
        total = 0
        for part in parts:
            if part.num_rows == 0:
                continue
            total += part.num_rows
            together = part if first is None else pa.concat_tables([first, part])
            first = together.sort_by(by).slice(0, SHOWN)
        if first is not None:
            self.found.add(first, describe, total)

    def values(self, kind: TypeKind, declared: NodeType | EdgeType) -> None:
        """Check enum, range and pattern rules."""
        key = type_key(kind, declared.name)
        for rule in value_rules(declared):
            tables = self._tables(key, ["id", rule.property])
            self._add((wrong_values(rule, rows) for rows in tables), describe_value(declared.name, rule))

    def identities(self, kind: TypeKind, declared: NodeType | EdgeType) -> None:
        """Check that every id is unique, and equals the id that is derived from the key."""
        key, subject = type_key(kind, declared.name), f"{declared.name}.id"
        repeated = self._sharing(key, ["id"], ["id"], subject)
        counted = repeated.group_by("id", use_threads=False).aggregate([([], "count_all")])
        counted = counted.filter(pc.greater(counted["count_all"], 1))
        self._add(
            iter([counted]),
            lambda row: Violation("unique", subject, row["id"], f"{row['count_all']} entities have this id"),
        )
        members = self.accepted.key_order(kind, declared.name)
        if members is not None:
            builder = RowBuilder(self.accepted, kind, declared.name, 0, Problems())
            tables = self._tables(key, ["id", *members])
            self._add(
                (_misnamed(rows, builder, members) for rows in tables),
                lambda row: Violation(
                    "value", subject, row["id"], f"differs from '{cut(row['derived'])}', the id derived from its key"
                ),
            )

    def uniques(self, kind: TypeKind, declared: NodeType | EdgeType) -> None:
        key = type_key(kind, declared.name)
        for fields in unique_groups(declared):
            subject = unique_subject(declared.name, fields)
            rows = self._sharing(key, ["id", *fields], fields, subject)
            self._add(
                iter([duplicate_tuples(fields, rows, subject, self.memory)]), describe_unique(subject), by="other"
            )

    def _sharing(self, key: str, columns: Sequence[str], fields: Sequence[str], what: str) -> pa.Table:
        """The rows that may have the same tuple as another. Scans twice: hashes all rows, then reads the candidates."""
        group = tuple(fields)
        numbers = [
            digests([rows[name] for name in group])
            for table in self._tables(key, group)
            if (rows := without_nulls(table, group)).num_rows
        ]
        candidates = [self.stored.batches(key, columns=columns).schema.empty_table()]
        if not numbers:
            return candidates[0]
        repeated = duplicate_hashes(np.concatenate(numbers), what, self.memory)
        if len(repeated):
            for table in self._tables(key, columns):
                rows = without_nulls(table, group)
                candidates.append(rows.filter(pa.array(np.isin(digests([rows[name] for name in group]), repeated))))
        return pa.concat_tables(candidates)

    def endpoints(self, edge: EdgeType) -> None:
        key = edge_key(edge.name)
        for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
            nodes = self._column(node_key(node), "id")
            groups = in_groups(self.stored.batches(key, columns=["id", end]), max(_GROUP, len(nodes)))
            self._add(
                (with_one_of(rows, end, anti_join(rows[end], nodes, self.memory)) for rows in groups),
                describe_endpoint(edge.name, end, node),
            )

    def cardinalities(self, edge: EdgeType) -> None:
        for end, card, node in bounded_ends(edge):
            ends = self._column(edge_key(edge.name), end)
            wrong = cardinality_violations(card, self._column(node_key(node), "id"), ends, self.memory)
            self._add(iter([wrong]), describe_cardinality(edge.name, end, card), by="node")


def _misnamed(rows: pa.Table, builder: RowBuilder, members: Sequence[str]) -> pa.Table:
    ids = builder.key_ids({name: rows[name].combine_chunks() for name in members})
    named = pa.table({"id": rows["id"], "derived": ids})
    return named.filter(pc.not_equal(named["id"], named["derived"]))
