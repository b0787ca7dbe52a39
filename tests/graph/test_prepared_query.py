"""A prepared query answers as `Graph.query` does: it reads the newest state, with the schema of that state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import Graph, PreparedQuery
from omnigraph.errors import (
    BranchNotFoundError,
    BudgetExceededError,
    CancelledError,
    CompileError,
    InputError,
    NotFoundError,
    ParameterError,
)
from omnigraph.read.budget import Budget, Cancellation

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { @key(src, dst) }\n"
AGE = "query age($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"
PEOPLE = "query people() { match { $p: Person } return { $p.name as name } order { name } }"
FRIENDS = "query friends($name: String) { match { $p: Person { name: $name } $p knows $f } return { $f.name as name } }"
SET = "query set($name: String, $age: I32) { update Person set { age: $age } where name = $name }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        people = pa.table({"name": ["ann", "bob"], "age": pa.array([41, None], pa.int32())})
        made.load({"Person": people, "Knows": [{"from": "ann", "to": "bob"}]}, mode="append")
        yield made


def set_age(graph: Graph, name: str, age: int, branch: str | None = None) -> None:
    table = pa.table({"name": [name], "age": pa.array([age], pa.int32())})
    graph.load({"Person": table}, mode="merge", branch=branch)


def same(prepared: PreparedQuery, graph: Graph, text: str, params: dict[str, object]) -> list[dict[str, object]]:
    """The rows of a prepared query, after a comparison of everything with `Graph.query`."""
    one, other = prepared(params), graph.query(text, params)
    assert one.to_arrow().equals(other.to_arrow())
    assert one.to_arrow().schema == other.to_arrow().schema
    for attribute in ("query_name", "branch", "snapshot", "graph_commit_id", "warnings"):
        assert getattr(one, attribute) == getattr(other, attribute)
    return one.to_pylist()


def test_it_answers_as_the_graph_does(graph: Graph) -> None:
    age, friends = graph.prepare(AGE), graph.prepare(FRIENDS)
    assert same(age, graph, AGE, {"name": "ann"}) == [{"age": 41}]
    assert same(age, graph, AGE, {"name": "bob"}) == [{"age": None}]
    assert same(age, graph, AGE, {"name": "eve"}) == []
    assert same(age, graph, AGE, {"name": "ann", "more": 1}) == [{"age": 41}]
    assert same(friends, graph, FRIENDS, {"name": "ann"}) == [{"name": "bob"}]
    assert graph.prepare(AGE + PEOPLE, name="people")().to_pylist() == [{"name": "ann"}, {"name": "bob"}]
    assert (age.name, repr(age)) == ("age", f"<PreparedQuery age of '{graph.uri}'>")


def test_it_reads_from_a_file(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "age.gq").write_text(AGE, encoding="utf-8")
    assert graph.prepare(tmp_path / "age.gq")({"name": "ann"}).to_pylist() == [{"age": 41}]


def test_every_call_sees_the_newest_commit(graph: Graph) -> None:
    """Also commits of other handles, which stand for other processes."""
    age = graph.prepare(AGE)
    with omnigraph.open(graph.uri) as other:
        for number in range(50, 60):
            set_age(other if number % 2 else graph, "ann", number)
            assert same(age, graph, AGE, {"name": "ann"}) == [{"age": number}]


def test_it_stays_on_its_branch_or_snapshot(graph: Graph) -> None:
    graph.branches.create("draft")
    before = graph.snapshot()
    on_draft, handle = graph.prepare(AGE, branch="draft"), graph.branch("draft").prepare(AGE)
    old, by_id = graph.prepare(AGE, at=before), graph.prepare(AGE, at=before.commit.id)
    set_age(graph, "ann", 50)
    set_age(graph, "ann", 60, branch="draft")
    ann = {"name": "ann"}
    assert [q(ann).to_pylist()[0]["age"] for q in (on_draft, handle, old, by_id)] == [60, 60, 41, 41]
    assert (on_draft(ann).branch, old(ann).branch, old(ann).snapshot) == ("draft", None, before.commit.id)
    graph.branches.delete("draft")
    with pytest.raises(BranchNotFoundError):
        on_draft(ann)


def test_a_changed_schema_is_checked_again(graph: Graph) -> None:
    age = graph.prepare(AGE)
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"))
    assert age({"name": "ann"}).to_arrow().schema.field("age").type == pa.int64()
    assert same(age, graph, AGE, {"name": "ann"}) == [{"age": 41}]
    graph.schema.apply(SCHEMA.replace("age: I32?", ""))
    with pytest.raises(CompileError, match="age"):
        age({"name": "ann"})
    graph.schema.apply(SCHEMA)
    assert same(age, graph, AGE, {"name": "ann"}) == [{"age": None}]


def test_errors_are_those_of_a_query(graph: Graph) -> None:
    with pytest.raises(CompileError):
        graph.prepare("query wrong() { match { $p: Nobody } return { $p.name } }")
    with pytest.raises(InputError, match="'set' is a query that writes"):
        graph.prepare('query set() { insert Person { name: "x" } }')
    with pytest.raises(NotFoundError):
        graph.prepare(AGE, name="other")
    with pytest.raises(BranchNotFoundError):
        graph.prepare(AGE, branch="nothing")
    age = graph.prepare(AGE)
    with pytest.raises(ParameterError, match="not given"):
        age()
    with pytest.raises(ParameterError, match="expected a text"):
        age({"name": 3})
    with pytest.raises(InputError, match="params is 'ann'"):
        age("ann")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="budget is 3"):
        age({"name": "ann"}, budget=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [AGE, FRIENDS], ids=["point", "hop"])
def test_budgets_and_cancellation_belong_to_a_call(graph: Graph, text: str) -> None:
    prepared, cancel = graph.prepare(text), Cancellation()
    cancel.cancel()
    with pytest.raises(CancelledError):
        prepared({"name": "ann"}, cancel=cancel)
    for budget in (Budget(rows=0), Budget(returned=0), Budget(seconds=0)):
        with pytest.raises(BudgetExceededError):
            prepared({"name": "ann"}, budget=budget)
    assert len(prepared({"name": "ann"})) == 1


def test_a_closed_graph_refuses_calls(graph: Graph) -> None:
    age = graph.prepare(AGE)
    graph.close()
    with pytest.raises(InputError, match="closed") as refused:
        age({"name": "ann"})
    with pytest.raises(InputError) as usual:
        graph.query(AGE, {"name": "ann"})
    assert str(refused.value) == str(usual.value)


def test_threads_share_it_while_others_write(graph: Graph) -> None:
    """The ages that a reader sees never go back."""
    age, done = graph.prepare(AGE), threading.Event()

    def read() -> int:
        seen = [0]
        while not done.is_set():
            seen.append(age({"name": "ann"}).to_pylist()[0]["age"])
        assert seen[1:] == sorted(seen[1:])
        return seen[-1]

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for number in range(100, 110):
            set_age(graph, "ann", number)
            assert age({"name": "ann"}).to_pylist() == [{"age": number}]
        done.set()
        assert all(reader.result() >= 41 for reader in readers)
