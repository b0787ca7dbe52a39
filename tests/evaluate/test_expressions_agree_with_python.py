"""Every expression has the same value as in plain Python, one row and one exact number at a time."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from tests.evaluate import reference
from tests.evaluate.expressions import CATALOG, PROPERTIES, ROWS, Condition, conditions, table
from tests.example_counts import examples

from omnigraph.errors import ExecutionError, TypeCheckError
from omnigraph.evaluate import Request, evaluate, holds, table_rows
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.types import Scalar

NOW = 1_773_480_600_123
NOTHING = dict.fromkeys([*PROPERTIES, "id"])
"""A row of nulls."""


def compiled(condition: Condition) -> ir.Expr:
    try:
        query = compile_query(condition.query, CATALOG)
    except TypeCheckError as error:
        # List items without a common integer type, and an integer beyond 64 bits.
        assume(error.diagnostic not in ("T28", "T41"))
        raise
    assert isinstance(query.body, ir.Write)
    (statement,) = query.body.statements
    assert isinstance(statement, ir.Delete)
    return statement.where


def plain(column: pa.Array) -> list[Any]:
    """Values as the reference represents them: dates as numbers, lists as tuples."""
    if pa.types.is_list(column.type):
        items = plain(column.values)
        bounds = column.offsets.to_pylist()
        valid = column.is_valid().to_pylist()
        return [tuple(items[a:b]) if ok else None for a, b, ok in zip(bounds, bounds[1:], valid, strict=False)]
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    if pa.types.is_date64(column.type):
        column = column.view(pa.int64())
    return list(column.to_pylist())


def expected(expr: ir.Expr, rows: list[dict[str, Any]], params: dict[str, Any]) -> list[Any] | None:
    """One value per row, or None if a row has no value."""
    try:
        return [reference.value(expr, row, params, NOW) for row in rows]
    except reference.TooLargeError:
        return None


@examples(400)
@given(condition=conditions(), rows=ROWS)
def test_every_part_of_a_condition_agrees_with_python(condition: Condition, rows: list[dict[str, Any]]) -> None:
    where = compiled(condition)
    rows = [{"id": str(i), **row} for i, row in enumerate(rows)]
    params = {name: given for name, (_, given) in condition.params.items()}
    columns, request = table_rows(table(rows)), Request(params, NOW)
    for part in walk(where):
        if not isinstance(part, ir.Expr):
            continue
        wanted = expected(part, rows, params)
        if wanted is None:
            with pytest.raises(ExecutionError, match="too large"):
                evaluate(part, columns, request)
            continue
        if not rows and expected(part, [NOTHING], params) is None:
            continue  # a constant that cannot be computed affects no row
        found = evaluate(part, columns, request)
        assert found.type == arrow_type(part.type)
        assert plain(found) == wanted, part
        if part.type.scalar is Scalar.BOOL and not part.type.list:
            assert holds(part, columns, request).to_pylist() == [truth is True for truth in wanted]
        if not part.type.nullable:
            assert found.null_count == 0


@pytest.mark.parametrize("word", ["contains", "starts_with", "ends_with"])
def test_trailing_zero_characters_of_texts_are_compared(word: str) -> None:
    texts = ["-5", "a\0", "a\0b", "\0", "", "a\0\0"]
    rows = [{**NOTHING, "id": str(i), "text": a, "word": b} for i, (a, b) in enumerate(product(texts, texts))]
    where = compiled(Condition(f"text {word} word", {}))
    assert plain(evaluate(where, table_rows(table(rows)), Request({}, NOW))) == expected(where, rows, {})
