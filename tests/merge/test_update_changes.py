"""A branch update reports the changes between the old and the new head of the branch."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph, MergeConflictsError, MergeReceipt

BEFORE = """
node Person { name: String @key  age: I32?  status: enum(open, closed)?  nick: String?  photo: Blob? }
node City { name: String @key  size: I32? }
node Old { name: String @key }
edge Lives: Person -> City { since: I32? }
"""
AFTER = """
node Human @rename_from("Person") {
    name: String @key
    years: I64? @rename_from("age")
    status: enum(open, closed)?
    level: I32 @default(7)
    photo: Blob?
}
node City { name: String @key  size: I32? }
node New { name: String @key }
edge Homes: Human -> City @rename_from("Lives") { since: I32? }
"""
RENAMED = {"node:Human": "node:Person", "edge:Homes": "edge:Lives"}
SHARED = {
    "node:Human": {"years": "age", "status": "status", "photo": "photo"},
    "node:City": {"size": "size"},
    "edge:Homes": {"src": "src", "dst": "dst", "since": "since"},
}
Counts = dict[str, tuple[int, int, int]]


def rows_of(graph: Graph, commit: str) -> dict[str, dict[str, dict[str, Any]]]:
    """All rows of a state by type key and id. Blobs are read with their content."""
    view = graph.snapshot(commit=commit)
    found = {}
    for key in view.manifest.tables:
        rows = {row["id"]: row for row in view.scan(key).to_pylist()}
        for entity, row in rows.items():
            if "photo" in row:
                row["photo"] = photo(graph, commit, key.partition(":")[2], entity)
        found[key] = rows
    return found


def photo(graph: Graph, commit: str, type_: str, entity: str) -> bytes | None:
    try:
        return graph.blob(type_, entity, "photo", at=commit).read()
    except omnigraph.NotFoundError:
        return None


def expected(before: dict[str, Any], after: dict[str, Any]) -> Counts:
    """The changes between the rows of two states, of which the first has the old schema."""
    found = {}
    for key, rows in after.items():
        old = before.get(RENAMED.get(key, key), {})
        names = SHARED.get(key, {})
        both = old.keys() & rows.keys()
        updated = sum(any(rows[e][new] != old[e][was] for new, was in names.items()) for e in both)
        found[key] = len(rows.keys() - both), updated, len(old.keys() - both)
    known = {RENAMED.get(key, key) for key in after}
    found |= {key: (0, 0, len(rows)) for key, rows in before.items() if key not in known}
    return {key: counts for key, counts in sorted(found.items()) if any(counts)}


def check(graph: Graph, preview: MergeReceipt, receipt: MergeReceipt) -> Counts:
    """Check all places that report the changes of an update. Returns the changes."""
    commit = receipt.commit
    assert commit is not None
    assert commit.parent is not None
    diff = graph.diff(commit.parent, commit.id)
    found = {key: (one.inserted, one.updated, one.deleted) for key, one in receipt.changes.items()}
    assert {key: (one.inserts, one.updates, one.deletes) for key, one in diff.stat().types} == found
    assert {one.key: (one.inserted, one.updated, one.deleted) for one in commit.counts or ()} == found
    assert preview.changes == receipt.changes
    assert receipt.schema_changes == preview.schema_changes == tuple(map(str, diff.schema))
    listed = {(f"{one.entity_kind}:{one.type_name}", one.entity_id, one.op, one.changed) for one in preview.previewed}
    assert listed == {
        (one.key, row["id"], row["op"], tuple(row["changed"] or ()))
        for one in diff
        for batch in one.batches()
        for row in batch.to_pylist()
    }
    return found


def put(random: Random, graph: Graph, branch: str, *, renamed: bool) -> None:
    """Load some random rows."""
    person, lives, age = ("Human", "Homes", "years") if renamed else ("Person", "Lives", "age")
    rows: list[dict[str, Any]] = []
    for name in random.sample("abcdef", 2):
        data = {"name": name, age: random.choice((None, 1, 2)), "status": random.choice((None, "open", "closed"))}
        data["photo"] = random.choice((None, "base64:cDA=", "base64:cDE="))
        rows.append({"type": person, "data": data})
    rows += [
        {"type": "City", "data": {"name": name, "size": random.choice((1, 2))}} for name in random.sample("xyz", 2)
    ]
    ends = rows[0]["data"]["name"], rows[-1]["data"]["name"]
    edge = {"id": f"e{random.randrange(3)}", "since": random.choice((1, 2))}
    rows.append({"edge": lives, "from": ends[0], "to": ends[1], "data": edge})
    if renamed:
        rows.append({"type": "New", "data": {"name": random.choice("pq")}})
    graph.load(rows, mode="merge", branch=branch)


def act(random: Random, graph: Graph, branch: str, *, renamed: bool) -> None:
    person = "Human" if renamed else "Person"
    if random.random() < 0.6:
        put(random, graph, branch, renamed=renamed)
        return
    what = random.choice(
        (
            f'delete {person} where name = "{random.choice("abcdef")}"',
            f'delete City where name = "{random.choice("xyz")}"',
            f'update {person} set {{ status: "open" }} where name = "{random.choice("abcdef")}"',
            f'update City set {{ size: {random.randrange(3)} }} where name = "{random.choice("xyz")}"',
        )
    )
    graph.mutate(f"query q() {{ {what} }}", branch=branch)


@pytest.mark.parametrize("seed", range(12))
def test_counts_agree_with_the_rows_of_both_heads(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with omnigraph.init(tmp_path / "graph", BEFORE) as graph:
        put(random, graph, "main", renamed=False)
        graph.load([{"type": "Old", "data": {"name": name}} for name in "uv"], mode="append")
        graph.branches.create("side")
        for _ in range(random.choice((0, 1, 3))):
            act(random, graph, "side", renamed=False)
        for _ in range(random.choice((0, 2))):
            act(random, graph, "main", renamed=False)
        graph.schema.apply(AFTER, allow="drops")
        for _ in range(random.choice((0, 1, 3))):
            act(random, graph, "main", renamed=True)
        level, strategy = random.choice(("row", "property")), random.choice(("ours", "theirs"))
        before = graph.branch("side").head.id
        preview = graph.branches.update("side", preview=True, level=level, strategy=strategy)
        receipt = graph.branches.update("side", level=level, strategy=strategy)
        assert receipt.commit is not None
        found = check(graph, preview, receipt)
        assert found == expected(rows_of(graph, before), rows_of(graph, receipt.commit.id))
        assert found["node:Old"] == (0, 0, 2)


def test_a_preview_shows_the_values_that_the_update_brings(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", "node T { k: String @key  n: I32?  m: I32? }") as graph:
        graph.load({"T": [{"k": k, "n": 1, "m": 1} for k in "wxyz"]}, mode="append")
        graph.branches.create("side")
        graph.mutate('query q() { update T set { n: 2 } where k = "x" }', branch="side")
        graph.mutate('query q() { insert T { k: "own", n: 5 } }', branch="side")
        graph.schema.apply('node T { k: String @key  count: I32? @rename_from("n")  m: I32?  w: I32 @default(7) }')
        graph.mutate('query q() { update T set { m: 3 } where k = "x" }')
        graph.mutate('query q() { update T set { count: 4 } where k = "y" }')
        graph.mutate('query q() { delete T where k = "z" }')
        preview = graph.branches.update("side", preview=True, level="property")
        shown = [(c.entity_id, c.op, c.changed, c.before, c.after) for c in preview.previewed]
        assert shown == [
            ("x", "update", ("m",), {"k": "x", "count": 2, "m": 1}, {"k": "x", "count": 2, "m": 3, "w": 7}),
            ("y", "update", ("count",), {"k": "y", "count": 1, "m": 1}, {"k": "y", "count": 4, "m": 1, "w": 7}),
            ("z", "delete", (), {"k": "z", "count": 1, "m": 1}, None),
        ]
        assert preview.schema_changes == ("property T.count renamed from n", "property T.w: I32 added")
        assert preview.to_json()["schema_changes"] == list(preview.schema_changes)
        check(graph, preview, graph.branches.update("side", level="property"))


def test_a_preview_leaves_out_entities_with_conflicts(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", "node T { k: String @key  n: I32? }") as graph:
        graph.load({"T": [{"k": k, "n": 1} for k in "xy"]}, mode="append")
        graph.branches.create("side")
        graph.mutate('query q() { update T set { n: 2 } where k = "x" }', branch="side")
        graph.schema.apply("node T { k: String @key  n: I32?  w: I32? }")
        graph.mutate("query q() { update T set { n: 3 } where n = 1 }")
        preview = graph.branches.update("side", preview=True)
        assert [one.entity_id for one in preview.conflicts] == ["x"]
        assert preview.changes["node:T"].to_json() == {"inserted": 0, "updated": 1, "deleted": 0}
        with pytest.raises(MergeConflictsError):
            graph.branches.update("side")


def test_a_repeated_request_returns_the_same_changes(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", "node T { k: String @key  n: I32? }") as graph:
        graph.load({"T": [{"k": "x", "n": 1}]}, mode="append")
        graph.branches.create("side")
        graph.schema.apply("node T { k: String @key  n: I32?  w: I32? }")
        graph.mutate("query q() { update T set { n: 3 } where n = 1 }")
        first = graph.branches.update("side", idempotency_key="once")
        again = graph.branches.update("side", idempotency_key="once")
        assert (again.changes, again.schema_changes, again.commit) == (
            first.changes,
            first.schema_changes,
            first.commit,
        )
        assert first.changes["node:T"].updated == 1
