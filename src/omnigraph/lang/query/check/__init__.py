"""The type checker: check a query against a schema, and lower it to the IR."""

from __future__ import annotations

from omnigraph.errors import SourceText, TypeCheckError
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.params import parameters
from omnigraph.lang.query.check.read import read
from omnigraph.lang.query.check.scope import Context, fail
from omnigraph.lang.query.check.write import write
from omnigraph.lang.schema.catalog import Catalog

__all__ = ["check_names", "check_query"]


def check_query(query: ast.Query, catalog: Catalog, source: SourceText | None = None) -> ir.Query:
    """Check a query and lower it to the IR.

    Raises:
        TypeCheckError: the query breaks a rule. Only the first error is reported.
    """
    try:
        return check_with_context(query, catalog)[0]
    except TypeCheckError as error:
        error.source = source
        raise


def check_with_context(query: ast.Query, catalog: Catalog) -> tuple[ir.Query, Context]:
    """Like `check_query`, and also return the resolved names for lints."""
    reads = isinstance(query.body, ast.Read)
    context = Context(catalog, parameters(query.params, catalog, reads=reads))
    try:
        body = read(query.body, context) if isinstance(query.body, ast.Read) else write(query.body, context)
    except RecursionError:
        raise fail("T31", "this query is nested too deeply", query.span) from None
    checked = ir.Query(query.name, tuple(context.params.values()), body, query.description, query.instruction)
    return checked, context


def check_names(file: ast.QueryFile) -> None:
    """Reject duplicate query names.

    Raises:
        TypeCheckError: T40, at the second query.
    """
    seen: set[str] = set()
    for query in file.queries:
        if query.name in seen:
            error = duplicate_name(query)
            error.source = file.source
            raise error
        seen.add(query.name)


def duplicate_name(query: ast.Query) -> TypeCheckError:
    """The error for a duplicate query name."""
    hint = "rename one of them"
    return fail("T40", f"an earlier query is called '{query.name}' too", query.name_span, hint=hint)
