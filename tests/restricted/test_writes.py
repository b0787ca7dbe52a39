"""A restricted session writes what the actor may change, and keeps hidden rows and properties as they are.

A write that collides with something hidden has one error, which does not name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE

import omnigraph
from omnigraph.engine.row_scope import RowRules, Rows
from omnigraph.errors import AccessDeniedError, CompileError, ConstraintError, KeyConflictError
from omnigraph.graph import Graph

SCHEMA = """
node Person {
    key: String @key
    owner: String?
    email: String? @unique
    secret: I64?
    level: I64 @default(3)
    photo: Blob?
    scan: Blob?
}
node Log { key: String @key  owner: String?  code: I64 }
edge Knows: Person -> Person @card_in(0..2) { owner: String? }
edge Audits: Log -> Person
"""
OWNERS = {"ann": "kim", "bob": "kim", "cid": "lee", "dan": "lee", "eve": "kim"}
KNOWS = ("ann eve", "bob cid", "cid dan", "eve bob", "cid bob")
RULES = RowRules(
    {"node:Person": "$.owner = $actor", "edge:Audits": Rows.HIDDEN},
    {"node:Person": ("secret", "level", "scan"), "node:Log": ("code",)},
    actor="kim",
)
ALL = "query q() { match { $p: Person } return { $p.key, $p.owner, $p.email, $p.secret, $p.level } order { $p.key } }"


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        rows: list[dict[str, Any]] = [
            {
                "type": "Person",
                "data": {
                    "key": key,
                    "owner": owner,
                    "email": f"{key}@x",
                    "secret": number,
                    "level": number,
                    "photo": "base64:YWJj",
                    "scan": "base64:YWJj",
                },
            }
            for number, (key, owner) in enumerate(OWNERS.items())
        ]
        rows += [{"edge": "Knows", "from": a, "to": b, "data": {}} for a, b in map(str.split, KNOWS)]
        rows += [{"type": "Log", "data": {"key": "l", "owner": "kim", "code": 1}}]
        rows += [{"edge": "Audits", "from": "l", "to": "eve", "data": {}}]
        graph.load(rows, mode="append")
        yield graph


@pytest.fixture
def shown(whole: Graph) -> Graph:
    return whole.restricted(RULES)


def rows_of(graph: Graph) -> dict[str, tuple[Any, ...]]:
    return {row["p.key"]: tuple(row.values())[1:] for row in graph.query(ALL).to_pylist()}


def test_an_insert_gets_defaults_and_nulls_for_hidden_properties(shown: Graph, whole: Graph) -> None:
    receipt = shown.mutate('query q() { insert Person { key: "new", owner: "kim", email: "n" } }')
    assert (receipt.affected_nodes, receipt.affected_edges, receipt.actor) == (1, 0, "kim")
    assert rows_of(whole)["new"] == ("kim", "n", None, 3)


def test_an_update_matches_visible_rows_and_keeps_hidden_properties(shown: Graph, whole: Graph) -> None:
    before = rows_of(whole)
    assert shown.mutate("query q() { update Person set { email: null } where true }").affected_nodes == 3
    after = rows_of(whole)
    assert after == {key: (row[0], None if row[0] == "kim" else row[1], *row[2:]) for key, row in before.items()}
    for name in ("photo", "scan"):
        assert whole.blob("Person", "ann", name).read(0, 3) == b"abc"


def test_a_load_keeps_hidden_properties_of_stored_rows(shown: Graph, whole: Graph) -> None:
    shown.load([{"type": "Person", "data": {"key": "ann", "owner": "kim", "email": "loaded"}}], mode="merge")
    assert rows_of(whole)["ann"] == ("kim", "loaded", 0, 0)
    assert whole.blob("Person", "ann", "scan").read(0, 3) == b"abc"


def test_a_delete_takes_visible_edges_along(shown: Graph, whole: Graph) -> None:
    receipt = shown.mutate('query q() { delete Person where key = "ann" }')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)
    assert sorted(rows_of(whole)) == ["bob", "cid", "dan", "eve"]
    assert shown.mutate('query q() { delete Person where key = "cid" }').commit is None


DENIED: dict[str, Callable[[Graph], object]] = {
    "insert over a hidden row": lambda g: g.mutate('query q() { insert Person { key: "cid", owner: "kim" } }'),
    "merge over a hidden row": lambda g: g.mutate('query q() { merge Person { key: "cid", owner: "kim" } }'),
    "append a hidden key": lambda g: g.load(
        [{"type": "Person", "data": {"key": "cid", "owner": "kim"}}], mode="append"
    ),
    "load over a hidden row": lambda g: g.load(
        [{"type": "Person", "data": {"key": "cid", "owner": "kim"}}], mode="merge"
    ),
    "unique value of a hidden row": lambda g: g.mutate(
        'query q() { update Person set { email: "cid@x" } where key = "ann" }'
    ),
    "a row that is not changeable after": lambda g: g.mutate(
        'query q() { update Person set { owner: "lee" } where key = "ann" }'
    ),
    "an insert that is not changeable": lambda g: g.mutate('query q() { insert Person { key: "z", owner: "lee" } }'),
    "an insert without an owner": lambda g: g.mutate('query q() { insert Person { key: "z" } }'),
    "a node with an edge to a hidden node": lambda g: g.mutate('query q() { delete Person where key = "bob" }'),
    "a node with an edge of a hidden type": lambda g: g.mutate('query q() { delete Person where key = "eve" }'),
    "all nodes": lambda g: g.mutate("query q() { delete Person where true }"),
    "an edge beyond the cardinality": lambda g: g.mutate('query q() { insert Knows { from: "ann", to: "bob" } }'),
    "a required hidden property": lambda g: g.mutate('query q() { insert Log { key: "m" } }'),
    "an overwrite": lambda g: g.load([{"type": "Log", "data": {"key": "l"}}], mode="overwrite"),
}


@pytest.mark.parametrize("name", DENIED)
def test_a_collision_with_hidden_rows_is_denied_without_naming_them(name: str, shown: Graph, whole: Graph) -> None:
    before, head = rows_of(whole), whole.branch().head.id
    with pytest.raises(AccessDeniedError) as caught:
        DENIED[name](shown)
    said = f"{caught.value} {caught.value.hint}".replace("kim", "")
    assert not [
        word for word in ("cid", "dan", "lee", "Audits", "secret", "code", "Log") if word in said.replace("kim", "")
    ]
    assert (rows_of(whole), whole.branch().head.id) == (before, head)


def test_all_collisions_have_the_same_error(whole: Graph) -> None:
    said = set()
    for act in DENIED.values():
        with pytest.raises(AccessDeniedError) as caught:
            act(whole.restricted(RULES))
        said.add((str(caught.value), caught.value.hint))
    assert len(said) == 1


def test_errors_about_visible_rows_are_the_usual_ones(shown: Graph) -> None:
    with pytest.raises(ConstraintError, match="bob@x"):
        shown.mutate('query q() { update Person set { email: "bob@x" } where key = "ann" }')
    with pytest.raises(ConstraintError, match="not found in Person"):
        shown.mutate('query q() { insert Knows { from: "ann", to: "cid" } }')
    with pytest.raises(KeyConflictError, match="ann"):
        shown.load([{"type": "Person", "data": {"key": "ann", "owner": "kim"}}], mode="append")
    for text in (
        'query q() { update Person set { secret: 1 } where key = "ann" }',
        "query q() { delete Person where secret = 1 }",
        "query q() { delete Audits where true }",
    ):
        with pytest.raises(CompileError):
            shown.mutate(text)


def test_rows_before_and_after_have_to_satisfy_the_change_condition(whole: Graph) -> None:
    change = RowRules({"node:Person": "$.key in $groups"}, {"node:Person": ("email",)}, groups=("ann", "new"))
    graph = whole.restricted(RowRules(), change)
    graph.mutate('query q() { update Person set { secret: 9 } where key = "ann" }')
    graph.mutate('query q() { insert Person { key: "new" } }')
    for text in (
        'query q() { update Person set { secret: 9 } where key = "bob" }',
        'query q() { insert Person { key: "other" } }',
        'query q() { update Person set { email: "e" } where key = "ann" }',
        'query q() { delete Person where key = "dan" }',
    ):
        with pytest.raises(AccessDeniedError):
            graph.mutate(text)
    assert rows_of(whole)["ann"] == ("kim", "ann@x", 9, 0)
    hidden = whole.restricted(RowRules(), RowRules(otherwise=Rows.HIDDEN))
    with pytest.raises(AccessDeniedError):
        hidden.mutate('query q() { update Person set { secret: 9 } where key = "ann" }')


def test_a_repeated_request_gets_the_first_receipt(shown: Graph) -> None:
    text = 'query q() { insert Person { key: "new", owner: "kim" } }'
    first, again = (shown.mutate(text, idempotency_key="one") for _ in range(2))
    assert first.commit is not None
    assert again.commit is not None
    assert first.commit.id == again.commit.id
    rows = [{"type": "Person", "data": {"key": "other", "owner": "kim"}}]
    loads = [shown.load(rows, mode="append", idempotency_key="two") for _ in range(2)]
    assert loads[0].to_json()["commit"]["graph_commit_id"] == loads[1].to_json()["commit"]["graph_commit_id"]


def test_writes_of_others_show_at_once(shown: Graph, whole: Graph) -> None:
    text = "query q() { match { $p: Person } return { count($p) as n } }"
    prepared = shown.prepare(text)
    assert prepared().to_pylist() == [{"n": 3}]
    whole.mutate('query q() { update Person set { owner: "kim" } where key = "cid" }')
    assert prepared().to_pylist() == [{"n": 4}]
    whole.mutate('query q() { update Person set { owner: null } where key = "ann" }')
    assert prepared().to_pylist() == [{"n": 3}]
    knows = "query q() { match { $p: Person  $p knows $x } return { $p.key, $x.key } order { $p.key, $x.key } }"
    assert [tuple(row.values()) for row in shown.query(knows).to_pylist()] == [
        ("bob", "cid"),
        ("cid", "bob"),
        ("eve", "bob"),
    ]


def test_concurrent_writers_of_two_scopes_lose_nothing(whole: Graph) -> None:
    lee = RowRules({"node:Person": "$.owner = $actor"}, {"node:Person": ("secret", "level", "scan")}, actor="lee")

    def add(graph: Graph, owner: str, number: int) -> None:
        graph.mutate(
            "query q($k: String, $o: String) { insert Person { key: $k, owner: $o } }",
            {"k": f"{owner}{number}", "o": owner},
            timeout=PATIENCE,
        )

    with ThreadPoolExecutor(4) as threads:
        graphs = ((whole.restricted(RULES), "kim"), (whole.restricted(lee), "lee"))
        jobs = [threads.submit(add, graph, owner, number) for number in range(6) for graph, owner in graphs]
        for job in jobs:
            job.result()
    assert set(rows_of(whole)) == {*OWNERS, *(f"{owner}{number}" for owner in ("kim", "lee") for number in range(6))}
