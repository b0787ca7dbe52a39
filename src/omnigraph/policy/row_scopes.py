"""The rows and properties that the actors of a bundle may use, for one schema."""

# See docs/decisions/0302-row-rules-are-denied-by-default.md

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from omnigraph.engine.access import Action
from omnigraph.errors import PolicyError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ir
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key
from omnigraph.policy.bundle import Bundle, Mask, RowRule, Rule
from omnigraph.policy.conditions import ACTOR, GROUPS, compile_condition, condition_in
from omnigraph.restricted.row_scope import Rows, RowScope
from omnigraph.restricted.rule_names import DroppedNames, all_keys, hidden_properties, is_about, rule_key


def check_rules(
    bundle: Bundle, accepted: AcceptedSchema, former: Callable[[], Iterable[AcceptedSchema]] = tuple
) -> None:
    """Check that the types, properties and conditions of a bundle fit a schema.

    Args:
        bundle: the bundle.
        accepted: the schema.
        former: reads all schemas that the graph has had. Rules may name types and properties that were dropped.

    Raises:
        PolicyError: a rule does not fit.
    """
    known, dropped = all_keys(accepted), DroppedNames(accepted, former)
    for allowed in bundle.rules:
        for name in allowed.types or ():
            if any(is_about(name, key) for key in known) or not dropped.types(name):
                _keys_of(bundle, allowed, name, known)
    for rule in bundle.row_rules:
        places = _places(bundle, rule, known, accepted, dropped)
        if rule.where is not None:
            _check_one(places, partial(_check_condition, bundle, rule))
    for mask in bundle.masks:
        places = _places(bundle, mask, known, accepted, dropped)
        _check_one(places, partial(_check_mask, bundle, mask, accepted, dropped))


def _check_one(places: Sequence[tuple[str, AcceptedSchema]], check: Callable[[str, AcceptedSchema], None]) -> None:
    """Check that a rule fits one of the schemas that have its type.

    Raises:
        PolicyError: it fits none.
    """
    failed: PolicyError | None = None
    for key, schema in places:
        try:
            check(key, schema)
            return
        except PolicyError as error:
            failed = error
    if failed is not None:
        raise failed


def _places(
    bundle: Bundle, rule: RowRule | Mask, known: Sequence[str], accepted: AcceptedSchema, dropped: DroppedNames
) -> list[tuple[str, AcceptedSchema]]:
    """The key of the type of a rule, with the schema; if the type was dropped, with each schema that had it.

    Raises:
        PolicyError: there is no such type, or there are two.
    """
    if not any(is_about(rule.type, key) for key in known) and (found := dropped.types(rule.type)):
        return found
    return [(_key_of(bundle, rule, known), accepted)]


def row_scope(
    bundle: Bundle,
    actor: str,
    action: Action,
    allows: Callable[[str], bool],
    accepted: AcceptedSchema,
    reference: AcceptedSchema,
) -> RowScope:
    """The rows and properties that an actor may use.

    Args:
        bundle: the bundle.
        actor: the actor.
        action: `read`, `export` or `change`.
        allows: whether the rules allow the action on a type, given its key.
        accepted: the schema of the state.
        reference: the schema whose names the rules have. A type or property that has another name in the state is
            found by its number.
    """
    groups = bundle.groups_of(actor)
    needed = Action.CHANGE if action is Action.CHANGE else Action.READ
    types: dict[str, ir.Expr | Rows] = {}
    limits: dict[str, tuple[str, ...]] = {}
    hidden: dict[str, frozenset[str]] = {}
    for key in all_keys(accepted):
        named = rule_key(key, accepted, reference)
        row_rules = [rule for rule in bundle.row_rules if needed in rule.actions and is_about(rule.type, named)]
        masks = [mask for mask in bundle.masks if mask.group in groups and is_about(mask.type, named)]
        typed = [rule for rule in bundle.rules if rule.types is not None and action in rule.actions]
        is_allowed = allows(named)
        own = [rule for rule in row_rules if rule.group in groups]
        if not is_allowed:
            types[key] = Rows.HIDDEN
        else:
            types[key] = _rows(bundle, own, key, named, accepted, reference) if row_rules else Rows.ALL
        names = {name for mask in masks for name in mask.properties}
        properties = frozenset(hidden_properties(names, key, named, accepted, reference))
        if properties:
            hidden[key] = properties
        ids = [rule.id for rule in row_rules] + [mask.id for mask in masks if properties]
        limits[key] = tuple(sorted(ids if is_allowed else [rule.id for rule in typed if rule.group in groups]))
    _hide_edges(types, limits, accepted)
    return RowScope(types, hidden, {ACTOR: actor, GROUPS: groups}, {key: ids for key, ids in limits.items() if ids})


def _rows(
    bundle: Bundle,
    own: Sequence[RowRule],
    key: str,
    named: str,
    accepted: AcceptedSchema,
    reference: AcceptedSchema,
) -> ir.Expr | Rows:
    """The rows of a type that any of the rules selects. Without rules, there are none."""
    if not own:
        return Rows.HIDDEN
    if any(rule.where is None for rule in own):
        return Rows.ALL
    try:
        found = [condition_in(rule, bundle.name, key, named, accepted, reference) for rule in own]
    except PolicyError:  # the type is not in the reference schema, and a condition does not fit it
        return Rows.HIDDEN
    # A condition that the state cannot test selects no row of it.
    terms = tuple(term for term in found if term is not None)
    if not terms:
        return Rows.HIDDEN
    return terms[0] if len(terms) == 1 else ir.Or(terms)


def _hide_edges(types: dict[str, ir.Expr | Rows], limits: dict[str, tuple[str, ...]], accepted: AcceptedSchema) -> None:
    """Hide the edge types whose source or target type is hidden."""
    for name, edge in accepted.catalog.edges.items():
        for end in (node_key(edge.from_type), node_key(edge.to_type)):
            if types[end] is Rows.HIDDEN and types[edge_key(name)] is not Rows.HIDDEN:
                types[edge_key(name)] = Rows.HIDDEN
                limits[edge_key(name)] = limits[end]


def _key_of(bundle: Bundle, rule: RowRule | Mask, known: Sequence[str]) -> str:
    """The key of the type of a rule.

    Raises:
        PolicyError: there is no such type, or there are two.
    """
    found = _keys_of(bundle, rule, rule.type, known)
    if len(found) > 1:
        raise _error(bundle, rule, f"'{rule.type}' is a node type and an edge type", f"write {' or '.join(found)}")
    return found[0]


def _keys_of(bundle: Bundle, rule: Rule | RowRule | Mask, name: str, known: Sequence[str]) -> list[str]:
    found = [key for key in known if is_about(name, key)]
    if not found:
        names = known if ":" in name else [key.partition(":")[2] for key in known]
        raise _error(bundle, rule, f"there is no type '{cut(name)}'", did_you_mean(name, names))
    return found


def _check_condition(bundle: Bundle, rule: RowRule, key: str, schema: AcceptedSchema) -> None:
    compile_condition(rule, bundle.name, key, schema.catalog)


def _check_mask(
    bundle: Bundle, mask: Mask, accepted: AcceptedSchema, dropped: DroppedNames, key: str, schema: AcceptedSchema
) -> None:
    declared = schema.catalog.declared(*TypeKey.parse(key))
    for name in mask.properties:
        if name not in declared.properties and (schema is not accepted or not dropped.has_property(key, name)):
            hint = did_you_mean(name, declared.properties)
            raise _error(bundle, mask, f"{declared.name} has no property '{cut(name)}'", hint)
        if name in (declared.key or ()):
            hint = "use a row rule to hide the rows"
            raise _error(bundle, mask, f"{name} is part of the key, which the id of each row shows", hint)


def _error(bundle: Bundle, rule: Rule | RowRule | Mask, message: str, hint: str | None) -> PolicyError:
    place = bundle.name if rule.line is None else f"{bundle.name}, line {rule.line}"
    return PolicyError(f"{place}: {message} (rule '{rule.id}')", hint=hint)
