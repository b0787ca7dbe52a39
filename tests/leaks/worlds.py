"""Pairs of graphs that are equal in all that an actor may see, and differ in what is hidden from it.

Each actor has one kind of rule. For each there is a second graph, which differs from the first only in what that rule
hides: other hidden rows, other values of masked properties, other hidden types, or other hidden branches.
"""

# See docs/decisions/0348-equal-graphs-prove-that-nothing-leaks.md

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Flag, auto
from pathlib import Path
from typing import Any

import yaml

import omnigraph
from omnigraph.graph import Graph

UNKNOWN = "01ZZZZZZZZZZZZZZZZZZZZZZZZ"
_NONE = "01YYYYYYYYYYYYYYYYYYYYYYYY"


class Hidden(Flag):
    """The parts in which the second graph of a pair differs from the first."""

    NOTHING = 0
    ROWS = auto()
    VALUES = auto()
    TYPES = auto()
    BRANCHES = auto()
    ALL = ROWS | VALUES | TYPES | BRANCHES


ACTORS: dict[str, Hidden] = {
    "rows": Hidden.ROWS,
    "masks": Hidden.VALUES,
    "types": Hidden.TYPES,
    "branches": Hidden.BRANCHES,
    "every": Hidden.ALL,
    "idle": Hidden.ALL,
    "stranger": Hidden.ALL,
}
"""The actors, each with what the rules hide from it. `idle` is in a group without rules, `stranger` in none."""

TOKENS = {actor: f"token-of-{actor}" for actor in ACTORS}
USES = ["read", "export", "change"]
WORK = ["branch_create", "branch_delete", "branch_merge", "schema_apply", "invoke_query"]
SHOWN_TYPES = ["Task", "Log", "Needs", "Wrote"]


def _allow(group: str, actions: list[str], **limits: Any) -> dict[str, Any]:
    return {"id": f"{group}-{actions[0]}", "allow": {"actors": {"group": group}, "actions": actions} | limits}


def _rows(group: str, name: str, where: str | None = None) -> dict[str, Any]:
    rule = {"id": f"{group}-{name}", "actors": {"group": group}, "type": name, "actions": ["read", "change"]}
    return rule if where is None else rule | {"where": where}


def _mask(group: str, name: str, prop: str) -> dict[str, Any]:
    return {"id": f"{group}-{name}-{prop}", "actors": {"group": group}, "type": name, "properties": [prop]}


POLICY: dict[str, Any] = {
    "version": 1,
    "groups": {f"g-{actor}": [actor] for actor in ACTORS if actor != "stranger"},
    "protected_branches": ["main", "release"],
    "rules": [
        _allow("g-rows", USES),
        _allow("g-masks", USES),
        _allow("g-types", USES, types=SHOWN_TYPES),
        _allow("g-branches", USES, branch_scope="protected"),
        _allow("g-every", USES, types=SHOWN_TYPES, branch_scope="protected"),
        *(_allow(f"g-{actor}", WORK) for actor in ("rows", "masks", "types", "branches", "every")),
        *(_allow(f"g-{actor}", ["admin"]) for actor in ("rows", "masks", "types", "every")),
    ],
    "row_rules": [
        *(_rows(f"g-{actor}", "Task", '$.owner = "kim"') for actor in ("rows", "every")),
        *(_rows(f"g-{actor}", "Log", "$.level < 5") for actor in ("rows", "every")),
        *(_rows(f"g-{actor}", name) for actor in ("masks", "types", "branches") for name in ("Task", "Log")),
    ],
    "masks": [
        *(_mask(f"g-{actor}", "Task", "pay") for actor in ("masks", "every")),
        *(_mask(f"g-{actor}", "Needs", "cause") for actor in ("masks", "every")),
    ],
}

TYPES = """
node Task {
    name: String @key
    owner: String
    title: String? @index(title, kind="fts")
    pay: I64?
    email: String? @unique
    place: Vector(2)?
    photo: Blob?
}
node Log { name: String @key  level: I32 }
edge Needs: Task -> Task @card(0..3) { weight: I32?  cause: String? }
edge Wrote: Log -> Task
"""
VAULT = "node Vault { code: String @key  worth: I64? }\nedge Opens: Task -> Vault\n"
TREASURE = """
interface Precious { worth: I64? }
node Treasure implements Precious { code: String @key }
node Crown implements Precious { code: String @key  stones: I64? }
edge Guards: Task -> Treasure
edge Wears: Task -> Crown { since: I32? }
"""
QUERIES = """
query tasks() { match { $t: Task } return { $t.name as name, $t.title as title } order { name } }
query one($n: String) { match { $t: Task  $t.name = $n } return { $t.title as title } }
query add($n: String, $o: String) { insert Task { name: $n, owner: $o } }
query pays() { match { $t: Task } return { $t.pay as pay } order { pay } }
query pay_all($p: I64) { update Task set { pay: $p } where true }
"""
VAULTS = """
query vaults() { match { $v: Vault } return { $v.code as code } }
query lock($c: String) { insert Vault { code: $c } }
"""
TREASURES = """
query hoards($least: I64) { match { $v: Treasure  $v.worth > $least } return { $v.code as code } }
query bury($c: String, $d: String) { insert Treasure { code: $c } }
"""


@dataclass(frozen=True)
class World:
    """A graph of a pair.

    Attributes:
        root: its storage.
        hidden: the parts in which it differs from the first graph.
        commits: commits by name. Those that start with `hidden` are of a branch that some actors may not see; they are
            unknown ids in the graphs that have no such branch.
    """

    root: Path
    hidden: Hidden
    commits: dict[str, str] = field(default_factory=dict)

    @property
    def policy(self) -> Path:
        return self.root.parent / "policy.yaml"

    @property
    def queries(self) -> Path:
        return self.root.parent / "queries"

    @property
    def names(self) -> dict[str, str]:
        """The names of commits, by id."""
        return {commit: name for name, commit in self.commits.items()}

    def open(self, actor: str) -> Graph:
        return omnigraph.open(self.root, policy=self.policy, actor=actor)


def build(root: Path, hidden: Hidden) -> World:
    """Make a directory with a graph, its policy and its stored queries."""
    world = World(root / "graph", hidden)
    root.mkdir()
    world.policy.write_text(yaml.safe_dump(POLICY))
    world.queries.mkdir()
    secret = TREASURE if Hidden.TYPES in hidden else VAULT
    stored = TREASURES if Hidden.TYPES in hidden else VAULTS
    (world.queries / "all.gq").write_text(QUERIES + stored)
    with omnigraph.init(world.root, secret + TYPES, actor="founder") as graph:
        _fill(graph, hidden)
        if Hidden.BRANCHES in hidden:
            _other_branches(graph, world)
        else:
            _branches(graph, world, hidden)
        _later(graph, hidden)
        for name in ("main", "release"):
            world.commits[name] = graph.branch(name).head.id
    return world


def _owners(hidden: Hidden) -> list[str]:
    """The owners of the tasks, in their order. Those of `kim` are shown to all."""
    if Hidden.ROWS in hidden:
        return ["lea", "kim", "max", "lea", "kim", "zoe", "kim", "lea", "kim"]
    return ["kim", "lee", "kim", "lee", "kim", "kim"]


def _tasks(hidden: Hidden) -> Iterator[dict[str, Any]]:
    numbers: dict[str, int] = {}
    for owner in _owners(hidden):
        numbers[owner] = number = numbers.get(owner, 0) + 1
        row: dict[str, Any] = {
            "name": f"{owner}-{number}",
            "owner": owner,
            "title": f"fox {'fox ' * number}of {owner} number {number}",
            "pay": (7_000 if Hidden.VALUES in hidden else 100) + number,
            "email": f"{owner}{number}@x",
            "place": [float(number), 0.5 if owner == "kim" else 0.25],
            "photo": "base64:YWJj",
        }
        if Hidden.VALUES in hidden and number == 2:
            del row["pay"]
        yield row


def _fill(graph: Graph, hidden: Hidden) -> None:
    tasks = list(_tasks(hidden))
    logs = [{"name": "log-1", "level": 1}, {"name": "log-2", "level": 2}]
    logs += [{"name": f"deep-{n}", "level": 9} for n in range(3 if Hidden.ROWS in hidden else 1)]
    graph.load({"Task": tasks, "Log": logs}, mode="append", message="tasks")
    cause = "greed" if Hidden.VALUES in hidden else "need"
    other = "lea-1" if Hidden.ROWS in hidden else "lee-1"
    needs = [("kim-1", "kim-2"), ("kim-1", other), (other, "kim-2"), ("kim-2", "kim-3"), ("kim-3", "kim-1")]
    if Hidden.ROWS in hidden:
        needs += [("lea-1", "lea-2"), ("lea-2", "lea-3")]
    rows: list[dict[str, Any]] = [
        {"from": a, "to": b, "weight": n % 3, "cause": f"{cause} {n}"} for n, (a, b) in enumerate(needs)
    ]
    wrote = [{"from": "log-1", "to": "kim-1"}, {"from": "log-1", "to": other}, {"from": "deep-0", "to": "kim-2"}]
    graph.load({"Needs": rows, "Wrote": wrote}, mode="append", message="edges")
    if Hidden.TYPES in hidden:
        secret: dict[str, Any] = {
            "Treasure": [{"code": f"hoard-{n}", "worth": n} for n in range(4)],
            "Crown": [{"code": "crown-1", "worth": 9, "stones": 3}],
            "Guards": [{"from": "kim-1", "to": f"hoard-{n}"} for n in range(3)],
            "Wears": [{"from": "kim-2", "to": "crown-1", "since": 1}],
        }
    else:
        secret = {"Vault": [{"code": "vault-1", "worth": 1}], "Opens": [{"from": "kim-1", "to": "vault-1"}]}
    graph.load(secret, mode="append", message="secret")
    graph.tags.create("v1")


def _update(name: str, title: str) -> str:
    return f'query q() {{ update Task set {{ title: "{title}" }} where name = "{name}" }}'


def _branches(graph: Graph, world: World, hidden: Hidden) -> None:
    other = "lea" if Hidden.ROWS in hidden else "lee"
    for name in ("release", "draft", "clash", "twist"):
        graph.branches.create(name)
    graph.mutate(_update("kim-3", "on release"), branch="release", message="release")
    graph.mutate(_update("kim-1", "drafted"), branch="draft", message="draft")
    graph.mutate(_update(f"{other}-1", "drafted"), branch="draft", message="draft of another")
    graph.mutate('query q() { insert Task { name: "kim-5", owner: "kim" } }', branch="draft", message="draft adds")
    graph.mutate(_update(f"{other}-1", f"clash of {other}"), branch="clash", message="clash")
    graph.mutate(_update("kim-2", "twisted"), branch="twist", message="twist")
    world.commits["hidden"] = world.commits["draft"] = graph.branch("draft").head.id
    graph.tags.create("drafted", commit=world.commits["hidden"])


def _other_branches(graph: Graph, world: World) -> None:
    graph.branches.create("release")
    graph.mutate(_update("kim-3", "on release"), branch="release", message="release")
    graph.branches.create("hidden-x")
    graph.branches.create("hidden-y", source="hidden-x")
    for number in range(3):
        graph.mutate(_update("kim-4", f"hidden {number}"), branch="hidden-x", message=f"hidden {number}")
    graph.tags.create("hidden-tag", commit=graph.branch("hidden-x").head.id)
    world.commits["hidden"] = world.commits["draft"] = _NONE


def _later(graph: Graph, hidden: Hidden) -> None:
    """Commits on `main` after the branches: some change only hidden rows."""
    others = sorted({*_owners(hidden)} - {"kim"})
    names = [f"{other}-1" for other in others]
    listed = ", ".join(f'"{name}"' for name in names)
    graph.mutate(
        f'query q() {{ update Task set {{ title: "main of others" }} where name in [{listed}] }}', message="others"
    )
    graph.mutate(_update("kim-2", "on main"), message="own")
    gone = f"{others[0]}-2"
    graph.mutate(f'query q() {{ delete Task where name = "{gone}" }}', message="gone")
