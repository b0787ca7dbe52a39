"""Notebooks show graphs, branches, schemas, commits and tags as HTML, with every text escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC

NASTY = "<img src=x onerror=alert(1)>&\x1b[31m"
ALLOWED = {"table", "thead", "tbody", "tr", "th", "td", "p", "b", "i", "pre"}


class Elements(HTMLParser):
    """Collects the elements and checks that they are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: object) -> str:
    """The text of an object in a notebook."""
    found = Elements(value._repr_html_())  # type: ignore[attr-defined]
    assert set(found.names) <= ALLOWED
    assert "\x1b" not in found.text
    return found.text


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv(FSYNC.name, "0")
    schema = 'node Person @description("<b>a</b>") { name: String @key  age: I32? } edge Knows: Person -> Person'
    opened = omnigraph.init(tmp_path / "<g>", schema, actor="act-<i>")
    opened.load({"Person": [{"name": NASTY, "age": 12_345}]}, mode="append", message=NASTY)
    return opened


def test_a_graph_and_a_branch_show_their_types(graph: Graph) -> None:
    graph.branches.create("draft")
    graph.mutate('query q() { insert Person { name: "bob" } }', branch="draft")
    text = shown(graph)
    assert "<g> on branch main" in text
    assert "Knows: Person → Person" in text
    assert graph.snapshot().commit.id in text
    assert "branch draft" in shown(graph.branch("draft"))
    assert repr(graph.branch("draft")) == "<branch draft>"


def test_branches_tags_and_the_schema_are_shown(graph: Graph) -> None:
    graph.branches.create("draft")
    graph.tags.create("v1")
    assert "draft" in shown(graph.branches)
    assert "v1" in shown(graph.tags)
    assert '@description("<b>a</b>")' in shown(graph.schema)
    assert repr(graph.branches) == "<Branches main, draft>"


def test_commits_are_shown_as_the_command_line_shows_them(graph: Graph) -> None:
    text = shown(graph.commits)
    assert "<img src=x onerror=alert(1)>&" in text
    assert "+1" in text
    assert "act-<i>" in text
    assert shown(graph.commits.list()) == text
    one = shown(next(iter(graph.commits)))
    assert "node:Person: +1 ~0 -0" in one
    assert "<img" in one


def test_a_long_history_is_bounded(graph: Graph) -> None:
    for number in range(21):
        graph.mutate(f'query q() {{ insert Person {{ name: "p{number}" }} }}')
    html = graph.commits._repr_html_()
    assert html.count("<tr>") == 21
    assert "the newest 20 commits" in html
    assert "the newest 3 commits" in graph.commits.list(limit=3)._repr_html_()


def test_a_result_is_shown_with_numbers_for_people(graph: Graph) -> None:
    text = shown(graph.query("query q() { match { $p: Person } return { $p.name, $p.age } }"))
    assert "12,345" in text
    assert "<img" in text
    assert text.endswith("1 row")


def test_print_shows_the_text_of_a_schema_and_one_line_per_commit(graph: Graph) -> None:
    assert repr(graph.schema) == "<Schema: 1 node type, 1 edge type>"
    assert str(graph.schema) == graph.schema.source
    loaded, created = str(graph.commits.list()).splitlines()
    assert re.fullmatch(r"\w{14}  [-\d]{10} [:\d]{8}  Load  \+1  act-<i>  <img src=x onerror=.*", loaded)
    assert created.endswith("  create the graph")
    assert "\x1b" not in loaded
