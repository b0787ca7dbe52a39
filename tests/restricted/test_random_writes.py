"""A random write of a restricted session has the effect that a model in plain Python predicts, or is refused.

The model applies the write to the visible rows. Then it checks what the rules of changes and the hidden rows allow. A
refused write changes nothing. `OMNIGRAPH_WRITES` sets the number of writes, `OMNIGRAPH_SEED` the first seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

import omnigraph
from omnigraph.engine.row_scope import RowRules
from omnigraph.errors import AccessDeniedError, OmnigraphError
from omnigraph.graph import Graph

WRITES = int(os.environ.get("OMNIGRAPH_WRITES") or (1_000 if os.environ.get("CI") else 240))
SEED = int(os.environ.get("OMNIGRAPH_SEED", "0"))
PER_GRAPH = 60

SCHEMA = """
node A { k: String @key  owner: String?  n: I64?  u: String? @unique  mask: I64? }
edge Next: A -> A
"""
KEYS = tuple(f"key{number}" for number in range(9))
OWNERS = ("kim", "lee", None)
Row = dict[str, Any]
Test = Callable[[Mapping[str, Any]], bool]

READ: tuple[tuple[str, Test], ...] = (
    ("$.owner = $actor", lambda row: row["owner"] == "kim"),
    ("$.owner = $actor or $.n < 3", lambda row: row["owner"] == "kim" or (row["n"] is not None and row["n"] < 3)),
    ("$.owner is not null", lambda row: row["owner"] is not None),
)
CHANGE: tuple[tuple[str, Test], ...] = (
    ("$.owner = $actor", lambda row: row["owner"] == "kim"),
    ("$.n is null or $.n < 6", lambda row: row["n"] is None or row["n"] < 6),
    ("true", lambda row: True),
)


class RefusedError(Exception):
    """The write breaks a constraint of the visible graph."""


class DeniedError(Exception):
    """The write concerns rows that the actor may not see or change."""


@dataclass
class Model:
    """The whole graph.

    Attributes:
        rows: the nodes by key.
        edges: the ends of the edges.
    """

    sees: Test
    changes: Test
    rows: dict[str, Row] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)

    @property
    def visible(self) -> dict[str, Row]:
        return {key: row for key, row in self.rows.items() if self.sees(row)}

    def put(self, rows: list[Row], *, append: bool = False) -> None:
        """Write whole rows, without the masked property."""
        shown = self.visible
        after = shown | {row["k"]: row for row in rows}
        self._check_unique(after, RefusedError)
        if append and any(row["k"] in self.rows.keys() - shown.keys() for row in rows):
            raise DeniedError
        if append and any(row["k"] in shown for row in rows):
            raise RefusedError
        for row in rows:
            stored = self.rows.get(row["k"])
            if stored is not None and (row["k"] not in shown or not self.changes(stored)):
                raise DeniedError
            if not self.changes(row):
                raise DeniedError
        made = {row["k"]: row | {"mask": self.rows.get(row["k"], {}).get("mask")} for row in rows}
        self._check_unique(self.rows | made, DeniedError)
        self.rows |= made

    def update(self, name: str, value: Any, matches: Test) -> int:
        chosen = [key for key, row in self.visible.items() if matches(row)]
        rows = [{**self.rows[key], name: value} for key in chosen]
        if rows:
            self.put([{prop: row[prop] for prop in row if prop != "mask"} for row in rows])
        return len(rows)

    def delete(self, matches: Test) -> int:
        shown = self.visible
        chosen = {key for key, row in shown.items() if matches(row)}
        if not all(self.changes(self.rows[key]) for key in chosen):
            raise DeniedError
        if any(not {a, b} <= shown.keys() for a, b in self.edges if {a, b} & chosen):
            raise DeniedError
        self.rows = {key: row for key, row in self.rows.items() if key not in chosen}
        self.edges = [edge for edge in self.edges if not {*edge} & chosen]
        return len(chosen)

    def connect(self, a: str, b: str) -> None:
        if not {a, b} <= self.visible.keys():
            raise RefusedError
        self.edges.append((a, b))

    @staticmethod
    def _check_unique(rows: Mapping[str, Row], error: type[Exception]) -> None:
        values = [row["u"] for row in rows.values() if row["u"] is not None]
        if len(values) != len(set(values)):
            raise error


def some_row(random: Random, key: str) -> Row:
    unique = None if random.random() < 0.5 else f"u{random.randint(0, 11)}"
    return {"k": key, "owner": random.choice(OWNERS), "n": random.choice((None, *range(9))), "u": unique}


def literal(value: object) -> str:
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)


def a_condition(random: Random) -> tuple[str, Test]:
    name = random.choice(("k", "owner", "n", "n"))
    if name == "n":
        least = random.randint(0, 8)
        return f"n >= {least}", lambda row: row["n"] is not None and row["n"] >= least
    value = random.choice(KEYS if name == "k" else ("kim", "lee"))
    return f'{name} = "{value}"', lambda row: row[name] == value


Write = tuple[str, Callable[[Model], object], Callable[[Graph], object]]
"""A description, the write of the model, and the write of the graph."""


def a_write(random: Random) -> Write:
    draw = random.random()
    if draw < 0.4:
        rows = [some_row(random, key) for key in random.sample(KEYS, random.choice((1, 1, 2)))]
        append = random.random() < 0.4
        mode = "append" if append else "merge"
        return (
            f"load {mode} {rows}",
            lambda model: model.put(rows, append=append),
            lambda graph: graph.load({"A": rows}, mode=mode),
        )
    text, matches = a_condition(random)
    if draw < 0.65:
        name = random.choice(("owner", "n", "u"))
        value = some_row(random, "")[name]
        return (
            f"update {name} = {value} where {text}",
            lambda model: model.update(name, value, matches),
            lambda graph: (
                graph.mutate(f"query q() {{ update A set {{ {name}: {literal(value)} }} where {text} }}").affected_nodes
            ),
        )
    if draw < 0.8:
        return (
            f"delete where {text}",
            lambda model: model.delete(matches),
            lambda graph: graph.mutate(f"query q() {{ delete A where {text} }}").affected_nodes,
        )
    a, b = random.choice(KEYS), random.choice(KEYS)
    return (
        f"connect {a} {b}",
        lambda model: model.connect(a, b),
        lambda graph: graph.mutate(f'query q() {{ insert Next {{ from: "{a}", to: "{b}" }} }}') and None,
    )


def state_of(graph: Graph) -> tuple[dict[str, Row], list[tuple[str, str]]]:
    nodes = graph.query("query q() { match { $a: A } return { $a.k, $a.owner, $a.n, $a.u, $a.mask } }").to_pylist()
    edges = graph.query(
        "query q() { match { $a: A  $a $e:next $b } return { $a.k as a, $b.k as b, $e.id as e } }"
    ).to_pylist()
    rows = {row["a.k"]: {name.removeprefix("a."): value for name, value in row.items()} for row in nodes}
    return rows, sorted((row["a"], row["b"]) for row in edges)


def a_world(random: Random, path: Path) -> tuple[Model, Graph, Graph]:
    (read, sees), (change, changes) = random.choice(READ), random.choice(CHANGE)
    model = Model(sees, changes)
    for number, key in enumerate(random.sample(KEYS, 7)):
        model.rows[key] = some_row(random, key) | {"u": f"u{number}", "mask": number}
    model.edges = [(random.choice(list(model.rows)), random.choice(list(model.rows))) for _ in range(6)]
    whole = omnigraph.init(path, SCHEMA)
    whole.load({"A": list(model.rows.values())}, mode="append")
    whole.load({"Next": [{"from": a, "to": b} for a, b in model.edges]}, mode="append")
    rules = [RowRules({"node:A": text}, {"node:A": ("mask",)}, "kim") for text in (read, change)]
    return model, whole, whole.restricted(*rules)


def outcome(write: Callable[[Any], object], on: Model | Graph) -> object:
    try:
        return write(on)
    except (AccessDeniedError, DeniedError):
        return "denied"
    except (OmnigraphError, RefusedError):
        return "refused"


def _kind(found: object) -> object:
    """The error, or the number of entities that an update or a deletion has matched."""
    return found if isinstance(found, str | int) else "written"


def seeds() -> Iterator[int]:
    yield from range(SEED, SEED + -(-WRITES // PER_GRAPH))


def test_random_writes_agree_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    done: Counter[str] = Counter()
    for seed in seeds():
        random = Random(seed)
        model, whole, graph = a_world(random, tmp_path / f"g{seed}")
        with whole:
            for number in range(PER_GRAPH):
                text, on_model, on_graph = a_write(random)
                expected = outcome(on_model, model)
                found = outcome(on_graph, graph)
                place = f"seed {seed}, write {number}: {text}"
                assert _kind(found) == _kind(expected), f"{place}\nexpected {expected}, found {found}\n{model.rows}"
                assert state_of(whole) == (model.rows, sorted(model.edges)), place
                done[expected if isinstance(expected, str) else "written"] += 1
    assert min(done["written"], done["denied"], done["refused"]) > done.total() / 20, done
