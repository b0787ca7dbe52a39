"""Unique values that rows keep are not searched for again. Conflicts are found all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import ConstraintError
from omnigraph.graph import Graph

SCHEMA = """
node P { name: String @key  mail: String? @unique  age: I32?  floor: I32?  room: I32?  @unique(floor, room) }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        rows = [{"name": name, "mail": f"{name}@x", "floor": 1, "room": i} for i, name in enumerate("abc")]
        graph.load({"P": rows}, mode="append")
        yield graph


ALLOWED = {
    "another property": 'update P set { age: 1 } where name = "a"',
    "the same values again": 'insert P { name: "a", mail: "a@x", floor: 1, room: 0 }',
    "a swap": 'update P set { mail: "b@x" } where name = "a"  update P set { mail: "a@x" } where name = "b"',
    "a value that another row gives up": 'update P set { mail: null } where name = "b"  '
    'update P set { mail: "b@x" } where name = "a"',
    "one field of two": 'update P set { room: 7 } where name = "a"',
    "a new row": 'insert P { name: "d", mail: "d@x", floor: 2, room: 0 }',
}
REFUSED = {
    "a stored value": 'update P set { mail: "b@x" } where name = "a"',
    "a stored value of a new row": 'insert P { name: "d", mail: "a@x" }',
    "a value that a written row keeps": 'update P set { age: 1 } where name = "a"  insert P { name: "d", mail: "a@x" }',
    "a value for two rows": 'update P set { mail: "z@x" } where floor = 1',
    "one field of two": 'update P set { room: 1 } where name = "a"',
}


@pytest.mark.parametrize("statements", ALLOWED.values(), ids=ALLOWED)
def test_allowed(graph: Graph, statements: str) -> None:
    graph.mutate(f"query q() {{ {statements} }}")
    assert graph.verify().total == 0


@pytest.mark.parametrize("statements", REFUSED.values(), ids=REFUSED)
def test_refused(graph: Graph, statements: str) -> None:
    with pytest.raises(ConstraintError):
        graph.mutate(f"query q() {{ {statements} }}")


def test_a_merge_load_is_checked_the_same_way(graph: Graph) -> None:
    graph.load({"P": [{"name": "a", "mail": "a@x"}, {"name": "b", "mail": "new@x"}]}, mode="merge")
    with pytest.raises(ConstraintError):
        graph.load({"P": [{"name": "a", "mail": "a@x"}, {"name": "b", "mail": "c@x"}]}, mode="merge")
    assert graph.verify().total == 0
