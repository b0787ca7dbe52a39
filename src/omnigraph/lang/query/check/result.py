"""Check the result clauses of a read or a stage: `return` or `with`, `having`, `order`, `limit` and `offset`."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.errors import Span, TypeCheckError
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.aggregates import TWO_STAGES
from omnigraph.lang.query.check.expr import Allow, Expressions
from omnigraph.lang.query.check.match import BlockValues
from omnigraph.lang.query.check.scope import Context, Scope, VarKind, entity, fail, properties_of
from omnigraph.lang.query.foreign_syntax import OTHER_EXPRESSIONS
from omnigraph.lang.query.walk import walk
from omnigraph.lang.types import INTEGER_RANGES, Scalar

_RANKED = (ir.Nearest, ir.Bm25, ir.Fusion)
_ROW_VALUES = (ir.Prop, ir.Ident, ir.Entity, ir.TypeOf, ir.PathValue, ir.VarIsNull, ir.SameEntity, ir.Column, ir.Value)
"""Expressions whose value can differ between rows."""


class Result:
    """Checks the columns of a read or a stage, one after the other, and the clauses after them."""

    word = "return"

    def __init__(self, node: ast.Read | ast.Stage, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.distinct = isinstance(node, ast.Read) and node.distinct
        self.columns: dict[str, ir.OutColumn] = {}
        self.written: dict[ast.Expr, str] = {}
        """Column names by source expression, for sort keys that repeat a projection."""
        self.aggregated: set[str] = set()
        self.block_values: list[ir.BlockValue] = []
        self.grouped = any(_has_aggregate(p.expr) for p in node.projections)

    def checked(self, match: ir.Block) -> ir.Read:
        """Check all clauses after a match."""
        self.project()
        node, context = self.node, self.scope.context
        return ir.Read(
            match=replace(match, values=(*match.values, *self.block_values)),
            columns=tuple(self.columns.values()),
            grouped=self.grouped,
            distinct=self.distinct,
            having=self.having(),
            order=self.order(),
            ties=self.ties(),
            limit=_count(node.limit, "limit", context),
            offset=_count(node.offset, "offset", context) if isinstance(node, ast.Read) else None,
        )

    # return

    def project(self) -> None:
        for projection in self.node.projections:
            if isinstance(projection.expr, ast.Access) and projection.expr.property == "*":
                self._star(projection, projection.expr)
                continue
            allow, blocks = Allow.RANKS | Allow.AGGREGATES, BlockValues(self.scope, self.block_values)
            expressions = Expressions(self.scope, allow, self._earlier_alias, blocks)
            expr = self._projected(projection.expr, expressions)
            name = projection.alias or _column_name(projection.expr)
            self._check_nesting(projection.expr)
            if expressions.aggregates or self._uses_aggregated(projection.expr):
                self.aggregated.add(name)
                self._check_mixed(projection.expr)
            elif self.grouped:
                self._check_groupable(expr, projection.expr)
            self._add(name, expr, projection.span)
            self.written.setdefault(projection.expr, name)

    def _projected(self, node: ast.Expr, expressions: Expressions) -> ir.Expr:
        """Check a projection. A bare node variable means its id."""
        if isinstance(node, ast.Var) and node.name not in self.scope.context.params:
            variable = expressions.find(node.name, node)
            if variable.kind is VarKind.NODE:
                return entity(variable)
        if isinstance(node, ast.Literal) and node.kind is ast.LiteralKind.NULL:
            raise fail("T30", "a column that is always null has no type", node.span)
        expr = expressions.check(node)
        if expr.type.scalar is Scalar.BLOB:
            raise fail("T24", "a Blob cannot be returned by a query", node.span)
        return expr

    def _star(self, projection: ast.Projection, node: ast.Access) -> None:
        if projection.alias is not None:
            raise fail("T30", f"${node.var}.* gives several columns, so it takes no alias", projection.span)
        if node.var in self.scope.context.params:
            raise fail("T6", f"${node.var} is a parameter and has no properties", node.span)
        variable = self.scope.find(node.var)
        if variable is None:
            raise self.scope.unbound(node.var, node.span, "T6")
        if variable.kind is VarKind.PATH:
            raise fail("T35", f"${node.var} is a path and has no properties", node.span)
        expressions = Expressions(self.scope, Allow.NOTHING)
        for name, prop in sorted(properties_of(self.scope.context.catalog, variable).items()):
            if prop.type.scalar is Scalar.BLOB:
                continue
            access = ast.Access(node.var, name, node.span, node.span)
            expr = expressions.check(access)
            if self.grouped:
                self._check_groupable(expr, node)
            self._add(f"{node.var}.{name}", expr, projection.span)
            self.written.setdefault(access, f"{node.var}.{name}")

    def _add(self, name: str, expr: ir.Expr, span: Span) -> None:
        if name in self.columns:
            raise fail("T29", f"two columns are called '{name}'", span, hint="name one of them with 'as'")
        self.columns[name] = ir.OutColumn(name, expr)

    def _earlier_alias(self, node: ast.Name) -> ir.Expr:
        column = self.columns.get(node.name)
        value = self.scope.find_value(node.name) if column is None else None
        if value is not None:
            return value
        if column is None:
            self._check_ended(node)
            hint = OTHER_EXPRESSIONS.get(node.name) or did_you_mean(node.name, self.columns)
            hint = hint or "an alias can only be used after its column"
            if node.name == "distinct":
                hint = "write return distinct { … }"
            raise fail("T30", f"no earlier column is called '{node.name}'", node.span, hint=hint)
        return ir.Column(column.name, column.expr.type)

    def _check_ended(self, node: ast.Name) -> None:
        if node.name in self.scope.context.ended:
            hint = "name it in 'with', so that it goes on"
            raise fail("T30", f"'{node.name}' ended at 'with'", node.span, hint=hint)

    def _check_groupable(self, expr: ir.Expr, node: ast.Expr) -> None:
        if _contains_rank(expr):
            raise fail("T9", "a rank belongs to one row, so it cannot be combined with an aggregate", node.span)
        if expr.type.is_vector:
            raise fail("T9", "rows cannot be grouped by a vector", node.span)
        if not isinstance(expr, ir.Param) and not any(isinstance(part, _ROW_VALUES) for part in walk(expr)):
            raise fail("T9", "a constant cannot be a grouping key", node.span, hint="leave it out of this query")

    def _uses_aggregated(self, node: ast.Expr) -> bool:
        """Whether the expression uses the alias of an aggregate. Its value then belongs to the group, not to a row."""
        return any(isinstance(part, ast.Name) and part.name in self.aggregated for part in walk(node))

    def _check_nesting(self, node: ast.Expr) -> None:
        """Reject nested aggregates, also through an alias."""
        for part in walk(node):
            if isinstance(part, ast.Aggregate) and part.arg is not None and self._uses_aggregated(part.arg):
                message = f"{part.function}(…) takes values of rows, but this is a value of the group"
                raise fail("T30", message, part.arg.span, hint=TWO_STAGES)

    def _check_mixed(self, node: ast.Expr) -> None:
        """Check that an expression has only constants, parameters and aliases outside of its aggregates."""
        for leaf in _outside_aggregates(node):
            if (
                isinstance(leaf, ast.Access | ast.Call | ast.BlockValue)
                or (isinstance(leaf, ast.Var) and leaf.name not in self.scope.context.params)
                or (isinstance(leaf, ast.Name) and leaf.name not in self.columns)
            ):
                raise fail(
                    "T9",
                    "this expression has no single value for a group",
                    leaf.span,
                    hint="make it a column of its own and use its alias",
                )

    # having

    def having(self) -> tuple[ir.Expr, ...]:
        if self.node.having and not self.grouped:
            raise fail(
                "T37",
                "'having' filters groups, and this query has no aggregate",
                self.node.having[0].span,
                hint="filter rows in 'match'",
            )
        expressions = Expressions(self.scope, Allow.AGGREGATES, self._any_alias)
        filters = []
        for clause in self.node.having:
            self._check_nesting(clause.expr)
            self._check_having(clause.expr)
            filters.append(expressions.condition(clause.expr))
        return tuple(filters)

    def _check_having(self, node: ast.Expr) -> None:
        for leaf in _outside_aggregates(node):
            if (
                isinstance(leaf, ast.Access | ast.BlockValue)
                or (isinstance(leaf, ast.Call) and leaf.function == "type")
                or (isinstance(leaf, ast.Var) and leaf.name not in self.scope.context.params)
            ):
                hint = "return it with an alias and use the alias"
                raise fail("T37", "'having' can use only aliases and aggregates", leaf.span, hint=hint)

    def _any_alias(self, node: ast.Name) -> ir.Expr:
        column = self.columns.get(node.name)
        if column is None and not (self.grouped or self.distinct):
            value = self.scope.find_value(node.name)
            if value is not None:
                return value
        if column is None:
            self._check_ended(node)
            near = [n for n in self.columns if n.rpartition(".")[2] == node.name]
            shown = [f"${name}" if "." in name else name for name in self.columns]
            hint = f"did you mean ${near[0]}?" if near else did_you_mean(node.name, shown)
            raise fail("T30", f"no column is called '{node.name}'", node.span, hint=hint)
        return ir.Column(column.name, column.expr.type)

    # order

    def order(self) -> tuple[ir.SortKey, ...]:
        keys = [self._sort_key(sort, first=i == 0) for i, sort in enumerate(self.node.order)]
        ranked = [self._rank_of(key.expr) for key in keys]
        for sort, rank in zip(self.node.order, ranked, strict=True):
            if rank is None or self.node.limit is not None:
                continue
            word, code = ("rrf", "T21") if isinstance(rank, ir.Fusion) else ("nearest", "T17")
            if not isinstance(rank, ir.Bm25):
                raise fail(code, f"an order by {word} needs a limit", sort.span, hint="add 'limit 10'")
        if keys and isinstance(keys[0].expr, _RANKED) and len(keys) > 1:
            second = self.node.order[1]
            if isinstance(keys[0].expr, ir.Nearest) and isinstance(second.expr, ast.Name):
                raise _alias_beside_nearest(second)
            raise fail(
                "T32",
                "no sort key may follow a rank",
                second.span,
                hint="return the rank with an alias and sort by aliases",
            )
        return tuple(keys)

    def _rank_of(self, expr: ir.Expr) -> ir.Rank | None:
        while isinstance(expr, ir.Column):
            expr = self.columns[expr.name].expr
        return expr if isinstance(expr, _RANKED) else None

    def _sort_key(self, sort: ast.Sort, *, first: bool) -> ir.SortKey:
        expr = self._sort_expr(sort)
        if isinstance(expr, _RANKED):
            return self._rank_key(sort, expr, first=first)
        if _contains_rank(expr):
            hint = "return the rank with an alias and compute with the alias"
            raise fail("T32", "a rank function cannot be a part of a sort key", sort.span, hint=hint)
        kind = expr.type
        if not kind.is_plain_scalar:
            code = "T24" if kind.scalar is Scalar.BLOB else "T30"
            raise fail(code, f"{kind} has no order", sort.span)
        descending = bool(sort.descending)
        nulls_first = sort.nulls_first
        if nulls_first is None:
            # By default, null is the lowest value. But for a rank, rows with null come last.
            nulls_first = not descending and self._rank_of(expr) is None
        return ir.SortKey(expr, descending, nulls_first)

    def _sort_expr(self, sort: ast.Sort) -> ir.Expr:
        node = sort.expr
        if isinstance(node, ast.Name):
            return self._any_alias(node)
        if isinstance(node, ast.Var) and node.name in self.columns and node.name not in self._known():
            hint = f"{node.name} is a column: write {node.name}"
            raise fail("T30", f"${node.name} is not a value", node.span, hint=hint)
        if self.grouped or self.distinct:
            name = self.written.get(node)
            if name is not None and not (self.grouped and name in self.aggregated):
                return ir.Column(name, self.columns[name].expr.type)
            raise self._not_in_result(node)
        if isinstance(node, ast.Var) and node.name not in self.scope.context.params:
            raise fail("T30", f"${node.name} is not a value", node.span, hint=f"did you mean ${node.name}.id?")
        if isinstance(node, ast.Literal | ast.ListLiteral | ast.Now | ast.Var):
            raise fail("T30", "a constant gives no order", node.span)
        if _has_aggregate(node):
            raise fail("T30", "an aggregate cannot be a sort key", node.span, hint="sort by its alias")
        return Expressions(self.scope, Allow.RANKS, self._any_alias).check(node)

    def _known(self) -> set[str]:
        """The names that the query writes with `$`: variables and parameters."""
        return {*self.scope.visible()[0], *self.scope.context.params}

    def _not_in_result(self, node: ast.Expr) -> TypeCheckError:
        if self.grouped and isinstance(node, ast.Call) and node.function in ("nearest", "bm25", "rrf"):
            return fail("T32", "groups cannot be ordered by the rank of a row", node.span)
        what = "groups" if self.grouped else "distinct rows"
        return fail(
            "T30",
            f"{what} can be sorted only by columns of the result, and this is not a column",
            node.span,
            hint=f"give it an alias in '{self.word}' and sort by the alias",
        )

    def _rank_key(self, sort: ast.Sort, expr: ir.Rank, *, first: bool) -> ir.SortKey:
        nearest = isinstance(expr, ir.Nearest)
        if not first:
            if nearest and any(isinstance(other.expr, ast.Name) for other in self.node.order):
                raise _alias_beside_nearest(sort)
            raise fail("T32", "a rank function can only be the first sort key", sort.span)
        if sort.nulls_first is not None or (sort.descending is not None and (nearest or not sort.descending)):
            order = "nearest first" if nearest else "best first"
            raise fail("T32", f"a rank has its own order: {order}", sort.span)
        return ir.SortKey(expr, not nearest, False)

    def ties(self) -> tuple[ir.Expr, ...]:
        """The sort keys after the written ones, which make the order total.

        For groups and distinct rows, these are the columns without aggregates; otherwise, the ids of the matched
        entities, and the values of an earlier stage.

        Lists and vectors are compared item by item.
        """
        if self.grouped or self.distinct:
            return tuple(ir.Column(c.name, c.expr.type) for c in self.columns.values() if c.name not in self.aggregated)
        keys: list[ir.Expr] = []
        variables, values = self.scope.visible()
        # Skip anonymous nodes: rows that differ only in such a node are equal in the result, unless a path contains it.
        paths = any(variable.kind is VarKind.PATH for variable in variables.values())
        for name, variable in sorted(variables.items(), key=lambda item: ("#" in item[0], item[0])):
            if variable.kind is VarKind.PATH or ("#" in name and not paths):
                continue
            keys.append(ir.Ident(name, ir.Role.ID, variable.nullable))
            if len(variable.types) > 1:
                keys.append(ir.TypeOf(name, variable.nullable))
        return (*keys, *(ir.Value(name, values[name]) for name in sorted(values)))


def _alias_beside_nearest(sort: ast.Sort) -> TypeCheckError:
    hint = "return nearest(…) with an alias and sort by aliases"
    return fail("T18", "an alias cannot be a sort key beside nearest(…)", sort.span, hint=hint)


def _count(node: ast.Literal | ast.Var | None, word: str, context: Context) -> ir.Expr | None:
    if node is None:
        return None
    if isinstance(node, ast.Literal):
        if not isinstance(node.value, int) or node.value > INTEGER_RANGES[Scalar.I64][1]:
            most = f"{INTEGER_RANGES[Scalar.I64][1]:,}"
            raise fail("T36", f"this {word} is too large", node.span, hint=f"the largest number is {most}")
        return ir.Const(node.value, ir.I64)
    param = context.param(node.name)
    if param is None:
        hint = did_you_mean(node.name, context.params)
        raise fail(
            "T36", f"{word} takes a number or a parameter, and ${node.name} is not a parameter", node.span, hint=hint
        )
    if not param.type.scalar.is_integer or param.type.list or param.type.nullable:
        hint = "null is not a number: declare it without '?'" if param.type.nullable else None
        raise fail("T36", f"{word} takes a whole number, ${node.name} is {param.type}", node.span, hint=hint)
    return param


def _column_name(node: ast.Expr) -> str:
    """The default name of a column without an alias."""
    match node:
        case ast.Access():
            return f"{node.var}.{node.property}"
        case ast.Var() | ast.Name():
            return node.name
        case ast.Literal() | ast.ListLiteral():
            return "literal"
        case ast.Now():
            return "now"
        case ast.Aggregate():
            return node.function if node.arg is None else _column_name(node.arg)
        case ast.Call():
            return node.function
    return "value"


def _children(node: ast.Expr) -> tuple[ast.Expr, ...]:
    match node:
        case ast.Call():
            return (*node.args, *(value for _, value in node.options))
        case ast.Arithmetic() | ast.Comparison() | ast.Membership():
            return (node.left, node.right)
        case ast.Negate() | ast.Not() | ast.NullTest():
            return (node.operand,)
        case ast.Logical():
            return node.operands
        case ast.Aggregate():
            return () if node.arg is None else (node.arg,)
    return ()


def _has_aggregate(node: ast.Expr) -> bool:
    return any(isinstance(part, ast.Aggregate) for part in walk(node))


def _outside_aggregates(node: ast.Expr) -> list[ast.Expr]:
    """The leaves of an expression outside of its aggregates. A rank function or `type` counts as a leaf."""
    if isinstance(node, ast.Aggregate):
        return []
    children = _children(node)
    if not children or (isinstance(node, ast.Call) and node.function in ("nearest", "bm25", "rrf", "type")):
        return [node]
    return [leaf for child in children for leaf in _outside_aggregates(child)]


def _contains_rank(expr: ir.Expr) -> bool:
    return any(isinstance(part, _RANKED) for part in walk(expr))
