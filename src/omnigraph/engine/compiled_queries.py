"""Cache of compiled queries. Most callers send the same few texts repeatedly."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.query.rules import products
from omnigraph.lang.schema import Catalog
from omnigraph.read.query.read_query import ReadQuery

KEPT = 256
"""Maximum number of cached queries per handle."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled query.

    Attributes:
        query: the query.
        warnings: constructs that are allowed but probably a mistake.
        read: the query with a cache of values that all its runs use; None for a query that writes.
    """

    query: ir.Query
    warnings: tuple[str, ...]
    read: ReadQuery | None


class CompiledQueries:
    """LRU cache of compiled queries. The key is the text, the query name and the schema."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queries: OrderedDict[tuple[str, str | None, str], Compiled] = OrderedDict()

    def get(self, text: str, name: str | None, catalog: Catalog, schema_hash: str) -> ir.Query:
        """Compile a query, or get it from the cache. `find` documents the arguments."""
        return self.find(text, name, catalog, schema_hash).query

    def find(self, text: str, name: str | None, catalog: Catalog, schema_hash: str) -> Compiled:
        """Compile a query with its warnings, or get it from the cache.

        Args:
            text: one or more queries.
            name: the name of the query; None if the text has only one.
            catalog: the schema.
            schema_hash: the hash of the schema, for the key of the cache.

        Raises:
            CompileError: the query does not compile.
            NotFoundError: the text has no query of this name, or it has several and no name was given.
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
