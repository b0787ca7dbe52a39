"""Check a query that reads: its stages, its match and its result."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.match import block
from omnigraph.lang.query.check.result import Result
from omnigraph.lang.query.check.scope import Context, Scope
from omnigraph.lang.query.check.stage import stage


def read(node: ast.Read, context: Context) -> ir.Read:
    """Check a query that reads."""
    scope = Scope(context)
    stages: list[ir.Stage] = []
    for written in node.stages:
        checked, scope = stage(written, scope)
        stages.append(checked)
    match = block(node.match, scope)
    return replace(Result(node, scope).checked(match), stages=tuple(stages))
