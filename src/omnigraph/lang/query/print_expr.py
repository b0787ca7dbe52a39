"""Printer of expressions and of clauses on one line: canonical source text with the minimum of parentheses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from omnigraph.lang.query import ast
from omnigraph.lang.query.ast import LiteralKind
from omnigraph.lang.query.expressions import COMPARISONS, OPERATOR_WORDS
from omnigraph.lang.tokens import quote

_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _UNARY = range(1, 8)

_CONTINUES = re.compile(rf"-|(?:{'|'.join(sorted(OPERATOR_WORDS))}|not in)\b")
"""Matches a text that the parser would read as the continuation of the expression before it."""

_TRAVERSAL = re.compile(r"\$\w+ \w+ \$\w+(?![\w.])")
_NAMED_ARGUMENT = re.compile(r"\w+ = ")
_DISTINCT = re.compile(r"distinct\b.")


def expression(expr: ast.Expr, level: int = _OR, *, in_where: bool = False) -> str:
    """Print an expression. Adds parentheses if its operator has a lower precedence than `level`."""
    text, binding = _print(expr, in_where)
    return f"({text})" if binding < level else text


def filter_clause(expr: ast.Expr, *, guard_end: bool) -> str:
    """Print a filter as a clause.

    Clauses have no separators, so some filters need parentheses. Without parentheses, the parser would read:

    - a single variable, or a word between two variables, as a traversal;
    - a minus or an operator word at the start as the continuation of the filter before it;
    - a name at the end, with the parenthesis of the next clause, as a function call.

    Args:
        expr: the filter.
        guard_end: whether another clause follows, so that the last rule applies.
    """
    text = expression(expr)
    read_otherwise = isinstance(expr, ast.Var) or _CONTINUES.match(text) or _TRAVERSAL.match(text)
    if read_otherwise or (guard_end and isinstance(_last(expr), ast.Name)):
        return f"({text})"
    return text


def _last(expr: ast.Expr) -> ast.Expr:
    """The operand that is printed last."""
    while True:
        if isinstance(expr, ast.Comparison | ast.Membership | ast.Arithmetic):
            expr = expr.right
        elif isinstance(expr, ast.Not | ast.Negate):
            expr = expr.operand
        elif isinstance(expr, ast.Logical):
            expr = expr.operands[-1]
        else:
            return expr


def _print(expr: ast.Expr, in_where: bool) -> tuple[str, int]:
    """The text, and the precedence of its outermost operator."""

    def sub(child: ast.Expr, level: int) -> str:
        return expression(child, level, in_where=in_where)

    match expr:
        case ast.Literal():
            return _literal(expr), _UNARY
        case ast.ListLiteral():
            return f"[{', '.join(expression(item) for item in expr.items)}]", _UNARY
        case ast.Var():
            return f"${expr.name}", _UNARY
        case ast.Access():
            return f"${expr.var}.{expr.property}", _UNARY
        case ast.Name():
            return expr.name, _UNARY
        case ast.Now():
            return "now()", _UNARY
        case ast.Call():
            args = [_guarded(sub(arg, _OR), _NAMED_ARGUMENT) for arg in expr.args]
            args += [f"{name}={sub(value, _OR)}" for name, value in expr.options]
            return f"{expr.function}({', '.join(args)})", _UNARY
        case ast.Aggregate():
            arg = "*" if expr.arg is None else sub(expr.arg, _OR)
            if not expr.distinct:
                arg = _guarded(arg, _DISTINCT)
            return f"{expr.function}({'distinct ' if expr.distinct else ''}{arg})", _UNARY
        case ast.BlockValue():
            return block_text(expr.function, expr.clauses), _UNARY
        case ast.Negate():
            # The parser would read a minus and a number as a negative literal.
            inner = sub(expr.operand, _UNARY)
            return (f"-({inner})" if inner[0] in "-0123456789" else f"-{inner}"), _UNARY
        case ast.Arithmetic():
            binding = _ADD if expr.op in "+-" else _MULTIPLY
            return f"{sub(expr.left, binding)} {expr.op} {sub(expr.right, binding + 1)}", binding
        case ast.Comparison():
            left = sub(expr.left, _ADD)
            if in_where and expr.op in COMPARISONS and _is_constant(_last(expr.left)):
                left = (
                    f"({left})"  # without parentheses, the parser reads a bare word before a comparison as a property
                )
            return f"{left} {expr.op} {sub(expr.right, _ADD)}", _COMPARE
        case ast.Membership():
            word = "not in" if expr.negated else "in"
            return f"{sub(expr.left, _ADD)} {word} {sub(expr.right, _ADD)}", _COMPARE
        case ast.NullTest():
            return f"{sub(expr.operand, _ADD)} is {'not ' if expr.negated else ''}null", _COMPARE
        case ast.Not():
            return f"not {sub(expr.operand, _NOT)}", _NOT
        case ast.Logical():
            # Parentheses around `and` inside `or` are not necessary, but easier to read.
            binding = _OR if expr.op == "or" else _AND
            return f" {expr.op} ".join(sub(o, _NOT) for o in expr.operands), binding


def _guarded(text: str, misread: re.Pattern[str]) -> str:
    """Put the text in parentheses if the parser would read it differently in its context."""
    return f"({text})" if misread.match(text) else text


def _is_constant(expr: ast.Expr) -> bool:
    return isinstance(expr, ast.Literal) and expr.kind in (LiteralKind.BOOL, LiteralKind.NULL)


def _literal(literal: ast.Literal) -> str:
    value = literal.value
    match literal.kind:
        case LiteralKind.STRING:
            return quote(str(value))
        case LiteralKind.DATE | LiteralKind.DATETIME:
            return f"{literal.kind.value}({quote(str(value))})"
        case LiteralKind.BOOL:
            return "true" if value else "false"
        case LiteralKind.NULL:
            return "null"
        case LiteralKind.FLOAT:
            return repr(value)
        case LiteralKind.INT:
            return str(value)


def block_text(word: str, clauses: Sequence[ast.Clause]) -> str:
    """Print `word { clauses }` on one line."""
    inner = (clause_text(clause, guard_end=i + 1 < len(clauses)) for i, clause in enumerate(clauses))
    return f"{word} {{ {'  '.join(inner)} }}"


def assign(node: ast.Assign) -> str:
    """Print `name: value`."""
    return f"{node.name}: {expression(node.value)}"


def clause_text(clause: ast.Clause, *, guard_end: bool = False) -> str:
    """Print a clause on one line. `guard_end` says whether another clause follows."""
    if isinstance(clause, ast.Negation | ast.Optional):
        return block_text("not" if isinstance(clause, ast.Negation) else "optional", clause.clauses)
    if isinstance(clause, ast.Pattern):
        matchers = f" {{ {', '.join(map(assign, clause.matchers))} }}" if clause.matchers else ""
        return f"${clause.var}: {clause.type_name}{matchers}"
    if isinstance(clause, ast.Traversal):
        return _traversal(clause)
    assert isinstance(clause, ast.Filter)
    return filter_clause(clause.expr, guard_end=guard_end)


def _traversal(clause: ast.Traversal) -> str:
    words = " | ".join(clause.words) or "*"
    if len(clause.words) != 1:
        words = f"({words})"
    if clause.undirected:
        words = f"<{words}>"
    if clause.edge_var is not None:
        words = f"${clause.edge_var}:{words}"
    if clause.hops is not None:
        most = "" if clause.hops.max is None else clause.hops.max
        words += f"{{{clause.hops.min},{most}}}"
    path = f"shortest ${clause.path_var}: " if clause.path_var is not None else ""
    return f"{path}${clause.left.name} {words} ${clause.right.name}"
