"""Functions that compare rows with equal values. Tasks call them with the rows that a shuffle brings together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema.catalog import Cardinality
from omnigraph.pipeline.load.compare_columns import VALUE
from omnigraph.write.rules.constraints import (
    MemoryLimit,
    anti_join,
    cardinality_violations,
    duplicate_tuples,
    with_a_tuple_of,
    with_one_of,
    without_nulls,
)


def duplicate_id_count(rows: pa.Table) -> pa.Table:
    """The number of duplicate ids among the rows, as one row; an empty table if there are none."""
    distinct = pc.count_distinct(rows["id"]).as_py()
    return pa.table(
        {"duplicates": pa.array([rows.num_rows - distinct] if distinct < rows.num_rows else [], pa.int64())}
    )


def stored_ids(loaded: pa.Table, stored: pa.Table) -> pa.Table:
    """The loaded ids that are also stored."""
    return pa.table({"id": loaded["id"].filter(pc.is_in(loaded["id"], value_set=stored["id"]))})


def not_loaded(stored: pa.Table, loaded: pa.Table) -> pa.Table:
    """The stored rows whose id is not loaded."""
    return stored.filter(pc.invert(pc.is_in(stored["id"], value_set=loaded["id"])))


def also_loaded(columns: Sequence[str]) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """A function that returns some columns of the stored rows whose id is also loaded."""
    chosen = list(columns)
    return lambda stored, loaded: stored.filter(pc.is_in(stored["id"], value_set=loaded["id"])).select(chosen)


def comparable_rows(fields: tuple[str, ...], names: Sequence[str]) -> Callable[[pa.Table], pa.Table]:
    chosen = list(names)
    return lambda rows: without_nulls(rows.select(chosen), fields)


def shared_tuples(fields: tuple[str, ...], subject: str) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def compare(rows: pa.Table, others: pa.Table) -> pa.Table:
        candidates = pa.concat_tables([rows, with_a_tuple_of(others, fields, rows)])
        return duplicate_tuples(fields, candidates, subject, MemoryLimit())

    return compare


def unmatched_values(wanted: pa.Table, *present: pa.Table) -> pa.Table:
    ids = pa.chunked_array([chunk for rows in present for chunk in rows["id"].chunks], pa.utf8())
    missing = wanted[VALUE].filter(pc.invert(pc.is_in(wanted[VALUE], value_set=ids)))
    return pa.table({VALUE: pa.chunked_array([missing.unique()], pa.utf8())})


def dangling_edges(end: str) -> Callable[[pa.Table, pa.Table], pa.Table]:
    return lambda rows, missing: with_one_of(rows, end, missing[VALUE].combine_chunks())


def stranded_edges(end: str) -> Callable[[pa.Table, pa.Table, pa.Table], pa.Table]:
    return lambda edges, stored, loaded: with_one_of(edges, end, anti_join(stored["id"], loaded["id"], MemoryLimit()))


def only_column(column: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.select([column])


def outside_cardinality(end: str, card: Cardinality) -> Callable[..., pa.Table]:
    def compare(loaded: pa.Table, before: pa.Table, kept: pa.Table, *nodes: pa.Table) -> pa.Table:
        touched = pa.chunked_array([*loaded[end].chunks, *before[end].chunks], pa.utf8()).unique()
        if nodes:
            stored, loaded_nodes = nodes
            gone = anti_join(stored["id"], loaded_nodes["id"], MemoryLimit())
            touched = touched.filter(pc.invert(pc.is_in(touched, value_set=gone)))
        ends = pa.chunked_array([*kept[end].chunks, *loaded[end].chunks], pa.utf8())
        return cardinality_violations(card, pa.chunked_array([touched]), ends, MemoryLimit())

    return compare
