"""Constant values in mapping files, as Arrow columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.documents import Value
from omnigraph.lang.types import ValueType
from omnigraph.write.rows.convert import convert
from omnigraph.write.rows.values import Fault, column


def as_column(value: Value, kind: ValueType) -> pa.Array:
    """An Arrow column with one row, which contains the value.

    Raises:
        InputError: a property of this type cannot have the value.
    """
    found: list[str] = []

    def refuse(row: int, message: str, fault: Fault) -> None:
        found.append(message)

    def report(wrong: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
        if pc.any(wrong).as_py():
            found.append(message)

    converted = convert(column([value.plain()], kind, refuse), kind, report)
    if found:
        raise value.error(found[0])
    if not kind.nullable and converted.null_count:
        raise value.error("null is not allowed")
    return converted
