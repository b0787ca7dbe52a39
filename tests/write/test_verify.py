"""`verify` checks the whole graph against its schema, for rows of any origin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.commit.table_writes import Append
from omnigraph.commit.write_request import WriteRequest
from omnigraph.graph import Graph
from omnigraph.settings import LOAD_MEMORY

SCHEMA = """
node Person { name: String @key  mail: String? @unique  age: I32?  @range(age, 0..150) }
node Note { text: String }
edge Knows: Person -> Person { since: Date?  @unique(src, dst) }
edge Wrote: Person -> Note @card(1..) @card_in(1..1)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        made.load(
            {
                "Person": pa.table({"name": ["ann", "bob"], "mail": ["a", "b"], "age": [30, None]}),
                "Note": pa.table({"id": ["n", "m"], "text": ["x", "y"]}),
                "Knows": pa.table({"id": ["k"], "from": ["ann"], "to": ["bob"]}),
                "Wrote": pa.table({"from": ["ann", "bob"], "to": ["n", "m"]}),
            },
            mode="append",
        )
        yield made


def smuggle(graph: Graph, key: str, branch: str = "main", /, **columns: list[object]) -> None:
    """Write rows without any check."""
    schema = graph.snapshot().scan(key).schema
    rows = {field.name: columns.get(field.name, [None]) for field in schema}
    table = pa.table({name: pa.array(values, schema.field(name).type) for name, values in rows.items()}, schema=schema)
    graph.write_tables(WriteRequest(branch=branch), lambda _: [Append(key, table)])


def found(graph: Graph, branch: str = "main") -> list[str]:
    report = graph.verify(branch=branch)
    assert report.ok is (report.total == 0)
    assert report.total == len(report.violations)
    return [str(violation) for violation in report.violations]


def test_a_graph_written_by_the_engine_has_no_violations(graph: Graph) -> None:
    assert found(graph) == []


def test_a_node_without_its_required_edge_is_found(graph: Graph) -> None:
    graph.load({"Person": pa.table({"name": ["cid"]})}, mode="append")  # a write does not check that
    assert found(graph) == ["Wrote @card: 'cid': has 0 edges, allowed are 1.."]


@pytest.mark.parametrize(
    ("key", "row", "said"),
    [
        ("node:Person", {"id": "x", "name": "x", "age": 999}, "Person.age: 'x': 999 is outside 0..150"),
        ("node:Person", {"id": "x", "name": "x", "mail": "a"}, "Person.mail: 'x': has 'a', and so has 'ann'"),
        ("node:Person", {"id": "x", "name": "y"}, "Person.id: 'x': differs from 'y', the id derived from its key"),
        ("node:Person", {"id": "ann", "name": "ann"}, "Person.id: 'ann': 2 entities have this id"),
        ("edge:Knows", {"id": "x", "src": "ann", "dst": "gone"}, "Knows.dst: 'x': dst 'gone' not found in Person"),
        (
            "edge:Knows",
            {"id": "x", "src": "ann", "dst": "bob"},
            "Knows.(dst, src): 'x': has ('bob', 'ann'), and so has 'k'",
        ),
        ("edge:Wrote", {"id": "x", "src": "ann", "dst": "m"}, "Wrote @card_in: 'm': has 2 edges, allowed are 1..1"),
    ],
    ids=["value", "unique", "key", "id", "dangling", "tuple", "cardinality"],
)
def test_rows_written_without_checks_are_found(graph: Graph, key: str, row: dict[str, object], said: str) -> None:
    smuggle(graph, key, "main", **{name: [value] for name, value in row.items()})
    assert said in found(graph)


def test_branches_and_commits_are_checked_separately(graph: Graph) -> None:
    sound = graph.snapshot().commit.id
    graph.branches.create("dev")
    smuggle(graph, "edge:Knows", "dev", id=["x"], src=["gone"], dst=["bob"])
    assert found(graph) == []
    assert found(graph, "dev") == ["Knows.src: 'x': src 'gone' not found in Person"]
    smuggle(graph, "node:Person", id=["x"], name=["x"], age=[-1])
    assert not graph.verify().ok
    assert graph.verify(commit=sound).ok


def test_all_violations_are_counted_and_the_first_by_id_are_listed(graph: Graph) -> None:
    for start in (200, 0, 100):
        ids: list[object] = [f"e{i:03}" for i in range(start, start + 100)]
        smuggle(graph, "edge:Knows", id=ids, src=ids, dst=["bob"] * 100, since=[None] * 100)
    report = graph.verify()
    assert report.total == 300
    assert [v.entity_id for v in report.violations] == [f"e{i:03}" for i in range(100)]


def test_the_report_has_the_documented_json_form(graph: Graph) -> None:
    smuggle(graph, "node:Person", id=["x"], name=["x"], age=[-1])
    said = graph.verify().to_json()
    assert said["graph_commit_id"] == graph.snapshot().commit.id
    assert (said["branch"], said["ok"], said["total"]) == ("main", False, 2)
    assert said["entities"] == {"node:Person": 3, "node:Note": 2, "edge:Knows": 1, "edge:Wrote": 2}
    assert said["violations"][0] == {
        "kind": "value",
        "subject": "Person.age",
        "entity_id": "x",
        "message": "-1 is outside 0..150",
    }


def test_a_small_memory_budget_finds_the_same_rows(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    smuggle(graph, "node:Person", id=["ann"], name=["ann"], mail=["b"])
    smuggle(graph, "edge:Wrote", id=["x"], src=["ann"], dst=["m"])
    expected = found(graph)
    assert len(expected) == 3
    monkeypatch.setenv(LOAD_MEMORY.name, "16")
    assert found(graph) == expected


def test_the_verify_command_reports_violations(graph: Graph, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    good = shell.run("verify", graph.uri)
    assert (good.exit_code, good.stdout) == (0, "verified 7 entities on branch main: every constraint holds\n")
    smuggle(graph, "node:Person", id=["x"], name=["x"], age=[-1])
    bad = shell.run("verify", graph.uri)
    assert bad.exit_code == 1
    assert bad.stdout.splitlines() == [
        "Person.age: 'x': -1 is outside 0..150",
        "Wrote @card: 'x': has 0 edges, allowed are 1..",
        "verified 8 entities on branch main: 2 violations",
    ]
    told = shell.run("verify", graph.uri, "--branch", "main", "--json")
    assert told.exit_code == 1
    assert '"total": 2' in told.stdout
    assert shell.run("verify", graph.uri, "--branch", "nowhere").exit_code == 1
