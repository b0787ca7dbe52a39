"""The meaning of a read, computed one row at a time over plain dictionaries.

Written from the rules of the language only, so that the engine can be compared with it. The code is slow on purpose and
does not use tables, versions or columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from tests.evaluate import reference
from tests.read import plain_search

from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk

_MANY = 20_000
"""With more combinations than this, an error is accepted without a search for its row."""


# The graph


@dataclass(frozen=True)
class Node:
    """A node. Two nodes are equal only if type and id are equal."""

    type: str
    id: str
    values: Mapping[str, Any] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Edge:
    type: str
    id: str
    source: str
    target: str
    values: Mapping[str, Any] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Path:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    def along(self, edge: Edge, node: Node) -> Path:
        return Path((*self.nodes, node), (*self.edges, edge))

    @property
    def place(self) -> tuple[Any, ...]:
        """Sort key of a path: ids of the nodes, then ids of the edges, then their types."""
        return (
            [node.id.encode() for node in self.nodes],
            [edge.id.encode() for edge in self.edges],
            [node.type for node in self.nodes],
            [edge.type for edge in self.edges],
        )


@dataclass(frozen=True)
class Graph:
    """Nodes and edges by type and id."""

    nodes: Mapping[str, Mapping[str, Node]]
    edges: Mapping[str, Mapping[str, Edge]]


# Answers


class _Unsure:
    """Stands for a value that cannot be computed, such as an overflow."""

    def __repr__(self) -> str:
        return "UNSURE"


UNSURE = _Unsure()


@dataclass(frozen=True)
class Answer:
    """The answer to a read.

    Attributes:
        columns: the names.
        rows: the rows, in order.
        fails: whether a value of the result, or a decision about it, cannot be computed.
        may_fail: whether an intermediate value cannot be computed, although the result does not need it.
        may_differ: whether the order of some rows depends on a value that cannot be computed.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    fails: bool = False
    may_fail: bool = False
    may_differ: bool = False


class Rough(float):
    """A sum of floats that depends on the order of addition.

    Attributes:
        slack: the largest accepted difference from this sum.
    """

    slack: float

    def __new__(cls, value: float, slack: float) -> Rough:
        made = super().__new__(cls, value)
        made.slack = slack
        return made


def added(numbers: Sequence[float], divisor: int) -> float:
    """A sum divided by a number. It is a `Rough` if intermediate results are inexact."""
    total, exact = Fraction(0), True
    for number in sorted(numbers):
        total += Fraction(number)
        exact = exact and (isinstance(number, int) or _is_float(total))
    found = reference.nearest(total / divisor)
    if exact and (divisor == 1 or _is_float(total)):
        return found
    largest = max(abs(Fraction(number)) for number in numbers) * len(numbers) / divisor
    return Rough(found, float(largest / 10**12))


def _is_float(number: Fraction) -> bool:
    try:
        return Fraction(float(number)) == number
    except OverflowError:
        return False


class BadCountError(Exception):
    """A limit or offset that is not a count."""


@dataclass(frozen=True)
class Row:
    """The binding of each variable, and the values of an earlier stage.

    It is unsure if a condition on it cannot be computed.
    """

    holds: Mapping[str, Node | Edge | Path | None]
    unsure: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)

    def with_(self, holds: Mapping[str, Node | Edge | Path | None], unsure: bool = False) -> Row:
        return Row({**self.holds, **holds}, self.unsure or unsure, self.values)


@dataclass
class Line:
    """A row of the result with its origin.

    Attributes:
        rows: the rows of the match, one or a whole group.
        columns: the values computed so far.
        identities: for columns that are nodes, their type and id.
    """

    rows: Sequence[tuple[Row, Mapping[str, Any]]]
    columns: dict[str, Any]
    identities: dict[str, Any] = field(default_factory=dict)

    @property
    def one(self) -> Row:
        return self.rows[0][0]


@dataclass(frozen=True)
class Parts:
    """The parts of a block, in the order in which they bind.

    Attributes:
        expands: expands between variables that no optional block binds.
        filters: conditions without variables of optional blocks.
        optionals: the optional blocks, each with the expands that are possible after it.
        last: all other conditions.
    """

    expands: list[ir.Expand]
    filters: list[ir.Expr]
    optionals: list[tuple[ir.Block, list[ir.Expand]]]
    last: list[ir.Expr]

    @classmethod
    def of(cls, block: ir.Block) -> Parts:
        later = {name for optional in block.optionals for name in introduced(optional)}
        waiting = [e for e in block.expands if {e.left, e.right} & later]
        expands = [e for e in block.expands if e not in waiting]
        held = {name for e in waiting for name in (e.edge_var and e.edge_var.name, e.path_var) if name}
        conditions = list(conjuncts(block.filters))
        filters = [f for f in conditions if not mentioned(f, block) & (later | held)]
        optionals = []
        for optional in block.optionals:
            later -= set(introduced(optional))
            ready = [e for e in waiting if not {e.left, e.right} & later]
            waiting = [e for e in waiting if e not in ready]
            optionals.append((optional, ready))
        return cls(expands, filters, optionals, [f for f in conditions if f not in filters])


class Oracle:
    """Answers reads.

    Args:
        graph: the graph.
        params: the bound parameters.
        now: the time of the request.
    """

    def __init__(self, graph: Graph, params: Mapping[str, Any], now: int) -> None:
        self.graph = graph
        self.params = params
        self.now = now
        self.may_fail = False
        self.may_differ = False
        self._parts: dict[int, Parts] = {}
        self._walked: dict[tuple[int, Node], dict[Node, list[dict[str, Edge | Path | None]]]] = {}
        self._rows: list[Row] = []
        self._types: dict[str, tuple[str, ...]] = {}
        self._values: dict[str, ir.BlockValue] = {}
        self._fused: dict[ir.Fusion, dict[Hashable, tuple[float, int]]] = {}

    def answer(self, read: ir.Read) -> Answer:
        """The result of a read.

        Raises:
            BadCountError: limit or offset is negative.
        """
        self._values = {part.name: part for part in walk(read) if isinstance(part, ir.BlockValue)}
        rows = [Row({})]
        for stage in read.stages:
            rows = self._stage(stage, rows)
        lines, fails = self._lines(read, rows)
        names = tuple(column.name for column in read.columns)
        found = tuple(tuple(line.columns[name] for name in names) for line in lines)
        fails = fails or any(value is UNSURE for row in found for value in row)
        return Answer(names, found, fails, self.may_fail, self.may_differ)

    def _stage(self, stage: ir.Stage, before: Sequence[Row]) -> list[Row]:
        """The rows that a stage passes on."""
        lines, fails = self._lines(stage.read, before)
        values = [value for line in lines for value in line.columns.values()]
        too_large = fails or any(value is UNSURE for value in values)
        # A stage may compute its values for all its rows, also if the next match drops some of them.
        self.may_fail |= too_large
        self.may_differ |= too_large or any(isinstance(value, Rough) for value in values)
        names = [column.name for column in stage.values]
        return [
            Row(
                {name: line.one.holds[name] for name in stage.carried},
                values={name: line.columns[name] for name in names},
            )
            for line in lines
        ]

    def _lines(self, read: ir.Read, before: Sequence[Row]) -> tuple[list[Line], bool]:
        """The rows of a read or a stage, and whether a row of its match depends on a value that cannot be computed."""
        offset, limit = self._count(read.offset) or 0, self._count(read.limit)
        self._types |= {name: types for name, (_, types) in _kinds(read.match).items()}
        self._fused = {}
        self._rows = rows = [found for row in before for found in self.solutions(read.match, row)]
        fails = any(row.unsure for row in rows) and limit != 0
        lines = self._grouped(read, rows) if read.grouped else self._listed(read, rows)
        if read.distinct:
            lines = self._distinct(read, lines)
        if read.ranked is not None:
            lines = [line for line in lines if self.value(read.ranked, line) is not None]
        lines = self._ordered(read, lines)
        return lines[offset:] if limit is None else lines[offset : offset + limit], fails

    def _count(self, expr: ir.Expr | None) -> int | None:
        if expr is None:
            return None
        count: int = self.value(expr, Line([], {}))
        if count < 0:
            raise BadCountError
        return count

    # Match

    def solutions(self, block: ir.Block, outer: Row) -> list[Row]:
        """Return every assignment of the variables of a block that extends the given bindings."""
        if id(block) not in self._parts:
            self._parts[id(block)] = Parts.of(block)
        parts = self._parts[id(block)]
        rows = self._kept(list(self._assigned(list(block.nodes), parts.expands, outer)), parts.filters)
        for optional, expands in parts.optionals:
            rows = [wider for row in rows for wider in self._optional(optional, row)]
            for expand in expands:
                rows = [row.with_(way) for row in rows for way in self._ways(expand, row)]
        rows = self._kept(rows, parts.last)
        for negation in block.negations:
            rows = [left for row in rows for left in self._without(negation, row)]
        return rows

    def _assigned(self, nodes: list[ir.NodeVar], expands: list[ir.Expand], row: Row) -> Iterator[Row]:
        """Return every assignment of some variables that satisfies the expands."""
        ready = [e for e in expands if e.left in row.holds and e.right in row.holds]
        if ready:
            for way in self._ways(ready[0], row):
                yield from self._assigned(nodes, [e for e in expands if e is not ready[0]], row.with_(way))
            return
        if not nodes:
            assert not expands
            yield row
            return
        first, *others = nodes
        for type_name in first.types:
            for node in self.graph.nodes[type_name].values():
                yield from self._assigned(others, expands, row.with_({first.name: node}))

    def _kept(self, rows: list[Row], filters: list[ir.Expr]) -> list[Row]:
        if not filters:
            return rows
        kept = []
        for row in rows:
            truths = [self.value(f, Line([(row, {})], {})) for f in filters]
            if all(truth is True or truth is UNSURE for truth in truths):
                kept.append(row.with_({}, UNSURE in truths))
        return kept

    def _optional(self, block: ir.Block, row: Row) -> list[Row]:
        found = self.solutions(block, row)
        if not introduced(block):
            # The block adds nothing to the row, so a plan may leave it out.
            self.may_fail = self.may_fail or any(inner.unsure for inner in found)
            return [row]
        return found or [row.with_(dict.fromkeys(introduced(block)))]

    def _without(self, block: ir.Block, row: Row) -> list[Row]:
        found = self.solutions(block, Row(row.holds, values=row.values))
        if any(not inner.unsure for inner in found):
            # The row is excluded, whatever its other conditions are. A plan may still have evaluated them first.
            self.may_fail = self.may_fail or row.unsure
            return []
        return [row.with_({}, True)] if found else [row]

    # Traversals

    def _ways(self, expand: ir.Expand, row: Row) -> list[dict[str, Edge | Path | None]]:
        """Return the bindings by which an expand joins its two bound ends, one for each row."""
        left, right = row.holds[expand.left], row.holds[expand.right]
        if left is None or right is None:
            return []
        assert isinstance(left, Node)
        assert isinstance(right, Node)
        key = id(expand), left
        if key not in self._walked:
            self._walked[key] = self._ways_from(left, expand)
        return self._walked[key].get(right, [])

    def _ways_from(self, left: Node, expand: ir.Expand) -> dict[Node, list[dict[str, Edge | Path | None]]]:
        """Return the same for each node that an expand reaches from a node."""
        if expand.hops is not None:
            found = self._search(left, expand.steps, expand.hops)
            return {node: [{} if expand.path_var is None else {expand.path_var: path}] for node, path in found.items()}
        edges: dict[Node, set[Edge]] = {}
        for edge, node in self._steps(left, expand.steps):
            edges.setdefault(node, set()).add(edge)
        if expand.edge_var is None:
            return {node: [{}] for node in edges}
        return {node: [{expand.edge_var.name: edge} for edge in several] for node, several in edges.items()}

    def _steps(self, node: Node, steps: Sequence[ir.Step]) -> Iterator[tuple[Edge, Node]]:
        """The edges of a node, and the nodes at their other ends."""
        for step in steps:
            if node.type != step.left_type:
                continue
            for edge in self.graph.edges[step.edge].values():
                if step.direction is not ir.Direction.IN and edge.source == node.id:
                    yield edge, self.graph.nodes[step.right_type][edge.target]
                if step.direction is not ir.Direction.OUT and edge.target == node.id:
                    yield edge, self.graph.nodes[step.right_type][edge.source]

    def _search(self, start: Node, steps: tuple[ir.Step, ...], hops: ir.HopRange) -> dict[Node, Path]:
        """Breadth-first search with the best path to each reached node."""
        visited = {start}
        frontier = {start: Path((start,))}
        produced: dict[Node, Path] = {}
        hop = 0
        while frontier and (hops.max is None or hop < hops.max):
            hop += 1
            following: dict[Node, Path] = {}
            loops: dict[Node, Path] = {}
            for node, path in frontier.items():
                for edge, other in self._steps(node, steps):
                    if other == node:
                        _keep_better(loops, path.along(edge, other))
                    elif other not in visited:
                        _keep_better(following, path.along(edge, other))
            visited |= following.keys()
            frontier = following
            if hop >= hops.min:
                produced = {**loops, **following, **produced}
        return produced

    # Result

    def _listed(self, read: ir.Read, rows: list[Row]) -> list[Line]:
        lines = []
        for row in rows:
            line = Line([(row, {})], {})
            for column in read.columns:
                self._fill(line, column)
            lines.append(line)
        return lines

    def _fill(self, line: Line, column: ir.OutColumn) -> None:
        line.columns[column.name] = self.value(column.expr, line)
        if isinstance(column.expr, ir.Entity):
            line.identities[column.name] = line.one.holds[column.expr.var]

    def _grouped(self, read: ir.Read, rows: list[Row]) -> list[Line]:
        keys = read.keys
        groups: dict[tuple[Any, ...], Line] = {}
        if not keys:
            groups[()] = Line([], {})
        for row in rows:
            line = Line([(row, {})], {})
            for column in keys:
                self._fill(line, column)
            member = (row, dict(line.columns))
            group = groups.setdefault(_identity(line), Line([], dict(line.columns), dict(line.identities)))
            group.rows = [*group.rows, member]
        kept = []
        for group in groups.values():
            for column in read.columns:
                if column not in keys:
                    group.columns[column.name] = self.value(column.expr, group)
            truths = [self.value(condition, group) for condition in conjuncts(read.having)]
            if UNSURE in truths:
                self.may_differ = True
            if all(truth is True for truth in truths):
                kept.append(group)
        return kept

    def _distinct(self, read: ir.Read, lines: list[Line]) -> list[Line]:
        if any(value is UNSURE for line in lines for value in line.columns.values()):
            self.may_differ = True
        found: dict[tuple[Any, ...], Line] = {}
        for line in lines:
            found.setdefault(_identity(line), line)
        return list(found.values())

    def _ordered(self, read: ir.Read, lines: list[Line]) -> list[Line]:
        """Sort by the last key first; the sort is stable."""
        for tie in reversed(read.ties):
            if isinstance(tie, ir.Column):
                # Nodes of different types may have the same id.
                lines = sorted(lines, key=lambda line: _type_of(line.identities.get(tie.name)))
            lines = self._sorted(lines, ir.SortKey(tie))
        if isinstance(read.ranked, ir.Fusion):
            places = self._fusion(read.ranked)
            var = read.ranked.arms[0].rank.field.var
            return sorted(lines, key=lambda line: places[line.one.holds[var]][1])
        for key in reversed(read.order):
            lines = self._sorted(lines, key)
        return lines

    def _sorted(self, lines: list[Line], key: ir.SortKey) -> list[Line]:
        values = [(self.value(key.expr, line), line) for line in lines]
        if any(isinstance(value, Rough) for value, _ in values):
            self.may_differ = True
        if any(value is UNSURE for value, _ in values):
            self.may_differ = True
            return lines
        nulls = [line for value, line in values if value is None]
        others = [(value, line) for value, line in values if value is not None]
        others.sort(key=lambda pair: comparable(pair[0]), reverse=key.descending)
        rest = [line for _, line in others]
        return nulls + rest if key.nulls_first else rest + nulls

    # Values

    def value(self, expr: ir.Expr, line: Line) -> Any:
        """Evaluate an expression; `UNSURE` if a number is too large."""
        try:
            return self._value(expr, line)
        except (reference.TooLargeError, _UnsureError):
            self.may_fail = True
            return UNSURE

    def _value(self, expr: Any, line: Line) -> Any:
        match expr:
            case ir.Prop(var, name, _):
                entity = line.one.holds[var]
                return None if entity is None else entity.values.get(name)  # type: ignore[union-attr]
            case ir.Ident(var, role):
                return _ident(line.one.holds[var], role)
            case ir.Entity(var):
                return _ident(line.one.holds[var], ir.Role.ID)
            case ir.TypeOf(var):
                entity = line.one.holds[var]
                return None if entity is None else entity.type  # type: ignore[union-attr]
            case ir.PathValue(var, part):
                return _along(line.one.holds[var], part)
            case ir.VarIsNull(var, negated):
                return (line.one.holds[var] is None) is not negated
            case ir.SameEntity(left, right, negated):
                a, b = line.one.holds[left], line.one.holds[right]
                return None if a is None or b is None else (a == b) is not negated
            case ir.Column(name):
                return _sure(line.columns[name])
            case ir.Value(name):
                if name in self._values:
                    return self._block_value(self._values[name], line.one)
                return _sure(line.one.values[name])
            case ir.Aggregate():
                return self._aggregate(expr, line)
            case ir.TextMatch(mode, text, query, edits, analyzer):
                letters = 0 if edits is None else self._value(edits, line)
                asked = self._value(query, line)
                return plain_search.matches(mode, self._value(text, line), asked, letters, analyzer)
            case ir.Bm25() | ir.Nearest():
                return self._rank(expr, line.one.holds[expr.field.var])
            case ir.Fusion(arms):
                found = self._fusion(expr).get(line.one.holds[arms[0].rank.field.var])
                return None if found is None else found[0]
        return reference.computed(expr, lambda part: self._value(part, line), self.params, self.now)

    def _block_value(self, value: ir.BlockValue, row: Row) -> bool | int:
        """Whether a block has a solution for a row, or how many."""
        found = self.solutions(value.block, Row(row.holds, values=row.values))
        sure = [inner for inner in found if not inner.unsure]
        if value.function is ir.BlockFunction.EXISTS and (sure or not found):
            return bool(sure)
        if len(sure) < len(found):
            raise _UnsureError
        return len(found)

    def _aggregate(self, aggregate: ir.Aggregate, line: Line) -> Any:
        """One value for all rows of a group."""
        argument = aggregate.arg
        if argument is None:
            return len(line.rows)
        values = [self._value(argument, Line([(row, columns)], dict(columns))) for row, columns in line.rows]
        identities = values
        if isinstance(argument, ir.Entity):
            identities = [row.holds[argument.var] for row, _ in line.rows]
        present = [(v, i) for v, i in zip(values, identities, strict=True) if v is not None]
        if aggregate.distinct:
            present = list({i: (v, i) for v, i in reversed(present)}.values())
        found = [v for v, _ in present]
        match aggregate.function:
            case ir.AggregateFunction.COUNT:
                return len(found)
            case ir.AggregateFunction.COLLECT:
                return tuple(sorted(found, key=comparable))
        if not found:
            return None
        match aggregate.function:
            case ir.AggregateFunction.MIN:
                return min(found, key=comparable)
            case ir.AggregateFunction.MAX:
                return max(found, key=comparable)
            case ir.AggregateFunction.AVG:
                return added(found, len(found))
        assert aggregate.function is ir.AggregateFunction.SUM
        if aggregate.type.scalar.is_float:
            return added(found, 1)
        return reference.held(sum(found), aggregate.type)

    # Ranks

    def _rank(self, rank: ir.Bm25 | ir.Nearest, entity: Any) -> float | None:
        """Rank of one entity. Document frequencies cover all nodes of the variable's types."""
        if entity is None:
            return None
        value, query = entity.values.get(rank.field.name), self._value(rank.query, Line([], {}))
        if isinstance(rank, ir.Nearest):
            return plain_search.distance(value, query, rank.metric)
        nodes = [node for name in self._types[rank.field.var] for node in self.graph.nodes[name].values()]
        return plain_search.relevance([node.values.get(rank.field.name) for node in nodes], value, query, rank.analyzer)

    def _fusion(self, fusion: ir.Fusion) -> dict[Hashable, tuple[float, int]]:
        """Score and position of the entities in the rows of the whole match."""
        if fusion not in self._fused:
            var = fusion.arms[0].rank.field.var
            entities = dict.fromkeys(row.holds[var] for row in self._rows)
            arms: list[tuple[dict[Hashable, int], float]] = []
            for arm in fusion.arms:
                ranked = [(self._rank(arm.rank, entity), entity) for entity in entities]
                sign = 1 if isinstance(arm.rank, ir.Nearest) else -1
                there = [(sign * value, e.id.encode(), e.type, e) for value, e in ranked if value is not None]  # type: ignore[union-attr]
                there.sort(key=lambda entry: entry[:3])
                arms.append(({entry[3]: place for place, entry in enumerate(there)}, arm.weight))
            self._fused[fusion] = plain_search.fused(arms, self._value(fusion.k, Line([], {})))
        return self._fused[fusion]

    # Errors that depend on the order of work

    def can_fail(self, read: ir.Read) -> bool:
        """Whether a condition has an overflowing value for any possible binding of its variables.

        The order of conditions is free, so one engine may compute such a value where another has dropped the row.
        """
        matches = [*(stage.read.match for stage in read.stages), read.match]
        kinds = {name: kind for match in matches for name, kind in _kinds(match).items()}
        conditions = [
            (part, block) for match in matches for block in blocks(match) for part in conjuncts(block.filters)
        ]
        conditions += [(part, read.match) for part in _constants(read)]
        if any(_is_too_large(part) for part in walk(read)):
            return True
        return any(self._can_fail(part, block, kinds) for part, block in conditions)

    def _can_fail(self, condition: ir.Expr, block: ir.Block, kinds: Mapping[str, tuple[bool, tuple[str, ...]]]) -> bool:
        names = sorted(mentioned(condition, block))
        if any(name not in kinds for name in names):
            return True  # a path, or a value of a stage
        choices = []
        for name in names:
            is_edge, types = kinds[name]
            tables: Mapping[str, Mapping[str, Node | Edge]] = self.graph.edges if is_edge else self.graph.nodes
            choices.append([None, *(entity for type_name in types for entity in tables[type_name].values())])
        if prod(map(len, choices)) > _MANY:
            return True
        for chosen in product(*choices):
            row = Row(dict(zip(names, chosen, strict=True)))
            if self.value(condition, Line([(row, {})], {})) is UNSURE:
                return True
        return False


class _UnsureError(Exception):
    """A value is needed that cannot be computed."""


def _sure(value: Any) -> Any:
    if value is UNSURE:
        raise _UnsureError
    return value


def _identity(line: Line) -> tuple[Any, ...]:
    """The value that distinguishes rows of a result."""
    return tuple(line.identities.get(name, value) for name, value in line.columns.items())


def _type_of(entity: Node | None) -> str:
    return "" if entity is None else entity.type


def _keep_better(paths: dict[Node, Path], path: Path) -> None:
    known = paths.get(path.nodes[-1])
    if known is None or path.place < known.place:
        paths[path.nodes[-1]] = path


def _ident(entity: Node | Edge | Path | None, role: ir.Role) -> str | None:
    if entity is None:
        return None
    assert not isinstance(entity, Path)
    if role is ir.Role.ID:
        return entity.id
    assert isinstance(entity, Edge)
    return entity.source if role is ir.Role.FROM else entity.target


def _along(path: Node | Edge | Path | None, part: ir.PathPart) -> Any:
    if path is None:
        return None
    assert isinstance(path, Path)
    match part:
        case ir.PathPart.LENGTH:
            return len(path.edges)
        case ir.PathPart.NODES:
            return tuple(node.id for node in path.nodes)
    return tuple(edge.id for edge in path.edges)


def comparable(value: Any) -> Any:
    """Sort key of a value in Python: texts by their bytes, lists item by item, null first."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, tuple):
        return [(item is not None, None if item is None else comparable(item)) for item in value]
    return value


# Variables of blocks and expressions


def conjuncts(filters: Iterable[ir.Expr]) -> Iterator[ir.Expr]:
    for expr in filters:
        if isinstance(expr, ir.And):
            yield from conjuncts(expr.terms)
        else:
            yield expr


def introduced(block: ir.Block) -> list[str]:
    """The variables that a block binds, and those of its optional blocks."""
    names = [node.name for node in block.nodes]
    for expand in block.expands:
        names += [name for name in (expand.edge_var and expand.edge_var.name, expand.path_var) if name]
    return names + [name for optional in block.optionals for name in introduced(optional)]


def blocks(block: ir.Block) -> Iterator[ir.Block]:
    yield block
    for inner in (*block.optionals, *block.negations, *(value.block for value in block.values)):
        yield from blocks(inner)


def _kinds(block: ir.Block) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """The variables of a match except paths: whether they are edges, and their types."""
    kinds: dict[str, tuple[bool, tuple[str, ...]]] = {}
    for part in blocks(block):
        variables = [(node.name, False, node.types) for node in part.nodes]
        variables += [(e.edge_var.name, True, e.edge_var.types) for e in part.expands if e.edge_var is not None]
        for name, is_edge, types in variables:
            known = kinds.get(name, (is_edge, ()))[1]
            kinds[name] = is_edge, (*known, *(t for t in types if t not in known))
    return kinds


_COMPUTED = ir.Arith | ir.Negate | ir.Apply | ir.DateAdd | ir.DateDiff


def _is_too_large(part: object) -> bool:
    """Whether an operand of integers is a constant that is no I64. It is converted also if there is no row."""
    return isinstance(part, ir.Arith) and any(
        isinstance(side, ir.Const) and isinstance(side.value, int) and side.value > 2**63 - 1
        for side in (part.left, part.right)
    )


def _constants(read: ir.Read) -> Iterator[ir.Expr]:
    """Expressions with a value that does not depend on a row."""
    for part in walk(read):
        if not isinstance(part, _COMPUTED) or mentioned(part):
            continue
        if not any(isinstance(inner, ir.Column | ir.Aggregate | ir.Value) for inner in walk(part)):
            yield part


def mentioned(expr: ir.Expr, block: ir.Block | None = None) -> set[str]:
    """The variables of an expression, also those that it needs for the values of inner blocks of a block."""
    names: set[str] = set()
    inner = {value.name: value.block.outer for value in block.values} if block is not None else {}
    for part in walk(expr):
        match part:
            case ir.Prop(var) | ir.Ident(var) | ir.Entity(var) | ir.TypeOf(var):
                names.add(var)
            case ir.PathValue(var) | ir.VarIsNull(var):
                names.add(var)
            case ir.SameEntity(left, right):
                names |= {left, right}
            case ir.Value(name):
                names |= {*inner[name]} if name in inner else {name} if not name.startswith("#") else set()
    return names
