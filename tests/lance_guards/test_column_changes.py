"""Schema changes of a Lance table as staged transactions: exact field numbers, files and indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.schema import LanceSchema
from lance.udf import BatchUDF, batch_udf
from tests.lance_guards.small import append, commit, create, newest

from omnigraph.errors import CorruptionError
from omnigraph.lang.arrow import PROPERTY_ID
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage.blobs import CELL
from omnigraph.storage.column_changes import NewValues, has_columns, stage_columns, write_columns
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.staged import Staged
from omnigraph.storage.staging import stage_append, stage_delete_ids, stage_indexes, stage_upsert
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView
from omnigraph.storage.tables import TableStorage

KEY = {"lance-schema:unenforced-primary-key": "true"}
VECTOR = pa.list_(pa.field("item", pa.float32()), 2)


def column(name: str, kind: pa.DataType, number: int, *, required: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=not required, metadata={PROPERTY_ID: str(number)})


ID = pa.field("id", pa.utf8(), nullable=False, metadata=KEY)
STORED = pa.schema(
    [
        ID,
        column("blob", pa.large_binary(), 1),
        column("items", pa.list_(pa.field("item", pa.int32())), 2),
        column("n", pa.int32(), 3),
        column("text", pa.utf8(), 4),
        column("vector", VECTOR, 5),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"{n:03}" for n in numbers],
            "blob": pa.array([{"data": f"b{n}".encode(), "uri": None} for n in numbers], CELL),
            "items": pa.array([[n, None] if n % 2 else None for n in numbers], STORED.field("items").type),
            "n": pa.array([n if n % 3 else None for n in numbers], pa.int32()),
            "text": [f"t{n % 4}" for n in numbers],
            "vector": pa.array([[float(n), 1.0] for n in numbers], VECTOR),
        }
    )


class Table:
    """One table, with the newest committed version."""

    def __init__(self, root: Path) -> None:
        self.tables = TableStorage(str(root))
        self.ref = self.tables.create("nodes/t", STORED)

    def commit(self, staged: Staged | None) -> TableRef:
        assert staged is not None
        for step in staged.steps:
            self.ref = self.tables.commit_staged(step)
        return self.ref

    def rows(self, ref: TableRef | None = None) -> list[dict[str, object]]:
        view = self.tables.at(ref or self.ref)
        found = view.dataset.scanner(columns=[*view.schema().names, "_rowid"]).to_table()
        return sorted(
            pa.concat_tables(list(view.content(found)) or [found]).to_pylist(), key=lambda row: str(row["id"])
        )

    @property
    def view(self) -> TableView:
        return self.tables.at(self.ref)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two fragments, one with deleted rows, and indexes."""
    made = Table(tmp_path)
    made.commit(stage_append(made.view, rows(0, 30)))
    made.commit(stage_append(made.view, rows(30, 30)))
    made.commit(stage_delete_ids(made.view, pa.chunked_array([["003", "031", "032"]])))
    specs = [IndexSpec("id", IndexKind.BTREE), IndexSpec("n", IndexKind.BTREE), IndexSpec("text", IndexKind.BITMAP)]
    made.commit(stage_indexes(made.view, specs))
    return made


CHANGED = pa.schema(
    [
        ID,
        column("again", pa.utf8(), 9),
        column("items", pa.list_(pa.field("item", pa.int64())), 2),
        column("number", pa.int64(), 3),
        column("photo", pa.large_binary(), 1),
        column("scan", pa.large_binary(), 8),
        column("soil", pa.utf8(), 7, required=True),
        column("text", pa.utf8(), 4, required=True),
        column("vector", VECTOR, 5),
    ]
)


def compute(batch: pa.RecordBatch) -> list[pa.Array]:
    return [
        batch["items"].cast(CHANGED.field("items").type),
        batch["n"].cast(pa.int64()),
        pa.repeat(pa.scalar("clay"), batch.num_rows),
    ]


VALUES = NewValues(("items", "number", "soil"), ("items", "n"), compute)


def changed(row: dict[str, object]) -> dict[str, object]:
    """The model of the change."""
    kept = {name: row[name] for name in ("id", "items", "text", "vector", "_rowid")}
    return kept | {"number": row["n"], "photo": row["blob"], "again": None, "scan": None, "soil": "clay"}


def test_a_change_of_all_kinds_is_one_staged_write(table: Table) -> None:
    before, old = table.rows(), table.ref
    staged = stage_columns(table.view, CHANGED, VALUES)
    assert table.tables.head("nodes/t", None) == old.version, "staging creates no version"
    assert len(staged.paths) == 2, "one new file per fragment"
    assert len(list(staged.steps)) == 2, "a merge cannot change nullability"
    table.commit(staged)
    assert has_columns(table.view.schema(), CHANGED)
    assert table.rows() == [changed(row) for row in before]
    assert table.rows(old) == before, "the old version stays readable"


def test_new_values_are_the_only_new_files(table: Table) -> None:
    known = {file.path for part in table.view.dataset.get_fragments() for file in part.metadata.files}
    table.commit(stage_columns(table.view, CHANGED, VALUES))
    files = {file.path for part in table.view.dataset.get_fragments() for file in part.metadata.files}
    assert known <= files
    assert len(files - known) == 2


def test_indexes_of_kept_columns_stay_and_those_of_rewritten_columns_go(table: Table) -> None:
    table.commit(stage_columns(table.view, CHANGED, VALUES))
    names = {index.name: index.field_names for index in table.view.dataset.describe_indices()}
    assert names == {"id_btree": ["id"], "text_bitmap": ["text"]}
    found = table.view.scan(columns=["id"], filter=pc.field("text") == "t2")
    assert sorted(found["id"].to_pylist()) == [row["id"] for row in table.rows() if row["text"] == "t2"]


def test_a_change_without_values_writes_no_files(table: Table) -> None:
    before = table.rows()
    wanted = pa.schema([ID, column("name", pa.utf8(), 4), column("x", VECTOR, 20), column("vector", VECTOR, 5)])
    staged = stage_columns(table.view, wanted)
    assert staged.paths == ()
    assert isinstance(staged.transaction.operation, LanceOperation.Project)
    table.commit(staged)
    kept = ("id", "vector", "_rowid")
    assert table.rows() == [{name: row[name] for name in kept} | {"name": row["text"], "x": None} for row in before]
    names = {index.name: index.field_names for index in table.view.dataset.describe_indices()}
    assert names == {"id_btree": ["id"], "text_bitmap": ["name"]}, "an index keeps its name and follows its column"


def test_a_dropped_and_added_column_of_the_same_name_is_empty(table: Table) -> None:
    """Its field number was never used, so the old files have no values for it."""
    table.commit(stage_columns(table.view, pa.schema([ID, STORED.field("vector")])))
    table.commit(stage_columns(table.view, pa.schema([ID, column("text", pa.utf8(), 30), STORED.field("vector")])))
    assert {row["text"] for row in table.rows()} == {None}


def test_names_can_be_swapped(table: Table) -> None:
    before = table.rows()
    text, other = pa.utf8(), column("other", pa.utf8(), 9)
    first = pa.schema([ID, other, STORED.field("text")])
    values = NewValues(("other",), ("id",), lambda batch: [batch["id"]])
    table.commit(stage_columns(table.view, first, values))
    table.commit(stage_columns(table.view, pa.schema([ID, column("other", text, 4), column("text", text, 9)])))
    assert [(row["other"], row["text"]) for row in table.rows()] == [(row["text"], row["id"]) for row in before]


def test_a_changed_table_takes_appends_upserts_deletes_and_compaction(table: Table) -> None:
    table.commit(stage_columns(table.view, CHANGED, VALUES))
    new = {
        "id": ["001", "new"],
        "again": ["a", None],
        "items": pa.array([[1], None], CHANGED.field("items").type),
        "number": pa.array([2**40, None], pa.int64()),
        "photo": pa.array([{"data": b"p", "uri": None}, None], CELL),
        "scan": pa.array([{"data": b"s", "uri": None}, None], CELL),
        "soil": ["sand", "sand"],
        "text": ["x", "y"],
        "vector": pa.array([[0.0, 0.0], None], VECTOR),
    }
    count = len(table.rows())
    table.commit(stage_upsert(table.view, pa.table(new)))
    table.commit(stage_delete_ids(table.view, pa.chunked_array([["002"]])))
    found = {row["id"]: row for row in table.rows()}
    assert len(found) == count
    assert found["001"]["number"] == 2**40
    assert found["001"]["scan"] == {"data": b"s", "uri": None}
    before = table.rows()
    table.view.dataset.optimize.compact_files()
    head = table.tables.head("nodes/t", None)
    assert head is not None
    assert table.rows(table.ref.at(head)) == before


def test_an_empty_table_gets_required_columns(tmp_path: Path) -> None:
    table = Table(tmp_path)
    staged = stage_columns(table.view, CHANGED, VALUES)
    assert staged.paths == ()
    table.commit(staged)
    assert has_columns(table.view.schema(), CHANGED)
    assert table.rows() == []


def test_fragments_can_be_written_one_by_one(table: Table) -> None:
    """As tasks on other machines do."""
    before = table.rows()
    numbers = [part.fragment_id for part in table.view.dataset.get_fragments()]
    written = [write_columns(table.view, CHANGED, VALUES, [number])[0] for number in numbers]
    with pytest.raises(Exception, match="do not cover all fragments"):
        stage_columns(table.view, CHANGED, VALUES, written[:1])
    table.commit(stage_columns(table.view, CHANGED, VALUES, written))
    assert table.rows() == [changed(row) for row in before]


def test_an_error_while_values_are_computed_is_raised_as_it_is(table: Table) -> None:
    def fail(batch: pa.RecordBatch) -> list[pa.Array]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        stage_columns(table.view, CHANGED, NewValues(VALUES.names, VALUES.reads, fail))
    with pytest.raises(Exception, match="required column soil would get null values"):
        stage_columns(
            table.view,
            CHANGED,
            NewValues(
                VALUES.names, VALUES.reads, lambda batch: [*compute(batch)[:2], pa.nulls(batch.num_rows, pa.utf8())]
            ),
        )


@pytest.mark.parametrize(
    "lost", [column("n", pa.int64(), 3), column("new", pa.utf8(), 30, required=True)], ids=["type", "required"]
)
def test_a_column_that_would_lose_its_values_is_refused(table: Table, lost: pa.Field) -> None:
    """Another type, or a new required column, without values."""
    with pytest.raises(CorruptionError, match="needs values"):
        stage_columns(table.view, pa.schema([ID, lost]))


def test_a_change_on_a_fork_leaves_the_table_as_it_is(table: Table) -> None:
    before, main = table.rows(), table.ref
    table.ref = table.tables.fork(main, "dev-1")
    table.commit(stage_columns(table.view, CHANGED, VALUES))
    assert table.rows() == [changed(row) for row in before]
    assert table.rows(main) == before
    table.ref = main
    other = pa.schema([ID, column("mine", pa.utf8(), 40), STORED.field("n")])
    table.commit(stage_columns(table.view, other))
    assert {row["mine"] for row in table.rows()} == {None}


# Behaviour of Lance that the store relies on, or avoids


def test_a_merge_refuses_to_change_the_nullability_of_other_columns(tmp_path: Path) -> None:
    """So a second commit changes it."""
    base = append(create(tmp_path), "a")
    fragment, _ = base.get_fragments()[0].merge_columns(_one(), columns=["id"])
    strict = LanceSchema.from_pyarrow(pa.schema([base.schema.field("id"), pa.field("n", pa.int64(), nullable=False)]))
    with pytest.raises(OSError, match="nullable true -> false"):
        commit(base, Transaction(base.version, LanceOperation.Merge([fragment], strict)))


def test_lance_does_not_check_nulls_of_a_column_that_becomes_required(tmp_path: Path) -> None:
    """So the store checks them before."""
    base = append(create(tmp_path), "a")
    with_null = lance.write_dataset(pa.table({"id": ["b"], "n": pa.array([None], pa.int64())}), base, mode="append")
    strict = LanceSchema.from_pyarrow(pa.schema([base.schema.field("id"), pa.field("n", pa.int64(), nullable=False)]))
    made = commit(with_null, Transaction(with_null.version, LanceOperation.Project(strict)))
    with pytest.raises(Exception):  # noqa: B017, PT011  # the type depends on the reader
        made.to_table()


def test_values_are_computed_only_for_rows_that_are_not_deleted(tmp_path: Path) -> None:
    base = append(create(tmp_path), "a", "b", "c")
    base.delete("id = 'b'")
    base = newest(tmp_path)
    seen: list[str] = []

    output = pa.schema([pa.field("x", pa.utf8(), nullable=False)])

    @batch_udf(output_schema=output)
    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.extend(batch["id"].to_pylist())
        return pa.record_batch([batch["id"]], schema=output)

    fragment, schema = base.get_fragments()[0].merge_columns(values, columns=["id"], batch_size=2)
    made = commit(base, Transaction(base.version, LanceOperation.Merge([fragment], schema)))
    assert seen == ["a", "c"]
    assert made.to_table()["x"].to_pylist() == ["a", "c"]


def test_a_merge_marks_all_rows_as_updated_and_a_projection_none(tmp_path: Path) -> None:
    base = append(create(tmp_path), "a", "b")
    stamp = "_row_last_updated_at_version"
    wider = LanceSchema.from_pyarrow(pa.schema([*base.schema, pa.field("x", pa.utf8())]))
    projected = commit(base, Transaction(base.version, LanceOperation.Project(wider)))
    assert set(projected.to_table(columns=["id", stamp])[stamp].to_pylist()) == {base.version}
    fragment, schema = base.get_fragments()[0].merge_columns(_one(), columns=["id"])
    place = tmp_path / "other"
    other = append(create(place), "a", "b")
    fragment, schema = other.get_fragments()[0].merge_columns(_one(), columns=["id"])
    merged = commit(other, Transaction(other.version, LanceOperation.Merge([fragment], schema)))
    assert set(merged.to_table(columns=["id", stamp])[stamp].to_pylist()) == {merged.version}


def test_a_field_message_has_the_expected_layout(tmp_path: Path) -> None:
    """`column_changes` edits these messages."""
    made: LanceDataset = create(tmp_path)
    reduced: Any = made.lance_schema.__reduce__()
    metadata, *messages = reduced[1]
    assert metadata == "{}"
    again = LanceSchema._from_protos(metadata, *messages)
    assert again == made.lance_schema
    assert messages[1].startswith(b"\x12\x01n\x18\x01")


def _one() -> BatchUDF:
    @batch_udf(output_schema=pa.schema([pa.field("x", pa.int64())]))
    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)], ["x"])

    made: BatchUDF = values
    return made
