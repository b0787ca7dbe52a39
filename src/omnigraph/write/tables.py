"""Rows that come as Arrow columns: from Parquet and Arrow files, and from the tables and frames of other libraries."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.write.columns import Columns
from omnigraph.write.convert import convert
from omnigraph.write.problems import Problems
from omnigraph.write.rows import Origin, RawRows

_EXACT = 2**53
"""Up to here, every whole number is a number of 64 bits with a point."""


def read_batches(
    batches: Iterable[pa.RecordBatch],
    kind: TypeKind,
    type_name: str,
    accepted: AcceptedSchema,
    problems: Problems,
    name: str,
    first: int = 1,
) -> Generator[RawRows, None, int]:
    """The rows of batches of one type. Columns are named like the properties.

    Args:
        batches: the rows.
        kind: node or edge.
        type_name: the type.
        accepted: the schema in force.
        problems: collects what cannot be read. When it counts coercions, the reader is lenient.
        name: the file or table, as problems call it.
        first: the position of the first row in the whole input.

    Returns:
        The position behind the last row.

    Raises:
        InputError: the table has a column twice, or holds what no Arrow table may.
    """
    columns = Columns(accepted, kind, type_name, problems)
    position = first
    known: pa.Schema | None = None
    for batch in batches:
        batch = _without_index(batch)
        if known is None:
            known = batch.schema
            twice = sorted({n for n in known.names if known.names.count(n) > 1})
            if twice:
                raise InputError(f"{name}: the column '{twice[0]}' is there twice")
            columns.check_names(known.names, first, name)
        _check(batch, name)
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        if _is_pandas(batch.schema):
            given = {n: _whole_again(c, columns, n) for n, c in given.items()}
        origin = Origin.counted(batch.num_rows, lambda p: f"{name}, row {p - first + 1}", position)
        yield columns.rows(given, origin, convert if problems.coerced is not None else None)
        position += batch.num_rows
    return position


def _check(batch: pa.RecordBatch, name: str) -> None:
    """Texts may be anything as far as Arrow is concerned; here they are UTF-8."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(f"{name} cannot be read: {error}") from error


def _is_pandas(schema: pa.Schema) -> bool:
    return schema.metadata is not None and b"pandas" in schema.metadata


def _without_index(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A frame of pandas without its index. An index that has a name is a column like the others."""
    if not _is_pandas(batch.schema):
        return batch
    described: dict[str, Any] = json.loads(batch.schema.metadata[b"pandas"])
    unnamed = {c["field_name"] for c in described.get("columns", ()) if c.get("name") is None}
    index = [c for c in described.get("index_columns", ()) if isinstance(c, str) and c in unnamed]
    return batch.drop_columns(index) if index else batch


def _whole_again(column: pa.Array, columns: Columns, name: str) -> pa.Array:
    """Whole numbers that pandas holds with a point, because some are missing: as whole numbers, if all of them are."""
    kind = columns.members.get(name)
    if kind is None or kind.list or not kind.scalar.is_integer or not pa.types.is_floating(column.type):
        return column
    small = pc.less_equal(pc.abs(column), float(_EXACT))
    whole = pc.and_(small, pc.equal(column, pc.floor(column)))
    return column.cast(pa.int64()) if pc.all(whole).as_py() is not False else column
