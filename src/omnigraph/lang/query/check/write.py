"""Check mutations: target types, assignments and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.errors import TypeCheckError
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.compare import comparable
from omnigraph.lang.query.check.expr import Allow, Expressions
from omnigraph.lang.query.check.scope import Context, Scope, fail
from omnigraph.lang.query.check.values import fit
from omnigraph.lang.schema.catalog import EdgeType, NodeType, Property
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import Scalar, ValueType

_ENDPOINTS = ("from", "to")
_PARSE = {Scalar.DATE: parse_date, Scalar.DATETIME: parse_datetime}
"""Convert a date or time text of the schema to the number in the IR."""


def write(node: ast.Write, context: Context) -> ir.Write:
    """Check a mutation. A query either writes or deletes, never both."""
    statements = tuple(_statement(statement, context) for statement in node.statements)
    deletes = [isinstance(statement, ast.Delete) for statement in node.statements]
    if any(deletes) and not all(deletes):
        other = node.statements[deletes.index(not deletes[0])]
        raise fail(
            "T38",
            "a query either writes or deletes",
            other.span,
            hint="split it in two; graph.branch(…).transaction() makes one commit of both",
        )
    return ir.Write(statements)


def _statement(node: ast.Statement, context: Context) -> ir.Statement:
    target = _target(node, context)
    if isinstance(node, ast.Insert):
        return _Assignments(node, target, context).insert(node)
    kind = ir.EntityKind.EDGE if isinstance(target, EdgeType) else ir.EntityKind.NODE
    if isinstance(node, ast.Update):
        assignments = _Assignments(node, target, context)
        return assignments.update(kind, _Where(target, context).check(node.where))
    where = _Where(target, context).check(node.where)
    cascades: tuple[str, ...] = ()
    if kind is ir.EntityKind.NODE:
        cascades = tuple(edge.name for edge in context.catalog.edges_of(target.name))
    return ir.Delete(kind, target.name, where, cascades)


def _target(node: ast.Statement, context: Context) -> NodeType | EdgeType:
    nodes, edges = context.catalog.nodes, context.catalog.edges
    name = node.type_name
    found: NodeType | EdgeType | None = None
    if node.kind != "edge":
        found = nodes.get(name)
    if found is None and node.kind != "node":
        found = edges.get(name)
    if found is None:
        known = edges if node.kind == "edge" else nodes if node.kind == "node" else [*nodes, *edges]
        what = f"{node.kind} type" if node.kind else "type"
        if name in context.catalog.interfaces:
            types = ", ".join(context.catalog.interfaces[name].implementors)
            raise fail(
                "T10",
                f"{name} is an interface, which has no entities of its own",
                node.type_span,
                hint=f"write to a type that implements it: {types}" if types else None,
            )
        hint = did_you_mean(name, known)
        if name in nodes or name in edges:
            hint = f"{name} is {'a node' if name in nodes else 'an edge'} type: leave out '{node.kind}'"
        raise fail("T10", f"there is no {what} {name}", node.type_span, hint=hint)
    return found


class _Assignments:
    """The assignments of one statement."""

    def __init__(self, node: ast.Insert | ast.Update, target: NodeType | EdgeType, context: Context) -> None:
        self.node = node
        self.target = target
        self.context = context
        self.is_edge = isinstance(target, EdgeType)
        if not node.assigns:
            raise fail("T10", f"this statement assigns no property of {target.name}", node.span)
        self.values = self._values(node.assigns)

    def _values(self, assigns: Sequence[ast.Assign]) -> dict[str, ir.Expr]:
        values: dict[str, ir.Expr] = {}
        for assign in assigns:
            name = assign.name
            if name in values:
                raise fail("T13", f"{self.target.name}.{name} is assigned twice", assign.name_span)
            if self.is_edge and name in _ENDPOINTS:
                kind = ir.STRING
            else:
                prop = self.target.properties.get(name)
                if prop is None:
                    raise self._unknown(assign)
                kind = prop.type
            if isinstance(self.node, ast.Update):
                self._check_fixed(assign)
            values[name] = self._value(assign, kind)
        return values

    def _unknown(self, assign: ast.Assign) -> TypeCheckError:
        known = [*self.target.properties, *(_ENDPOINTS if self.is_edge else ())]
        hint = did_you_mean(assign.name, known)
        if assign.name == "id":
            hint = "an id is derived from the key, or generated; a load can give one"
        elif self.is_edge and assign.name in ("src", "dst"):
            hint = "the ends of an edge are called 'from' and 'to'"
        return fail("T11", f"{self.target.name} has no property '{assign.name}'", assign.name_span, hint=hint)

    def _check_fixed(self, assign: ast.Assign) -> None:
        """Reject updates of key properties and endpoints."""
        if self.is_edge and assign.name in _ENDPOINTS:
            hint = "delete the edge and insert another"
            raise fail("T16", "the ends of an edge cannot be changed", assign.name_span, hint=hint)
        if assign.name in (self.target.key or ()):
            hint = f"insert another {self.target.name} and delete this one"
            message = f"{self.target.name}.{assign.name} is part of the key and cannot be changed"
            raise fail("T16", message, assign.name_span, hint=hint)

    def _value(self, assign: ast.Assign, kind: ValueType) -> ir.Expr:
        node, what = assign.value, f"{self.target.name}.{assign.name}"
        if isinstance(node, ast.Literal | ast.ListLiteral):
            return fit(node, kind, what)
        if isinstance(node, ast.Now):
            if kind.scalar is not Scalar.DATETIME or kind.list:
                raise fail("T7", f"{what} is {kind}, now() is DateTime", node.span)
            return ir.Now()
        param = self.context.param(node.name)
        if param is None:
            hint = did_you_mean(node.name, self.context.params)
            raise fail("T14", f"${node.name} is not a parameter of this query", node.span, hint=hint)
        if not _assignable(param.type, kind):
            raise fail("T7", f"{what} is {kind}, ${node.name} is {param.type}", node.span)
        return param

    def insert(self, node: ast.Insert) -> ir.InsertNode | ir.InsertEdge:
        mode = {
            ast.InsertMode.INSERT: ir.InsertMode.REPLACE,
            ast.InsertMode.CREATE: ir.InsertMode.CREATE,
            ast.InsertMode.MERGE: ir.InsertMode.MERGE,
        }[node.mode]
        if mode is ir.InsertMode.MERGE and self.target.key is None:
            raise fail(
                "T39",
                f"{self.target.name} has no key, so there is nothing to merge with",
                node.type_span,
                hint="use insert, or declare a @key",
            )
        embeds = self._embeds()
        self._check_complete(node, {embed.target for embed in embeds}, mode)
        assigns = self._assigns()
        defaults = self._defaults()
        if self.is_edge:
            source, target = self.values["from"], self.values["to"]
            return ir.InsertEdge(mode, self.target.name, source, target, assigns, defaults)
        return ir.InsertNode(mode, self.target.name, assigns, defaults, embeds)

    def update(self, kind: ir.EntityKind, where: ir.Expr) -> ir.Update:
        return ir.Update(kind, self.target.name, self._assigns(), where, self._embeds())

    def _assigns(self) -> tuple[ir.Assign, ...]:
        names = self.target.properties
        return tuple(ir.Assign(name, value) for name, value in self.values.items() if name in names)

    def _defaults(self) -> tuple[ir.Assign, ...]:
        made = []
        for name, prop in self.target.properties.items():
            if name not in self.values and prop.default is not None:
                made.append(ir.Assign(name, default_value(prop)))
        return tuple(made)

    def _embeds(self) -> tuple[ir.EmbedOnWrite, ...]:
        """The `@embed` vectors whose source text is assigned, and which are not assigned themselves."""
        return tuple(
            ir.EmbedOnWrite(name, prop.embed.source, prop.embed.model)
            for name, prop in self.target.properties.items()
            if prop.embed is not None and name not in self.values and prop.embed.source in self.values
        )

    def _check_complete(self, node: ast.Insert, embedded: set[str], mode: ir.InsertMode) -> None:
        """Check that all required properties are assigned. A merge needs only the key, because the entity may exist."""
        missing = [e for e in _ENDPOINTS if self.is_edge and e not in self.values]
        for name, prop in self.target.properties.items():
            if name in self.values or name in embedded or prop.default is not None or prop.type.nullable:
                continue
            if mode is ir.InsertMode.MERGE and name not in (self.target.key or ()):
                continue
            missing.append(name)
        # Do not report a missing `@embed` vector, but its source text, and that only once.
        embeds = {name: prop.embed.source for name, prop in self.target.properties.items() if prop.embed is not None}
        missing = [embeds.get(name, name) for name in missing if embeds.get(name) not in missing]
        if missing:
            names = ", ".join(missing)
            raise fail("T12", f"{self.target.name} needs {names}", node.span, hint=f"assign {names}")


def default_value(prop: Property) -> ir.Const | ir.Now:
    """The default of a property as an IR constant."""
    assert prop.default is not None
    if prop.default.now:
        return ir.Now()
    value = prop.default.value
    if isinstance(value, str) and prop.type.scalar in _PARSE:
        value = _PARSE[prop.type.scalar](value)
    return ir.Const(value, prop.type)


def _assignable(value: ValueType, target: ValueType) -> bool:
    if target.is_vector or value.is_vector:
        return value.is_vector and target.is_vector and value.dim == target.dim
    if value.list != target.list:
        return False
    if target.scalar is Scalar.BLOB:
        return value.scalar in (Scalar.BLOB, Scalar.STRING)
    return comparable(value, target)


class _Where:
    """The condition of an update or delete: a boolean expression over the properties of the type."""

    def __init__(self, target: NodeType | EdgeType, context: Context) -> None:
        self.target = target
        self.properties: Mapping[str, Property] = target.properties
        self.is_edge = isinstance(target, EdgeType)
        self.expressions = _WhereExpressions(Scope(context), Allow.NOTHING, self._property)

    def check(self, node: ast.Expr) -> ir.Expr:
        return self.expressions.condition(node)

    def _property(self, node: ast.Name) -> ir.Expr:
        if node.name == "id":
            return ir.Ident(ir.SELF, ir.Role.ID)
        if self.is_edge and node.name in _ENDPOINTS:
            return ir.Ident(ir.SELF, ir.Role(node.name))
        prop = self.properties.get(node.name)
        if prop is None:
            known = [*self.properties, "id", *(_ENDPOINTS if self.is_edge else ())]
            message = f"{self.target.name} has no property '{node.name}'"
            raise fail("T11", message, node.span, hint=did_you_mean(node.name, known))
        if prop.type.scalar is Scalar.BLOB:
            raise fail("T11", f"{node.name} is a Blob, which cannot be tested", node.span)
        return ir.Prop(ir.SELF, node.name, prop.type)


class _WhereExpressions(Expressions):
    """Checks the expressions of a `where`, in which every variable is a parameter."""

    __slots__ = ()

    def find(self, name: str, node: ast.Var | ast.Access) -> TypeCheckError:  # type: ignore[override]
        hint = did_you_mean(name, self.scope.context.params)
        if isinstance(node, ast.Access):
            hint = f"write the property alone: {node.property}"
        raise fail("T14", f"${name} is not a parameter of this query", node.span, hint=hint)
