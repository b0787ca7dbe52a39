"""Compile query text to the IR: parse, check and lower."""

from __future__ import annotations

from omnigraph.errors import InputError, NotFoundError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check import check_names, check_query
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.catalog import Catalog


def compile_queries(text: str | bytes, catalog: Catalog, name: str | None = None) -> dict[str, ir.Query]:
    """Compile all queries of a text. Returns them by name, in source order.

    Args:
        text: the source.
        catalog: the schema.
        name: the name of the source in errors, usually its path.

    Raises:
        ParseError: the text does not follow the grammar.
        TypeCheckError: a query breaks a rule.
    """
    file = parse_queries(text, name)
    check_names(file)
    return {query.name: check_query(query, catalog, file.source) for query in file.queries}


def compile_query(
    text: str | bytes, catalog: Catalog, query_name: str | None = None, *, name: str | None = None
) -> ir.Query:
    """Compile one query of a text. The name is optional if the text has only one query.

    Example:
        >>> from omnigraph import compile_schema
        >>> catalog = compile_schema("node Person { name: String @key }")
        >>> query = compile_query("query all() { match { $p: Person } return { $p.name } }", catalog)
        >>> [column.name for column in query.body.columns]
        ['p.name']

    Raises:
        ParseError: the text does not follow the grammar.
        TypeCheckError: the query breaks a rule.
        InputError: no name was given, and the text does not have exactly one query.
        NotFoundError: the text has no query of this name.
    """
    file = parse_queries(text, name)
    check_names(file)
    return check_query(select_query(file, query_name), catalog, file.source)


def select_query(file: ast.QueryFile, query_name: str | None) -> ast.Query:
    """Select a query by name. Without a name, the text must have only one query."""
    names = [query.name for query in file.queries]
    if query_name is None:
        if len(names) == 1:
            return file.queries[0]
        message = f"the text has {len(names)} queries, and no query name is given" if names else "the text has no query"
        raise InputError(message, hint=f"give the name of one query: {', '.join(names)}" if names else None)
    for query in file.queries:
        if query.name == query_name:
            return query
    raise NotFoundError(f"there is no query '{cut(query_name)}'", hint=did_you_mean(query_name, names))
