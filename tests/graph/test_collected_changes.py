"""A transaction collects the changes of its queries: as if each query had been committed, but with one commit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit import transaction_branches
from omnigraph.commit.failpoints import Failpoint, FailpointError, armed
from omnigraph.commit.refs import list_branch_refs
from omnigraph.engine import transaction
from omnigraph.errors import (
    ConstraintError,
    KeyConflictError,
    OmnigraphError,
    StorageError,
    StorageErrorKind,
    TransactionConflictError,
    TransactionEndedError,
)
from omnigraph.graph import Graph
from omnigraph.graph.transaction import Transaction
from omnigraph.write import changed_state

SCHEMA = """
node Person { name: String @key  mail: String? @unique  age: I64?  photo: Blob?  @range(age, 0..100) }
node City { name: String @key }
edge Knows: Person -> Person { @key(src, dst) since: I64? }
edge Lives: Person -> City @card(0..1)
edge Met: Person -> Person { place: String? }
"""
QUERIES = """
query put($p: String, $m: String?, $n: I64) { insert Person { name: $p, mail: $m, age: $n } }
query photo($p: String, $b: Blob?) { merge Person { name: $p, photo: $b } }
query create($p: String) { create Person { name: $p } }
query merge($p: String, $n: I64) { merge Person { name: $p, age: $n } }
query older($p: String, $n: I64) { update Person set { age: $n } where name = $p }
query all_older($n: I64) { update Person set { age: 50 } where age > $n }
query mailed($m: String?, $n: I64) { update Person set { age: $n } where mail = $m }
query gone($p: String) { delete Person where name = $p }
query young($n: I64) { delete Person where age < $n }
query city($c: String) { insert City { name: $c } }
query razed($c: String) { delete City where name = $c }
query knows($p: String, $q: String, $n: I64) { insert Knows { from: $p, to: $q, since: $n } }
query again($p: String, $q: String, $n: I64) { merge Knows { from: $p, to: $q, since: $n } }
query forgets($p: String) { delete Knows where from = $p }
query lives($p: String, $c: String) { insert Lives { from: $p, to: $c } }
query leaves($p: String) { delete Lives where from = $p }
query met($p: String, $q: String) { insert Met { from: $p, to: $q, place: "here" } }
query both($p: String, $q: String) {
  insert Person { name: $p }
  insert Person { name: $q, age: 3 }
  insert Knows { from: $p, to: $q }
}
"""
PARAMETERS = {
    "put": "pmn", "photo": "pb", "create": "p", "merge": "pn", "older": "pn", "all_older": "n", "mailed": "mn",
    "gone": "p", "young": "n", "city": "c", "razed": "c", "knows": "pqn", "again": "pqn", "forgets": "p",
    "lives": "pc", "leaves": "p", "met": "pq", "both": "pq",
}  # fmt: skip


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path / "graph") as graph:
        yield graph


def made(place: Path) -> Graph:
    graph = omnigraph.init(place, SCHEMA)
    for name in "abc":
        graph.mutate(QUERIES, {"p": name, "m": f"{name}@", "n": 20}, name="put")
    graph.mutate(QUERIES, {"c": "Oslo"}, name="city")
    graph.mutate(QUERIES, {"p": "a", "q": "b", "n": 1}, name="knows")
    return graph


def run(on: Graph | Transaction, query: str, **params: object) -> object:
    """The counts of a query, or the class of its error."""
    try:
        receipt = on.mutate(QUERIES, params, name=query)
    except OmnigraphError as error:
        return type(error)
    return receipt.affected_nodes, receipt.affected_edges


def contents(on: Graph | Transaction) -> dict[str, list[tuple[object, ...]]]:
    """All rows. The ids of edges without a key are generated, so they are left out."""
    view = on.snapshot()
    found = {}
    for key, columns in (
        ("node:Person", ["id", "mail", "age"]),
        ("node:City", ["id"]),
        ("edge:Knows", ["id", "src", "dst", "since"]),
        ("edge:Lives", ["src", "dst"]),
        ("edge:Met", ["src", "dst", "place"]),
    ):
        rows = view.scan(key, columns=columns).to_pylist()
        found[key] = sorted((tuple(row[name] for name in columns) for row in rows), key=repr)
    blobs = [view.entity("node:Person", str(row[0])) for row in found["node:Person"]]
    found["photos"] = [(blob["photo"],) for blob in blobs if blob is not None]
    return found


def statement(chance: random.Random) -> tuple[str, dict[str, object]]:
    query = chance.choice(list(PARAMETERS))
    values = {
        "p": chance.choice("abcdefgh"),
        "q": chance.choice("abcdefgh"),
        "c": chance.choice(["Oslo", "Rome", "Bern"]),
        "m": chance.choice([None, *(f"{letter}@" for letter in "abcd")]),
        "b": chance.choice([None, "base64:YWJj", "base64:ZGVm"]),
        "n": chance.choice([1, 5, 20, 60, 101]),
    }
    return query, {name: values[name] for name in PARAMETERS[query]}


@pytest.mark.parametrize("seed", range(6))
def test_a_transaction_does_what_its_queries_do_one_by_one(tmp_path: Path, thresholds: Thresholds, seed: int) -> None:
    chance = random.Random(seed)
    thresholds(transaction, MOST_ROWS=chance.choice([5, 50_000, 50_000]))
    thresholds(changed_state, PARTS=chance.choice([1, 3, 64]), FEW=chance.choice([0, 1_000]))
    with made(tmp_path / "one") as one, made(tmp_path / "other") as other:
        commits = len(list(one.commits))
        with one.branch().transaction() as tx:
            for _ in range(30):
                query, params = statement(chance)
                assert run(tx, query, **params) == run(other, query, **params), (query, params)
                if chance.random() < 0.1:
                    assert contents(tx) == contents(other), (query, params)
        assert contents(one) == contents(other)
        assert len(list(one.commits)) == commits + 1


def test_queries_without_reads_need_no_branch(graph: Graph) -> None:
    store = graph.session.store
    files = sorted(info.path for info in store.objects.list(""))
    tables = {key: pin.ref for key, pin in graph.snapshot().tables.items()}
    with graph.branch().transaction() as tx:
        for number in range(5):
            run(tx, "put", p=f"new{number}", m=None, n=1)
            run(tx, "knows", p=f"new{number}", q="a", n=2)
        run(tx, "gone", p="b")
        assert list_branch_refs(store.objects) == {}
        inside = {info.path for info in store.objects.list("")} - set(files)
        assert {path.partition("/")[0] for path in inside} == {"__transactions", "__work"}
    after = graph.snapshot().tables
    moved = {key: pin.ref.version - tables[key].version for key, pin in after.items()}
    assert moved == {"node:Person": 1, "node:City": 0, "edge:Knows": 1, "edge:Lives": 0, "edge:Met": 0}
    assert tx.commit is not None
    assert [(one.key, one.inserted, one.updated, one.deleted) for one in tx.commit.counts or ()] == [
        ("edge:Knows", 5, 0, 1),
        ("node:Person", 5, 0, 1),
    ]


def test_a_failed_block_leaves_no_file(graph: Graph) -> None:
    store = graph.session.store
    files = sorted(info.path for info in store.objects.list("") if not info.path.startswith("__lease"))

    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, "put", p="new", m=None, n=1)
            run(tx, "gone", p="a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert sorted(info.path for info in store.objects.list("") if not info.path.startswith("__lease")) == files


def test_a_read_sees_all_earlier_queries(graph: Graph) -> None:
    names = "query names() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
    before = graph.branch().head.id
    with graph.branch().transaction() as tx:
        first = tx.query(names)
        assert first.graph_commit_id == before
        assert list_branch_refs(graph.session.store.objects) == {}, "nothing was written yet"
        run(tx, "put", p="new", m=None, n=7)
        run(tx, "gone", p="a")
        second = tx.query(names)
        assert [row["p.name"] for row in second.to_pylist()] == ["b", "c", "new"]
        assert second.graph_commit_id is None
        run(tx, "older", p="new", n=8)
        run(tx, "put", p="last", m=None, n=9)
        assert tx.entity("Person", "new") == {"id": "new", "name": "new", "mail": None, "age": 8, "photo": None}
        assert [row["p.name"] for row in graph.query(names).to_pylist()] == ["a", "b", "c"]
    assert [row["p.name"] for row in graph.query(names).to_pylist()] == ["b", "c", "last", "new"]


def test_a_failed_query_changes_nothing(graph: Graph) -> None:
    with graph.branch().transaction() as tx:
        run(tx, "put", p="new", m="x@", n=1)
        assert run(tx, "create", p="new") is KeyConflictError
        assert run(tx, "put", p="other", m="x@", n=1) is ConstraintError, "the mail is taken"
        assert run(tx, "knows", p="other", q="new", n=1) is ConstraintError, "there is no such person"
        assert run(tx, "put", p="other", m=None, n=101) is ConstraintError
        assert run(tx, "knows", p="new", q="a", n=1) == (0, 1)
    assert [row[0] for row in contents(graph)["node:Person"]] == ["a", "b", "c", "new"]


def test_constraints_hold_on_the_new_head(graph: Graph) -> None:
    """Another writer takes the mail, and deletes the end of an edge, after the transaction has checked them."""
    for theirs in (("put", {"p": "y", "m": "x@", "n": 1}), ("gone", {"p": "c"})):

        def block(query: str, params: dict[str, object]) -> None:
            with graph.branch().transaction() as tx:
                run(tx, "put", p="x", m="x@", n=1)
                run(tx, "knows", p="a", q="c", n=1)
                run(graph, query, **params)

        with pytest.raises(TransactionConflictError):
            block(*theirs)
        assert "x" not in [row[0] for row in contents(graph)["node:Person"]]
        assert transaction_branches.list_all(graph.session.store) == []
        assert list_branch_refs(graph.session.store.objects) == {}


def test_another_commit_of_other_rows_is_merged(graph: Graph) -> None:
    with graph.branch().transaction() as tx:
        run(tx, "put", p="x", m=None, n=1)
        run(tx, "older", p="a", n=30)
        run(graph, "older", p="b", n=40)
    assert contents(graph)["node:Person"] == [
        ("a", "a@", 30),
        ("b", "b@", 40),
        ("c", "c@", 20),
        ("x", None, 1),
    ]
    assert list_branch_refs(graph.session.store.objects) == {}


def test_cleanup_keeps_the_state_where_a_transaction_began(graph: Graph) -> None:
    with graph.branch().transaction() as tx:
        run(tx, "older", p="a", n=30)
        for age in (1, 2, 3):
            run(graph, "older", p="b", n=age)
        graph.optimize()
        graph.cleanup(keep=1, orphans_older_than=timedelta(0))
        assert tx.entity("Person", "b") == {
            "id": "b",
            "name": "b",
            "mail": "b@",
            "age": 20,
            "photo": None,
        }
    assert [row[2] for row in contents(graph)["node:Person"]] == [30, 3, 20]


def test_a_transaction_that_was_removed_as_abandoned_commits_nothing(graph: Graph) -> None:
    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, "put", p="x", m=None, n=1)
            (found,) = transaction_branches.list_all(graph.session.store)
            transaction_branches.remove(graph.session.store, found)

    with pytest.raises(TransactionEndedError, match="expired"):
        block()
    assert [row[0] for row in contents(graph)["node:Person"]] == ["a", "b", "c"]


@pytest.mark.parametrize("point", [Failpoint.PUBLISHED, Failpoint.SIDECAR_REMOVED])
@pytest.mark.parametrize("step", ["read", "load"])
def test_a_step_that_failed_after_its_commit_is_not_written_again(graph: Graph, point: Failpoint, step: str) -> None:
    """The caller handles the error and goes on."""
    before = contents(graph)

    def block() -> None:
        with graph.branch().transaction() as tx:
            run(tx, "met", p="a", q="b")
            tx.snapshot()
            if step == "read":
                run(tx, "met", p="a", q="c")
            with armed(point), pytest.raises(FailpointError):
                _ = tx.snapshot() if step == "read" else tx.load({"City": pa.table({"name": ["new"]})}, mode="append")
            run(tx, "put", p="last", m=None, n=1)

    with pytest.raises(TransactionEndedError, match="outcome is unknown"):
        block()
    assert contents(graph) == before
    assert graph.verify().total == 0


def test_a_query_whose_collected_changes_cannot_be_written_changes_nothing(
    graph: Graph, thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch
) -> None:
    thresholds(transaction, MOST_ROWS=2)
    with graph.branch().transaction() as tx:
        for number in range(3):
            run(tx, "put", p=f"n{number}", m=None, n=1)
        with monkeypatch.context() as patch:
            patch.setattr(transaction_branches, "open_branch", _refuse)
            assert run(tx, "put", p="refused", m=None, n=1) is StorageError
        run(tx, "put", p="last", m=None, n=1)
    assert [row[0] for row in contents(graph)["node:Person"]] == ["a", "b", "c", "last", "n0", "n1", "n2"]


def _refuse(*_: object) -> None:
    raise StorageError("no answer", kind=StorageErrorKind.TRANSIENT, uri="memory://")


def test_many_rows_go_to_the_branch(graph: Graph, thresholds: Thresholds) -> None:
    """So that a long transaction does not fill the memory."""
    thresholds(transaction, MOST_ROWS=3)
    with graph.branch().transaction() as tx:
        for number in range(10):
            run(tx, "put", p=f"n{number}", m=None, n=1)
        assert len(list_branch_refs(graph.session.store.objects)) == 1
    assert len(contents(graph)["node:Person"]) == 13
    assert list_branch_refs(graph.session.store.objects) == {}
