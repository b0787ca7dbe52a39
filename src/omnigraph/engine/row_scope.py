"""Row rules as texts: the visible rows and properties of each type, by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from omnigraph.commit.manifest import Manifest
from omnigraph.dataclass import dataclass
from omnigraph.errors import CompileError, InputError, cut, shown
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.restricted.row_scope import Rows, RowScope, digest_of
from omnigraph.restricted.rule_names import DroppedNames, all_keys, condition_in, hidden_properties, rule_key

__all__ = ["RowRules", "RowScope", "Rows", "compile_condition"]

_SELF = re.compile(r'"(?:\\.|[^"\\])*"|\$\.')
_ACTOR, _GROUPS = "actor", "groups"


@dataclass(frozen=True, slots=True)
class RowRules:
    """The rows and properties that an actor may see. Rules name types and properties.

    Attributes:
        types: by type key (`node:<Type>`, `edge:<Type>`): `Rows`, or a condition such as
            `$.owner = $actor or $.team in $groups`.
        hidden_properties: the names of hidden properties, by type key.
        actor: the value of `$actor`.
        groups: the value of `$groups`.
        otherwise: the rows of types without a rule.
    """

    types: Mapping[str, str | Rows] = field(default_factory=dict)
    hidden_properties: Mapping[str, Sequence[str]] = field(default_factory=dict)
    actor: str | None = None
    groups: Sequence[str] = ()
    otherwise: Rows = Rows.ALL

    @property
    def digest(self) -> str:
        masked = sorted((key, sorted(names)) for key, names in self.hidden_properties.items())
        types = sorted((key, str(rule)) for key, rule in self.types.items())
        return digest_of((types, masked, self.actor, tuple(self.groups), self.otherwise.value))

    def scope_of(self, reference: AcceptedSchema, former: Callable[[], Iterable[AcceptedSchema]] = tuple) -> RulesOf:
        """The scopes of the rules.

        Args:
            reference: the schema of `main`, whose names the rules have. A type or property that has another name in a
                state is found by its number.
            former: reads all schemas that the graph has had. Rules may name types and properties that were dropped.

        Raises:
            InputError: a rule names a type or property that the graph does not have.
        """
        known, dropped = all_keys(reference), DroppedNames(reference, former)
        for key in (*self.types, *self.hidden_properties):
            if key not in known and (":" not in str(key) or not dropped.types(key)):
                raise InputError(f"row rules: there is no type {shown(key)}", hint=did_you_mean(str(key), known))
        for key, names in self.hidden_properties.items():
            if key not in known:
                continue
            declared = reference.catalog.declared(*TypeKey.parse(key)).properties
            for name in names:
                if name not in declared and not dropped.has_property(key, name):
                    hint = did_you_mean(str(name), declared)
                    raise InputError(f"row rules: {cut(key)} has no property {shown(name)}", hint=hint)
        return RulesOf(self, reference)


@dataclass(frozen=True, slots=True)
class RulesOf:
    """The scopes of row rules, as a function of the state.

    Attributes:
        rules: the rules.
        reference: the schema whose names they have.
    """

    rules: RowRules
    reference: AcceptedSchema

    @property
    def digest(self) -> str:
        return self.rules.digest

    def __call__(self, view: Manifest, accepted: AcceptedSchema) -> RowScope:
        """The scope for a state and its schema. A type whose condition does not fit the schema is hidden."""
        rules, reference = self.rules, self.reference
        types: dict[str, ir.Expr | Rows] = {}
        hidden: dict[str, frozenset[str]] = {}
        for key in all_keys(accepted):
            named = rule_key(key, accepted, reference)
            types[key] = self._rows(key, named, accepted)
            names = rules.hidden_properties.get(named, ())
            hidden[key] = frozenset(hidden_properties(names, key, named, accepted, reference))
        return RowScope(types, hidden, {_ACTOR: rules.actor, _GROUPS: tuple(rules.groups)})

    def _rows(self, key: str, named: str, accepted: AcceptedSchema) -> ir.Expr | Rows:
        rule = self.rules.types.get(named, self.rules.otherwise)
        if isinstance(rule, Rows):
            return rule
        is_known = accepted is not self.reference and TypeKey.parse(named) in self.reference.identities
        try:
            if not is_known:
                return compile_condition(rule, key, accepted)
            condition = compile_condition(rule, named, self.reference)
        except CompileError:
            return Rows.HIDDEN
        return condition_in(condition, key, named, accepted, self.reference) or Rows.HIDDEN


def compile_condition(text: str, key: str, accepted: AcceptedSchema) -> ir.Expr:
    """Compile a condition on the rows of a type.

    Args:
        text: the condition. It may use `$actor: String?` and `$groups: [String]`, and `$.` before a property.
        key: the type key.
        accepted: the schema.

    Raises:
        CompileError: the condition does not compile.
        InputError: the condition depends on the time of the request.
    """
    kind, name = TypeKey.parse(key)
    plain = _SELF.sub(lambda found: "" if found[0] == "$." else found[0], text)
    query = compile_query(
        f"query rule(${_ACTOR}: String?, ${_GROUPS}: [String]) {{ delete {kind.value} {name} where (\n{plain}\n) }}",
        accepted.catalog,
    )
    (statement, *others) = query.body.statements if isinstance(query.body, ir.Write) else ()
    if others or not isinstance(statement, ir.Delete):
        raise InputError("a row rule is one condition")
    if any(isinstance(part, ir.Now) for part in walk(statement.where)):
        raise InputError("a row rule may not use now()", hint="the visible rows of a version must not change")
    return statement.where
