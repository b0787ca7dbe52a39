"""A model of branch histories in plain dictionaries: the content of commits, and the results of merges.

It uses no code of the project. The merge base is computed naively: all common ancestors of both heads, except ancestors
of other common ancestors. Several bases are merged into a virtual base, whose conflicts leave entities undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
State = dict[str, dict[str, Row]]
"""The rows of each type by id."""

Entity = tuple[str, str]
"""A type and an id."""

Found = set[tuple[str, str, str]]
"""Conflicts: the kind, the type, and the entity or, for a number of edges, the node."""

NODES = ("A", "B")
EDGE = "AB"
ENDS = {"from": "A", "to": "B"}
GROUPS = {"A": (("n",), ("mail",)), "B": (("n",),), EDGE: (("from", "to"), ("n",))}
"""The groups of properties that a merge by property takes from one side."""
MOST_EDGES = 3


def empty() -> State:
    return {"A": {}, "B": {}, EDGE: {}}


def same(left: Row | None, right: Row | None) -> bool:
    """Whether two rows are equal. Values of different types differ, and NaN equals itself."""
    if left is None or right is None:
        return left is right
    return left.keys() == right.keys() and all(_alike(left[name], right[name]) for name in left)


def _alike(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and bool(left == right)


def same_rows(left: Mapping[str, Row], right: Mapping[str, Row]) -> bool:
    return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)


@dataclass(frozen=True, slots=True)
class Base:
    """The base of a merge: the rows, and the entities whose value in the base is unknown.

    Attributes:
        unknown: types that cannot be read in the base.
    """

    state: State
    undecided: frozenset[Entity] = frozenset()
    unknown: frozenset[str] = frozenset()

    def is_undecided(self, name: str, entity: str) -> bool:
        return name in self.unknown or (name, entity) in self.undecided


@dataclass(frozen=True, slots=True)
class Known:
    """A commit."""

    parents: tuple[str, ...]
    state: State


@dataclass(slots=True)
class Merged:
    """The result of a merge.

    Attributes:
        state: the rows afterwards; without a chosen side, those of the target.
        conflicts: the unresolved conflicts.
        undecided: the conflicts that exist because the base is undecided.
        kept: how many edges are kept or restored with a node.
        omitted: how many edges a revert does not restore, because one of their nodes is missing.
    """

    state: State
    conflicts: Found
    undecided: set[Entity]
    kept: int = 0
    omitted: int = 0


@dataclass(slots=True)
class Repository:
    """Commits by id, and the heads of branches and the commits of tags by name."""

    commits: dict[str, Known] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    lost: Callable[[str], set[str]] = lambda _: set()
    """The types of a commit that cleanup has made unreadable."""

    def state(self, branch: str) -> State:
        return self.commits[self.heads[branch]].state

    def ancestors(self, *heads: str) -> set[str]:
        found: set[str] = set()
        left = list(heads)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self.commits[name].parents
        return found

    def best(self, left: list[str], right: list[str]) -> list[str]:
        """The common ancestors that are not ancestors of another common ancestor."""
        common = self.ancestors(*left) & self.ancestors(*right)
        older = {a for name in common for parent in self.commits[name].parents for a in self.ancestors(parent)}
        return sorted(common - older)

    def needed(self) -> set[str]:
        """The commits that a merge may need as a base: those without a child that leads to the same heads.

        Each found commit counts as a head, too, until no more are found.
        """
        kept = set(self.heads.values()) | set(self.tags.values())
        while True:
            line = {name: self.ancestors(name) for name in kept}
            leads = {name: {head for head in kept if name in line[head]} for name in self.commits}
            passed = {
                parent for name in self.commits for parent in self.commits[name].parents if leads[name] == leads[parent]
            }
            found = {name for name in self.commits if leads[name] and name not in passed}
            if found <= kept:
                return kept
            kept |= found

    def base(self, best: list[str], level: str | None = None) -> Base:
        """The base from the best common ancestors, merged one after the other."""
        lost = frozenset(name for commit in best for name in self.lost(commit))
        if lost:
            unknown = lost if len(best) == 1 else frozenset(empty())
            return Base(self.commits[best[0]].state, unknown=unknown)
        base = Base(self.commits[best[0]].state)
        for i, name in enumerate(best[1:], 1):
            inner = self.base(self.best(best[:i], [name]), level)
            base = virtual(inner, base, self.commits[name].state, level)
        return base

    def is_up_to_date(self, source: str, target: str) -> bool:
        return self.heads[source] in self.ancestors(self.heads[target])

    def is_forward(self, source: str, target: str) -> bool:
        return self.heads[target] in self.ancestors(self.heads[source])

    def merge_base(self, source: str, target: str, level: str | None = None) -> tuple[list[str], Base]:
        best = self.best([self.heads[source]], [self.heads[target]])
        return best, self.base(best, level)


def virtual(base: Base, source: Base, target: State, level: str | None = None) -> Base:
    """Merge two best common ancestors. Conflicting entities are undecided."""
    found = merged(base, source.state, target, {}, None, blind=source.undecided, level=level)
    undecided = set(source.undecided) | found.undecided
    for kind, name, entity in found.conflicts:
        undecided |= named(kind, name, entity, found.state)
    return Base(found.state, frozenset(undecided))


def named(kind: str, name: str, entity: str, state: State) -> set[Entity]:
    """All entities of a conflict."""
    if kind == "orphan_edge":
        row = state[EDGE][entity]
        missing = {(node, row[end]) for end, node in ENDS.items() if row[end] not in state[node]}
        return {(EDGE, entity), *missing}
    if kind == "unique_violation":
        mail = state["A"][entity]["mail"]
        return {("A", other) for other, row in state["A"].items() if row["mail"] == mail}
    if kind == "cardinality_violation":
        return {(EDGE, edge) for edge, row in state[EDGE].items() if row["from"] == entity}
    return {(name, entity)}


Choice = dict[Entity, str]
"""The chosen side, by entity."""


def merged(
    base: Base,
    source: State,
    target: State,
    choices: Choice,
    strategy: str | None,
    blind: frozenset[Entity] = frozenset(),
    level: str | None = None,
    *,
    restoring: bool = False,
) -> Merged:
    """Merge three states.

    Args:
        base: the common base.
        source: the state that is merged.
        target: the state that it is merged into.
        choices: the chosen side, by entity.
        strategy: the side for all other entities.
        blind: entities of the source without a known value; the target wins.
        level: `property` combines changes of different properties; otherwise whole rows are merged.
        restoring: whether the merge is a revert.
    """
    result = deepcopy(target)
    done = Merged(result, set(), set())
    settled = _Settled()
    for name in base.state:
        every = base.state[name].keys() | source[name].keys() | target[name].keys()
        for entity in sorted(every):
            if (name, entity) in blind:
                continue
            b, s, t = (state[name].get(entity) for state in (base.state, source, target))
            undecided = base.is_undecided(name, entity)
            if same(s, t) or (same(s, b) and not undecided):
                continue
            if same(t, b) and not undecided:
                _put(result, name, entity, s)
                continue
            side = choices.get((name, entity), strategy)
            if level == "property" and None not in (b, s, t) and not undecided:
                assert b is not None
                assert s is not None
                assert t is not None
                result[name][entity] = combined(name, b, s, t, side or "ours")
                if not torn(name, b, s, t):
                    continue
                if side is not None:
                    continue
                result[name][entity] = t
            if side is None:
                done.conflicts.add((_kind(b, s, t, undecided=undecided), name, entity))
                if undecided:
                    done.undecided.add((name, entity))
                continue
            if side == "theirs":
                _put(result, name, entity, s)
            settled.note(name, entity, s, t, side, by_name=(name, entity) in choices)
    _settle(base, source, target, choices, strategy, done, settled, restoring=restoring)
    done.conflicts |= broken(result)
    return done


def torn(name: str, b: Row, s: Row, t: Row) -> set[str]:
    """The properties that both sides changed in different ways, in groups."""
    return {
        prop
        for group in GROUPS[name]
        for prop in group
        if _changed(group, b, s) and _changed(group, b, t) and _changed(group, s, t) and not _alike(s[prop], t[prop])
    }


def combined(name: str, b: Row, s: Row, t: Row, side: str) -> Row:
    """The row with each group of properties from the side that changed it; a conflict is decided by `side`."""
    row = dict(t)
    for group in GROUPS[name]:
        if _changed(group, b, s) and (side == "theirs" or not _changed(group, b, t)):
            row |= {prop: s[prop] for prop in group}
    return row


def _changed(group: tuple[str, ...], left: Row, right: Row) -> bool:
    return any(not _alike(left[prop], right[prop]) for prop in group)


def _put(state: State, name: str, entity: str, row: Row | None) -> None:
    if row is None:
        state[name].pop(entity, None)
    else:
        state[name][entity] = row


def _kind(b: Row | None, s: Row | None, t: Row | None, *, undecided: bool) -> str:
    if s is None or t is None:
        return "delete_vs_update"
    return "divergent_insert" if b is None and not undecided else "divergent_update"


@dataclass(slots=True)
class _Settled:
    """Nodes that a side deleted and that were resolved by choosing a side, and edges that were resolved as deleted."""

    ours: set[Entity] = field(default_factory=set)
    theirs: set[Entity] = field(default_factory=set)
    gone: set[Entity] = field(default_factory=set)
    edges: set[str] = field(default_factory=set)

    def note(self, name: str, entity: str, s: Row | None, t: Row | None, side: str, *, by_name: bool) -> None:
        if s is not None and t is not None:
            return
        deleted = (s is None) == (side == "theirs")
        if name == EDGE:
            if deleted:
                self.edges.add(entity)
        elif deleted:
            if by_name:
                self.gone.add((name, entity))
        elif side == "ours":
            self.ours.add((name, entity))
        else:
            self.theirs.add((name, entity))


def _settle(
    base: Base,
    source: State,
    target: State,
    choices: Choice,
    strategy: str | None,
    done: Merged,
    settled: _Settled,
    *,
    restoring: bool,
) -> None:
    """Restore edges with their nodes, and apply the chosen sides to orphan edges, until nothing changes."""
    while True:
        done.kept += _bring_back(base, source, target, done, settled)
        before = deepcopy(done.state)
        for edge, row in before[EDGE].items():
            for end, name in ENDS.items():
                if row[end] not in before[name]:
                    if restoring and _omitted(before, target, edge, row, end):
                        settled.edges.add(edge)
                        _put(done.state, EDGE, edge, target[EDGE].get(edge))
                        done.omitted += 1
                        continue
                    _orphan(source, target, choices, strategy, done, settled, edge, row, name, row[end])
        if done.state == before:
            return


def _omitted(before: State, target: State, edge: str, row: Row, end: str) -> bool:
    """Whether an edge comes back only because the node at its other end comes back."""
    if same(row, target[EDGE].get(edge)):
        return False
    ((other_end, other),) = ((at, name) for at, name in ENDS.items() if at != end)
    return row[other_end] in before[other] and row[other_end] not in target[other]


def restored(state: State, target: State, name: str, ids: list[str], *, edges: bool) -> tuple[State, int]:
    """Bring entities back to a state. Returns the result, and how many edges are left out."""
    result = deepcopy(target)
    omitted = 0
    for entity in ids:
        _put(result, name, entity, state[name].get(entity))
    if name == EDGE:
        return result, 0
    ((end, _),) = ((end, node) for end, node in ENDS.items() if node == name)
    gone = {entity for entity in ids if entity not in state[name]}
    result[EDGE] = {edge: row for edge, row in result[EDGE].items() if row[end] not in gone}
    if edges:
        kept = set(ids) - gone
        for edge in {edge for one in (state, target) for edge, row in one[EDGE].items() if row[end] in kept}:
            row = state[EDGE].get(edge)
            if row is not None and same(row, target[EDGE].get(edge)):
                continue
            if row is not None and any(row[at] not in result[node] for at, node in ENDS.items()):
                omitted += 1
                continue
            _put(result, EDGE, edge, row)
    return result, omitted


def _bring_back(base: Base, source: State, target: State, done: Merged, settled: _Settled) -> int:
    result = done.state
    count = 0
    torn = {entity for _, name, entity in done.conflicts if name == EDGE}
    for edge in sorted(source[EDGE].keys() | target[EDGE].keys()):
        if edge in result[EDGE] or edge in settled.edges or edge in torn:
            continue
        row = target[EDGE].get(edge)
        wanted = settled.ours
        if row is None:
            row, wanted = source[EDGE][edge], settled.theirs
            if base.is_undecided(EDGE, edge) or not same(base.state[EDGE].get(edge), row):
                continue
        ends = [(name, row[end]) for end, name in ENDS.items()]
        if any(end in wanted for end in ends) and all(entity in result[name] for name, entity in ends):
            result[EDGE][edge] = row
            count += 1
    return count


def _orphan(
    source: State,
    target: State,
    choices: Choice,
    strategy: str | None,
    done: Merged,
    settled: _Settled,
    edge: str,
    row: Row,
    name: str,
    node: str,
) -> None:
    result = done.state
    brought = not same(row, target[EDGE].get(edge))
    side = choices.get((EDGE, edge))
    if side is None and (name, node) in settled.gone:
        side = "ours" if brought else "theirs"
    side = side or strategy
    if side == "ours" and not brought:
        if node in target[name]:
            result[name][node] = target[name][node]
            settled.ours.add((name, node))
    elif side == "theirs" and brought:
        if node in source[name] and node not in result[name]:
            result[name][node] = source[name][node]
            settled.theirs.add((name, node))
    elif side == "ours":
        settled.edges.add(edge)
        _put(result, EDGE, edge, target[EDGE].get(edge))
    elif side == "theirs":
        settled.edges.add(edge)
        result[EDGE].pop(edge, None)


def broken(state: State) -> Found:
    """The constraint violations of a state."""
    found: Found = set()
    holders: dict[str, list[str]] = {}
    for entity, row in state["A"].items():
        if row["mail"] is not None:
            holders.setdefault(row["mail"], []).append(entity)
    found |= {("unique_violation", "A", max(own)) for own in holders.values() if len(own) > 1}
    edges: dict[str, int] = {}
    for entity, row in state[EDGE].items():
        if row["from"] not in state["A"] or row["to"] not in state["B"]:
            found.add(("orphan_edge", EDGE, entity))
        edges[row["from"]] = edges.get(row["from"], 0) + 1
    for node, count in edges.items():
        if count > MOST_EDGES and node in state["A"]:
            found.add(("cardinality_violation", EDGE, node))
    return found


def counts(before: State, after: State) -> dict[str, tuple[int, int, int]]:
    """How many rows of each type are inserted, updated and deleted."""
    found = {}
    for name in before:
        new, old = after[name], before[name]
        made, gone = len(new.keys() - old.keys()), len(old.keys() - new.keys())
        changed = sum(not same(new[entity], old[entity]) for entity in new.keys() & old.keys())
        if made or changed or gone:
            found[f"{'node' if name in NODES else 'edge'}:{name}"] = (made, changed, gone)
    return found
