"""Authorisation: the interface of policies, and the states without a policy."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from omnigraph.engine.access import Action, Decision


class AccessState(StrEnum):
    """How a server decides about requests."""

    OPEN = "open"
    """No tokens: everything is allowed, except the list of graphs."""
    DEFAULT_DENY = "default_deny"
    """Tokens, but no policy: only reads are allowed."""
    POLICY_ENABLED = "policy_enabled"
    """Tokens and a policy."""


class Authorizer(Protocol):
    """Decides whether an actor may do something with one graph, or with the server."""

    def decide(
        self, actor: str | None, action: Action, branch: str | None = None, target_branch: str | None = None
    ) -> Decision:
        """Decide about an action.

        Args:
            actor: the actor of the request; None if the server has no tokens.
            action: the action.
            branch: the branch that is read, or that is the source.
            target_branch: the branch that is created, deleted or merged into.
        """
        ...


class Open:
    """Allows everything except the list of graphs, which needs a policy."""

    def decide(
        self, actor: str | None, action: Action, branch: str | None = None, target_branch: str | None = None
    ) -> Decision:
        if action is Action.GRAPH_LIST:
            return Decision(False, None, "listing graphs needs a policy of the server")
        return Decision(True, "open", "the server is open")


class DefaultDeny:
    """Allows reads only."""

    def decide(
        self, actor: str | None, action: Action, branch: str | None = None, target_branch: str | None = None
    ) -> Decision:
        if action is Action.READ:
            return Decision(True, "default-read", "reads are allowed without a policy")
        return Decision(False, None, f"'{action.value}' needs a policy, and this graph has none")
