"""Results in files and pipes: every format, chosen by its name or by the ending of the file, and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.cli.query import ENDINGS

SCHEMA = """
node Thing {
    key: String @key
    text: String?
    number: I64?
    ratio: F64?
    flag: Bool?
    day: Date?
    at: DateTime?
    tags: [String]?
    vec: Vector(2)?
}
"""
TEXTS = [
    "",
    "null",
    "NULL",
    '"null"',
    "a,b",
    'say "hi"',
    "two\nlines",
    "tab\there",
    "\x1b[31mred\x1b[0m",
    "漢字",
    " x ",
    None,
]
ALL = """query all() { match { $t: Thing } return {
    $t.key as key, $t.text as text, $t.number as number, $t.ratio as ratio, $t.flag as flag, $t.day as day, $t.at as at,
    $t.tags as tags, $t.vec as vec } order { key } }"""


@pytest.fixture
def things(shell: Shell) -> str:
    place = str(shell.root / "things")
    rows: list[dict[str, Any]] = [{"key": f"k{i:02}", "text": text} for i, text in enumerate(TEXTS)]
    rows[0] |= {"number": 2**53 + 1, "ratio": 0.1, "flag": False, "day": "2020-01-31", "at": "2024-01-02T03:04:05.678Z"}
    rows[1] |= {"tags": ["null", "", "a,b"], "vec": [0.5, -1.0], "number": -7, "flag": True}
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load({"Thing": rows}, mode="append")
    return place


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".ndjson", ".jsonl", ".arrow", ".parquet"])
def test_load_reads_back_what_query_wrote(shell: Shell, things: str, ending: str) -> None:
    path = str(shell.root / f"Thing{ending}")
    written = shell.run("query", "--uri", things, "-e", ALL, "--out", path)
    assert (written.exit_code, written.stdout, written.stderr) == (0, "", f"wrote {len(TEXTS)} rows to {path}\n")
    copy = str(shell.root / "copy")
    omnigraph.init(copy, SCHEMA).close()
    data = ["--data", path]
    if ending in (".ndjson", ".jsonl"):  # lines with a type and its data
        lines = [
            json.dumps({"type": "Thing", "data": json.loads(line)}) for line in Path(path).read_text().splitlines()
        ]
        data = ["--data", shell.write("lines.ndjson", "\n".join(lines))]
    loaded = shell.run("load", copy, *data, "--mode", "append", "--quiet")
    assert loaded.exit_code == 0, loaded.stderr
    with omnigraph.open(things) as one, omnigraph.open(copy) as other:
        assert b"".join(one.export()) == b"".join(other.export())


def test_csv_into_a_pipe_is_read_back_too(shell: Shell, things: str) -> None:
    text = "query q() { match { $t: Thing } return { $t.key as key, $t.text as text } order { key } }"
    printed = shell.run("query", "--uri", things, "-e", text, "--format", "csv").stdout
    lines = printed.split("\n")
    assert lines[1:4] == ['k00,""', 'k01,"null"', "k02,NULL"]
    assert lines[-2] == "k11,null"
    assert "\x1b[31mred\x1b[0m" in printed
    path = shell.write("Thing.csv", printed)
    copy = str(shell.root / "copy")
    omnigraph.init(copy, "node Thing { key: String @key  text: String? }").close()
    assert shell.run("load", copy, "--data", path, "--mode", "append", "--quiet").exit_code == 0
    with omnigraph.open(copy) as graph:
        assert [row["text"] for row in graph.query(text)] == TEXTS


def test_a_mapping_may_read_null_as_a_text(shell: Shell) -> None:
    place = str(shell.root / "words")
    omnigraph.init(place, "node Word { word: String @key }").close()
    words = shell.write("words.csv", "word\nnull\nnil\n")
    refused = shell.fails("load", place, "--data", words, "--type", "Word", "--mode", "append", "--quiet")
    assert "words.csv, line 2" in refused
    mapping = shell.write("words.yaml", "sources: [{source: words, node: Word, csv: {null: []}}]")
    address = Path(mapping).resolve().as_uri()
    loaded = shell.run("load", place, "--data", words, "--mapping", address, "--mode", "append", "--quiet")
    assert loaded.exit_code == 0, loaded.stderr
    with omnigraph.open(place) as graph:
        found = graph.query("query q() { match { $w: Word } return { $w.word as word } order { word } }")
        assert [row["word"] for row in found] == ["nil", "null"]


def test_rows_alone_are_ndjson(shell: Shell, things: str) -> None:
    text = "query q() { match { $t: Thing } return { $t.key as key } order { key } limit 2 }"
    run = shell.run("query", "--uri", things, "-e", text, "--format", "ndjson")
    assert run.stdout == '{"key":"k00"}\n{"key":"k01"}\n'
    head, *rows = shell.run("query", "--uri", things, "-e", text, "--format", "jsonl").stdout.splitlines()
    assert json.loads(head)["kind"] == "metadata"
    assert "\n".join(rows) + "\n" == run.stdout


def test_markdown_shows_every_character_as_it_is(shell: Shell, things: str) -> None:
    text = "query q() { match { $t: Thing } return { $t.text as text, $t.number as n } order { $t.key } }"
    lines = shell.run("query", "--uri", things, "-e", text, "--format", "markdown").stdout.splitlines()
    assert lines[:2] == ["| text | n |", "| --- | ---: |"]
    assert lines[2] == "|  | 9007199254740993 |"
    assert "| two<br>lines | null |" in lines
    assert len(lines) == 2 + len(TEXTS)
    assert not any("\x1b" in line for line in lines)
    odd = shell.write("odd.ndjson", '{"type": "Thing", "data": {"key": "z", "text": "a|b *c* <i> [d](e) `f` &amp;"}}')
    shell.run("load", things, "--data", odd, "--mode", "append")
    last = shell.run("query", "--uri", things, "-e", text, "--format", "markdown").stdout.splitlines()[-1]
    assert last == "| a\\|b \\*c\\* &lt;i> \\[d\\](e) \\`f\\` &amp;amp; | null |"


def test_parquet_and_arrow_keep_types(shell: Shell, things: str) -> None:
    for name in ("rows.parquet", "rows.arrow"):
        assert shell.run("query", "--uri", things, "-e", ALL, "--out", str(shell.root / name)).exit_code == 0
    table = pq.read_table(shell.root / "rows.parquet")
    with pa.OSFile(str(shell.root / "rows.arrow")) as file:
        assert pa.ipc.open_stream(file).read_all().to_pylist() == table.to_pylist()
    assert table.schema.field("at").type == pa.timestamp("ms", "UTC")
    assert table["number"][0].as_py() == 2**53 + 1


def test_the_ending_chooses_the_format_and_an_option_overrides_it(shell: Shell, things: str) -> None:
    text = "query q() { match { $t: Thing } return { count(*) as n } }"
    for ending in ENDINGS:
        path = str(shell.root / f"out{ending.upper()}")
        assert shell.run("query", "--uri", things, "-e", text, "--out", path).exit_code == 0
        assert Path(path).stat().st_size
    path = str(shell.root / "data.txt")
    assert shell.run("query", "--uri", things, "-e", text, "--out", path, "--format", "csv").exit_code == 0
    assert Path(path).read_text() == f"n\n{len(TEXTS)}\n"
    shown = shell.run("query", "--uri", things, "-e", text, "--out", "-", "--format", "csv")
    assert shown.stdout == Path(path).read_text()


def test_an_unknown_ending_and_an_unwritable_file_are_found_before_the_query(shell: Shell, things: str) -> None:
    refused = shell.fails("query", "--uri", things, "-e", "nonsense", "--out", "rows.xls", code=2)
    assert "the ending of 'rows.xls' names no format: use .csv, .tsv, .json, .jsonl" in refused
    refused = shell.fails("query", "--uri", things, "-e", "nonsense", "--out", str(shell.root / "no" / "rows.csv"))
    assert "No such file or directory" in refused
    refused = shell.fails("query", "--uri", things, "-e", "nonsense", "--out", str(shell.root), "--format", "csv")
    assert "Is a directory" in refused


def test_a_failed_query_leaves_no_file(shell: Shell, things: str) -> None:
    path = shell.write("rows.csv", "before\n")
    shell.fails("query", "--uri", things, "-e", ALL, "--out", path, "--rows", "1")
    assert Path(path).read_text() == "before\n"
