"""Compiled queries: most callers send the same few texts again and again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.query.rules import products
from omnigraph.lang.schema import Catalog
from omnigraph.read.query.read_query import ReadQuery

KEPT = 256
"""How many queries a handle remembers."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled query.

    Attributes:
        query: the query.
        warnings: constructs that are allowed but probably not meant.
        read: a read with the facts that its runs share; None for a query that writes.
    """

    query: ir.Query
    warnings: tuple[str, ...]
    read: ReadQuery | None


class CompiledQueries:
    """Remembers queries by their text, their name in it and the schema they were checked against."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queries: OrderedDict[tuple[str, str | None, str], Compiled] = OrderedDict()

    def get(self, text: str, name: str | None, catalog: Catalog, schema_hash: str) -> ir.Query:
        """A query of a text; `find` describes the arguments."""
        return self.find(text, name, catalog, schema_hash).query

    def find(self, text: str, name: str | None, catalog: Catalog, schema_hash: str) -> Compiled:
        """A query of a text, and what there is to say about it.

        Args:
            text: one query, or several.
            name: which of several.
            catalog: the schema.
            schema_hash: tells the schema from others.

        Raises:
            CompileError: the query does not compile.
            NotFoundError: the text has no query of this name, or several and none was named.
        """
        key = (text, name, schema_hash)
        with self._lock:
            found = self._queries.get(key)
            if found is not None:
                self._queries.move_to_end(key)
                return found
        query = compile_query(text, catalog, name)
        made = Compiled(query, (), None)
        if isinstance(query.body, ir.Read):
            made = Compiled(query, tuple(products(query.body.match, catalog)), ReadQuery(query.body))
        with self._lock:
            self._queries[key] = made
            while len(self._queries) > KEPT:
                self._queries.popitem(last=False)
        return made
