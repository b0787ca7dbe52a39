"""Meaningful queries: trees that follow a schema, so that nearly all of them compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from omnigraph.lang.query import ast
from omnigraph.lang.query.ast import LiteralKind
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.lang.types import Scalar, ValueType

T = TypeVar("T")

_NUMBER = ValueType(Scalar.I64)
_TEXT = ValueType(Scalar.STRING)
_NUMBERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)


class Builder:
    """Builds one query, and records variables and parameters as they are introduced."""

    def __init__(self, draw: st.DrawFn, catalog: Catalog) -> None:
        self.draw = draw
        self.catalog = catalog
        self.params: dict[str, ast.Param] = {}
        self.nodes: dict[str, tuple[str, ...]] = {}
        self.interfaces: dict[str, str] = {}
        self.edges: dict[str, str] = {}
        self.paths: list[str] = []
        self.made = 0

    # choices

    def pick(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def fresh(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    # values

    def literal(self, kind: ValueType) -> ast.Literal | ast.ListLiteral:
        """A literal that fits a type."""
        if kind.is_vector:
            zero = ast.Literal(LiteralKind.FLOAT, 0.5)
            return ast.ListLiteral((zero,) * (kind.dim or 1))
        if kind.list:
            count = self.draw(st.integers(1, 3))
            return ast.ListLiteral(tuple(self._scalar(kind.item) for _ in range(count)))
        return self._scalar(kind)

    def _scalar(self, kind: ValueType) -> ast.Literal:
        if kind.enum_values is not None:
            return ast.Literal(LiteralKind.STRING, self.pick(kind.enum_values))
        match kind.scalar:
            case Scalar.BOOL:
                return ast.Literal(LiteralKind.BOOL, self.chance(50))
            case Scalar.DATE:
                return ast.Literal(LiteralKind.DATE, self.pick(("2026-03-14", "1970-01-01", "1999-12-31T23:59:59Z")))
            case Scalar.DATETIME:
                return ast.Literal(LiteralKind.DATETIME, self.pick(("2026-03-14T09:30:00Z", "2026-03-14 09:30:00.5")))
            case Scalar.F32 | Scalar.F64:
                return ast.Literal(LiteralKind.FLOAT, self.draw(st.floats(-1e6, 1e6, width=32)))
            case Scalar.STRING | Scalar.BLOB:
                return ast.Literal(LiteralKind.STRING, self.draw(st.text(max_size=4)))
        return ast.Literal(LiteralKind.INT, self.draw(st.integers(0, 99)))

    def param(self, kind: ValueType) -> ast.Var:
        """A new parameter of a type, sometimes with a default."""
        name = self.fresh("p")
        if kind.enum_values is not None:
            kind = ValueType(Scalar.STRING, kind.nullable, kind.list)
        default = self.literal(kind) if self.chance(20) else None
        self.params[name] = ast.Param(name, kind.with_nullable(self.chance(20)), default)
        return ast.Var(name)

    def value(self, kind: ValueType) -> ast.Literal | ast.ListLiteral | ast.Var:
        """A value that can be assigned to, or matched with, a property of this type."""
        return self.param(kind.with_nullable(False)) if self.chance(40) else self.literal(kind)

    # properties

    def node_properties(self, var: str) -> dict[str, Property]:
        owner = self.catalog.nodes[self.nodes[var][0]]
        declared = self.catalog.interfaces[self.interfaces[var]] if var in self.interfaces else owner
        return {name: prop for name, prop in declared.properties.items() if prop.type.scalar is not Scalar.BLOB}

    def accesses(self) -> list[tuple[ast.Access, ValueType]]:
        """Every property that can be read here."""
        found = [(ast.Access(var, "id"), _TEXT) for var in (*self.nodes, *self.edges)]
        for var in self.nodes:
            found += [(ast.Access(var, n), p.type) for n, p in self.node_properties(var).items()]
        for var, edge in self.edges.items():
            properties = self.catalog.edges[edge].properties.items()
            found += [(ast.Access(var, n), p.type) for n, p in properties if p.type.scalar is not Scalar.BLOB]
            found += [(ast.Access(var, "from"), _TEXT), (ast.Access(var, "to"), _TEXT)]
        return found

    def scalars(self) -> list[tuple[ast.Access, ValueType]]:
        return [(access, kind) for access, kind in self.accesses() if kind.is_plain_scalar]

    def texts(self) -> list[ast.Access]:
        """The text properties of nodes, which can be searched."""
        return [
            a for a, k in self.scalars() if k.scalar is Scalar.STRING and a.var in self.nodes and a.property != "id"
        ]

    def vectors(self) -> list[tuple[ast.Access, ValueType]]:
        return [(access, kind) for access, kind in self.accesses() if kind.is_vector]

    # expressions

    def scalar(self, depth: int = 2) -> tuple[ast.Expr, ValueType]:
        """An expression with a value that can be compared, and its type."""
        access, kind = self.pick(self.scalars())
        if depth == 0 or self.chance(40):
            return access, kind
        if kind.scalar in _NUMBERS:
            return self._number(access, depth)
        if kind.scalar is Scalar.STRING:
            return self._string(access, kind)
        if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
            return self._time(access, kind)
        return ast.Call("coalesce", (access, ast.Literal(LiteralKind.BOOL, True))), kind

    def _number(self, access: ast.Access, depth: int) -> tuple[ast.Expr, ValueType]:
        other: ast.Expr = ast.Literal(LiteralKind.INT, self.draw(st.integers(-9, 9)))
        numeric = [a for a, k in self.scalars() if k.scalar in _NUMBERS]
        if self.chance(50):
            other = self.pick(numeric)
        made: ast.Expr = ast.Arithmetic(self.pick("+-*/%"), access, other)
        if self.chance(30):
            made = ast.Negate(made)
        elif self.chance(30):
            made = ast.Call(self.pick(("abs", "floor", "ceil", "round")), (made,))
        elif depth > 1 and self.chance(30):
            made = ast.Arithmetic(self.pick("+-*"), other, made)
        return made, ValueType(Scalar.F64)

    def _string(self, access: ast.Access, kind: ValueType) -> tuple[ast.Expr, ValueType]:
        word = self.pick(("lower", "upper", "trim", "length", "coalesce", "+", "type"))
        if word == "+":
            return ast.Arithmetic("+", access, ast.Literal(LiteralKind.STRING, "!")), _TEXT
        if word == "coalesce":
            return ast.Call(word, (access, ast.Literal(LiteralKind.STRING, "-"))), _TEXT
        if word == "type":
            return ast.Call(word, (ast.Var(access.var),)), _TEXT
        return ast.Call(word, (access,)), _NUMBER if word == "length" else _TEXT

    def _time(self, access: ast.Access, kind: ValueType) -> tuple[ast.Expr, ValueType]:
        word = self.pick(("year", "month", "day", "date_diff", "date_add"))
        unit = ast.Literal(LiteralKind.STRING, self.pick(("day", "week", "month", "year")))
        if word == "date_diff":
            return ast.Call(word, (unit, access, self.literal(ValueType(kind.scalar)))), _NUMBER
        if word == "date_add":
            return ast.Call(word, (unit, ast.Literal(LiteralKind.INT, -2), access)), kind
        return ast.Call(word, (access,)), _NUMBER

    def condition(self, depth: int = 2) -> ast.Expr:
        """An expression that is true or false."""
        if depth > 0 and self.chance(30):
            word = self.pick(("and", "or", "not"))
            if word == "not":
                return ast.Not(self.condition(depth - 1))
            count = self.draw(st.integers(2, 3))
            return ast.Logical(word, tuple(self.condition(depth - 1) for _ in range(count)))
        lists = [(a, k) for a, k in self.accesses() if k.list]
        if lists and self.chance(20):
            access, kind = self.pick(lists)
            return ast.Comparison("contains", access, self.literal(kind.item))
        if self.chance(15):
            return ast.NullTest(self.pick(self.accesses())[0], self.chance(50))
        expr, kind = self.scalar()
        if self.chance(20):
            items = self.literal(ValueType(kind.scalar, list=True)) if self.chance(50) else self._list_param(kind)
            return ast.Membership(expr, items, self.chance(50))
        if kind.scalar is Scalar.STRING and self.chance(30):
            word = self.pick(("contains", "starts_with", "ends_with", "matches"))
            return ast.Comparison(word, expr, ast.Literal(LiteralKind.STRING, "a+"))
        other = self.value(ValueType(kind.scalar)) if self.chance(70) else expr
        return ast.Comparison(self.pick(("=", "!=", "<", "<=", ">", ">=")), expr, other)

    def _list_param(self, kind: ValueType) -> ast.Var:
        return self.param(ValueType(kind.scalar, list=True))

    # match

    def pattern(self) -> ast.Pattern:
        var = self.fresh("n")
        interfaces = [i for i in self.catalog.interfaces.values() if i.implementors]
        if interfaces and self.chance(15):
            interface = self.pick(interfaces)
            self.nodes[var] = interface.implementors
            self.interfaces[var] = interface.name
            return ast.Pattern(var, interface.name)
        node = self.pick(list(self.catalog.nodes.values()))
        self.nodes[var] = (node.name,)
        return ast.Pattern(var, node.name, self.matchers(node))

    def matchers(self, node: NodeType) -> tuple[ast.Assign, ...]:
        usable = [p for p in node.properties.values() if p.type.scalar not in (Scalar.BLOB, Scalar.VECTOR)]
        chosen = self.draw(st.lists(st.sampled_from(usable), max_size=2, unique_by=lambda p: p.name))
        return tuple(ast.Assign(p.name, self.value(p.type.item)) for p in chosen)

    def traversal(self) -> ast.Traversal | None:
        """A traversal from a variable along a possible edge."""
        left = self.pick(list(self.nodes))
        types = self.nodes[left]
        if left in self.interfaces:
            return None
        fitting = [e for e in self.catalog.edges.values() if types[0] in (e.from_type, e.to_type)]
        if not fitting:
            return None
        edge = self.pick(fitting)
        target = edge.to_type if types[0] == edge.from_type else edge.from_type
        right = self._other_end(target)
        hops = path = edge_var = None
        if edge.same_type and self.chance(40):
            least = self.draw(st.integers(1, 3))
            hops = ast.Hops(least, None if self.chance(30) else least + self.draw(st.integers(0, 3)))
            if self.chance(40) and right != ast.ANONYMOUS:
                path = self.fresh("path")
                self.paths.append(path)
        elif self.chance(40):
            edge_var = self.fresh("e")
            self.edges[edge_var] = edge.name
        undirected = edge.same_type and self.chance(30)
        words = self._words(edge)
        return ast.Traversal(ast.Var(left), words, ast.Var(right), undirected, edge_var, hops, path)

    def _other_end(self, target: str) -> str:
        if self.chance(15):
            return ast.ANONYMOUS
        known = [var for var, types in self.nodes.items() if types == (target,) and var not in self.interfaces]
        if known and self.chance(20):
            return self.pick(known)
        right = self.fresh("n")
        self.nodes[right] = (target,)
        return right

    def _words(self, edge: EdgeType) -> tuple[str, ...]:
        twins = [
            e.word
            for e in self.catalog.edges.values()
            if (e.from_type, e.to_type) == (edge.from_type, edge.to_type) and not e.properties and not edge.properties
        ]
        return tuple(dict.fromkeys((edge.word, *twins))) if self.chance(30) else (edge.word,)

    def block(self) -> ast.Clause | None:
        """An optional or negated block with a new variable, which is local to the block."""
        nodes, edges, paths = dict(self.nodes), dict(self.edges), list(self.paths)
        step = self.traversal()
        inner: list[ast.Clause] = [step] if step is not None else []
        if not inner or self.chance(50):
            inner.append(ast.Filter(self.condition(1)))
        self.nodes, self.edges, self.paths = nodes, edges, paths
        return ast.Negation(tuple(inner)) if self.chance(50) or step is None else ast.Optional(tuple(inner))

    def text_filter(self) -> ast.Filter | None:
        fields = self.texts()
        if not fields:
            return None
        field, query = self.pick(fields), self.value(_TEXT)
        word = self.pick(("search", "match_text", "fuzzy"))
        options = (("all", ast.Literal(LiteralKind.BOOL, True)),) if word == "search" and self.chance(50) else ()
        return ast.Filter(ast.Call(word, (field, query), options))

    def match(self) -> tuple[ast.Clause, ...]:
        clauses: list[ast.Clause] = [self.pattern()]
        for _ in range(self.draw(st.integers(0, 4))):
            makers = (self.traversal, self.traversal, self.block, self.text_filter, self.pattern, self._filter)
            made = self.pick(makers)()
            if made is not None:
                clauses.append(made)
        return tuple(clauses)

    def _filter(self) -> ast.Clause:
        return ast.Filter(self.condition())

    # result

    def read(self) -> ast.Read:
        match = self.match()
        limit = self._count() if self.chance(50) else None
        offset = self._count() if limit is not None and self.chance(30) else None
        if self.chance(30):
            return self._grouped(match, limit, offset)
        if self.vectors() and self.chance(40):
            return self._ranked(match)
        return self._rows(match, limit, offset)

    def _count(self) -> ast.Literal | ast.Var:
        if self.chance(30):
            name = self.fresh("p")
            self.params[name] = ast.Param(name, _NUMBER, ast.Literal(LiteralKind.INT, 10))
            return ast.Var(name)
        return ast.Literal(LiteralKind.INT, self.draw(st.integers(0, 99)))

    def _sorts(self, keys: Sequence[ast.Expr]) -> tuple[ast.Sort, ...]:
        if not keys:
            return ()
        chosen = self.draw(st.lists(st.sampled_from(keys), max_size=2, unique_by=repr))
        either = st.none() | st.booleans()
        return tuple(ast.Sort(key, self.draw(either), self.draw(either)) for key in chosen)

    def _rows(
        self,
        match: tuple[ast.Clause, ...],
        limit: ast.Literal | ast.Var | None,
        offset: ast.Literal | ast.Var | None,
    ) -> ast.Read:
        projections = []
        for i in range(self.draw(st.integers(1, 3))):
            expr = self.scalar()[0] if self.chance(60) else self.pick(self.accesses())[0]
            projections.append(ast.Projection(expr, f"c{i}"))
        keys: list[ast.Expr] = [
            ast.Name(p.alias or "") for p in projections if not isinstance(p.expr, ast.Access) or self._sortable(p.expr)
        ]
        distinct = self.chance(20)
        if not distinct:
            keys += [access for access, _ in self.scalars()]
        if self.paths:
            part = self.pick(("length", "nodes", "edges"))
            projections.append(ast.Projection(ast.Call(part, (ast.Var(self.pick(self.paths)),)), "path"))
        if self.chance(30) and not distinct:
            projections.append(ast.Projection(ast.Access(self.pick(list(self.nodes)), "*")))
        return ast.Read(match, tuple(projections), distinct, (), self._sorts(keys), limit, offset)

    def _sortable(self, access: ast.Access) -> bool:
        return any(access == known for known, _ in self.scalars())

    def _grouped(
        self,
        match: tuple[ast.Clause, ...],
        limit: ast.Literal | ast.Var | None,
        offset: ast.Literal | ast.Var | None,
    ) -> ast.Read:
        keys = [ast.Projection(self.pick(self.scalars())[0], f"k{i}") for i in range(self.draw(st.integers(0, 2)))]
        access, kind = self.pick(self.scalars())
        functions = ["count", "min", "max", "collect"]
        if kind.scalar in _NUMBERS:
            functions += ["sum", "avg"]
        function = self.pick(functions)
        values = [
            ast.Projection(ast.Aggregate("count", None), "total"),
            ast.Projection(ast.Aggregate(function, access, function == "count" and self.chance(50)), "value"),
        ]
        having: tuple[ast.Filter, ...] = ()
        if self.chance(40):
            test = ast.Comparison(">", ast.Name("total"), ast.Literal(LiteralKind.INT, 1))
            having = (ast.Filter(test),)
        names: list[ast.Expr] = [ast.Name("total"), *(ast.Name(p.alias or "") for p in keys)]
        return ast.Read(match, (*keys, *values), False, having, self._sorts(names), limit, offset)

    def _ranked(self, match: tuple[ast.Clause, ...]) -> ast.Read:
        field, kind = self.pick(self.vectors())
        query = self.param(_TEXT) if self.chance(60) else self.literal(kind)
        rank: ast.Expr = ast.Call("nearest", (field, query))
        texts = [t for t in self.texts() if t.var == field.var]
        if texts and self.chance(50):
            arm = ast.Call("bm25", (self.pick(texts), self.value(_TEXT)))
            weighted = ast.Arithmetic("*", rank, ast.Literal(LiteralKind.FLOAT, 2.0))
            rank = ast.Call("rrf", (weighted, arm, ast.Literal(LiteralKind.INT, 30)))
        limit = ast.Literal(LiteralKind.INT, 5)
        shown = ast.Projection(self.pick(self.scalars())[0], "c0")
        if self.chance(50):
            return ast.Read(
                match, (shown, ast.Projection(rank, "score")), order=(ast.Sort(ast.Name("score")),), limit=limit
            )
        return ast.Read(match, (shown,), order=(ast.Sort(rank),), limit=limit)

    # writes

    def write(self) -> ast.Write:
        makers = (self._delete,) if self.chance(30) else (self._insert, self._update)
        return ast.Write(tuple(self.pick(makers)() for _ in range(self.draw(st.integers(1, 2)))))

    def _owner(self) -> tuple[NodeType | EdgeType, str | None]:
        nodes, edges = self.catalog.nodes, self.catalog.edges
        if edges and self.chance(40):
            edge = self.pick(list(edges.values()))
            return edge, "edge" if edge.name in nodes or self.chance(20) else None
        node = self.pick(list(nodes.values()))
        return node, "node" if self.chance(20) else None

    def _insert(self) -> ast.Statement:
        owner, kind = self._owner()
        modes = [ast.InsertMode.INSERT, ast.InsertMode.CREATE]
        if owner.key is not None:
            modes.append(ast.InsertMode.MERGE)
        ends = []
        if isinstance(owner, EdgeType):
            ends = [ast.Assign(end, self.value(_TEXT)) for end in ("from", "to")]
        assigns = [
            ast.Assign(p.name, self._assigned(p))
            for p in owner.properties.values()
            if (not p.type.nullable and p.default is None) or self.chance(30)
        ]
        if not ends and not assigns:
            assigns = [ast.Assign(p.name, self._assigned(p)) for p in list(owner.properties.values())[:1]]
        return ast.Insert(self.pick(modes), owner.name, (*ends, *assigns), kind)

    def _assigned(self, prop: Property) -> ast.Value:
        if prop.type.scalar is Scalar.DATETIME and not prop.type.list and self.chance(30):
            return ast.Now()
        if prop.type.nullable and self.chance(10):
            return ast.Literal(LiteralKind.NULL, None)
        return self.value(prop.type)

    def _update(self) -> ast.Statement:
        owner, kind = self._owner()
        free = [p for p in owner.properties.values() if p.name not in (owner.key or ())]
        if not free:
            return self._insert()
        chosen = self.draw(st.lists(st.sampled_from(free), min_size=1, max_size=3, unique_by=lambda p: p.name))
        assigns = tuple(ast.Assign(p.name, self._assigned(p)) for p in chosen)
        return ast.Update(owner.name, assigns, self._where(owner), kind)

    def _delete(self) -> ast.Statement:
        owner, kind = self._owner()
        return ast.Delete(owner.name, self._where(owner), kind)

    def _where(self, owner: NodeType | EdgeType, depth: int = 1) -> ast.Expr:
        if depth and self.chance(40):
            return ast.Logical(self.pick(("and", "or")), (self._where(owner, 0), ast.Not(self._where(owner, 0))))
        names = [(n, p.type) for n, p in owner.properties.items() if p.type.is_plain_scalar]
        names.append(("id", _TEXT))
        if isinstance(owner, EdgeType):
            names += [("from", _TEXT), ("to", _TEXT)]
        name, kind = self.pick(names)
        if self.chance(20):
            return ast.NullTest(ast.Name(name), self.chance(50))
        if self.chance(20):
            return ast.Membership(ast.Name(name), self._list_param(kind), self.chance(50))
        return ast.Comparison(self.pick(("=", "!=", "<", ">=")), ast.Name(name), self.value(ValueType(kind.scalar)))

    def query(self) -> ast.Query:
        body = self.write() if self.chance(25) else self.read()
        description = "What it is for" if self.chance(30) else None
        return ast.Query("q", tuple(self.params.values()), body, description)


def valid_queries(catalog: Catalog) -> st.SearchStrategy[ast.Query]:
    """Queries over a schema, nearly all of which compile."""

    @st.composite
    def made(draw: st.DrawFn) -> ast.Query:
        return Builder(draw, catalog).query()

    return made()
