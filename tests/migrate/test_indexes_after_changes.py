"""Indexes follow a renamed column, are dropped with a rewritten one, and never answer for a column of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.migrate.garden import SCHEMA, content, create

from omnigraph.graph import Graph

RENAMED = SCHEMA.replace("height: I32? @index", 'tall: I32? @index @rename_from("height")').replace(
    "@range(height", "@range(tall"
)
REUSED = RENAMED.replace("old: String?", "old: String?  height: I32? @index")
WIDENED = RENAMED.replace("tall: I32?", "tall: I64?")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "garden")


def found(graph: Graph, name: str, value: int) -> list[str]:
    """Plants by the value of a property: by a filter on the table, which uses an index if there is one."""
    column = graph.snapshot().table("node:Plant").schema().field(name)
    rows = (
        graph.snapshot()
        .table("node:Plant")
        .scan(columns=["id"], filter=pc.field(name) == pa.scalar(value, column.type))
    )
    return sorted(rows["id"].to_pylist())


def expected(graph: Graph, name: str, value: int) -> list[str]:
    return sorted(id for id, row in content(graph)["Plant"].items() if row[name] == value)


def covered(graph: Graph, name: str) -> tuple[int, int]:
    (index,) = [index for index in graph.indexes() if index.type_key == "node:Plant" and index.property == name]
    return index.covered, index.uncovered


def assert_answers(graph: Graph, *names: str) -> None:
    for name in names:
        for value in (1, 2, 5, 7, 99, 1000):
            assert found(graph, name, value) == expected(graph, name, value), (name, value)


def lance_names(graph: Graph) -> dict[str, Any]:
    dataset = graph.snapshot().table("node:Plant").dataset
    return {index.name: index.field_names for index in dataset.describe_indices()}


def test_an_index_follows_its_renamed_column(graph: Graph) -> None:
    graph.ensure_indexes()
    before = covered(graph, "height")
    graph.schema.apply(RENAMED)
    assert lance_names(graph)["height_btree"] == ["tall"]
    assert covered(graph, "tall") == before
    assert_answers(graph, "tall")
    graph.mutate('query grow() { update Plant set { tall: 1000 } where code = "p05" }')
    graph.optimize()
    assert covered(graph, "tall")[1] == 0
    assert "height_btree" in lance_names(graph), "the index was kept"
    assert_answers(graph, "tall")


def test_a_column_that_reuses_a_name_gets_its_own_index(graph: Graph) -> None:
    graph.ensure_indexes()
    graph.schema.apply(RENAMED)
    graph.schema.apply(REUSED)
    assert covered(graph, "height")[0] == 0
    graph.mutate('query grow() { update Plant set { height: 7 } where code = "p05" }')
    assert_answers(graph, "tall", "height")
    graph.ensure_indexes()
    assert covered(graph, "height")[1] == covered(graph, "tall")[1] == 0
    names = lance_names(graph)
    assert sorted(fields[0] for fields in names.values() if fields[0] in ("tall", "height")) == ["height", "tall"]
    assert_answers(graph, "tall", "height")
    graph.mutate('query grow() { update Plant set { height: 2, tall: 5 } where code = "p07" }')
    graph.optimize()
    assert_answers(graph, "tall", "height")
    assert covered(graph, "height")[1] == covered(graph, "tall")[1] == 0


def test_an_index_on_a_widened_column_is_built_again(graph: Graph) -> None:
    graph.ensure_indexes()
    graph.schema.apply(WIDENED)
    assert covered(graph, "tall")[0] == 0
    assert_answers(graph, "tall")
    graph.ensure_indexes()
    assert covered(graph, "tall")[1] == 0
    assert_answers(graph, "tall")


def test_queries_and_searches_agree_with_the_rows_after_each_change(graph: Graph) -> None:
    """Reads cache columns, word lists and topologies by table version."""
    text = "query q($w: String) { match { $p: Plant  search($p.NOTE, $w) } return { $p.code } order { $p.code } }"
    for source, note in (
        (SCHEMA, "note"),
        (SCHEMA.replace("note: String?", 'remark: String? @rename_from("note")').replace("(note", "(remark"), "remark"),
        (
            SCHEMA.replace("note: String?", 'old: String? @rename_from("remark")')
            .replace("(note", "(old")
            .replace("    old: String?\n}", "}")
            .replace("    seen: DateTime?\n    old: String?\n", "    seen: DateTime?\n"),
            "old",
        ),
    ):
        if source != SCHEMA:
            graph.schema.apply(source)
        rows = content(graph)["Plant"]
        for word in ("oak", "elm", "label"):
            wanted = sorted(id for id, row in rows.items() if row[note] is not None and word in row[note].split())
            answer = graph.query(text.replace("NOTE", note), {"w": word}).to_arrow()
            assert answer.column(0).to_pylist() == wanted, (note, word)
