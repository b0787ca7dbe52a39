"""Files that people have: comments above the rows, years as headers, numbers that are no numbers, other encodings."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.commit.conftest import _no_fsync
from tests.inference.test_infer import entity, loaded, properties, written

from omnigraph.errors import InputError
from omnigraph.inference import infer, json_records

__all__ = ["_no_fsync"]

LARGE = 2**63 + 5
DIGITS = "12345678901234567890123"


def test_lines_before_the_rows_are_skipped(tmp_path: Path) -> None:
    snap = "# Directed graph\n# Nodes: 3 Edges: 3\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t0\n"
    bank = 'Source,"World ""Bank""",\n\nUpdated,2024,\n\nCountry,Code,2000,2001,2002,\nAruba,ABW,1,,2.5,\n'
    bank += "Chad,TCD,1,2,,\n"
    source = written(tmp_path / "in", web_csv=snap, bank_csv=bank)
    found = infer(source)
    graph = loaded(tmp_path, found, source)
    assert graph.snapshot().pin("node:Node").row_count == 3
    assert graph.snapshot().pin("edge:Web").row_count == 3
    aruba = {"id": "ABW", "country": "Aruba", "code": "ABW", "_2000": 1, "_2001": None, "_2002": 2.5, "c6": None}
    assert entity(graph, "Bank", "ABW") == aruba
    assert found.mapping is not None
    assert "the first 3 lines do not have 6 cells; the first row counts from 2000 to 2002" in found.mapping
    assert "the first 3 lines are comments; a line above the rows names the columns" in found.mapping


@pytest.mark.parametrize("text", ["0 1\n0 2\n1 2\n", "Ann;Bob;0.5\nAnn;Cid;1\nBob;Cid;1\n"])
def test_a_list_of_edges_needs_no_header(tmp_path: Path, text: str) -> None:
    source = written(tmp_path / "in", links_csv=text) / "links.csv"
    found = infer(source)
    assert (found.nodes, found.edges) == (("Node",), ("Links",))
    graph = loaded(tmp_path, found, source)
    assert graph.snapshot().pin("edge:Links").row_count == 3
    assert graph.snapshot().pin("node:Node").row_count == 3


def test_files_of_excel_and_of_r(tmp_path: Path) -> None:
    source = written(tmp_path / "in", a_csv="sep=;\nid;name\n1;a\n", b_csv='"x","y"\n"r1",1,2\n"r2",3,4\n')
    found = infer(source)
    assert properties(found, "A") == {"a_id": "I64", "name": "String"}
    assert properties(found, "B") == {"row": "String", "x": "I64", "y": "I64"}
    graph = loaded(tmp_path, found, source)
    assert (graph.snapshot().pin("node:A").row_count, graph.snapshot().pin("node:B").row_count) == (1, 2)


def test_times_without_seconds(tmp_path: Path) -> None:
    source = written(tmp_path / "in", a_csv="id,at\n1,2015-01-31T10:00\n") / "a.csv"
    found = infer(source)
    assert properties(found, "A")["at"] == "DateTime"
    loaded(tmp_path, found, source)


def test_a_header_may_end_with_a_separator(tmp_path: Path) -> None:
    found = infer(written(tmp_path / "in", a_csv="name,city,\nann,Oslo,\nbob,Rome,\n"))
    assert properties(found, "A") == {"name": "String", "city": "String", "c3": "String?"}


def test_numbers_that_would_lose_digits_stay_texts(tmp_path: Path) -> None:
    rows = f"1,{DIGITS},0.1234567890123456789,1e3\n2,7,1.5,2\n"
    source = written(tmp_path / "in", a_csv=f"id,digits,share,power\n{rows}") / "a.csv"
    found = infer(source)
    assert properties(found, "A") == {"a_id": "I64", "digits": "String", "share": "F64", "power": "F64"}
    assert "digits: String  // digits, but with leading zeros or too many for a number" in found.schema
    assert entity(loaded(tmp_path, found, source), "A", "1")["digits"] == DIGITS


def test_texts_that_look_like_numbers_say_why(tmp_path: Path) -> None:
    rows = '1,"1,234",5%,€ 3.50,+1,12.5.2\n2,"2,500",NA,€ 4,-1,1\n'
    found = infer(written(tmp_path / "in", a_csv=f"id,many,share,price,change,version\n{rows}"))
    assert found.schema.count("  // numbers with signs or separators that a load does not convert") == 4
    assert properties(found, "A")["share"] == "String?"


def test_ends_whose_nodes_are_in_several_tables_say_so(tmp_path: Path) -> None:
    source = written(
        tmp_path / "in",
        entities_csv="node_id,name\n10,x\n11,y\n",
        officers_csv="node_id,name\n20,v\n21,w\n",
        links_csv="node_id_start,node_id_end\n20,10\n21,11\n10,11\n",
    )
    found = infer(source)
    assert (found.nodes, found.edges) == (("Entity", "Officer", "Node"), ("Links",))
    assert "node_id_start: its values are keys of entities.csv and officers.csv; join these tables" in found.schema


def test_large_whole_numbers_of_json_are_exact(tmp_path: Path) -> None:
    rows = [{"id": LARGE + i, "huge": 2**64 + i, "some": -1 if i else LARGE} for i in range(3)]
    source = tmp_path / "a.ndjson"
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = infer(source)
    assert properties(found, "A") == {"a_id": "U64", "huge": "F64", "some": "F64"}
    assert "huge: F64  // whole numbers beyond 2^64" in found.schema
    assert entity(loaded(tmp_path, found, source), "A", str(LARGE))["a_id"] == LARGE


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([-5, 3], pa.decimal128(38, 0), "I64"),
        ([5, LARGE], pa.decimal128(38, 0), "U64"),
        ([5, 2**70], pa.decimal128(38, 0), "F64"),
        ([Decimal("1.5"), None], pa.decimal64(10, 1), "F64?"),
        ([1.5, 2.5], pa.float16(), "F32"),
        (["x", None], pa.string_view(), "String?"),
    ],
)
def test_every_arrow_type_is_loaded_whole(tmp_path: Path, values: list[Any], kind: pa.DataType, expected: str) -> None:
    table = pa.table({"name": ["a", "b"], "v": pa.array(values, kind)})
    found = infer({"things": table})
    assert properties(found, "Thing")["v"] == expected
    assert entity(loaded(tmp_path, found, {"things": table}), "Thing", "a")["v"] == values[0]


def test_polars_frames_and_pandas_frames_without_one_type(tmp_path: Path) -> None:
    frames = {"people": pl.DataFrame({"name": ["ann", "bob"], "town": ["Oslo", None]})}
    assert entity(loaded(tmp_path, infer(frames), frames), "Person", "bob")["town"] is None
    with pytest.raises(InputError, match="the rows of people cannot be read as Arrow data"):
        infer({"people": pd.DataFrame({"name": ["ann", 1]})})


def test_null_of_sql_is_null_in_texts_too(tmp_path: Path) -> None:
    rows = "1,NULL,NULL,NA\n2,1996-07-16,RJ,NA\n"
    source = written(tmp_path / "in", orders_csv=f"order_id,shipped,region,code\n{rows}") / "orders.csv"
    found = infer(source)
    assert properties(found, "Order") == {"code": "String", "order_id": "I64", "region": "String?", "shipped": "Date?"}
    assert entity(loaded(tmp_path, found, source), "Order", "1")["region"] is None


def test_years_with_two_digits_are_found_if_no_other_format_fits(tmp_path: Path) -> None:
    source = written(tmp_path / "in", a_csv="id,day,other\n1,31.12.99,01/02/24\n2,01.01.00,03/04/24\n")
    assert properties(infer(source), "A") == {"a_id": "I64", "day": "Date", "other": "String"}


def test_names_of_files_and_columns_may_have_any_characters(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "Städte [1] *.csv").write_text("id,Größe,名前,a-b,a b,2nd\n1,5,x,y,z,w\n", encoding="utf-8")
    found = infer(source)
    kept = {"stadte_id", "grosse", "column", "a_b", "a_b_2", "_2nd"}
    assert properties(found, "Stadte").keys() == kept
    assert entity(loaded(tmp_path, found, source), "Stadte", "1")["grosse"] == 5


def test_starts_and_ends_of_periods_and_ranges_are_no_edges(tmp_path: Path) -> None:
    source = written(
        tmp_path / "in",
        trips_csv="id,start_date,end_date,start_lat,end_lat\n1,2024-01-01,2024-01-02,1.5,2.5\n",
        genes_csv="chromosome,start,end\nchr1,1,5\nchr1,7,9\n",
    )
    assert infer(source).edges == ()


def test_a_file_without_rows_beside_others_gets_a_type(tmp_path: Path) -> None:
    source = written(tmp_path / "in", a_csv="id,note\n", b_csv="id,name\n1,x\n")
    found = infer(source)
    assert properties(found, "A") == {"a_id": "String?", "note": "String?"}
    assert loaded(tmp_path, found, source).snapshot().pin("node:B").row_count == 1


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        ("id,name\n1,Jörg\n".encode("latin-1"), "people.csv, line 2: input: the text is not UTF-8", None),
        ("id,größe\n1,2\n".encode("latin-1"), "line 1: the header is not UTF-8", "iconv -f LATIN1 -t UTF-8 people.csv"),
        ("id,name\n1,a\n".encode("utf-16"), "people.csv is a text in UTF-16", "iconv -f UTF-16 -t UTF-8 people.csv"),
        (b"id,name\r1,a\r", "lines end with a carriage return alone", "tr '\\r' '\\n' < people.csv"),
        (b"1::1193::5\n2::7::3\n", "the cells are separated by '::'", "sed 's/::/\\t/g' people.csv"),
        (b'id,name,x\n1,"a"b,c",d\n', 'csv: {quote: ""} in a mapping', None),
    ],
)
def test_a_text_that_cannot_be_read_says_how_to_convert_it(
    tmp_path: Path, content: bytes, message: str, hint: str | None
) -> None:
    (tmp_path / "people.csv").write_bytes(content)
    with pytest.raises(InputError) as error:
        infer(tmp_path / "people.csv")
    assert message in str(error.value)
    assert hint is None or hint in str(error.value.hint)
    assert "nothing was written" not in str(error.value)  # infer does not write


def test_a_pipe_and_a_file_that_is_named_twice(tmp_path: Path) -> None:
    people = "name\nann\nbob\n"
    readable, writable = os.pipe()
    os.write(writable, people.encode())
    os.close(writable)
    found = infer(f"/dev/fd/{readable}", format="csv")
    os.close(readable)
    assert found.nodes == ("Row",)
    assert found.mapping is not None
    assert 'source: "[0-9]*"' in found.mapping
    source = written(tmp_path / "in", people_csv=people)
    assert infer([source, source / "people.csv"]).schema == infer(source).schema


def test_an_array_of_objects_says_how_to_write_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id": 1},\n {"id": 2}]', encoding="utf-8")
    with pytest.raises(InputError, match="a record is not a JSON object") as error:
        infer(tmp_path / "a.json")
    assert "jq -c '.[]' a.json" in str(error.value.hint)


def test_the_type_of_a_record_may_follow_other_members(tmp_path: Path) -> None:
    lines = [
        '{"data":{"k":"a","note":"\\"type\\":\\"X\\""},"type":"Person"}',
        '{"type":"Person","data":{"k":"b"}}',
        '{"from":"a","to":"b","edge":"Knows"}',
        '{"data":{"n":1},"type":"Place"}',
    ]
    source = tmp_path / "records.ndjson"
    source.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n", encoding="utf-8")
    found = infer(source)
    assert (set(found.nodes), found.edges) == ({"Person", "Place"}, ("Knows",))


@pytest.mark.parametrize("record", ['{"data":{"k":"b"}}', '{"data":{"k":"b"},"type":3}', '{"data":[1],"type":null}'])
def test_a_record_without_a_type_is_an_error(tmp_path: Path, record: str) -> None:
    source = tmp_path / "records.ndjson"
    source.write_text('{"type":"Person","data":{"k":"a"}}\n' + record + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="a record names no type"):
        infer(source)


def test_a_record_that_does_not_end_is_an_error_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole file would be read into memory, and its beginning again for each block."""
    monkeypatch.setattr(json_records, "_BLOCK_BYTES", 1 << 20)
    monkeypatch.setattr(json_records, "MAX_RECORD_BYTES", 2 << 20)
    array = tmp_path / "array.json"
    array.write_text("[\n" + ",\n".join(['{"name":"ann"}'] * 500_000) + "\n]\n", encoding="utf-8")
    with pytest.raises(InputError, match="a record has more than 2,097,152 bytes") as error:
        infer(array, format="ndjson")
    assert error.value.hint == "write one object per line: jq -c '.[]' array.json"
    text = tmp_path / "text.ndjson"
    text.write_text('{"name":"' + "x" * (3 << 20), encoding="utf-8")
    with pytest.raises(InputError, match="a record has more than"):
        infer(text)
    text.write_text('{"name":"' + "x" * (1 << 20) + '"}\n{"name":"b"}\n', encoding="utf-8")
    assert infer(text).nodes == ("Text",)


def test_tables_and_arguments_that_cannot_be_read() -> None:
    offsets = pa.py_buffer(b"\0\0\0\0\2\0\0\0")
    broken = pa.Array.from_buffers(pa.utf8(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    with pytest.raises(InputError, match="t has a text that is not UTF-8"):
        infer({"t": pa.table({"name": broken})})
    with pytest.raises(InputError, match="3 is neither a file nor a table"):
        infer(3)  # type: ignore[arg-type]  # a careless caller
