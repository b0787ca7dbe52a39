"""Random schema changes between random writes: the graph agrees with a model of plain Python values."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commit.graphs import assert_whole

import omnigraph
from omnigraph.errors import SchemaDataError
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC

CASES = int(os.environ.get("OMNIGRAPH_CASES", "6"))
STEPS = 25
WIDER = {"I32": "I64", "U32": "U64", "F32": "F64"}
ARROW = {
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "String": pa.utf8(),
    "Blob": pa.large_binary(),
    "[I32]": pa.list_(pa.int32()),
    "[I64]": pa.list_(pa.int64()),
    "Vector(2)": pa.list_(pa.float32(), 2),
}


@dataclass
class Prop:
    """A property of the model. `was` is its name before the last schema change."""

    kind: str
    required: bool = False
    default: str | None = None
    values: list[str] = field(default_factory=list)
    was: str | None = None
    renamed: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        if self.kind == "enum":
            parts = [f'{v} @rename_from("{self.renamed[v]}")' if v in self.renamed else v for v in self.values]
            kind = f"enum({', '.join(parts)})"
        else:
            kind = self.kind
        hint = f' @rename_from("{self.was}")' if self.was not in (None, name) else ""
        default = f" @default({self.default})" if self.default is not None else ""
        return f"{name}: {kind}{'' if self.required else '?'}{default}{hint}"


class World:
    """A graph with one type, and its model."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self.chance = chance
        self.props: dict[str, Prop] = {"n": Prop("I32"), "s": Prop("String"), "e": Prop("enum", values=["a", "b"])}
        self.rows: dict[str, dict[str, Any]] = {}
        self.graph = omnigraph.init(place, self.schema())
        self.place = place
        self.count = self.names = 0
        self.before: set[str] = set()
        self.past: list[tuple[str, str, dict[str, dict[str, Any]]]] = []

    def schema(self) -> str:
        lines = [prop.text(name) for name, prop in self.props.items()]
        return "node T {\n  k: String @key\n  " + "\n  ".join(lines) + "\n}\n"

    def fresh(self, prefix: str = "p") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def value(self, prop: Prop) -> Any:
        roll = self.chance
        if not prop.required and roll.random() < 0.3:
            return None
        kind = prop.kind
        if kind == "enum":
            return roll.choice(prop.values)
        if kind == "String":
            return roll.choice(["", "x", "ü", "long " * 20])
        if kind == "Blob":
            return bytes(roll.randrange(256) for _ in range(roll.randrange(6)))
        if kind.startswith("["):
            return [roll.randrange(100) for _ in range(roll.randrange(4))]
        if kind == "Vector(2)":
            return [float(roll.randrange(9)), 0.5]
        return float(roll.randrange(50)) / 4 if kind.startswith("F") else roll.randrange(1000)

    # Writes

    def write(self) -> None:
        ids = [f"r{self.count + i}" for i in range(self.chance.randrange(1, 6))]
        self.count += len(ids)
        ids += self.chance.sample(sorted(self.rows), min(len(self.rows), self.chance.randrange(3)))
        new = {id: {name: self.value(prop) for name, prop in self.props.items()} for id in ids}
        columns: dict[str, pa.Array] = {"k": pa.array(ids)}
        for name, prop in self.props.items():
            kind = ARROW.get(prop.kind, pa.utf8())
            columns[name] = pa.array([new[id][name] for id in ids], kind)
        self.graph.load({"T": pa.table(columns)}, mode="merge")
        self.rows |= new

    def delete(self) -> None:
        if self.rows:
            gone = self.chance.choice(sorted(self.rows))
            self.graph.mutate(f'query d() {{ delete T where k = "{gone}" }}')
            del self.rows[gone]

    def optimize(self) -> None:
        self.graph.ensure_indexes() if self.chance.random() < 0.5 else self.graph.optimize()

    def reopen(self) -> None:
        self.graph.close()
        self.graph = omnigraph.open(self.place)

    # Schema changes

    def change(self) -> None:
        """Several random edits of the schema as one change."""
        self.past.append((self.graph.snapshot().commit.id, self.schema(), {id: dict(r) for id, r in self.rows.items()}))
        before = {name: Prop(**vars(prop)) for name, prop in self.props.items()}
        stored = {id: dict(row) for id, row in self.rows.items()}
        for name, prop in self.props.items():
            prop.was, prop.renamed = name, {}
        touched: set[str] = set()
        self.before = set(before)
        for _ in range(self.chance.randrange(1, 4)):
            self.chance.choice([self.add, self.rename, self.drop, self.widen, self.revalue, self.require])(touched)
        new = self.schema()
        impossible = any(
            row[name] is None for name, p in self.props.items() if p.required for row in self.rows.values()
        )
        if impossible:
            with pytest.raises(SchemaDataError):
                self.graph.schema.apply(new)
            self.props, self.rows = before, stored
            return
        self.graph.schema.apply(new)

    def add(self, touched: set[str]) -> None:
        name = self.fresh()
        kind = self.chance.choice(["I32", "U32", "F32", "String", "Blob", "[I32]", "Vector(2)", "enum"])
        prop = Prop(kind, values=["a", "b", "c"] if kind == "enum" else [])
        value: Any = None
        if kind in ("I32", "String", "enum") and self.chance.random() < 0.6:
            prop.required = True
            prop.default, value = {"I32": ("7", 7), "String": ('"d"', "d"), "enum": ("b", "b")}[kind]
        self.props[name] = prop
        touched.add(name)
        for row in self.rows.values():
            row[name] = value

    def _one(self, touched: set[str], *kinds: str) -> str | None:
        names = [n for n, p in self.props.items() if n not in touched and (not kinds or p.kind in kinds)]
        return self.chance.choice(names) if names else None

    def rename(self, touched: set[str]) -> None:
        old = self._one(touched)
        if old is None:
            return
        # A name that exists before the change keeps its identity. Older names can be used again.
        older = sorted({name for _, _, rows in self.past for row in rows.values() for name in row} - self.before)
        new = self.chance.choice([*(name for name in older if name not in self.props), self.fresh()])
        self.props[new] = self.props.pop(old)
        touched.add(new)
        for row in self.rows.values():
            row[new] = row.pop(old)

    def drop(self, touched: set[str]) -> None:
        name = self._one(touched)
        if name is not None and len(self.props) > 1:
            del self.props[name]
            touched.add(name)
            for row in self.rows.values():
                del row[name]

    def widen(self, touched: set[str]) -> None:
        name = self._one(touched, *WIDER, "[I32]")
        if name is not None and self.props[name].default is None:
            self.props[name].kind = WIDER.get(self.props[name].kind, "[I64]")
            touched.add(name)

    def revalue(self, touched: set[str]) -> None:
        name = self._one(touched, "enum")
        if name is None or self.props[name].default is not None:
            return
        prop, old, new = self.props[name], self.chance.choice(self.props[name].values), self.fresh("v")
        prop.values = [new if value == old else value for value in prop.values]
        prop.renamed = {new: old}
        touched.add(name)
        for row in self.rows.values():
            row[name] = new if row[name] == old else row[name]

    def require(self, touched: set[str]) -> None:
        name = self._one(touched)
        if name is not None and self.props[name].default is None:
            self.props[name].required = not self.props[name].required
            touched.add(name)

    # Checks

    def check(self) -> None:
        assert stored(self.graph) == self.rows
        if self.past:
            commit, schema, rows = self.chance.choice(self.past)
            assert stored(self.graph, commit) == rows, schema


def stored(graph: Graph, commit: str | None = None) -> dict[str, dict[str, Any]]:
    view = graph.snapshot(commit=commit) if commit else graph.snapshot()
    table = view.table("node:T")
    rows = table.dataset.scanner(columns=[*table.schema().names, "_rowid"]).to_table()
    found = {}
    for part in table.content(rows):
        for row in part.to_pylist():
            found[row["id"]] = {
                name: value["data"] if isinstance(value, dict) else value
                for name, value in row.items()
                if name not in ("id", "k", "_rowid")
            }
    return found


@pytest.fixture(autouse=True)
def _fast() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FSYNC.name, "0")
        yield


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES))
def test_random_changes_agree_with_the_model(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path / "t", random.Random(seed))
    acts = [world.write] * 3 + [world.change] * 4 + [world.delete, world.optimize, world.reopen]
    for _ in range(STEPS):
        world.chance.choice(acts)()
        world.check()
    for commit, schema, rows in world.past:
        assert stored(world.graph, commit) == rows
        del schema
    assert world.graph.verify().ok
    assert_whole(world.graph)
    world.graph.close()
