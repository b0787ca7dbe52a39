"""The condition of a read: `.option("where", 'age > 30 and name != "ann"')`.

The condition is an option. A condition in `DataFrame.where` is not pushed down to the scan, because of a problem in
Spark: Spark 4 can pass filters to a Python data source,
but it keeps the filtered source for all later actions of the DataFrame: after `people.where("age > 30")`, a later
`people.count()` counts only these rows, and two filters on one DataFrame are combined. `test_source_where.py` tests
this behaviour of Spark.
"""

# See docs/decisions/0095-a-condition-is-an-option.md

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.evaluate import Request, holds, table_rows
from omnigraph.evaluate.prefilter import prefilter
from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import compile_queries, ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import Catalog, TypeKind


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on the entities of a type.

    Attributes:
        condition: the compiled condition.
        now: the value of `now()`.
    """

    condition: ir.Expr
    now: int

    @classmethod
    def read(cls, text: str, catalog: Catalog, kind: TypeKind, type_name: str) -> Where:
        """Compile a condition. The syntax is that of `delete … where`: property names, and `from` and `to` for edges.

        Raises:
            CompileError: the condition is not valid for this type.
            InputError: there is more than one condition; or a node type and an edge type share this name, and the
                condition is about the other type.
        """
        source = f"query entities() {{ delete {type_name} where\n{text}\n}}"
        queries = list(compile_queries(source, catalog, name="where").values())
        statements = [s for query in queries if isinstance(query.body, ir.Write) for s in query.body.statements]
        if len(queries) != 1 or len(statements) != 1 or not isinstance(statements[0], ir.Delete):
            raise InputError("the option 'where' must be one condition", hint='for example age > 30 and name != "ann"')
        if statements[0].entity.value != kind.value:
            raise InputError(
                f"the option 'where' cannot be used for the {kind.value} type {type_name}, because a type of the other "
                "kind has the same name",
                hint="filter the DataFrame with its where method",
            )
        return cls(statements[0].where, time.time_ns() // 1_000_000)

    @property
    def _request(self) -> Request:
        return Request({}, self.now)

    @property
    def columns(self) -> tuple[str, ...]:
        """The stored columns that the condition reads."""
        found: dict[str, None] = {}
        for node in walk(self.condition):
            if isinstance(node, ir.Prop):
                found[node.name] = None
            elif isinstance(node, ir.Ident):
                found[ROLE_COLUMNS[node.role]] = None
        return tuple(found)

    def pushdown(self) -> pc.Expression | None:
        """The part of the condition that a scan can test. It may keep more rows than the condition."""
        return prefilter(self.condition, self._request)

    def matching(self, rows: pa.Table) -> pa.Table:
        """The rows for which the condition holds."""
        return rows.filter(holds(self.condition, table_rows(rows), self._request))
