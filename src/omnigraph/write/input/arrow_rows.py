"""Reads Arrow columns: Parquet and Arrow files, and tables and data frames of other libraries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError, cut
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.types import ValueType
from omnigraph.write.input.named_columns import Layout, Read
from omnigraph.write.rows.convert import Report, convert
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import Origin, RawRows

_EXACT = {16: 11, 32: 24, 64: 53}
"""For each width of a float in bits, the number n such that the float type stores all integers below 2^n exactly."""


def read_batches(
    batches: Iterable[pa.RecordBatch],
    layout: Layout,
    accepted: AcceptedSchema,
    problems: Problems,
    name: str,
    first: int = 1,
    before: int = 0,
    begins: bool = True,
) -> Generator[RawRows, None, int]:
    """The rows of record batches.

    Args:
        batches: the rows. The first batch gives the schema; it may be empty.
        layout: the type of the rows.
        accepted: the accepted schema.
        problems: collects values that cannot be read. If `problems.coerced` is set, the reader is lenient.
        name: the name of the file or table in error messages.
        first: the position of the first row of the file or table in the whole input.
        before: number of rows of the file or table before these batches.
        begins: whether the batches are the start of the file or table. Unknown columns are reported only at the start.

    Returns:
        The position after the last row.

    Raises:
        InputError: the table has no columns, a duplicate column, or invalid Arrow data.
    """
    columns = layout.columns(accepted, problems)
    position = first + before
    known: pa.Schema | None = None
    for batch in batches:
        batch = without_index(batch)
        if known is None:
            known = batch.schema
            _check_names(known.names, name)
            if begins:
                columns.check_names(known.names, first, name)
        origin = Origin.consecutive(batch.num_rows, lambda p: f"{name}, row {p - first + 1}", position)
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        for column_name, column in given.items():
            _check(column, origin, f"{columns.name}.{column_name}")
        read = convert if problems.coerced is not None else None
        yield from columns.rows(given, origin, _pandas_reader(read) if is_pandas(batch.schema) else read)
        position += batch.num_rows
    return position


def _check_names(names: list[str], name: str) -> None:
    duplicates = sorted(column for column, count in Counter(names).items() if count > 1)
    if duplicates:
        raise InputError(f"{name}: the column '{cut(duplicates[0])}' occurs twice")
    if not names:
        raise InputError(
            f"{name}: there are no columns", hint="a table without rows needs the columns of its properties, too"
        )


def _check(column: pa.Array, origin: Origin, subject: str) -> None:
    """Validate the data of a column. Arrow does not check on its own that texts are UTF-8.

    Raises:
        InputError: the data is not valid. The message names the first such row.
    """
    if _storage_type(column.type) != column.type:
        column = column.view(_storage_type(column.type))
    fault = _fault(column)
    if fault is None:
        return
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fault(column.slice(low, middle - low)) is None else (low, middle)
    places = [origin.place(record) for record in origin.records[low : low + 1].tolist()]
    raise InputError(": ".join([*places, f"{subject} cannot be read", cut(fault)]))


def _fault(column: pa.Array) -> str | None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """Replace `date64` by int64 in a type: Arrow refuses a `date64` with a time of day, which is allowed here."""
    if pa.types.is_date64(kind):
        return pa.int64()
    return pa.list_(pa.int64()) if pa.types.is_list(kind) and pa.types.is_date64(kind.value_type) else kind


def is_pandas(schema: pa.Schema) -> bool:
    return schema.metadata is not None and b"pandas" in schema.metadata


def without_index(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Remove the index of a pandas frame. An index with a name is kept, as an ordinary column."""
    if not is_pandas(batch.schema):
        return batch
    described: dict[str, Any] = json.loads(batch.schema.metadata[b"pandas"])
    unnamed = {c["field_name"] for c in described.get("columns", ()) if c.get("name") is None}
    index = [c for c in described.get("index_columns", ()) if isinstance(c, str) and c in unnamed]
    return batch.drop_columns(index) if index else batch


def _pandas_reader(read: Read | None) -> Read:
    """A reader that converts floats back to integers. pandas stores integers with missing values as floats."""

    def read_column(column: pa.Array, kind: ValueType, report: Report, /, *, null_items: bool = False) -> pa.Array:
        column = _as_integers(column, kind, report)
        return column if read is None else read(column, kind, report, null_items=null_items)

    return read_column


def _as_integers(column: pa.Array, kind: ValueType, report: Report) -> pa.Array:
    """Convert pandas floats to integers, if the property is an integer and all values are whole.

    Reports values outside of the range in which floats are exact, because they may differ from the original values.
    """
    if kind.list or not kind.scalar.is_integer or not pa.types.is_floating(column.type):
        return column
    if pc.all(pc.equal(column, pc.floor(column))).as_py() is False:
        return column
    limit = _EXACT[column.type.bit_width]
    inexact = pc.greater_equal(pc.abs(column.cast(pa.float64())), float(2**limit)).fill_null(False)
    message = f"whole numbers beyond ±(2^{limit} - 1) are not exact in a column of floats; use the pandas type Int64"
    report(inexact, message)
    return pc.if_else(inexact, pa.scalar(None, column.type), column).cast(pa.int64())
