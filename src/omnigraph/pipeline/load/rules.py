"""The constraints of a load on Spark: a shuffle brings rows with equal values together, and tasks compare them.

`write.rules` defines the constraints and their order. This module defines which rows a shuffle brings together. Some
checks first compute a small set of candidates, such as the missing nodes. They shuffle the loaded rows only if there
are candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.dataclass import dataclass
from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key, type_key
from omnigraph.pipeline.load.compare_columns import IDS, VALUE, CompareKey, end_of, ends_at, tuples
from omnigraph.pipeline.load.compare_rows import (
    also_loaded,
    comparable_rows,
    dangling_edges,
    duplicate_id_count,
    not_loaded,
    only_column,
    outside_cardinality,
    shared_tuples,
    stored_ids,
    stranded_edges,
    unmatched_values,
)
from omnigraph.pipeline.load.partition_task import LoadedRows, PartRows, StoredRows
from omnigraph.pipeline.spark.shuffle import (
    HashPartitions,
    Relation,
    Shuffle,
    Side,
    block_schema,
)
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.storage.blobs import row_schema
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.rules.constraints import ROW, bounded_ends, in_order, type_of, unique_groups, value_rules
from omnigraph.write.rules.duplicate_keys import duplicate_ids
from omnigraph.write.rules.validator import Validator
from omnigraph.write.rules.violations import (
    Describe,
    describe_cardinality,
    describe_endpoint,
    describe_unique,
    describe_value,
    unique_subject,
)

_STORED_FRAGMENTS = 4
"""Maximum number of fragments of a stored table per task."""


@dataclass(slots=True)
class LoadedType:
    """The rows of one type in a load, as parts in input order.

    Attributes:
        parts: the parts.
        replaced: whether the load replaces all stored rows of the type.
        dropped: by part, the positions of the rows that a later record with the same id replaces.
    """

    kind: TypeKind
    name: str
    parts: list[PartRows]
    replaced: bool
    dropped: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return type_key(self.kind, self.name)

    @property
    def fresh(self) -> bool:
        """Whether all ids were generated for this load."""
        return not any(part.named for part in self.parts)

    @property
    def read(self) -> int:
        """The number of rows in the input."""
        return sum(part.rows for part in self.parts)

    @property
    def count(self) -> int:
        """The number of rows, without those that a later record with the same id replaces."""
        return self.read - sum(len(rows) for rows in self.dropped.values())

    @property
    def starts(self) -> list[int]:
        """The number of the first row of each part."""
        return [0, *np.cumsum([part.rows for part in self.parts]).tolist()][:-1]


@dataclass(frozen=True, slots=True)
class ViolationSearch:
    """A search on Spark for the rows that break a constraint. It has not run yet.

    Attributes:
        rows: returns the rows that break the constraint, in any order.
        order: the column to sort the reported rows by.
        candidates: if given, the search runs only if this relation is not empty.
    """

    rows: Callable[[], Relation]
    order: str
    candidates: Relation | None = None


@dataclass(frozen=True, slots=True)
class FoundViolations:
    """Rows that break a constraint, which tasks found while they read the input."""

    first: pa.Table
    total: int


class SparkValidator(Validator[LoadedType, ViolationSearch | FoundViolations]):
    """Checks a load against a state of the graph.

    Args:
        accepted: the accepted schema.
        changes: the rows of the load, by type key.
        view: the stored state.
        staging: the staging directory of the load.
        shuffle: the shuffle.
        partitions: the number of hash partitions that tasks wrote.
    """

    def __init__(
        self,
        accepted: AcceptedSchema,
        changes: Mapping[str, LoadedType],
        view: Manifest,
        staging: Staging,
        shuffle: Shuffle,
        partitions: int = 0,
    ) -> None:
        super().__init__(accepted.catalog, changes)
        self.accepted = accepted
        self.view = view
        self.staging = staging
        self.shuffle = shuffle
        self.partitions = partitions

    # Rows to compare

    def loaded(self, change: LoadedType, columns: Sequence[str], *, numbered: bool = False) -> Relation:
        """Columns of the loaded rows of a type."""
        inputs = [
            LoadedRows(self.staging, part.keys, tuple(columns), first, change.dropped.get(i), numbered)
            for i, (part, first) in enumerate(zip(change.parts, change.starts, strict=True))
            if part.keys is not None
        ]
        schema = self._schema(change.key, columns)
        if numbered:
            schema = schema.append(pa.field(ROW, pa.int64()))
        return self.shuffle.read(inputs, schema, change.count)

    def key_rows(self, change: LoadedType, what: CompareKey) -> Relation:
        """The compared columns of the loaded rows of a type. Uses staged hash partitions if no rows were dropped."""
        filled = [part for part in change.parts if part.rows]
        if change.dropped or not all(what.name in part.partitions for part in filled):
            return self.loaded(change, what.columns).map(what.compute)
        schema = what.compute(self._schema(change.key, what.columns).empty_table()).schema
        if not filled:
            return Relation(None, block_schema(schema), 0)
        staging, paths = self.staging, [path for part in filled for path in part.partitions[what.name]]
        partitions = HashPartitions(what.by, self.partitions, lambda part: (staging.part(path, part) for path in paths))
        return self.shuffle.from_partitions(partitions, schema, change.count)

    def stored(self, key: str, columns: Sequence[str]) -> Relation:
        """Columns of the stored rows of a type."""
        pin = self.view.tables[key]
        inputs = stored_inputs(self.staging, pin.ref, columns) if pin.row_count else []
        return self.shuffle.read(inputs, self._schema(key, columns), pin.row_count)

    def _schema(self, key: str, columns: Sequence[str]) -> pa.Schema:
        kind, name = TypeKey.parse(key)
        schema = row_schema(arrow_schema(self.accepted, kind, name))
        return block_schema(pa.schema([schema.field(column) for column in columns]))

    def unchanged_rows(self, change: LoadedType | None, key: str, columns: Sequence[str]) -> Relation:
        """Columns of the stored rows of a type that the load does not change."""
        wanted = list(dict.fromkeys([*columns, "id"]))
        if change is not None and change.replaced:
            return Relation(None, self._schema(key, wanted), 0)
        rows = self.stored(key, wanted)
        if change is None or change.fresh or rows.frame is None:
            return rows
        return self.shuffle.cogroup(
            [Side(rows, ["id"]), Side(self.key_rows(change, IDS), ["id"])],
            not_loaded,
        )

    def replaced_rows(self, change: LoadedType, columns: Sequence[str]) -> Relation:
        """Columns of the stored rows of a type that the load replaces or removes."""
        if change.replaced:
            return self.stored(change.key, columns)
        if change.fresh or not self.view.tables[change.key].row_count:
            return Relation(None, self._schema(change.key, columns), 0)
        return self.shuffle.cogroup(
            [Side(self.stored(change.key, ["id", *columns]), ["id"]), Side(self.key_rows(change, IDS), ["id"])],
            also_loaded(columns),
        )

    # Checks of ids

    def duplicate_counts(self, change: LoadedType) -> Relation:
        """The number of duplicate ids in each block that has some. Faster than `duplicate_rows`, and usually empty."""
        return self.shuffle.cogroup([Side(self.key_rows(change, IDS), ["id"])], duplicate_id_count)

    def duplicate_rows(self, change: LoadedType) -> Relation:
        """The duplicate ids: the column `id`, and the numbers of the rows that have the id."""
        return self.shuffle.cogroup([Side(self.loaded(change, ["id"], numbered=True), ["id"])], duplicate_ids)

    def existing_ids(self, change: LoadedType) -> Relation:
        """The loaded ids that already exist in the graph."""
        stored = self.stored(change.key, ["id"])
        if change.fresh or stored.frame is None:
            return Relation(None, pa.schema([("id", pa.utf8())]), 0)
        return self.shuffle.cogroup([Side(self.key_rows(change, IDS), ["id"]), Side(stored, ["id"])], stored_ids)

    # Checks of constraints

    def values(self) -> Iterator[tuple[FoundViolations, Describe]]:
        for change in in_order(self.changes):
            for i, rule in enumerate(value_rules(type_of(self.catalog, change))):
                parts = zip(change.parts, change.starts, strict=True)
                found = [(part.wrong[i], start) for part, start in parts if i in part.wrong]
                if found:
                    first = pa.concat_tables([_numbered(wrong.first, start) for wrong, start in found])
                    total = sum(wrong.total for wrong, _ in found)
                    yield FoundViolations(first, total), describe_value(change.name, rule, new=change.fresh)

    def uniques(self, change: LoadedType) -> Iterator[tuple[ViolationSearch, Describe]]:
        for fields in unique_groups(type_of(self.catalog, change)):
            rows = self.key_rows(change, tuples(fields))
            others = self.unchanged_rows(change, change.key, fields).map(comparable_rows(fields, rows.schema.names))
            subject = unique_subject(change.name, fields)
            sides = [Side(rows, fields), Side(others, fields)]
            found = partial(self.shuffle.cogroup, sides, shared_tuples(fields, subject))
            yield ViolationSearch(found, "other"), describe_unique(subject)

    def endpoints(self, change: LoadedType) -> Iterator[tuple[ViolationSearch, Describe]]:
        edge = self.catalog.edges[change.name]
        ends = {"src": edge.from_type, "dst": edge.to_type}
        missing = {}
        for node in dict.fromkeys(ends.values()):
            missing[node] = self._missing(change, node)
        for end, node in ends.items():
            wrong = partial(self._dangling_edges, change, end, missing[node])
            yield (
                ViolationSearch(wrong, ROW, missing[node]),
                describe_endpoint(change.name, end, node, new=change.fresh),
            )

    def _dangling_edges(self, change: LoadedType, end: str, missing: Relation) -> Relation:
        """The loaded edges to a node that does not exist. Used only if `missing` has rows."""
        rows = self.loaded(change, ["id", "src", "dst"], numbered=True)
        return self.shuffle.cogroup([Side(rows, [end]), Side(missing, [VALUE])], dangling_edges(end))

    def _missing(self, change: LoadedType, node: str) -> Relation:
        """The ids of nodes of a type that loaded edges refer to, but that are neither in the load nor in the graph."""
        wanted = self.key_rows(change, ends_at(self.catalog.edges[change.name], node))
        sides = [Side(wanted, [VALUE])]
        nodes = self.changes.get(node_key(node))
        if nodes is not None:
            sides.append(Side(self.key_rows(nodes, IDS), ["id"]))
        if nodes is None or not nodes.replaced:
            sides.append(Side(self.stored(node_key(node), ["id"]), ["id"]))
        return self.shuffle.cogroup(sides, unmatched_values)

    def stranded(self, edge: EdgeType, change: LoadedType | None) -> Iterator[tuple[ViolationSearch, Describe]]:
        for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
            nodes = self.changes.get(node_key(node))
            if nodes is None or not nodes.replaced:
                continue
            left = self.unchanged_rows(change, edge_key(edge.name), [end])
            if left.frame is None:
                continue
            sides = [Side(left, [end]), *self._removed_nodes(nodes)]
            found = partial(self.shuffle.cogroup, sides, stranded_edges(end))
            yield ViolationSearch(found, "id"), describe_endpoint(edge.name, end, node)

    def _removed_nodes(self, nodes: LoadedType) -> list[Side]:
        """The inputs for finding the stored nodes that an overwrite removes: the stored ids and the loaded ids."""
        return [Side(self.stored(nodes.key, ["id"]), ["id"]), Side(self.key_rows(nodes, IDS), ["id"])]

    def cardinalities(self, change: LoadedType) -> Iterator[tuple[ViolationSearch, Describe]]:
        edge = self.catalog.edges[change.name]
        for end, card, node in bounded_ends(edge):
            nodes = self.changes.get(node_key(node))
            kept = self.unchanged_rows(change, change.key, [end]).map(only_column(end))
            loaded = self.key_rows(change, end_of(end))
            sides = [Side(rows, [end]) for rows in (loaded, self.replaced_rows(change, [end]), kept)]
            if nodes is not None and nodes.replaced:
                sides += self._removed_nodes(nodes)
            found = partial(self.shuffle.cogroup, sides, outside_cardinality(end, card))
            yield ViolationSearch(found, "node"), describe_cardinality(edge.name, end, card)


def _numbered(wrong: pa.Table, start: int) -> pa.Table:
    """Rows with wrong values of a part that begins at the row number `start`."""
    place = wrong.schema.get_field_index(ROW)
    return wrong.set_column(place, wrong.schema.field(place), pc.add(wrong[ROW], start))


def stored_inputs(staging: Staging, ref: TableRef, columns: Sequence[str]) -> list[StoredRows]:
    """Columns of a stored table, split by fragments for tasks."""
    numbers = [part.number for part in staging.tables.at(ref).fragments()]
    step = max(1, min(_STORED_FRAGMENTS, len(numbers) // 16))
    groups = [tuple(numbers[i : i + step]) for i in range(0, len(numbers), step)]
    return [StoredRows(staging, ref, group, tuple(columns)) for group in groups]
