"""Random schemas and graphs, as plain Python and on disk. Few distinct values, so that they collide, and extreme ones.

A world has several states of one graph: as loaded, after changes, and on a branch. Deleted rows leave
holes in the numbers that the engine assigns to entities, and updates move rows.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

from tests.read import oracle

import omnigraph
from omnigraph.commit.snapshots import Snapshot
from omnigraph.graph import Graph
from omnigraph.lang.schema import Catalog, compile_schema
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.temporal import format_date, format_datetime
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType

ENUM = "enum(red, green, blue)"
TYPES = {
    "text": "String",
    "word": "String",
    "flag": "Bool",
    "small": "I32",
    "big": "I64",
    "nat": "U32",
    "huge": "U64",
    "single": "F32",
    "double": "F64",
    "day": "Date",
    "time": "DateTime",
    "kind": ENUM,
    "texts": "[String]",
    "flags": "[Bool]",
    "ints": "[I64]",
    "nats": "[U64]",
    "reals": "[F32]",
    "days": "[Date]",
    "times": "[DateTime]",
    "kinds": f"[{ENUM}]",
    "vec": "Vector(2)",
}
"""The possible properties of a type. A name usually has one type, so that node types share properties."""

OTHERWISE = {"text": "I64", "word": ENUM, "big": "I32", "single": "F64", "texts": "String", "day": "DateTime"}
"""Other types that some of these properties sometimes have."""

IDS = ("a", "b", "c", "d", "e", "f", "Z", "é", "10", "9", "ab", "😀", " ", 'q"', "a\\", "\n")
EDGE_NAMES = ("Knows", "Likes", "Near", "Has", "Sees")


def f32(number: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return found


PLAIN: dict[Scalar, tuple[Any, ...]] = {
    Scalar.STRING: (
        *("", "a", "b", "ab", "Ab", "é", "É", " a ", "a.b", "😀", "10"),
        *("red fox", "the red Foxes", "fox, fox", "a dog runs", "running dogs", "red is the dog"),
    ),
    Scalar.BOOL: (True, False),
    Scalar.I32: (0, 1, 2, 3, -1, -7),
    Scalar.I64: (0, 1, 2, 3, -1, 12),
    Scalar.U32: (0, 1, 2, 3, 12),
    Scalar.U64: (0, 1, 2, 3, 12),
    Scalar.F32: (0.0, 0.5, 1.0, 2.0, -2.5, 3.0),
    Scalar.F64: (0.0, 0.5, 1.0, 2.0, -2.5, 3.0),
    Scalar.DATE: (0, 1, -1, 30, 59, 365, 19_782),
    Scalar.DATETIME: (0, 1, -1, 86_400_000, 1_773_480_600_123, 2_678_400_000),
}
EDGES: dict[Scalar, tuple[Any, ...]] = {
    Scalar.STRING: ("\0", "\t", "a\nb", "%", "_", "ΑΣ", "\u2028", "z" * 40),
    Scalar.BOOL: (True, False),
    Scalar.I32: INTEGER_RANGES[Scalar.I32],
    Scalar.I64: (*INTEGER_RANGES[Scalar.I64], 2**53 + 1, 2**53),
    Scalar.U32: (2**32 - 1, 2**31),
    Scalar.U64: (2**64 - 1, 2**63, 2**53 + 1),
    Scalar.F32: (-0.0, f32(0.1), f32(3.4028234663852886e38), f32(1e-45), 2.0**24),
    Scalar.F64: (-0.0, 0.1, 1.7976931348623157e308, 5e-324, 2.0**53, 2.0**63, 1e16),
    Scalar.DATE: (-719_162, 2_932_896, 11_016),
    Scalar.DATETIME: (-62_135_596_800_000, 253_402_300_799_999, 951_782_400_000),
}


def some_value(rng: Random, kind: ValueType, *, edges: float = 0.04) -> Any:
    """Return a value of a type, as the oracle represents it."""
    if kind.is_vector:
        return tuple(rng.choice((0.0, 1.0, -0.5, 2.0)) for _ in range(kind.dim or 0))
    if kind.list:
        return tuple(some_value(rng, kind.item, edges=edges) for _ in range(rng.choice((0, 1, 1, 2, 3))))
    if kind.enum_values is not None:
        return rng.choice(kind.enum_values)
    return rng.choice((EDGES if rng.random() < edges else PLAIN)[kind.scalar])


def written(value: Any, kind: ValueType) -> Any:
    """Return a value in the form in which it is loaded."""
    if value is None:
        return None
    if kind.list or kind.is_vector:
        return [written(item, kind.item) if kind.list else item for item in value]
    if kind.scalar is Scalar.DATE:
        return format_date(value)
    if kind.scalar is Scalar.DATETIME:
        return format_datetime(value)
    return value


# Schemas


def some_schema(rng: Random, *, indexed: bool = False) -> str:
    """Return the text of a schema: node types, interfaces, and edges between and within the types.

    Args:
        rng: the random generator.
        indexed: whether every property that can have an index has one.
    """
    fixed = {name: kind + "?" * (rng.random() < 0.6) for name, kind in TYPES.items()}
    names = [name for name in TYPES if name != "vec"]
    interfaces = {name: rng.sample(names, rng.randint(1, 3)) for name in ("Named", "Dated")[: rng.choice((0, 1, 2, 2))]}
    lines = [f"interface {name} {{ {_declared(props, fixed)} }}" for name, props in interfaces.items()]
    share = max(rng.choice((0.0, 0.3, 1.0)), float(indexed))
    nodes = ["A", "B", "C"][: rng.choice((1, 2, 2, 3, 3))]
    for name in nodes:
        mine = [i for i in interfaces if rng.random() < 0.6]
        inherited = {prop for i in mine for prop in interfaces[i]}
        own = [p for p in rng.sample(sorted(TYPES), rng.randint(2, 9)) if p not in inherited]
        implements = f" implements {', '.join(mine)}" if mine else ""
        kinds = _varied(rng, fixed)
        more = rng.choice(("", "", "key: String @key", "code: I64 @key"))
        if "vec" in own and rng.random() < 0.6:
            more += f' @index(vec, kind="vector", metric="{rng.choice(("l2", "cosine", "dot"))}")'
        if "text" in own and kinds["text"].startswith("String") and rng.random() < 0.4:
            more += f' @index(text, kind="fts"{rng.choice(("", ", stem=false", ", stop_words=false"))})'
        for prop in own:
            if rng.random() < share and prop not in ("vec", "text") and not kinds[prop].startswith("["):
                more += f" @index({prop})"
        lines.append(f"node {name}{implements} {{ {_declared(own, kinds)} {more} }}")
    names = list(EDGE_NAMES[: rng.randint(1, 4)])
    if rng.random() < 0.2:
        names.append(rng.choice(nodes))  # an edge type may have the name of a node type
    for name in names:
        ends = rng.choice(nodes), rng.choice(nodes)
        if rng.random() < 0.4:
            ends = ends[0], ends[0]
        own = rng.sample(sorted(TYPES.keys() - {"vec"}), rng.choice((0, 1, 2, 3)))
        more = "key: String? " if rng.random() < 0.15 or name in nodes else ""
        more += "@key(src, dst)" if rng.random() < 0.1 else ""
        bound = rng.choice((" @card(0..1)", " @card(0..1)", " @card_in(0..1)")) if rng.random() < 0.2 else ""
        lines.append(f"edge {name}: {ends[0]} -> {ends[1]}{bound} {{ {_declared(own, _varied(rng, fixed))} {more} }}")
    return "\n".join(lines)


def _varied(rng: Random, fixed: Mapping[str, str]) -> dict[str, str]:
    varied = {}
    for name, kind in fixed.items():
        draw = rng.random()
        if draw < 0.05 and name in OTHERWISE:
            kind = OTHERWISE[name] + "?"
        elif draw < 0.3:
            kind = kind.removesuffix("?") if kind.endswith("?") else kind + "?"
        varied[name] = kind
    return varied


def _declared(names: list[str], kinds: Mapping[str, str]) -> str:
    return "  ".join(f"{name}: {kinds[name]}" for name in names)


# Graphs in plain Python


@dataclass
class Model:
    """A graph in plain dictionaries: values by type and id, and for edges the two endpoints."""

    catalog: Catalog
    nodes: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    edges: dict[str, dict[str, tuple[str, str, dict[str, Any]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.catalog.nodes:
            self.nodes.setdefault(name, {})
        for name in self.catalog.edges:
            self.edges.setdefault(name, {})

    def frozen(self) -> oracle.Graph:
        """Convert the graph to the form that the oracle takes."""
        return oracle.Graph(
            {
                name: {id_: oracle.Node(name, id_, dict(values)) for id_, values in rows.items()}
                for name, rows in self.nodes.items()
            },
            {
                name: {id_: oracle.Edge(name, id_, a, b, dict(values)) for id_, (a, b, values) in rows.items()}
                for name, rows in self.edges.items()
            },
        )

    def delete_nodes(self, name: str, ids: list[str]) -> None:
        """Delete nodes with their edges."""
        for id_ in ids:
            del self.nodes[name][id_]
        for edge, rows in self.edges.items():
            declared = self.catalog.edges[edge]
            for id_, (source, target, _) in list(rows.items()):
                if (declared.from_type == name and source in ids) or (declared.to_type == name and target in ids):
                    del rows[id_]


def _values(rng: Random, owner: NodeType | EdgeType) -> dict[str, Any]:
    return {
        name: None if prop.type.nullable and rng.random() < 0.25 else some_value(rng, prop.type)
        for name, prop in owner.properties.items()
    }


def _add_nodes(rng: Random, model: Model, name: str, count: int) -> list[str]:
    """Add new nodes, or new values of existing nodes."""
    declared = model.catalog.nodes[name]
    chosen = []
    for _ in range(count):
        values = _values(rng, declared)
        id_ = rng.choice(IDS) if count <= len(IDS) else f"{rng.choice(IDS)}{rng.randint(0, 3 * count)}"
        if "code" in declared.properties and declared.key == ("code",):
            values["code"] = rng.choice((*range(count), 2**53 + 1, -5))
            id_ = str(values["code"])
        elif declared.key == ("key",):
            values["key"] = id_
        model.nodes[name][id_] = values
        chosen.append(id_)
    return list(dict.fromkeys(chosen))


def _add_edges(rng: Random, model: Model, name: str, count: int) -> list[str]:
    declared = model.catalog.edges[name]
    sources, targets = list(model.nodes[declared.from_type]), list(model.nodes[declared.to_type])
    if not sources or not targets:
        return []
    chosen = []
    for _ in range(count):
        source, target = rng.choice(sources), rng.choice(targets)
        if rng.random() < 0.15 and source in targets:
            target = source
        known = list(model.edges[name].values())
        if known and rng.random() < 0.2:
            source, target, _old = rng.choice(known)
        id_ = f"{rng.choice('zyxwé')}{rng.randint(0, 40)}"
        if declared.key:
            id_ = json.dumps([source, target], ensure_ascii=False, separators=(",", ":"))
        others = [(a, b) for other, (a, b, _) in model.edges[name].items() if other != id_]
        if (declared.card.max == 1 and any(a == source for a, _ in others)) or (
            declared.card_in.max == 1 and any(b == target for _, b in others)
        ):
            continue
        model.edges[name][id_] = (source, target, _values(rng, declared))
        chosen.append(id_)
    return list(dict.fromkeys(chosen))


# Graphs on disk


def _node_lines(model: Model, name: str, ids: list[str]) -> list[dict[str, Any]]:
    declared = model.catalog.nodes[name]
    lines = []
    for id_ in ids:
        given = {} if declared.key else {"id": id_}
        lines.append({"type": name, "data": given | _row(model.nodes[name][id_], declared)})
    return lines


def _edge_lines(model: Model, name: str, ids: list[str]) -> list[dict[str, Any]]:
    declared = model.catalog.edges[name]
    lines = []
    for id_ in ids:
        source, target, values = model.edges[name][id_]
        given = {} if declared.key else {"id": id_}
        lines.append({"edge": name, "from": source, "to": target, "data": given | _row(values, declared)})
    return lines


def _row(values: Mapping[str, Any], declared: NodeType | EdgeType) -> dict[str, Any]:
    return {name: written(value, declared.properties[name].type) for name, value in values.items()}


@dataclass(frozen=True)
class State:
    """A graph at one commit, on disk and in plain Python."""

    name: str
    snapshot: Snapshot
    graph: oracle.Graph


class Indexes(Enum):
    """How much of a world is indexed."""

    NONE = "no indexes"
    PARTIAL = "indexes of what was there first"
    FULL = "indexes of everything"
    ANY = "as it happens"


class World:
    """One graph with its states.

    Args:
        seed: the seed of all random choices.
        place: the directory of the graph.
        indexes: how much of it is indexed. The rows do not depend on it.
    """

    def __init__(self, seed: int, place: Path, indexes: Indexes = Indexes.ANY) -> None:
        self.rng = Random(seed)
        self.place = place
        self.indexes = indexes
        self.schema = some_schema(self.rng, indexed=indexes is not Indexes.ANY)
        self.catalog = compile_schema(self.schema)
        self.graph: Graph = omnigraph.init(place, self.schema)
        self.states = list(self._states())

    def close(self) -> None:
        self.graph.close()

    def _states(self) -> Iterator[State]:
        rng, model = self.rng, Model(self.catalog)
        many = rng.random() < 0.25
        nodes, edges = (24, 12) if many else rng.choice(((6, 12), (6, 12), (5, 30)))
        for _ in range(rng.choice((1, 1, 2))):
            self._grow(model, "main", nodes, edges)
        self._index("main", share=0.4, first=True)
        yield self._state("loaded", "main", model)
        self.graph.branches.create("side")
        side = deepcopy(model)
        for _ in range(rng.choice((1, 2))):
            self._shrink(model, "main", few=many)
            self._grow(model, "main", 2, 3)
        self._index("main", share=0.2)
        yield self._state("changed", "main", model)
        self._shrink(side, "side", few=False)
        self._grow(side, "side", 3, 4)
        self._index("side", share=0.2)
        yield self._state("branch", "side", side)
        if rng.random() < 0.1:
            for name in self.catalog.nodes:
                self._delete_nodes(model, "main", name, list(model.nodes[name]))
            yield self._state("emptied", "main", model)

    def _index(self, branch: str, *, share: float, first: bool = False) -> None:
        """Build the declared indexes: always, never, after the first load, or in a part of all worlds."""
        chosen = self.rng.random() < share
        wanted = {Indexes.NONE: False, Indexes.PARTIAL: first, Indexes.FULL: True, Indexes.ANY: chosen}
        if wanted[self.indexes]:
            self.graph.ensure_indexes(branch=branch)

    def _state(self, name: str, branch: str, model: Model) -> State:
        return State(name, self.graph.snapshot(branch=branch), model.frozen())

    def _grow(self, model: Model, branch: str, nodes: int, edges: int) -> None:
        """Add new rows, and new values of old rows."""
        rng = self.rng
        lines: list[dict[str, Any]] = []
        for name in self.catalog.nodes:
            ids = _add_nodes(
                rng, model, name, rng.choice((nodes // 2, nodes, nodes) if rng.random() < 0.92 else (0, 1))
            )
            lines += _node_lines(model, name, ids)
        for name in self.catalog.edges:
            ids = _add_edges(rng, model, name, rng.randint(edges // 2 if rng.random() < 0.8 else 0, edges))
            lines += _edge_lines(model, name, ids)
        if lines:
            self.graph.load(lines, mode="merge", branch=branch)

    def _shrink(self, model: Model, branch: str, *, few: bool) -> None:
        """Delete nodes and edges; all but a few if requested."""
        rng = self.rng
        for name in self.catalog.nodes:
            known = sorted(model.nodes[name])
            count = max(0, len(known) - 2) if few else rng.choice((0, 1, len(known) // 3))
            self._delete_nodes(model, branch, name, rng.sample(known, min(count, len(known))))
        for name in self.catalog.edges:
            ids = rng.sample(sorted(model.edges[name]), min(rng.choice((0, 1, 2)), len(model.edges[name])))
            if ids:
                self.graph.mutate(
                    f"query q($ids: [String]) {{ delete edge {name} where id in $ids }}", {"ids": ids}, branch=branch
                )
                for id_ in ids:
                    del model.edges[name][id_]

    def _delete_nodes(self, model: Model, branch: str, name: str, ids: list[str]) -> None:
        if ids:
            self.graph.mutate(
                f"query q($ids: [String]) {{ delete node {name} where id in $ids }}", {"ids": ids}, branch=branch
            )
            model.delete_nodes(name, ids)
