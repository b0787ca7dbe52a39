"""Check expressions: resolve names, derive types, and lower to the IR."""

from __future__ import annotations

from collections.abc import Callable
from enum import Flag, auto

from omnigraph.errors import TypeCheckError
from omnigraph.lang.functions import FUNCTIONS
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check import compare, functions, search, values
from omnigraph.lang.query.check.aggregates import aggregate
from omnigraph.lang.query.check.scope import Scope, Variable, VarKind, fail, properties_of, property_type
from omnigraph.lang.types import Scalar, ValueType

_COMPARE = "compare it: =, !=, <, <=, >, >=, contains, starts_with, ends_with, matches, in [ … ], is null"


class Allow(Flag):
    """The constructs that an expression may contain. They depend on its position in the query."""

    NOTHING = 0
    TEXT_FILTERS = auto()
    RANKS = auto()
    AGGREGATES = auto()


class Expressions:
    """Checks the expressions at one position of a query.

    Attributes:
        resolve: resolves a bare name (an alias or a property); None if bare names are not allowed.
        blocks: checks an `exists` or `count` block; None if they are not allowed.
    """

    __slots__ = ("aggregates", "allow", "blocks", "resolve", "scope")

    def __init__(
        self,
        scope: Scope,
        allow: Allow,
        resolve: Callable[[ast.Name], ir.Expr] | None = None,
        blocks: Callable[[ast.BlockValue], ir.Expr] | None = None,
    ) -> None:
        self.scope = scope
        self.allow = allow
        self.resolve = resolve
        self.blocks = blocks
        self.aggregates = 0
        """The number of checked aggregates, so that the caller can find out whether an expression contains one."""

    def check(self, node: ast.Expr) -> ir.Expr:
        """Check an expression.

        Raises:
            TypeCheckError: the expression breaks a rule.
        """
        return _CHECKS[type(node)](self, node)

    def condition(self, node: ast.Expr) -> ir.Expr:
        """Check an expression that must be boolean."""
        checked = self.check(node)
        if checked.type.scalar is not Scalar.BOOL or checked.type.list:
            counts = isinstance(node, ast.BlockValue)
            hint = "compare it with a number, or write exists { … }" if counts else _COMPARE
            raise fail("T33", f"a filter is true or false, but this is {checked.type}", node.span, hint=hint)
        return checked

    def inside_aggregate(self) -> Expressions:
        """The checker for the argument of an aggregate: it allows neither aggregates nor ranks."""
        return Expressions(self.scope, Allow.NOTHING, self.resolve, self.blocks)

    # Literals and names

    def _literal(self, node: ast.Literal) -> ir.Expr:
        return values.literal(node)

    def _list(self, node: ast.ListLiteral) -> ir.Expr:
        return values.list_literal(node)

    def _now(self, node: ast.Now) -> ir.Expr:
        return ir.Now()

    def _var(self, node: ast.Var) -> ir.Expr:
        """Check a parameter. A node variable is not a value, except where entities are allowed."""
        param = self.scope.context.param(node.name)
        if param is not None:
            return param
        variable = self.find(node.name, node)
        if variable.kind is VarKind.NODE:
            raise fail("T7", f"${node.name} is a node, not a value", node.span, hint=f"did you mean ${node.name}.id?")
        raise misplaced_variable(variable, node)

    def find(self, name: str, node: ast.Var | ast.Access) -> Variable:
        """Find a variable by name. It must be bound."""
        variable = self.scope.find(name)
        if variable is None:
            raise self.scope.unbound(name, node.span, "T6" if isinstance(node, ast.Access) else "T26")
        return variable

    def _name(self, node: ast.Name) -> ir.Expr:
        value = self.scope.find_value(node.name) if self.resolve is None else None
        if value is not None:
            return value
        if self.resolve is None:
            if node.name in self.scope.context.ended:
                hint = "name it in 'with', so that it goes on"
                raise fail("T26", f"the value '{node.name}' ended at 'with'", node.span, hint=hint)
            near = did_you_mean(node.name, self.scope.visible()[1])
            hint = near or f"a variable is written ${node.name}, a text in double quotes"
            if node.name in ("and", "or"):
                hint = "'and' and 'or' join two conditions of one filter; nothing is written between clauses"
            raise fail("T26", f"the name '{node.name}' is not allowed here", node.span, hint=hint)
        return self.resolve(node)

    def _access(self, node: ast.Access) -> ir.Expr:
        return self.access(node, allow_blob=False)

    def access(self, node: ast.Access, *, allow_blob: bool) -> ir.Expr:
        """`$v.property`, `$v.id`, `$e.from`, `$e.to`."""
        if node.var in self.scope.context.params:
            raise fail("T6", f"${node.var} is a parameter and has no properties", node.span)
        variable = self.find(node.var, node)
        name = node.property
        if variable.kind is VarKind.PATH:
            raise misplaced_variable(variable, node)
        if name == "*":
            raise fail("T30", f"${node.var}.* means several columns, so it cannot be a value", node.span)
        if name == "id":
            return ir.Ident(variable.name, ir.Role.ID, variable.nullable)
        if variable.kind is VarKind.EDGE and name in ("from", "to"):
            return ir.Ident(variable.name, ir.Role(name), variable.nullable)
        found = property_type(self.scope.context.catalog, variable, name)
        if found is None:
            raise self._no_property(variable, node)
        if found.scalar is Scalar.BLOB and not allow_blob:
            raise fail("T24", f"{name} is a Blob, which a query cannot read", node.span, hint="read it with blob get")
        return ir.Prop(variable.name, name, found)

    def _no_property(self, variable: Variable, node: ast.Access) -> TypeCheckError:
        known = [*properties_of(self.scope.context.catalog, variable), "id"]
        if variable.kind is VarKind.EDGE:
            known += ["from", "to"]
        verb = "has" if len(variable.interfaces or variable.types) == 1 else "have" if variable.interfaces else "share"
        subject = f"{variable.type_label} {verb} no property '{node.property}'"
        return fail("T6", subject, node.property_span, hint=did_you_mean(node.property, known))

    # Operators

    def _comparison(self, node: ast.Comparison) -> ir.Expr:
        entities = self._entities(node)
        if entities is not None:
            return entities
        return compare.comparison(node, self._operand(node.left), self._operand(node.right))

    def _operand(self, node: ast.Expr) -> ir.Expr:
        if isinstance(node, ast.Call) and node.function in ("search", "match_text", "fuzzy"):
            raise fail(
                "T33",
                f"{node.function}(…) is a complete filter, so it cannot be compared",
                node.span,
                hint=f"write {node.function}(…), or not ({node.function}(…))",
            )
        if isinstance(node, ast.Access):
            checked = self.access(node, allow_blob=True)
            if checked.type.scalar is Scalar.BLOB:
                raise fail("T7", f"{node.property} is a Blob, which cannot be compared", node.span)
            return checked
        return self.check(node)

    def _entities(self, node: ast.Comparison) -> ir.Expr | None:
        """Check `$a = $b` and `$a != $b` for node variables; None for other comparisons."""
        if not (isinstance(node.left, ast.Var) and isinstance(node.right, ast.Var)):
            return None
        params = self.scope.context.params
        if node.left.name in params or node.right.name in params:
            return None
        left, right = self.find(node.left.name, node.left), self.find(node.right.name, node.right)
        for variable, written in ((left, node.left), (right, node.right)):
            if variable.kind is not VarKind.NODE:
                raise misplaced_variable(variable, written)
        if node.op not in ("=", "!="):
            raise fail("T7", f"nodes can be compared with = and !=, but not with '{node.op}'", node.span)
        if not set(left.types) & set(right.types):
            kinds = f"{' or '.join(left.types)} and {' or '.join(right.types)}"
            raise fail("T7", f"these can never be the same node: {kinds}", node.span)
        return ir.SameEntity(left.name, right.name, node.op == "!=", left.nullable or right.nullable)

    def _membership(self, node: ast.Membership) -> ir.Expr:
        return compare.membership(node, self._operand(node.left), self._operand(node.right))

    def _null_test(self, node: ast.NullTest) -> ir.Expr:
        operand = node.operand
        if isinstance(operand, ast.Var) and operand.name not in self.scope.context.params:
            variable = self.find(operand.name, operand)
            return ir.VarIsNull(variable.name, node.negated)
        if isinstance(operand, ast.Access):
            return ir.IsNull(self.access(operand, allow_blob=True), node.negated)
        return ir.IsNull(self._operand(operand), node.negated)

    def _not(self, node: ast.Not) -> ir.Expr:
        return ir.Not(self._logical_operand(node.operand, "not"))

    def _logical(self, node: ast.Logical) -> ir.Expr:
        terms = tuple(self._logical_operand(operand, node.op) for operand in node.operands)
        return ir.And(terms) if node.op == "and" else ir.Or(terms)

    def _logical_operand(self, node: ast.Expr, op: str) -> ir.Expr:
        checked = self.check(node)
        if checked.type.scalar is not Scalar.BOOL or checked.type.list:
            raise fail("T33", f"'{op}' takes conditions, but this is {checked.type}", node.span)
        return checked

    def _block_value(self, node: ast.BlockValue) -> ir.Expr:
        if self.blocks is None:
            hint = "give it an alias in 'return' and use the alias, or filter in 'match'"
            raise fail(
                "T33", f"{node.function} {{ … }} is only allowed in 'match', 'with' and 'return'", node.span, hint=hint
            )
        return self.blocks(node)

    def _arithmetic(self, node: ast.Arithmetic) -> ir.Expr:
        return functions.arithmetic(node, self.check(node.left), self.check(node.right))

    def _negate(self, node: ast.Negate) -> ir.Expr:
        return functions.negate(node, self.check(node.operand))

    # Functions

    def _call(self, node: ast.Call) -> ir.Expr:
        try:
            return self._checked_call(node)
        except TypeCheckError as error:
            function = FUNCTIONS.get(node.function)
            if error.hint is None and function is not None and error.message.startswith(f"{node.function} takes"):
                error.hint = f"write {function.signature}"
            raise

    def _checked_call(self, node: ast.Call) -> ir.Expr:
        name = node.function
        if name in search.TEXT_FILTERS:
            if Allow.TEXT_FILTERS not in self.allow:
                raise fail("T33", f"{name}(…) is a filter of a match and is not allowed here", node.span)
            return search.text_filter(node, self)
        if name in search.RANKS:
            if Allow.RANKS not in self.allow:
                message = f"{name}(…) ranks a result: it is only allowed in 'return' and 'order'"
                raise fail("T32", message, node.span, hint=f"write order {{ {name}(…) }} limit 10")
            return search.rank(node, self)
        if name == "type":
            return self._type_of(node)
        path = self._path_part(node)
        if path is not None:
            return path
        if name == "coalesce":
            written_nulls = (
                None if isinstance(a, ast.Literal) and a.kind is ast.LiteralKind.NULL else self.check(a)
                for a in node.args
            )
            return functions.coalesce(node, list(written_nulls))
        if name not in functions.SCALAR_FUNCTIONS:
            raise functions.unknown_function(node)
        return functions.apply(node, [self.check(arg) for arg in node.args])

    def _type_of(self, node: ast.Call) -> ir.Expr:
        arg = node.args[0] if len(node.args) == 1 and not node.options else None
        if not isinstance(arg, ast.Var) or arg.name in self.scope.context.params:
            raise fail("T31", "type takes a variable: type($v)", node.span)
        variable = self.find(arg.name, arg)
        if variable.kind is VarKind.PATH:
            raise misplaced_variable(variable, arg)
        return ir.TypeOf(variable.name, variable.nullable)

    def _path_part(self, node: ast.Call) -> ir.Expr | None:
        """Check `length($p)`, `nodes($p)` and `edges($p)`; None for other functions."""
        if node.function not in ("length", "nodes", "edges"):
            return None
        arg = node.args[0] if len(node.args) == 1 and not node.options else None
        if isinstance(arg, ast.Var) and arg.name not in self.scope.context.params:
            variable = self.find(arg.name, arg)
            if variable.kind is VarKind.PATH:
                part = ir.PathPart(node.function)
                kind = ir.I64 if part is ir.PathPart.LENGTH else ValueType(Scalar.STRING, list=True)
                return ir.PathValue(variable.name, part, kind.with_nullable(variable.nullable))
        if node.function == "length":
            return None
        raise fail("T35", f"{node.function} takes a path variable: 'shortest $p: …' binds one", node.span)

    def _aggregate(self, node: ast.Aggregate) -> ir.Expr:
        if Allow.AGGREGATES not in self.allow:
            hint = "give it an alias in 'return' and use the alias"
            where = "'return', 'with' and 'having'"
            raise fail("T30", f"{node.function}(…) is only allowed in {where}", node.span, hint=hint)
        self.aggregates += 1
        return aggregate(node, self)


def misplaced_variable(variable: Variable, node: ast.Var | ast.Access) -> TypeCheckError:
    """The error for an edge or path variable where only values or nodes are allowed."""
    if variable.kind is VarKind.PATH:
        hint = f"use length(${variable.name}), nodes(${variable.name}) or edges(${variable.name})"
        return fail("T35", f"${variable.name} is a path, not a value", node.span, hint=hint)
    hint = f"use its properties: ${variable.name}.id, ${variable.name}.from, ${variable.name}.to, …"
    return fail("T23", f"${variable.name} is an edge, not a value", node.span, hint=hint)


_CHECKS: dict[type, Callable[..., ir.Expr]] = {
    ast.Literal: Expressions._literal,
    ast.ListLiteral: Expressions._list,
    ast.Var: Expressions._var,
    ast.Access: Expressions._access,
    ast.Name: Expressions._name,
    ast.Now: Expressions._now,
    ast.Call: Expressions._call,
    ast.Aggregate: Expressions._aggregate,
    ast.Negate: Expressions._negate,
    ast.Arithmetic: Expressions._arithmetic,
    ast.Comparison: Expressions._comparison,
    ast.Membership: Expressions._membership,
    ast.NullTest: Expressions._null_test,
    ast.Not: Expressions._not,
    ast.Logical: Expressions._logical,
    ast.BlockValue: Expressions._block_value,
}
