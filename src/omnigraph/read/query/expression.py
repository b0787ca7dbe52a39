"""An expression of a compiled query, with derived facts (such as its variables) for the planner and the executor."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk

_RANGE_OPERATORS = frozenset({ir.CompareOp.LT, ir.CompareOp.LE, ir.CompareOp.GT, ir.CompareOp.GE})
_COMPARISONS = _RANGE_OPERATORS | {ir.CompareOp.EQ, ir.CompareOp.NE}


@dataclass(frozen=True)
class Expression:
    """An expression with facts that are derived from it. A fact is computed on first use and cached for all runs."""

    expr: ir.Expr

    @cached_property
    def variables(self) -> frozenset[str]:
        """Variables that the expression refers to."""
        return variables(self.expr)

    @cached_property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Table columns that the expression reads, as pairs of variable and column name."""
        found: dict[tuple[str, str], None] = {}
        for part in walk(self.expr):
            match part:
                case ir.Prop(var=var, name=name):
                    found[var, name] = None
                case ir.Ident(var=var, role=role):
                    found[var, ROLE_COLUMNS[role]] = None
                case ir.Entity(var=var):
                    found[var, "id"] = None
        return tuple(found)

    @cached_property
    def path_lists(self) -> tuple[tuple[str, ir.PathPart], ...]:
        """Lists of path nodes or edges that the expression reads: pairs of path variable, and nodes or edges."""
        found = {(part.var, part.part): None for part in walk(self.expr) if isinstance(part, ir.PathValue)}
        return tuple(key for key in found if key[1] is not ir.PathPart.LENGTH)

    @cached_property
    def properties(self) -> frozenset[str]:
        """Names of the properties that the expression reads."""
        return frozenset(part.name for part in walk(self.expr) if isinstance(part, ir.Prop))

    @cached_property
    def is_search(self) -> bool:
        """Whether the expression contains a text or vector search.

        Such an expression is evaluated for all rows at once.
        """
        return any(isinstance(part, ir.TextMatch | ir.Nearest | ir.Bm25 | ir.Fusion) for part in walk(self.expr))

    @cached_property
    def terms(self) -> tuple[Expression, ...]:
        """The terms of `and` or `or`; empty for other expressions."""
        return tuple(map(Expression, self.expr.terms)) if isinstance(self.expr, ir.And | ir.Or) else ()

    @cached_property
    def range_property(self) -> tuple[str, str] | None:
        """The property that a range condition compares with a value, as variable and name.

        Returns None for other expressions.
        """
        match self.expr:
            case ir.Compare(op, ir.Prop(var=var, name=name), ir.Const() | ir.Param()) if op in _RANGE_OPERATORS:
                return var, name
        return None

    @cached_property
    def compared_columns(self) -> tuple[tuple[str, str], tuple[str, str]] | None:
        """The columns that a comparison reads on its two sides, as pairs of variable and column name.

        Returns None for other expressions.
        """
        match self.expr:
            case ir.Compare(left=ir.Prop() | ir.Ident() as left, right=ir.Prop() | ir.Ident() as right):
                return _column(left), _column(right)
        return None

    @cached_property
    def is_value_test(self) -> bool:
        """Whether the expression tests one property with constants. Such a test cannot fail."""
        match self.expr:
            case ir.Compare(op, ir.Prop(), ir.Const() | ir.Param()) | ir.Compare(
                op, ir.Const() | ir.Param(), ir.Prop()
            ):
                return op in _COMPARISONS
            case ir.IsNull(ir.Prop()) | ir.InList(ir.Prop(), ir.Const() | ir.Param()):
                return True
        return False

    @cached_property
    def equalities(self) -> tuple[tuple[ir.Expr, ir.Const | ir.Param, bool], ...]:
        """Equality tests of a condition: the compared expression, the value, and whether the value is an `in` list."""
        match self.expr:
            case ir.Compare(ir.CompareOp.EQ, left, right):
                sides = ((left, right), (right, left))
                return tuple((side, value, False) for side, value in sides if isinstance(value, ir.Const | ir.Param))
            case ir.InList(value, items, negated=False) if isinstance(items, ir.Const | ir.Param):
                return ((value, items, True),)
        return ()

    @cached_property
    def as_table_filter(self) -> ir.Expr:
        """A condition on one variable, rewritten as a filter on the rows of that variable's table."""
        found: ir.Expr = _on_table_rows(self.expr)
        return found

    @property
    def text(self) -> str:
        """The expression in query syntax."""
        return ir.expression(self.expr)


@dataclass(frozen=True, slots=True)
class SortTerm:
    """A sort key. Its expression has the derived facts (see `Expression`)."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True


def _column(expr: ir.Prop | ir.Ident) -> tuple[str, str]:
    return expr.var, expr.name if isinstance(expr, ir.Prop) else ROLE_COLUMNS[expr.role]


def _on_table_rows(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(map(_on_table_rows, part))
    if not is_dataclass(part) or isinstance(part, type):
        return part
    if isinstance(part, ir.Prop | ir.Ident):
        return replace(part, var=ir.SELF)
    inner = {field.name: getattr(part, field.name) for field in fields(part)}
    return replace(part, **{name: _on_table_rows(value) for name, value in inner.items()})


def variables(part: object) -> frozenset[str]:
    """Variables that an expression, or a tuple of expressions, refers to, and the names of its values."""
    found: set[str] = set()
    for inner in walk(part):
        if isinstance(inner, ir.SameEntity):
            found |= {inner.left, inner.right}
        elif isinstance(inner, ir.Prop | ir.Ident | ir.Entity | ir.TypeOf | ir.PathValue | ir.VarIsNull):
            found.add(inner.var)
        elif isinstance(inner, ir.Value):
            found.add(inner.name)
    return frozenset(found)
