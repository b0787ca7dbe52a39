"""The interface of the expression checker, for rules that check the arguments of a function."""

from __future__ import annotations

from typing import Protocol

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.scope import Scope, Variable


class ExpressionChecker(Protocol):
    """Checks the expressions at one position of a query. `expr.Expressions` implements it."""

    @property
    def scope(self) -> Scope: ...

    def check(self, node: ast.Expr) -> ir.Expr: ...

    def find(self, name: str, node: ast.Var | ast.Access) -> Variable: ...

    def access(self, node: ast.Access, *, allow_blob: bool) -> ir.Expr: ...

    def inside_aggregate(self) -> ExpressionChecker: ...
