"""A model of branch histories in plain dictionaries: the content of commits, their schemas, and the results of merges.

It uses no code of the project. The merge base is computed naively: all common ancestors of both heads, except ancestors
of other common ancestors. Several bases are merged into a virtual base, whose conflicts leave entities undecided.

Types, properties and enum values have fixed names in the model, whatever the schema calls them. So a rename changes no
row here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
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
MOST_EDGES = 3


def empty() -> State:
    return {"A": {}, "B": {}, EDGE: {}}


# Schemas


@dataclass(frozen=True, slots=True)
class Column:
    """A property.

    Attributes:
        id: its name in the model.
        name: its name in the schema.
        kind: its type, without the values of an enum.
        default: its default.
        required: whether it has a value in each row.
        unique: whether no two rows have the same value. A type has at most one such property.
        most: its greatest value.
        values: the values of an enum: their names in the model, and in the schema.
        filled: the value that existing rows got when the property was added.
    """

    id: str
    name: str
    kind: str = "I64"
    default: Any = None
    required: bool = False
    unique: bool = False
    most: int | None = None
    values: tuple[tuple[str, str], ...] = ()
    filled: Any = None

    @property
    def fill(self) -> Any:
        """The value in rows that a merge brings from a schema without the property."""
        if self.filled is not None and self.allows(self.filled):
            return self.filled
        return self.default if self.required else None

    def shown(self, value: Any) -> Any:
        """A value of the model as it is stored."""
        return dict(self.values).get(value, value)

    def known(self, value: Any) -> Any:
        """A stored value as it is in the model."""
        return {name: id for id, name in self.values}.get(value, value)

    def allows(self, value: Any) -> bool:
        if value is None:
            return not self.required
        if self.kind == "enum":
            return value in dict(self.values)
        return self.most is None or 0 <= value <= self.most

    def type_text(self, before: Column | None) -> str:
        """The type, with hints for the values that were renamed since another schema."""
        if self.kind != "enum":
            return self.kind
        old = {} if before is None else dict(before.values)
        hints = {id: f' @rename_from("{old[id]}")' for id, name in self.values if old.get(id, name) != name}
        return f"enum({', '.join(name + hints.get(id, '') for id, name in self.values)})"


@dataclass(frozen=True, slots=True)
class Type:
    """A type.

    Attributes:
        id: its name in the model.
        name: its name in the schema.
        columns: its properties, without the key.
        number: the number of types and properties that were created before it.
        by_property: whether merges combine its properties by default.
    """

    id: str
    name: str
    columns: tuple[Column, ...]
    number: int = 0
    by_property: bool = False

    @property
    def key(self) -> str:
        return f"{'edge' if self.id == EDGE else 'node'}:{self.name}"

    def has(self, column: str) -> bool:
        return any(one.id == column for one in self.columns)


@dataclass(frozen=True, slots=True)
class Shape:
    """A schema.

    Attributes:
        types: its types.
        created: the number of types and properties that were created so far.
    """

    types: tuple[Type, ...]
    created: int = 0

    def find(self, name: str) -> Type | None:
        """A type by its name in the model."""
        return next((one for one in self.types if one.id == name), None)

    def of(self, name: str) -> Type:
        found = self.find(name)
        assert found is not None, name
        return found

    def named(self, name: str) -> Type:
        """A type by its name in the schema."""
        return next(one for one in self.types if one.name == name)

    def members(self) -> set[tuple[str, str]]:
        """All types, and all properties of types."""
        return {(one.id, column) for one in self.types for column in ("", *(c.id for c in one.columns))}

    def member(self, text: str) -> tuple[str, str]:
        """A type or a property, as a receipt names it."""
        name, _, column = text.partition(" ")[0].partition(".")
        one = self.named(name)
        return one.id, next((c.id for c in one.columns if c.name == column), "")

    @property
    def by_property(self) -> frozenset[str]:
        return frozenset(one.id for one in self.types if one.by_property)

    def text(self, before: Shape | None = None) -> str:
        """The source text, with hints for what was renamed since another schema."""
        lines = []
        for one in self.types:
            old = None if before is None else before.find(one.id)
            hint = f' @rename_from("{old.name}")' if old is not None and old.name != one.name else ""
            hint += " @merge(property)" if one.by_property else ""
            former = {} if old is None else {column.id: column for column in old.columns}
            members = [] if one.id == EDGE else ["k: String @key"]
            for column in one.columns:
                earlier = former.get(column.id)
                text = f"{column.name}: {column.type_text(earlier)}{'' if column.required else '?'}"
                text += "" if column.default is None else f" @default({column.default})"
                if earlier is not None and earlier.name != column.name:
                    text += f' @rename_from("{earlier.name}")'
                members.append(text)
                if column.unique:
                    members.append(f"@unique({column.name})")
                if column.most is not None:
                    members.append(f"@range({column.name}, 0..{column.most})")
            if one.id == EDGE:
                ends = f"{self.of('A').name} -> {self.of('B').name}"
                head = f"edge {one.name}: {ends} @card(0..{MOST_EDGES}){hint}"
            else:
                head = f"node {one.name}{hint}"
            lines.append(f"{head} {{\n    " + "\n    ".join(members) + "\n}")
        return "\n".join(lines) + "\n"


FIRST_SHAPE = Shape(
    (
        Type("A", "A", (Column("n", "n", "I32"), Column("mail", "mail", "String", unique=True))),
        Type("B", "B", (Column("n", "n"), Column("e", "e", "enum", values=(("low", "low"), ("high", "high"))))),
        Type(EDGE, EDGE, (Column("n", "n", "I32"),)),
    )
)


def is_boundary(before: Known, after: Known) -> bool:
    """Whether a commit changes the columns of a type, or adds or drops a type with rows."""
    for name in {one.id for shape in (before.shape, after.shape) for one in shape.types}:
        old, new = before.shape.find(name), after.shape.find(name)
        if old is None or new is None:
            if (before if new is None else after).state[name]:
                return True
        elif {(c.id, c.kind, c.required) for c in old.columns} != {(c.id, c.kind, c.required) for c in new.columns}:
            return True
    return False


def shown(state: State, shape: Shape) -> State:
    """Rows with the stored names of enum values."""
    found: State = {}
    for one in shape.types:
        enums = [column for column in one.columns if column.kind == "enum"]
        rows = state[one.id].items()
        found[one.id] = {id: row | {c.id: c.shown(row[c.id]) for c in enums} for id, row in rows}
    return found


class DroppedTypeError(Exception):
    """The source has inserted or updated entities of a type that the target has dropped.

    Args:
        certain: whether the source has changed them.
    """

    def __init__(self, name: str, *, certain: bool) -> None:
        super().__init__(name)
        self.certain = certain


class NarrowTypeError(Exception):
    """A number does not fit the type of the target.

    Args:
        certain: whether the source has changed it.
    """

    def __init__(self, name: str, *, certain: bool) -> None:
        super().__init__(name)
        self.certain = certain


class MixedSchemasError(Exception):
    """A virtual base whose ancestors have different schemas."""


def keeps_both_sides(found: State, source: State, source_shape: Shape, target: State, shape: Shape, old: State) -> None:
    """Check a merge whose base is not modelled: nothing that only one side has inserted is lost, and nothing is new.

    Args:
        found: the merged rows.
        source: the rows of the source.
        source_shape: the schema of the source.
        target: the rows of the target.
        shape: the schema of the target, and of the result.
        old: the rows of the common ancestors.
    """
    for one in shape.types:
        name, theirs = one.id, source_shape.find(one.id)
        if theirs is None:
            assert same_rows(found[name], target[name])
            continue
        shared = ["from", "to"] if name == EDGE else []
        shared += [column.id for column in one.columns if theirs.has(column.id)]
        for entity in {*found[name], *source[name], *target[name]}:
            rows = [side.get(entity) for side in (found[name], source[name], target[name])]
            result, given, present = ({c: row[c] for c in shared} if row else None for row in rows)
            if given is not None and present is not None and same(given, present):
                assert same(result, given), (name, entity)
            elif (given is None) != (present is None) and entity not in old.get(name, {}):
                assert same(result, given or present), (name, entity)
            elif result is not None:
                values = [row for row in (given, present) if row is not None]
                assert all(any(_alike(result[c], row[c]) for row in values) for c in shared), (name, entity)


def aligned(
    base: Base, base_shape: Shape, source: State, source_shape: Shape, target: State, target_shape: Shape
) -> tuple[Base, State]:
    """The base and the source with the types and properties of the target.

    A property that the source lacks is unchanged there. If only the base lacks a property, entities with different
    values of it are undecided, and so are entities that only one side still has. If only the base lacks a type, its
    rows are unknown in the base.

    Raises:
        DroppedTypeError: the source has changed entities of a type that the target has dropped.
        NarrowTypeError: a number does not fit the type of the target.
    """
    if base_shape == source_shape == target_shape:
        return base, source
    for one in source_shape.types:
        if target_shape.find(one.id) is None and one.number < target_shape.created and source[one.id]:
            if base_shape.find(one.id) is None or base.is_unknown(one.id):
                raise DroppedTypeError(one.id, certain=True)
            before = base.state[one.id]
            changed = any(not same(before.get(entity), row) for entity, row in source[one.id].items())
            if changed or base_shape != source_shape:
                raise DroppedTypeError(one.id, certain=changed)
    _check_widths(base, base_shape, source, source_shape, target_shape)
    bases: State = {}
    sources: State = {}
    unknown: set[str] = set()
    undecided = set(base.undecided)
    for one in target_shape.types:
        name, rows = one.id, target[one.id]
        ours, theirs = base_shape.find(name), source_shape.find(name)
        if theirs is None:
            bases[name], sources[name] = dict(rows), dict(rows)
            continue
        if ours is None or base.is_unknown(name):
            unknown.add(name)
            bases[name] = dict(rows)
            sources[name] = _brought(source[name], theirs, one, rows)
            continue
        bases[name] = _brought(base.state[name], ours, one, rows)
        sources[name] = _brought(source[name], theirs, one, bases[name], rows)
        for column in one.columns:
            if not ours.has(column.id) and not theirs.has(column.id):
                # The target may have changed an entity that the source has deleted.
                for entity in bases[name].keys() - source[name].keys():
                    bases[name][entity][column.id] = column.filled
            if not ours.has(column.id) and theirs.has(column.id):
                undecided |= {(name, entity) for entity in _unclear(bases[name], sources[name], rows, column.id)}
    lacking = frozenset(
        (one.id, column.id)
        for one in target_shape.types
        if (theirs := source_shape.find(one.id)) is not None
        for column in one.columns
        if not theirs.has(column.id)
    )
    shapes = base_shape, source_shape, target_shape
    left_out = frozenset(_changed_left_out(base.state, source, target, shapes))
    return Base(bases, frozenset(undecided), frozenset(unknown), lacking, left_out), sources


def _changed_left_out(
    base: State, source: State, target: State, shapes: tuple[Shape, Shape, Shape]
) -> Iterator[Entity]:
    """The entities that the target has deleted, and the source has changed in properties that the target lacks."""
    for one in shapes[2].types:
        ours, theirs = shapes[0].find(one.id), shapes[1].find(one.id)
        if ours is not None and theirs is not None:
            columns = [column for column in theirs.columns if not one.has(column.id)]
            for entity in (base[one.id].keys() & source[one.id].keys()) - target[one.id].keys():
                old, new = base[one.id][entity], source[one.id][entity]
                if any(not _alike(old.get(column.id, column.filled), new[column.id]) for column in columns):
                    yield one.id, entity


def _check_widths(base: Base, base_shape: Shape, source: State, source_shape: Shape, shape: Shape) -> None:
    for one in shape.types:
        theirs, ours = source_shape.find(one.id), base_shape.find(one.id)
        for column in one.columns:
            if column.kind != "I32" or theirs is None or not theirs.has(column.id):
                continue
            before = base.state[one.id] if ours is not None and ours.has(column.id) else {}
            large = {id: row for id, row in source[one.id].items() if _is_large(row[column.id])}
            if large or any(_is_large(row[column.id]) for row in before.values()):
                certain = not base.is_unknown(one.id) and any(
                    not same(before.get(id), row) for id, row in large.items()
                )
                raise NarrowTypeError(one.id, certain=certain)


def _is_large(value: int | None) -> bool:
    return value is not None and value >= 1 << 31


def _unclear(base: dict[str, Row], source: dict[str, Row], target: dict[str, Row], column: str) -> Iterator[str]:
    """The entities whose value of a column in the base matters, and is unknown. Others get the value of both sides."""
    for entity in base:
        s, t = source.get(entity), target.get(entity)
        if s is not None and t is not None and _alike(s[column], t[column]):
            base[entity][column] = s[column]
        elif s is not None or t is not None:
            yield entity


def _brought(rows: dict[str, Row], stored: Type, wanted: Type, *others: Mapping[str, Row]) -> dict[str, Row]:
    """Rows with the properties of another schema. Others know the values of properties that the rows lack."""
    found = {}
    for entity, row in rows.items():
        kept = {prop: value for prop, value in row.items() if prop in ("k", "id", "from", "to")}
        for column in wanted.columns:
            if stored.has(column.id):
                kept[column.id] = row[column.id]
            else:
                values = [other[entity][column.id] for other in others if entity in other]
                kept[column.id] = values[0] if values else column.fill
        found[entity] = kept
    return found


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
        unknown: types that cannot be read in the base; `*` stands for all.
        lacking: types and properties that the schema of the source lacks. The target keeps their values.
        changed: entities that the target has deleted, and the source has changed in properties that the target lacks.
    """

    state: State
    undecided: frozenset[Entity] = frozenset()
    unknown: frozenset[str] = frozenset()
    lacking: frozenset[tuple[str, str]] = frozenset()
    changed: frozenset[Entity] = frozenset()

    def is_unknown(self, name: str) -> bool:
        return "*" in self.unknown or name in self.unknown

    def is_undecided(self, name: str, entity: str) -> bool:
        return self.is_unknown(name) or (name, entity) in self.undecided


@dataclass(frozen=True, slots=True)
class Known:
    """A commit.

    Attributes:
        left_out: types and properties (empty for the whole type) that a merge or a branch update has left out.
        incomplete: the parent that had them.
    """

    parents: tuple[str, ...]
    state: State
    shape: Shape = FIRST_SHAPE
    left_out: frozenset[tuple[str, str]] = frozenset()
    incomplete: str | None = None


@dataclass(slots=True)
class Merged:
    """The result of a merge.

    Attributes:
        state: the rows afterwards; without a chosen side, those of the target.
        conflicts: the unresolved conflicts.
        undecided: the conflicts that exist because the base is undecided.
        shape: the schema.
        kept: how many edges are kept or restored with a node, without those in conflict.
        omitted: how many edges a revert does not restore, because one of their nodes is missing.
        restored: the edges that were restored with a node, even if they are left out again.
    """

    state: State
    conflicts: Found
    undecided: set[Entity]
    shape: Shape
    kept: int = 0
    omitted: int = 0
    restored: set[str] = field(default_factory=set)

    def involved(self, target: State) -> set[Entity]:
        """The entities that take part in a conflict: the merge does not write them."""
        found: set[Entity] = set()
        for kind, name, entity in self.conflicts:
            found |= named(kind, name, entity, self.state, self.shape)
            if kind == "cardinality_violation":
                found |= {(EDGE, edge) for edge, row in target[EDGE].items() if row["from"] == entity}
        return found

    def written(self, target: State) -> State:
        """The rows afterwards, in which the entities with conflicts stay as in the target."""
        result = deepcopy(self.state)
        for name, entity in self.involved(target):
            _put(result, name, entity, target[name].get(entity))
        return result


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

    def shape(self, branch: str) -> Shape:
        return self.commits[self.heads[branch]].shape

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

    def base(
        self,
        best: list[str],
        level: str | None = None,
        shapes: frozenset[Shape] = frozenset(),
        by_property: frozenset[str] = frozenset(),
        *,
        inner: bool = False,
    ) -> Base:
        """The base from the best common ancestors, merged one after the other.

        Args:
            best: the ancestors.
            level: the level of the merge.
            shapes: the schemas of both heads.
            by_property: the types whose properties are combined by default.
            inner: whether it is the base of a merge of ancestors.

        Raises:
            MixedSchemasError: several ancestors have different schemas. The model has no base for them.
        """
        if (inner or len(best) > 1) and len({*shapes, *(self.commits[name].shape for name in best)}) > 1:
            raise MixedSchemasError
        lost = frozenset(name for commit in best for name in self.lost(commit))
        if lost:
            unknown = lost if len(best) == 1 else frozenset("*")
            return Base(self.commits[best[0]].state, unknown=unknown)
        base = Base(self.commits[best[0]].state)
        for i, name in enumerate(best[1:], 1):
            common = self.base(self.best(best[:i], [name]), level, shapes, by_property, inner=True)
            base = virtual(common, base, self.commits[name].state, self.commits[name].shape, level, by_property)
        return base

    def lacks_left_out(self, source: str, target: str) -> bool:
        """Whether a source has left out something of a commit that the target lacks, but whose properties it has."""
        own = self.ancestors(self.heads[source]) - self.ancestors(self.heads[target])
        lost = self.shape(target).members() - self.shape(source).members()
        merges = (self.commits[name] for name in own)
        return any(one.incomplete in own and one.left_out & lost for one in merges)

    def is_up_to_date(self, source: str, target: str) -> bool:
        return self.heads[source] in self.ancestors(self.heads[target])

    def is_forward(self, source: str, target: str) -> bool:
        return self.heads[target] in self.ancestors(self.heads[source])

    def merge_base(self, source: str, target: str, level: str | None = None) -> tuple[list[str], Base]:
        best = self.best([self.heads[source]], [self.heads[target]])
        shapes = frozenset((self.shape(source), self.shape(target)))
        return best, self.base(best, level, shapes, self.shape(target).by_property)


def virtual(
    base: Base,
    source: Base,
    target: State,
    shape: Shape,
    level: str | None = None,
    by_property: frozenset[str] = frozenset(),
) -> Base:
    """Merge two best common ancestors. Conflicting entities are undecided."""
    states = base, source.state, target, shape
    found = merged(*states, {}, None, blind=source.undecided, level=level, by_property=by_property)
    undecided = set(source.undecided) | found.undecided
    for kind, name, entity in found.conflicts:
        undecided |= named(kind, name, entity, found.state, shape)
    return Base(found.state, frozenset(undecided))


def named(kind: str, name: str, entity: str, state: State, shape: Shape) -> set[Entity]:
    """All entities of a conflict."""
    if kind == "orphan_edge":
        row = state[EDGE][entity]
        missing = {(node, row[end]) for end, node in ENDS.items() if row[end] not in state[node]}
        return {(EDGE, entity), *missing}
    if kind == "unique_violation":
        (column,) = (column.id for column in shape.of(name).columns if column.unique)
        value = state[name][entity][column]
        return {(name, other) for other, row in state[name].items() if row[column] == value}
    if kind == "cardinality_violation":
        return {(EDGE, edge) for edge, row in state[EDGE].items() if row["from"] == entity}
    return {(name, entity)}


Choice = dict[Entity, str]
"""The chosen side, by entity."""


def merged(
    base: Base,
    source: State,
    target: State,
    shape: Shape,
    choices: Choice,
    strategy: str | None,
    blind: frozenset[Entity] = frozenset(),
    level: str | None = None,
    *,
    by_property: frozenset[str] = frozenset(),
    restoring: bool = False,
) -> Merged:
    """Merge three states.

    Args:
        base: the common base.
        source: the state that is merged.
        target: the state that it is merged into.
        shape: the schema of all of them.
        choices: the chosen side, by entity.
        strategy: the side for all other entities.
        blind: entities of the source without a known value; the target wins.
        level: `property` combines changes of different properties, `row` merges whole rows.
        by_property: the types whose properties are combined if there is no level.
        restoring: whether the merge is a revert.
    """
    result = deepcopy(target)
    done = Merged(result, set(), set(), shape)
    settled = _Settled()
    for name in target:
        in_parts = level == "property" or (level is None and name in by_property)
        every = base.state.get(name, {}).keys() | source[name].keys() | target[name].keys()
        for entity in sorted(every):
            if (name, entity) in blind:
                continue
            b, s, t = (state.get(name, {}).get(entity) for state in (base.state, source, target))
            undecided = base.is_undecided(name, entity)
            taken = s
            if s is not None and t is not None:
                taken = s | {prop: t[prop] for prop in t if (name, prop) in base.lacking}
            unchanged = same(s, b) and (name, entity) not in base.changed
            if same(taken, t) or (unchanged and not undecided):
                continue
            # The source cannot disagree about properties that it lacks.
            known = b
            if b is not None and s is not None and t is not None:
                known = b | {prop: t[prop] for prop in t if (name, prop) in base.lacking}
            if same(t, known) and not undecided:
                _put(result, name, entity, taken)
                continue
            side = choices.get((name, entity), strategy)
            if in_parts and None not in (b, s, t) and not undecided:
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
                _put(result, name, entity, taken)
            settled.note(name, entity, s, t, side, by_name=(name, entity) in choices)
    in_parts = level == "property" or (level is None and EDGE in by_property)
    _settle(base, source, target, choices, strategy, done, settled, restoring=restoring, in_parts=in_parts)
    done.conflicts |= broken(result, shape)
    in_conflict = {entity for name, entity in done.involved(target) if name == EDGE}
    done.kept = len(done.restored & result[EDGE].keys() - in_conflict)
    return done


def groups(name: str, row: Row) -> list[tuple[str, ...]]:
    """The groups of properties that a merge by property takes from one side."""
    single: list[tuple[str, ...]] = [(prop,) for prop in row if prop not in ("k", "id", "from", "to")]
    return [("from", "to"), *single] if name == EDGE else single


def torn(name: str, b: Row, s: Row, t: Row) -> set[str]:
    """The properties that both sides changed in different ways, in groups."""
    return {
        prop
        for group in groups(name, t)
        for prop in group
        if _changed(group, b, s) and _changed(group, b, t) and _changed(group, s, t) and not _alike(s[prop], t[prop])
    }


def combined(name: str, b: Row, s: Row, t: Row, side: str) -> Row:
    """The row with each group of properties from the side that changed it; a conflict is decided by `side`."""
    row = dict(t)
    for group in groups(name, t):
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
    in_parts: bool,
) -> None:
    """Restore edges with their nodes, and apply the chosen sides to orphan edges, until nothing changes."""
    while True:
        _bring_back(base, source, target, done, settled)
        before = deepcopy(done.state)
        for edge, row in before[EDGE].items():
            for end, name in ENDS.items():
                if row[end] not in before[name]:
                    if restoring and _omitted(before, target, edge, row, end):
                        settled.edges.add(edge)
                        _put(done.state, EDGE, edge, _returned(row, target[EDGE].get(edge), in_parts=in_parts))
                        done.omitted += 1
                        continue
                    _orphan(source, target, choices, strategy, done, settled, edge, row, name, row[end], in_parts)
        if done.state == before:
            return


def _returned(row: Row, other: Row | None, *, in_parts: bool) -> Row | None:
    """An edge that gets the endpoints of a side; merged by property, the other properties stay."""
    if other is None or not in_parts:
        return other
    return row | {end: other[end] for end in ENDS}


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


def _bring_back(base: Base, source: State, target: State, done: Merged, settled: _Settled) -> None:
    result = done.state
    torn = {entity for _, name, entity in done.conflicts if name == EDGE}
    for edge in sorted(source[EDGE].keys() | target[EDGE].keys()):
        if edge in result[EDGE] or edge in settled.edges or edge in torn:
            continue
        row = target[EDGE].get(edge)
        wanted = settled.ours
        if row is None:
            row, wanted = source[EDGE][edge], settled.theirs
            if base.is_undecided(EDGE, edge) or not same(base.state.get(EDGE, {}).get(edge), row):
                continue
        ends = [(name, row[end]) for end, name in ENDS.items()]
        if any(end in wanted for end in ends) and all(entity in result[name] for name, entity in ends):
            result[EDGE][edge] = row
            done.restored.add(edge)


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
    in_parts: bool,
) -> None:
    result = done.state
    changed = not same(row, target[EDGE].get(edge))
    brought = changed and node not in target[name]  # otherwise the source deleted the node
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
        _put(result, EDGE, edge, _returned(row, target[EDGE].get(edge), in_parts=in_parts))
    elif side == "theirs" and changed:
        _put(result, EDGE, edge, _returned(row, source[EDGE][edge], in_parts=True))
    elif side == "theirs":
        settled.edges.add(edge)
        result[EDGE].pop(edge, None)


def invalid(state: State, shape: Shape) -> Found:
    """The entities with a value that the schema does not allow."""
    return {
        ("value_constraint_violation", one.id, entity)
        for one in shape.types
        for entity, row in state[one.id].items()
        if not all(column.allows(row[column.id]) for column in one.columns)
    }


def broken(state: State, shape: Shape) -> Found:
    """The constraint violations of a state."""
    found: Found = invalid(state, shape)
    for name, unique in ((one.id, column.id) for one in shape.types for column in one.columns if column.unique):
        holders: dict[Any, list[str]] = {}
        for entity, row in state[name].items():
            if row[unique] is not None:
                holders.setdefault(row[unique], []).append(entity)
        found |= {("unique_violation", name, max(own)) for own in holders.values() if len(own) > 1}
    edges: dict[str, int] = {}
    for entity, row in state[EDGE].items():
        if row["from"] not in state["A"] or row["to"] not in state["B"]:
            found.add(("orphan_edge", EDGE, entity))
        edges[row["from"]] = edges.get(row["from"], 0) + 1
    for node, count in edges.items():
        if count > MOST_EDGES and node in state["A"]:
            found.add(("cardinality_violation", EDGE, node))
    return found


def counts(before: State, after: State, shape: Shape = FIRST_SHAPE) -> dict[str, tuple[int, int, int]]:
    """How many rows of each type are inserted, updated and deleted, by type key."""
    found = {}
    for name in before:
        new, old = after[name], before[name]
        made, gone = len(new.keys() - old.keys()), len(old.keys() - new.keys())
        changed = sum(not same(new[entity], old[entity]) for entity in new.keys() & old.keys())
        if made or changed or gone:
            found[shape.of(name).key] = (made, changed, gone)
    return found


def update_counts(
    before: State, old: Shape, after: State, new: Shape
) -> tuple[dict[str, tuple[int, int, int]], dict[str, int]]:
    """The changes of a branch by an update that brings a new schema.

    Returns:
        The numbers of inserts, updates and deletes of each type, by type key. An update changes a property that both
        schemas have. And by type key, the number of other entities with a value in a new property that is not its
        default.
    """
    found: dict[str, tuple[int, int, int]] = {}
    added: dict[str, int] = {}
    before, after = shown(before, old), shown(after, new)
    for name in before.keys() | after.keys():
        one, former = new.find(name), old.find(name)
        newest = one or former
        assert newest is not None
        rows, earlier = after.get(name, {}) if one else {}, before.get(name, {}) if former else {}
        both = rows.keys() & earlier.keys()
        known = {column.id for column in former.columns} if former else set()
        fresh = [column for column in one.columns if column.id not in known] if one else []
        ends = {"from", "to"} if name == EDGE else set()
        shared = ends | ({column.id for column in one.columns} & known if one else set())
        changed = {entity for entity in both if not same(_only(rows[entity], shared), _only(earlier[entity], shared))}
        numbers = len(rows.keys() - both), len(changed), len(earlier.keys() - both)
        sums = found.get(newest.key, (0, 0, 0))
        found[newest.key] = sums[0] + numbers[0], sums[1] + numbers[1], sums[2] + numbers[2]
        set_values = (any(rows[entity].get(c.id) != c.filled for c in fresh) for entity in both - changed)
        added[newest.key] = added.get(newest.key, 0) + sum(set_values)
    return found, added


def _only(row: Row, names: set[str]) -> Row:
    return {name: value for name, value in row.items() if name in names}
