"""Defines the columns of each type that constraint checks compare with other rows, and how they are hash-partitioned.

Tasks write these columns in hash partitions while they read the input, so that the comparison needs no shuffle.
"""

# See docs/decisions/0100-what-is-compared-is-cut-where-it-is-read.md

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.write.rules.constraints import bounded_ends, unique_groups, without_nulls

VALUE = "value"
"""The name of a column that combines the values of several others."""

_SAMPLE_VALUES = 1 << 16
MAX_DISTINCT_FRACTION = 0.8
"""If a larger fraction of the values of a column is distinct, duplicates are not removed, because this saves little."""


@dataclass(frozen=True, slots=True)
class CompareKey:
    """Columns of a type that are compared with other rows.

    Attributes:
        name: the name, unique within the type.
        columns: the input columns of `compute`.
        by: the columns of the result of `compute` whose hash gives the partition of a row.
        compute: computes the compared columns from the input columns.
    """

    name: str
    columns: tuple[str, ...]
    by: tuple[str, ...]
    compute: Callable[[pa.Table], pa.Table]


IDS = CompareKey("ids", ("id",), ("id",), lambda rows: rows.select(["id"]))
"""The ids of the rows."""


def ends_at(edge: EdgeType, node: str) -> CompareKey:
    """The ids of the nodes of a type at the ends of edges. Duplicate ids are removed if a sample contains many."""
    ends = tuple(end for end, at in (("src", edge.from_type), ("dst", edge.to_type)) if at == node)

    def compute(rows: pa.Table) -> pa.Table:
        values = pa.chunked_array([chunk for end in ends for chunk in rows[end].chunks], pa.utf8())
        sample = values.slice(0, _SAMPLE_VALUES)
        has_duplicates = len(sample.unique()) < len(sample) * MAX_DISTINCT_FRACTION
        return pa.table({VALUE: pa.chunked_array([values.unique()]) if has_duplicates else values})

    return CompareKey(f"ends-{node}", ends, (VALUE,), compute)


def end_of(end: str) -> CompareKey:
    """One end of each edge."""
    return CompareKey(end, (end,), (end,), lambda rows: rows.select([end]))


def tuples(fields: tuple[str, ...]) -> CompareKey:
    """The id and the given fields of the entities that have all of the fields."""
    columns = tuple(dict.fromkeys(["id", *fields]))
    return CompareKey(f"unique-{'-'.join(fields)}", columns, fields, lambda rows: without_nulls(rows, fields))


def compare_keys(catalog: Catalog, declared: NodeType | EdgeType, *, named: bool) -> Iterator[CompareKey]:
    """All groups of columns of a type that are compared with other rows.

    Args:
        catalog: the schema.
        declared: the type.
        named: whether some ids are in the input or derived from a key. Generated ids are new and need no comparison.
    """
    if isinstance(declared, EdgeType):
        if named:
            yield IDS
        for node in dict.fromkeys([declared.from_type, declared.to_type]):
            yield ends_at(declared, node)
        for end, _, _ in bounded_ends(declared):
            yield end_of(end)
    elif named or any(declared.name in (edge.from_type, edge.to_type) for edge in catalog.edges.values()):
        yield IDS
    for fields in unique_groups(declared):
        yield tuples(fields)
