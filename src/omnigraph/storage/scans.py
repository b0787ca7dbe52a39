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


class _Scan(ScannerBuilder):
    """A scanner whose filter works on a table with any column types.

    Lance passes a filter to its engine together with the table's schema, without the columns whose types are not
    supported. It misses lists of such types (for example of unsigned integers), and then refuses every filter on the
    table. Filters never use lists, so no lists are passed.
    """

    def filter(self, filter: Any) -> ScannerBuilder:
        if not isinstance(filter, pc.Expression):
            return super().filter(filter)
        self._substrait_filter = _serialize_expression(filter, sendable(self.ds.schema))  # type: ignore[assignment]
        return self


def sendable(schema: pa.Schema) -> pa.Schema:
    """A schema with the same positions, in which unsupported columns have unused names."""
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
    filter: pc.Expression | None,
    limit: int | None = None,
    *,
    few: bool = False,
) -> pa.Table:
    """The rows of a version that match a filter.

    A filter that Lance does not support, for example on a DateTime, is applied after the read.
    """
    try:
        return scanner(dataset, columns=columns, filter=filter, limit=limit, few=few).to_table()
    except ValueError as error:
        if filter is None or not any(reason in str(error) for reason in _NOT_TAKEN):
            raise
    wanted = list(columns) if columns is not None else [field.name for field in dataset.schema]
    mentioned = [name for name in dataset.schema.names if re.search(rf"\b{name}\b", str(filter))]
    rows = scanner(dataset, columns=list(dict.fromkeys([*wanted, *mentioned]))).to_table()
    kept = pd.dataset(rows).to_table(filter=filter).select(wanted)
    return kept if limit is None else kept.slice(0, limit)


def any_null(columns: Sequence[str]) -> str:
    """Lance SQL for "one of these columns is null". As an expression, Lance does not support vectors.

    >>> lacking(["title_vec", "text_vec"])
    '`title_vec` IS NULL OR `text_vec` IS NULL'
    """
    return " OR ".join(f"`{name}` IS NULL" for name in columns)


def scanner(
    dataset: LanceDataset,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | str | None = None,
    limit: int | None = None,
    nearest: dict[str, Any] | None = None,
    text: FullTextQuery | None = None,
    in_order: bool = False,
    fragments: Sequence[LanceFragment] | None = None,
    batch_bytes: int | None = None,
    batch_rows: int | None = None,
    few: bool = False,
) -> LanceScanner:
    """A scanner over one version. The filter applies before the nearest or best rows are chosen.

    Args:
        dataset: the version.
        columns: the columns to read; by default all.
        filter: a condition.
        limit: the maximum number of rows.
        nearest: a vector search.
        text: a full-text search.
        in_order: return rows in storage order.
        fragments: read only these fragments.
        batch_bytes: the approximate size of a batch.
        batch_rows: the maximum number of rows per batch.
        few: the filter matches few rows, so other columns are read only for these rows.
    """
    scan: ScannerBuilder = _Scan(dataset).prefilter(True).scan_in_order(in_order)
    if columns is not None:
        scan = scan.columns(list(columns))
    if filter is not None:
        scan = scan.filter(filter)
    if limit is not None:
        scan = scan.limit(limit)
    if nearest is not None:
        scan = scan.nearest(**nearest)
    if text is not None:
        scan = scan.full_text_search(text)
    if fragments is not None:
        scan = scan.with_fragments(fragments)
    if batch_bytes is not None:
        scan = scan.batch_size_bytes(batch_bytes)
    if batch_rows is not None:
        scan = scan.batch_size(batch_rows)
    if few:
        scan = scan.late_materialization(True)
    return scan.to_scanner()
