"""Random row rules and policies, and graphs in plain Python without the rows that the rules hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.read import oracle
from tests.read.graphs import some_value
from tests.read.oracle import Oracle
from tests.read.queries import literal

from omnigraph.engine.row_scope import RowRules, Rows
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.lang.types import Scalar, ValueType

ACTORS = ("a", "b", "ab", "red", "e")
NOW = 1_773_480_600_123


def some_rules(rng: Random, catalog: Catalog) -> RowRules:
    """Random rules. Most types have a condition, some are hidden, and some properties are."""
    types: dict[str, str | Rows] = {}
    hidden: dict[str, list[str]] = {}
    for key, declared in _types(catalog):
        draw = rng.random()
        if draw < 0.12:
            types[key] = Rows.HIDDEN
        elif draw < 0.7:
            types[key] = _condition(rng, declared)
        if rng.random() < 0.3:
            free = [name for name in declared.properties if name not in (declared.key or ())]
            hidden[key] = rng.sample(free, min(len(free), rng.choice((1, 1, 2))))
    groups = rng.sample(ACTORS, rng.randint(0, 3))
    actor = None if rng.random() < 0.1 else rng.choice(ACTORS)
    return RowRules(types, hidden, actor, groups)


@dataclass(frozen=True)
class SomePolicy:
    """A random policy, and one of its actors."""

    bundle: dict[str, Any]
    actor: str

    def rules(self, catalog: Catalog, branch: str) -> RowRules:
        """What the actor may read on a branch, by the text of the guide: allowed types, alternatives and masks."""
        bundle = self.bundle
        groups = sorted(name for name, members in bundle["groups"].items() if self.actor in members)
        allowed = [rule["allow"] for rule in bundle["rules"] if self._applies(rule["allow"], groups, branch)]
        types: dict[str, str | Rows] = {}
        hidden: dict[str, list[str]] = {}
        for key, _ in _types(catalog):
            if not any("types" not in one or key in one["types"] for one in allowed):
                types[key] = Rows.HIDDEN
            elif about := [one for one in bundle["row_rules"] if one["type"] == key and "read" in one["actions"]]:
                own = [one.get("where") for one in about if one["actors"]["group"] in groups]
                some = [f"({where})" for where in own if where is not None]
                types[key] = Rows.HIDDEN if not own else Rows.ALL if len(some) < len(own) else " or ".join(some)
            masks = [one for one in bundle["masks"] if one["type"] == key and one["actors"]["group"] in groups]
            if masks:
                hidden[key] = [name for one in masks for name in one["properties"]]
        return RowRules(types, hidden, self.actor, groups)

    def _applies(self, allow: Mapping[str, Any], groups: list[str], branch: str) -> bool:
        is_protected = branch in self.bundle["protected_branches"]
        scopes = ("any", "protected" if is_protected else "unprotected")
        return "read" in allow["actions"] and allow["actors"]["group"] in groups and allow["branch_scope"] in scopes


def some_policy(rng: Random, catalog: Catalog) -> SomePolicy:
    """A random policy. Its actor may read something, and is limited in most of them."""
    actor = rng.choice(ACTORS)
    names = rng.sample(("crew", "red", "b", "é 1"), rng.randint(1, 3))
    groups = {name: rng.sample(ACTORS, rng.randint(1, 3)) for name in names}
    groups[names[0]] = sorted({actor, *groups[names[0]]})
    keys = [key for key, _ in _types(catalog)]

    def actors() -> dict[str, str]:
        return {"group": names[0] if rng.random() < 0.6 else rng.choice(names)}

    rules = []
    for number in range(rng.choice((1, 1, 2, 3))):
        actions = rng.choice((["read"], ["read", "change"], ["read", "export"], ["change"] if number else ["read"]))
        allow: dict[str, Any] = {"actors": actors() if number else {"group": names[0]}, "actions": actions}
        allow["branch_scope"] = rng.choice(("any", "any", "protected", "unprotected"))
        if rng.random() < 0.4:
            allow["types"] = [key for key in keys if rng.random() < 0.75] or keys[:1]
        rules.append({"id": f"rule-{number}", "allow": allow})
    row_rules: list[dict[str, Any]] = []
    masks: list[dict[str, Any]] = []
    for key, declared in _types(catalog):
        for _ in range(rng.choice((0, 1, 1, 2))):
            actions = rng.choice((["read"], ["read"], ["read", "change"], ["change"]))
            rule = {"id": f"rows-{len(row_rules)}", "type": key, "actions": actions, "actors": actors()}
            if rng.random() < 0.85:
                rule["where"] = _condition(rng, declared)
            row_rules.append(rule)
        free = [name for name in declared.properties if name not in (declared.key or ())]
        if free and rng.random() < 0.3:
            properties = rng.sample(free, min(len(free), rng.choice((1, 1, 2))))
            masks.append({"id": f"mask-{key}", "type": key, "properties": properties, "actors": actors()})
    bundle = {"version": 1, "groups": groups, "protected_branches": ["main"], "rules": rules}
    return SomePolicy(bundle | {"row_rules": row_rules, "masks": masks}, actor)


def _types(catalog: Catalog) -> list[tuple[str, NodeType | EdgeType]]:
    nodes = [(node_key(name), one) for name, one in catalog.nodes.items()]
    return [*nodes, *((edge_key(name), one) for name, one in catalog.edges.items())]


def _condition(rng: Random, declared: NodeType | EdgeType, depth: int = 2) -> str:
    if depth and rng.random() < 0.4:
        parts = [f"({_condition(rng, declared, depth - 1)})" for _ in range(2)]
        return f" {rng.choice(('and', 'or', 'or'))} ".join(parts)
    if depth and rng.random() < 0.2:
        return f"not ({_condition(rng, declared, depth - 1)})"
    listed = [(name, prop.type) for name, prop in declared.properties.items() if prop.type.list]
    if listed and rng.random() < 0.15:
        name, kind = rng.choice(listed)
        return f"$.{name} contains {literal(some_value(rng, kind.item, edges=0.0), kind.item)}"
    plain = {name: prop.type for name, prop in declared.properties.items() if _is_plain(prop.type)}
    if not plain or rng.random() < 0.15:
        ends = ["$.id", "$.from", "$.to"] if isinstance(declared, EdgeType) else ["$.id"]
        place = rng.choice(ends)
        return rng.choice(
            (f"{place} in $groups", f"{place} = $actor", f"not ({place} in $groups)", f"{place} > $actor")
        )
    name = rng.choice(list(plain))
    kind = plain[name]
    if rng.random() < 0.2:
        return f"$.{name} is {rng.choice(('null', 'not null'))}"
    if rng.random() < 0.12:
        values = [literal(some_value(rng, kind, edges=0.0), kind) for _ in range(rng.randint(1, 3))]
        return f"$.{name} {rng.choice(('in', 'not in'))} [{', '.join(values)}]"
    if (twins := [other for other, one in plain.items() if one == kind and other != name]) and rng.random() < 0.2:
        return f"$.{name} {rng.choice(('=', '!='))} $.{rng.choice(twins)}"
    if kind.scalar is Scalar.STRING and kind.enum_values is None and rng.random() < 0.6:
        return rng.choice(
            (
                *(f"$.{name} = $actor", f"$.{name} in $groups", f"$.{name} != $actor"),
                *(f'$.{name} contains "a"', f'lower($.{name}) starts_with "r"', f"length($.{name}) < 3"),
                *(f'$.{name} matches "[a-d]"', f'coalesce($.{name}, "a") = $actor'),
            )
        )
    ordered = kind.scalar not in (Scalar.BOOL,) and kind.enum_values is None
    op = rng.choice(("=", "!=", "!=", *(("<", ">=", "<=", ">=") if ordered else ())))
    return f"$.{name} {op} {literal(some_value(rng, kind, edges=0.0), kind)}"


def _is_plain(kind: ValueType) -> bool:
    return not kind.list and not kind.is_vector and kind.scalar is not Scalar.BLOB


def visible_graph(graph: oracle.Graph, catalog: Catalog, shown: Catalog, rules: RowRules) -> oracle.Graph:
    """The graph without what the rules hide. The oracle evaluates the conditions, one row at a time.

    Args:
        graph: the whole graph.
        catalog: the whole schema.
        shown: the schema without hidden types and properties.
        rules: the rules.
    """
    nodes: dict[str, dict[str, oracle.Node]] = {}
    for name in shown.nodes:
        ids = _ids(graph, catalog, node_key(name), f"$x: {name}", rules)
        nodes[name] = {
            id_: oracle.Node(name, id_, _shown(one.values, shown.nodes[name]))
            for id_, one in graph.nodes[name].items()
            if id_ in ids
        }
    edges: dict[str, dict[str, oracle.Edge]] = {}
    for name, declared in shown.edges.items():
        pattern = f"$a: {declared.from_type}  $a $x:{declared.word} $b"
        ids = _ids(graph, catalog, edge_key(name), pattern, rules)
        edges[name] = {
            id_: oracle.Edge(name, id_, one.source, one.target, _shown(one.values, declared))
            for id_, one in graph.edges[name].items()
            if id_ in ids and one.source in nodes[declared.from_type] and one.target in nodes[declared.to_type]
        }
    return oracle.Graph(nodes, edges)


def _shown(values: Mapping[str, Any], declared: NodeType | EdgeType) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in declared.properties}


def _ids(graph: oracle.Graph, catalog: Catalog, key: str, pattern: str, rules: RowRules) -> set[str]:
    """The ids of the entities of a type that satisfy its rule."""
    rule = rules.types.get(key, rules.otherwise)
    assert rule is not Rows.HIDDEN
    condition = "true" if isinstance(rule, Rows) else rule.replace("$.", "$x.")
    declared = "$actor: String?, $groups: [String]"
    text = f"query q({declared}) {{ match {{ {pattern}  ({condition}) }} return {{ $x.id as k }} }}"
    read = compile_query(text, catalog).body
    assert isinstance(read, ir.Read)
    params = {"actor": rules.actor, "groups": tuple(rules.groups)}
    answer = Oracle(graph, params, NOW).answer(read)
    assert not answer.fails
    return {row[0] for row in answer.rows}
