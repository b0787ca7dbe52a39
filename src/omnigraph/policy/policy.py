"""A policy: decides the requests of actors by the rules of a bundle."""

# See docs/decisions/0304-cedar-decides-with-permits-only.md

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

from omnigraph.engine.access import Action, Decision, Denial
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.policy.bundle import TYPED, Bundle, Scope
from omnigraph.policy.bundle_file import read_bundle
from omnigraph.policy.cedar import CedarPolicies, CedarRequest
from omnigraph.policy.denials import DenialLog
from omnigraph.policy.row_scopes import check_rules, row_scope
from omnigraph.restricted.row_scope import RowScope

_DECISIONS = 65_536
"""Maximum number of cached decisions. A decision depends on the actor, the action, the type, and whether the branches
are protected. So a policy rarely has so many."""


class Policy:
    """A policy of one graph. Implements `AccessPolicy` of the engine. Threads may share it.

    Args:
        bundle: the bundle.
        graph: the id of the graph, for Cedar.
        denials: the audit of denied requests; by default the one of this machine.

    Example:
        >>> policy = Policy.read(
        ...     {
        ...         "version": 1,
        ...         "groups": {"crew": ["kim"]},
        ...         "protected_branches": ["main"],
        ...         "rules": [
        ...             {"id": "reads", "allow": {"actors": {"group": "crew"}, "actions": ["read"]}},
        ...             {
        ...                 "id": "changes",
        ...                 "allow": {"actors": {"group": "crew"}, "actions": ["change"], "branch_scope": "protected"},
        ...             },
        ...         ],
        ...     }
        ... )
        >>> policy.decide("kim", "change", "main").rule, policy.decide("kim", "change", "draft").allowed
        ('changes', False)

    Raises:
        PolicyError: Cedar refuses a rule.
    """

    def __init__(self, bundle: Bundle, *, graph: str = "graph", denials: DenialLog | None = None) -> None:
        self.bundle = bundle
        self.denials = denials or DenialLog()
        self._cedar = CedarPolicies(bundle, graph)
        self._protected = frozenset(bundle.protected_branches)
        self._groups = {actor: bundle.groups_of(actor) for actor in bundle.actors}
        self._matching = lru_cache(_DECISIONS)(self._ask)

    @classmethod
    def read(
        cls,
        given: str | os.PathLike[str] | Mapping[str, Any],
        *,
        graph: str = "graph",
        denials: DenialLog | None = None,
    ) -> Policy:
        """Read a bundle and create its policy.

        Args:
            given: the path of a YAML file, or its content.
            graph: the id of the graph, for Cedar.
            denials: the audit of denied requests; by default the one of this machine.

        Raises:
            PolicyError: the bundle is not valid.
        """
        return cls(read_bundle(given), graph=graph, denials=denials)

    def decide(
        self,
        actor: str | None,
        action: Action | str,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> Decision:
        """Whether an actor may do something.

        A rule that is limited to types counts, whatever its types are: `rows` has them.

        Args:
            actor: the actor; None is denied.
            action: the action.
            branch: the branch of the request.
            target_branch: the branch that is created, deleted or merged into.
        """
        action = Action(action)
        # As the commands that take a branch do.
        branch, target_branch = (None if name is None else name.strip() for name in (branch, target_branch))
        if actor is None:
            return Decision(False, None, "the request has no actor")
        if actor not in self._groups:
            return Decision(False, None, f"the actor is in no group of {self.bundle.name}")
        found = self._rules(actor, action, branch, target_branch)
        if found:
            return Decision(True, found[0], f"rule '{found[0]}' allows {action.value}")
        return Decision(False, None, f"no rule of {self.bundle.name} allows {action.value} here")

    def rows(
        self, actor: str, action: Action, branch: str | None, accepted: AcceptedSchema, reference: AcceptedSchema
    ) -> RowScope:
        """The rows and properties that an actor may use. `AccessPolicy` documents the arguments."""
        assert action in TYPED, f"{action} is not about rows"

        def allows(key: str) -> bool:
            return bool(self._rules(actor, action, branch, None, key))

        return row_scope(self.bundle, actor, action, allows, accepted, reference)

    def limits(self, actor: str) -> bool:
        """Whether a rule may limit what an actor reads, or the rows that it changes."""
        bundle, groups = self.bundle, self._groups.get(actor, ())
        reads = [rule for rule in bundle.rules if rule.group in groups and Action.READ in rule.actions]
        is_open = any(rule.types is None and rule.branch_scope in (None, Scope.ANY) for rule in reads)
        if not is_open and any(rule.types is not None for rule in reads):
            return True
        if any(mask.group in groups for mask in bundle.masks):
            return True
        rows = bundle.row_rules
        ruled = {(rule.type, action) for rule in rows for action in rule.actions}
        free = {
            (rule.type, action)
            for rule in rows
            if rule.where is None and rule.group in groups
            for action in rule.actions
        }
        return not ruled <= free

    def permits(self, actor: str | None, action: Action | str, branch: str | None) -> bool:
        """Whether an actor may read or export a branch; without one, every branch. The same as `decide`."""
        return self.decide(actor, action, branch).allowed

    def reads(self, actor: str | None) -> bool:
        """Whether there is a branch that an actor may read."""
        groups = self._groups.get(actor, ()) if actor is not None else ()
        return any(rule.group in groups and Action.READ in rule.actions for rule in self.bundle.rules)

    def check(self, accepted: AcceptedSchema, former: Callable[[], Iterable[AcceptedSchema]] = tuple) -> None:
        """Check that all rules fit a schema.

        Args:
            accepted: the schema.
            former: reads all schemas that the graph has had. Rules may name types and properties that were dropped.

        Raises:
            PolicyError: a rule names a type or a property that the schema does not have, or a condition is wrong.
        """
        check_rules(self.bundle, accepted, former)

    def record(self, denial: Denial) -> None:
        """Add a denial to the audit."""
        self.denials.append(denial, self.bundle.name)

    def _rules(
        self, actor: str, action: Action, branch: str | None, target_branch: str | None, type_key: str | None = None
    ) -> tuple[str, ...]:
        """The rules that allow a request, sorted."""
        protected = self._protected
        has_target, is_target_protected = target_branch is not None, target_branch in protected
        return self._matching(
            actor, action, branch is not None, branch in protected, has_target, is_target_protected, type_key
        )

    def _ask(
        self,
        actor: str,
        action: Action,
        has_branch: bool,
        branch_is_protected: bool,
        has_target_branch: bool,
        target_branch_is_protected: bool,
        type_key: str | None,
    ) -> tuple[str, ...]:
        return self._cedar.matching(
            CedarRequest(
                actor,
                self._groups.get(actor, ()),
                action,
                has_branch,
                branch_is_protected,
                has_target_branch,
                target_branch_is_protected,
                type_key,
            )
        )

    @cached_property
    def digest(self) -> str:
        """Digest of the rules. Policies with equal digests decide the same."""
        return blake2b(repr(self.bundle).encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"<Policy {self.bundle.name}: {len(self.bundle.rules)} rules, {len(self._groups)} actors>"
