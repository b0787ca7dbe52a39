"""The one validator: every constraint of the schema, on the change alone, against what is stored.

Value checks look at rows. Set-wide checks look at rows that share a value: duplicates, the ends of an edge, the edges
of a node. Each of those is a function of the rows that share the value, so it can also run on parts of the data that
were brought together by that value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintError, Violation
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Cardinality, Check, EdgeType, NodeType, Range, Unique
from omnigraph.write.changes import Committed, TableChange, column, surviving

SHOWN = 100


def validate(accepted: AcceptedSchema, changes: Mapping[str, TableChange], committed: Committed) -> None:
    """Check a change against every constraint.

    Types and groups of properties are taken in name order, so that the first violation is always the same one.

    Raises:
        ConstraintError: it breaks some.
    """
    validator = _Validator(accepted, changes, committed)
    found: list[Violation] = []
    total = 0
    for violations in validator.check():
        total += len(violations)
        found += violations[: SHOWN - len(found)]
    if found:
        raise ConstraintError(tuple(found), total)


class _Validator:
    def __init__(self, accepted: AcceptedSchema, changes: Mapping[str, TableChange], committed: Committed) -> None:
        self.catalog = accepted.catalog
        self.changes = changes
        self.committed = committed

    def check(self) -> Iterator[list[Violation]]:
        nodes = [c for _, c in sorted(self.changes.items()) if c.kind is TypeKind.NODE]
        edges = [c for _, c in sorted(self.changes.items()) if c.kind is TypeKind.EDGE]
        for change in (*nodes, *edges):
            yield from value_violations(self._type(change), change.rows)
        for change in nodes:
            yield from self._uniques(change)
        for change in edges:
            yield from self._uniques(change)
            yield from self._endpoints(change)
            yield from self._cardinalities(change)
        yield from self._stranded(nodes)

    def _type(self, change: TableChange) -> NodeType | EdgeType:
        return (self.catalog.nodes if change.kind is TypeKind.NODE else self.catalog.edges)[change.name]

    def _change(self, node: str) -> TableChange | None:
        return self.changes.get(f"node:{node}")

    def _uniques(self, change: TableChange) -> Iterator[list[Violation]]:
        groups = sorted(c.fields for c in self._type(change).constraints if isinstance(c, Unique))
        for fields in groups:
            rows = change.rows.select(["id", *fields])
            for name in fields:
                rows = rows.filter(rows[name].is_valid())  # a tuple with a null is exempt
            if rows.num_rows == 0:
                continue
            others = surviving(self.committed, change, change.key, fields, fields[0], column(rows, fields[0]))
            yield duplicates(change.name, fields, rows, others.select(["id", *fields]))

    def _endpoints(self, change: TableChange) -> Iterator[list[Violation]]:
        edge = self.catalog.edges[change.name]
        for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
            wanted = column(change.rows, end).unique()
            nodes = self._change(node)
            if nodes is not None:
                wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=column(nodes.rows, "id"))))
            if len(wanted) == 0:
                continue
            stored = surviving(self.committed, nodes, f"node:{node}", ["id"], "id", wanted)
            missing = wanted.filter(pc.invert(pc.is_in(wanted, value_set=column(stored, "id"))))
            if len(missing):
                wrong = change.rows.filter(pc.is_in(change.rows[end], value_set=missing))
                yield _dangling(change.name, end, node, wrong)

    def _cardinalities(self, change: TableChange) -> Iterator[list[Violation]]:
        edge = self.catalog.edges[change.name]
        for end, card, node in (("src", edge.card, edge.from_type), ("dst", edge.card_in, edge.to_type)):
            if card == Cardinality():
                continue
            touched = self._touched(change, end)
            nodes = self._change(node)
            if nodes is not None:
                touched = touched.filter(pc.invert(pc.is_in(touched, value_set=nodes.deleted)))
            if len(touched) == 0:
                continue
            kept = surviving(self.committed, change, change.key, [end], end, touched)
            ends = pa.concat_arrays([column(kept, end), column(change.rows, end)])
            yield outside(f"{change.name} {'@card' if end == 'src' else '@card_in'}", card, touched, ends)

    def _touched(self, change: TableChange, end: str) -> pa.Array:
        """The nodes that an added, changed, moved or deleted edge has, or had, at one end."""
        now = column(change.rows, end)
        if change.replaced:
            before = column(self.committed.scan(change.key, columns=[end]), end)
        else:
            ids = change.superseded
            before = column(surviving(self.committed, None, change.key, [end], "id", ids), end)
        return pa.concat_arrays([now, before]).unique()

    def _stranded(self, nodes: list[TableChange]) -> Iterator[list[Violation]]:
        """Stored edges that would lose a node which an overwrite takes away."""
        for change in nodes:
            if not change.replaced:
                continue
            gone = column(self.committed.scan(change.key, columns=["id"]), "id")
            gone = gone.filter(pc.invert(pc.is_in(gone, value_set=column(change.rows, "id"))))
            for edge in self.catalog.edges_of(change.name):
                ends = (("src", edge.from_type), ("dst", edge.to_type))
                for end in (name for name, node in ends if node == change.name):
                    key = f"edge:{edge.name}"
                    left = surviving(self.committed, self.changes.get(key), key, [end], end, gone)
                    if left.num_rows:
                        yield _dangling(edge.name, end, change.name, left.sort_by("id"))


def value_violations(declared: NodeType | EdgeType, rows: pa.Table) -> Iterator[list[Violation]]:
    """Enum, range and pattern checks: what one row alone can break."""
    for prop in declared.properties.values():
        values = prop.type.enum_values
        if values is not None:
            yield _enum(declared.name, prop.name, rows, values)
    for constraint in declared.constraints:
        if isinstance(constraint, Range):
            yield _range(declared.name, constraint, rows)
        elif isinstance(constraint, Check):
            yield _pattern(declared.name, constraint, rows)


def _enum(owner: str, name: str, rows: pa.Table, values: tuple[str, ...]) -> list[Violation]:
    cells = column(rows, name)
    allowed = pa.array(values, pa.utf8())
    if pa.types.is_list(cells.type):
        items = pc.list_flatten(cells)
        bad_rows = pc.list_parent_indices(cells).filter(pc.invert(pc.is_in(items, value_set=allowed))).unique()
        wrong = rows.take(bad_rows)
    else:
        wrong = rows.filter(pc.and_(cells.is_valid(), pc.invert(pc.is_in(cells, value_set=allowed))))
    return _values(owner, name, wrong, f"is not one of {', '.join(values)}")


def _range(owner: str, bounds: Range, rows: pa.Table) -> list[Violation]:
    numbers = column(rows, bounds.property).cast(pa.float64(), safe=False)
    wrong = pc.is_nan(numbers)
    if bounds.min is not None:
        wrong = pc.or_(wrong, pc.less(numbers, float(bounds.min)))
    if bounds.max is not None:
        wrong = pc.or_(wrong, pc.greater(numbers, float(bounds.max)))
    low, high = ("" if b is None else b for b in (bounds.min, bounds.max))
    return _values(owner, bounds.property, rows.filter(wrong.fill_null(False)), f"is outside {low}..{high}")


def _pattern(owner: str, check: Check, rows: pa.Table) -> list[Violation]:
    found = pc.match_substring_regex(column(rows, check.property), check.pattern)
    wrong = rows.filter(pc.invert(found).fill_null(False))
    return _values(owner, check.property, wrong, f"does not match {check.pattern}")


def _values(owner: str, name: str, wrong: pa.Table, reason: str) -> list[Violation]:
    shown = wrong.select(["id", name]).to_pylist()
    return [Violation("value", f"{owner}.{name}", row["id"], f"{row[name]!r} {reason}") for row in shown]


def duplicates(owner: str, fields: tuple[str, ...], rows: pa.Table, others: pa.Table) -> list[Violation]:
    """Entities of a change that share a unique tuple with another, in the change or stored."""
    together = pa.concat_tables([rows, others.select(rows.column_names)])
    counted = together.group_by(list(fields)).aggregate([("id", "min"), ("id", "max")])
    shared = counted.filter(pc.not_equal(counted["id_min"], counted["id_max"])).sort_by("id_min")
    subject = f"{owner}.{fields[0]}" if len(fields) == 1 else f"{owner}.({', '.join(fields)})"
    return [
        Violation("unique", subject, row["id_max"], f"has the same value as '{row['id_min']}'")
        for row in shared.to_pylist()
    ]


def _dangling(edge: str, end: str, node: str, wrong: pa.Table) -> list[Violation]:
    return [
        Violation("endpoint", f"{edge}.{end}", row["id"], f"{end} '{row[end]}' not found in {node}")
        for row in wrong.select(["id", end]).to_pylist()
    ]


def outside(subject: str, card: Cardinality, touched: pa.Array, ends: pa.Array) -> list[Violation]:
    """Nodes that have more or fewer edges than they may. `ends` has one entry per edge."""
    counted = pc.value_counts(ends)
    place = pc.index_in(touched, value_set=counted.field("values"))
    counts = counted.field("counts").take(place).fill_null(0)
    wrong = pc.less(counts, card.min)
    if card.max is not None:
        wrong = pc.or_(wrong, pc.greater(counts, card.max))
    bound = f"{card.min}..{'' if card.max is None else card.max}"
    found = pa.table({"node": touched, "edges": counts}).filter(wrong).sort_by("node")
    return [
        Violation("cardinality", subject, row["node"], f"has {row['edges']} edges, allowed are {bound}")
        for row in found.to_pylist()
    ]
