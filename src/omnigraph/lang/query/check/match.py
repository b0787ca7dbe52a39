"""Check `match`: patterns, blocks and their scopes."""

# See docs/decisions/0003-optional-binds-from-where-it-stands.md

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.dataclass import dataclass
from omnigraph.errors import Span
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.compare import comparable
from omnigraph.lang.query.check.expr import Allow, Expressions
from omnigraph.lang.query.check.scope import Context, Scope, Variable, VarKind, fail, properties_of, property_type
from omnigraph.lang.query.check.traversal import traversal
from omnigraph.lang.query.check.values import fit
from omnigraph.lang.types import Scalar, ValueType


def block(clauses: Sequence[ast.Clause], scope: Scope) -> ir.Block:
    """Check the clauses of a block.

    Binding clauses are checked in source order, because each can use the variables of the clauses before it. Filters
    and `not` blocks are checked last, so they can be written before the clause that binds their variables.
    """
    filters: list[ir.Expr] = []
    expands: list[ir.Expand] = []
    optionals: list[ir.Block] = []
    for clause in clauses:
        if isinstance(clause, ast.Pattern):
            _pattern(clause, scope, filters)
        elif isinstance(clause, ast.Traversal):
            expands.append(traversal(clause, scope, filters))
        elif isinstance(clause, ast.Optional):
            optionals.append(_optional(clause, scope))
    values: list[ir.BlockValue] = []
    expressions = Expressions(scope, Allow.TEXT_FILTERS, blocks=BlockValues(scope, values))
    filters += [expressions.condition(c.expr) for c in clauses if isinstance(c, ast.Filter)]
    negations = tuple(_negation(c, scope) for c in clauses if isinstance(c, ast.Negation))
    return ir.Block(
        nodes=tuple(
            ir.NodeVar(v.name, v.types, "#" not in v.name)
            for v in scope.vars.values()
            if v.kind is VarKind.NODE and not v.nullable
        ),
        expands=tuple(expands),
        filters=tuple(filters),
        optionals=tuple(optionals),
        negations=negations,
        outer=tuple(sorted(scope.outer)),
        values=tuple(values),
    )


def _negation(clause: ast.Negation, scope: Scope) -> ir.Block:
    return _tested_block("not", clause.clauses, clause.span, scope, "it would keep all rows or none")


def _tested_block(word: str, clauses: Sequence[ast.Clause], span: Span, scope: Scope, otherwise: str) -> ir.Block:
    """Check a block whose variables are not visible outside of it."""
    inner = Scope(scope.context, scope)
    checked = block(clauses, inner)
    scope.context.hidden.update(dict.fromkeys(inner.vars, word))
    if not inner.outer:
        message = f"this '{word}' block mentions no variable from outside, so {otherwise}"
        raise fail("T9", message, span, hint="use a variable of the match in it")
    return checked


@dataclass(frozen=True, slots=True)
class BlockValues:
    """Checks the `exists` and `count` blocks in the expressions of a block.

    Attributes:
        scope: the variables of the enclosing block.
        found: the checked blocks. New ones are added.
    """

    scope: Scope
    found: list[ir.BlockValue]

    def __call__(self, node: ast.BlockValue) -> ir.Expr:
        word, context = node.function, self.scope.context
        checked = _tested_block(word, node.clauses, node.span, self.scope, "its value would be the same for all rows")
        context.block_values += 1
        value = ir.BlockValue(f"#{context.block_values}", ir.BlockFunction(word), checked)
        self.found.append(value)
        return ir.Value(value.name, ir.BOOL if value.function is ir.BlockFunction.EXISTS else ir.I64)


def _optional(clause: ast.Optional, scope: Scope) -> ir.Block:
    """Check an optional block. Later clauses can use its variables, which may be null."""
    inner = Scope(scope.context, scope)
    checked = block(clause.clauses, inner)
    if not inner.outer:
        raise fail(
            "T34",
            "this 'optional' block mentions no variable that is bound before it",
            clause.span,
            hint="put it after the clauses that it extends",
        )
    for variable in inner.vars.values():
        variable.nullable = True
        scope.vars[variable.name] = variable
    return checked


def _pattern(clause: ast.Pattern, scope: Scope, filters: list[ir.Expr]) -> None:
    catalog = scope.context.catalog
    interfaces: tuple[str, ...] = ()
    if clause.type_name in catalog.nodes:
        types: tuple[str, ...] = (clause.type_name,)
    elif clause.type_name in catalog.interfaces:
        interfaces = (clause.type_name,)
        types = catalog.interfaces[clause.type_name].implementors
    else:
        raise _unknown_type(clause, scope.context)
    variable = None if clause.var == ast.ANONYMOUS else scope.find(clause.var)
    if variable is None:
        span = _var_span(clause)
        variable = scope.bind(Variable(scope.context.fresh(clause.var), VarKind.NODE, types, span, interfaces))
        if not types:
            # No node type implements the interface, so nothing matches. The IR gets a filter that is always false.
            filters.append(ir.Const(False, ir.BOOL))
    else:
        variable = _narrow(clause, variable, types, interfaces, scope, filters)
    for matcher in clause.matchers:
        filters.append(_matcher(matcher, variable, scope))


def _narrow(
    clause: ast.Pattern,
    variable: Variable,
    types: tuple[str, ...],
    interfaces: tuple[str, ...],
    scope: Scope,
    filters: list[ir.Expr],
) -> Variable:
    """Check a pattern for a variable that is already bound. It narrows the type of the variable."""
    if variable.kind is not VarKind.NODE:
        kind, code = ("an edge", "T23") if variable.kind is VarKind.EDGE else ("a path", "T35")
        raise fail(code, f"${clause.var} is {kind}, so it cannot be a {clause.type_name}", _var_span(clause))
    both = tuple(t for t in variable.types if t in types)
    if not both:
        known = " or ".join(variable.types) or "nothing"
        message = f"${clause.var} is {known}, so it cannot be {clause.type_name}"
        hint = "an earlier clause determines its type: put this pattern first, or use another variable"
        raise fail("T25", message, clause.type_span, hint=hint)
    # If one of the patterns names a node type, no interfaces remain. Otherwise the variable implements all interfaces.
    if interfaces and variable.interfaces:
        interfaces = tuple(sorted({*variable.interfaces, *interfaces}))
    elif interfaces:
        interfaces = ()
    if scope.owns(variable):
        variable.types = both
        variable.interfaces = interfaces
        return variable
    if variable.nullable:
        filters.append(ir.VarIsNull(variable.name, True))
    if both != variable.types:
        names = ir.Const(both, ValueType(Scalar.STRING, list=True))
        filters.append(ir.InList(ir.TypeOf(variable.name, variable.nullable), names, False))
    variable = replace(variable, types=both, interfaces=interfaces)
    scope.narrowed[variable.name] = variable
    return variable


def _var_span(clause: ast.Pattern) -> Span:
    return Span(clause.span.start, clause.span.start + len(clause.var) + 1)


def _unknown_type(clause: ast.Pattern, context: Context) -> Exception:
    catalog = context.catalog
    if clause.type_name in catalog.edges:
        word = catalog.edges[clause.type_name].word
        between = f"an edge is matched between two nodes: $a {word} $b, or $a $e:{word} $b"
        return fail("T1", f"{clause.type_name} is an edge type, not a node type", clause.type_span, hint=between)
    hint = did_you_mean(clause.type_name, [*catalog.nodes, *catalog.interfaces])
    return fail("T1", f"there is no node type {clause.type_name}", clause.type_span, hint=hint)


def _matcher(matcher: ast.Assign, variable: Variable, scope: Scope) -> ir.Expr:
    """Lower `name: value` to a filter: equality, or membership of a scalar in a list property."""
    catalog = scope.context.catalog
    what = f"{variable.type_label}.{matcher.name}"
    field: ir.Expr
    if matcher.name == "id":
        field = ir.Ident(variable.name, ir.Role.ID, variable.nullable)
    else:
        found = property_type(catalog, variable, matcher.name)
        if found is None:
            hint = did_you_mean(matcher.name, properties_of(catalog, variable))
            raise fail("T2", f"{variable.type_label} has no property '{matcher.name}'", matcher.name_span, hint=hint)
        field = ir.Prop(variable.name, matcher.name, found)
    kind = field.type
    if kind.scalar in (Scalar.BLOB, Scalar.VECTOR):
        raise fail("T3", f"{what} is {kind}, which cannot be matched", matcher.span)
    value = _matcher_value(matcher, kind, what, variable, scope)
    op = ir.CompareOp.HAS_ITEM if kind.list else ir.CompareOp.EQ
    return ir.Compare(op, field, value)


def _matcher_value(matcher: ast.Assign, kind: ValueType, what: str, variable: Variable, scope: Scope) -> ir.Expr:
    node = matcher.value
    if isinstance(node, ast.ListLiteral):
        raise fail("T3", f"{what} cannot be matched with a whole list", node.span, hint="name one item, or use 'in'")
    if isinstance(node, ast.Literal):
        if node.kind is ast.LiteralKind.NULL:
            raise fail("T3", "an entry in braces never matches null", node.span, hint="write a filter with 'is null'")
        if node.kind in (ast.LiteralKind.INT, ast.LiteralKind.FLOAT) and kind.scalar.is_numeric:
            # Do not convert the number: a value outside of the range of the property matches nothing.
            return Expressions(scope, Allow.NOTHING).check(node)
        return fit(node, kind.item, f"an item of {what}" if kind.list else what)
    if isinstance(node, ast.Now):
        if kind.scalar is not Scalar.DATETIME:
            raise fail("T7", f"{what} is {kind}, now() is DateTime", node.span)
        return ir.Now()
    param = scope.context.param(node.name)
    if param is None:
        if scope.find(node.name) is not None:
            raise fail(
                "T3",
                f"an entry in braces takes a literal or a parameter, but ${node.name} is a variable",
                node.span,
                hint=f"compare in a filter: ${variable.name}.{matcher.name} = ${node.name}.property",
            )
        raise scope.unbound(node.name, node.span)
    if param.type.list or param.type.is_vector or not comparable(kind.item, param.type):
        raise fail("T7", f"{what} is {kind}, ${node.name} is {param.type}", node.span)
    return param
