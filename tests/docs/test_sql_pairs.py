"""The SQL on the page of pairs returns the rows that the page shows for our queries."""

from __future__ import annotations

import doctest
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from page_examples import Block, blocks

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
BLOCKS = list(blocks(PAGE.read_text(encoding="utf-8")))
PAIRS = [(theirs, ours) for theirs, ours in pairwise(BLOCKS) if theirs.language == "sql" and ours.language == "pycon"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """The data of the page, with the person that the page adds before the SQL."""
    directory = tmp_path_factory.mktemp("data")
    database = duckdb.connect()
    columns = {"Person": "handle, name, age", "City": "name", "Follows": "source, target", "LivesIn": "person, city"}
    names = {"Person": "person", "City": "city", "Follows": "follows", "LivesIn": "lives_in"}
    for block in BLOCKS:
        kind = Path(block.file).stem if block.file else ""
        if block.file and block.file.startswith("data/"):
            (directory / f"{kind}.csv").write_text(block.text, encoding="utf-8")
            rows = database.read_csv(str(directory / f"{kind}.csv"), header=True)
            listed = columns[kind].split(", ")
            chosen = ", ".join(f'"{old}" as {new}' for old, new in zip(rows.columns, listed, strict=False))
            database.execute(f"create table {names[kind]} as select {chosen} from rows")
    database.execute("insert into person values ('fay', 'Fay', 40)")
    database.execute("insert into follows values ('fay', 'ana')")
    return database


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda block: str(block.line))
def test_sql_returns_the_rows_of_our_query(database: duckdb.DuckDBPyConnection, theirs: Block, ours: Block) -> None:
    (example,) = doctest.DocTestParser().get_examples(ours.text)
    if theirs.text.startswith("UPDATE"):
        (changed,) = database.execute(theirs.text).fetchall()
        assert f"{changed[0]}\n" == example.want
        return
    rows = database.execute(theirs.text).fetchall()
    assert "".join(" ".join(map(str, row)) + "\n" for row in rows) == example.want


def test_the_pairs_are_found() -> None:
    assert len(PAIRS) == 5
