"""Tables are read at exact versions, and written only by staging."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.errors import KeyConflictError, StorageError, VersionReclaimedError
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.staged import Staged, TableConflictError
from omnigraph.storage.staging import (
    stage_append,
    stage_delete,
    stage_delete_ids,
    stage_fragments,
    stage_indexes,
    stage_insert,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

SCHEMA = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("n", pa.int64()),
        pa.field("text", pa.utf8()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
        pa.field("blob", pa.large_binary()),
    ]
)
TEXTS = ["the quick brown fox", "a brown dog", "fox and dog", None]
INDEXES = [
    IndexSpec("id", IndexKind.BTREE),
    IndexSpec("n", IndexKind.BITMAP),
    IndexSpec("text", IndexKind.FTS),
    IndexSpec("text", IndexKind.NGRAM),
    IndexSpec("vec", IndexKind.VECTOR, (("metric", "l2"),)),
]


def rows(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"r{i}" for i in numbers],
            "n": list(numbers),
            "text": [TEXTS[i % 4] for i in numbers],
            "vec": [[float(i), 0.0] for i in numbers],
            "blob": [b"x" * i if i % 2 else None for i in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def tables(tmp_path: Path) -> TableStorage:
    return TableStorage(str(tmp_path))


def commit(tables: TableStorage, staged: Staged | None) -> TableRef:
    assert staged is not None
    return tables.commit_staged(staged)


@pytest.fixture
def base(tables: TableStorage) -> TableRef:
    empty = tables.create("nodes/t", SCHEMA)
    return commit(tables, stage_append(tables.at(empty), rows(0, 8)))


def ids(tables: TableStorage, ref: TableRef) -> list[str]:
    return sorted(tables.at(ref).scan(columns=["id"])["id"].to_pylist())


def test_staging_changes_no_version(tables: TableStorage, base: TableRef) -> None:
    staged = [
        stage_append(tables.at(base), rows(10, 11)),
        stage_upsert(tables.at(base), rows(0, 9)),
        stage_insert(tables.at(base), rows(10, 11)),
        stage_overwrite(tables.at(base), rows(0, 0)),
        stage_delete(tables.at(base), pc.field("n") == 1),
        stage_indexes(tables.at(base), INDEXES),
        stage_restore(tables.at(base), 1),
    ]
    assert all(handle is not None for handle in staged)
    assert tables.head("nodes/t", None) == base.version
    assert ids(tables, base) == [f"r{i}" for i in range(8)]


def test_a_write_without_effect_stages_nothing(tables: TableStorage, base: TableRef) -> None:
    nothing = rows(0, 0)
    assert stage_append(tables.at(base), nothing) is None
    assert stage_upsert(tables.at(base), nothing) is None
    assert stage_insert(tables.at(base), nothing) is None
    assert stage_delete(tables.at(base), pc.field("n") == 99) is None
    assert stage_delete_ids(tables.at(base), pa.chunked_array([["nobody"]])) is None
    assert stage_fragments(tables.at(base), []) is None


def test_staged_writes_count_added_and_removed_rows(tables: TableStorage, base: TableRef) -> None:
    upsert = stage_upsert(tables.at(base), rows(6, 10))
    delete = stage_delete(tables.at(base), pc.field("n") < 3)
    overwrite = stage_overwrite(tables.at(base), rows(0, 2))
    assert upsert is not None
    assert delete is not None
    assert (upsert.rows_added, upsert.rows_removed) == (2, 0)
    assert (delete.rows_added, delete.rows_removed) == (0, 3)
    assert (overwrite.rows_added, overwrite.rows_removed) == (2, 8)


def test_a_strict_insert_refuses_an_id_that_exists(tables: TableStorage, base: TableRef) -> None:
    with pytest.raises(KeyConflictError, match="'r7'"):
        stage_insert(tables.at(base), rows(7, 10))


def test_a_second_commit_of_one_version_is_refused(tables: TableStorage, base: TableRef) -> None:
    first, second = stage_append(tables.at(base), rows(8, 9)), stage_append(tables.at(base), rows(9, 10))
    commit(tables, first)
    with pytest.raises(TableConflictError):
        commit(tables, second)


def test_old_versions_do_not_change(tables: TableStorage, base: TableRef) -> None:
    after = commit(tables, stage_delete(tables.at(base), pc.field("n") > 1))
    assert ids(tables, after) == ["r0", "r1"]
    assert len(ids(tables, base)) == 8
    with pytest.raises(VersionReclaimedError):
        tables.at(base.at(99)).scan()


def answers(tables: TableStorage, ref: TableRef) -> list[list[str]]:
    """Queries whose answers must not depend on index coverage."""
    near = tables.at(ref).nearest("vec", [4.2, 0.0], 3)["id"].to_pylist()
    filtered = tables.at(ref).nearest("vec", [4.2, 0.0], 2, filter=pc.field("n") > 6)["id"].to_pylist()
    return [
        near,
        filtered,
        *(
            sorted(found["id"].to_pylist())
            for found in (
                tables.at(ref).match("text", "fox"),
                tables.at(ref).match("text", "brown fox"),
                tables.at(ref).match("text", "brown fox", every_word=True),
                tables.at(ref).match("text", "brown fox", phrase=True),
                tables.at(ref).match("text", "fox dog", phrase=True),
                tables.at(ref).match("text", "dog", filter=pc.field("n") > 3),
                tables.at(ref).scan(columns=["id"], filter=pc.field("id") == "r5"),
                tables.at(ref).scan(columns=["id"], filter=pc.field("n") == 5),
            )
        ),
    ]


def test_an_index_never_changes_an_answer(tables: TableStorage, base: TableRef) -> None:
    without = answers(tables, base)
    assert without[0] == ["r4", "r5", "r3"]
    assert without[1] == ["r7"]
    assert without[5] == ["r0", "r4"]
    indexed = commit(tables, stage_indexes(tables.at(base), INDEXES))
    assert answers(tables, indexed) == without
    assert stage_indexes(tables.at(indexed), INDEXES) is None

    more = commit(tables, stage_append(tables.at(indexed), rows(8, 16)))
    bare = TableStorage(tables._root)
    plain = bare.create("nodes/plain", SCHEMA)
    for first in (0, 8):
        plain = commit(bare, stage_append(bare.at(plain), rows(first, first + 8)))
    partial = answers(tables, more)
    assert partial == answers(bare, plain)
    full = commit(tables, stage_indexes(tables.at(more), INDEXES))
    assert answers(tables, full) == partial
    assert stage_indexes(tables.at(full), INDEXES) is None


def test_an_index_commit_keeps_the_rows(tables: TableStorage, base: TableRef) -> None:
    staged = stage_indexes(tables.at(base), INDEXES[:1])
    assert staged is not None
    assert (staged.rows_added, staged.rows_removed) == (0, 0)
    assert ids(tables, commit(tables, staged)) == ids(tables, base)


def test_staged_files_are_listed_completely(tables: TableStorage, base: TableRef, tmp_path: Path) -> None:
    """The files to flush before a commit is acknowledged are exactly the files that staging wrote."""

    def files() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if path.is_file()}

    writes: tuple[Callable[[], Staged | None], ...] = (
        lambda: stage_append(tables.at(base), rows(10, 12)),
        lambda: stage_upsert(tables.at(base), rows(3, 12)),
        lambda: stage_delete(tables.at(base), pc.field("n") == 1),
        lambda: stage_overwrite(tables.at(base), rows(0, 3)),
    )
    for stage in writes:
        before = files()
        staged = stage()
        assert staged is not None
        assert {tmp_path / name for name in staged.paths} == files() - before
    staged = stage_indexes(tables.at(base), INDEXES[:2])
    assert staged is not None
    for name in staged.paths:
        assert any((tmp_path / name).iterdir())


@pytest.mark.parametrize("size", [10, 200_000, 6_000_000])
def test_staged_blob_files_are_listed(tables: TableStorage, tmp_path: Path, size: int) -> None:
    empty = tables.create("nodes/t", SCHEMA)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    large = rows(1, 2).set_column(4, SCHEMA.field("blob"), pa.array([b"x" * size], pa.large_binary()))
    staged = stage_append(tables.at(empty), large)
    assert staged is not None
    named = [tmp_path / name for name in staged.paths]
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(path in named or path.parent in named for path in written)


def test_a_filter_works_beside_columns_of_every_type(tables: TableStorage) -> None:
    """Lance refuses filters on tables with lists of unsigned integers, so the engine works around it."""
    kinds = [
        *(pa.uint32(), pa.uint64(), pa.float32(), pa.bool_(), pa.date32(), pa.date64(), pa.large_binary()),
        *(pa.list_(kind) for kind in (pa.uint32(), pa.uint64(), pa.int32(), pa.utf8(), pa.date64(), pa.float64())),
        pa.list_(pa.float32(), 3),
    ]
    schema = pa.schema([SCHEMA.field("id"), *(pa.field(f"c{i}", kind) for i, kind in enumerate(kinds))])
    empty = tables.create("nodes/all", schema)
    columns = {"id": pa.array(["a", "b"]), **{f"c{i}": pa.nulls(2, kind) for i, kind in enumerate(kinds)}}
    ref = commit(tables, stage_append(tables.at(empty), pa.table(columns, schema=schema)))
    assert ids(tables, ref) == ["a", "b"]
    assert tables.at(ref).take(["b"], columns=["id"]).num_rows == 1
    assert tables.at(ref).count(pc.field("id") == "a") == 1
    for name in schema.names[1:]:
        assert tables.at(ref).count(pc.field(name).is_null()) == 2, schema.field(name)
        assert tables.at(ref).scan(columns=["id"], filter=pc.field(name).is_null(), limit=1).num_rows == 1
    assert stage_delete(tables.at(ref), pc.field("c0").is_null()) is not None
    with pytest.raises(KeyConflictError):
        stage_insert(tables.at(ref), pa.table(columns, schema=schema))


@pytest.mark.parametrize("gone", ["_deletions", "data"])
def test_files_removed_during_a_read_are_a_storage_error(
    tables: TableStorage, base: TableRef, tmp_path: Path, gone: str
) -> None:
    """Deleting a branch removes files that a reader may have open. Lance reports it with several kinds of errors."""
    after = commit(tables, stage_delete(tables.at(base), pc.field("n") == 1))
    view = TableStorage(tables._root).at(after)
    assert view.schema().names == SCHEMA.names
    shutil.rmtree(tmp_path / "nodes" / "t" / gone)
    reads: tuple[Callable[[], object], ...] = (
        view.scan,
        lambda: view.count(pc.field("n") > 0),
        lambda: view.take(["r2"]),
        lambda: stage_delete(view, pc.field("n") == 3),
    )
    for read in reads:
        with pytest.raises(StorageError):
            read()
