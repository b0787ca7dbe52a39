"""Query results: rows with named, typed columns, and conversions to other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from omnigraph.amounts import counted
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.arrow import readable
from omnigraph.read.result.network import Entities, Network

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars

    from omnigraph.read.result.picture import Picture

_SHOWN = 50
"""Maximum number of rows that a notebook shows."""

_LONG = 200
"""Maximum number of characters of a value that a notebook shows."""

_PRINTED = 20
"""Maximum number of rows that `print` shows."""

_NARROWEST = 20
"""Minimum number of characters per line of a printed table."""

_TOGETHER = 65_536
"""Default number of rows per Arrow batch."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The rows of a query. Immutable.

    In Arrow, a DateTime is `timestamp[ms, UTC]` and a Date is `date32`; in Python they are `datetime` and `date`.

    Attributes:
        query_name: name of the query.
        branch: the branch that was read; None if the call named a snapshot.
        snapshot: the commit that was read, if the call named it; else None.
        graph_commit_id: newest commit that the query could see. It can be used as a precondition of a write. None if
            the query ran in a transaction that has written, because this state is not a commit yet.
        warnings: warnings about parts of the query that are allowed but are probably mistakes.
    """

    query_name: str
    branch: str | None
    snapshot: str | None
    graph_commit_id: str | None
    _table: pa.Table
    _network: Network | None
    warnings: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(self._table.column_names)

    @property
    def row_count(self) -> int:
        return int(self._table.num_rows)

    def __len__(self) -> int:
        return self.row_count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts, created one by one."""
        for batch in self.batches():
            yield from batch.to_pylist()

    def __repr__(self) -> str:
        return f"<Result of {self.query_name}: {counted(self.row_count, 'row')} of {', '.join(self.columns)}>"

    def __str__(self) -> str:
        """The first rows as a table that fits the terminal."""
        from shutil import get_terminal_size

        from omnigraph.read.result.text_table import table_lines

        width = max(_NARROWEST, get_terminal_size().columns)
        lines = table_lines(self._table.slice(0, _PRINTED), width)
        left = self.row_count - _PRINTED
        rows = counted(self.row_count, "row", mark=",")
        return "\n".join([*lines, f"… {left:,} more, {rows}" if left > 0 else rows])

    def first(self, rows: int) -> Result:
        """The first rows, as a result without the others. Copies no data."""
        return replace(self, _table=self._table.slice(0, rows))

    # Other libraries

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, without copying."""
        return self._table

    def batches(self, rows: int = _TOGETHER) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches of at most `rows` rows, without copying.

        Raises:
            InputError: `rows` is not a positive number.
        """
        if rows < 1:
            raise InputError(f"a batch cannot have {rows} rows", hint="give a whole number above zero")
        yield from self._table.to_batches(max_chunksize=rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow C stream, for libraries that support it: `duckdb.sql("from result")`, `polars.DataFrame(result)`."""
        return self._table.__arrow_c_stream__(requested_schema)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return list(self)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame.

        Integers stay exact: a column of integers with nulls becomes a column of nullable pandas integers.

        Raises:
            InputError: pandas is not installed.
        """
        arrays = wanted("pandas").arrays
        whole = [f.name for f in self._table.schema if pa.types.is_integer(f.type) and self._table[f.name].null_count]
        frame: pandas.DataFrame = self._table.drop_columns(whole).to_pandas()
        for name in whole:
            column = self._table[name]
            missing = column.is_null().to_numpy()
            values = arrays.IntegerArray(column.fill_null(0).to_numpy(), missing)
            frame.insert(self.columns.index(name), name, values)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars DataFrame.

        Raises:
            InputError: polars is not installed.
        """
        frame: polars.DataFrame = wanted("polars").from_arrow(self._table)
        return frame

    def to_networkx(self) -> networkx.MultiDiGraph[Any]:
        """The nodes and edges of the rows, as a directed graph.

        A result column with a node id, such as `$a.id`, adds a node for each of its values. In the networkx graph, the
        node is the tuple `(type, id)`, because nodes of different types may have equal ids. The attributes of the node
        are the returned properties of `$a`.

        An edge of the match, such as `$a knows $b`, is added if the result has the ids of both nodes. If the edge has a
        variable, the columns `from` and `to` of that variable are enough. The key of the edge is the tuple
        `(type, id)`; the id is None if it is not returned. The attributes of the edge are its returned properties.

        An edge that the query matches in both directions points from the left to the right variable, unless `from` and
        `to` are returned. Nodes that are matched over several hops are not joined by an edge.

        Raises:
            InputError: the result has no column with node ids, or networkx is not installed.
        """
        wanted("networkx")
        from omnigraph.read.result.networkx_graph import networkx_graph

        return networkx_graph(self._entities())

    # JSON

    def json_rows(self, *, js_safe: bool = False) -> Iterator[str]:
        """The rows as JSON objects, each a text without line breaks."""
        from omnigraph.read.result.encoding import objects

        for batch in self.batches():
            yield from objects(batch, js_safe=js_safe).to_pylist()

    def to_json(self, *, js_safe: bool = False, pretty: bool = False) -> str:
        """The result as one JSON object, with the branch or commit that was read, the columns and the rows.

        A Date is `"2026-03-14"`, a DateTime `"2026-03-14T09:30:00.000Z"`. Floats that JSON numbers cannot
        represent are `"NaN"`, `"Infinity"` and `"-Infinity"`.

        Args:
            js_safe: write integers beyond ±(2^53 - 1) as strings, since JavaScript would round them.
            pretty: indent the output.
        """
        from omnigraph.read.result.encoding import json_parts

        head = orjson.dumps(self.metadata() | {"columns": self.columns}).decode()
        tail = orjson.dumps({"graph_commit_id": self.graph_commit_id}).decode()
        rows = b",".join(json_parts(self.batches(), ",", js_safe=js_safe)).decode()
        text = f'{head[:-1]},"rows":[{rows}],{tail[1:]}'
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode() if pretty else text

    def metadata(self) -> dict[str, Any]:
        """Name of the query, the branch or commit that was read, and the number of rows."""
        return {
            "query_name": self.query_name,
            "target": {"branch": self.branch, "snapshot": self.snapshot},
            "row_count": self.row_count,
        }

    # Notebooks

    def chart(self, x: str | None = None, y: str | None = None, *, kind: str | None = None) -> Picture:
        """A chart of two columns, as SVG.

        Args:
            x: the column of the horizontal axis; by default the first column, or the second if `y` is the first.
            y: a column of numbers; by default the first one that is not `x`.
            kind: `bar` or `line`; by default a line if `x` has numbers, dates or times, and else bars.

        Raises:
            InputError: there is no such column, `y` has no numbers, or a line has no numbers, dates or times as `x`.
        """
        from omnigraph.read.result.chart import chart

        return chart(self._table, x, y, kind)

    def draw(self, *, limit: int = 100) -> Picture:
        """A picture of the nodes and edges that `to_networkx` returns, as SVG.

        Args:
            limit: the maximum number of nodes. Later rows are not drawn.

        Raises:
            InputError: the result has no column with node ids, or the limit is not a positive number.
        """
        from omnigraph.read.result.drawing import check_limit, draw

        check_limit(limit)
        return draw(self._entities(limit))

    def _entities(self, limit: int | None = None) -> Entities:
        if self._network is None:
            raise InputError("this result does not come from a match, so it has no nodes and edges")
        return self._network.entities(iter(self), limit)

    def _repr_html_(self) -> str:
        from omnigraph.html_text import html_table
        from omnigraph.read.result.text_table import text_column

        shown = self._table.slice(0, _SHOWN)
        columns = [text_column(name, values, _LONG) for name, values in zip(self.columns, shown.columns, strict=True)]
        left = self.row_count - shown.num_rows
        count = counted(self.row_count, "row", mark=",")
        return html_table(
            self.columns,
            zip(*(column.cells for column in columns), strict=True),
            numbers=[i for i, column in enumerate(columns) if column.is_number],
            below=f"{count}, the first {shown.num_rows} of them shown" if left else count,
        )


_PLAIN = frozenset(kind.id for kind in (pa.int64(), pa.int32(), pa.float64(), pa.utf8(), pa.bool_(), pa.date32()))
"""Arrow types that need no conversion for the result."""


def for_people(table: pa.Table) -> pa.Table:
    """Convert an internal table to a result table: a DateTime becomes an Arrow timestamp."""
    if all(kind.id in _PLAIN for kind in table.schema.types):
        return table
    columns = [
        pa.chunked_array([readable(c) for c in column.chunks] or [_none(column.type)]) for column in table.columns
    ]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    return pa.table(columns, pa.schema(fields))


def _none(kind: pa.DataType) -> pa.Array:
    return readable(pa.array([], kind))


def wanted(package: str, install: str | None = None) -> Any:
    """Import an optional package and return its module.

    Args:
        package: the package.
        install: the command that installs it; by default that of the extra with this name.

    Raises:
        InputError: the package is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise InputError(
            f"{package} is not installed", hint=install or f"pip install 'omnigraph[{package}]'"
        ) from error
