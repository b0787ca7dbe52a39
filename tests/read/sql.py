"""Reads as SQL: the part of the language that relational engines support, too.

A read becomes one statement over one table per type, so that another engine can run it.
Rows of a match are rows of a relation with columns `variable.property`, and columns for the type, the id
and, for edges, both endpoints. Blocks become lateral joins and `not exists`, hops a recursive query over all distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from tests.read import oracle
from tests.read.oracle import Parts, conjuncts

from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.types import Scalar, ValueType

_TYPES = {
    Scalar.STRING: "VARCHAR",
    Scalar.BOOL: "BOOLEAN",
    Scalar.F32: "FLOAT",
    Scalar.F64: "DOUBLE",
    Scalar.DATE: "INTEGER",
    Scalar.DATETIME: "BIGINT",
}
"""Dates are numbers in SQL, and all integers have one type that is wide enough."""

_ENDS = {ir.Role.FROM: "src", ir.Role.TO: "dst"}
_COMPARED = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SEARCHED = {"contains": "contains", "starts_with": "starts_with", "ends_with": "ends_with"}


class NotRelationalError(Exception):
    """SQL cannot express this, or gives it another meaning."""


def sql_type(kind: ValueType) -> str:
    if kind.is_vector:
        raise NotRelationalError("vectors")
    item = "HUGEINT" if kind.scalar.is_integer else _TYPES[kind.scalar]
    return f"{item}[]" if kind.list else item


def tables(catalog: Catalog, graph: oracle.Graph) -> Iterator[tuple[str, pa.Table]]:
    """The types of a graph as tables, with the same names."""
    for name, nodes in graph.nodes.items():
        ids = {"id": [node.id for node in nodes.values()]}
        yield f"node {name}", _table(ids, catalog.nodes[name], [node.values for node in nodes.values()])
    for name, edges in graph.edges.items():
        known = list(edges.values())
        ids = {
            "id": [edge.id for edge in known],
            "src": [edge.source for edge in known],
            "dst": [edge.target for edge in known],
        }
        yield f"edge {name}", _table(ids, catalog.edges[name], [edge.values for edge in known])


def _table(ids: Mapping[str, list[str]], declared: NodeType | EdgeType, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = {name: pa.array(values, pa.utf8()) for name, values in ids.items()}
    for name, prop in declared.properties.items():
        columns[f"p_{name}"] = pa.array([row[name] for row in rows], _stored(arrow_type(prop.type)))
    return pa.table(columns)


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    return {pa.date32(): pa.int32(), pa.date64(): pa.int64()}.get(kind, kind)


def _quoted(name: str) -> str:
    return f'"{name}"'


class Statement:
    """One read as SQL.

    Args:
        catalog: the schema.
        read: the read.
        params: its parameters.
        now: the time of the request.
        nodes: the number of nodes, an upper bound of all distances.

    Attributes:
        text: the statement.
        values: its parameters.

    Raises:
        NotRelationalError: SQL cannot express it.
    """

    def __init__(self, catalog: Catalog, read: ir.Read, params: Mapping[str, Any], now: int, nodes: int) -> None:
        if read.stages:
            raise NotRelationalError("stages")
        self._catalog = catalog
        self._params = params
        self._now = now
        self._nodes = nodes
        self._columns: dict[str, ir.Expr] = {}
        self._named: dict[ir.Expr, str] = {}
        self._props: dict[str, dict[str, ValueType]] = {}
        self._blocks = {part.name: part for part in walk(read) if isinstance(part, ir.BlockValue)}
        self._paths = {part.path_var for part in walk(read) if isinstance(part, ir.Expand)}
        self._made = 0
        self._before: list[str] = []
        self.values: dict[str, Any] = {}
        for part in walk(read):
            if isinstance(part, ir.Prop):
                self._props.setdefault(part.var, {})[part.name] = part.type
        rows = self._block(read.match)
        body = self._read(read, rows)
        self.text = f"WITH RECURSIVE {', '.join(self._before)} {body}" if self._before else body

    def _fresh(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    # Match

    def _block(self, block: ir.Block) -> str:
        """The solutions of a block. Variables of the outer block keep their names inside."""
        parts = Parts.of(block)
        relations = [self._node(node) for node in block.nodes]
        tests: list[str] = []
        for expand in parts.expands:
            self._expand(expand, relations, tests)
        tests += [self._value(f) for f in parts.filters]
        nothing = f"(SELECT 1 AS {_quoted(self._fresh('one'))})"
        rows = _select(relations or [nothing], tests)
        for optional, expands in parts.optionals:
            rows = f"SELECT * FROM ({rows}) LEFT JOIN LATERAL ({self._block(optional)}) ON TRUE"
            for expand in expands:
                relations, tests = [f"({rows})"], []
                self._expand(expand, relations, tests)
                rows = _select(relations, tests)
        tests = [self._value(f) for f in parts.last]
        tests += [f"NOT EXISTS ({self._block(negation)})" for negation in block.negations]
        return _select([f"({rows})"], tests) if tests else rows

    def _node(self, node: ir.NodeVar) -> str:
        declared = [(f"node {name}", name, self._catalog.nodes[name]) for name in node.types]
        return self._entities(node.name, declared, ("id",))

    def _entities(
        self, var: str, declared: Sequence[tuple[str, str, NodeType | EdgeType]], idents: tuple[str, ...]
    ) -> str:
        """The relation of a variable, with all properties that the query uses."""
        props = self._props.get(var, {})
        parts = []
        for table, name, owner in declared:
            columns = [f"'{name}' AS {_quoted(f'{var}.type')}"]
            columns += [f"{ident} AS {_quoted(f'{var}.{ident}')}" for ident in idents]
            for prop, kind in props.items():
                value = f'"p_{prop}"' if prop in owner.properties else "NULL"
                columns.append(f"CAST({value} AS {sql_type(kind)}) AS {_quoted(f'{var}.p_{prop}')}")
            parts.append(f"SELECT {', '.join(columns)} FROM {_quoted(table)}")
        if not parts:
            columns = [f"CAST(NULL AS VARCHAR) AS {_quoted(f'{var}.{ident}')}" for ident in ("type", *idents)]
            for prop, kind in props.items():
                columns.append(f"CAST(NULL AS {sql_type(kind)}) AS {_quoted(f'{var}.p_{prop}')}")
            parts.append(f"SELECT {', '.join(columns)} WHERE FALSE")
        return f"({' UNION ALL '.join(parts)})"

    def _expand(self, expand: ir.Expand, relations: list[str], tests: list[str]) -> None:
        """The relations that an expand adds, and their join conditions."""
        left, right = expand.left, expand.right
        ends = f"{_quoted(f'{left}.type')} = '%s' AND {_quoted(f'{right}.type')} = '%s'"
        near, far = _quoted(f"{left}.id"), _quoted(f"{right}.id")
        if expand.hops is not None:
            reach, name = self._reach(expand.steps, expand.hops), self._fresh("r")
            columns = [f"{column} AS {_quoted(f'{name}.{column}')}" for column in ("lt", "lid", "rt", "rid")]
            if expand.path_var is not None:
                columns.append(f"n AS {_quoted(f'{expand.path_var}.n')}")
            relations.append(f"(SELECT {', '.join(columns)} FROM {reach})")
            pairs = ((f"{left}.type", "lt"), (f"{left}.id", "lid"), (f"{right}.type", "rt"), (f"{right}.id", "rid"))
            tests += [f"{_quoted(mine)} = {_quoted(f'{name}.{other}')}" for mine, other in pairs]
            return
        ways = []
        if expand.edge_var is None:
            for step in expand.steps:
                joined = " OR ".join(f"(src = {a} AND dst = {b})" for a, b in _directions(step, near, far))
                there = f"EXISTS (SELECT 1 FROM {_quoted(f'edge {step.edge}')} WHERE {joined})"
                ways.append(f"({ends % (step.left_type, step.right_type)} AND {there})")
        else:
            var = expand.edge_var.name
            declared = [(f"edge {name}", name, self._catalog.edges[name]) for name in expand.edge_var.types]
            relations.append(self._entities(var, declared, ("id", "src", "dst")))
            source, target = _quoted(f"{var}.src"), _quoted(f"{var}.dst")
            for step in expand.steps:
                joined = " OR ".join(f"({source} = {a} AND {target} = {b})" for a, b in _directions(step, near, far))
                kind = f"{_quoted(f'{var}.type')} = '{step.edge}'"
                ways.append(f"({kind} AND {ends % (step.left_type, step.right_type)} AND ({joined}))")
        tests.append(f"({' OR '.join(ways)})")

    def _reach(self, steps: Sequence[ir.Step], hops: ir.HopRange) -> str:
        """All pairs of nodes whose shortest distance is in range, and that distance.

        A self-loop reaches its node once more, with one more hop. It counts if the node is one hop too near.
        """
        number = self._fresh("")
        parts = []
        for step in steps:
            for a, b in _directions(step, "src", "dst"):
                # The columns with the left and the right endpoint.
                near, far = ("src", "dst") if (a, b) == ("src", "dst") else ("dst", "src")
                parts.append(
                    f"SELECT '{step.left_type}' AS lt, {near} AS lid, '{step.right_type}' AS rt, {far} AS rid "
                    f"FROM {_quoted(f'edge {step.edge}')}"
                )
        starts = " UNION ".join(
            f"SELECT '{name}' AS t, id FROM {_quoted(f'node {name}')}" for name in {step.left_type for step in steps}
        )
        most = self._nodes if hops.max is None else hops.max
        self._before += [
            f"step{number} AS ({' UNION '.join(parts)})",
            f"walk{number}(lt, lid, rt, rid, n) AS ("
            f"SELECT t, id, t, id, 0 FROM ({starts}) UNION "
            f"SELECT w.lt, w.lid, s.rt, s.rid, w.n + 1 FROM walk{number} w JOIN step{number} s "
            f"ON s.lt = w.rt AND s.lid = w.rid WHERE w.n < {most})",
            f"near{number} AS (SELECT lt, lid, rt, rid, min(n) AS n FROM walk{number} GROUP BY lt, lid, rt, rid)",
            f"reach{number} AS (SELECT lt, lid, rt, rid, greatest(n, {hops.min}) AS n FROM near{number} w "
            f"WHERE n BETWEEN {hops.min} AND {most} OR (n = {hops.min - 1} AND EXISTS (SELECT 1 FROM step{number} s "
            f"WHERE s.lt = w.rt AND s.lid = w.rid AND s.rt = w.rt AND s.rid = w.rid)))",
        ]
        return f"reach{number}"

    # Result

    def _read(self, read: ir.Read, rows: str) -> str:
        if read.ranked is not None or (read.grouped and read.distinct):
            raise NotRelationalError("ranks, and groups of groups")
        self._columns = {column.name: column.expr for column in read.columns}
        if read.grouped or read.distinct:
            rows = self._groups(read, rows)
        names = [f"{self._value(column.expr)} AS {_quoted(column.name)}" for column in read.columns]
        tests = [self._value(condition) for condition in conjuncts(read.having)]
        order = list(self._order(read))
        text = f"SELECT {', '.join(names)} FROM ({rows})"
        if tests:
            text += f" WHERE {' AND '.join(tests)}"
        if order:
            text += f" ORDER BY {', '.join(order)}"
        for word, count in (("LIMIT", read.limit), ("OFFSET", read.offset)):
            if count is not None:
                value = self._constant(count)
                if value < 0:
                    raise NotRelationalError("a count that is none")
                text += f" {word} {value}"
        return text

    def _groups(self, read: ir.Read, rows: str) -> str:
        """One row per group, with names for the values that later clauses use."""
        keys = read.keys if read.grouped else read.columns
        exprs: dict[ir.Expr, str] = {}
        for column in keys:
            exprs[column.expr] = self._value(column.expr)
            if isinstance(column.expr, ir.Entity):
                kind = ir.TypeOf(column.expr.var)
                exprs[kind] = self._value(kind)
        parts = (read.columns, read.having, read.order)
        aggregates = {part: self._aggregate(part) for part in walk(parts) if isinstance(part, ir.Aggregate)}
        named = {expr: _quoted(self._fresh("g")) for expr in (*exprs, *aggregates)}
        columns = [f"{text} AS {named[expr]}" for expr, text in (*exprs.items(), *aggregates.items())]
        # Keys by position, since a column may have the same name.
        grouped = f" GROUP BY {', '.join(str(place + 1) for place in range(len(exprs)))}" if exprs else ""
        self._named = named
        return f"SELECT {', '.join(columns)} FROM ({rows}){grouped}"

    def _aggregate(self, aggregate: ir.Aggregate) -> str:
        if aggregate.arg is None:
            return "count(*)"
        arg, kind = aggregate.arg, aggregate.arg.type
        value = self._value(arg)
        distinct = "DISTINCT " if aggregate.distinct else ""
        match aggregate.function:
            case ir.AggregateFunction.COUNT if isinstance(arg, ir.Entity) and aggregate.distinct:
                pair = f"({_quoted(f'{arg.var}.type')}, {value})"
                return f"count(DISTINCT {pair}) FILTER (WHERE {value} IS NOT NULL)"
            case ir.AggregateFunction.COUNT:
                return f"count({distinct}{value})"
            case ir.AggregateFunction.SUM if kind.scalar.is_integer:
                return f"sum({distinct}{value})"
            case ir.AggregateFunction.AVG if kind.scalar.is_integer:
                return f"(CAST(sum({distinct}{value}) AS DOUBLE) / count({distinct}{value}))"
            case ir.AggregateFunction.MIN | ir.AggregateFunction.MAX:
                return f"{aggregate.function}({value})"
            case ir.AggregateFunction.COLLECT if not isinstance(arg, ir.Entity):
                found = f"list({distinct}{value}) FILTER (WHERE {value} IS NOT NULL)"
                return f"coalesce(list_sort({found}), [])"
        raise NotRelationalError("sums of floats hang on their order")

    def _order(self, read: ir.Read) -> Iterator[str]:
        keys = list(read.order)
        for tie in read.ties:
            keys.append(ir.SortKey(tie))
            expr = self._columns[tie.name] if isinstance(tie, ir.Column) else tie
            if isinstance(expr, ir.Entity):
                keys.append(ir.SortKey(ir.TypeOf(expr.var)))
        for key in keys:
            direction = "DESC" if key.descending else "ASC"
            yield f"{self._value(key.expr)} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"

    # Values

    def _value(self, expr: ir.Expr) -> str:
        if expr in self._named:
            return self._named[expr]
        match expr:
            case ir.Const() | ir.Param() | ir.Now():
                name = self._fresh("v")
                value = self._constant(expr)
                self.values[name] = list(value) if isinstance(value, tuple) else value
                return f"CAST(${name} AS {sql_type(expr.type)})"
            case ir.Prop(var, name, _):
                return _quoted(f"{var}.p_{name}")
            case ir.Ident(var, role):
                return _quoted(f"{var}.{_ENDS.get(role, 'id')}")
            case ir.Entity(var):
                return _quoted(f"{var}.id")
            case ir.TypeOf(var):
                return _quoted(f"{var}.type")
            case ir.PathValue(var, ir.PathPart.LENGTH):
                return _quoted(f"{var}.n")
            case ir.Column(name):
                return self._value(self._columns[name])
            case ir.Value(name):
                block = self._block(self._blocks[name].block)
                exists = self._blocks[name].function is ir.BlockFunction.EXISTS
                return f"EXISTS ({block})" if exists else f"CAST((SELECT count(*) FROM ({block})) AS HUGEINT)"
            case ir.VarIsNull(var, negated):
                return (
                    f"({_quoted(f'{var}.n' if var in self._paths else f'{var}.id')} IS {'NOT ' if negated else ''}NULL)"
                )
            case ir.SameEntity(left, right, negated):
                same = " AND ".join(f"{_quoted(f'{left}.{p}')} = {_quoted(f'{right}.{p}')}" for p in ("type", "id"))
                return f"(NOT ({same}))" if negated else f"({same})"
            case ir.IsNull(value, negated):
                return f"({self._value(value)} IS {'NOT ' if negated else ''}NULL)"
            case ir.And(terms) | ir.Or(terms):
                word = " AND " if isinstance(expr, ir.And) else " OR "
                return f"({word.join(map(self._value, terms))})"
            case ir.Not(term):
                return f"(NOT {self._value(term)})"
            case ir.Compare(op, left, right):
                return self._compare(op, left, right)
            case ir.InList(value, items, negated):
                _alike(value.type, items.type)
                found = self._member(self._value(value), self._value(items))
                return f"(NOT {found})" if negated else found
            case ir.Apply(ir.Function.COALESCE, args, kind):
                for arg in args:
                    _alike(arg.type, kind)
                return f"coalesce({', '.join(map(self._value, args))})"
            case ir.Apply(ir.Function.LENGTH, (arg,), _):
                return f"CAST(length({self._value(arg)}) AS HUGEINT)"
        raise NotRelationalError(type(expr).__name__)

    def _compare(self, op: ir.CompareOp, left: ir.Expr, right: ir.Expr) -> str:
        _alike(left.type, right.type)
        a, b = self._value(left), self._value(right)
        if op.value in _COMPARED:
            return f"({a} {_COMPARED[op.value]} {b})"
        if op is ir.CompareOp.HAS_ITEM:
            return f"coalesce({self._member(b, a)}, FALSE)"
        if op.value in _SEARCHED:
            return f"coalesce({_SEARCHED[op.value]}({a}, {b}), FALSE)"
        raise NotRelationalError(op.value)

    def _member(self, value: str, items: str) -> str:
        return f"(CASE WHEN {value} IS NULL OR {items} IS NULL THEN NULL ELSE list_contains({items}, {value}) END)"

    def _constant(self, expr: ir.Expr) -> Any:
        match expr:
            case ir.Const(value=value):
                return value
            case ir.Param(name=name):
                return self._params[name]
            case ir.Now():
                return self._now
        raise NotRelationalError("a count that is computed")


def _alike(left: ValueType, right: ValueType) -> None:
    """Whether SQL compares values of two types as this engine does. Engines differ in 32-bit floats."""
    if sql_type(left.item) != sql_type(right.item) or left.scalar is Scalar.F32:
        raise NotRelationalError("values of different types")


def _directions(step: ir.Step, near: str, far: str) -> Iterable[tuple[str, str]]:
    """Source and target of an edge that is traversed from one node to another."""
    if step.direction is not ir.Direction.IN:
        yield near, far
    if step.direction is not ir.Direction.OUT:
        yield far, near


def _select(relations: Sequence[str], tests: Sequence[str]) -> str:
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return f"SELECT * FROM {', '.join(relations)}{where}"
