"""Cache of compiled queries. Most callers send the same few texts repeatedly."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.query.rules import products
from omnigraph.lang.schema import Catalog
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.storage.lru_cache import LruCache

CACHED_QUERIES = 256
"""Maximum number of cached queries per handle."""

CACHED_CHARACTERS = 1 << 20
"""Maximum length of the texts of all cached queries. A compiled query takes up to twenty times as much memory."""


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
        self._queries: LruCache[Compiled] = LruCache(CACHED_QUERIES, CACHED_CHARACTERS)

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
        return self._queries.get(key) or self._queries.put(key, _compile(text, name, catalog), len(text))


def _compile(text: str, name: str | None, catalog: Catalog) -> Compiled:
    query = compile_query(text, catalog, name)
    if not isinstance(query.body, ir.Read):
        return Compiled(query, (), None)
    return Compiled(query, tuple(products(query.body, catalog)), ReadQuery(query.body))
