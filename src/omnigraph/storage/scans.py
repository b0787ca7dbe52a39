"""Scans of a Lance dataset with a structured filter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd
from lance import LanceDataset, LanceScanner
from lance.dataset import ScannerBuilder, _serialize_expression
from lance.fragment import LanceFragment
from lance.query import FullTextQuery

_NOT_TAKEN = ("not yet supported by Substrait conversion", "No match for FieldRef")
"""Lance's error for a filter on a column type that it cannot pass to its engine: unsigned integers, times, lists."""


_PLAIN = re.compile(r"[A-Za-z0-9_ .:@/+=-]*")
"""Texts that SQL takes as they are, between quotes."""

_FEW_VALUES = 16
"""Maximum number of values that are written as SQL."""


class _Scan(ScannerBuilder):
    """A scanner whose filter works on a table with any column types.

    Lance passes a filter to its engine together with the table's schema, and removes columns of unsupported types from
    the schema. It does not remove lists of unsupported types, such as lists of unsigned integers, and then refuses
    every filter on the table. Filters never use list columns, so this class replaces all of them in the schema.
    """

    def filter(self, filter: Any) -> ScannerBuilder:
        if not isinstance(filter, pc.Expression):
            return super().filter(filter)
        self._substrait_filter = _serialize_expression(filter, sendable(self.ds.schema))  # type: ignore[assignment]
        return self


def sendable(schema: pa.Schema) -> pa.Schema:
    """A schema in which placeholder columns replace all list columns. The positions of columns stay the same."""
    return pa.schema(
        [
            pa.field(f"__not_sendable_{i}", pa.int8()) if _is_nested(field.type) else field
            for i, field in enumerate(schema)
        ]
    )


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind))


def filtered(
    dataset: LanceDataset,
    columns: Sequence[str] | None,
    filter: pc.Expression | str | None,
    limit: int | None = None,
    *,
    few: bool = False,
    fragments: Sequence[int] | None = None,
) -> pa.Table:
    """The rows of a version that match a filter.

    A filter that Lance does not support, for example on a DateTime, is applied after the read.

    Args:
        dataset: the version.
        columns: the columns to read; None for all.
        filter: a condition; SQL only for what Lance supports.
        limit: the maximum number of rows.
        few: whether the filter matches few rows. Then the other columns are read only for these rows.
        fragments: the numbers of the fragments to read; by default all.
    """
    try:
        scan = _builder(dataset, columns, filter)
        if limit is not None:
            scan = scan.limit(limit)
        if few:
            scan = scan.late_materialization(True)
        if fragments is not None:
            scan = scan.with_fragments(numbered(dataset, fragments))
        return scan.to_scanner().to_table()
    except ValueError as error:
        if filter is None or isinstance(filter, str) or not any(reason in str(error) for reason in _NOT_TAKEN):
            raise
    wanted = list(columns) if columns is not None else [field.name for field in dataset.schema]
    mentioned = [name for name in dataset.schema.names if re.search(rf"\b{name}\b", str(filter))]
    rows = scanner(dataset, columns=list(dict.fromkeys([*wanted, *mentioned]))).to_table()
    kept = pd.dataset(rows).to_table(filter=filter).select(wanted)
    return kept if limit is None else kept.slice(0, limit)


def one_of(name: str, values: pa.Array) -> pc.Expression | str:
    """The condition that a column has one of some texts.

    Lance takes SQL faster than a serialised expression. SQL is used if no text has a quote or another special
    character.

    >>> one_of("id", pa.array(["a", "b-1"]))
    "id IN ('a','b-1')"
    """
    texts = values.to_pylist() if len(values) <= _FEW_VALUES else None
    if not texts or not all(isinstance(text, str) and _PLAIN.fullmatch(text) for text in texts):
        return pc.field(name).isin(values)
    listed = "','".join(texts)
    return f"{name} IN ('{listed}')"


def numbered(dataset: LanceDataset, numbers: Sequence[int]) -> list[LanceFragment]:
    """The fragments of a version with some numbers."""
    return [fragment for number in numbers if (fragment := dataset.get_fragment(number)) is not None]


def any_null(columns: Sequence[str]) -> str:
    """Lance SQL for "one of these columns is null". Lance does not support Arrow expressions on vector columns.

    >>> any_null(["title_vec", "text_vec"])
    '`title_vec` IS NULL OR `text_vec` IS NULL'
    """
    return " OR ".join(f"`{name}` IS NULL" for name in columns)


def scanner(
    dataset: LanceDataset,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | str | None = None,
    in_order: bool = False,
    fragments: Sequence[LanceFragment] | None = None,
    batch_bytes: int | None = None,
    batch_rows: int | None = None,
) -> LanceScanner:
    """A scanner over one version.

    Args:
        dataset: the version.
        columns: the columns to read; by default all.
        filter: a condition.
        in_order: return rows in storage order.
        fragments: read only these fragments.
        batch_bytes: the approximate size of a batch.
        batch_rows: the maximum number of rows per batch.
    """
    scan = _builder(dataset, columns, filter).scan_in_order(in_order)
    if fragments is not None:
        scan = scan.with_fragments(fragments)
    if batch_bytes is not None:
        scan = scan.batch_size_bytes(batch_bytes)
    if batch_rows is not None:
        scan = scan.batch_size(batch_rows)
    return scan.to_scanner()


def nearest(
    dataset: LanceDataset, query: dict[str, Any], columns: Sequence[str], filter: pc.Expression | None
) -> pa.Table:
    """The rows that a vector search finds. The filter applies before the search."""
    return _builder(dataset, columns, filter).nearest(**query).to_scanner().to_table()


def full_text(
    dataset: LanceDataset, query: FullTextQuery, columns: Sequence[str], filter: pc.Expression | None
) -> pa.Table:
    """The rows that a full-text search finds. The filter applies before the search."""
    return _builder(dataset, columns, filter).full_text_search(query).to_scanner().to_table()


def _builder(
    dataset: LanceDataset, columns: Sequence[str] | None, filter: pc.Expression | str | None
) -> ScannerBuilder:
    """A scan in any order. Its filter applies before a search chooses the nearest or best rows."""
    scan: ScannerBuilder = _Scan(dataset).prefilter(True).scan_in_order(False)
    if columns is not None:
        scan = scan.columns(list(columns))
    return scan if filter is None else scan.filter(filter)
