"""`unchanged_since`: a write is refused if, and only if, its read set has changed since a commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.commit.store import Store
from omnigraph.engine.query_text import ListedRead
from omnigraph.errors import (
    ChangedSinceError,
    InputError,
    NotFoundError,
    PreconditionFailedError,
    VersionReclaimedError,
    report_for,
)
from omnigraph.graph import Graph
from omnigraph.write.mutation import MutationReceipt

SCHEMA = """
node Person { name: String @key  age: I64?  photo: Blob? }
node City { name: String @key }
edge Lives: Person -> City
"""
QUERIES = """
query age($name: String, $age: I64) { update Person set { age: $age } where name = $name }
query older($than: I64) { update Person set { age: 0 } where age > $than }
query add($name: String, $age: I64?) { insert Person { name: $name, age: $age } }
query city($name: String) { insert City { name: $name } }
query remove($name: String) { delete Person where name = $name }
query lives($p: String, $c: String) { insert Lives { from: $p, to: $c } }
"""
COUNT = "query count() { match { $p: Person } return { count($p) as n } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = omnigraph.init(tmp_path / "g", SCHEMA)
    people = pa.table({"name": ["ann", "bob", "cas"], "age": [10, 20, 30]})
    graph.load({"Person": people, "City": pa.table({"name": ["Oslo", "Rome"]})}, mode="append")
    return graph


def run(graph: Any, query: str, /, *, since: str | None = None, **params: object) -> Any:
    said = {} if since is None else {"unchanged_since": since}
    return graph.mutate(QUERIES, params, name=query, **said)


def head(graph: Graph) -> str:
    return graph.branch().head.id


def ages(graph: Graph) -> dict[str, int]:
    rows = graph.snapshot().scan("node:Person", columns=["id", "age"]).to_pylist()
    return {row["id"]: row["age"] for row in rows}


Step = tuple[str, dict[str, object]]
OK: list[tuple[Step, Step]] = [
    (("age", {"name": "bob", "age": 1}), ("age", {"name": "ann", "age": 2})),
    (("city", {"name": "Bern"}), ("age", {"name": "ann", "age": 2})),
    (("add", {"name": "dan", "age": 3}), ("add", {"name": "eve", "age": 3})),
    (("age", {"name": "ann", "age": 11}), ("older", {"than": 15})),
    (("age", {"name": "ann", "age": 1}), ("lives", {"p": "ann", "c": "Oslo"})),
    (("lives", {"p": "bob", "c": "Oslo"}), ("remove", {"name": "ann"})),
]
LOST: list[tuple[Step, Step, str]] = [
    (("age", {"name": "ann", "age": 1}), ("age", {"name": "ann", "age": 2}), "node:Person 'ann'"),
    (("remove", {"name": "ann"}), ("age", {"name": "ann", "age": 2}), "matches of a condition on node:Person"),
    (("add", {"name": "dan", "age": 1}), ("add", {"name": "dan", "age": 2}), "node:Person 'dan'"),
    (("add", {"name": "dan", "age": 99}), ("older", {"than": 15}), "matches of a condition on node:Person"),
    (("age", {"name": "cas", "age": 31}), ("older", {"than": 15}), "node:Person 'cas'"),
    (("age", {"name": "ann", "age": 99}), ("older", {"than": 15}), "matches of a condition on node:Person"),
    (("lives", {"p": "ann", "c": "Oslo"}), ("remove", {"name": "ann"}), "edge:Lives"),
]


@pytest.mark.parametrize(("first", "second"), OK)
def test_a_change_of_other_rows_is_accepted(graph: Graph, first: Step, second: Step) -> None:
    seen = head(graph)
    run(graph, first[0], **first[1])  # type: ignore[arg-type]
    assert run(graph, second[0], since=seen, **second[1]).commit is not None


@pytest.mark.parametrize(("first", "second", "about"), LOST)
def test_a_change_of_the_read_set_is_refused(graph: Graph, first: Step, second: Step, about: str) -> None:
    seen = head(graph)
    run(graph, first[0], **first[1])  # type: ignore[arg-type]
    now, before = head(graph), ages(graph)
    with pytest.raises(ChangedSinceError, match=about) as caught:
        run(graph, second[0], since=seen, **second[1])
    assert (caught.value.expected, caught.value.actual, caught.value.branch) == (seen, now, "main")
    assert isinstance(caught.value, PreconditionFailedError)
    report = report_for(caught.value)
    assert (report.http_status, report.exit_code) == (412, 4)
    assert (head(graph), ages(graph)) == (now, before), "nothing happened"


def test_a_row_that_was_changed_back_counts_as_unchanged(graph: Graph) -> None:
    seen = head(graph)
    run(graph, "age", name="ann", age=1)
    run(graph, "age", name="ann", age=10)
    graph.optimize()
    assert run(graph, "age", since=seen, name="ann", age=2).affected_nodes == 1


def test_unchanged_since_is_checked_again_under_the_lease(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = head(graph)
    exclusive: Callable[..., Any] = Store.exclusive
    late: list[Callable[[], object]] = [lambda: run(graph, "age", name="ann", age=7)]

    def overtaken(self: Store, *arguments: Any, **named: Any) -> Any:
        if late:
            late.pop()()
        return exclusive(self, *arguments, **named)

    monkeypatch.setattr(Store, "exclusive", overtaken)
    with pytest.raises(ChangedSinceError):
        run(graph, "age", since=seen, name="ann", age=2)
    late.append(lambda: run(graph, "age", name="bob", age=7))
    assert run(graph, "age", since=head(graph), name="ann", age=2).commit is not None
    assert ages(graph) == {"ann": 2, "bob": 7, "cas": 30}


def test_listed_queries_must_have_unchanged_results(graph: Graph) -> None:
    seen = head(graph)
    run(graph, "age", name="ann", age=1)
    one = "query one($n: String) { match { $p: Person $p.name = $n } return { $p.age } }"
    reads: list[ListedRead] = [COUNT, (one, {"n": "bob"})]

    def make(city: str) -> MutationReceipt:
        return graph.mutate(QUERIES, {"name": city}, name="city", unchanged_since=seen, reads=reads)

    assert make("Bern").commit is not None
    run(graph, "add", name="dan", age=None)
    with pytest.raises(ChangedSinceError, match=r"read 1 \('count'\)"):
        make("Paris")
    with pytest.raises(InputError, match="unchanged_since"):
        graph.mutate(QUERIES, {"name": "x"}, name="city", reads=reads)
    with pytest.raises(InputError, match="list of queries"):
        graph.mutate(QUERIES, {"name": "x"}, name="city", unchanged_since=seen, reads=COUNT)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_loads_check_the_rows_that_they_replace(graph: Graph, mode: str) -> None:
    seen = head(graph)
    graph.load({"Person": pa.table({"name": ["eve"], "age": [1]})}, mode="append")
    names = ["dan"] if mode == "append" else ["ann", "dan"]
    rows = {"Person": pa.table({"name": names, "age": [5] * len(names)})}
    if mode == "overwrite":
        with pytest.raises(ChangedSinceError, match="eve"):
            graph.load(rows, mode=mode, unchanged_since=seen)
        return
    assert graph.load(rows, mode=mode, unchanged_since=seen).commit is not None
    with pytest.raises(ChangedSinceError):
        graph.load(rows, mode="merge", unchanged_since=seen)


def test_merges_check_the_rows_that_they_change(graph: Graph) -> None:
    graph.branches.create("draft")
    run(graph.branch("draft"), "age", name="ann", age=1)
    seen = head(graph)
    run(graph, "age", name="bob", age=1)
    assert graph.merge("draft", unchanged_since=seen).commit is not None
    run(graph.branch("draft"), "age", name="cas", age=2)
    run(graph, "add", name="cid", age=1)
    run(graph, "age", name="cas", age=30)
    assert graph.merge("draft", unchanged_since=seen).commit is not None
    run(graph.branch("draft"), "age", name="bob", age=3)
    with pytest.raises(ChangedSinceError, match="bob"):
        graph.merge("draft", unchanged_since=seen, strategy="theirs")


def test_transactions_check_the_rows_that_they_read(graph: Graph) -> None:
    seen = head(graph)

    def block(than: int) -> None:
        with graph.branch().transaction(unchanged_since=seen) as tx:
            run(tx, "older", than=than)
            run(tx, "add", name="dan", age=1)

    run(graph, "age", name="ann", age=11)
    block(25)
    assert ages(graph) == {"ann": 11, "bob": 20, "cas": 0, "dan": 1}
    with pytest.raises(ChangedSinceError):
        block(25)
    with pytest.raises(ChangedSinceError):
        block(10)
    assert ages(graph) == {"ann": 11, "bob": 20, "cas": 0, "dan": 1}


def test_blobs_are_compared_by_content(graph: Graph) -> None:
    def put(photo: bytes) -> None:
        rows = pa.table({"name": ["ann"], "photo": pa.array([photo], pa.large_binary())})
        graph.load({"Person": rows}, mode="merge")

    put(b"x" * 100_000)
    seen = head(graph)
    put(b"x" * 100_000)
    assert run(graph, "age", since=seen, name="ann", age=1).commit is not None
    seen = head(graph)
    put(b"y" * 100_000)
    with pytest.raises(ChangedSinceError):
        run(graph, "age", since=seen, name="ann", age=2)


def test_the_commit_must_be_a_readable_ancestor_of_the_head(graph: Graph) -> None:
    first = head(graph)
    graph.branches.create("draft")
    elsewhere = run(graph.branch("draft"), "age", name="ann", age=1).commit.id
    with pytest.raises(ChangedSinceError, match="is not an ancestor of"):
        run(graph, "age", since=elsewhere, name="bob", age=1)
    with pytest.raises(NotFoundError):
        run(graph, "age", since="01ARZ3NDEKTSV4RRFFQ69G5FAV", name="bob", age=1)
    assert graph.mutate(QUERIES, {"name": "bob", "age": 1}, name="age", branch="draft", unchanged_since=first).commit, (
        "a branch has the history of the one that it was made from"
    )
    for number in range(3):
        run(graph, "age", name="bob", age=number)
    graph.cleanup(keep=1)
    graph.branches.delete("draft")
    graph.cleanup(keep=1)
    with pytest.raises(VersionReclaimedError):
        run(graph, "age", since=first, name="ann", age=1)


def test_the_commit_can_be_a_merged_commit(graph: Graph) -> None:
    graph.branches.create("dev")
    read = run(graph.branch("dev"), "add", name="dee", age=1).commit.id
    run(graph, "city", name="Bern")
    graph.merge("dev", "main")
    run(graph, "age", since=read, name="dee", age=2)
    with pytest.raises(ChangedSinceError):
        run(graph, "age", since=read, name="dee", age=3)
    with pytest.raises(ChangedSinceError, match="Bern"):
        run(graph, "city", since=read, name="Bern")


OTHER_SCHEMA = SCHEMA.replace("age: I64?", "age: I64?  email: String?")


@pytest.fixture
def side(graph: Graph) -> Graph:
    """A branch with a change of its own. On `main`, the schema and the age of ann are different."""
    graph.branches.create("side")
    run(graph.branch("side"), "add", name="own", age=1)
    graph.schema.apply(OTHER_SCHEMA)
    run(graph, "age", name="ann", age=7)
    return graph


def test_a_branch_update_to_another_schema_checks_the_rows_that_it_changes(side: Graph) -> None:
    seen = side.branch("side").head.id
    run(side.branch("side"), "age", name="ann", age=5)
    with pytest.raises(ChangedSinceError, match="node:Person 'ann'"):
        side.branches.update("side", strategy="theirs", unchanged_since=seen)
    run(side.branch("side"), "age", name="ann", age=10)
    assert side.branches.update("side", unchanged_since=seen).commit is not None


def test_a_branch_update_to_another_schema_ignores_changes_of_other_rows(side: Graph) -> None:
    seen = side.branch("side").head.id
    run(side.branch("side"), "age", name="own", age=2)
    run(side.branch("side"), "age", name="bob", age=2)
    run(side.branch("side"), "age", name="ann", age=7)  # as on main, so the update does not change it
    assert side.branches.update("side", unchanged_since=seen).commit is not None


def test_a_branch_update_checks_entities_that_it_inserts(side: Graph) -> None:
    run(side, "add", name="dan", age=4)
    seen = side.branch("side").head.id
    run(side.branch("side"), "add", name="dan", age=9)
    with pytest.raises(ChangedSinceError, match="node:Person 'dan'"):
        side.branches.update("side", strategy="theirs", unchanged_since=seen)


def test_a_branch_update_checks_all_entities_of_a_dropped_type(graph: Graph) -> None:
    graph.branches.create("side")
    run(graph.branch("side"), "lives", p="ann", c="Oslo")
    first = graph.branch("side").head.id
    graph.mutate('query q() { delete Lives where from = "ann" }', branch="side")
    graph.schema.apply("node Person { name: String @key  age: I64?  photo: Blob? }", allow="drops")
    with pytest.raises(ChangedSinceError, match="edge:Lives"):
        graph.branches.update("side", unchanged_since=first)
    assert graph.branches.update("side", unchanged_since=graph.branch("side").head.id).commit is not None


def test_a_branch_update_after_a_rename_of_a_type_is_accepted(graph: Graph) -> None:
    graph.branches.create("side")
    run(graph.branch("side"), "add", name="own", age=1)
    renamed = SCHEMA.replace("Person ", "Human ").replace("node Human {", 'node Human @rename_from("Person") {')
    graph.schema.apply(renamed)
    graph.mutate('query q() { update Human set { age: 7 } where name = "ann" }')
    seen = graph.branch("side").head.id
    run(graph.branch("side"), "age", name="ann", age=1)
    with pytest.raises(ChangedSinceError, match="node:Person 'ann'"):
        graph.branches.update("side", strategy="theirs", unchanged_since=seen)
    run(graph.branch("side"), "age", name="ann", age=10)
    assert graph.branches.update("side", unchanged_since=seen).commit is not None
