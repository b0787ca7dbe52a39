"""Access of a session: the interface of a policy, and the checks of one actor.

A session without a policy has no access object, and its verbs check nothing.
"""

# See docs/decisions/0300-the-engine-asks-the-policy.md
# See docs/decisions/0302-row-rules-are-denied-by-default.md
# See docs/decisions/0347-branches-that-cannot-be-read-look-absent.md

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol, runtime_checkable

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.ref_names import SYSTEM
from omnigraph.dataclass import dataclass
from omnigraph.errors import AccessDeniedError, InputError, shown
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.restricted.row_scope import Rows, RowScope
from omnigraph.storage.lru_cache import LruCache

FIND_DENIAL = "the operator finds the denial with: omnigraph policy denials"
"""The end of the hint of a denial that is in the audit."""

_SCOPES = 64
"""Maximum number of cached scopes per session."""


class Action(StrEnum):
    """The actions that a policy allows."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    GRAPH_LIST = "graph_list"


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of a policy.

    Attributes:
        allowed: whether the actor may do it.
        rule: the id of the rule that allows it, the smallest one of several; None if none does.
        message: the reason, for the operator.
    """

    allowed: bool
    rule: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Denial:
    """A denied request, for the audit.

    Attributes:
        graph: the address of the graph.
        types: the keys of the types that the actor may not use; empty if the whole action is denied.
        message: the reason, for the operator.
    """

    graph: str
    actor: str | None
    action: str
    branch: str | None
    target_branch: str | None
    types: tuple[str, ...]
    rule: str | None
    message: str


@runtime_checkable
class AccessPolicy(Protocol):
    """A policy, as the engine sees it. `omnigraph.policy.Policy` implements it."""

    def decide(
        self, actor: str | None, action: Action, branch: str | None = None, target_branch: str | None = None
    ) -> Decision:
        """Whether an actor may do something to any type."""
        ...

    def rows(
        self, actor: str, action: Action, branch: str | None, accepted: AcceptedSchema, reference: AcceptedSchema
    ) -> RowScope:
        """The rows and properties that an actor may use for an action that is allowed on the branch.

        Args:
            actor: the actor.
            action: `read`, `export` or `change`.
            branch: the branch.
            accepted: the schema of the state that is used.
            reference: the schema whose names the rules have: that of `main`.
        """
        ...

    def limits(self, actor: str) -> bool:
        """Whether a rule may limit what an actor reads, or the rows that it changes."""
        ...

    def permits(self, actor: str | None, action: Action, branch: str | None) -> bool:
        """Whether an actor may read or export a branch; without one, every branch. The same as `decide`."""
        ...

    def reads(self, actor: str | None) -> bool:
        """Whether there is a branch that an actor may read."""
        ...

    @property
    def digest(self) -> str:
        """Digest of the rules. Policies with equal digests decide the same."""
        ...

    def check(self, accepted: AcceptedSchema, former: Callable[[], Iterable[AcceptedSchema]] = tuple) -> None:
        """Check that all rules fit a schema.

        Args:
            accepted: the schema.
            former: reads all schemas that the graph has had. Rules may name types and properties that were dropped.

        Raises:
            PolicyError: a rule names a type or a property that the schema does not have.
        """
        ...

    def record(self, denial: Denial) -> None:
        """Add a denial to the audit."""
        ...


@dataclass(frozen=True, slots=True)
class ScopeOf:
    """The scopes of one actor for one action, as a function of the state.

    Attributes:
        digest: digest of the rules and the actor. With other rules, cursors of the change feed are not valid.
    """

    access: Access
    action: Action
    digest: str

    def __call__(self, view: Manifest, accepted: AcceptedSchema) -> RowScope:
        return self.access.scope(self.action, view.branch, accepted, view.schema_hash)


class Access:
    """The access of one actor to one graph.

    Args:
        policy: the policy.
        actor: the actor; without one, everything is denied.
        graph: the address of the graph, for the audit.
        reference: the schema of `main`. The rules must fit it.
        former: reads all schemas that the graph has had.

    Raises:
        PolicyError: a rule names a type or a property that the schema does not have.
    """

    def __init__(
        self,
        policy: AccessPolicy,
        actor: str | None,
        graph: str,
        reference: AcceptedSchema,
        former: Callable[[], Iterable[AcceptedSchema]] = tuple,
    ) -> None:
        policy.check(reference, former)
        self.policy = policy
        self.actor = actor
        self._graph = graph
        self._reference = reference
        self._scopes: LruCache[RowScope] = LruCache(_SCOPES)

    def require(
        self,
        action: Action,
        branch: str | None = None,
        target_branch: str | None = None,
        *,
        names_branch: bool = True,
    ) -> None:
        """Check that the actor may do something.

        Args:
            action: the action.
            branch: the branch.
            target_branch: the branch that is created, deleted or merged into.
            names_branch: whether the error has the branch. It has not if the request names a commit: the branch would
                show that the commit exists.

        Raises:
            AccessDeniedError: the policy does not allow it.
        """
        branch, target_branch = _asked(branch), _asked(target_branch)
        decision = self.policy.decide(self.actor, action, branch, target_branch)
        if decision.allowed and action is Action.ADMIN and not self.sees_everything:
            # Reports of maintenance name all branches, and a backup copies all rows.
            message = "this needs the whole graph, and the actor may read only a part of it"
            decision = Decision(False, None, message)
        if not decision.allowed:
            raise self.denied(
                action, decision.message, branch=branch, target_branch=target_branch, names_branch=names_branch
            )

    @property
    def limits(self) -> bool:
        """Whether a rule may limit what the actor reads, or the rows that it changes."""
        return self.actor is not None and self.policy.limits(self.actor)

    def reads(self, branch: str | None) -> bool:
        """Whether the actor may read a branch; without one, all branches. No denial is recorded."""
        return self.policy.permits(self.actor, Action.READ, _asked(branch))

    def knows(self, branch: str | None) -> bool:
        """Whether the actor may know that a branch exists: it may read it, or it reads no branch at all.

        An actor without any right to read, such as one that only deletes old branches, learns of branches what its
        other actions tell.
        """
        return not self.policy.reads(self.actor) or self.reads(branch)

    @property
    def sees_everything(self) -> bool:
        """Whether no rule limits what the actor reads, on any branch; or the actor reads nothing."""
        return not self.policy.reads(self.actor) or (self.reads(None) and not self.limits)

    def is_wider(self, branch: str, other: str, accepted: AcceptedSchema, schema_hash: str) -> bool:
        """Whether the actor may read or export more of a state on one branch than on another.

        Args:
            branch: the first branch.
            other: the branch that has the state.
            accepted: the schema of the state.
            schema_hash: its hash.
        """
        for action in (Action.READ, Action.EXPORT):
            if not self.policy.permits(self.actor, action, _asked(branch)):
                continue
            if not self.policy.permits(self.actor, action, _asked(other)):
                return True
            more, less = (self.scope(action, name, accepted, schema_hash) for name in (branch, other))
            if any(_shows_more(more, less, key) for key in more.types):
                return True
        return False

    def scope_of(self, action: Action) -> ScopeOf:
        """The scopes of the actor for an action, as a function of the state.

        Args:
            action: `read`, `export` or `change`.
        """
        parts = (self.policy.digest, self.actor, action.value)
        return ScopeOf(self, action, blake2b(repr(parts).encode(), digest_size=16).hexdigest())

    def scope(self, action: Action, branch: str | None, accepted: AcceptedSchema, schema_hash: str) -> RowScope:
        """The rows and properties that the actor may use, for an action that is allowed.

        Args:
            action: `read`, `export` or `change`.
            branch: the branch.
            accepted: the schema of the state.
            schema_hash: its hash, for the key of the cache.
        """
        assert self.actor is not None, "without an actor, every action is denied"
        # A session that sees a part of the graph has other schemas with the same hash.
        types = (*accepted.catalog.nodes, None, *accepted.catalog.edges)
        key = (action, _asked(branch), schema_hash, types)
        found = self._scopes.get(key)
        if found is None:
            rows = self.policy.rows(self.actor, action, _asked(branch), accepted, self._reference)
            found = self._scopes.put(key, rows)
        return found

    def require_all_rows(self, action: Action, branch: str | None, scope: RowScope) -> None:
        """Check that the actor may use all rows of all types. For verbs that do not restrict themselves to a scope.

        Raises:
            AccessDeniedError: a type is hidden, has a condition, or has masked properties.
        """
        limited = [key for key, rows in scope.types.items() if rows is not Rows.ALL or scope.hidden_properties.get(key)]
        if limited:
            rules = [rule for key in limited for rule in scope.rules.get(key, ())]
            rule = min(rules, default=None)
            why = "no rule allows them" if rule is None else f"rule '{rule}' limits them"
            message = f"this needs all rows and properties of all types, and {why}"
            known = branch is None or self.knows(branch)
            limited.sort()
            raise self.denied(
                action, message, branch=_asked(branch), types=tuple(limited), rule=rule, names_branch=known
            )

    def require_types(self, action: Action, branch: str | None, scope: RowScope, keys: Iterable[str]) -> None:
        """Check that the actor may use types.

        Raises:
            AccessDeniedError: a type is hidden from the actor.
        """
        hidden = sorted({key for key in keys if scope.hides(key)})
        if hidden:
            rules = [rule for key in hidden for rule in scope.rules.get(key, ())]
            message = f"rule '{min(rules)}' does not include {hidden[0]}" if rules else f"no rule includes {hidden[0]}"
            rule = min(rules, default=None)
            known = branch is None or self.knows(branch)
            raise self.denied(
                action, message, branch=_asked(branch), types=tuple(hidden), rule=rule, names_branch=known
            )

    def denied(
        self,
        action: Action,
        message: str,
        *,
        branch: str | None = None,
        target_branch: str | None = None,
        types: tuple[str, ...] = (),
        rule: str | None = None,
        names_branch: bool = True,
    ) -> AccessDeniedError:
        """The error for a denied request. Adds it to the audit first."""
        self.policy.record(Denial(self._graph, self.actor, action.value, branch, target_branch, types, rule, message))
        return AccessDeniedError(
            self.actor,
            action.value,
            branch=branch if names_branch else None,
            target_branch=target_branch,
            types=types,
            rule=rule,
            hint=f"{message}; {FIND_DENIAL}",
        )


def _asked(branch: str | None) -> str | None:
    """The branch that a policy is asked about. The branch of a transaction has no rules: only `any` matches it.

    Raises:
        InputError: the name is not a text.
    """
    if branch is None:
        return None
    if not isinstance(branch, str):
        raise InputError(f"{shown(branch)} is not the name of a branch")
    name = str(branch).strip()  # as commands that take a branch do
    return None if name.startswith(SYSTEM) else name


def _shows_more(scope: RowScope, other: RowScope, key: str) -> bool:
    """Whether a scope may show rows or properties of a type that another one hides."""
    if scope.hides(key) or (other.rows_of(key) is Rows.ALL and not other.masked(key)):
        return False
    return scope.digest_of(key) != other.digest_of(key)
