"""The commit of a schema change records the numbers of changed entities that a diff and the feed show."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.migrate.counts import Counts, diff_counts, shown_counts

from omnigraph.commit import staged_writes
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.errors import SchemaBoundaryError
from omnigraph.graph import Graph, init, open

SCHEMA = """
node Dog { name: String @key  state: enum(pup, old)  moods: [enum(happy, sad)]?  age: I32? }
node Cat { name: String @key }
edge Likes: Dog -> Cat
"""
DOGS = [
    ("rex", "pup", ["happy", "sad", "happy"], 1),
    ("ada", "old", ["sad"], None),
    ("bo", "old", [], 3),
    ("kim", "old", None, 4),
    ("lu", "pup", ["happy"], 5),
]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = init(tmp_path / "pets", SCHEMA)
    made.load(
        [{"type": "Dog", "data": dict(zip(("name", "state", "moods", "age"), dog, strict=True))} for dog in DOGS]
        + [{"type": "Cat", "data": {"name": name}} for name in ("tom", "kit")]
        + [{"edge": "Likes", "from": name, "to": "tom"} for name in ("rex", "ada", "bo")],
        mode="append",
    )
    return made


PUP = ("enum(pup, old)", 'enum(young @rename_from("pup"), old)')
BOTH = ("enum(pup, old)", 'enum(young @rename_from("pup"), aged @rename_from("old"))')
SAD = ("enum(happy, sad)", 'enum(happy, low @rename_from("sad"))')
WIDER = ("age: I32?", 'age: I64?  tag: String @default("none")  more: String?')
CASES: dict[str, tuple[tuple[tuple[str, str], ...], Counts]] = {
    "a renamed value": ((PUP,), {"node:Dog": (0, 2, 0)}),
    "a renamed value of lists": ((SAD,), {"node:Dog": (0, 2, 0)}),
    "renamed values of two columns": ((PUP, SAD), {"node:Dog": (0, 3, 0)}),
    "all values renamed": ((BOTH,), {"node:Dog": (0, 5, 0)}),
    "a wider number, a default and a nullable property": ((WIDER,), {}),
    "a dropped property": (((" age: I32?", ""),), {}),
    "a dropped edge type": ((("edge Likes: Dog -> Cat", ""),), {"edge:Likes": (0, 0, 3)}),
    "a dropped node type with its edges": (
        (("node Cat { name: String @key }", ""), ("edge Likes: Dog -> Cat", "")),
        {"edge:Likes": (0, 0, 3), "node:Cat": (0, 0, 2)},
    ),
    "a new type": ((("node Cat", "node Cow { name: String @key }\nnode Cat"),), {}),
    "a renamed type with a renamed value": (
        (PUP, ("node Dog", 'node Hound @rename_from("Dog")'), ("Likes: Dog", "Likes: Hound")),
        {"node:Hound": (0, 2, 0)},
    ),
}


def _schema(edits: tuple[tuple[str, str], ...]) -> str:
    new = SCHEMA
    for old, text in edits:
        assert new.count(old) == 1, old
        new = new.replace(old, text)
    return new


@pytest.mark.parametrize(("edits", "expected"), CASES.values(), ids=CASES)
def test_the_counts_of_a_schema_change_are_those_of_its_diff(
    graph: Graph, edits: tuple[tuple[str, str], ...], expected: Counts
) -> None:
    commit = graph.schema.apply(_schema(edits)).commit
    assert commit is not None
    assert shown_counts(commit) == expected
    assert diff_counts(graph, commit) == expected
    assert shown_counts(next(iter(graph.commits))) == expected
    try:
        changes = graph.changes.of(commit.id).changes
    except SchemaBoundaryError:
        return
    found: dict[str, list[int]] = {}
    for change in changes:
        found.setdefault(f"{change.kind}:{change.type_name}", [0, 0, 0])[
            ["insert", "update", "delete"].index(change.op.value)
        ] += 1
    assert {key: tuple(numbers) for key, numbers in found.items()} == expected


def test_a_hard_drop_has_the_same_counts(graph: Graph) -> None:
    edits, expected = CASES["a dropped node type with its edges"]
    commit = graph.schema.apply(_schema(edits), allow="data_loss").commit
    assert commit is not None
    assert shown_counts(commit) == expected


def test_the_deleted_entities_are_counted_when_the_type_is_dropped(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process inserts a cat after the change was prepared. That does not conflict with the drop."""
    edits, _ = CASES["a dropped node type with its edges"]
    passed: list[Failpoint] = []

    def insert(point: Failpoint) -> None:
        passed.append(point)
        if passed == [Failpoint.STAGED]:
            with open(graph.uri) as other:
                other.mutate('query add() { insert Cat { name: "sam" } }')

    monkeypatch.setattr(staged_writes, "reach", insert)
    commit = graph.schema.apply(_schema(edits)).commit
    assert commit is not None
    assert shown_counts(commit) == {"edge:Likes": (0, 0, 3), "node:Cat": (0, 0, 3)}
    assert diff_counts(graph, commit) == shown_counts(commit)


def test_recovery_keeps_the_counts(graph: Graph) -> None:
    edits, expected = CASES["renamed values of two columns"]
    with armed(Failpoint.BEFORE_PUBLISH, "crash"), pytest.raises(SimulatedCrashError):
        graph.schema.apply(_schema(edits))
    with open(graph.uri) as reopened:
        assert shown_counts(next(iter(reopened.commits))) == expected
