"""Files as tables for SQL: every value is exact in every format, and values that do not fit are refused."""

from __future__ import annotations

import gzip
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from omnigraph.errors import InputError
from omnigraph.pipeline.declared.file_tables import FileTask, columns_of
from omnigraph.write.input.row_files import FileSplit, cut_file, row_files

LINES = pa.schema([("ship", pa.utf8()), ("tons", pa.int64()), ("seen", pa.list_(pa.utf8()))])


def rows(path: Path, schema: pa.Schema | None = None, size: int = 1 << 20) -> list[dict[str, Any]]:
    """The rows that tasks read from files, each partition separately."""
    files = row_files(path)
    splits = tuple(split for file in files for split in cut_file(FileSplit(file, None), size))
    reading = pickle.loads(pickle.dumps(FileTask(splits, schema or columns_of(files[0]))))
    numbers = (pa.record_batch({"id": [number]}) for number in range(len(splits)))
    return [row for batch in reading(numbers) for row in batch.to_pylist()]


def test_csv_cells_are_strings(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('\ufeffname,tons,note\nargo,007,""\n"be,agle",1e400,\n"two\nlines",,x\n')
    assert rows(file) == [
        {"name": "argo", "tons": "007", "note": ""},
        {"name": "be,agle", "tons": "1e400", "note": None},
        {"name": "two\nlines", "tons": None, "note": "x"},
    ]
    packed = tmp_path / "b.tsv.gz"
    packed.write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    assert rows(packed) == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize("text", ["\ncode,n\n007,1\n", '"code","n"\r\n007,1', "code,n\n\n007,1\n\n"])
def test_csv_cells_are_strings_in_every_layout(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text, newline="")
    assert rows(tmp_path / "a.csv") == [{"code": "007", "n": "1"}]


def test_csv_column_names_may_span_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"co\nde",n\n007,1\n')
    assert rows(tmp_path / "a.csv") == [{"co\nde": "007", "n": "1"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('code,n\n1,2\n"a"b,2\n', "line 3: a quote inside of a cell"),
        ("code,n\n1,2\n1,2,3\n1\n", "line 3: the number of cells is 3, and the header has 2, and 1 more"),
        ("code,n\n1\r2,3\n", "line 2: the row contains a carriage return without a line feed"),
        ("", "a.csv is empty"),
        ("code,code\n", "the header has 'code' twice"),
    ],
)
def test_bad_csv_is_refused_as_by_a_load(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text, newline="")
    with pytest.raises(InputError, match=said):
        rows(tmp_path / "a.csv")


def test_a_file_without_rows_must_have_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("code,n\n1,2\n")
    (tmp_path / "b.csv").write_text("code,m\n")
    with pytest.raises(InputError, match=r"b\.csv: the column 'm' is not in all files"):
        rows(tmp_path)


@pytest.mark.parametrize("size", [1 << 20, 40])
def test_ndjson_lines_have_the_declared_columns(size: int, tmp_path: Path) -> None:
    file = tmp_path / "a.ndjson"
    given = [{"ship": f"s{n}", "tons": 2**53 + n, "seen": ["x"] * (n % 3)} for n in range(20)]
    file.write_text("".join(json.dumps(line) + "\n" for line in given) + '{"seen": null}')
    assert rows(file, LINES, size) == [*given, {"ship": None, "tons": None, "seen": None}]


@pytest.mark.parametrize(
    "line",
    [
        {"ship": 7},
        {"ship": "a", "flag": "gr"},
        {"tons": 2**63},
        {"tons": 1.5},
        {"tons": "1"},
        {"seen": ["a", 1]},
    ],
    ids=str,
)
def test_ndjson_values_that_do_not_fit_are_refused(line: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "a.ndjson"
    file.write_text('{"ship": "fine"}\n' + json.dumps(line) + "\n")
    with pytest.raises(InputError, match=r"a\.ndjson cannot be read: "):
        rows(file, LINES)


def test_column_types_hold_all_values_exactly(tmp_path: Path) -> None:
    moment = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
    table = pa.table(
        {
            "large": pa.array([2**64 - 1, None], pa.uint64()),
            "small": pa.array([255, 0], pa.uint8()),
            "vector": pa.array([[0.5, 2.0], None], pa.list_(pa.float32(), 2)),
            "text": pa.array(["a", "b"], pa.large_utf8()),
            "word": pa.array(["a", "a"]).dictionary_encode(),
            "when": pa.array([moment, None], pa.timestamp("ms", "Europe/Berlin")),
        }
    )
    first = {"large": Decimal(2**64 - 1), "small": 255, "vector": [0.5, 2.0], "text": "a", "word": "a", "when": moment}
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    pyarrow.feather.write_feather(table, str(tmp_path / "a.arrow"))
    for name in ("a.parquet", "a.arrow"):
        found = rows(tmp_path / name, size=1)
        assert found[0] == first
        assert found[1] == {"large": None, "small": 0, "vector": None, "text": "b", "word": "a", "when": None}


def test_columns_that_would_be_rounded_are_refused(tmp_path: Path) -> None:
    table = pa.table({"when": pa.array([1], pa.timestamp("ns"))})
    pyarrow.feather.write_feather(table, str(tmp_path / "a.arrow"))
    with pytest.raises(InputError, match=r"a\.arrow cannot be read: .*would lose data"):
        rows(tmp_path / "a.arrow")


def test_all_files_must_have_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,tons\nargo,1\n")
    (tmp_path / "b.csv").write_text("tons,name\n2,beagle\n")
    assert [row["name"] for row in rows(tmp_path)] == ["argo", "beagle"]
    (tmp_path / "c.csv").write_text("name,tons,flag\ncalypso,3,fr\n")
    with pytest.raises(InputError, match=r"c\.csv: the column 'flag' is not in all files of the source"):
        rows(tmp_path)
