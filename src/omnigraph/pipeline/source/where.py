"""The condition of a read: `.option("where", 'age > 30 and name != "ann"')`.

It is an option, and not what `DataFrame.where` says. Spark 4 can hand conditions to a source that is written in Python,
but it keeps what the source made of them for all that is done with the DataFrame later: `people.where("age > 30")`
makes a later `people.count()` count only those, and two conditions on one DataFrame become one. Guarded by
`test_source_where.py`.
"""

# See docs/decisions/0095-a-condition-is-an-option.md

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.evaluate import Request, holds, prefilter, table_rows
from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import compile_queries, ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import Catalog, TypeKind


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on the entities of a type.

    Attributes:
        condition: what must hold.
        now: what `now()` is.
    """

    condition: ir.Expr
    now: int

    @classmethod
    def read(cls, text: str, catalog: Catalog, kind: TypeKind, type_name: str) -> Where:
        """A condition as a `delete` has it: properties by their names, for edges `from` and `to` as well.

        Raises:
            CompileError: it is none, or not about this type.
            InputError: it is more than one, or about the other type of this name.
        """
        source = f"query entities() {{ delete {type_name} where\n{text}\n}}"
        queries = list(compile_queries(source, catalog, name="where").values())
        statements = [s for query in queries if isinstance(query.body, ir.Write) for s in query.body.statements]
        if len(queries) != 1 or len(statements) != 1 or not isinstance(statements[0], ir.Delete):
            raise InputError("the option 'where' is one condition", hint='as in age > 30 and name != "ann"')
        if statements[0].entity.value != kind.value:
            raise InputError(f"the option 'where' cannot be said about the {kind.value}s {type_name}")
        return cls(statements[0].where, time.time_ns() // 1_000_000)

    @property
    def _request(self) -> Request:
        return Request({}, self.now)

    @property
    def columns(self) -> tuple[str, ...]:
        """The stored columns that it looks at."""
        found: dict[str, None] = {}
        for node in walk(self.condition):
            if isinstance(node, ir.Prop):
                found[node.name] = None
            elif isinstance(node, ir.Ident):
                found[ROLE_COLUMNS[node.role]] = None
        return tuple(found)

    def scanned(self) -> pc.Expression | None:
        """What a scan can test of it; it may let more rows through."""
        return prefilter(self.condition, self._request)

    def kept(self, rows: pa.Table) -> pa.Table:
        """The stored rows for which it holds."""
        return rows.filter(holds(self.condition, table_rows(rows), self._request))
