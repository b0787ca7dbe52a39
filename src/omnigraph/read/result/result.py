"""Query results: rows with named, typed columns, and conversions to other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.arrow import readable
from omnigraph.read.result.network import Network

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars

_SHOWN = 50
"""Maximum number of rows that a notebook shows."""

_LONG = 200
"""Maximum number of characters of a value that a notebook shows."""

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
        return f"<Result of {self.query_name}: {self.row_count} rows of {', '.join(self.columns)}>"

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
        arrays = _wanted("pandas").arrays
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
        frame: polars.DataFrame = _wanted("polars").from_arrow(self._table)
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
        _wanted("networkx")
        if self._network is None:
            raise InputError("this result does not come from a match, so it has no edges for a networkx graph")
        return self._network.draw(iter(self))

    # JSON

    def json_rows(self, *, js_safe: bool = False) -> Iterator[str]:
        """The rows as JSON objects, each a text without line breaks."""
        from omnigraph.read.result.encoding import objects

        for batch in self.batches():
            for row in objects(batch, js_safe=js_safe):
                yield row.as_py()

    def to_json(self, *, js_safe: bool = False, pretty: bool = False) -> str:
        """The result as one JSON object, with the branch or commit that was read, the columns and the rows.

        A Date is `"2026-03-14"`, a DateTime `"2026-03-14T09:30:00.000Z"`. Floats that JSON numbers cannot
        represent are `"NaN"`, `"Infinity"` and `"-Infinity"`.

        Args:
            js_safe: write integers beyond ±(2^53 - 1) as strings, since JavaScript would round them.
            pretty: indent the output.
        """
        head = orjson.dumps(self.metadata() | {"columns": self.columns}).decode()
        tail = orjson.dumps({"graph_commit_id": self.graph_commit_id}).decode()
        text = f'{head[:-1]},"rows":[{",".join(self.json_rows(js_safe=js_safe))}],{tail[1:]}'
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode() if pretty else text

    def metadata(self) -> dict[str, Any]:
        """Name of the query, the branch or commit that was read, and the number of rows."""
        return {
            "query_name": self.query_name,
            "target": {"branch": self.branch, "snapshot": self.snapshot},
            "row_count": self.row_count,
        }

    # Notebooks

    def _repr_html_(self) -> str:
        from html import escape

        from omnigraph.read.result.encoding import plain

        def cell(text: str | None) -> str:
            if text is None:
                return "<td><i>null</i></td>"
            return f"<td>{escape(text if len(text) <= _LONG else text[:_LONG] + '…')}</td>"

        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        shown = self._table.slice(0, _SHOWN)
        texts = [plain(column.combine_chunks()).to_pylist() for column in shown.columns]
        rows = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in zip(*texts, strict=True))
        left = self.row_count - shown.num_rows
        count = f"{self.row_count} rows" + (f", the first {shown.num_rows} of them shown" if left else "")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{count}</p>"


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


def _wanted(package: str) -> Any:
    """Import an optional package and return its module.

    Raises:
        InputError: the package is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise InputError(f"{package} is not installed", hint=f"pip install 'omnigraph[{package}]'") from error
