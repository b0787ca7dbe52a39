"""Check `with`: the variables and values that go on to the next stage."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.expr import Expressions, misplaced_variable
from omnigraph.lang.query.check.match import block
from omnigraph.lang.query.check.result import Result
from omnigraph.lang.query.check.scope import Scope, VarKind, entity, fail


def stage(node: ast.Stage, scope: Scope) -> tuple[ir.Stage, Scope]:
    """Check a stage. Also returns the scope of the next stage."""
    match = block(node.match, scope)
    result = _StageResult(node, scope)
    checked = ir.Stage(result.checked(match), tuple(result.carried))
    return checked, _next_scope(scope, checked)


class _StageResult(Result):
    """Checks the entries of a `with`. A bare variable goes on; every other entry is a value and has a name."""

    word = "with"

    def __init__(self, node: ast.Stage, scope: Scope) -> None:
        super().__init__(node, scope)
        self.carried: list[str] = []

    def project(self) -> None:
        for projection in self.node.projections:
            self._check_entry(projection)
        super().project()

    def _check_entry(self, projection: ast.Projection) -> None:
        expr = projection.expr
        if isinstance(expr, ast.Access) and expr.property == "*":
            message = f"${expr.var}.* means several columns, and 'with' takes variables and single values"
            raise fail("T43", message, expr.span, hint=f"write ${expr.var}: all of its properties go on with it")
        if isinstance(expr, ast.Var) and expr.name not in self.scope.context.params:
            if projection.alias is not None:
                hint = f"write ${expr.name}, or ${expr.name}.id as {projection.alias}"
                raise fail("T43", "a variable goes on under its own name", projection.span, hint=hint)
        elif projection.alias is None and not isinstance(expr, ast.Name):
            raise fail("T43", "a value needs a name to go on", projection.span, hint="name it with 'as'")

    def _projected(self, node: ast.Expr, expressions: Expressions) -> ir.Expr:
        if isinstance(node, ast.Var) and node.name not in self.scope.context.params:
            variable = expressions.find(node.name, node)
            if variable.kind is VarKind.PATH:
                raise misplaced_variable(variable, node)
            self.carried.append(variable.name)
            return entity(variable)
        return super()._projected(node, expressions)


def _next_scope(scope: Scope, checked: ir.Stage) -> Scope:
    """The scope of the stage after a `with`. Everything that `with` does not name ends."""
    variables, values = scope.visible()
    outer = Scope(scope.context)
    outer.vars = {name: replace(variables[name]) for name in checked.carried}
    outer.values = {column.name: column.expr.type for column in checked.values}
    scope.context.ended |= {*variables, *values}
    scope.context.ended -= {*outer.vars, *outer.values}
    return Scope(scope.context, outer)
