"""The constraints on Spark: the rows that one of them compares come together in a task, and there it is the same one.

What a constraint means is said in `write.checks`, and in which order they are checked in `write.validate`. Here it is
decided which rows have to meet: those with equal values. Rows of which a check needs but a few are not moved: it is
first seen whether there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Cardinality, EdgeType
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key, type_key
from omnigraph.pipeline.load.compare_columns import IDS, VALUE, Compared, end_of, ends_at, tuples
from omnigraph.pipeline.load.partition_task import OwnRows, PartRows, StoredRows
from omnigraph.pipeline.spark.shuffle import Cut, Exchange, Relation, Side, first_of, plain, total_of
from omnigraph.pipeline.spark.staging import Place
from omnigraph.storage.blobs import row_schema
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.rules.constraints import (
    MemoryLimit,
    anti_join,
    cardinality_violations,
    duplicate_tuples,
    value_rules,
)
from omnigraph.write.rules.duplicate_keys import ROW, duplicate_ids
from omnigraph.write.rules.validator import (
    SHOWN,
    Describe,
    Validator,
    Violations,
    bounded_ends,
    describe_cardinality,
    describe_endpoint,
    describe_unique,
    describe_value,
    in_order,
    type_of,
    unique_groups,
    unique_subject,
    with_a_tuple_of,
    with_one_of,
    without_nulls,
)

_STORED_FRAGMENTS = 4
"""So many parts of a stored table are read by one task at most, while they are small."""


@dataclass(slots=True)
class Loaded:
    """What a load brings of one type; the rows lie in parts, in input order.

    Attributes:
        parts: the parts.
        replaced: whether everything else of the type goes.
        dropped: by part, the rows that do not count, because a later record has their id.
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
        """Whether every id was made for this load."""
        return not any(part.named for part in self.parts)

    @property
    def read(self) -> int:
        """How many rows were read."""
        return sum(part.rows for part in self.parts)

    @property
    def count(self) -> int:
        """How many rows count."""
        return self.read - sum(len(rows) for rows in self.dropped.values())

    @property
    def starts(self) -> list[int]:
        """The number of the first row of each part."""
        return [0, *np.cumsum([part.rows for part in self.parts]).tolist()][:-1]


@dataclass(frozen=True, slots=True)
class Sought:
    """Rows that break a constraint, to be found on Spark.

    Attributes:
        rows: gives the rows, in whatever order.
        order: the column that they are shown in the order of.
        given: look for them only if this has rows.
    """

    rows: Callable[[], Relation]
    order: str
    given: Relation | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """Rows that break a constraint, as tasks found them when they read them."""

    first: pa.Table
    total: int


class SparkRules(Validator[Loaded, Sought | Known]):
    """Checks a load against a state of the graph.

    Args:
        accepted: the schema in force.
        changes: what the load brings, by type key.
        view: what is stored.
        place: where the graph is.
        exchange: brings rows together.
        parts: in how many parts that lies which tasks cut.
    """

    def __init__(
        self,
        accepted: AcceptedSchema,
        changes: Mapping[str, Loaded],
        view: Manifest,
        place: Place,
        exchange: Exchange,
        parts: int = 0,
    ) -> None:
        super().__init__(accepted.catalog, changes)
        self.accepted = accepted
        self.view = view
        self.place = place
        self.exchange = exchange
        self.parts = parts

    # Rows

    def own(self, change: Loaded, columns: Sequence[str], *, numbered: bool = False) -> Relation:
        """Columns of the rows that the load brings of a type."""
        pieces = [
            OwnRows(self.place, part.keys, tuple(columns), first, change.dropped.get(i), numbered)
            for i, (part, first) in enumerate(zip(change.parts, change.starts, strict=True))
            if part.keys is not None
        ]
        schema = self._schema(change.key, columns)
        if numbered:
            schema = schema.append(pa.field(ROW, pa.int64()))
        return self.exchange.read(pieces, schema, change.count)

    def compared(self, change: Loaded, what: Compared) -> Relation:
        """What is compared of the rows that the load brings of a type. It is cut already, if all those rows count."""
        brought = [part for part in change.parts if part.rows]
        if change.dropped or not all(what.name in part.cuts for part in brought):
            return self.own(change, what.columns).mapped(what.made)
        schema = what.made(self._schema(change.key, what.columns).empty_table()).schema
        if not brought:
            return Relation(None, plain(schema), 0)
        place, paths = self.place, [path for part in brought for path in part.cuts[what.name]]
        cut = Cut(what.by, self.parts, lambda part: (place.part(path, part) for path in paths))
        return self.exchange.lying(cut, schema, change.count)

    def stored(self, key: str, columns: Sequence[str]) -> Relation:
        """Columns of the rows that are stored of a type."""
        pin = self.view.tables[key]
        pieces = stored_pieces(self.place, pin.ref, columns) if pin.row_count else []
        return self.exchange.read(pieces, self._schema(key, columns), pin.row_count)

    def _schema(self, key: str, columns: Sequence[str]) -> pa.Schema:
        kind, name = TypeKey.parse(key)
        schema = row_schema(arrow_schema(self.accepted, kind, name))
        return plain(pa.schema([schema.field(column) for column in columns]))

    def surviving(self, change: Loaded | None, key: str, columns: Sequence[str]) -> Relation:
        """Columns of the stored rows of a type that the load leaves alone."""
        wanted = list(dict.fromkeys([*columns, "id"]))
        if change is not None and change.replaced:
            return Relation(None, self._schema(key, wanted), 0)
        rows = self.stored(key, wanted)
        if change is None or change.fresh or rows.frame is None:
            return rows
        return self.exchange.together(
            [Side(rows, ["id"]), Side(self.compared(change, IDS), ["id"])],
            lambda stored, own: stored.filter(pc.invert(pc.is_in(stored["id"], value_set=own["id"]))),
        )

    def superseded(self, change: Loaded, columns: Sequence[str]) -> Relation:
        """Columns of the stored rows of a type that the load replaces or takes away."""
        if change.replaced:
            return self.stored(change.key, columns)
        if change.fresh or not self.view.tables[change.key].row_count:
            return Relation(None, self._schema(change.key, columns), 0)
        chosen = list(columns)
        return self.exchange.together(
            [Side(self.stored(change.key, ["id", *chosen]), ["id"]), Side(self.compared(change, IDS), ["id"])],
            lambda stored, own: stored.filter(pc.is_in(stored["id"], value_set=own["id"])).select(chosen),
        )

    # What a load has to keep beside the constraints

    def twice(self, change: Loaded) -> Relation:
        """Something wherever several records have one id: mostly nothing, and quick to find out."""

        def compare(rows: pa.Table) -> pa.Table:
            distinct = pc.count_distinct(rows["id"]).as_py()
            return pa.table(
                {"more": pa.array([rows.num_rows - distinct] if distinct < rows.num_rows else [], pa.int64())}
            )

        return self.exchange.together([Side(self.compared(change, IDS), ["id"])], compare)

    def repeated(self, change: Loaded) -> Relation:
        """Ids that several records have: `id`, and the numbers of those rows."""
        return self.exchange.together([Side(self.own(change, ["id"], numbered=True), ["id"])], duplicate_ids)

    def taken(self, change: Loaded) -> Relation:
        """The least ids that the load brings and that exist already."""

        def compare(own: pa.Table, stored: pa.Table) -> pa.Table:
            found = own["id"].filter(pc.is_in(own["id"], value_set=stored["id"]))
            return pa.table({"id": found}).sort_by("id").slice(0, 1)

        stored = self.stored(change.key, ["id"])
        if change.fresh or stored.frame is None:
            return Relation(None, pa.schema([("id", pa.utf8())]), 0)
        return self.exchange.together([Side(self.compared(change, IDS), ["id"]), Side(stored, ["id"])], compare)

    def validate(self, *, all_new: bool) -> tuple[str, str] | None:
        """Check everything, in as few jobs as there can be.

        Args:
            all_new: whether every id has to be new.

        Returns:
            The first type, and its least id, that exists although it has to be new.

        Raises:
            ConstraintError: a constraint is broken.
        """
        found = list(self.check())
        sought = [rows for rows, _ in found if isinstance(rows, Sought)]
        givens = list({id(rows.given): rows.given for rows in sought if rows.given is not None}.values())
        at_once = [rows for rows in sought if rows.given is None]
        keys = list(self.changes) if all_new else []
        answers = self.exchange.gather(
            [rows.rows().first(rows.order, SHOWN) for rows in at_once]
            + [given.counted() for given in givens]
            + [self.taken(self.changes[key]) for key in keys]
        )
        tables = {id(rows): table for rows, table in zip(at_once, answers, strict=False)}
        counts = answers[len(at_once) : len(at_once) + len(givens)]
        some = {id(given) for given, count in zip(givens, counts, strict=True) if total_of(count)}
        later = [rows for rows in sought if rows.given is not None and id(rows.given) in some]
        answers_then = self.exchange.gather([rows.rows().first(rows.order, SHOWN) for rows in later])
        tables |= {id(rows): table for rows, table in zip(later, answers_then, strict=True)}
        violations = Violations()
        for rows, describe in found:
            if isinstance(rows, Known):
                violations.add(rows.first, describe, rows.total)
            elif id(rows) in tables:
                first, total = first_of(tables[id(rows)], rows.order, SHOWN)
                violations.add(first, describe, total)
        violations.refuse()
        for key, ids in zip(keys, answers[len(at_once) + len(givens) :], strict=True):
            if ids.num_rows:
                return key, ids.sort_by("id")["id"][0].as_py()
        return None

    # Constraints

    def values(self) -> Iterator[tuple[Known, Describe]]:
        for change in in_order(self.changes):
            for i, rule in enumerate(value_rules(type_of(self.catalog, change))):
                found = [part.wrong[i] for part in change.parts if i in part.wrong]
                if found:
                    first = pa.concat_tables([wrong.first for wrong in found])
                    total = sum(wrong.total for wrong in found)
                    yield Known(first, total), describe_value(change.name, rule, new=change.fresh)

    def uniques(self, change: Loaded) -> Iterator[tuple[Sought, Describe]]:
        for fields in unique_groups(type_of(self.catalog, change)):
            rows = self.compared(change, tuples(fields))
            others = self.surviving(change, change.key, fields).mapped(_comparable(fields, rows.schema.names))
            subject = unique_subject(change.name, fields)
            sides = [Side(rows, fields), Side(others, fields)]
            found = partial(self.exchange.together, sides, _sharing(fields, subject))
            yield Sought(found, "other"), describe_unique(subject)

    def endpoints(self, change: Loaded) -> Iterator[tuple[Sought, Describe]]:
        edge = self.catalog.edges[change.name]
        ends = {"src": edge.from_type, "dst": edge.to_type}
        missing = {}
        for node in dict.fromkeys(ends.values()):
            missing[node] = self._missing(change, node)
        for end, node in ends.items():
            wrong = partial(self._leading_to, change, end, missing[node])
            yield Sought(wrong, ROW, missing[node]), describe_endpoint(change.name, end, node, new=change.fresh)

    def _leading_to(self, change: Loaded, end: str, missing: Relation) -> Relation:
        """The edges of a load that lead to a node which does not exist: moved only if there are such nodes."""
        rows = self.own(change, ["id", "src", "dst"], numbered=True)
        return self.exchange.together([Side(rows, [end]), Side(missing, [VALUE])], _leading_to(end))

    def _missing(self, change: Loaded, node: str) -> Relation:
        """Nodes of a type that the edges of a load lead to, and that neither the load brings nor the graph has."""
        wanted = self.compared(change, ends_at(self.catalog.edges[change.name], node))
        sides = [Side(wanted, [VALUE])]
        nodes = self.node_change(node)
        if nodes is not None:
            sides.append(Side(self.compared(nodes, IDS), ["id"]))
        if nodes is None or not nodes.replaced:
            sides.append(Side(self.stored(node_key(node), ["id"]), ["id"]))
        return self.exchange.together(sides, _unmatched)

    def stranded(self, edge: EdgeType, change: Loaded | None) -> Iterator[tuple[Sought, Describe]]:
        for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
            nodes = self.node_change(node)
            if nodes is None or not nodes.replaced:
                continue
            left = self.surviving(change, edge_key(edge.name), [end])
            if left.frame is None:
                continue
            sides = [Side(left, [end]), *self._gone(nodes)]
            found = partial(self.exchange.together, sides, _stranded(end))
            yield Sought(found, "id"), describe_endpoint(edge.name, end, node)

    def _gone(self, nodes: Loaded) -> list[Side]:
        """What tells which stored nodes of a type an overwrite takes away."""
        return [Side(self.stored(nodes.key, ["id"]), ["id"]), Side(self.compared(nodes, IDS), ["id"])]

    def cardinalities(self, change: Loaded) -> Iterator[tuple[Sought, Describe]]:
        edge = self.catalog.edges[change.name]
        for end, card, node in bounded_ends(edge):
            nodes = self.node_change(node)
            kept = self.surviving(change, change.key, [end]).mapped(_only(end))
            own = self.compared(change, end_of(end))
            sides = [Side(rows, [end]) for rows in (own, self.superseded(change, [end]), kept)]
            if nodes is not None and nodes.replaced:
                sides += self._gone(nodes)
            found = partial(self.exchange.together, sides, _outside(end, card))
            yield Sought(found, "node"), describe_cardinality(edge.name, end, card)


def stored_pieces(place: Place, ref: TableRef, columns: Sequence[str]) -> list[StoredRows]:
    """Columns of a stored table, cut for tasks."""
    numbers = [part.number for part in place.tables.at(ref).fragments()]
    step = max(1, min(_STORED_FRAGMENTS, len(numbers) // 16))
    cuts = [tuple(numbers[i : i + step]) for i in range(0, len(numbers), step)]
    return [StoredRows(place, ref, cut, tuple(columns)) for cut in cuts]


# What tasks do with rows that have met


def _comparable(fields: tuple[str, ...], names: Sequence[str]) -> Callable[[pa.Table], pa.Table]:
    chosen = list(names)
    return lambda rows: without_nulls(rows.select(chosen), fields)


def _sharing(fields: tuple[str, ...], subject: str) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def compare(rows: pa.Table, others: pa.Table) -> pa.Table:
        together = pa.concat_tables([rows, with_a_tuple_of(others, fields, rows)])
        return duplicate_tuples(fields, together, subject, MemoryLimit())

    return compare


def _unmatched(wanted: pa.Table, *present: pa.Table) -> pa.Table:
    ids = pa.chunked_array([chunk for rows in present for chunk in rows["id"].chunks], pa.utf8())
    missing = wanted[VALUE].filter(pc.invert(pc.is_in(wanted[VALUE], value_set=ids)))
    return pa.table({VALUE: pa.chunked_array([missing.unique()], pa.utf8())})


def _leading_to(end: str) -> Callable[[pa.Table, pa.Table], pa.Table]:
    return lambda rows, missing: with_one_of(rows, end, missing[VALUE].combine_chunks())


def _stranded(end: str) -> Callable[[pa.Table, pa.Table, pa.Table], pa.Table]:
    return lambda edges, stored, own: with_one_of(edges, end, anti_join(stored["id"], own["id"], MemoryLimit()))


def _only(column: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.select([column])


def _outside(end: str, card: Cardinality) -> Callable[..., pa.Table]:
    def compare(own: pa.Table, before: pa.Table, kept: pa.Table, *nodes: pa.Table) -> pa.Table:
        touched = pa.chunked_array([*own[end].chunks, *before[end].chunks], pa.utf8()).unique()
        if nodes:
            stored, brought = nodes
            gone = anti_join(stored["id"], brought["id"], MemoryLimit())
            touched = touched.filter(pc.invert(pc.is_in(touched, value_set=gone)))
        ends = pa.chunked_array([*kept[end].chunks, *own[end].chunks], pa.utf8())
        return cardinality_violations(card, pa.chunked_array([touched]), ends, MemoryLimit())

    return compare
