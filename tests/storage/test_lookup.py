"""Lookups by value find the same rows for few and many values. With an index, the cost does not grow with the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage import lookup
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.staging import stage_append, stage_indexes
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), ("number", pa.uint32()), ("text", pa.utf8())])


def rows(start: int, end: int) -> pa.Table:
    numbers = range(start, end)
    return pa.table(
        {"id": [f"p{i:06}" for i in numbers], "number": [i % 100 for i in numbers], "text": ["x" * 50] * len(numbers)},
        schema=SCHEMA,
    )


def table(tables: TableStorage, count: int) -> TableRef:
    base = tables.create("t", SCHEMA)
    for start in (0, count // 2):
        staged = stage_append(tables.at(base), rows(start, start + count // 2))
        assert staged is not None
        base = tables.commit_staged(staged)
    return base


@pytest.fixture
def tables(tmp_path: Path) -> TableStorage:
    return TableStorage(str(tmp_path))


@pytest.mark.parametrize("few", [0, 1000], ids=["streamed", "looked up"])
@pytest.mark.parametrize(
    ("by", "values"),
    [
        ("id", pa.array(["p000003", "p000150", "nobody"])),
        ("number", pa.array([7, 99], pa.uint32())),
        ("id", pa.array([], pa.utf8())),
    ],
    ids=["text", "type without Lance filters", "no values"],
)
def test_streamed_and_indexed_lookups_find_the_same_rows(
    tables: TableStorage, thresholds: Thresholds, few: int, by: str, values: pa.Array
) -> None:
    thresholds(lookup, MAX_LOOKUP_VALUES=few, LOOKUP_RATIO=10**9, COMPARE_ROWS=30)
    ref = table(tables, 200)
    found = tables.at(ref).lookup(by, pa.chunked_array([values]), columns=["text", "id"])
    wanted = set(values.to_pylist())
    expected = rows(0, 200).filter(pa.array([row[by] in wanted for row in rows(0, 200).to_pylist()]))
    assert found.schema == pa.schema([SCHEMA.field("text"), SCHEMA.field("id")])
    assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist())


@pytest.mark.parametrize("few", [0, 1000], ids=["streamed", "looked up"])
@pytest.mark.parametrize("by", ["id", "number"])
def test_lookups_can_return_row_ids(tables: TableStorage, thresholds: Thresholds, few: int, by: str) -> None:
    thresholds(lookup, MAX_LOOKUP_VALUES=few, LOOKUP_RATIO=10**9)
    ref = table(tables, 200)
    values = rows(150, 152)[by]
    found = tables.at(ref).lookup(by, values, columns=["id", "_rowid"])
    assert found.schema.field("_rowid").type == pa.uint64()
    again = tables.at(ref).take_rows(found["_rowid"].combine_chunks(), columns=["id"])
    assert again["id"].to_pylist() == found["id"].to_pylist()
    assert {"p000150", "p000151"} <= {*found["id"].to_pylist()}
    nothing = tables.at(ref).lookup(by, values.slice(0, 0), columns=["id", "_rowid"])
    assert (nothing.num_rows, nothing.schema) == (0, found.schema)


def test_a_lookup_in_an_empty_table_finds_nothing(tables: TableStorage) -> None:
    found = tables.at(tables.create("t", SCHEMA)).lookup("id", pa.chunked_array([["a"]]), columns=["id"])
    assert (found.num_rows, found.column_names) == (0, ["id"])


def test_with_an_index_the_bytes_read_do_not_grow_with_the_table(tmp_path: Path) -> None:
    read: dict[tuple[int, bool], int] = {}
    for count in (2_000, 200_000):
        tables = TableStorage(str(tmp_path / str(count)))
        ref = table(tables, count)
        staged = stage_indexes(tables.at(ref), [IndexSpec("id", IndexKind.BTREE)])
        assert staged is not None
        for indexed, at in ((False, ref), (True, tables.commit_staged(staged))):
            dataset = tables.at(at).dataset
            dataset.io_stats_incremental()
            # One of them does not exist, so that the scan cannot end early.
            found = tables.at(at).lookup("id", pa.chunked_array([["p000007", "nobody"]]), columns=["id", "text"])
            assert found.num_rows == 1
            read[count, indexed] = dataset.io_stats_incremental().read_bytes
    assert read[200_000, False] > 20 * read[2_000, False]
    assert read[200_000, True] < 200_000 < read[200_000, False]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_grouping_batches_keeps_all_rows_in_order(size: int) -> None:
    reader = pa.RecordBatchReader.from_batches(SCHEMA, rows(0, 50).to_batches(max_chunksize=3))
    groups = list(lookup.in_groups(reader, size))
    assert pa.concat_tables(groups).equals(rows(0, 50))
    assert all(group.num_rows >= size for group in groups[:-1])


ODD = [
    "it's",
    "a'' OR id IN ('p",
    "back\\slash",
    "100%",
    "_",
    "",
    " ",
    "naïve",
    "a,b",
    '"quoted"',
    "`tick`",
    "日本",
    "p' --",
]
"""Ids with characters that have a meaning in SQL, and neighbours of the plain ones."""

PLAIN = [
    "a-b",
    "a_b",
    "A-B",
    "a b",
    "mail@x.org",
    "2024-01-01",
    "10",
    "1e1",
    "true",
    "null",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
]


@pytest.mark.parametrize("indexed", [False, True])
def test_ids_with_any_characters_are_found(tables: TableStorage, indexed: bool) -> None:
    every = [*ODD, *PLAIN]
    base = tables.create("t", SCHEMA)
    stored = pa.table({"id": every, "number": [1] * len(every), "text": every}, schema=SCHEMA)
    staged = stage_append(tables.at(base), stored)
    assert staged is not None
    ref = tables.commit_staged(staged)
    if indexed:
        staged = stage_indexes(tables.at(ref), [IndexSpec("id", IndexKind.BTREE)])
        assert staged is not None
        ref = tables.commit_staged(staged)
    for one in every:
        found = tables.at(ref).lookup("id", pa.chunked_array([[one]], pa.utf8()), columns=["text"])
        assert found["text"].to_pylist() == [one]
    both = pa.chunked_array([[PLAIN[0], PLAIN[-1], "nobody"]], pa.utf8())
    assert sorted(tables.at(ref).lookup("id", both, columns=["id"])["id"].to_pylist()) == [PLAIN[-1], PLAIN[0]]
    mixed = pa.chunked_array([[PLAIN[0], ODD[0]]], pa.utf8())
    assert sorted(tables.at(ref).lookup("id", mixed, columns=["id"])["id"].to_pylist()) == [PLAIN[0], ODD[0]]
