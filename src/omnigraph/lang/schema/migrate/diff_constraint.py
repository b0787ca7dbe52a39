"""The constraint changes of one type. Constraints are matched by the identity of their properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from omnigraph.lang.schema.catalog import (
    Cardinality,
    Check,
    Constraint,
    EdgeType,
    Index,
    Key,
    NodeType,
    Range,
    Unique,
)
from omnigraph.lang.schema.migrate.change import TypeChange, refuse
from omnigraph.lang.schema.migrate.steps import (
    AddConstraint,
    ChangeCardinality,
    ChangeConstraint,
    ChangeConstraintForm,
    RemoveConstraint,
    Step,
    Tier,
)
from omnigraph.lang.schema.migrate.wording import constraint_source
from omnigraph.lang.schema.owner import ENDPOINTS

Change = TypeChange[NodeType] | TypeChange[EdgeType]


def key_steps(change: Change) -> Iterator[Step]:
    """Refuse changes of the key, because the ids of stored entities are derived from it."""
    before = next((c for c in change.old.constraints if isinstance(c, Key)), None)
    after = next((c for c in change.new.constraints if isinstance(c, Key)), None)
    if (_renamed(change, before) if before else None) == after:
        return
    if before is None and after is not None:
        what = f"{change.label} cannot get {constraint_source(after)}: its entities have ids without a key"
    elif after is None and before is not None:
        what = f"{change.label} cannot lose {constraint_source(before)}: the ids of its entities are derived from it"
    elif before is not None and after is not None:
        what = f"the key of {change.label} cannot change from {constraint_source(before)} to {constraint_source(after)}"
    yield refuse(
        "OG-BC-101",
        change.label,
        what,
        "declare a new type with the desired key, load the entities into it, and drop this type; "
        "for uniqueness alone use @unique",
    )


def cardinality_steps(change: TypeChange[EdgeType]) -> Iterator[Step]:
    """Changes of `@card` and `@card_in`. Wider bounds are safe. For other bounds, the stored edges are checked."""
    sides = (("src", change.old.card, change.new.card), ("dst", change.old.card_in, change.new.card_in))
    for side, before, after in sides:
        if before == after:
            continue
        tier = Tier.SAFE if _covers(_bounds(after), _bounds(before)) else Tier.VALIDATED
        yield ChangeCardinality(change.kind, change.new.name, side, before, after, tier=tier)


def constraint_steps(change: Change) -> Iterator[Step]:
    """The steps for changed, removed and added constraints, then for constraints that move into or out of the body."""
    where = change.kind, change.new.name
    before: dict[Constraint, Constraint] = {
        _renamed(change, old): old for old in change.old.constraints if not isinstance(old, Key)
    }
    after: list[Constraint] = [new for new in change.new.constraints if not isinstance(new, Key)]
    wanted = set(after)
    removed = {renamed: old for renamed, old in before.items() if renamed not in wanted}
    added = {new: new for new in after if new not in before}
    for old, new in _pairs(change, removed.values(), added):
        del removed[_renamed(change, old)], added[new]
        yield ChangeConstraint(*where, old, new, tier=_tier_of_change(old, new))
    for old in removed.values():
        step = RemoveConstraint(*where, old)
        yield step if isinstance(old, Index) else replace(step, code="OG-CD-101")
    for new in added:
        yield AddConstraint(*where, new, tier=Tier.SAFE if isinstance(new, Index) else Tier.VALIDATED)
    yield from _form_steps(change)


def _pairs(
    change: Change, removed: Iterable[Constraint], added: Iterable[Constraint]
) -> list[tuple[Constraint, Constraint]]:
    """Pairs of a removed and an added constraint of one kind on the same properties: the changed constraints."""
    subjects: dict[object, tuple[list[Constraint], list[Constraint]]] = {}
    for old in removed:
        subjects.setdefault(_subject(_renamed(change, old)), ([], []))[0].append(old)
    for new in added:
        subjects.setdefault(_subject(new), ([], []))[1].append(new)
    return [
        (olds[0], news[0])
        for subject, (olds, news) in subjects.items()
        if subject is not None and len(olds) == len(news) == 1
    ]


def _subject(constraint: Constraint) -> object:
    match constraint:
        case Range(name):
            return "range", name
        case Check(name):
            return "check", name
        case Index(fields, kind):
            return "index", fields, kind
        case _:
            return None


def _tier_of_change(old: Constraint, new: Constraint) -> Tier:
    match old, new:
        case Index(), Index():
            return Tier.SAFE
        case Range(_, old_min, old_max), Range(_, new_min, new_max):
            return Tier.SAFE if _covers((new_min, new_max), (old_min, old_max)) else Tier.VALIDATED
        case _:
            return Tier.VALIDATED


Bounds = tuple[int | float | None, int | float | None]


def _bounds(cardinality: Cardinality) -> Bounds:
    return cardinality.min, cardinality.max


def _covers(outer: Bounds, inner: Bounds) -> bool:
    """Whether the range `outer` includes the range `inner`. None means no bound."""
    least = outer[0] is None or (inner[0] is not None and outer[0] <= inner[0])
    most = outer[1] is None or (inner[1] is not None and outer[1] >= inner[1])
    return least and most


def _form_steps(change: Change) -> Iterator[Step]:
    old_constraints, new_constraints = set(change.old.constraints), set(change.new.constraints)
    for old, new in change.common_properties():
        for form in sorted(set(old.property_constraints) ^ set(new.property_constraints)):
            before, after = _FORMS[form]((old.name,)), _FORMS[form]((new.name,))
            if before in old_constraints and after in new_constraints:
                written = "property" if form in new.property_constraints else "body"
                yield ChangeConstraintForm(change.kind, change.new.name, after, written)


_FORMS: dict[str, type[Key] | type[Unique] | type[Index]] = {"key": Key, "unique": Unique, "index": Index}


def _renamed(change: Change, constraint: Constraint) -> Constraint:
    """An old constraint with the new names of its properties. Dropped properties get a name that does not exist."""

    def present(name: str) -> str:
        if isinstance(change.old, EdgeType) and name in ENDPOINTS:
            return name
        return change.current.get(name, f"{name} (dropped)")

    match constraint:
        case Key(fields) | Unique(fields) | Index(fields):
            return replace(constraint, fields=tuple(sorted(map(present, fields))))
        case Range(name) | Check(name):
            return replace(constraint, property=present(name))
