"""Loads and mutations of a small graph, and their expected results, for the kill matrix."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.sidecar import WriterKind
from omnigraph.graph import Graph

SCHEMA = """
node A { k: String @key  n: I64? }
node B { k: String @key  n: I64? }
node C { k: String @key  n: I64? }
edge AB: A -> B { n: I64?  @key(src, dst) }
edge BC: B -> C { n: I64?  @key(src, dst) }
"""
NODES, EDGES = ("A", "B", "C"), ("AB", "BC")

Entity = tuple[str, ...]
Content = dict[str, dict[Entity, int | None]]
"""The content of a graph: by type, the `n` of each entity. A node is named by its key, an edge by its endpoints."""

_NODES: dict[Entity, int | None] = {("1",): 1, ("2",): 2, ("3",): 3}
_EDGES: dict[Entity, int | None] = {("1", "1"): 1, ("2", "2"): 2}
SEED: Content = {**dict.fromkeys(NODES, _NODES), **dict.fromkeys(EDGES, _EDGES)}

FIVE = (*NODES, *EDGES)
SIZES = {1: ("A",), 2: ("A", "AB"), 5: FIVE}
"""The types that a request changes, by their number."""


def create(place: Path | str) -> Graph:
    """Create the small graph, with a few entities of every type."""
    graph = omnigraph.init(place, SCHEMA, actor="act-kim")
    graph.load({name: pa.table(_columns(name, SEED[name])) for name in FIVE}, mode="append")
    return graph


def content(graph: Graph, branch: str = MAIN) -> Content:
    snapshot = graph.snapshot(branch=branch)
    found: Content = {}
    for name in FIVE:
        ends = ("src", "dst") if name in EDGES else ("k",)
        rows = snapshot.scan(f"{'edge' if name in EDGES else 'node'}:{name}", columns=[*ends, "n"]).to_pylist()
        found[name] = {tuple(row[end] for end in ends): row["n"] for row in rows}
        assert len(found[name]) == len(rows), f"an entity of {name} is there twice"
    return found


@dataclass(frozen=True, slots=True)
class Request:
    """One load or mutation.

    Attributes:
        what: a short description.
        types: the types that it changes.
        forks: whether it is the first write on a branch.
        job: the job of the child process.
        changed: the expected content of the changed types.
    """

    kind: WriterKind
    what: str
    types: tuple[str, ...]
    forks: bool
    job: Mapping[str, Any]
    changed: Content

    def __str__(self) -> str:
        where = "first on a branch" if self.forks else "main"
        return f"{self.kind.value}, {self.what}, {len(self.types)} table(s), {where}"

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(f"{'edge' if name in EDGES else 'node'}:{name}" for name in self.types)

    @property
    def branch(self) -> str:
        return "dev" if self.forks else MAIN

    @property
    def after(self) -> Content:
        return {**SEED, **self.changed}


def requests() -> Iterator[Request]:
    """Every mode of a load and every kind of mutation: one, two and five tables on `main`, two and five on a branch."""
    for forks in (False, True):
        for types in SIZES.values():
            if not forks or len(types) > 1:
                yield from _loads(types, forks)
                yield from _mutations(types, forks)


# Loads: as NDJSON, or as tables


def _loads(types: tuple[str, ...], forks: bool) -> Iterator[Request]:
    new, replaced = _entities("new", types, 7), _entities("1", types, 7)
    appended = {name: SEED[name] | new[name] for name in types}
    merged = {name: SEED[name] | new[name] | replaced[name] for name in types}
    # Remaining nodes keep the edges of types that are not replaced.
    kept = {name: _entities("1", types, 1)[name] | _entities("2", types, 8)[name] | new[name] for name in types}

    def load(mode: str, form: str, given: Content, left: Content) -> Request:
        source: object = _ndjson(given) if form == "NDJSON" else {n: _columns(n, rows) for n, rows in given.items()}
        job = {"job": "load", "mode": mode, "source": source}
        return Request(WriterKind.LOAD, f"{mode}, {form}", types, forks, job, left)

    both = {name: new[name] | replaced[name] for name in types}
    yield load("append", "NDJSON", new, appended)
    yield load("merge", "tables", both, merged)
    yield load("overwrite", "NDJSON", kept, kept)


def _entities(key: str, types: tuple[str, ...], n: int) -> Content:
    """An entity of each type: nodes with this key, and edges between the existing nodes."""
    ends = {name: key if name in types or key != "new" else "2" for name in NODES}
    return {name: {(ends[name[0]], ends[name[1]]) if name in EDGES else (key,): n} for name in types}


def _columns(name: str, rows: Mapping[Entity, int | None]) -> dict[str, list[Any]]:
    if name in EDGES:
        return {"from": [key[0] for key in rows], "to": [key[1] for key in rows], "n": list(rows.values())}
    return {"k": [key[0] for key in rows], "n": list(rows.values())}


def _ndjson(given: Content) -> str:
    records: list[dict[str, object]] = []
    for name, rows in given.items():
        for key, n in rows.items():
            if name in EDGES:
                records.append({"edge": name, "from": key[0], "to": key[1], "data": {"n": n}})
            else:
                records.append({"type": name, "data": {"k": key[0], "n": n}})
    return "".join(f"{json.dumps(record)}\n" for record in records)


# Mutations


def _mutations(types: tuple[str, ...], forks: bool) -> Iterator[Request]:
    def mutation(what: str, statements: list[str], left: Content) -> Request:
        body = " ".join(statements)
        params = {"n": 7} if "$n" in body else {}
        text = f"query q({'$n: I64' if params else ''}) {{ {body} }}"
        job = {"job": "mutate", "text": text, "params": params}
        return Request(WriterKind.MUTATION, what, types, forks, job, left)

    def assigned(key: Entity, name: str) -> str:
        given = f'from: "{key[0]}", to: "{key[1]}"' if name in EDGES else f'k: "{key[0]}"'
        return f"{name} {{ {given}, n: $n }}"

    new, replaced = _entities("new", types, 7), _entities("1", types, 7)
    yield mutation(
        "insert",
        [f"insert {assigned(key, name)}" for name in types for key in new[name]],
        {name: SEED[name] | new[name] for name in types},
    )
    yield mutation(
        "merge",
        [f"merge {assigned(key, name)}" for name in types for key in (*replaced[name], *new[name])],
        {name: SEED[name] | replaced[name] | new[name] for name in types},
    )
    yield mutation(
        "update",
        [f'update {name} set {{ n: $n }} where {"from" if name in EDGES else "k"} = "1"' for name in types],
        {name: SEED[name] | replaced[name] for name in types},
    )
    # Node 3 has no edges; deleting node 1 deletes its edges, of one type or of all.
    gone = "3" if types == ("A",) else "1"
    yield mutation(
        "delete",
        [f'delete {name} where k = "{gone}"' for name in types if name in NODES],
        {name: {key: n for key, n in SEED[name].items() if gone not in key} for name in types},
    )
