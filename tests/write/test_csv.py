"""Every cell of a CSV file is converted exactly, and line numbers are correct."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.thresholds import Thresholds

from omnigraph import testing
from omnigraph.lang.schema import TypeKind, accept, compile_schema
from omnigraph.write.input import csv_rows
from omnigraph.write.input.csv_rows import read_csv, sniff_separator
from omnigraph.write.input.named_columns import OfType
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.problems import Problems

SCHEMA = """
node Row {
    text: String?
    small: I32?
    big: U64?
    narrow: F32?
    wide: F64?
    truth: Bool?
    day: Date?
    time: DateTime?
    texts: [String]?
    numbers: [I64]?
    days: [Date]?
    vector: Vector(2)?
    bytes: Blob?
}
edge Link: Row -> Row { weight: F64? }
"""
ACCEPTED = accept(compile_schema(SCHEMA), "0" * 26)


def read(
    text: str | bytes, kind: TypeKind = TypeKind.NODE, name: str = "Row", cut: int = 1 << 30, delimiter: str = ","
) -> tuple[pa.Table, list[str]]:
    """The rows and the problems."""
    data = text if isinstance(text, bytes) else text.encode()
    chunks: Iterator[bytes] = (data[i : i + cut] for i in range(0, len(data), cut))
    problems = Problems()
    builder = RowBuilder(ACCEPTED, kind, name, 0, problems)
    parts = [builder.schema.empty_table()]
    for raw in read_csv(chunks, OfType(kind, name), ACCEPTED, problems, "f.csv", delimiter=delimiter):
        parts.append(builder.build(raw.columns, raw.origin, raw.absent))
    return pa.concat_tables(parts), [str(p) for p in problems._first]


def values(text: str, name: str) -> list[object]:
    table, problems = read(text)
    assert problems == []
    column = table[name].cast(pa.int64()) if pa.types.is_date64(table[name].type) else table[name]
    found: list[object] = column.to_pylist()
    return found


@pytest.mark.parametrize(
    ("name", "cells", "expected"),
    [
        ("small", ["3", "-2147483648", "007", "-0", "", '""'], [3, -(2**31), 7, 0, None, None]),
        ("big", ["18446744073709551615", "00000000000000000000000000001", "-0"], [2**64 - 1, 1, 0]),
        ("wide", ["1", "1.5", "-2e3", "1E-5", ""], [1.0, 1.5, -2000.0, 1e-05, None]),
        ("narrow", ["1.00000017881393432617187499"], [1.0000001192092896]),
        ("truth", ["true", "False", "TRUE", ""], [True, False, True, None]),
        (
            "text",
            ["a", "", '""', '"a,b"', '"a ""b"""', '"a\nb"', " a "],
            ["a", None, "", "a,b", 'a "b"', "a\nb", " a "],
        ),
        ("texts", ['"[""a"", ""\\u00e9,b""]"', "[]", ""], [["a", "é,b"], [], None]),
        ("numbers", ['"[1,\n2]"', "[9223372036854775807]"], [[1, 2], [2**63 - 1]]),
        ("vector", ['"[1, 2.5]"', ""], [[1.0, 2.5], None]),
        ("time", ["1970-01-01T00:00:01Z", "1970-01-01 00:00:00.0019", ""], [1000, 1, None]),
        ("time", ["1970-01-01 02:00:01+02", "1970-01-01 00:00:00.250999 +0000", ""], [1000, 250, None]),
        ("time", ["1970-01-01T02:30:00+0230", "1970-01-01 00:00:01 UTC", "1970-01-01"], [0, 1000, 0]),
    ],
)
def test_cells_are_converted_to_their_property_type(name: str, cells: list[str], expected: list[object]) -> None:
    assert values(f"id,{name}\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells)), name) == expected


def test_dates_are_read_from_dates_timestamps_and_lists() -> None:
    table, problems = read('day,days\n1970-01-03,"[""1970-01-03""]"\n1970-01-03T23:00:00Z,[2]\n')
    assert problems == []
    assert [str(d) for d in table["day"].to_pylist()] == ["1970-01-03"] * 2
    assert table["days"].to_pylist()[0] == table["days"].to_pylist()[1]


@pytest.mark.parametrize("cell", ["2", "20260314", "-5", "+7", "0", "99999999999999999999"])
@pytest.mark.parametrize(("name", "kind"), [("day", "a date like 2026-03-14"), ("time", "a time like 2026-03-14T09")])
def test_a_bare_number_is_not_a_date(name: str, kind: str, cell: str) -> None:
    _, problems = read(f"{name}\n1990-01-02\n{cell}\n")
    assert len(problems) == 1
    assert f"line 3: Row.{name}: expected {kind}" in problems[0]
    assert problems[0].endswith(f"found '{cell}'")


def test_blobs_are_read_from_base64() -> None:
    table, problems = read("bytes,small\nbase64:aGk=,1\nbase64:,2\n,3\n")
    assert problems == []
    cells = [None if c is None else c["data"] for c in table["bytes"].to_pylist()]
    assert cells == [b"hi", b"", None]


def test_edges_are_read_with_optional_ids() -> None:
    table, problems = read("id,from,to,weight\ne,a,b,0.5\n,a,c,\n", TypeKind.EDGE, "Link")
    assert problems == []
    assert table.select(["src", "dst", "weight"]).to_pylist() == [
        {"src": "a", "dst": "b", "weight": 0.5},
        {"src": "a", "dst": "c", "weight": None},
    ]
    assert table["id"].to_pylist()[0] == "e"
    assert len(table["id"].to_pylist()[1]) == 26
    assert read("src,dst\na,b\n", TypeKind.EDGE, "Link")[1][0] == (
        "f.csv, line 1: Link.dst: the columns for the ends of an edge are 'from' and 'to'"
    )


@pytest.mark.parametrize(
    "text",
    [
        "text,small\na,1\n",
        "text,small\r\na,1\r\n",
        "\ufefftext,small\na,1",
        "\n\ntext,small\n\r\na,1\n\n\n",
        '"text","small"\n"a","1"',
    ],
)
def test_equivalent_csv_layouts_give_the_same_rows(text: str) -> None:
    table, problems = read(text)
    assert problems == []
    assert table.select(["text", "small"]).to_pylist() == [{"text": "a", "small": 1}]


def test_tabs_can_separate_cells() -> None:
    table, problems = read("text\tsmall\na,b\t1\n", delimiter="\t")
    assert problems == []
    assert table["text"].to_pylist() == ["a,b"]


def test_blank_lines_of_a_single_column_are_skipped() -> None:
    assert values('text\na\n""\n\nb\n', "text") == ["a", "", "b"]


def test_every_wrong_cell_is_named(thresholds: Thresholds) -> None:
    thresholds(csv_rows, BLOCK_BYTES=20)
    text = 'text,small\na,1\n"two\nlines",x\n\nb\nc,2,3\nd,99999999999\n\n"e",y\n'
    table, problems = read(text, cut=7)
    assert problems == [
        "f.csv, line 3: Row.small: expected a whole number, found 'x'",
        "f.csv, line 6: Row: the number of cells is 1, and the header has 2",
        "f.csv, line 7: Row: the number of cells is 3, and the header has 2",
        "f.csv, line 8: Row.small: out of range for I32",
        "f.csv, line 10: Row.small: expected a whole number, found 'y'",
    ]
    assert table["text"].to_pylist() == ["a", "two\nlines", "d", "e"]


_CELLS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=6)


@given(rows=st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=8), cut=st.integers(1, 40), quoting=st.booleans())
def test_csv_written_by_python_is_read_back(rows: list[tuple[str, str]], cut: int, quoting: bool) -> None:
    """Compared with another CSV writer: any text survives, for all contents and chunk boundaries.

    Only `null` without quotes is not a text.
    """
    assume(quoting or all(second != "null" for _, second in rows))
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL if quoting else csv.QUOTE_MINIMAL, lineterminator="\r\n")
    writer.writerow(["id", "text"])
    for i, (first, second) in enumerate(rows):
        writer.writerow([f"{i}{first}", second])
    with testing.thresholds(csv_rows, BLOCK_BYTES=30):
        table, problems = read(out.getvalue(), cut=cut)
    assert problems == []
    assert table["id"].to_pylist() == [f"{i}{first}" for i, (first, _) in enumerate(rows)]
    assert [text or "" for text in table["text"].to_pylist()] == [second for _, second in rows]


@pytest.mark.parametrize(
    ("text", "usual", "found"),
    [
        ("a,b\n1,2\n", ",", ","),
        ("a;b\n1,5;2\n3;4\n", ",", ";"),
        ("a|b|c\n1;2|3|4\n5;6|7|8\n", ",", "|"),
        ("a\tb\n1\t2\n", ",", "\t"),
        ("a,b\n1,2\n", "\t", ","),
        ('"a;b",c\n"1;2",3\n', ",", ","),
        ("a;b,c\n1;2,3\n", ",", ","),
        ("text\na;b\nc\n", ",", ","),
        ("a,b\n1;2\n", ",", ","),
        ("", ",", ","),
        ("\n\na;b\n\n1;2\n", ",", ";"),
    ],
)
def test_the_separator_is_found_in_the_first_rows(text: str, usual: str, found: str) -> None:
    assert sniff_separator(text.encode(), usual) == found
