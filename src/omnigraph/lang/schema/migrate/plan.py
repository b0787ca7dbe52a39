"""Plan a schema change: the steps from an accepted schema to a desired one."""

# See docs/decisions/0014-interface-changes-are-safe.md

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, PlanError
from omnigraph.lang.schema.accepted import AcceptedSchema
from omnigraph.lang.schema.canonical import Json
from omnigraph.lang.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType, TypeKind
from omnigraph.lang.schema.identity import AnyType, Resolution, TypeKey, resolve, types_of
from omnigraph.lang.schema.migrate.change import TypeChange, change_of, refuse
from omnigraph.lang.schema.migrate.diff_constraint import cardinality_steps, constraint_steps, key_steps
from omnigraph.lang.schema.migrate.diff_property import property_steps
from omnigraph.lang.schema.migrate.steps import (
    AddType,
    ChangeImplements,
    DropMode,
    DropType,
    PropertyStep,
    RenameType,
    Step,
    Tier,
    UnsupportedChange,
    UpdateTypeMetadata,
)
from omnigraph.lang.schema.shape import shape_hash

_TIERS = [Tier.SAFE, Tier.VALIDATED, Tier.DESTRUCTIVE]
_DROP_CODES = {TypeKind.NODE: "OG-DS-102", TypeKind.EDGE: "OG-DS-103"}


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a schema change.

    Attributes:
        steps: the steps, in the order in which they are printed and executed; empty if nothing changes.
        notes: parts of the schema without effect, such as rename hints that were applied earlier.
    """

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    @property
    def supported(self) -> bool:
        """Whether the change is possible. One refused step refuses the whole change."""
        return not self.refusals

    @property
    def refusals(self) -> tuple[UnsupportedChange, ...]:
        return tuple(step for step in self.steps if isinstance(step, UnsupportedChange))

    @property
    def tier(self) -> Tier:
        """The most severe tier of all steps."""
        return max((step.tier for step in self.steps), key=_TIERS.index, default=Tier.SAFE)

    def lines(self) -> list[str]:
        """The plan as text: one line per step, with a hint below each refused step."""
        lines = [] if self.steps else ["no schema changes"]
        for step in self.steps:
            lines.append(step.line())
            if isinstance(step, UnsupportedChange):
                lines.append(f"  help: {step.hint}")
        return lines + [f"note: {note}" for note in self.notes]

    def to_json(self) -> dict[str, Json]:
        entry: dict[str, Json] = {
            "supported": self.supported,
            "tier": self.tier.value,
            "steps": [step.to_json() for step in self.steps],
        }
        return entry | ({"notes": list(self.notes)} if self.notes else {})

    def raise_refusal(self) -> None:
        """Raise the first refusal, if there is one.

        Raises:
            PlanError: the change is not possible.
        """
        first, *more = self.refusals or (None,)
        if first is not None:
            others = "1 more step is" if len(more) == 1 else f"{len(more):,} more steps are"
            hint = f"{first.hint}; {others} refused: see 'schema plan'" if more else first.hint
            raise PlanError(first.reason, diagnostic=first.code, hint=hint)


def check_has_types(before: Catalog, after: Catalog) -> None:
    """Check that a schema change leaves some types. A schema without types is probably an empty file.

    Raises:
        InputError: the new schema has no types, but the old one has some.
    """
    if (before.nodes or before.edges) and not (after.nodes or after.edges):
        raise InputError(
            "the new schema has no types, so it would drop all types of the graph",
            hint="check the file; nothing has changed",
        )


def plan(accepted: AcceptedSchema, desired: Catalog, *, allow_data_loss: bool = False) -> Plan:
    """Plan the steps from an accepted schema to a desired one.

    Args:
        accepted: the schema of the graph.
        desired: the compiled new schema.
        allow_data_loss: whether the data of dropped types and properties is also removed from earlier versions.
    """
    resolution = resolve(accepted.catalog, desired)
    mode = DropMode.HARD if allow_data_loss else DropMode.SOFT
    steps = tuple(_Planner(accepted.catalog, desired, resolution, mode).steps())
    if not steps and shape_hash(accepted.catalog) != shape_hash(desired):
        steps = (_unclassified(),)
    return Plan(steps, tuple(resolution.notes))


def _unclassified() -> Step:
    reason = "the schemas differ in a way that no step describes"
    return refuse("OG-BC-103", "schema", reason, "make the change in several smaller steps, and report this as a bug")


class _Planner:
    def __init__(self, accepted: Catalog, desired: Catalog, resolution: Resolution, mode: DropMode) -> None:
        self.accepted = dict(types_of(accepted))
        self.desired = dict(types_of(desired))
        self.resolution = resolution
        self.mode = mode
        self.problems: dict[TypeKey, list[UnsupportedChange]] = {}
        for problem in resolution.problems:
            step = refuse(problem.code, problem.entity, problem.message, problem.hint, problem.property_name)
            self.problems.setdefault(problem.owner, []).append(step)

    def steps(self) -> Iterator[Step]:
        """The steps of interfaces, then of nodes, then of edges, each in the order of names."""
        for kind in TypeKind:
            kept = {former for (other, _), former in self.resolution.types.items() if other is kind}
            dropped = {name for other, name in self.accepted if other is kind and name not in kept}
            wanted = {name for other, name in self.desired if other is kind}
            for name in sorted(dropped | wanted):
                if name in wanted:
                    key = kind, name
                    yield from _allowed(self.desired[key], self._type_steps(key))
                else:
                    yield self._drop(kind, name)

    def _drop(self, kind: TypeKind, name: str) -> Step:
        step = DropType(kind, name, self.mode)
        if kind is TypeKind.INTERFACE:
            return step
        return replace(step, tier=Tier.DESTRUCTIVE, code=_DROP_CODES[kind])

    def _type_steps(self, key: TypeKey) -> Iterator[Step]:
        problems = self.problems.get(key, [])
        former = self.resolution.types.get(key)
        if former is None:
            yield from problems
            if not problems:
                yield AddType(*key)
            return
        if former != key[1]:
            yield RenameType(key[0], former, key[1])
        yield from problems
        refused = frozenset(step.property_name for step in problems if step.property_name)
        common = self.resolution, self.mode, refused
        yield from kept_type_steps(key[0], self.accepted[key[0], former], self.desired[key], *common)


def kept_type_steps(
    kind: TypeKind,
    old: AnyType,
    new: AnyType,
    resolution: Resolution,
    mode: DropMode = DropMode.SOFT,
    refused: frozenset[str] = frozenset(),
) -> Iterator[Step]:
    """The steps of one declaration that exists before and after the change, without its rename.

    Args:
        kind: the kind of declaration.
        old: the declaration before the change.
        new: the declaration after it.
        resolution: the name mapping of the whole schema.
        mode: whether earlier versions of the graph keep dropped properties.
        refused: the properties with an invalid rename hint.
    """
    common = resolution, mode, refused
    match old, new:
        case InterfaceType(), InterfaceType():
            yield from property_steps(change_of(kind, old, new, *common))
        case NodeType(), NodeType():
            yield from _node_steps(change_of(kind, old, new, *common))
        case EdgeType(), EdgeType():
            yield from _edge_steps(change_of(kind, old, new, *common))


def _node_steps(change: TypeChange[NodeType]) -> Iterator[Step]:
    yield from key_steps(change)
    yield from _implements_steps(change)
    yield from _metadata_steps(change)
    yield from property_steps(change)
    yield from constraint_steps(change)


def _edge_steps(change: TypeChange[EdgeType]) -> Iterator[Step]:
    yield from _endpoint_steps(change)
    yield from key_steps(change)
    yield from cardinality_steps(change)
    yield from _metadata_steps(change)
    yield from property_steps(change)
    yield from constraint_steps(change)


def _endpoint_steps(change: TypeChange[EdgeType]) -> Iterator[Step]:
    ends = (
        ("begins", change.old.from_type, change.new.from_type),
        ("ends", change.old.to_type, change.new.to_type),
    )
    for verb, before, after in ends:
        if change.resolution.types.get((TypeKind.NODE, after)) != before:
            yield refuse(
                "OG-ED-101",
                change.label,
                f"{change.label} {verb} at '{before}' and cannot be moved to '{after}'",
                "declare a new edge type with these ends, load the edges into it, and drop this one",
            )


def _implements_steps(change: TypeChange[NodeType]) -> Iterator[Step]:
    former = {name: change.resolution.types.get((TypeKind.INTERFACE, name)) for name in change.new.implements}
    added = tuple(name for name, old in former.items() if old not in change.old.implements)
    removed = tuple(sorted(set(change.old.implements) - set(former.values())))
    if added or removed:
        yield ChangeImplements(change.kind, change.new.name, added, removed)


def _metadata_steps(change: TypeChange[NodeType] | TypeChange[EdgeType]) -> Iterator[Step]:
    old, new = change.old, change.new
    if (old.annotations, old.allows) != (new.annotations, new.allows):
        yield UpdateTypeMetadata(change.kind, new.name, new.annotations)


def _allowed(declaration: AnyType, steps: Iterable[Step]) -> Iterator[Step]:
    """Add to each step the reason of the `@allow` for its diagnostic code, if the declaration has one."""
    for step in steps:
        reasons = dict(declaration.allows)
        if isinstance(step, PropertyStep | UnsupportedChange):
            prop = declaration.properties.get(step.property_name or "")
            reasons |= prop.allows if prop else ()
        reason = reasons.get(step.code) if step.code else None
        yield replace(step, allowed=reason) if reason else step
