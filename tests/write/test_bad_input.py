"""Bad input of every kind is refused with its location, and the graph stays unchanged, byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

import omnigraph
from omnigraph.errors import (
    BadRowsError,
    ConstraintError,
    ExternalBlobPolicyError,
    InputError,
    KeyConflictError,
    OmnigraphError,
    ResourceLimitError,
)
from omnigraph.graph import Graph
from omnigraph.lang.schema import TypeKind, accept, compile_schema
from omnigraph.write import load as load_module
from omnigraph.write.input import ndjson
from omnigraph.write.input.csv_rows import read_csv
from omnigraph.write.input.named_columns import OfType
from omnigraph.write.input.sources import LoadSource
from omnigraph.write.row_locations import RowLocations
from omnigraph.write.rows.problems import Problems

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    big: U64?
    score: F32?
    ok: Bool?
    born: Date?
    seen: DateTime?
    mail: String? @unique
    mood: enum(calm, cross)?
    tags: [String]?
    counts: [I64]?
    face: Vector(2)?
    photo: Blob?
    pages: I32?
    code: String?
    @range(pages, 1..10)
    @check(code, "^[a-z]+$")
}
node Note { text: String }
edge Knows: Person -> Person @card(0..2) { since: Date?  @key(src, dst) }
"""
ANN = '{"type": "Person", "data": {"name": "ann", "mail": "a@x"}}'
GOOD = '{"type": "Person", "data": {"name": "zoe"}}'


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """One graph for all tests: none of them changes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_FSYNC", "0")
        with omnigraph.init(tmp_path_factory.mktemp("bad") / "graph", SCHEMA) as made:
            made.load(ANN.encode(), mode="append")
            yield made


def contents(graph: Graph) -> dict[str, str]:
    """All files of the graph with their content."""
    root = Path(graph.uri)
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def refused(graph: Graph, source: Any, error: type[OmnigraphError], message: str, **options: Any) -> OmnigraphError:
    """The error of a load that changes nothing."""
    before = contents(graph)
    with pytest.raises(error) as caught:
        graph.load(source, mode=options.pop("mode", "append"), **options)
    assert message in caught.value.render()
    assert contents(graph) == before
    return caught.value


def person(**data: str) -> str:
    """A record from the JSON of its members."""
    members = {"name": '"bob"', **data}
    written = ", ".join(f'"{name}": {value}' for name, value in members.items())
    return f'{{"type": "Person", "data": {{{written}}}}}'


# ---- NDJSON: the second of two lines is wrong

ROWS: list[tuple[str, str | bytes, str]] = [
    ("a number for a text", person(name="3"), "Person.name: expected a text, found a number"),
    ("a text for a number", person(age='"3"'), "Person.age: expected a whole number, found a text"),
    ("a truth value for a number", person(age="true"), "Person.age: expected a whole number, found true or false"),
    ("3.0 for an integer", person(age="3.0"), "Person.age: expected a whole number, found a number"),
    ("1e2 for an integer", person(age="1e2"), "Person.age: expected a whole number"),
    ("an integer out of range", person(age="2147483648"), "Person.age: out of range for I32"),
    ("a huge integer", person(age="9" * 5000), "Person.age: out of range for I32"),
    ("a negative unsigned", person(big="-1"), "Person.big: out of range for U64"),
    ("NaN", person(score="NaN"), "not"),
    ("Infinity", person(score="-Infinity"), "not"),
    ("1e400", person(score="1e400"), "Person.score: the number is not finite, or too large"),
    ("too large for 32 bits", person(score="1e39"), "Person.score: the number is not finite, or too large"),
    ("a number for a truth value", person(ok="1"), "Person.ok: expected true or false"),
    ("a day that does not exist", person(born='"2024-02-30"'), "Person.born: '2024-02-30': there is no day"),
    ("a text for a date", person(born='"soon"'), "Person.born: 'soon': not a date"),
    ("a year out of range", person(born='"0000-12-31"'), "Person.born:"),
    ("days out of range", person(born="99999999"), "Person.born: outside the years 1 to 9999"),
    ("a time that does not exist", person(seen='"2024-01-01T25:00:00Z"'), "Person.seen: '2024-01-01T25:00:00Z'"),
    ("a short vector", person(face="[1]"), "Person.face: a vector must have 2 numbers"),
    ("a vector with null", person(face="[1, null]"), "Person.face: every element of a vector must be a finite number"),
    ("a vector with text", person(face='[1, "x"]'), "Person.face: expected a number, found a text"),
    ("a text for a list", person(tags='"x"'), "Person.tags: expected a list, found a text"),
    ("a list with null", person(tags='["x", null]'), "Person.tags: an item of the list: null is not allowed"),
    ("a list with a number", person(tags='["x", 1]'), "Person.tags: expected a text, found a number"),
    ("an item out of range", person(counts="[9223372036854775808]"), "Person.counts: out of range for I64"),
    ("bad base64", person(photo='"base64:a*b="'), "Person.photo: the text after base64: is not base64"),
    ("base64 without padding", person(photo='"base64:YQ"'), "Person.photo: the text after base64: is not base64"),
    ("an unknown property", person(aeg="3"), "Person.aeg: there is no such property; did you mean 'age'?"),
    ("a reserved property", person(_rowid="3"), "Person._rowid: the name is reserved"),
    ("a tombstone", person(_tombstone="true"), "Person._tombstone: the name is reserved"),
    ("a duplicate member", '{"type": "Person", "data": {"name": "a", "name": "b"}}', "member 'name' is given twice"),
    ("a duplicate type", '{"type": "Person", "type": "Note", "data": {}}', "member 'type' is given twice"),
    ("a duplicate nested member", person(tags='[{"x": 1, "x": 2}]'), "member 'x' is given twice"),
    ("a member of the envelope", '{"type": "Note", "data": {"text": "a"}, "x": 1}', "unknown member 'x'"),
    ("type and edge", '{"type": "Note", "edge": "Knows", "data": {}}', "unknown member 'type'"),
    ("an unknown node type", '{"type": "Persom", "data": {}}', "no node type 'Persom'; did you mean 'Person'?"),
    ("an unknown edge type", '{"edge": "Likes", "from": "a", "to": "b"}', "there is no edge type 'Likes'"),
    ("no type", '{"data": {}}', "expected a 'type' or an 'edge'"),
    ("a type that is not a string", '{"type": 3, "data": {}}', "expected a 'type' or an 'edge', as a text"),
    ("data that is not an object", '{"type": "Note", "data": [1]}', "Note: 'data' is not an object"),
    ("data that is null", '{"type": "Note", "data": null}', "Note: 'data' is not an object"),
    ("a required property missing", '{"type": "Note", "data": {}}', "Note.text: is required"),
    ("a required property null", '{"type": "Note", "data": {"text": null}}', "Note.text: is required"),
    ("no key", '{"type": "Person", "data": {"age": 3}}', "Person.name: is required"),
    ("an id that differs from the key", person(id='"rob"'), "Person.id: differs from the id derived from the key"),
    ("an edge without an endpoint", '{"edge": "Knows", "from": "ann"}', "Knows.to: is required"),
    (
        "an endpoint that is not a string",
        '{"edge": "Knows", "from": "ann", "to": 3}',
        "Knows.to: expected a text, found a number; an id is a text",
    ),
    (
        "endpoints inside the data",
        '{"edge": "Knows", "from": "a", "to": "b", "data": {"src": "c"}}',
        "Knows.src: 'from' and 'to'",
    ),
    ("an array around the records", f"[{GOOD}]", "expected an object with 'type' or 'edge', found a list"),
    ("two records on a line", f"{GOOD} {GOOD}", "the line contains more text after the record"),
    ("something behind a record", f"{GOOD} oops", "the line contains more text after the record"),
    ("no JSON", "oops", "not JSON: Expecting value"),
    ("single quotes", "{'type': 'Note'}", "not JSON"),
    ("a comment", "// a note", "not JSON"),
    ("an extra comma", '{"type": "Note", "data": {"text": "x",}}', "not JSON"),
    ("an unclosed record", '{"type": "Note", "data": {"text": "x"}', "the JSON value that begins here has no end"),
    ("an unclosed string", '{"type": "Note", "data": {"text": "x}}', "input: "),
    ("deep nesting", person(age="[" * 50_000 + "]" * 50_000), "nested too deeply"),
    ("half a surrogate pair", '{"type": "Note", "data": {"text": "\\ud800"}}', "Note.text: the text contains half"),
    ("a NUL byte", b'{"type": "Note", "data": {"text": "a\x00b"}}', "not JSON"),
    ("a tab in a string", '{"type": "Note", "data": {"text": "a\tb"}}', "not JSON: Invalid control character"),
    ("bytes that are not UTF-8", b'{"type": "Note", "data": {"text": "\xff"}}', "the text is not UTF-8"),
    ("a byte order mark in the middle", "\ufeff" + GOOD, "not JSON"),
]


@pytest.mark.parametrize(("line", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_bad_ndjson_is_refused_with_its_line(graph: Graph, tmp_path: Path, line: str | bytes, message: str) -> None:
    data = line if isinstance(line, bytes) else line.encode()
    (tmp_path / "people.ndjson").write_bytes(GOOD.encode() + b"\n" + data + b"\n")
    error = refused(graph, tmp_path / "people.ndjson", BadRowsError, message)
    assert isinstance(error, BadRowsError)
    assert error.total == 1
    assert error.problems[0].place == "people.ndjson, line 2"
    assert message in str(error.problems[0])


@pytest.mark.parametrize(("line", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_bad_ndjson_is_refused_by_the_record_parser_too(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str | bytes, message: str
) -> None:
    """The block parser and the record parser refuse the same records."""
    monkeypatch.setattr(ndjson._Stream, "_fast", lambda self, records, low, high: None)
    test_bad_ndjson_is_refused_with_its_line(graph, tmp_path, line, message)


# ---- constraints: the rows are valid, the resulting graph is not

CONSTRAINTS: list[tuple[str, str, type[OmnigraphError], str]] = [
    ("a dangling edge", '{"edge": "Knows", "from": "ann", "to": "nobody"}', ConstraintError, "dst 'nobody' not found"),
    ("a duplicate key", f"{person()}\n{person()}", ConstraintError, "Person.name: 'bob': two records have this key"),
    ("a key that exists", ANN, KeyConflictError, "'ann'"),
    (
        "a duplicate id",
        '{"type": "Note", "data": {"id": "n", "text": "x"}}\n{"type": "Note", "data": {"id": "n", "text": "y"}}',
        KeyConflictError,
        "'n'",
    ),
    ("a value that is not unique", person(mail='"a@x"'), ConstraintError, "'bob': has 'a@x', and so has 'ann'"),
    ("a value outside of its set", person(mood='"happy"'), ConstraintError, "Person.mood: 'bob': 'happy' is not one"),
    ("a value outside of its range", person(pages="11"), ConstraintError, "Person.pages: 'bob': 11 is outside 1..10"),
    ("a pattern", person(code='"A1"'), ConstraintError, "Person.code: 'bob': 'A1' does not match ^[a-z]+$"),
    ("an external blob", person(photo='"https://x.example/y.png"'), ExternalBlobPolicyError, "https://x.example"),
    (
        "too many edges",
        "\n".join(
            [*(person(name=f'"{n}"') for n in "bcd")]
            + [f'{{"edge": "Knows", "from": "ann", "to": "{n}"}}' for n in "bcd"]
        ),
        ConstraintError,
        "Knows @card: 'ann': has 3",
    ),
]


@pytest.mark.parametrize(("text", "error", "message"), [c[1:] for c in CONSTRAINTS], ids=[c[0] for c in CONSTRAINTS])
def test_broken_constraints_are_refused(graph: Graph, text: str, error: type[OmnigraphError], message: str) -> None:
    refused(graph, text.encode(), error, message)


# ---- CSV

CSV: list[tuple[str, str | bytes, type[OmnigraphError], str]] = [
    (
        "a short row",
        "name,age\nbob,3\ncid\n",
        BadRowsError,
        "Person.csv, line 3: Person: the number of cells is 1, and the header has 2",
    ),
    (
        "a long row",
        "name,age\nbob,3,4\n",
        BadRowsError,
        "Person.csv, line 2: Person: the number of cells is 3, and the header has 2",
    ),
    ("a duplicate header", "name,age,name\nbob,3,c\n", InputError, "Person.csv, line 1: the header has 'name' twice"),
    ("a header without a name", "name,,age\nbob,3,c\n", InputError, "line 1: column 2 of the header has no name"),
    (
        "an unknown header",
        "name,aeg\nbob,3\ncid,4\n",
        BadRowsError,
        "Person.csv, line 1: Person.aeg: there is no such property; did you mean 'age'?",
    ),
    ("a stray quote", 'name,age\nb"ob,3\n', BadRowsError, "Person.csv, line 2: Person: a quote inside of a cell"),
    ("text behind a quote", 'name,age\n"bob"x,3\n', BadRowsError, "Person.csv, line 2: Person: a quote inside"),
    ("an unclosed quote", 'name,age\nzoe,1\n"bob,3\n', BadRowsError, "Person.csv, line 3: Person: a quote inside"),
    (
        "a stray carriage return",
        "name,age\nbob\rx,3\n",
        BadRowsError,
        "line 2: Person: the row contains a carriage return",
    ),
    ("a NUL byte", b"name,age\nb\x00b,3\n", BadRowsError, "Person.csv, line 2: Person: the row contains a NUL byte"),
    ("bytes that are not UTF-8", b"name,age\nzoe,1\n\xff,3\n", BadRowsError, "line 3: Person: the text is not UTF-8"),
    ("UTF-16", "name,age\nbob,3\n".encode("utf-16"), InputError, "Person.csv is a text in UTF-16"),
    (
        "a word for a number",
        "name,age\nbob,old\n",
        BadRowsError,
        "line 2: Person.age: expected a whole number, found 'old'",
    ),
    (
        "3.0 for an integer",
        "name,age\nbob,3.0\n",
        BadRowsError,
        "line 2: Person.age: expected a whole number, found '3.0'",
    ),
    ("hexadecimal", "name,age\nbob,0x1F\n", BadRowsError, "line 2: Person.age: expected a whole number"),
    ("a space before a number", "name,age\nbob, 3\n", BadRowsError, "line 2: Person.age: expected a whole number"),
    ("out of range", "name,age\nbob,2147483648\n", BadRowsError, "line 2: Person.age: out of range for I32"),
    ("a huge integer", f"name,age\nbob,{'9' * 50}\n", BadRowsError, "line 2: Person.age: out of range for I32"),
    ("a negative unsigned", "name,big\nbob,-1\n", BadRowsError, "line 2: Person.big: out of range for U64"),
    ("nan", "name,score\nbob,nan\n", BadRowsError, "line 2: Person.score: expected a number, found 'nan'"),
    ("too large a number", "name,score\nbob,1e400\n", BadRowsError, "line 2: Person.score: the number is not finite"),
    ("yes", "name,ok\nbob,yes\n", BadRowsError, "line 2: Person.ok: expected true or false, found 'yes'"),
    ("a day that does not exist", "name,born\nbob,2024-02-30\n", BadRowsError, "line 2: Person.born: '2024-02-30'"),
    ("a time that does not exist", "name,seen\nbob,noon\n", BadRowsError, "line 2: Person.seen: 'noon'"),
    ("a list that is not JSON", "name,tags\nbob,a;b\n", BadRowsError, "line 2: Person.tags: expected a list as JSON"),
    ("a list with null", 'name,tags\nbob,"[null]"\n', BadRowsError, "line 2: Person.tags: an item of the list: null"),
    ("a short vector", "name,face\nbob,[1]\n", BadRowsError, "line 2: Person.face: a vector must have 2 numbers"),
    (
        "a vector with stray brackets",
        'name,face\nbob,"[1]}{""v"":[2]"\n',
        BadRowsError,
        "line 2: Person.face: expected a list",
    ),
    ("bad base64", "name,photo\nbob,base64:a\n", BadRowsError, "line 2: Person.photo: the text after base64:"),
    ("no key", "name,age\n,3\n", BadRowsError, "Person.csv, line 2: Person.name: is required"),
    ("a duplicate key", "name\nbob\nbob\n", ConstraintError, "Person.name: 'bob': two records have this key"),
    ("a key that exists", "name\nann\n", KeyConflictError, "'ann'"),
    ("an id that differs from the key", "name,id\nbob,rob\n", BadRowsError, "line 2: Person.id: differs from the id"),
]


@pytest.mark.parametrize(("text", "error", "message"), [c[1:] for c in CSV], ids=[c[0] for c in CSV])
def test_bad_csv_is_refused(
    graph: Graph, tmp_path: Path, text: str | bytes, error: type[OmnigraphError], message: str
) -> None:
    (tmp_path / "Person.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(graph, tmp_path / "Person.csv", error, message)


# ---- tables


def _twice() -> pa.Table:
    return pa.Table.from_arrays([pa.array(["bob"]), pa.array(["cid"])], names=["name", "name"])


TABLES: list[tuple[str, pa.Table, type[OmnigraphError], str]] = [
    ("a wrong column type", pa.table({"name": ["bob"], "age": ["3"]}), BadRowsError, "Person.age: expected a whole"),
    ("floats for integers", pa.table({"name": ["bob"], "age": [3.0]}), BadRowsError, "Person.age: expected a whole"),
    ("decimals", pa.table({"name": ["bob"], "age": [Decimal("3.5")]}), BadRowsError, "Person.age: expected a whole"),
    ("out of range", pa.table({"name": ["bob", "cid"], "age": [1, 2**40]}), BadRowsError, "row 2: Person.age: out of"),
    (
        "NaN",
        pa.table({"name": ["bob"], "score": [float("nan")]}),
        BadRowsError,
        "row 1: Person.score: the number is not",
    ),
    (
        "a date out of range",
        pa.table({"name": ["bob"], "born": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())}),
        BadRowsError,
        "row 1: Person.born: outside the years 1 to 9999",
    ),
    (
        "an unknown column",
        pa.table({"name": ["bob"], "aeg": [3]}),
        BadRowsError,
        "Person.aeg: there is no such property",
    ),
    ("a duplicate column", _twice(), InputError, "the column 'name' occurs twice"),
    ("a null key", pa.table({"name": ["bob", None]}), BadRowsError, "row 2: Person.name: is required"),
    (
        "a short vector",
        pa.table({"name": ["bob"], "face": [[1.0]]}),
        BadRowsError,
        "row 1: Person.face: a vector must have 2",
    ),
    (
        "a list with null",
        pa.table({"name": ["bob"], "tags": [["a", None]]}),
        BadRowsError,
        "row 1: Person.tags: an item",
    ),
    ("a struct", pa.table({"name": ["bob"], "age": [{"x": 1}]}), BadRowsError, "Person.age: expected a whole number"),
    (
        "bytes that are not UTF-8",
        pa.table({"name": pa.array([b"\xff"], pa.binary()).view(pa.utf8())}),
        InputError,
        "UTF8",
    ),
    ("a duplicate key", pa.table({"name": ["bob", "bob"]}), ConstraintError, "Person.name: 'bob': two records"),
]


@pytest.mark.parametrize("form", ["memory", "parquet", "arrow"])
@pytest.mark.parametrize(("table", "error", "message"), [c[1:] for c in TABLES], ids=[c[0] for c in TABLES])
def test_bad_tables_are_refused_from_memory_and_files(
    graph: Graph, tmp_path: Path, form: str, table: pa.Table, error: type[OmnigraphError], message: str
) -> None:
    path = tmp_path / f"Person.{form}"
    if form == "parquet":
        pa.parquet.write_table(table, path)
    elif form == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    said = refused(graph, {"Person": table} if form == "memory" else path, error, message)
    if error is not ConstraintError:
        assert ("Person" if form == "memory" else path.name) in str(said)


def test_a_number_as_an_endpoint_is_reported_once(graph: Graph) -> None:
    error = refused(
        graph, {"Knows": pa.table({"from": [1], "to": ["ann"]})}, BadRowsError, "Knows.from: expected a text"
    )
    assert isinstance(error, BadRowsError)
    assert [problem.message for problem in error.problems] == [
        "expected a text, found a number; an id is a text, even if the key is a number"
    ]


def test_a_file_name_that_is_not_a_type_is_reported(graph: Graph, tmp_path: Path) -> None:
    """Also among others in a directory, and if the directory has the name."""
    (tmp_path / "Person.csv").write_text("name\nbob\n")
    (tmp_path / "persons.csv").write_text("name\nbob\n")
    error = refused(graph, tmp_path, InputError, "persons.csv: there is no type 'persons'")
    said = "the file name must be the name of a type, unless --type (type_name=) or a mapping gives the type"
    assert error.hint == f"{said}; did you mean 'Person'?"
    parts = tmp_path / "Persn.parquet"
    parts.mkdir()
    pa.parquet.write_table(pa.table({"name": ["bob"]}), parts / "part-0.parquet")
    refused(graph, parts, InputError, "Persn.parquet: there is no type 'Persn'")


# ---- Python mappings

MAPPINGS: list[tuple[str, Any, type[OmnigraphError], str]] = [
    (
        "a record that is not a mapping",
        [{"type": "Note", "data": {"text": "x"}}, 3],
        BadRowsError,
        "record 2: input: expected an object",
    ),
    ("a wrong type", {"Person": [{"name": "bob", "age": "3"}]}, BadRowsError, "Person, row 1: Person.age: expected"),
    (
        "a row that is not a mapping",
        {"Person": [("bob", 3)]},
        BadRowsError,
        "Person, row 1: Person: expected a mapping",
    ),
    ("a Decimal", {"Person": [{"name": "bob", "score": Decimal("1.5")}]}, BadRowsError, "found Decimal"),
    (
        "a date for a text",
        {"Person": [{"name": date(2020, 1, 1)}]},
        BadRowsError,
        "Person.name: expected a text, found date",
    ),
    ("bytes for a text", {"Person": [{"name": b"bob"}]}, BadRowsError, "Person.name: expected a text, found bytes"),
    (
        "NaN",
        {"Person": [{"name": "bob", "score": float("nan")}]},
        BadRowsError,
        "row 1: Person.score: the number is not",
    ),
    ("a set for a list", {"Person": [{"name": "bob", "tags": {"a"}}]}, BadRowsError, "Person.tags: expected a list"),
    (
        "an unknown property",
        {"Person": [{"name": "bob", "aeg": 1}]},
        BadRowsError,
        "row 1: Person.aeg: there is no such",
    ),
    (
        "a name that is not a string",
        {"Person": [{"name": "bob", 3: 1}]},
        BadRowsError,
        "row 1: Person.3: there is no such",
    ),
    (
        "half a surrogate pair",
        {"Person": [{"name": "\ud800"}]},
        BadRowsError,
        "row 1: Person.name: the text contains half",
    ),
    ("an unknown type", {"Persom": [{"name": "bob"}]}, InputError, "there is no type 'Persom'"),
    ("rows that are a mapping", {"Person": {"name": "bob"}}, InputError, "the rows of Person are a dict"),
    ("one envelope", {"type": "Note", "data": {"text": "x"}}, InputError, "there is no type 'type'"),
    ("a number", 3, InputError, "a int cannot be loaded"),
    ("a dangling edge", {"Knows": [{"from": "ann", "to": "x"}]}, ConstraintError, "dst 'x' not found in Person"),
]


@pytest.mark.parametrize(("source", "error", "message"), [c[1:] for c in MAPPINGS], ids=[c[0] for c in MAPPINGS])
def test_bad_python_mappings_are_refused(graph: Graph, source: Any, error: type[OmnigraphError], message: str) -> None:
    refused(graph, source, error, message)


# ---- files


def _truncated_parquet(path: Path) -> Path:
    pa.parquet.write_table(pa.table({"name": [f"p{i}" for i in range(5000)]}), path / "Person.parquet")
    whole = (path / "Person.parquet").read_bytes()
    (path / "Person.parquet").write_bytes(whole[: len(whole) // 2])
    return path / "Person.parquet"


def _damaged_parquet(path: Path) -> Path:
    pa.parquet.write_table(pa.table({"name": [f"p{i}" for i in range(5000)]}), path / "Person.parquet")
    whole = bytearray((path / "Person.parquet").read_bytes())
    whole[4:400] = bytes(396)
    (path / "Person.parquet").write_bytes(whole)
    return path / "Person.parquet"


def _truncated_gzip(path: Path) -> Path:
    text = "\n".join(GOOD.replace("zoe", f"p{i}") for i in range(5000)).encode()
    (path / "people.ndjson.gz").write_bytes(gzip.compress(text)[:-20])
    return path / "people.ndjson.gz"


def _written(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        (path / name).write_bytes(data)
        return path / name

    return make


def _directory(path: Path) -> Path:
    (path / "notes.txt").write_text("nothing to load")
    return path


def _unreadable(path: Path) -> Path:
    file = _written("people.ndjson", GOOD.encode())(path)
    file.chmod(0)
    return file


@dataclass(frozen=True)
class FileCase:
    make: Callable[[Path], Any]
    message: str
    options: Mapping[str, Any] = field(default_factory=dict)


FILES = {
    "a missing file": FileCase(lambda path: path / "none.ndjson", "there is no "),
    "a pattern without a match": FileCase(lambda path: str(path / "*.csv"), "no file matches "),
    "an unknown file ending": FileCase(_written("people.xlsx", b"x"), "people.xlsx cannot be loaded"),
    "a directory without a file": FileCase(_directory, "contains no file that can be loaded"),
    "a truncated gzip file": FileCase(_truncated_gzip, "people.ndjson.gz cannot be read: Truncated compressed stream"),
    "an invalid gzip file": FileCase(_written("people.ndjson.gz", b"nonsense"), "people.ndjson.gz cannot be read"),
    "a truncated Parquet file": FileCase(_truncated_parquet, "Person.parquet cannot be read"),
    "a damaged Parquet file": FileCase(_damaged_parquet, "Person.parquet cannot be read"),
    "a Parquet file that is none": FileCase(_written("Person.parquet", b"nonsense"), "Person.parquet cannot be read"),
    "an empty Parquet file": FileCase(_written("Person.parquet", b""), "Person.parquet cannot be read"),
    "an Arrow file that is none": FileCase(_written("Person.arrow", b"nonsense"), "Person.arrow cannot be read"),
    "a compressed Parquet file": FileCase(_written("Person.parquet.gz", b"x"), "Person.parquet.gz cannot be loaded"),
    "a file name that is not a type": FileCase(
        _written("people.csv", b"name\nbob\n"), "people.csv: there is no type 'people'"
    ),
    "a type that does not exist": FileCase(
        _written("x.csv", b"name\n"), "there is no type 'Persom'", {"type_name": "Persom"}
    ),
    "a mode that does not exist": FileCase(
        _written("x.ndjson", GOOD.encode()), "'replace' is not a load mode", {"mode": "replace"}
    ),
    "a type beside a mapping": FileCase(
        lambda path: {"Person": pa.table({"name": ["x"]})}, "already contains the types", {"type_name": "Person"}
    ),
    "a table without a type": FileCase(lambda path: pa.table({"name": ["x"]}), "does not name the type"),
    "paths and other things": FileCase(
        lambda path: [_written("a.ndjson", b"")(path), 3], "neither a path nor a stream"
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files_are_refused(graph: Graph, tmp_path: Path, name: str) -> None:
    case = FILES[name]
    refused(graph, case.make(tmp_path), InputError, case.message, **case.options)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_refused(graph: Graph, tmp_path: Path) -> None:
    refused(graph, _unreadable(tmp_path), InputError, "people.ndjson cannot be read: Permission denied")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no such file on this system")
def test_a_file_with_a_read_error_is_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "people.ndjson").symlink_to("/proc/self/mem")
    refused(graph, tmp_path / "people.ndjson", InputError, "people.ndjson cannot be read")


@pytest.mark.parametrize("text", [b"", b"\n \n\r\n", b"\xef\xbb\xbf"])
def test_an_empty_file_makes_no_commit(graph: Graph, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "people.ndjson").write_bytes(text)
    before = contents(graph)
    receipt = graph.load(tmp_path / "people.ndjson", mode="append")
    assert (receipt.total, receipt.commit) == (0, None)
    assert contents(graph) == before


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("text", [b"", b"\n\n\r\n", b"\xef\xbb\xbf"])
def test_a_csv_file_without_a_header_is_refused(graph: Graph, tmp_path: Path, text: bytes, mode: str) -> None:
    """Important for an overwrite: the file may be the result of a failed export."""
    (tmp_path / "Person.csv").write_bytes(text)
    before = contents(graph)
    with pytest.raises(InputError, match=r"Person\.csv is empty"):
        graph.load(tmp_path / "Person.csv", mode=mode)
    assert contents(graph) == before


def without_columns(tmp_path: Path) -> list[LoadSource]:
    pyarrow.parquet.write_table(pa.table({}), tmp_path / "Person.parquet")
    frames = (pa.table({}), pandas.DataFrame(), pandas.DataFrame(index=["x"]), polars.DataFrame())
    return [*({"Person": frame} for frame in frames), tmp_path / "Person.parquet"]


def test_a_table_without_columns_is_refused(graph: Graph, tmp_path: Path) -> None:
    before = contents(graph)
    for source in without_columns(tmp_path):
        with pytest.raises(InputError, match="there are no columns"):
            graph.load(source, mode="overwrite")
    assert contents(graph) == before


def test_an_overwrite_with_columns_and_no_rows_empties_the_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    nobody = pa.table({"name": pa.array([], pa.utf8())})
    (tmp_path / "Person.csv").write_text("name,age\n")
    (tmp_path / "parquet").mkdir()
    pyarrow.parquet.write_table(nobody, tmp_path / "parquet" / "Person.parquet")
    sources: list[LoadSource] = [tmp_path / "Person.csv", {"Person": nobody}, tmp_path / "parquet"]
    with omnigraph.init(tmp_path / "graph", SCHEMA) as own:
        for source in sources:
            own.load({"Person": [{"name": "ann"}]}, mode="merge")
            assert own.load(source, mode="overwrite").commit is not None
            assert own.snapshot().scan("node:Person").num_rows == 0


def test_the_columns_of_a_table_without_rows_are_checked(graph: Graph) -> None:
    with pytest.raises(BadRowsError, match=r"Person\.naem: there is no such property"):
        graph.load({"Person": pa.table({"naem": pa.array([], pa.utf8())})}, mode="overwrite")


# ---- error messages


def test_invalid_utf8_in_a_column_is_reported_with_its_row(graph: Graph) -> None:
    names = pa.array([b"bob", b"\xff", b"cid"]).view(pa.utf8())
    with pytest.raises(InputError, match=r"Person, row 2: Person\.name cannot be read: Invalid UTF8"):
        graph.load({"Person": pa.table({"name": names})}, mode="append")


HUGE = "x" * 200_000


@pytest.mark.parametrize(
    "source",
    [
        {"Person": [{"name": "bob", "code": HUGE.upper()}]},
        {"Person": [{"name": "bob", "mood": HUGE}]},
        {"Person": [{"name": "bob", "born": HUGE}]},
        {"Person": [{"name": "bob", "age": HUGE}]},
        {"Person": [{"name": "bob", HUGE: 1}]},
        {"Person": pa.table({"name": ["bob"], HUGE: [1]})},
        {"Person": pa.table({"name": ["bob"], "born": [HUGE]})},
        {"Person": [{"name": HUGE, "mail": "same"}, {"name": "bob", "mail": "same"}]},
        {"Person": [{"name": HUGE}, {"name": HUGE}]},
        {"Note": [{"id": HUGE, "text": "a"}, {"id": HUGE, "text": "b"}]},
        {"Knows": [{"from": "ann", "to": HUGE}]},
        {HUGE: [{}]},
        {"Person": [{"name": HUGE, "photo": "https://x.example/y"}]},
        HUGE,
        f"{HUGE}*",
        [{"type": HUGE}],
        [{"type": "Person", HUGE: 1}],
        [{"type": "Person", "data": {"name": "bob", HUGE: 1}}],
    ],
)
def test_error_messages_have_a_bounded_length(graph: Graph, source: LoadSource) -> None:
    with pytest.raises(OmnigraphError) as refused:
        graph.load(source, mode="append")
    assert len(str(refused.value)) < 2000
    assert len(refused.value.render()) < 3000


def test_constraint_violations_name_file_and_line(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "Person.csv").write_text("name,pages,mail\nbob,3,b@x\n\ncid,77,\ndee,,a@x\n")
    with pytest.raises(ConstraintError) as error:
        graph.load(tmp_path / "Person.csv", mode="append")
    assert [str(violation) for violation in error.value.violations] == [
        "Person.csv, line 4: Person.pages: 'cid': 77 is outside 1..10",
        "Person.csv, line 5: Person.mail: 'dee': has 'a@x', and so has 'ann'",
    ]
    assert error.value.render().splitlines()[:2] == [str(violation) for violation in error.value.violations]


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")])
def test_another_separator_in_a_csv_file_is_named(graph: Graph, tmp_path: Path, mark: str, word: str) -> None:
    (tmp_path / "Person.csv").write_text(f"name{mark}pages\nbob{mark}3{mark}\n")
    with pytest.raises(BadRowsError) as error:
        graph.load(tmp_path / "Person.csv", mode="append")
    assert (
        f"{word} separate columns only if all rows have as many cells, or a mapping says so"
        in error.value.problems[0].message
    )


def test_a_duplicate_key_is_reported_at_the_second_record(graph: Graph) -> None:
    lines = "\n".join(['{"type": "Person", "data": {"name": "bob"}}', '{"type": "Note", "data": {"text": "x"}}'] * 2)
    with pytest.raises(ConstraintError, match=r"^line 3: Person\.name: 'bob': two records have this key"):
        graph.load(lines.encode(), mode="append")


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_bad_value_is_reported_at_its_own_record_if_the_key_occurs_twice(tmp_path: Path, mode: str) -> None:
    schema = "node T { k: String @key  e: enum(a, b)  n: I32?  @range(n, 0..9) }"
    (tmp_path / "T.csv").write_text("k,e,n\n1,a,\n2,c,\n2,a,\n2,d,77\n3,a,\n2,b,78\n")
    with omnigraph.init(tmp_path / "graph", schema) as graph, pytest.raises(ConstraintError) as error:
        graph.load(tmp_path / "T.csv", mode=mode)
    assert [str(violation) for violation in error.value.violations] == [
        "T.csv, line 3: T.e: '2': 'c' is not one of a, b",
        "T.csv, line 5: T.e: '2': 'd' is not one of a, b",
        "T.csv, line 5: T.n: '2': 77 is outside 0..9",
        "T.csv, line 7: T.n: '2': 78 is outside 0..9",
        "T.csv, line 7: T.k: '2': two records have this key",
    ]


def test_row_locations_are_those_of_the_winning_records(tmp_path: Path) -> None:
    schema = "node Note { text: String  @range(n, 0..9)  n: I32? }"
    with omnigraph.init(tmp_path / "notes", schema) as notes:
        rows = [{"id": "a", "text": "x"}, {"id": "b", "text": "x"}, {"id": "a", "text": "x"}, {"text": "x", "n": 10}]
        with pytest.raises(ConstraintError, match=r"^Note, row 4: Note\.n: "):
            notes.load({"Note": rows}, mode="merge")


def test_large_loads_record_no_row_locations(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "RowLocations", lambda: RowLocations(most=1))
    people = pa.table({"name": ["bob", "cid"], "pages": [1, 77]})
    with pytest.raises(ConstraintError, match=r"^Person\.pages: 'cid': 77 is outside"):
        graph.load({"Person": people}, mode="append")


def test_violations_of_new_entities_do_not_show_generated_ids(tmp_path: Path) -> None:
    schema = """
    node Person { name: String @key }
    node Note { kind: enum(open, done)?  at: DateTime? @unique }
    edge Met: Person -> Person { mood: enum(good, bad)? }
    """
    with omnigraph.init(tmp_path / "new", schema) as fresh:
        fresh.load({"Person": [{"name": "ann"}]}, mode="append")
        met = [{"from": "ann", "to": "ann", "mood": "odd"}, {"from": "ann", "to": "nobody"}]
        with pytest.raises(ConstraintError) as error:
            fresh.load({"Met": met, "Note": [{"kind": "shut"}]}, mode="append")
        assert [str(violation) for violation in error.value.violations] == [
            "Note, row 1: Note.kind: a new Note: 'shut' is not one of done, open",
            "Met, row 1: Met.mood: from 'ann' to 'ann': 'odd' is not one of bad, good",
            "Met, row 2: Met.dst: from 'ann' to 'nobody': dst 'nobody' not found in Person",
        ]
        with pytest.raises(ConstraintError, match="has 2020-01-01T10:30:00"):
            fresh.load({"Note": [{"at": "2020-01-01T10:30:00Z"}] * 2}, mode="append")


# ---- oversized input


class Endless(io.RawIOBase):
    """A line of a gigabyte, generated while it is read."""

    def __init__(self, head: bytes, filler: bytes) -> None:
        self.head = head
        self.filler = filler
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        if self.given >= 1 << 30:
            return b""
        chunk = (self.head + self.filler * size)[:size] if self.given == 0 else (self.filler * size)[:size]
        self.given += len(chunk)
        return chunk


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "filler"),
    [
        (b'{"type": "Note", "data": {"text": "', b"x"),
        (b'{"type": "Note", "data": {"text": "', b"\\"),
        (b"", b"["),
        (b"", b" "),
        (b"{", b"\n"),
        (b"", b"\x00"),
    ],
    ids=["a string", "backslashes", "brackets", "spaces", "a record of empty lines", "zeros"],
)
def test_a_record_of_a_gigabyte_is_refused_early(graph: Graph, head: bytes, filler: bytes) -> None:
    """Reading stops after the first 32 MiB."""
    stream = Endless(head, filler)
    said = refused(graph, stream, ResourceLimitError, "line 1: graph_batch_line_bytes")
    assert isinstance(said, ResourceLimitError)
    assert said.limit == 32 << 20
    assert stream.given <= 64 << 20


@pytest.mark.slow
def test_a_cell_of_a_gigabyte_is_refused_early() -> None:
    stream = Endless(b'name\n"', b"x")
    problems = Problems()
    accepted = accept(compile_schema(SCHEMA), "0" * 26)
    chunks = iter(lambda: stream.read(4 << 20), b"")
    assert list(read_csv(chunks, OfType(TypeKind.NODE, "Person"), accepted, problems, "Person.csv")) == []
    with pytest.raises(BadRowsError, match=r"Person.csv, line 2: Person: a quote inside of a cell"):
        problems.check()
    assert stream.given <= 64 << 20


def test_too_many_structural_characters_in_a_record_are_refused(graph: Graph) -> None:
    numbers = ",".join(["1"] * 140_000)
    refused(
        graph,
        f'{GOOD}\n{{"type": "Person", "data": {{"name": "bob", "counts": [{numbers}]}}}}'.encode(),
        ResourceLimitError,
        "line 2: graph_batch_json_structural_slots",
    )


# ---- many problems


def test_the_first_hundred_problems_are_listed_in_input_order(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text("".join(person(name=f'"a{i}"', age='"x"') + "\n" for i in range(70)))
    (tmp_path / "b.ndjson").write_text("".join(person(name=f'"b{i}"', ok="1", age='"x"') + "\n" for i in range(70)))
    error = refused(graph, [tmp_path / "a.ndjson", tmp_path / "b.ndjson"], BadRowsError, "a.ndjson, line 1")
    assert isinstance(error, BadRowsError)
    assert error.total == 210
    assert len(error.problems) == 100
    expected = [f"a.ndjson, line {i}: Person.age" for i in range(1, 71)]
    expected += [f"b.ndjson, line {1 + i // 2}: Person.{('age', 'ok')[i % 2]}" for i in range(30)]
    assert [f"{p.place}: {p.subject}" for p in error.problems] == expected
    assert error.render().splitlines()[:2] == [
        "a.ndjson, line 1: Person.age: expected a whole number, found a text (and 139 more of this kind: "
        "lines 2, 3, 4, …)",
        "b.ndjson, line 1: Person.ok: expected true or false, found a number (and 69 more of this kind: "
        "lines 2, 3, 4, …)",
    ]


def test_a_wrong_column_is_one_line(graph: Graph, tmp_path: Path) -> None:
    rows = [f"p{i},{'n/a' if i % 2 else i % 9 + 1}" for i in range(1000)]
    (tmp_path / "Person.csv").write_text("\n".join(["name,pages", *rows, ",3"]))
    with pytest.raises(BadRowsError) as error:
        graph.load(tmp_path / "Person.csv", mode="append")
    assert error.value.render().splitlines() == [
        "Person.csv, line 3: Person.pages: expected a whole number, found 'n/a' (and 499 more of this kind: "
        "lines 5, 7, 9, …)",
        "… and 1 more",
        "  help: nothing was written; correct the input and send it again",
    ]


def test_a_few_problems_of_a_kind_are_listed_one_by_one(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "Person.csv").write_text("name,pages\na,x\nb,y\nc,z\n")
    with pytest.raises(BadRowsError) as error:
        graph.load(tmp_path / "Person.csv", mode="append")
    assert [line.partition(":")[0] for line in error.value.render().splitlines()[:-1]] == [
        f"Person.csv, line {line}" for line in (2, 3, 4)
    ]


def test_many_violations_of_a_constraint_are_one_line(graph: Graph, tmp_path: Path) -> None:
    rows = [f"p{i},{99 if i >= 500 else 5}" for i in range(1000)]
    (tmp_path / "Person.csv").write_text("\n".join(["name,pages", *rows]))
    with pytest.raises(ConstraintError) as error:
        graph.load(tmp_path / "Person.csv", mode="append")
    line, _help = error.value.render().splitlines()
    assert line == (
        "Person.csv, line 502: Person.pages: 'p500': 99 is outside 1..10 (and 499 more of this kind: "
        "lines 503, 504, 505, …)"
    )


def test_ids_of_several_records_are_no_existing_ids(tmp_path: Path) -> None:
    (tmp_path / "Note.csv").write_text("id,body\na,x\nb,x\na,y\nc,z\nc,z\n")
    with omnigraph.init(tmp_path / "notes", "node Note { body: String }") as notes:
        for check in (False, True):
            with pytest.raises(KeyConflictError) as error:
                notes.load(tmp_path / "Note.csv", mode="append", check=check)
            assert error.value.render().splitlines() == [
                "Note.csv, line 4: node:Note: 'a' is the id of several records",
                "Note.csv, line 6: node:Note: 'c' is the id of several records",
                "  help: to keep the last record with each id, load with --mode merge",
            ]


def test_existing_ids_are_named_with_lines_and_total(graph: Graph, tmp_path: Path) -> None:
    rows = [f"p{i:03d}" for i in range(300)]
    (tmp_path / "Person.csv").write_text("\n".join(["name", *rows[:250]]))
    graph.load(tmp_path / "Person.csv", mode="append")
    (tmp_path / "Person.csv").write_text("\n".join(["name", *reversed(rows)]))
    for check in (False, True):
        with pytest.raises(KeyConflictError) as error:
            graph.load(tmp_path / "Person.csv", mode="append", check=check)
        assert (error.value.total, len(error.value.ids)) == (250, 100)
        assert error.value.render().splitlines() == [
            *(f"Person.csv, line {301 - i}: node:Person: 'p{i:03d}' exists already" for i in (99, 98, 97, 96, 95)),
            "… and 245 more",
            "  help: to replace the existing entity, load with --mode merge, or use insert or merge in the query",
        ]
