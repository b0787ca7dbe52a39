"""Diffs of random histories with schema changes agree with a model: a new property counts as filled before."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.changes.histories import Key, State, records, same, state_of
from tests.changes.test_histories import few_rows_at_a_time
from tests.sampling import every_nth
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import VersionReclaimedError
from omnigraph.graph import Graph

HISTORIES = range(int(os.environ.get("OMNIGRAPH_HISTORIES", "12")))
STEPS = 16


@dataclass(frozen=True)
class Prop:
    """A property. `number` identifies it in the model; `fill` is the value that it was added with."""

    number: int
    type: str
    default: str | None = None
    nullable: bool = True
    fill: Any = None

    def text(self, name: str, former: str | None, renamed: tuple[str, str] | None) -> str:
        hint = f' @rename_from("{former}")' if former else ""
        default = f" @default({self.default})" if self.default else ""
        type_ = self.type.replace(renamed[0], f'{renamed[0]} @rename_from("{renamed[1]}")') if renamed else self.type
        return f"{name}: {type_}{'?' if self.nullable else ''}{default}{hint}"


Types = dict[str, dict[str, Prop]]
CHOICES = [
    Prop(0, "I32"),
    Prop(0, "String", '"x"'),
    Prop(0, "[String]"),
    Prop(0, "I32", "7", nullable=False),
    Prop(0, "String", '"red"', nullable=False),
    Prop(0, "DateTime", "now()", nullable=False),
    Prop(0, "enum(high, low)", '"low"', nullable=False),
    Prop(0, "Blob"),
]
VALUES: dict[str, list[Any]] = {
    "I32": [7, 8, 9],
    "I64": [7, 8, 1 << 40],
    "String": ["x", "red", "blue"],
    "[String]": [[], ["a"], ["a", "b"]],
    "DateTime": [0, 1_700_000_000_123],
    "Blob": ["base64:AAAA", "base64:"],
}


def filled(prop: Prop) -> Any:
    if prop.nullable or prop.default is None:
        return None
    return int(prop.default) if prop.default.isdigit() else prop.default.strip('"')


@dataclass
class World:
    """A graph, with the properties and the entities of each commit."""

    graph: Graph
    random: Random
    types: Types = field(default_factory=lambda: {"T": {}, "L": {}})
    commits: dict[str, tuple[Types, State]] = field(default_factory=dict)
    schemas: dict[str, Types] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: count(1))

    def remember(self) -> None:
        for branch in self.graph.branches:
            head = self.graph.snapshot(branch=branch.name).commit.id
            types = self.schemas.setdefault(branch.name, self.types)
            if head not in self.commits:
                self.commits[head] = types, state_of(self.graph.export(at=head))

    def apply(self, types: Types, former: tuple[str, str, str] | None = None, renamed: Any = None) -> None:
        bodies = {}
        for name, props in types.items():
            parts = []
            for prop, declared in props.items():
                old = former[2] if former and former[:2] == (name, prop) else None
                pair = renamed[2] if renamed and renamed[:2] == (name, prop) else None
                parts.append(declared.text(prop, old, pair))
            bodies[name] = "\n".join(parts)
        self.graph.schema.apply(f"node T {{ k: String @key\n{bodies['T']} }}\nedge L: T -> T {{ {bodies['L']} }}")
        self.types = self.schemas["main"] = types

    def alter(self) -> None:
        types = {name: dict(props) for name, props in self.types.items()}
        kind = self.random.choice(sorted(types))
        props = types[kind]
        act = self.random.choice(["add", "add", "rename", "drop", "default", "nullable", "widen", "enum"])
        if act == "add" or not props:
            chosen = self.random.choice(CHOICES)
            name = self.random.choice([n for n in "abcdefg" if n not in props])
            props[name] = replace(chosen, number=next(self.numbers), fill=filled(chosen))
            self.apply(types)
            if chosen.default == "now()":
                key = f"{'edge' if kind == 'L' else 'node'}:{kind}"
                times = {row[name] for (of, _), row in state_of(self.graph.export()).items() if of == key}
                assert len(times) <= 1
                props[name] = replace(props[name], fill=times.pop() if times else None)
            return
        name = self.random.choice(sorted(props))
        prop, former, renamed = props[name], None, None
        if act == "rename":
            new = self.random.choice([n for n in "hijlmn" if n not in props])
            props[new] = props.pop(name)
            former = (kind, new, name)
        elif act == "drop":
            del props[name]
        elif act == "default" and prop.type == "I32":
            props[name] = replace(prop, default="8")
        elif act == "nullable":
            props[name] = replace(prop, nullable=True)
        elif act == "widen" and prop.type == "I32":
            props[name] = replace(prop, type="I64")
        elif act == "enum" and prop.type == "enum(high, low)":
            fill = "base" if prop.fill == "low" else prop.fill
            props[name] = replace(prop, type="enum(high, base)", default='"base"', fill=fill)
            renamed = (kind, name, ("base", "low"))
        self.apply(types, former, renamed)

    def value(self, prop: Prop) -> Any:
        values = VALUES.get(prop.type) or prop.type.removeprefix("enum(").removesuffix(")").split(", ")
        return self.random.choice([*values, None] if prop.nullable else values)

    def write(self, branch: str) -> None:
        types, state = self.commits[self.graph.snapshot(branch=branch).commit.id]
        rows: State = {}
        for key in self.random.sample(sorted(state), min(3, len(state))):
            props = types[key[0][5:]]
            rows[key] = dict(state[key])
            if props:
                name = self.random.choice(sorted(props))
                rows[key][name] = self.value(props[name])
        name = f"k{self.random.randrange(12)}"
        if self.random.random() < 0.5:
            data = {prop: self.value(declared) for prop, declared in types["T"].items()}
            rows["node:T", name] = {"id": name, "k": name, **data}
        nodes = sorted(key[1] for key in state if key[0] == "node:T")
        if nodes and self.random.random() < 0.5:
            data = {prop: self.value(declared) for prop, declared in types["L"].items()}
            ends = {"from": self.random.choice(nodes), "to": self.random.choice(nodes)}
            edge = f"e{self.random.randrange(6)}"
            rows["edge:L", edge] = {"id": edge, **ends, **data}
        if rows:
            self.graph.load(records(rows), mode="merge", branch=branch)

    def step(self) -> None:
        branch = self.random.choice([one.name for one in self.graph.branches])
        act = self.random.choices(["write", "alter", "delete", "optimize", "fork", "update"], [8, 7, 2, 2, 1, 2])[0]
        if act == "write":
            self.write(branch)
        elif act == "alter":
            self.alter()
        elif act == "delete":
            name = f"k{self.random.randrange(12)}"
            self.graph.mutate("query q($k: String) { delete T where k = $k }", {"k": name}, branch=branch)
        elif act == "optimize":
            self.graph.optimize()
        elif act == "fork" and "side" not in self.schemas:
            self.graph.branches.create("side")
            self.schemas["side"] = self.types
        elif act == "update" and "side" in self.schemas:
            self.graph.branches.update("side", strategy="theirs")
            self.schemas["side"] = self.types
        self.remember()

    def expected(self, before: str, after: str, unknown: set[tuple[str, str]]) -> dict[Key, tuple[str, set[str]]]:
        (old_types, old), (new_types, new) = self.commits[before], self.commits[after]
        found: dict[Key, tuple[str, set[str]]] = {}
        for key in old.keys() | new.keys():
            if key not in old or key not in new:
                found[key] = ("insert" if key in new else "delete"), set()
                continue
            kind = key[0][5:]
            former = {prop.number: name for name, prop in old_types[kind].items()}
            names = {name for name in ("from", "to") if old[key].get(name) != new[key].get(name)}
            for name, prop in new_types[kind].items():
                was = old[key][former[prop.number]] if prop.number in former else prop.fill
                if not same(was, new[key][name]) and (key[0], name) not in unknown:
                    names.add(name)
            if names:
                found[key] = "update", names
        return found

    def check(self, before: str, after: str, *, may_be_unknown: bool = False) -> None:
        """Compare a diff with the model. After a cleanup, the fills of some properties may be unknown."""
        found: dict[Key, tuple[str, set[str]]] = {}
        unknown: set[tuple[str, str]] = set()
        for one in self.graph.diff(before, after):
            new = self.commits[after][0][one.name]
            unknown |= {(one.key, name) for name in new if name not in one.filled and name not in one.old_names}
            counts = {"insert": 0, "update": 0, "delete": 0}
            for batch in one.batches():
                for row in batch.to_pylist():
                    found[one.key, row["id"]] = row["op"], set(row["changed"] or ())
                    counts[row["op"]] += 1
            assert (one.counts.inserts, one.counts.updates, one.counts.deletes) == tuple(counts.values())
        assert may_be_unknown or not unknown
        wanted = self.expected(before, after, unknown)
        assert found == wanted
        if wanted:
            key = self.random.choice(sorted(wanted))
            only = self.graph.diff(before, after, types=key[0], ids=key[1])
            assert [(c["id"], c["op"]) for c in only.to_json()["changes"]] == [(key[1], wanted[key][0])]


@pytest.mark.slow
@pytest.mark.parametrize("number", every_nth(HISTORIES, 2))
def test_values_set_in_new_properties_are_changes_and_filled_ones_are_not(
    tmp_path: Path, number: int, thresholds: Thresholds
) -> None:
    few_rows_at_a_time(thresholds, number)
    with omnigraph.init(tmp_path / "g", "node T { k: String @key }\nedge L: T -> T") as graph:
        graph.load([{"type": "T", "data": {"k": f"k{i}"}} for i in range(8)], mode="append")
        edges = [{"edge": "L", "from": f"k{i}", "to": "k0", "data": {"id": f"e{i}"}} for i in range(4)]
        graph.load(edges, mode="append")
        world = World(graph, Random(number))
        world.remember()
        for _ in range(STEPS):
            world.step()
        commits = sorted(world.commits)
        for before, after in [(commits[0], commits[-1]), *(world.random.choices(commits, k=2) for _ in range(14))]:
            world.check(before, after)
        graph.cleanup(keep=len(commits) - 4)
        for before, after in [world.random.choices(commits, k=2) for _ in range(14)]:
            with suppress(VersionReclaimedError):
                world.check(before, after, may_be_unknown=True)
