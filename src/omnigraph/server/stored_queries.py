"""Stored queries: the declarations in a directory of `.gq` files, checked against the schema of a graph."""

# See docs/decisions/0294-stored-queries-are-files-of-a-directory.md
# See docs/decisions/0370-stored-queries-have-versions.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omnigraph.commit.manifest import MAIN
from omnigraph.commit.snapshots import at_branch
from omnigraph.dataclass import dataclass
from omnigraph.engine.query_text import query_text
from omnigraph.engine.session import Session
from omnigraph.errors import CompileError, InputError, NotFoundError, SourceText, cut
from omnigraph.lang.query import ir, parse_queries
from omnigraph.lang.query.printer import parameter_type
from omnigraph.lang.query.versions import queries_by_name, successor_problem
from omnigraph.lang.types import Scalar, ValueType

_KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query that callers invoke by its name.

    Attributes:
        text: the file that declares it.
        mutation: whether it writes.
        params: its declared parameters.
        types: the types of the parameters, as they are written.
        deprecated: the name of the query that replaces it, empty if none does; None if it is not deprecated.
    """

    name: str
    text: str
    mutation: bool
    description: str | None
    instruction: str | None
    params: tuple[ir.Parameter, ...]
    types: Mapping[str, str]
    deprecated: str | None = None

    def to_json(self, successor: str = "") -> dict[str, Any]:
        """The entry of the catalogue.

        Args:
            successor: the name of the query that replaces it, if the caller may see this query.
        """
        members: dict[str, Any] = {"name": self.name, "tool_name": self.name}
        if self.description is not None:
            members["description"] = self.description
        if self.instruction is not None:
            members["instruction"] = self.instruction
        if self.deprecated is not None:
            members["deprecated"] = True
        if successor:
            members["successor"] = successor
        return members | {
            "mutation": self.mutation,
            "params": [_parameter(param, self.types[param.name]) for param in self.params],
        }

    def fits(self, session: Session) -> bool:
        """Whether the query compiles with the part of the schema that a session shows."""
        view = at_branch(session.store, MAIN)
        try:
            session.compiled.get(self.text, self.name, session.schemas.at(view).catalog, view.schema_hash)
        except CompileError:
            return False
        return True

    def warnings(self) -> list[str]:
        """Advice about the query, for the log."""
        vectors = [param.name for param in self.params if param.type.is_vector]
        return [f"stored query '{self.name}': agents cannot give the vector ${name}" for name in vectors]


def _parameter(param: ir.Parameter, written: str) -> dict[str, Any]:
    kind = param.type
    members: dict[str, Any] = {"name": param.name, "kind": "list" if kind.list else _kind(kind), "type": written}
    if kind.list:
        members["item_kind"] = _kind(kind.item)
    if kind.dim is not None:
        members["vector_dim"] = kind.dim
    return members | {"nullable": not param.required}


def _kind(kind: ValueType) -> str:
    return _KINDS[kind.scalar]


class StoredQueries:
    """The stored queries of one graph.

    Args:
        queries: the queries by name.

    Raises:
        InputError: a deprecated query names another query as its successor that does not exist or cannot replace it.
    """

    def __init__(self, queries: Mapping[str, StoredQuery]) -> None:
        self._queries = dict(sorted(queries.items()))
        self._by_name = queries_by_name(queries)
        writes = {name: query.mutation for name, query in queries.items()}
        for name, query in self._queries.items():
            problem = successor_problem(name, query.deprecated, writes) if query.deprecated else None
            if problem is not None:
                raise InputError(
                    f"the stored query '{name}' is not valid: {problem}",
                    hint='name the query that replaces it; if none does, write @deprecated("")',
                )

    @classmethod
    def of_directory(cls, directory: Path | None, session: Session) -> StoredQueries:
        """Read and check all `.gq` files of a directory, in the order of their names.

        Raises:
            InputError: the directory or a file cannot be read, or two files declare the same name.
            CompileError: a query does not fit the schema of `main`.
        """
        found: dict[str, StoredQuery] = {}
        if directory is None:
            return cls(found)
        if not directory.is_dir():
            raise InputError(f"there is no directory {directory}", hint="name a directory of .gq files, or none")
        view = at_branch(session.store, MAIN)
        catalog = session.schemas.at(view).catalog
        for path in sorted(directory.glob("*.gq")):
            text = query_text(path)
            try:
                for declared in parse_queries(text).queries:
                    name = declared.name
                    if name in found:
                        raise InputError(
                            f"{path.name}: the stored query '{name}' is declared twice", hint="rename one of them"
                        )
                    query = session.compiled.get(text, name, catalog, view.schema_hash)
                    mutation = not isinstance(query.body, ir.Read)
                    types = {param.name: parameter_type(param).removesuffix("?") for param in declared.params}
                    params = tuple(query.params)
                    found[name] = StoredQuery(
                        name,
                        text,
                        mutation,
                        declared.description,
                        declared.instruction,
                        params,
                        types,
                        declared.deprecated,
                    )
            except CompileError as error:
                if error.source is None or error.source.name is None:
                    error.source = SourceText(text, path.name)
                raise
        return cls(found)

    def __iter__(self) -> Iterator[StoredQuery]:
        return iter(self._queries.values())

    def __len__(self) -> int:
        return len(self._queries)

    def named(self, name: str) -> list[StoredQuery]:
        """The queries that a name may stand for. A caller gets the first one that it sees.

        The query of exactly this name precedes its versions, and newer versions precede older ones.
        """
        return [self._queries[one] for one in self._by_name.get(name, ())]

    def successor(self, query: StoredQuery, sees: Callable[[StoredQuery], bool]) -> str:
        """The name of the query that replaces a deprecated one; empty if there is none, or the caller does not see it.

        Args:
            query: the deprecated query.
            sees: whether the caller sees a query.
        """
        name = query.deprecated or ""
        return name if any(sees(one) for one in self.named(name) if one is not query) else ""


@contextmanager
def hiding_stored(session: Session, name: str | None) -> Iterator[None]:
    """Run a stored query. If it needs a type or property that is hidden from the actor, there is no such query.

    The error of the compiler would show the text of the query.
    """
    try:
        yield
    except CompileError:
        if name is None or session.whole is None:
            raise
        raise no_such_query(name) from None


def no_such_query(name: str) -> NotFoundError:
    """The error for an unknown query. A denied query gives the same error."""
    return NotFoundError(f"there is no stored query '{cut(name)}'")
