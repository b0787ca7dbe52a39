"""Branches and merges in plain Python: dictionaries, compared one by one. What the engine must agree with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import MergeConflictsError
from omnigraph.graph import Graph

SCHEMA = """
node A { k: String @key  n: F64?  s: String?  tags: [String]?  mail: String?  data: Blob?  @unique(mail) }
node B { k: String @key  n: I64? }
edge AB: A -> B @card(0..3) { n: I64? }
"""
MOST_EDGES = 3
NODES = ("A", "B")
_COLUMNS = {
    "A": {"k": pa.utf8(), "n": pa.float64(), "s": pa.utf8(), "tags": pa.list_(pa.utf8()), "mail": pa.utf8()},
    "B": {"k": pa.utf8(), "n": pa.int64()},
    "AB": {"id": pa.utf8(), "from": pa.utf8(), "to": pa.utf8(), "n": pa.int64()},
}

Row = dict[str, Any]
State = dict[str, dict[str, Row]]
"""The rows of each type by id."""

Found = set[tuple[str, str, str | None]]
"""Conflicts: the kind, the type, and the entity or the node."""


def empty() -> State:
    return {"A": {}, "B": {}, "AB": {}}


def same(left: Row | None, right: Row | None) -> bool:
    """Whether two rows are the same: a value of one type is no value of another, and what is no number is itself."""
    if left is None or right is None:
        return left is right
    return left.keys() == right.keys() and all(_alike(left[name], right[name]) for name in left)


def _alike(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and bool(left == right)


@dataclass(frozen=True, slots=True)
class Known:
    """A commit."""

    version: int
    parents: tuple[str, ...]
    state: State


@dataclass(slots=True)
class World:
    """A graph, and what it must be."""

    graph: Graph
    heads: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Known] = field(default_factory=dict)

    def record(self, branch: str, state: State, *parents: str) -> None:
        head = self.graph.branch(branch).head
        self.commits[head.id] = Known(head.manifest_version, parents, state)
        self.heads[branch] = head.id

    def state(self, branch: str) -> State:
        return self.commits[self.heads[branch]].state

    def base(self, source: str, target: str) -> str:
        """The common ancestor with the least summed distance, found by trying all."""
        left, right = self._distances(self.heads[source]), self._distances(self.heads[target])
        both = [(left[name] + right[name], -self.commits[name].version, name) for name in left if name in right]
        return min(both)[2]

    def _distances(self, head: str) -> dict[str, int]:
        found = {head: 0}
        edge = [head]
        while edge:
            edge = [p for name in edge for p in self.commits[name].parents if p not in found]
            found |= dict.fromkeys(edge, max(found.values()) + 1)
        return found

    def branch(self, name: str, source: str) -> None:
        self.graph.branches.create(name, source=source)
        self.heads[name] = self.heads[source]

    def write(self, branch: str, random: Random) -> None:
        """Some change of a branch, or none where it would break a rule."""
        state = deepcopy(self.state(branch))
        done = random.choice((_put_nodes, _put_nodes, _put_edges, _put_edges, _drop_nodes, _drop_edges))(state, random)
        if done is None or broken(state) or all(same_rows(state[t], self.state(branch)[t]) for t in state):
            return
        before = self.heads[branch]
        done(self.graph, branch)
        self.record(branch, state, before)

    def merge(self, source: str, target: str, strategy: str | None = None, **options: Any) -> Found | None:
        """Merge, and compare with what must come of it. The conflicts, or None when there are none."""
        base = self.base(source, target)
        states = self.commits[base].state, self.state(source), self.state(target)
        wanted, conflicts = merged(*states, strategy)
        heads = self.heads[target], self.heads[source]
        options["strategy"] = strategy
        preview = self.graph.merge(source, target, preview=True, strategy=strategy)
        assert _found(preview.conflicts) == conflicts
        if base == heads[1]:
            receipt = self.graph.merge(source, target, **options)
            assert (receipt.outcome, receipt.commit) == ("already_up_to_date", None)
            return None
        if conflicts:
            with pytest.raises(MergeConflictsError) as caught:
                self.graph.merge(source, target, **options)
            assert caught.value.conflicts == preview.conflicts
            assert caught.value.total == len(preview.conflicts)
            assert read(self.graph, target) == normal(self.state(target))
            return conflicts
        receipt = self.graph.merge(source, target, **options)
        assert receipt.base_commit == base
        assert receipt.outcome == ("fast_forward" if base == heads[0] else "merged")
        assert {k: (c.inserted, c.updated, c.deleted) for k, c in receipt.changes.items()} == counts(
            self.state(target), wanted
        )
        self.record(target, wanted, *heads)
        assert read(self.graph, target) == normal(wanted)
        return None


def counts(before: State, after: State) -> dict[str, tuple[int, int, int]]:
    found = {}
    for name in before:
        new, old = after[name], before[name]
        made, gone = len(new.keys() - old.keys()), len(old.keys() - new.keys())
        changed = sum(not same(new[i], old[i]) for i in new.keys() & old.keys())
        if made or changed or gone:
            found[f"{'node' if name in NODES else 'edge'}:{name}"] = (made, changed, gone)
    return found


def _found(conflicts: Any) -> Found:
    found: Found = set()
    for one in conflicts:
        about = one.message.split("'")[1] if one.entity_id is None else one.entity_id
        found.add((one.kind.value, one.type_name, about))
    return found


# What a merge is


def merged(base: State, source: State, target: State, strategy: str | None = None) -> tuple[State, Found]:
    """What three states come to. Where both sides have changed an entity, the target stays, or one side wins."""
    found: Found = set()
    result = deepcopy(target)
    for name in base:
        for entity in base[name].keys() | source[name].keys() | target[name].keys():
            b, s, t = (state[name].get(entity) for state in (base, source, target))
            if same(s, b) or same(s, t):
                continue
            if same(t, b) or strategy == "theirs":
                if s is None:
                    del result[name][entity]
                else:
                    result[name][entity] = s
            elif strategy == "ours":
                continue
            elif b is None:
                found.add(("divergent_insert", name, entity))
            elif s is None or t is None:
                found.add(("delete_vs_update", name, entity))
            else:
                found.add(("divergent_update", name, entity))
    while strategy is not None and _settled(result, source, target, strategy):
        pass
    return result, found | broken(result)


def _settled(result: State, source: State, target: State, strategy: str) -> bool:
    """Let a side win about edges that lead nowhere. Whether there was one."""
    before = deepcopy(result)
    for edge, row in before["AB"].items():
        for end, name in (("from", "A"), ("to", "B")):
            node = row[end]
            if node in before[name]:
                continue
            brought = not same(row, target["AB"].get(edge))
            if strategy == "ours" and not brought:
                result[name][node] = target[name][node]
            elif strategy == "theirs" and brought:
                result[name][node] = source[name][node]
            elif strategy == "ours" and edge in target["AB"]:
                result["AB"][edge] = target["AB"][edge]
            else:
                result["AB"].pop(edge, None)
    return result != before


def broken(state: State) -> Found:
    """What breaks a rule."""
    found: Found = set()
    holders: dict[str, list[str]] = {}
    for entity, row in state["A"].items():
        if row["mail"] is not None:
            holders.setdefault(row["mail"], []).append(entity)
    found |= {("unique_violation", "A", max(own)) for own in holders.values() if len(own) > 1}
    edges: dict[str, int] = {}
    for entity, row in state["AB"].items():
        if row["from"] not in state["A"] or row["to"] not in state["B"]:
            found.add(("orphan_edge", "AB", entity))
        edges[row["from"]] = edges.get(row["from"], 0) + 1
    for node, count in edges.items():
        if count > MOST_EDGES and node in state["A"]:
            found.add(("cardinality_violation", "AB", node))
    return found


def same_rows(left: Mapping[str, Row], right: Mapping[str, Row]) -> bool:
    return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)


# What branches do


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


# What the graph says


def read(graph: Graph, branch: str) -> dict[str, list[tuple[str, ...]]]:
    view = graph.snapshot(branch=branch)
    found: State = empty()
    for name in found:
        key = f"{'node' if name in NODES else 'edge'}:{name}"
        rows = view.scan(key, columns=[c for c in view.schema(key).names if c != "data"]).to_pylist()
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
    """A state as texts, in which what is no number is equal to itself."""
    return {name: sorted(tuple(_said(row)) for row in rows.values()) for name, rows in state.items()}


def _said(row: Row) -> Iterator[str]:
    return (f"{name}={row[name]!r}" for name in sorted(row))
