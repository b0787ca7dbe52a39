"""What is compared of the rows of each type with what other rows have, and by which values.

Tasks put it aside when they read the input, cut by those values, so that nothing has to move when it is compared.
"""

# See docs/decisions/0100-what-is-compared-is-cut-where-it-is-read.md

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.write.rules.validator import bounded_ends, unique_groups, without_nulls

VALUE = "value"
"""The column of values that were taken from several others."""

_SAMPLE = 1 << 16
_DISTINCT = 0.8
"""What repeats less often than this is not worth the search for what is the same."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Something that is compared.

    Attributes:
        name: what it is called among those of its type.
        columns: the columns that it is made of.
        by: the columns of the result by whose values it is compared.
        made: makes it of the columns.
    """

    name: str
    columns: tuple[str, ...]
    by: tuple[str, ...]
    made: Callable[[pa.Table], pa.Table]


IDS = Compared("ids", ("id",), ("id",), lambda rows: rows.select(["id"]))
"""The ids."""


def ends_at(edge: EdgeType, node: str) -> Compared:
    """The nodes of a type that edges lead to or come from; where many do so often, each once."""
    ends = tuple(end for end, at in (("src", edge.from_type), ("dst", edge.to_type)) if at == node)

    def made(rows: pa.Table) -> pa.Table:
        values = pa.chunked_array([chunk for end in ends for chunk in rows[end].chunks], pa.utf8())
        sample = values.slice(0, _SAMPLE)
        repeat = len(sample.unique()) < len(sample) * _DISTINCT
        return pa.table({VALUE: pa.chunked_array([values.unique()]) if repeat else values})

    return Compared(f"ends-{node}", ends, (VALUE,), made)


def end_of(end: str) -> Compared:
    """One end of each edge."""
    return Compared(end, (end,), (end,), lambda rows: rows.select([end]))


def tuples(fields: tuple[str, ...]) -> Compared:
    """The entities that have all of some fields, with these."""
    columns = tuple(dict.fromkeys(["id", *fields]))
    return Compared(f"unique-{'-'.join(fields)}", columns, fields, lambda rows: without_nulls(rows, fields))


def compared(catalog: Catalog, declared: NodeType | EdgeType, *, named: bool) -> Iterator[Compared]:
    """Everything that is compared of a type.

    Args:
        catalog: the types.
        declared: the type.
        named: whether some ids were given, or are given by a key: others are new without looking.
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
