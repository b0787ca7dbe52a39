"""Parse a bundle file. Errors name the file, the line and the rule."""

# See docs/decisions/0301-bundles-are-read-strictly.md

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from omnigraph.commit.ref_names import branch_name
from omnigraph.engine.access import Action
from omnigraph.errors import InputError, PolicyError, cut
from omnigraph.lang.documents import Value, as_document, read_document
from omnigraph.lang.names import did_you_mean
from omnigraph.policy.bundle import TYPED, Bundle, Mask, RowRule, Rule, Scope
from omnigraph.policy.conditions import check_syntax
from omnigraph.storage.files.input import text_of

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_SECTIONS = ("version", "groups", "protected_branches", "rules", "row_rules", "masks")
_VERSION = 1
_TARGETED = (Action.SCHEMA_APPLY, Action.BRANCH_CREATE, Action.BRANCH_DELETE, Action.BRANCH_MERGE)
_SCOPED: dict[str, tuple[Action, ...]] = {"branch_scope": TYPED, "target_branch_scope": _TARGETED}
"""The actions that each scope field applies to."""
_ROW_ACTIONS = (Action.READ, Action.CHANGE)


def read_bundle(given: str | os.PathLike[str] | Mapping[str, Any]) -> Bundle:
    """Read a bundle.

    Args:
        given: the path of a YAML file, or its content.

    Example:
        >>> bundle = read_bundle({
        ...     "version": 1,
        ...     "groups": {"crew": ["kim"]},
        ...     "rules": [{"id": "r", "allow": {"actors": {"group": "crew"}, "actions": ["read"]}}],
        ... })
        >>> bundle.rules[0].actions[0].value, sorted(bundle.actors)
        ('read', ['kim'])

    Raises:
        PolicyError: the bundle is not valid.
    """
    with as_policy_error():
        top = document_of(given)
        return _BundleReader(top).bundle()


def document_of(given: str | os.PathLike[str] | Mapping[str, Any]) -> Value:
    """The document of a file, or of given content."""
    if isinstance(given, Mapping):
        return as_document(given, "the policy")
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"expected the path of a YAML file, or a dict; found a value of type {type(given).__name__}")
    path = os.fspath(given)
    return read_document(text_of(path), os.path.basename(path))


@contextmanager
def as_policy_error(rule: str | None = None) -> Iterator[None]:
    """Turn errors about a document into errors about a policy, and name the rule."""
    try:
        yield
    except PolicyError:
        raise
    except InputError as error:
        named = f" (rule '{cut(rule)}')" if rule else ""
        raise PolicyError(f"{error.message}{named}", hint=error.hint) from None


def member(members: Mapping[str, Value], name: str, of: Value) -> Value:
    """A member that must be present.

    Raises:
        InputError: it is missing.
    """
    if name not in members:
        raise of.error(f"'{name}' is missing")
    return members[name]


def chosen(value: Value, options: type[E]) -> E:
    """One of the values of an enum.

    Raises:
        InputError: the text is none of these.
    """
    text = value.text()
    try:
        return options(text)
    except ValueError:
        names = [option.value for option in options]
        hint = did_you_mean(text, names) or f"use {', '.join(names)}"
        raise value.error(f"'{cut(text)}' is not one of the allowed values", hint) from None


class _BundleReader:
    """Parses one bundle."""

    def __init__(self, top: Value) -> None:
        self.top = top
        self.members = top.members(_SECTIONS)
        self.ids: dict[str, int | None] = {}
        self.groups: dict[str, tuple[str, ...]] = {}

    def bundle(self) -> Bundle:
        version = member(self.members, "version", self.top)
        if version.content is True or version.content != _VERSION:
            raise version.error(f"this release reads version {_VERSION} of bundles")
        self.groups = self._groups()
        rules = self._each("rules", self._rule)
        if not rules:
            raise self.members.get("rules", self.top).error("a bundle needs rules", "without rules, all is denied")
        self._check_kind(rules)
        return Bundle(
            self.top.document,
            self.groups,
            tuple(sorted(set(self._protected()))),
            tuple(rules),
            tuple(self._each("row_rules", self._row_rule)),
            tuple(self._each("masks", self._mask)),
        )

    def _groups(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name, value in member(self.members, "groups", self.top).members().items():
            if not name:
                raise value.error("a group needs a name")
            found[name] = self._texts(value, "actor")
        return found

    def _protected(self) -> Iterator[str]:
        value = self.members.get("protected_branches")
        for one in [] if value is None else value.items():
            try:
                yield branch_name(one.text())
            except InputError as error:
                raise one.error(error.message, error.hint) from None

    def _texts(self, value: Value, what: str) -> tuple[str, ...]:
        """The texts of a list that is not empty and has no duplicates."""
        found: dict[str, None] = {}
        for one in value.items():
            text = one.text()
            if text in found:
                raise one.error(f"duplicate {what} '{cut(text)}'")
            found[text] = None
        if not found:
            raise value.error("the list is empty")
        return tuple(found)

    def _each(self, section: str, read: Callable[[Value, Mapping[str, Value], str], T]) -> list[T]:
        """The rules of a section. Checks that their ids are unique in the bundle."""
        value = self.members.get(section)
        found = []
        for one in [] if value is None else value.items():
            members = one.members()
            rule_id = member(members, "id", one).text()
            with as_policy_error(rule_id):
                if rule_id in self.ids:
                    first = self.ids[rule_id]
                    where = f", in line {first}" if first is not None else ""
                    raise members["id"].error(f"another rule has this id{where}", "rename one of them")
                self.ids[rule_id] = members["id"].line
                found.append(read(one, members, rule_id))
        return found

    def _rule(self, value: Value, members: Mapping[str, Value], rule_id: str) -> Rule:
        value.members(("id", "allow"))
        allow = member(members, "allow", value)
        given = allow.members(("actors", "actions", "branch_scope", "target_branch_scope", "types"))
        actions = self._actions(member(given, "actions", allow))
        scopes: dict[str, Scope] = {}
        for field, allowed in _SCOPED.items():
            if field in given:
                scopes[field] = chosen(given[field], Scope)
                self._check_field(given[field], field, actions, allowed)
        if len(scopes) > 1:
            raise given["target_branch_scope"].error("a rule has at most one scope", "write two rules")
        types = None
        if "types" in given:
            self._check_field(given["types"], "types", actions, TYPED)
            types = self._texts(given["types"], "type")
        return Rule(
            rule_id,
            self._group(member(given, "actors", allow)),
            actions,
            scopes.get("branch_scope"),
            scopes.get("target_branch_scope"),
            types,
            value.line,
        )

    def _actions(self, value: Value, allowed: tuple[Action, ...] = tuple(Action)) -> tuple[Action, ...]:
        found = []
        for one in value.items():
            action = chosen(one, Action)
            if action not in allowed:
                raise one.error(f"a rule of this section cannot be about {action.value}")
            if action in found:
                raise one.error(f"duplicate action {action.value}")
            found.append(action)
        if not found:
            raise value.error("the list is empty")
        return tuple(found)

    def _check_field(self, value: Value, field: str, actions: tuple[Action, ...], allowed: tuple[Action, ...]) -> None:
        other = next((action for action in actions if action not in allowed), None)
        if other is not None:
            names = ", ".join(action.value for action in allowed)
            raise value.error(f"{field} does not apply to {other.value}, only to {names}", "write two rules")

    def _group(self, value: Value) -> str:
        group = member(value.members(("group",)), "group", value)
        name = group.text()
        if name not in self.groups:
            raise group.error(f"there is no group '{cut(name)}'", did_you_mean(name, self.groups))
        return name

    def _row_rule(self, value: Value, members: Mapping[str, Value], rule_id: str) -> RowRule:
        value.members(("id", "type", "actions", "actors", "where"))
        where, line = None, value.line
        if "where" in members:
            where, line = members["where"].text(), members["where"].line
            check_syntax(where, members["where"])
        return RowRule(
            rule_id,
            self._group(member(members, "actors", value)),
            member(members, "type", value).text(),
            self._actions(member(members, "actions", value), _ROW_ACTIONS),
            where,
            line,
        )

    def _mask(self, value: Value, members: Mapping[str, Value], rule_id: str) -> Mask:
        value.members(("id", "type", "properties", "actors"))
        return Mask(
            rule_id,
            self._group(member(members, "actors", value)),
            member(members, "type", value).text(),
            self._texts(member(members, "properties", value), "property"),
            members["properties"].line,
        )

    def _check_kind(self, rules: list[Rule]) -> None:
        """Check that rules about a server and about a graph are not mixed."""
        server = [rule for rule in rules if Action.GRAPH_LIST in rule.actions]
        mixed = next((rule for rule in rules if set(rule.actions) != {Action.GRAPH_LIST}), None)
        if not server:
            return
        if mixed is not None:
            raise PolicyError(
                f"{self.top.document}, line {mixed.line}: a bundle with graph_list has no actions on a graph "
                f"(rule '{mixed.id}')",
                hint="write a bundle for the server, and another one for the graph",
            )
        for section in ("row_rules", "masks"):
            if section in self.members:
                raise self.members[section].error("a bundle with graph_list has no rules about rows")
