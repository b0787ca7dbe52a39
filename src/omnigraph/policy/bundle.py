"""A policy bundle: groups of actors, and the rules that allow and limit their actions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action

TYPED = (Action.READ, Action.EXPORT, Action.CHANGE)
"""The actions that a rule can restrict to types."""

_WRITES = frozenset(
    (Action.CHANGE, Action.SCHEMA_APPLY, Action.BRANCH_CREATE, Action.BRANCH_DELETE, Action.BRANCH_MERGE)
)


class Scope(StrEnum):
    """The branches that a rule is about."""

    ANY = "any"
    """All branches, and requests without a branch."""
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that allows actions.

    Attributes:
        group: the actors.
        branch_scope: the branches of requests; None if the rule has no such scope.
        target_branch_scope: the target branches of requests; None if the rule has no such scope.
        types: the names or keys of the types that the rule is about; None for all.
        line: its line in the bundle.
    """

    id: str
    group: str
    actions: tuple[Action, ...]
    branch_scope: Scope | None
    target_branch_scope: Scope | None
    types: tuple[str, ...] | None
    line: int | None


@dataclass(frozen=True, slots=True)
class RowRule:
    """A rule that selects the rows of a type that actors may use.

    Attributes:
        type: the name or key of the type.
        actions: `read`, `change` or both.
        where: the condition; None for all rows.
        line: the line of the condition, or of the rule.
    """

    id: str
    group: str
    type: str
    actions: tuple[Action, ...]
    where: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Mask:
    """A rule that hides properties of a type from actors."""

    id: str
    group: str
    type: str
    properties: tuple[str, ...]
    line: int | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a bundle file.

    Attributes:
        name: the name of the file, for messages.
        groups: the actors of each group.
        protected_branches: the branches that the scopes `protected` and `unprotected` distinguish, sorted.
    """

    name: str
    groups: Mapping[str, tuple[str, ...]]
    protected_branches: tuple[str, ...]
    rules: tuple[Rule, ...]
    row_rules: tuple[RowRule, ...] = ()
    masks: tuple[Mask, ...] = ()

    @property
    def actors(self) -> frozenset[str]:
        """The actors of all groups."""
        return frozenset(actor for members in self.groups.values() for actor in members)

    @property
    def is_for_server(self) -> bool:
        """Whether the rules are about the list of graphs of a server, and not about a graph."""
        return any(Action.GRAPH_LIST in rule.actions for rule in self.rules)

    @property
    def allows_writes(self) -> bool:
        """Whether a rule allows a write."""
        return any(not _WRITES.isdisjoint(rule.actions) for rule in self.rules)

    def groups_of(self, actor: str) -> tuple[str, ...]:
        """The groups of an actor, sorted."""
        return tuple(sorted(name for name, members in self.groups.items() if actor in members))
