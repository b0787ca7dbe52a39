"""The constraints as queries: each function returns the rows that violate a constraint.

A value check reads one row at a time. A set-wide check compares rows that share a value: entities with the same values
of a unique constraint, the edges of a node, an edge and its endpoint. So a check can run on partitions of the data, if
rows that share a value are in one partition. This limits its memory, and lets it run on many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import ResourceLimitError
from omnigraph.evaluate.texts import matches
from omnigraph.lang.arrow import readable
from omnigraph.lang.schema import Catalog, TypeKind
from omnigraph.lang.schema.catalog import Cardinality, Check, EdgeType, NodeType, Range, Unique
from omnigraph.write.rows.hashing import Digests, digests
from omnigraph.write.rows.values import parents

DEFAULT_MEMORY_LIMIT = 1 << 30
SMALL_JOIN_VALUES = 50_000
"""Up to this number of values, a simple lookup is used, because it is faster than a parallel join."""

ROW = "__row"
"""The column with the number of a row among all rows of its type."""

JOIN_ROW_BYTES = 200
"""Approximate size of a row in a hash table, in bytes, without its value."""

HASH_ROW_BYTES = 2 * 8
"""Bytes of hashes per row during the search for duplicates."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The memory limit of one check, in bytes."""

    limit: int = DEFAULT_MEMORY_LIMIT

    def partitions(self, needed: int) -> int:
        """The number of partitions for work that needs `needed` bytes at once."""
        return max(1, -(-needed // self.limit))

    def require(self, what: str, needed: int) -> None:
        """Check that work which cannot be partitioned fits into the memory limit.

        Raises:
            ResourceLimitError: the work needs more memory than the limit.
        """
        if needed > self.limit:
            raise ResourceLimitError(
                f"bytes of memory to check {what}",
                self.limit,
                needed,
                hint="increase the memory budget (memory_budget, OMNIGRAPH_LOAD_MEMORY); a load can also use engine "
                "spark, which splits the check into partitions",
            )


# Changes of types


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


def ends_of(change: Change) -> tuple[str, ...]:
    return ("src", "dst") if change.kind is TypeKind.EDGE else ()


# Checks of one row


@dataclass(frozen=True, slots=True)
class ValueRule:
    """A rule about the value of one property.

    Attributes:
        violates: returns the mask of the values that break the rule; null never breaks it.
        reason: the message about a value that breaks the rule.
    """

    property: str
    violates: Callable[[pa.Array], pa.Array]
    reason: str


def value_rules(declared: NodeType | EdgeType) -> Iterator[ValueRule]:
    """Enum, range and pattern rules of a type, in the order of its properties and constraints."""
    for prop in declared.properties.values():
        values = prop.type.enum_values
        if values is not None:
            yield ValueRule(prop.name, _outside_enum(values), f"is not one of {', '.join(values)}")
    for constraint in declared.constraints:
        if isinstance(constraint, Range):
            low, high = ("" if bound is None else bound for bound in (constraint.min, constraint.max))
            yield ValueRule(constraint.property, _outside_range(constraint), f"is outside {low}..{high}")
        elif isinstance(constraint, Check):
            yield ValueRule(constraint.property, _not_found(constraint.pattern), f"does not match {constraint.pattern}")


def _outside_enum(values: tuple[str, ...]) -> Callable[[pa.Array], pa.Array]:
    allowed = pa.array(values, pa.utf8())

    def violates(cells: pa.Array) -> pa.Array:
        if not pa.types.is_list(cells.type):
            return pc.and_(cells.is_valid(), pc.invert(pc.is_in(cells, value_set=allowed)))
        items = pc.list_flatten(cells)
        wrong = pc.and_(items.is_valid(), pc.invert(pc.is_in(items, value_set=allowed)))
        mask = np.zeros(len(cells), bool)
        mask[parents(cells)[wrong.to_numpy(zero_copy_only=False)]] = True
        return pa.array(mask)

    return violates


def _outside_range(bounds: Range) -> Callable[[pa.Array], pa.Array]:
    def violates(cells: pa.Array) -> pa.Array:
        numbers = cells.cast(pa.float64(), safe=False)
        wrong = pc.is_nan(numbers)
        if bounds.min is not None:
            wrong = pc.or_(wrong, pc.less(numbers, float(bounds.min)))
        if bounds.max is not None:
            wrong = pc.or_(wrong, pc.greater(numbers, float(bounds.max)))
        return wrong.fill_null(False)

    return violates


def _not_found(pattern: str) -> Callable[[pa.Array], pa.Array]:
    return lambda cells: pc.invert(matches(cells, pattern)).fill_null(False)


def wrong_values(rule: ValueRule, rows: pa.Table, other_columns: Sequence[str] = ()) -> pa.Table:
    """The rows that break a rule: `id`, the property, the columns of `other_columns`, and the row number `__row`."""
    chosen = rows.select(list(dict.fromkeys(["id", rule.property, *other_columns])))
    schema = chosen.schema.append(pa.field(ROW, pa.int64()))
    wrong = []
    first = 0
    for batch in chosen.to_batches():
        mask = rule.violates(batch.column(rule.property))
        if pc.any(mask).as_py():
            numbers = pa.array(first + np.flatnonzero(mask.to_numpy(zero_copy_only=False)), pa.int64())
            wrong.append(pa.RecordBatch.from_arrays([*batch.filter(mask).columns, numbers], schema=schema))
        first += batch.num_rows
    return pa.Table.from_batches(wrong, schema)


# Checks of rows that share a value


def possible_duplicates(columns: Sequence[pa.ChunkedArray], what: str, memory: MemoryLimit) -> pa.ChunkedArray | None:
    """Mask of the rows that may have the same values as another row; None if all rows certainly differ.

    Args:
        columns: the values, without nulls.
        what: the name of the check in errors.
        memory: the memory limit.
    """
    if len(columns[0]) < 2:
        return None
    memory.require(what, len(columns[0]) * HASH_ROW_BYTES)
    numbers = digests(columns)
    hashes = duplicate_hashes(numbers, what, memory)
    return None if len(hashes) == 0 else pa.chunked_array([pa.array(np.isin(numbers, hashes))])


def duplicate_hashes(numbers: Digests, what: str, memory: MemoryLimit) -> Digests:
    """The hashes that occur more than once, sorted.

    Raises:
        ResourceLimitError: the hashes exceed the memory limit.
    """
    memory.require(what, len(numbers) * HASH_ROW_BYTES)
    return repeated_values(numbers)


def repeated_values(numbers: Digests) -> Digests:
    """The numbers that occur more than once, sorted."""
    in_order = np.sort(numbers)
    return np.unique(in_order[1:][in_order[1:] == in_order[:-1]])


def duplicate_tuples(fields: Sequence[str], rows: pa.Table, what: str, memory: MemoryLimit) -> pa.Table:
    """Find tuples of values that several entities have.

    The column `shared` has the tuple; `id` and `other` are the greatest and the smallest id of its entities.

    Args:
        fields: the fields of the tuple.
        rows: `id` and the fields, without nulls, one row per entity.
        what: the name of the check in errors.
        memory: the memory limit.
    """
    nothing = rows.slice(0, 0)
    empty = _tuples(nothing, fields, nothing["id"], nothing["id"])
    maybe = possible_duplicates([rows[name] for name in fields], what, memory)
    if maybe is None:
        return empty
    candidates = rows.filter(maybe)
    found = [empty]
    partitions = memory.partitions(candidates.nbytes + candidates.num_rows * JOIN_ROW_BYTES)
    for part in _partitioned(candidates, fields, partitions):
        groups = part.group_by(list(fields), use_threads=False).aggregate([("id", "min"), ("id", "max")])
        shared = groups.filter(pc.not_equal(groups["id_min"], groups["id_max"]))
        found.append(_tuples(shared, fields, shared["id_max"], shared["id_min"]))
    return pa.concat_tables(found).sort_by("other")


COUNT = "__count"
"""The column with the number of rows that have a value."""

_LOW, _HIGH = "__low", "__high"
"""The columns with the smallest and the greatest id of the entities that have a tuple."""


def counts_by(rows: pa.Table, name: str) -> pa.Table:
    """The distinct values of a column without nulls, each with its number of rows in the column `COUNT`."""
    counted = rows.group_by(name, use_threads=False).aggregate([([], "count_all")])
    return pa.table({name: counted[name], COUNT: counted["count_all"]})


def total_counts(counted: pa.Table, name: str) -> pa.Table:
    """Add the counts of `counts_by` from several batches."""
    totals = counted.group_by(name, use_threads=False).aggregate([(COUNT, "sum")])
    return pa.table({name: totals[name], COUNT: totals[f"{COUNT}_sum"]})


def holders_of(rows: pa.Table, fields: tuple[str, ...]) -> pa.Table:
    """The distinct tuples of some fields, each with the smallest and the greatest id of its entities.

    Args:
        rows: `id` and the fields, without nulls.
        fields: the fields of the tuple.
    """
    ids = rows["id"]
    return _bounds(rows.select(list(fields)).append_column(_LOW, ids).append_column(_HIGH, ids), fields)


def _bounds(rows: pa.Table, fields: tuple[str, ...]) -> pa.Table:
    found = rows.group_by(list(fields), use_threads=False).aggregate([(_LOW, "min"), (_HIGH, "max")])
    ends = [(_LOW, found[f"{_LOW}_min"]), (_HIGH, found[f"{_HIGH}_max"])]
    return pa.table(dict([*((name, found[name]) for name in fields), *ends]))


def shared_tuples(holders: pa.Table, fields: tuple[str, ...]) -> pa.Table:
    """Find tuples of values that several entities have, in the result of `holders_of` for several batches.

    The columns are those of `duplicate_tuples`.
    """
    bounds = _bounds(holders, fields)
    shared = bounds.filter(pc.not_equal(bounds[_LOW], bounds[_HIGH]))
    return _tuples(shared, fields, shared[_HIGH], shared[_LOW])


def _tuples(rows: pa.Table, fields: Sequence[str], ids: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Table:
    """Tuples that several entities have, as a table with the columns `id`, `other` and `shared`."""
    members = [pa.field(name, readable(pa.nulls(0, rows.schema.field(name).type)).type) for name in fields]
    values = [readable(rows[name].combine_chunks()) for name in fields]
    schema = pa.schema([("id", pa.utf8()), ("other", pa.utf8()), ("shared", pa.struct(members))])
    return pa.table([ids, others, pa.StructArray.from_arrays(values, fields=members)], schema=schema)


def anti_join(values: pa.ChunkedArray, present: pa.ChunkedArray, memory: MemoryLimit) -> pa.Array:
    """The distinct values that do not occur in `present`."""
    if len(values) + len(present) <= SMALL_JOIN_VALUES:
        distinct = values.unique()
        return distinct.filter(pc.invert(pc.is_in(distinct, value_set=present)))
    left, right = pa.table({"value": values}), pa.table({"value": present})
    partitions = memory.partitions(right.nbytes + right.num_rows * JOIN_ROW_BYTES)
    missing = [pa.chunked_array([], values.type)]
    for ours, theirs in zip(
        _partitioned(left, ["value"], partitions), _partitioned(right, ["value"], partitions), strict=True
    ):
        missing.append(ours.join(theirs, "value", join_type="left anti")["value"].unique())
    return pa.chunked_array([chunk for found in missing for chunk in _chunks(found)], values.type).unique()


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def cardinality_violations(
    card: Cardinality, nodes: pa.ChunkedArray, ends: pa.ChunkedArray, memory: MemoryLimit
) -> pa.Table:
    """Find nodes with too many or too few edges. The columns are `node` and `edges` (their number), sorted by node.

    Args:
        card: the allowed number of edges.
        nodes: the nodes to check.
        ends: for each edge, the id of its node at the end (`src` or `dst`) whose edges are counted.
        memory: the memory limit.
    """
    wanted, counted_ends = pa.table({"node": nodes}), pa.table({"node": ends})
    partitions = memory.partitions(wanted.nbytes + counted_ends.nbytes + (len(nodes) + len(ends)) * JOIN_ROW_BYTES)
    found = [pa.schema([("node", pa.utf8()), ("edges", pa.int64())]).empty_table()]
    for some, edges in zip(
        _partitioned(wanted, ["node"], partitions), _partitioned(counted_ends, ["node"], partitions), strict=True
    ):
        counted = edges.group_by("node", use_threads=False).aggregate([([], "count_all")])
        found.append(outside_bounds(card, some["node"], counted.rename_columns(["node", "edges"]), memory))
    return pa.concat_tables(found).sort_by("node")


def outside_bounds(card: Cardinality, nodes: pa.ChunkedArray, counted: pa.Table, memory: MemoryLimit) -> pa.Table:
    """Find nodes with too many or too few edges. The columns are `node` and `edges` (their number).

    Args:
        card: the allowed number of edges.
        nodes: the nodes to check.
        counted: nodes (`node`) with their number of edges (`edges`); a node that is not in it has no edges.
        memory: the memory limit.
    """
    wrong = pc.less(counted["edges"], card.min)
    if card.max is not None:
        wrong = pc.or_(wrong, pc.greater(counted["edges"], card.max))
    suspects = counted.filter(wrong)
    found = [suspects.filter(pc.is_in(suspects["node"], value_set=nodes))]
    if card.min > 0:
        alone = anti_join(nodes, counted["node"], memory)
        found.append(pa.table({"node": alone, "edges": pa.repeat(pa.scalar(0, pa.int64()), len(alone))}))
    return pa.concat_tables(found)


def _partitioned(rows: pa.Table, fields: Sequence[str], partitions: int) -> Iterator[pa.Table]:
    """Partition rows by the hash of some fields. Equal values get the same partition number in every table."""
    if partitions == 1:
        yield rows
        return
    place = digests([rows[name] for name in fields]) % np.uint64(partitions)
    for part in range(partitions):
        yield rows.filter(pa.array(place == part))


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
    """Remove the rows with a null field: null is never equal to another value. Negative zero becomes zero."""
    for name in fields:
        if rows[name].null_count:
            rows = rows.filter(rows[name].is_valid())
    for name in fields:
        if pa.types.is_floating(rows[name].type):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place), pc.add(rows[name], pa.scalar(0.0, rows[name].type)))
    return rows


def with_zeros(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values to look up. If zero is among them, negative zero is added, because a table can store both."""
    if not pa.types.is_floating(values.type) or not pc.any(pc.equal(values, 0.0)).as_py():
        return values
    return pa.chunked_array([*values.chunks, pa.array([-0.0], values.type)])


def with_a_tuple_of(others: pa.Table, fields: tuple[str, ...], rows: pa.Table) -> pa.Table:
    """The rows of `others` that have the same values in `fields` as a row of `rows`."""
    # With one field, `others` has only rows with a value of `rows`, so the values need no second comparison.
    if others.num_rows == 0 or len(fields) == 1:
        return others
    # A join makes all columns nullable, so the original schema is set again.
    return others.join(rows.select(list(fields)), list(fields), join_type="left semi").cast(others.schema)


def with_one_of(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The rows whose column has one of the values, in row order."""
    return rows.filter(pc.is_in(rows[name], value_set=values))
