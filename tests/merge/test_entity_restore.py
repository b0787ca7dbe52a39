"""Restores of single entities: rows return, later entities go, and constraints hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import omnigraph
from omnigraph.commit.manifest import Commit
from omnigraph.errors import (
    ConstraintError,
    InputError,
    MergeSchemaError,
    NotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I64?  mail: String? @unique  photo: Blob? }
edge Knows: Person -> Person { since: I64? }
"""


@pytest.fixture
def graph(place: Path) -> Graph:
    """Two nodes and an edge, tagged `v1`; then both nodes are deleted, and a third one is created."""
    made = omnigraph.init(place, SCHEMA, actor="act-kim")
    rows = [{"type": "Person", "data": {"name": "ann", "age": 1, "mail": "m", "photo": "base64:cDA="}}]
    made.load(rows, mode="append")
    _do(made, 'insert Person { name: "bob", age: 2 }')
    _do(made, 'insert Knows { from: "ann", to: "bob", since: 3 }')
    made.tags.create("v1")
    return made


def _do(graph: Graph, text: str, branch: str = "main") -> Commit:
    commit = graph.mutate(f"query q() {{ {text} }}", branch=branch).commit
    assert commit is not None
    return commit


def _names(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(graph.snapshot(branch=branch).scan("node:Person", columns=["id"])["id"].to_pylist())


def _edges(graph: Graph) -> list[tuple[str, str]]:
    rows = graph.snapshot().scan("edge:Knows", columns=["src", "dst"])
    return sorted(zip(rows["src"].to_pylist(), rows["dst"].to_pylist(), strict=True))


def test_a_changed_entity_gets_its_former_row_with_its_blobs(graph: Graph) -> None:
    graph.load([{"type": "Person", "data": {"name": "ann", "age": 9, "photo": "base64:cDE="}}], mode="merge")
    head = graph.branch("main").head
    receipt = graph.restore("Person", "ann", "v1", labels={"ticket": "7"})
    assert receipt.to_json()["changes"] == {"node:Person": {"inserted": 0, "updated": 1, "deleted": 0}}
    found = graph.entity("Person", "ann")
    assert found is not None
    assert (found["age"], found["mail"], graph.blob("Person", "ann", "photo").read()) == (1, "m", b"p0")
    assert receipt.commit is not None
    assert (receipt.commit.parent, receipt.commit.writer) == (head.id, "Restore")
    assert dict(receipt.commit.labels)["restored_from"] == receipt.from_commit == graph.snapshot(commit="v1").commit.id


def test_a_later_node_is_deleted_with_its_edges(graph: Graph) -> None:
    _do(graph, 'insert Person { name: "cid" }')
    _do(graph, 'insert Knows { from: "cid", to: "bob" }')
    receipt = graph.restore("Person", ["cid"], "v1")
    assert (_names(graph), _edges(graph)) == (["ann", "bob"], [("ann", "bob")])
    assert receipt.changes["edge:Knows"].deleted == 1


def test_edges_return_on_request(graph: Graph) -> None:
    _do(graph, 'delete Person where name = "ann"')
    assert set(graph.restore("Person", ["ann"], "v1", preview=True).changes) == {"node:Person"}
    _do(graph, 'insert Person { name: "ann" }')
    _do(graph, 'insert Knows { from: "bob", to: "ann" }')
    receipt = graph.restore("Person", ["ann"], "v1", edges=True)
    assert (_edges(graph), receipt.edges_omitted) == ([("ann", "bob")], 0), "the later edge goes"
    assert graph.verify().ok


def test_an_edge_without_its_other_node_is_left_out(graph: Graph) -> None:
    for name in ("ann", "bob"):
        _do(graph, f'delete Person where name = "{name}"')
    receipt = graph.restore("Person", ["ann"], "v1", edges=True)
    assert (_names(graph), _edges(graph), receipt.edges_omitted) == (["ann"], [], 1)
    receipt = graph.restore("Person", ["ann", "bob"], "v1", edges=True)
    assert (_edges(graph), receipt.edges_omitted) == ([("ann", "bob")], 0)


def test_an_edge_is_restored_by_its_id(graph: Graph) -> None:
    edge = graph.snapshot().scan("edge:Knows")["id"][0].as_py()
    _do(graph, 'update Knows set { since: 4 } where from = "ann"')
    graph.restore("Knows", edge, "v1")
    found = graph.entity("Knows", edge)
    assert found is not None
    assert found["since"] == 3
    _do(graph, 'delete Person where name = "ann"')
    with pytest.raises(ConstraintError):
        graph.restore("Knows", edge, "v1")
    with pytest.raises(InputError, match="is an edge type"):
        graph.restore("Knows", edge, "v1", edges=True)


def test_a_restore_that_breaks_a_constraint_is_refused(graph: Graph) -> None:
    _do(graph, 'update Person set { mail: null } where name = "ann"')
    _do(graph, 'update Person set { mail: "m" } where name = "bob"')
    for preview in (True, False):
        with pytest.raises(ConstraintError):
            graph.restore("Person", ["ann"], "v1", preview=preview)
    graph.restore("Person", ["ann", "bob"], "v1")
    assert graph.restore("Person", ["ann", "bob"], "v1").commit is None, "nothing is left to do"


def test_a_state_is_a_commit_a_tag_a_time_or_a_version(graph: Graph) -> None:
    view, now = graph.snapshot(commit="v1"), datetime.now(UTC)
    _do(graph, 'update Person set { age: 7 } where name = "ann"')
    for at in (view, view.commit.id, "v1", now, view.manifest_version):
        assert graph.restore("Person", ["ann"], at, preview=True).from_commit == view.commit.id
    graph.branches.create("side")
    graph.branch("side").restore("Person", ["ann"], "v1")
    side, main = (graph.branch(name).entity("Person", "ann") for name in ("side", "main"))
    assert side is not None
    assert main is not None
    assert (side["age"], main["age"]) == (1, 7)


def test_wrong_requests_are_refused(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="there is no Person 'nobody', neither on branch 'main' nor at commit"):
        graph.restore("Person", ["ann", "nobody"], "v1")
    with pytest.raises(NotFoundError, match="has no type node:Robot"):
        graph.restore("Robot", ["x"], "v1")
    with pytest.raises(NotFoundError):
        graph.restore("Person", ["ann"], "v2")
    with pytest.raises(InputError, match="needs the ids"):
        graph.restore("Person", [], "v1")
    with pytest.raises(InputError, match="must be a text"):
        graph.restore("Person", [1], "v1")  # type: ignore[list-item]
    with pytest.raises(PreconditionFailedError):
        graph.restore("Person", ["ann"], "v1", expect_head="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with omnigraph.open(graph.uri, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.restore("Person", ["ann"], "v1")


def test_a_removed_state_is_refused(graph: Graph) -> None:
    old = graph.branch("main").head.parent
    assert old is not None
    _do(graph, 'update Person set { age: 7 } where name = "ann"')
    graph.cleanup(keep=1, orphans_older_than=timedelta(0))
    with pytest.raises(VersionReclaimedError):
        graph.restore("Person", ["ann"], old)


def test_a_type_with_other_properties_is_refused(place: Path) -> None:
    from tests.commit.graphs import SCHEMA as TABLES_SCHEMA
    from tests.commit.graphs import create, evolve_to

    graph = create(place)
    old = graph.branch("main").head.id
    evolve_to(graph, TABLES_SCHEMA + "\nnode Extra { k: String @key }\n", [])
    graph.refresh()
    graph.mutate('query q() { insert Extra { k: "x" } }')
    with pytest.raises(MergeSchemaError, match="node:Extra does not exist at commit"):
        graph.restore("Extra", ["x"], old)


def test_a_repeated_request_returns_the_first_receipt(graph: Graph) -> None:
    _do(graph, 'update Person set { age: 7 } where name = "ann"')
    first = graph.restore("Person", ["ann"], "v1", idempotency_key="r1")
    _do(graph, 'update Person set { age: 8 } where name = "ann"')
    assert graph.restore("Person", ["ann"], "v1", idempotency_key="r1") == first
    with pytest.raises(InputError, match="another restore"):
        graph.restore("Person", ["bob"], "v1", idempotency_key="r1")


# Other schemas

RENAMED = """
node Human @rename_from("Person") {
    name: String @key
    years: I64? @rename_from("age")
    mail: String? @unique
    picture: Blob? @rename_from("photo")
    level: I64 @default(7)
    note: String?
}
edge Meets: Human -> Human @rename_from("Knows") { since: I64?  weight: I64 @default(5) }
"""


def _human(graph: Graph, name: str) -> dict[str, object]:
    found = graph.entity("Human", name)
    assert found is not None
    return {prop: found[prop] for prop in ("years", "mail", "level", "note")}


def test_an_entity_of_an_older_schema_gets_the_properties_of_the_present_one(graph: Graph) -> None:
    """Renames are followed. Properties that the older schema lacks stay as they are."""
    graph.schema.apply(RENAMED)
    _do(graph, 'update Human set { years: 9, mail: "z", level: 8, note: "n" } where name = "ann"')
    graph.load([{"type": "Human", "data": {"name": "ann", "picture": "base64:cDE=", "years": 9}}], mode="merge")
    _do(graph, 'update Human set { level: 8, note: "n" } where name = "ann"')
    receipt = graph.restore("Human", "ann", "v1")
    assert receipt.to_json()["changes"] == {"node:Human": {"inserted": 0, "updated": 1, "deleted": 0}}
    assert _human(graph, "ann") == {"years": 1, "mail": "m", "level": 8, "note": "n"}
    assert graph.blob("Human", "ann", "picture").read() == b"p0"
    assert graph.verify().ok


def test_a_deleted_entity_of_an_older_schema_returns_with_defaults(graph: Graph) -> None:
    graph.schema.apply(RENAMED)
    _do(graph, 'delete Human where name = "ann"')
    receipt = graph.restore("Human", ["ann"], "v1", edges=True)
    assert (receipt.changes["node:Human"].inserted, receipt.changes["edge:Meets"].inserted) == (1, 1)
    assert _human(graph, "ann") == {"years": 1, "mail": "m", "level": 7, "note": None}
    (edge,) = graph.snapshot().scan("edge:Meets").to_pylist()
    assert (edge["src"], edge["dst"], edge["since"], edge["weight"]) == ("ann", "bob", 3, 5)
    assert graph.blob("Human", "ann", "picture").read() == b"p0"
    assert graph.restore("Human", ["ann"], "v1", edges=True).commit is None


def test_a_restore_does_not_mix_up_properties_whose_names_were_swapped(place: Path) -> None:
    text = "node P { k: String @key  a: String?  b: String? }"
    with omnigraph.init(place, text) as graph:
        _do(graph, 'insert P { k: "x", a: "was a", b: "was b" }')
        graph.tags.create("v1")
        graph.schema.apply(text.replace("a: String?", 't: String? @rename_from("a")'))
        graph.schema.apply('node P { k: String @key  t: String?  a: String? @rename_from("b") }')
        graph.schema.apply('node P { k: String @key  b: String? @rename_from("t")  a: String? }')
        _do(graph, 'update P set { a: "new", b: "new" } where k = "x"')
        graph.restore("P", "x", "v1")
        found = graph.entity("P", "x")
        assert found is not None
        assert (found["a"], found["b"]) == ("was b", "was a")


def test_a_restore_on_an_older_branch_names_types_as_the_branch_does(graph: Graph) -> None:
    graph.branches.create("old")
    graph.schema.apply(RENAMED)
    (edge,) = graph.snapshot(commit="v1").scan("edge:Knows")["id"].to_pylist()
    _do(graph, 'delete Knows where from = "ann"', "old")
    receipt = graph.restore("Knows", edge, graph.branch("main").head.id, branch="old")
    assert receipt.changes["edge:Knows"].inserted == 1
    found = graph.branch("old").entity("Knows", edge)
    assert found is not None
    assert found["since"] == 3


def test_a_restore_that_lacks_a_required_value_is_refused(graph: Graph) -> None:
    _do(graph, 'update Person set { age: null } where name = "bob"')
    graph.tags.create("v2")
    _do(graph, 'update Person set { age: 3 } where name = "bob"')
    graph.schema.apply(SCHEMA.replace("age: I64?", "age: I64"))
    with pytest.raises(ConstraintError, match=r"Person\.age"):
        graph.restore("Person", "bob", "v2")
    assert graph.restore("Person", "bob", "v1").commit is not None
