"""Inserts of a transaction whose rows are built later, many at once.

Building one row takes a third of the time of building a thousand. The check of a plain insert needs no table, only its
own values. So a transaction checks the values of a plain insert at its statement, and builds the rows of many when it
needs them. All other statements, and all values that may be wrong, take the general path of `write.mutation`, which
also raises all errors.
"""

# See docs/decisions/0280-plain-inserts-are-built-together.md

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import with_models
from omnigraph.commit.table_writes import Append, TableWrite, Upsert
from omnigraph.dataclass import dataclass
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import NodeType, Property
from omnigraph.lang.schema.type_key import node_key
from omnigraph.lang.temporal import MS_PER_DAY, parse_date, parse_datetime
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType
from omnigraph.storage.lru_cache import LruCache
from omnigraph.write.changed_state import State
from omnigraph.write.pending_changes import latest
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import Origin
from omnigraph.write.rules.changes import chunked, column
from omnigraph.write.rules.constraints import ValueRule, unique_groups, value_rules

MOST_COLLECTED = 1_000
"""Maximum number of rows whose values are collected before they are built."""

_MOST_CHARACTERS = 1 << 20
"""Maximum length of the collected texts."""

_RANGES = INTEGER_RANGES | {
    Scalar.DATE: (parse_date("0001-01-01"), parse_date("9999-12-31")),
    Scalar.DATETIME: (parse_datetime("0001-01-01"), parse_datetime("9999-12-31T23:59:59.999Z")),
}
_SAME = {Scalar.STRING, Scalar.BOOL, Scalar.F32, Scalar.F64}
"""Types whose values always fit a property of the same type."""

_CACHED = 256

Row = tuple[ir.ConstValue, ...]
"""The values of a plain insert, in the order of its cells."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """One value of a plain insert.

    Attributes:
        property: the property that gets the value.
        type: the type of the value. It may be another integer type than that of the property.
        parameter: the parameter with the value; None for a constant, or for the time of the request.
        constant: the constant.
        divisor: for the time of the request, the milliseconds per unit; otherwise 0.
        bounds: the least and the greatest allowed number; None for other values.
        rules: the rules about the value.
    """

    property: Property
    type: ValueType
    parameter: str | None
    constant: ir.ConstValue
    divisor: int
    bounds: tuple[int, int] | None
    rules: tuple[ValueRule, ...]

    def fits(self, value: ir.ConstValue) -> bool:
        """Whether a value is certainly valid for the property."""
        if value is None:
            return self.property.type.nullable
        if self.bounds is not None and not (isinstance(value, int) and self.bounds[0] <= value <= self.bounds[1]):
            return False
        return not self.rules or not _violates(self.rules, pa.array([value], arrow_type(self.property.type)))


class PlainInsert:
    """An insert of one node that reads no table.

    Its type has no unique constraint, no blob and no text to embed, and the node need not be new.

    Args:
        accepted: the accepted schema.
        declared: the node type.
        cells: the values of a row.
    """

    def __init__(self, accepted: AcceptedSchema, declared: NodeType, cells: Sequence[_Cell]) -> None:
        self.key = node_key(declared.name)
        self._accepted = accepted
        self._name = declared.name
        self._cells = tuple(cells)

    def row(self, params: Mapping[str, ir.ConstValue], now: int) -> Row | None:
        """The values of a statement; None if one of them may be wrong.

        Args:
            params: the bound parameters.
            now: the time of the request in milliseconds.
        """
        row = []
        for cell in self._cells:
            if cell.parameter is not None:
                value = params[cell.parameter]
            else:
                value = now // cell.divisor if cell.divisor else cell.constant
            if not cell.fits(value):
                return None
            row.append(value)
        return tuple(row)

    def write(self, rows: Sequence[Row], state: State) -> TableWrite:
        """The write of collected rows. If several have the same id, the last one counts."""
        problems = Problems()
        builder = RowBuilder(self._accepted, TypeKind.NODE, self._name, 0, problems)
        columns = {
            cell.property.name: pa.array(values, arrow_type(cell.type))
            for cell, values in zip(self._cells, zip(*rows, strict=True), strict=True)
        }
        built = builder.build(columns, Origin.consecutive(len(rows)))
        problems.check()
        is_new = builder.key_order is None
        if not is_new:
            built = latest(built)
            is_new = state.is_without(self.key, chunked(column(built, "id")))
        return (Append if is_new else Upsert)(self.key, built, models=with_models(state.models(self.key), {}))


class CollectedInserts:
    """The plain inserts of a transaction whose rows are not built yet.

    Attributes:
        rows: their number.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._characters = 0
        self._by_type: dict[str, tuple[PlainInsert, list[Row]]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the rows must be built before more are collected."""
        return self.rows >= MOST_COLLECTED or self._characters > _MOST_CHARACTERS

    def add(self, insert: PlainInsert, row: Row) -> bool:
        """Collect a row. Returns False if rows of another insert into the same type have to be built first."""
        found = self._by_type.get(insert.key)
        if found is None:
            found = self._by_type[insert.key] = insert, []
        elif found[0] is not insert:
            return False
        found[1].append(row)
        self.rows += 1
        self._characters += sum(len(value) for value in row if isinstance(value, str))
        return True

    def take(self, state: State) -> list[TableWrite]:
        """Build all rows. Returns their writes, and forgets them.

        Args:
            state: the state before the inserts.
        """
        writes = [insert.write(rows, state) for insert, rows in self._by_type.values()]
        self._by_type = {}
        self.rows = self._characters = 0
        return writes


_plain: LruCache[tuple[AcceptedSchema, ir.Query, PlainInsert | None]] = LruCache(_CACHED)


def plain_insert(accepted: AcceptedSchema, query: ir.Query) -> PlainInsert | None:
    """The plain insert that a query consists of; None for every other query. Cached, because queries repeat.

    Args:
        accepted: the accepted schema.
        query: the compiled query.
    """
    key = (id(accepted), id(query))
    found = _plain.get(key)
    if found is None or found[0] is not accepted or found[1] is not query:
        found = _plain.put(key, (accepted, query, _plan(accepted, query)))
    return found[2]


def _plan(accepted: AcceptedSchema, query: ir.Query) -> PlainInsert | None:
    if not isinstance(query.body, ir.Write) or len(query.body.statements) != 1:
        return None
    statement = query.body.statements[0]
    if not isinstance(statement, ir.InsertNode) or statement.embeds or statement.mode is ir.InsertMode.MERGE:
        return None
    declared = accepted.catalog.nodes[statement.type_name]
    properties = declared.properties.values()
    if statement.mode is ir.InsertMode.CREATE and accepted.key_order(TypeKind.NODE, declared.name) is not None:
        return None
    if unique_groups(declared) or any(prop.embed or prop.type.scalar is Scalar.BLOB for prop in properties):
        return None
    assigned = {assign.property: assign.value for assign in statement.assigns}
    rules = tuple(value_rules(declared))
    cells = []
    for prop in properties:
        own = tuple(rule for rule in rules if rule.property == prop.name)
        if prop.name in assigned:
            cell = _assigned(prop, assigned[prop.name], own)
        elif prop.default is not None and prop.default.now:
            cell = _time(prop, own)
        elif prop.type.nullable or prop.default is not None:
            continue  # the builder fills in the default, which the schema has checked
        else:
            return None
        if cell is None:
            return None
        cells.append(cell)
    return PlainInsert(accepted, declared, cells) if cells else None


def _assigned(prop: Property, value: ir.Expr, rules: tuple[ValueRule, ...]) -> _Cell | None:
    """The cell of an assigned value; None if a value of its type may not fit."""
    given, wanted = value.type, prop.type
    if not (given.is_plain_scalar and wanted.is_plain_scalar):
        return None
    both_integers = given.scalar.is_integer and wanted.scalar.is_integer
    if given.scalar is not wanted.scalar and not both_integers:
        return None
    if wanted.scalar not in _SAME and wanted.scalar not in _RANGES:
        return None
    kind, bounds = ValueType(given.scalar), _RANGES.get(wanted.scalar)
    match value:
        case ir.Param():
            return _Cell(prop, kind, value.name, None, 0, bounds, rules)
        case ir.Const():
            return _Cell(prop, kind, None, value.value, 0, bounds, rules)
        case ir.Now():
            return _Cell(prop, kind, None, None, 1, bounds, rules)
    return None


def _time(prop: Property, rules: tuple[ValueRule, ...]) -> _Cell:
    """The cell of a property with the default `now()`."""
    scalar = prop.type.scalar
    return _Cell(
        prop, ValueType(scalar), None, None, MS_PER_DAY if scalar is Scalar.DATE else 1, _RANGES[scalar], rules
    )


def _violates(rules: Sequence[ValueRule], values: pa.Array) -> bool:
    return any(pc.any(rule.violates(values)).as_py() for rule in rules)
