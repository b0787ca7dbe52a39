"""A model of branches and merges in plain dictionaries. The engine must agree with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.merge.repository_model import (
    EDGE,
    NODES,
    Column,
    Found,
    Known,
    Repository,
    Row,
    Shape,
    State,
    Type,
    broken,
    counts,
    empty,
    merged,
    same_rows,
)

from omnigraph.errors import MergeConflictsError
from omnigraph.graph import Graph

SCHEMA = """
node A { k: String @key  n: F64?  s: String?  tags: [String]?  mail: String?  data: Blob?  @unique(mail) }
node B { k: String @key  n: I64? }
edge AB: A -> B @card(0..3) { n: I64? }
"""
_SHAPE = Shape(
    (Type("A", "A", (Column("mail", "mail", "String", unique=True),)), Type("B", "B", ()), Type(EDGE, EDGE, ()))
)
"""The schema, as far as it has constraints on values."""

_COLUMNS = {
    "A": {"k": pa.utf8(), "n": pa.float64(), "s": pa.utf8(), "tags": pa.list_(pa.utf8()), "mail": pa.utf8()},
    "B": {"k": pa.utf8(), "n": pa.int64()},
    "AB": {"id": pa.utf8(), "from": pa.utf8(), "to": pa.utf8(), "n": pa.int64()},
}


@dataclass(slots=True)
class World:
    """A graph and its model."""

    graph: Graph
    known: Repository = field(default_factory=Repository)

    def record(self, branch: str, state: State, *parents: str) -> None:
        head = self.graph.branch(branch).head
        self.known.commits[head.id] = Known(parents, state)
        self.known.heads[branch] = head.id

    def state(self, branch: str) -> State:
        return self.known.state(branch)

    def branch(self, name: str, source: str) -> None:
        self.graph.branches.create(name, source=source)
        self.known.heads[name] = self.known.heads[source]

    def write(self, branch: str, random: Random) -> None:
        """Make a random change of a branch, or none if it would violate a constraint."""
        state = deepcopy(self.state(branch))
        done = random.choice((_put_nodes, _put_nodes, _put_edges, _put_edges, _drop_nodes, _drop_edges))(state, random)
        if done is None or broken(state, _SHAPE) or all(same_rows(state[t], self.state(branch)[t]) for t in state):
            return
        before = self.known.heads[branch]
        done(self.graph, branch)
        self.record(branch, state, before)

    def merge(self, source: str, target: str, strategy: str | None = None, **options: Any) -> Found | None:
        """Merge, and compare with the model. Returns the conflicts, or None."""
        best, base = self.known.merge_base(source, target)
        found = merged(base, self.state(source), self.state(target), _SHAPE, {}, strategy)
        wanted, conflicts = found.state, found.conflicts
        heads = self.known.heads[target], self.known.heads[source]
        options["strategy"] = strategy
        if self.known.is_up_to_date(source, target):
            receipt = self.graph.merge(source, target, **options)
            assert (receipt.outcome, receipt.commit) == ("already_up_to_date", None)
            return None
        preview = self.graph.merge(source, target, preview=True, strategy=strategy)
        assert _found(preview.conflicts) == conflicts
        if conflicts:
            with pytest.raises(MergeConflictsError) as caught:
                self.graph.merge(source, target, **options)
            assert caught.value.conflicts == preview.conflicts
            assert caught.value.total == len(preview.conflicts)
            assert read(self.graph, target) == normal(self.state(target))
            return conflicts
        receipt = self.graph.merge(source, target, **options)
        assert list(receipt.base_commits) == best
        assert receipt.outcome == ("fast_forward" if self.known.is_forward(source, target) else "merged")
        assert {k: (c.inserted, c.updated, c.deleted) for k, c in receipt.changes.items()} == counts(
            self.state(target), wanted
        )
        self.record(target, wanted, *heads)
        assert read(self.graph, target) == normal(wanted)
        return None


def _found(conflicts: Any) -> Found:
    found: Found = set()
    for one in conflicts:
        about = one.message.split("'")[1] if one.entity_id is None else one.entity_id
        found.add((one.kind.value, one.type_name, about))
    return found


# Random writes


_NUMBERS = (None, 0.0, -0.0, 1.5)
_TEXTS = (None, "", "x")
_TAGS: tuple[list[str] | None, ...] = (None, [], [""], ["x"], ["x", "x"])
_BYTES = (None, b"", b"a", b"a" * 5000)


def _put_nodes(state: State, random: Random) -> Any:
    name = random.choice(NODES)
    chosen = [f"{random.randrange(6)}" for _ in range(random.randrange(1, 4))]
    for entity in chosen:
        if name == "B":
            state[name][entity] = {"k": entity, "n": random.choice((None, 1, 2))}
            continue
        state[name][entity] = {
            "k": entity,
            "n": random.choice(_NUMBERS),
            "s": random.choice(_TEXTS),
            "tags": random.choice(_TAGS),
            "mail": random.choice((None, "m", "n", f"m{entity}")),
            "data": random.choice(_BYTES),
        }
    return _load(name, {entity: state[name][entity] for entity in chosen})


def _put_edges(state: State, random: Random) -> Any:
    if not state["A"] or not state["B"]:
        return None
    chosen = {}
    for _ in range(random.randrange(1, 3)):
        entity = f"e{random.randrange(12)}"
        ends = random.choice(sorted(state["A"])), random.choice(sorted(state["B"]))
        chosen[entity] = {"id": entity, "from": ends[0], "to": ends[1], "n": random.choice((None, 1))}
    state["AB"] |= chosen
    return _load("AB", chosen)


def _load(name: str, rows: Mapping[str, Row]) -> Any:
    columns = {c: pa.array([row[c] for row in rows.values()], kind) for c, kind in _COLUMNS[name].items()}
    if name == "A":
        columns["data"] = pa.array([row["data"] for row in rows.values()], pa.large_binary())
    return lambda graph, branch: graph.load({name: pa.table(columns)}, mode="merge", branch=branch)


def _drop_nodes(state: State, random: Random) -> Any:
    name = random.choice(NODES)
    if not state[name]:
        return None
    entity = random.choice(sorted(state[name]))
    del state[name][entity]
    end = "from" if name == "A" else "to"
    state["AB"] = {edge: row for edge, row in state["AB"].items() if row[end] != entity}
    text = f'query q() {{ delete {name} where k = "{entity}" }}'
    return lambda graph, branch: graph.mutate(text, branch=branch)


def _drop_edges(state: State, random: Random) -> Any:
    starts = sorted({row["from"] for row in state["AB"].values()})
    if not starts:
        return None
    start = random.choice(starts)
    state["AB"] = {edge: row for edge, row in state["AB"].items() if row["from"] != start}
    text = f'query q() {{ delete AB where from = "{start}" }}'
    return lambda graph, branch: graph.mutate(text, branch=branch)


# The state of the graph


def read(graph: Graph, branch: str) -> dict[str, list[tuple[str, ...]]]:
    view = graph.snapshot(branch=branch)
    found: State = empty()
    for name in found:
        key = f"{'node' if name in NODES else 'edge'}:{name}"
        rows = view.scan(key, columns=[c for c in view.table(key).schema().names if c != "data"]).to_pylist()
        for row in rows:
            assert row["id"] not in found[name], f"{row['id']} of {name} is there twice"
            found[name][row["id"]] = row
            if name == "AB":
                row |= {"from": row.pop("src"), "to": row.pop("dst")}
            else:
                row.pop("id")
            if name == "A":
                info = view.blob(key, "data", row["k"])
                assert info is not None
                row["data"] = None if info.info is None else graph.blob("A", row["k"], "data", branch=branch).read()
    return normal(found)


def normal(state: State) -> dict[str, list[tuple[str, ...]]]:
    """A state as texts, in which NaN equals itself."""
    return {name: sorted(tuple(_said(row)) for row in rows.values()) for name, rows in state.items()}


def _said(row: Row) -> Iterator[str]:
    return (f"{name}={row[name]!r}" for name in sorted(row))
