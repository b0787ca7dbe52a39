"""The query language `.gq`: parser, type checker, IR, printer and lints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.lazy_names import lazy_names

if TYPE_CHECKING:
    from omnigraph.lang.query.compile import compile_queries, compile_query, select_query
    from omnigraph.lang.query.lint import LintReport, lint_queries
    from omnigraph.lang.query.operation import Operation, describe
    from omnigraph.lang.query.parser import parse_queries
    from omnigraph.lang.query.printer import format_queries, print_queries
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "compile": ("compile_queries", "compile_query", "select_query"),
            "lint": ("LintReport", "lint_queries"),
            "operation": ("Operation", "describe"),
            "parser": ("parse_queries",),
            "printer": ("format_queries", "print_queries"),
        },
    )

__all__ = [
    "LintReport",
    "Operation",
    "compile_queries",
    "compile_query",
    "describe",
    "format_queries",
    "lint_queries",
    "parse_queries",
    "print_queries",
    "select_query",
]
