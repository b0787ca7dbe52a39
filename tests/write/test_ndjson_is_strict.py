"""NDJSON is read exactly: parsing in blocks or by record gives the same rows, and no invalid value is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.thresholds import Thresholds

from omnigraph import testing
from omnigraph.errors import ResourceLimitError
from omnigraph.lang.schema import AcceptedSchema, accept, compile_schema
from omnigraph.write.input import ndjson
from omnigraph.write.input.ndjson import read_ndjson
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.problems import Problems
from papers import generate
from papers.output import write_ndjson

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    score: F32?
    born: Date?
    seen: DateTime?
    tags: [String]?
    mood: String? @default("calm")
    face: Vector(2)?
    photo: Blob?
    ok: Bool?
    big: U64?
}
edge Knows: Person -> Person { since: Date? }
"""

ACCEPTED = accept(compile_schema(SCHEMA), "0" * 26)


def read(
    text: str | bytes, accepted: AcceptedSchema = ACCEPTED, cut: int = 1 << 30
) -> tuple[dict[str, pa.Table], list[str]]:
    """The rows by type, and the problems."""
    data = text if isinstance(text, bytes) else text.encode()
    chunks: Iterator[bytes] = (data[i : i + cut] for i in range(0, len(data), cut))
    problems = Problems()
    tables: dict[str, list[pa.Table]] = {}
    for raw in read_ndjson(chunks, accepted, problems, "f"):
        builder = RowBuilder(accepted, raw.kind, raw.name, 0, problems)
        tables.setdefault(raw.name, []).append(builder.build(raw.columns, raw.origin, raw.absent))
    return {name: pa.concat_tables(parts) for name, parts in tables.items()}, [str(p) for p in problems._first]


GOOD = '{"type": "Person", "data": {"name": "ann"}}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"type": "Person", "data": {"name": 3}}', "Person.name: expected a text, found a number"),
        ('{"type": "Person", "data": {"name": "a", "age": 3.0}}', "Person.age: expected a whole number"),
        ('{"type": "Person", "data": {"name": "a", "age": "3"}}', "Person.age: expected a whole number, found a text"),
        ('{"type": "Person", "data": {"name": "a", "age": 2147483648}}', "Person.age: out of range for I32"),
        ('{"type": "Person", "data": {"name": "a", "big": -1}}', "Person.big: out of range for U64"),
        ('{"type": "Person", "data": {"name": "a", "big": 18446744073709551616}}', "Person.big: out of range for U64"),
        ('{"type": "Person", "data": {"name": "a", "age": true}}', "Person.age: expected a whole number"),
        ('{"type": "Person", "data": {"name": "a", "score": NaN}}', "not "),
        ('{"type": "Person", "data": {"name": "a", "score": -Infinity}}', "not "),
        ('{"type": "Person", "data": {"name": "a", "score": 1e39}}', "Person.score: the number is not finite"),
        ('{"type": "Person", "data": {"name": "a", "ok": 1}}', "Person.ok: expected true or false, found a number"),
        ('{"type": "Person", "data": {"name": "a", "born": "2021-02-29"}}', "Person.born: '2021-02-29'"),
        ('{"type": "Person", "data": {"name": "a", "born": 1.5}}', "Person.born: expected a Date"),
        ('{"type": "Person", "data": {"name": "a", "seen": "noon"}}', "Person.seen: 'noon'"),
        ('{"type": "Person", "data": {"name": "a", "tags": "x"}}', "Person.tags: expected a list, found a text"),
        ('{"type": "Person", "data": {"name": "a", "tags": ["x", null]}}', "Person.tags: an item of the list: null"),
        ('{"type": "Person", "data": {"name": "a", "tags": ["x", 1]}}', "Person.tags: expected a text"),
        ('{"type": "Person", "data": {"name": "a", "face": [1]}}', "Person.face: a vector must have 2 numbers"),
        ('{"type": "Person", "data": {"name": "a", "face": [1, "x"]}}', "Person.face: expected a number"),
        ('{"type": "Person", "data": {"name": "a", "face": [1, null]}}', "Person.face: every element of a vector"),
        ('{"type": "Person", "data": {"name": "a", "photo": "base64:x"}}', "Person.photo: the text after base64:"),
        (
            '{"type": "Person", "data": {"name": "a", "nmae": 1}}',
            "Person.nmae: there is no such property; did",
        ),
        ('{"type": "Person", "data": {"name": "a", "name": "b"}}', "member 'name' is given twice"),
        ('{"type": "Person", "type": "Person", "data": {}}', "member 'type' is given twice"),
        ('{"type": "Person", "data": {"name": "a"}, "more": 1}', "unknown member 'more' of the envelope"),
        ('{"type": "Person", "data": null}', "Person: 'data' is not an object"),
        ('{"type": "Person", "data": {}}', "Person.name: is required"),
        ('{"type": "Person", "data": {"name": null}}', "Person.name: is required"),
        ('{"type": "Person", "data": {"name": "a", "id": "b"}}', "Person.id: differs from the id derived from the key"),
        ('{"type": "Persom", "data": {}}', "there is no node type 'Persom'; did you mean 'Person'?"),
        ('{"edge": "Likes", "from": "a", "to": "b"}', "there is no edge type 'Likes'"),
        ('{"edge": "Knows", "from": "a"}', "Knows.to: is required"),
        ('{"edge": "Knows", "from": 1, "to": "b"}', "Knows.from: expected a text"),
        (
            '{"edge": "Knows", "from": "a", "to": "b", "data": {"src": "c"}}',
            "Knows.src: 'from' and 'to'",
        ),
        ('{"data": {}}', "expected a 'type' or an 'edge'"),
        ("[1]", "expected an object with 'type' or 'edge'"),
        ("{'type': 'Person'}", "not JSON"),
        ('{"type": "Person", "data": {"name": "a",}}', "not JSON"),
        ('{"type": "Person", "data": {"name": "a"}', "the JSON value that begins here has no end"),
        ("# a comment", "not JSON"),
    ],
)
def test_bad_input_is_named_with_its_line(text: str, problem: str) -> None:
    _, problems = read(f"{GOOD}\n{text}\n")
    assert len(problems) == 1
    assert problems[0].startswith("f, line 2: ")
    assert problem in problems[0]


def test_invalid_utf8_is_reported_with_its_line() -> None:
    _, problems = read(GOOD.encode() + b'\n{"type": "Person", "data": {"name": "\xff"}}\n')
    assert problems == ["f, line 2: input: the text is not UTF-8"]


def test_one_broken_line_does_not_hide_the_next() -> None:
    _, problems = read(f"nonsense\n{GOOD}\nmore nonsense\n")
    assert [problem.split(":")[0] for problem in problems] == ["f, line 1", "f, line 3"]


@pytest.mark.parametrize(
    "text",
    [
        f"{GOOD}\n",
        GOOD,
        f"\n\n  {GOOD}  \r\n\r\n",
        '{\n  "type": "Person",\n  "data": {\n    "name": "ann"\n  }\n}\n',
        '{"data": {"name": "ann"}, "type": "Person"}',
        '{"type": "Person", "data": {"name": "\\u0061nn"}}',
    ],
)
def test_valid_layouts_are_accepted(text: str) -> None:
    tables, problems = read(text)
    assert problems == []
    assert tables["Person"]["id"].to_pylist() == ["ann"]


def test_a_written_null_is_not_a_missing_value() -> None:
    tables, problems = read(f'{GOOD}\n{{"type": "Person", "data": {{"name": "bob", "mood": null}}}}\n')
    assert problems == []
    assert tables["Person"].select(["name", "mood"]).to_pylist() == [
        {"name": "ann", "mood": "calm"},
        {"name": "bob", "mood": None},
    ]


def test_times_as_text_and_as_numbers_are_the_same() -> None:
    written = '{"type": "Person", "data": {"name": "a", "born": "1970-01-03", "seen": "1970-01-01T00:00:01.5Z"}}'
    numbers = '{"type": "Person", "data": {"name": "a", "born": 2, "seen": 1500}}'
    assert read(written)[0]["Person"].equals(read(numbers)[0]["Person"])
    mixed, problems = read(f"{written}\n{numbers}\n")
    assert problems == []
    assert mixed["Person"].slice(0, 1).equals(mixed["Person"].slice(1, 1))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[AcceptedSchema, bytes]:
    with open("examples/papers/schema.pg", encoding="utf-8") as file:
        accepted = accept(compile_schema(file.read()), "0" * 26)
    (path,) = write_ndjson(generate(300, 5), tmp_path_factory.mktemp("papers"))
    return accepted, path.read_bytes()


def test_the_block_parser_agrees_with_the_record_parser(
    example: tuple[AcceptedSchema, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted, data = example
    fast, problems = read(data, accepted)
    assert problems == []
    monkeypatch.setattr(ndjson._Stream, "_fast", lambda self, records, low, high: None)
    slow, problems = read(data, accepted)
    assert problems == []
    for name, table in fast.items():
        keyless = accepted.catalog.edges.get(name)
        columns = [c for c in table.column_names if c != "id" or keyless is None or keyless.key is not None]
        assert slow[name].select(columns).equals(table.select(columns)), name


_VALUES = {
    "age": ["3", "-0", "3.0", "1e2", "2147483648", '"3"', "true", "null", "[1]"],
    "big": ["0", "18446744073709551615", "18446744073709551616", "-1", "null"],
    "score": ["1", "1.5", "1e39", "1e400", "1.00000017881393432617187499", "NaN", '"x"', "null", "1E-5"],
    "born": ['"2020-02-29"', '"2021-02-29"', "18262", "-800000", "1.5", "null", '"0000-01-01"'],
    "seen": ['"2020-01-01T00:00:00Z"', '"2020-01-01 00:00:00.1234+01:00"', "0", "99999999999999999", "null"],
    "tags": ["[]", '["a", "b"]', '["a", null]', '["a", 1]', '"a"', "null", '["\\u00e9\\n"]', "[[]]"],
    "mood": ['"calm"', "null", '"\\"mood\\": null"', "1"],
    "face": ["[1, 2]", "[1.5, 2e0]", "[1]", "[1, null]", '[1, "x"]', "null", "[1, 2, 3]"],
    "photo": ['"base64:aGk="', '"base64:"', '"base64:!"', "null", "1"],
    "ok": ["true", "false", "null", "1"],
    "id": ["null", "1", '"other"'],
    "nmae": ["1"],
    "\\u0061ge": ["3", "null"],
}
_MEMBERS = st.dictionaries(st.sampled_from(list(_VALUES)), st.integers(0, 8), max_size=4)


@st.composite
def _records(draw: st.DrawFn) -> str:
    """A file of mostly valid records, in one layout or in random ones."""
    out = []
    layouts = draw(st.sampled_from([[0], [1], [3], [0, 4], [0, 2, 3, 6], list(range(10))]))
    between = draw(st.sampled_from([[", "], [",", ",\n    ", " ,\r\n"]]))
    breaks = draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\n\n", " \n"]]))
    for i in range(draw(st.integers(1, 8))):
        members = {"name": f'"p{i}"'}
        members |= {name: _VALUES[name][pick % len(_VALUES[name])] for name, pick in draw(_MEMBERS).items()}
        inner = draw(st.sampled_from(between)).join(f'"{k}": {v}' for k, v in members.items())
        written = [
            f'{{"type": "Person", "data": {{{inner}}}}}',
            f'{{"type":"Person","data":{{{inner}}}}}',
            f'{{"data": {{{inner}}}, "type": "Person"}}',
            f'{{\n  "type": "Person",\n  "data": {{\n    {inner}\n  }}\n}}',
            f'{{"edge": "knows", "from": "p0", "to": "p{i}"}}',
            f'{{"edge": "Knows", "from": "p0", "to": "p{i}", "data": null}}',
            f'{{"edge": "Knows", "from": "p0", "to": "p{i}", "data": {{"since": 3}}}}',
            f'{{"type": "Person", "data": {{{inner}}}}} {{}}',
            f'{{"type": "Person", "data": {{{inner}',
            "oops",
        ]
        text = written[draw(st.sampled_from(layouts))]
        out.append(text + draw(st.sampled_from(breaks)))
    return "".join(out)


def _subjects(problems: list[str]) -> list[str]:
    """Lines and properties. After a broken record, the block size decides whether records can still be counted."""
    return [re.sub(r" \(record \d+\)", "", ": ".join(problem.split(": ")[:2])) for problem in problems]


@given(text=_records(), block=st.sampled_from([50, 300, 1 << 24]))
def test_the_block_parser_agrees_with_the_record_parser_on_random_input(text: str, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        with testing.thresholds(ndjson, BLOCK_BYTES=block, MAX_SINGLE_RECORDS=1):
            fast, fast_problems = read(text, cut=40)
        patch.setattr(ndjson._Stream, "_fast", lambda self, records, low, high: None)
        with testing.thresholds(ndjson, BLOCK_BYTES=1 << 24, MAX_SINGLE_RECORDS=1):
            slow, slow_problems = read(text)
    # The messages differ, but their subjects are the same.
    assert _subjects(fast_problems) == _subjects(slow_problems)
    if not fast_problems:
        assert fast.keys() == slow.keys()
        for name, table in fast.items():
            columns = [c for c in table.column_names if name == "Person" or c != "id"]
            assert table.select(columns).equals(slow[name].select(columns))


@given(cut=st.integers(1, 5000))
def test_chunk_boundaries_do_not_change_the_rows(cut: int) -> None:
    text = "".join(f'{{"type": "Person", "data": {{"name": "p{i}", "age": {i}}}}}\n' for i in range(50))
    tables, problems = read(text, cut=cut)
    assert problems == []
    assert tables["Person"]["age"].to_pylist() == list(range(50))


def test_lines_are_counted_across_blocks(thresholds: Thresholds) -> None:
    thresholds(ndjson, BLOCK_BYTES=100)
    lines = [GOOD.replace("ann", f"p{i}") for i in range(40)]
    lines[17] = '{"type": "Person",\n"data": {"name": "p17"}}'
    lines[30] = "oops"
    tables, problems = read("\n".join(lines), cut=37)
    assert problems == ["f, line 32 (record 31): input: not JSON: Expecting value"]
    assert tables["Person"].num_rows == 39


def test_an_unclosed_record_does_not_hide_later_records() -> None:
    broken = GOOD[:-1].replace("ann", "x")
    lines = [GOOD.replace("ann", f"p{i}") if i % 5 else broken for i in range(400)]
    tables, problems = read("\n".join(lines))
    assert tables["Person"].num_rows == 320
    assert [problem.split(":")[0] for problem in problems] == [f"f, line {i}" for i in range(1, 400, 5)]


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_a_property_may_be_named_type(indent: int | None) -> None:
    """A line that begins like a record may then be in the middle of one."""
    accepted = accept(compile_schema("node Shape { type: String @key  edge: String? }"), "0" * 26)
    records = [{"type": "Shape", "data": {"type": f"t{i}", "edge": "x"}} for i in range(100)]
    text = "\n".join(json.dumps(r, indent=indent).replace('"data": {', '"data":\n{') for r in records)
    for lines in (text, text.replace("\n", "\r\n")):
        tables, problems = read(lines, accepted)
        assert problems == []
        assert tables["Shape"]["id"].to_pylist() == [f"t{i}" for i in range(100)]


@pytest.mark.parametrize("block", [64, 1000, 1 << 24])
def test_records_may_span_lines_and_blocks(thresholds: Thresholds, block: int) -> None:
    thresholds(ndjson, BLOCK_BYTES=block)
    records = [{"type": "Person", "data": {"name": f"p{i}", "tags": ["a", "}{", '"\\']}} for i in range(200)]
    records[150]["data"] = {"name": "p150", "age": "x"}
    text = "".join(json.dumps(r, indent=2) + "\n" for r in records)
    line = text[: text.index('"p150"')].count("\n") - 2
    tables, problems = read(text, cut=50)
    assert problems == [f"f, line {line} (record 151): Person.age: expected a whole number, found a text"]
    assert tables["Person"].num_rows == 200
    assert tables["Person"]["tags"].to_pylist()[0] == ["a", "}{", '"\\']


def test_an_unclosed_value_is_refused_at_the_size_limit(thresholds: Thresholds) -> None:
    thresholds(ndjson, MAX_RECORD_BYTES=1000)
    with pytest.raises(ResourceLimitError, match=r"f, line 1: graph_batch_line_bytes: .* limit of 1,000"):
        read('{"type": "Person", "data": {"name": "' + "x" * 5000, cut=100)
