"""A restricted handle shows and converts only what its actor may see: notebooks, pictures, networkx and numpy."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.row_scope import Rows
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC

SCHEMA = """
node Task { name: String @key  owner: String?  salary: I32? }
node Secret { name: String @key }
edge Blocks: Task -> Task
edge Guards: Secret -> Task
"""


@pytest.fixture
def kim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """A handle that sees two of 57 tasks, one of 56 edges, no salaries and no secrets."""
    monkeypatch.setenv(FSYNC.name, "0")
    graph = omnigraph.init(tmp_path / "g", SCHEMA)
    tasks = [{"name": f"hidden{i}", "owner": "lee", "salary": 7} for i in range(55)]
    tasks += [{"name": name, "owner": "kim", "salary": 7} for name in ("mine", "other")]
    blocks = [{"from": f"hidden{i}", "to": "mine"} for i in range(55)] + [{"from": "mine", "to": "other"}]
    secrets = {"Secret": [{"name": "hidden"}], "Guards": [{"from": "hidden", "to": "mine"}]}
    graph.load({"Task": tasks, "Blocks": blocks, **secrets}, mode="append", message="57 tasks")
    rules = omnigraph.RowRules(
        {"node:Task": "$.owner = $actor", "node:Secret": Rows.HIDDEN}, {"node:Task": ["salary"]}, actor="kim"
    )
    return graph.restricted(rules)


def test_arrays_and_networkx_have_only_visible_rows(kim: Graph) -> None:
    arrays = kim.to_numpy()
    assert set(arrays.nodes) == {"Task"}
    assert arrays.nodes["Task"]["id"].tolist() == ["mine", "other"]
    assert "salary" not in arrays.nodes["Task"]
    assert set(arrays.edges) == {("Task", "Blocks", "Task")}
    assert arrays.edges["Task", "Blocks", "Task"]["edge_index"].tolist() == [[0], [1]]
    drawn = kim.to_networkx()
    assert set(drawn.nodes) == {("Task", "mine"), ("Task", "other")}
    assert drawn.number_of_edges() == 1
    for name in ("Secret", "Guards"):
        with pytest.raises(InputError, match=f"there is no type '{name}'"):
            kim.to_numpy(name)


def test_pictures_show_only_visible_rows(kim: Graph) -> None:
    for picture in (kim.draw(), kim.draw(limit=1)):
        assert "hidden" not in picture.svg
        assert "Secret" not in picture.svg
        assert "salary" not in picture.svg
    assert "2 nodes and 1 edges" in kim.draw().svg
    assert "first" not in kim.draw().svg


def test_notebooks_show_only_visible_rows_and_counts(kim: Graph) -> None:
    shown = [kim, kim.branch("main"), kim.branches, kim.tags, kim.schema, kim.commits, kim.commits.list()]
    for each in (*shown, *kim.commits):
        html = each._repr_html_()
        for hidden in ("hidden", "Secret", "Guards", "salary", "+114", ">57<", ">56<", ">55<"):
            assert hidden not in html, (each, hidden)
    assert ">2<" in kim._repr_html_()
