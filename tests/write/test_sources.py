"""The same rows from files, tables, data frames, mappings and streams load the same graph."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

import omnigraph
from omnigraph.errors import BadRowsError, InputError
from omnigraph.graph import Graph
from omnigraph.write.input.row_files import row_files

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    score: F64?
    ok: Bool?
    born: Date?
    seen: DateTime?
    tags: [String]?
    face: Vector(2)?
    photo: Blob?
}
edge Knows: Person -> Person { since: Date?  @key(src, dst) }
"""
RECORDS = [
    {"type": "Person", "data": {"name": "ann", "age": 31, "score": 1.5, "ok": True, "born": "1990-05-02"}},
    {"type": "Person", "data": {"name": "bob", "seen": "2020-01-01T00:00:00Z", "tags": ["x"], "face": [1.0, 2.0]}},
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {"since": "2020-01-31"}},
]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)
ANN = {"name": "ann", "age": 31, "score": 1.5, "ok": True, "born": date(1990, 5, 2)}
BOB = {"name": "bob", "seen": datetime(2020, 1, 1, tzinfo=UTC), "tags": ("x",), "face": np.array([1.0, 2.0])}
KNOWS = {"from": "ann", "to": "bob", "since": date(2020, 1, 31)}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        yield made


def contents(graph: Graph) -> dict[str, list[dict[str, Any]]]:
    view = graph.snapshot()
    return {key: sorted(view.scan(key).to_pylist(), key=lambda row: str(row["id"])) for key in view.tables}


@pytest.fixture
def expected(graph: Graph) -> dict[str, list[dict[str, Any]]]:
    graph.load(LINES.encode(), mode="overwrite")
    return contents(graph)


def _file(name: str, data: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        return folder / name

    return write


def _zstd(folder: Path) -> Path:
    folder.mkdir()
    with pa.output_stream(str(folder / "people.jsonl.zst"), compression="zstd") as out:
        out.write(LINES.encode())
    return folder / "people.jsonl.zst"


def _folder(folder: Path) -> Path:
    _file("Person.csv", CSV)(folder)
    pa.parquet.write_table(
        pa.table({"from": ["ann"], "to": ["bob"], "since": [date(2020, 1, 31)]}), folder / "Knows.parquet"
    )
    (folder / "README.md").write_text("not rows")
    return folder


def _parts(folder: Path) -> list[Path]:
    """Files in parts, as Spark writes them."""
    people = folder / "Person.parquet"
    people.mkdir(parents=True)
    for i in range(2):
        pa.parquet.write_table(PEOPLE.slice(i, 1), people / f"part-{i:05d}-c000.parquet")
    (people / "_SUCCESS").write_bytes(b"")
    (people / "._part-00000-c000.parquet").write_bytes(b"nothing")
    return [people, _file("Knows.csv", b"from,to,since\nann,bob,2020-01-31\n")(folder)]


def _stream_format(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    table = PEOPLE
    with pa.OSFile(str(folder / "x.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"Person": folder / "x.arrow", "Knows": [KNOWS]}


CSV = b"""name,age,score,ok,born,seen,tags,face
ann,31,1.5,true,1990-05-02,,,
bob,,,,,2020-01-01T00:00:00Z,"[""x""]","[1,2]"
"""
PEOPLE = pa.table(
    {
        "name": ["ann", "bob"],
        "age": [31, None],
        "score": [1.5, None],
        "ok": [True, None],
        "born": [date(1990, 5, 2), None],
        "seen": pa.array([None, datetime(2020, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "tags": [None, ["x"]],
        "face": [None, [1.0, 2.0]],
    }
)
FRAME = {
    "name": ["ann", "bob"],
    "age": [31, None],
    "score": [1.5, None],
    "ok": [True, None],
    "born": [date(1990, 5, 2), None],
    "seen": [None, datetime(2020, 1, 1, tzinfo=UTC)],
    "tags": [None, ["x"]],
    "face": [None, [1.0, 2.0]],
}

SOURCES: dict[str, Callable[[Path], Any]] = {
    "a file": _file("people.ndjson", LINES.encode()),
    "the name of a file": lambda folder: str(_file("people.ndjson", LINES.encode())(folder)),
    "pretty-printed": _file("people.json", "".join(json.dumps(r, indent=2) + "\n" for r in RECORDS).encode()),
    "with a byte order mark and CRLF": _file("p.jsonl", b"\xef\xbb\xbf" + LINES.replace("\n", "\r\n").encode()),
    "gzip": _file("people.ndjson.gz", gzip.compress(LINES.encode())),
    "bzip2": _file("people.ndjson.bz2", bz2.compress(LINES.encode())),
    "zstd": _zstd,
    "a folder of several formats": _folder,
    "a file in parts": _parts,
    "several files": lambda folder: [_folder(folder) / "Person.csv", str(folder / "Knows.parquet")],
    "a pattern": lambda folder: str(_folder(folder) / "*.[cp][sa]*"),
    "files by type": lambda folder: {
        "Person": _file("2024.csv", CSV)(folder),
        "Knows": str(_file("k.csv.gz", gzip.compress(b"from,to,since\nann,bob,2020-01-31\n"))(folder)),
    },
    "a stream of bytes": lambda folder: io.BytesIO(LINES.encode()),
    "a stream of text": lambda folder: io.StringIO(LINES),
    "bytes": lambda folder: LINES.encode(),
    "envelopes": lambda folder: RECORDS,
    "a generator of envelopes": lambda folder: (record for record in RECORDS),
    "envelopes of Python values": lambda folder: [
        {"type": "Person", "data": ANN},
        {"type": "Person", "data": BOB},
        {"edge": "knows", "from": "ann", "to": "bob", "data": {"since": date(2020, 1, 31)}},
    ],
    "mappings by type": lambda folder: {"Person": [ANN, BOB], "Knows": iter([KNOWS])},
    "tables by type": lambda folder: {"Person": PEOPLE, "Knows": pa.table({k: [v] for k, v in KNOWS.items()})},
    "an Arrow stream in a file": _stream_format,
    "pandas": lambda folder: {"Person": pd.DataFrame(FRAME), "Knows": pd.DataFrame([KNOWS])},
    "pandas with an index": lambda folder: {
        "Person": pd.DataFrame(FRAME, index=[7, 9]),
        "Knows": pd.DataFrame([KNOWS]).set_index("from"),
    },
    "pandas in a Parquet file": lambda folder: {
        "Person": _parquet(folder, pd.DataFrame(FRAME, index=["x", "y"])),
        "Knows": pd.DataFrame([KNOWS]),
    },
    "Polars": lambda folder: {"Person": pl.DataFrame(FRAME), "Knows": pl.DataFrame([KNOWS])},
}


def _parquet(folder: Path, frame: pd.DataFrame) -> Path:
    folder.mkdir()
    frame.to_parquet(folder / "x.parquet")
    return folder / "x.parquet"


@pytest.mark.parametrize("name", SOURCES)
def test_every_kind_of_source_loads_the_same_rows(
    graph: Graph, expected: dict[str, list[dict[str, Any]]], tmp_path: Path, name: str
) -> None:
    receipt = graph.load(SOURCES[name](tmp_path / "files"), mode="overwrite")
    assert receipt.total == 3
    assert contents(graph) == expected


def test_a_data_frame_is_loaded_with_a_type_name(graph: Graph) -> None:
    assert graph.load(pl.DataFrame({"name": ["x"]}), mode="append", type_name="Person").nodes == (("Person", 1),)
    assert graph.load([{"name": "y"}], mode="append", type_name="Person").nodes == (("Person", 1),)


def test_pandas_integers_with_missing_values_are_loaded_as_integers(graph: Graph) -> None:
    """Pandas stores integers with missing values as floats by default; they are loaded as integers."""
    frame = pd.DataFrame({"name": ["a", "b"], "age": [3, None]})
    assert str(frame["age"].dtype) == "float64"
    graph.load({"Person": frame}, mode="append")
    assert {row["id"]: row["age"] for row in contents(graph)["node:Person"]} == {"a": 3, "b": None}
    with pytest.raises(BadRowsError, match=r"Person, row 1: Person\.age: expected a whole number"):
        graph.load({"Person": pd.DataFrame({"name": ["c"], "age": [3.5]})}, mode="append")
    with pytest.raises(BadRowsError, match=r"Person\.age: expected a whole number"):
        graph.load({"Person": pl.DataFrame({"name": ["c"], "age": [3.0]})}, mode="append")


def test_nan_is_null_in_pandas_and_an_error_elsewhere(graph: Graph) -> None:
    graph.load({"Person": pd.DataFrame({"name": ["a"], "score": [float("nan")]})}, mode="append")
    assert contents(graph)["node:Person"][0]["score"] is None
    with pytest.raises(BadRowsError, match=r"Person\.score: the number is not finite"):
        graph.load({"Person": pl.DataFrame({"name": ["b"], "score": [float("nan")]})}, mode="append")


def test_a_data_frame_that_arrow_cannot_read_is_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="the rows of Person cannot be read as Arrow data"):
        graph.load({"Person": pd.DataFrame({"name": ["a", 3]}, dtype=object)}, mode="append")


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime(2020, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), 1577872800000),
        (datetime(2020, 1, 1, 10), 1577872800000),  # noqa: DTZ001 - without a zone it is UTC
        (datetime(2020, 1, 1, 10, 0, 0, 1999, tzinfo=UTC), 1577872800001),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (date(2020, 1, 1), 1577836800000),
        (np.datetime64("2020-01-01T10:00:00"), 1577872800000),
        (pd.Timestamp("2020-01-01T10:00:00Z"), 1577872800000),
        (pd.NaT, None),
        ("2020-01-01T10:00:00Z", 1577872800000),
        (1577872800000, 1577872800000),
        (np.int64(5), 5),
    ],
    ids=str,
)
def test_times_of_every_python_type_are_stored_in_utc(graph: Graph, value: object, stored: int | None) -> None:
    graph.load({"Person": [{"name": "a", "seen": value}, {"name": "b", "seen": 0}]}, mode="append")
    column = graph.snapshot().scan("node:Person")["seen"].cast(pa.int64()).to_pylist()
    assert column == [stored, 0]


def test_python_and_numpy_values_are_accepted(graph: Graph) -> None:
    rows = [
        {"name": "a", "age": np.int8(3), "ok": np.bool_(True), "score": np.float32(0.5), "photo": b"hi"},
        {"name": "b", "face": [np.float64(1), 2], "tags": np.array(["x"], object), "photo": "base64:aGk="},
        {"name": "c", "born": datetime(2020, 1, 1, 23, tzinfo=timezone(-timedelta(hours=3))), "photo": memoryview(b"")},
    ]
    graph.load({"Person": rows}, mode="append")
    a, b, c = contents(graph)["node:Person"]
    assert (a["age"], a["ok"], a["score"]) == (3, True, 0.5)
    assert (b["face"], b["tags"]) == ([1.0, 2.0], ["x"])
    assert str(c["born"]) == "2020-01-02"
    assert [row["photo"]["size"] for row in (a, b, c)] == [2, 2, 0]


def test_a_large_generator_of_rows_keeps_its_order(graph: Graph) -> None:
    count = 40_000
    rows = ({"name": f"p{i:06d}", "age": i} for i in range(count))
    graph.load({"Person": rows}, mode="append")
    table = graph.snapshot().scan("node:Person", columns=["id", "age"]).sort_by("id")
    assert table["age"].to_pylist() == list(range(count))


def test_the_result_of_a_scan_can_be_loaded(tmp_path: Path) -> None:
    """A DateTime is stored in an Arrow type that other programs read as a date."""
    schema = "node Log { name: String @key  at: DateTime?  more: [DateTime]? }"
    moment = "2020-01-01T12:34:56.789Z"
    with omnigraph.init(tmp_path / "log", schema) as graph, omnigraph.init(tmp_path / "copy", schema) as copy:
        graph.load({"Log": [{"name": f"l{i}", "at": moment, "more": [moment] * i} for i in range(3)]}, mode="append")
        copy.load({"Log": graph.snapshot().scan("node:Log")}, mode="append")
        copy.load({"Log": graph.snapshot().scan("node:Log", columns=["name", "at", "more"]).slice(1)}, mode="merge")
        assert b"".join(copy.export()) == b"".join(graph.export())


def test_pandas_floats_beyond_exact_integers_are_refused(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", "node N { name: String @key  n: I64?  m: I64 }") as graph:
        for number in (2**53, 2**53 + 1, -(2**53) - 1, 1e30):
            frame = pd.DataFrame({"name": ["a", "b"], "n": [number, None], "m": [1, 2]})
            with pytest.raises(BadRowsError, match=r"^N, row 1: N\.n: whole numbers beyond ±\(2\^53 - 1\)") as error:
                graph.load({"N": frame}, mode="append")
            assert error.value.total == 1
        frame = pd.DataFrame({"name": ["a"], "m": np.array([2**24], "float32")})
        with pytest.raises(BadRowsError, match=r"^N, row 1: N\.m: whole numbers beyond ±\(2\^24 - 1\)") as error:
            graph.load({"N": frame}, mode="append")
        assert error.value.total == 1
        graph.load({"N": pd.DataFrame({"name": ["a", "b"], "n": [2**53 - 1, None], "m": [1, 2]})}, mode="append")
        assert graph.entity("N", "a") == {"id": "a", "m": 1, "n": 2**53 - 1, "name": "a"}


def test_a_relative_pattern_works_in_a_directory_named_like_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory name has pattern characters. A file that matches twice is loaded once."""
    place = tmp_path / "a[1]*"
    (place / "data" / "Person.csv").mkdir(parents=True)
    (place / "data" / "Person.csv" / "part-0.csv").write_text("name\nann\n")
    monkeypatch.chdir(place)
    for pattern in ("data/*.csv", "data/**", "data/**/*.csv", "./data/Person.csv"):
        (file,) = row_files(pattern)
        assert str(file.input) == str(place / "data" / "Person.csv" / "part-0.csv")
        assert file.stem == "Person"


def test_a_pattern_skips_files_that_begin_with_an_underscore(tmp_path: Path) -> None:
    for name in ("_SUCCESS", "_old.csv", "b.csv", "a.csv"):
        (tmp_path / name).write_text("name\n")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "c.csv").write_text("name\n")
    found = [[file.input.name for file in row_files(tmp_path / pattern)] for pattern in ("*", "*.csv", "_*.csv")]
    assert found == [["a.csv", "b.csv"], ["a.csv", "b.csv"], ["_old.csv"]]
