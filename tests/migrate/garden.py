"""A graph with rows of every type of property, and its content as a model of plain Python values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph
from omnigraph.graph import Graph

Rows = dict[str, dict[str, Any]]
"""The values of each entity, by id. An edge also has `from` and `to`."""

Content = dict[str, Rows]
"""The entities of each type, by type name."""

SCHEMA = """
interface Named { label: String? }
node Plant implements Named {
    code: String @key
    height: I32? @index
    count: U32?
    weight: F32?
    sizes: [I32]?
    note: String?
    state: enum(seed, grown, dead) @index
    moods: [enum(happy, sad, odd)]?
    picture: Blob?
    vector: Vector(4)?
    planted: Date?
    seen: DateTime?
    old: String?
    @index(note, kind="fts")
    @range(height, 0..1000)
    @check(note, "[a-z]")
}
node Bed { name: String @key  size: I64?  kind: String? }
edge In: Plant -> Bed @card(0..3) { since: I32? }
interface Owned { owner: String? }
node Tool @merge(row) implements Owned {
    sort: enum(axe, hoe, rake) @key
    mark: String? @unique
    maker: String? @default("acme")
    made: String?
    batch: I64?
    text: String?
    other: String?
    sense: Vector(8)? @embed("text")
    @unique(maker, made)
}
edge Fits: Tool -> Tool @card(0..2) @card_in(0..4) {
    grade: I64?
    slot: String?
    note2: String?
    @unique(slot)
    @range(grade, 0..10)
}
"""

PLANTS = 40
STATES = ["seed", "grown", "dead"]


def plant(number: int) -> dict[str, Any]:
    """The values of a plant. Every third value of an optional property is missing."""
    n = number
    return {
        "code": f"p{n:02}",
        "height": None if n % 3 == 0 else n,
        "count": None if n % 3 == 1 else n * 10,
        "weight": None if n % 3 == 2 else n / 4,
        "sizes": None if n % 3 == 0 else [n, n + 1] if n % 2 else [],
        "note": None if n % 3 == 1 else f"note number {n} of {'oak' if n % 2 else 'elm'}",
        "state": STATES[n % 3],
        "moods": None if n % 3 == 0 else ["happy", "sad", "happy"][: n % 4],
        "picture": None if n % 3 == 1 else f"picture {n}".encode(),
        "vector": None if n % 3 == 2 else [float(n), 1.0, 0.5, -1.0],
        "label": f"label {n % 5}",
        "old": f"old {n}",
    }


def create(place: Path | str, options: Mapping[str, str] | None = None) -> Graph:
    """A graph in several fragments, with deleted rows, updated rows, indexes, and two other branches."""
    graph = omnigraph.init(place, SCHEMA, storage_options=options)
    plants = [plant(number) for number in range(PLANTS)]
    for part in (plants[:15], plants[15:30], plants[30:]):
        graph.load({"Plant": table(part)}, mode="append")
    beds = {"name": ["north", "south", "west"], "size": [1, None, 3], "kind": ["raised", None, "flat"]}
    graph.load({"Bed": pa.table(beds)}, mode="append")
    ends = {"from": ["p01", "p01", "p02", "p05"], "to": ["north", "south", "north", "west"]}
    graph.load({"In": pa.table({**ends, "since": pa.array([2001, None, 2003, 2004], pa.int32())})}, mode="append")
    graph.load({"Tool": tools()}, mode="append")
    fits = {"from": ["axe", "axe", "hoe"], "to": ["hoe", "rake", "rake"], "grade": [1, 10, None]}
    graph.load({"Fits": pa.table({**fits, "slot": ["a", "b", None], "note2": ["x", "y", "x"]})}, mode="append")
    graph.ensure_indexes()
    graph.mutate('query drop() { delete Plant where code = "p03" }')
    graph.mutate('query grow() { update Plant set { height: 99 } where code = "p20" }')
    graph.branches.create("idle")
    graph.branches.create("busy")
    graph.mutate('query grow() { update Plant set { height: 7 } where code = "p21" }', branch="busy")
    return graph


def tools() -> pa.Table:
    texts = {"text": ["to cut", None, "to gather"], "other": ["steel", "wood", "steel"]}
    texts |= {"maker": ["acme", "acme", "smith"], "made": ["1990", "1991", None], "mark": ["m1", None, "m3"]}
    vectors = pa.array([[1.0] * 8, None, [0.5] * 8], pa.list_(pa.float32(), 8))
    return pa.table(
        {"sort": ["axe", "hoe", "rake"], "batch": [1, 1, 2], "owner": ["ann", None, "bob"], **texts}
    ).append_column("sense", vectors)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {"height": pa.int32(), "count": pa.uint32(), "weight": pa.float32(), "sizes": pa.list_(pa.int32())}
    kinds |= {"moods": pa.list_(pa.utf8()), "picture": pa.large_binary(), "vector": pa.list_(pa.float32(), 4)}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name, pa.utf8())) for name in rows[0]})


def content(graph: Graph, *, branch: str | None = None, at: str | None = None) -> Content:
    """Everything in a state of a graph, read through its export."""
    found: Content = {}
    for line in b"".join(graph.export(branch=branch, at=at)).splitlines():
        members = json.loads(line)
        data = members["data"]
        name = members.get("type") or members["edge"]
        row = {key: _value(value) for key, value in data.items() if key != "id"}
        if "edge" in members:
            row |= {"from": members["from"], "to": members["to"]}
        rows = found.setdefault(name, {})
        assert data["id"] not in rows, "an id is stored twice"
        rows[data["id"]] = row
    return found


def _value(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("base64:"):
        return base64.b64decode(value.removeprefix("base64:"))
    return value


Model = Callable[[Content], None]
"""Changes the content as a schema change should change it."""


def modelled(before: Content, model: Model) -> Content:
    after = deepcopy(before)
    model(after)
    return {name: rows for name, rows in after.items() if rows}


def each(name: str, change: Callable[[dict[str, Any]], None]) -> Model:
    """A model that changes every entity of a type."""

    def model(found: Content) -> None:
        for row in found.get(name, {}).values():
            change(row)

    return model
