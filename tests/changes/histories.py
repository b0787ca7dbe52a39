"""Random histories of a graph, with the full state of every commit.

The state of a commit is read from an export, which shares no code with the comparison of states.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from omnigraph.commit.failpoints import Failpoint, FailpointError, SimulatedCrashError, armed
from omnigraph.errors import ConflictError, OmnigraphError
from omnigraph.graph import Graph

SCHEMA = """
node A { k: String @key  n: I64?  x: F64?  tags: [String]?  data: Blob?  at: DateTime? }
node B { k: String @key  v: Vector(3)? }
edge AB: A -> B { n: I64? }
edge Same: A -> A { w: F64?  @key(src, dst) }
"""
NAMES = [f"k{i}" for i in range(12)] + ['a "quoted" \\ name', "ünïcode ✓"]
BRANCHES = ("dev", "topic", "other")

Key = tuple[str, str]
"""A type key and an id."""

State = dict[Key, dict[str, Any]]
"""All entities: their properties, with the ends of edges under `from` and `to`."""


def state_of(lines: Iterable[bytes]) -> State:
    """Parse an export."""
    found: State = {}
    for line in b"".join(lines).splitlines():
        row = json.loads(line)
        if "baseline" in row:
            continue
        data = row["data"]
        if "edge" in row:
            found[f"edge:{row['edge']}", data["id"]] = {**data, "from": row["from"], "to": row["to"]}
        else:
            found[f"node:{row['type']}", data["id"]] = data
    return found


def expected_changes(before: State, after: State) -> dict[Key, tuple[str, set[str]]]:
    """The changes between two states: the operation, and the names of changed properties of an update."""
    found: dict[Key, tuple[str, set[str]]] = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is None:
            found[key] = "insert", set()
        elif new is None:
            found[key] = "delete", set()
        else:
            names = {name for name in new if not same(old[name], new[name])}
            if names:
                found[key] = "update", names
    return found


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal. 0.0 and -0.0 differ, and so do 1 and 1.0."""
    return json.dumps(left) == json.dumps(right)


def records(rows: Mapping[Key, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Entities as input of a load."""
    found = []
    for (key, _), row in rows.items():
        kind, _, name = key.partition(":")
        data = {prop: value for prop, value in row.items() if prop not in ("from", "to")}
        if kind == "edge":
            found.append({"edge": name, "from": row["from"], "to": row["to"], "data": data})
        else:
            found.append({"type": name, "data": data})
    return found


@dataclass
class History:
    """A graph with random commits, and the state of each commit."""

    graph: Graph
    random: Random
    states: dict[str, State] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.remember()

    def remember(self) -> None:
        """Record the states of all new commits on all branches."""
        for branch in self.branches():
            for commit in self.graph.commits.list(branch=branch).commits:
                if commit.id in self.states:
                    break
                self.states[commit.id] = state_of(self.graph.export(at=commit.id))

    def branches(self) -> list[str]:
        return [branch.name for branch in self.graph.branches]

    def state(self, branch: str) -> State:
        return self.states[self.graph.snapshot(branch=branch).commit.id]

    def step(self) -> None:
        acts = [
            (self.write, 30),
            (self.rewrite, 12),
            (self.delete, 15),
            (self.overwrite, 6),
            (self.branch, 6),
            (self.merge, 10),
            (self.optimize, 5),
            (self.crash, 6),
        ]
        act = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])[0]
        act(self.random.choice(self.branches()))
        self.remember()

    def node(self, name: str) -> dict[str, Any]:
        content = base64.b64encode(self.random.randbytes(self.random.choice([0, 3, 200]))).decode()
        return {
            "k": name,
            "n": self.random.choice([None, 1, 2, next(self.numbers)]),
            "x": self.random.choice([None, 0.0, -0.0, 0.1, 1e300]),
            "tags": self.random.choice([None, [], ["u"], ["u", "v"]]),
            "data": self.random.choice([None, f"base64:{content}"]),
            "at": self.random.choice([None, 0, 1_700_000_000_123]),
        }

    def rows(self, state: State, most: int = 6) -> list[dict[str, Any]]:
        """New rows. The ends of edges exist, in the state or among the rows."""
        nodes = {kind: {key[1] for key in state if key[0] == f"node:{kind}"} for kind in "AB"}
        found: list[dict[str, Any]] = []
        for name in self.random.sample(NAMES, self.random.randrange(most)):
            found.append({"type": "A", "data": self.node(name)})
            nodes["A"].add(name)
        for name in self.random.sample(NAMES, self.random.randrange(3)):
            vector = self.random.choice([None, [0.5, 1.0, -2.0], [0.1, 0.2, 0.3]])
            found.append({"type": "B", "data": {"k": name, "v": vector}})
            nodes["B"].add(name)
        starts, ends = sorted(nodes["A"]), sorted(nodes["B"])
        if starts and ends:
            for _ in range(self.random.randrange(3)):
                name = f"e{self.random.randrange(8)}"
                start, end = self.random.choice(starts), self.random.choice(ends)
                found.append({"edge": "AB", "from": start, "to": end, "data": {"id": name, "n": next(self.numbers)}})
        pairs = {(self.random.choice(starts), self.random.choice(starts)) for _ in range(2)} if starts else set()
        for start, end in sorted(pairs):
            found.append({"edge": "Same", "from": start, "to": end, "data": {"w": self.random.choice([None, 0.5])}})
        unique = {json.dumps([row.get("type"), row.get("edge"), _name(row)]): row for row in found}
        return list(unique.values())

    def write(self, branch: str) -> None:
        rows = self.rows(self.state(branch))
        if rows:
            self.graph.load(rows, mode="merge", branch=branch)

    def rewrite(self, branch: str) -> None:
        """Write rows again with equal values, and perhaps a change of one of them."""
        state = self.state(branch)
        chosen = self.random.sample(sorted(state), min(len(state), 4))
        rows = {key: dict(state[key]) for key in chosen}
        if rows and self.random.random() < 0.5:
            key = self.random.choice(sorted(rows))
            if key[0] in ("node:A", "edge:AB"):
                rows[key]["n"] = next(self.numbers)
        if rows:
            self.graph.load(records(rows), mode="merge", branch=branch)

    def delete(self, branch: str) -> None:
        name = self.random.choice(NAMES)
        kind, key = self.random.choice([("A", "k"), ("B", "k"), ("AB", "from")])
        query = f"query q($k: String) {{ delete {kind} where {key} = $k }}"
        self.graph.mutate(query, {"k": name}, branch=branch)

    def overwrite(self, branch: str) -> None:
        state = self.state(branch)
        nodes = [key for key in state if key[0] == "edge:AB"]
        kept = {key: state[key] for key in self.random.sample(sorted(nodes), len(nodes) // 2)}
        if kept:
            self.graph.load(records(kept), mode="overwrite", branch=branch)

    def branch(self, source: str) -> None:
        free = [name for name in BRANCHES if name not in self.branches()]
        if free:
            known = [commit.id for commit in self.graph.commits.list(branch=source).commits]
            self.graph.branches.create(free[0], commit=self.random.choice(known))

    def merge(self, source: str) -> None:
        target = self.random.choice(self.branches())
        if target != source:
            with suppress(ConflictError):
                self.graph.merge(source, target, strategy=self.random.choice(["ours", "theirs"]))

    def optimize(self, _: str) -> None:
        self.graph.optimize()

    def crash(self, branch: str) -> None:
        """A write that crashes. Recovery completes it or undoes it."""
        rows = self.rows(self.state(branch))
        if not rows:
            return
        with crashing(self.random.choice(list(Failpoint)[: list(Failpoint).index(Failpoint.TORN_COPIED)])):
            self.graph.load(rows, mode="merge", branch=branch)
        self.graph.refresh()


def _name(row: Mapping[str, Any]) -> Any:
    data = row["data"]
    return data.get("k") or data.get("id") or [row["from"], row["to"]]


@contextmanager
def crashing(point: Failpoint) -> Iterator[None]:
    with suppress(FailpointError, SimulatedCrashError, OmnigraphError), armed(point):
        yield
