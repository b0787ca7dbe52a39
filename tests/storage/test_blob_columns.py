"""Blobs in tables: bytes and references are read as written, and cells that an update does not set are kept."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.thresholds import Thresholds

from omnigraph.errors import BlobIntegrityError
from omnigraph.storage import blobs
from omnigraph.storage.blobs import CELL, BlobInfo, check_descriptors, portions, row_schema, unchanged_cells
from omnigraph.storage.staged import Staged
from omnigraph.storage.staging import stage_append, stage_delete, stage_overwrite, stage_upsert
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

VALUES = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("n", pa.int64()),
        pa.field("photo", pa.large_binary()),
        pa.field("film", pa.large_binary()),
    ]
)
REFERENCE = "s3://assets/fleet/film.mp4"
Cell = bytes | str | None


def cells(values: list[Cell]) -> pa.Array:
    made = [
        None if value is None else {"data": value, "uri": None} if isinstance(value, bytes) else {"uri": value}
        for value in values
    ]
    return pa.array(made, CELL)


def rows(ids: list[str], n: int, photo: list[Cell] | pa.Array, film: list[Cell] | pa.Array) -> pa.Table:
    columns = [photo, film]
    arrays = [column if isinstance(column, pa.Array) else cells(column) for column in columns]
    return pa.table([pa.array(ids), pa.array([n] * len(ids)), *arrays], schema=row_schema(VALUES))


@pytest.fixture
def tables(tmp_path: Path) -> TableStorage:
    return TableStorage(str(tmp_path))


@pytest.fixture
def base(tables: TableStorage) -> TableRef:
    empty = tables.create("nodes/t", VALUES)
    large = b"x" * 200_000
    return commit(
        tables,
        stage_append(tables.at(empty), rows(list("abcd"), 0, [b"a", None, b"", large], [REFERENCE, None, b"f", None])),
    )


def commit(tables: TableStorage, staged: Staged | None) -> TableRef:
    assert staged is not None
    return tables.commit_staged(staged)


def content(tables: TableStorage, ref: TableRef) -> dict[str, tuple[int, Cell, Cell]]:
    """All rows by id, with the content of their blobs."""

    def value(cell: dict[str, Cell] | None) -> Cell:
        return None if cell is None else cell["data"] if cell["data"] is not None else cell["uri"]

    scanned = tables.at(ref).scan(columns=["id", "n", "photo", "film", "_rowid"])
    found = [row for part in tables.at(ref).content(scanned) for row in part.to_pylist()]
    return {row["id"]: (row["n"], value(row["photo"]), value(row["film"])) for row in found}


def row_ids(tables: TableStorage, ref: TableRef) -> dict[str, int]:
    found = tables.at(ref).scan(columns=["id", "_rowid"])
    return dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))


def test_blobs_are_read_as_they_were_written(tables: TableStorage, base: TableRef) -> None:
    assert content(tables, base) == {
        "a": (0, b"a", REFERENCE),
        "b": (0, None, None),
        "c": (0, b"", b"f"),
        "d": (0, b"x" * 200_000, None),
    }


@pytest.mark.parametrize("forked", [False, True])
def test_an_upsert_leaves_kept_cells_as_they_are(tables: TableStorage, base: TableRef, forked: bool) -> None:
    before = row_ids(tables, base)
    base = tables.fork(base, "fork") if forked else base
    change = pa.concat_tables(
        [
            rows(list("abd"), 1, unchanged_cells(3), unchanged_cells(3)),
            rows(["c"], 1, ["s3://assets/other"], unchanged_cells(1)),
            rows(["new"], 1, [b"new"], [REFERENCE]),
        ]
    )
    after = commit(tables, stage_upsert(tables.at(base), change))
    assert content(tables, after) == {
        "a": (1, b"a", REFERENCE),
        "b": (1, None, None),
        "c": (1, "s3://assets/other", b"f"),
        "d": (1, b"x" * 200_000, None),
        "new": (1, b"new", REFERENCE),
    }
    assert {id_: number for id_, number in row_ids(tables, after).items() if id_ != "new"} == before


def test_kept_cells_are_read_in_small_groups(tables: TableStorage, base: TableRef, thresholds: Thresholds) -> None:
    thresholds(blobs, LOOKUP_ROWS=2, MAX_MATERIALIZED_BYTES=1)
    before = content(tables, base)
    after = commit(tables, stage_upsert(tables.at(base), rows(list("dcba"), 7, unchanged_cells(4), unchanged_cells(4))))
    assert content(tables, after) == {id_: (7, *rest) for id_, (_, *rest) in before.items()}


def test_an_upsert_without_kept_cells_replaces_and_inserts_rows(tables: TableStorage, base: TableRef) -> None:
    after = commit(tables, stage_upsert(tables.at(base), rows(["a", "e"], 2, [b"A", None], [None, b""])))
    found = content(tables, after)
    assert found["a"] == (2, b"A", None)
    assert found["e"] == (2, None, b"")


def test_tables_with_blobs_can_be_overwritten_and_rows_deleted(tables: TableStorage, base: TableRef) -> None:
    fewer = commit(tables, stage_delete(tables.at(base), pc.field("id").isin(["a", "d"])))
    assert sorted(content(tables, fewer)) == ["b", "c"]
    other = commit(tables, stage_overwrite(tables.at(fewer), rows(["z"], 3, [REFERENCE], [b"z"])))
    assert content(tables, other) == {"z": (3, REFERENCE, b"z")}


def test_keeping_a_cell_of_a_new_row_is_refused(tables: TableStorage, base: TableRef) -> None:
    with pytest.raises(BlobIntegrityError, match="'new' does not exist"):
        stage_upsert(tables.at(base), rows(["new"], 1, unchanged_cells(1), [None]))


def test_a_single_blob_can_be_read(tables: TableStorage, base: TableRef) -> None:
    assert tables.at(base).blob("photo", "nobody") is None
    assert [getattr(tables.at(base).blob("photo", id_), "info", 0) for id_ in "abcd"] == [
        BlobInfo(1),
        None,
        BlobInfo(0),
        BlobInfo(200_000),
    ]
    film = tables.at(base).blob("film", "a")
    assert film is not None
    assert film.info == BlobInfo(None, REFERENCE)
    photo = tables.at(base).blob("photo", "d")
    assert photo is not None
    assert tables.at(base).read_blob("photo", photo.row_id, 199_990, 200_000) == b"x" * 10


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": 4}, "does not know"),
        ({"kind": 3}, "a reference has no address"),
        ({"kind": 0, "blob_uri": "s3://a/b"}, "stored content has one"),
        ({"kind": 3, "blob_uri": "s3://a/b", "size": 3}, "a part of a file"),
        ({"kind": 3, "blob_uri": "s3://a/b", "blob_id": 1}, "a part of a file"),
    ],
)
def test_a_contradictory_blob_descriptor_is_an_error(changes: dict[str, object], reason: str) -> None:
    kind = pa.struct(
        {
            "kind": pa.uint8(),
            "position": pa.uint64(),
            "size": pa.uint64(),
            "blob_id": pa.uint32(),
            "blob_uri": pa.utf8(),
        }
    )
    plain = {"kind": 0, "position": 0, "size": 0, "blob_id": 0, "blob_uri": ""}
    check_descriptors(pa.array([plain, None], kind), "T.photo")
    with pytest.raises(BlobIntegrityError, match=reason):
        check_descriptors(pa.array([None, plain, plain | changes], kind), "T.photo")


def test_portions_are_limited_by_total_size() -> None:
    sizes = pa.array([5, 5, 20, 0, 0, 9, 2]).to_numpy()
    assert list(portions(sizes, 10)) == [(0, 2), (2, 3), (3, 6), (6, 7)]
    assert list(portions(sizes[:0], 10)) == []
