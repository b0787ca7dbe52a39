"""Scanning a Lance dataset with a structured filter."""

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
"""How Lance refuses a filter on a column whose type it cannot send to its engine: unsigned integers, times, lists."""


class _Scan(ScannerBuilder):
    """A scanner whose filter may stand beside any column.

    Lance sends a filter to its engine together with the table's schema, and leaves out the columns whose types cannot
    be sent. It overlooks lists of such types (of unsigned integers, say), and then refuses every filter on the table.
    A filter never looks into a list, so no list is sent.
    """

    def filter(self, filter: Any) -> ScannerBuilder:
        if not isinstance(filter, pc.Expression):
            return super().filter(filter)
        self._substrait_filter = _serialize_expression(filter, sendable(self.ds.schema))  # type: ignore[assignment]
        return self


def sendable(schema: pa.Schema) -> pa.Schema:
    """A schema with the same positions, in which columns that cannot be sent stand under names that nobody uses."""
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
    """The rows of a version. A filter that Lance cannot take, say on a DateTime, is applied to what it reads."""
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


def lacking(columns: Sequence[str]) -> str:
    """The condition that one of some columns is null, in Lance's own words: as an expression, vectors cannot be sent.

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
    """A scanner over one version. A filter applies before the nearest or best rows are chosen.

    Args:
        dataset: the version.
        columns: what to read; by default everything.
        filter: a condition.
        limit: at most this many rows.
        nearest: a search by vector.
        text: a search by words.
        in_order: rows in the order in which they lie in the table.
        fragments: only these parts of it.
        batch_bytes: about how large a batch may be.
        batch_rows: how many rows a batch may have.
        few: the filter lets few rows through, so that columns it does not look at are read for those alone.
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
