"""Errors of access: requests that the policy denies, and policy bundles that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.errors.family import InputError, OmnigraphError
from omnigraph.errors.source import cut


def denied_text(
    actor: str | None, action: str, branch: str | None, target_branch: str | None, types: Sequence[str] = ()
) -> str:
    """The message about a denied request. `AccessDeniedError` describes the arguments.

    >>> denied_text("kim", "change", "main", None)
    "'kim' is not allowed the action change on branch 'main'"
    """
    who = "a request without an actor" if actor is None else f"'{cut(actor)}'"
    where = "".join(
        f" {word} '{cut(name)}'"
        for word, name in (("on branch", branch), ("into" if branch else "on branch", target_branch))
        if name
    )
    what = f" of {', '.join(types)}" if types else ""
    return f"{who} is not allowed the action {action}{what}{where}"


class AccessDeniedError(OmnigraphError):
    """The policy does not allow the actor to do this. Nothing happened.

    Attributes:
        actor: the actor of the request; None if there is none.
        action: the action that the policy was asked about.
        branch: the branch of the request; None if it has none.
        target_branch: the branch that the request would create, delete or merge into; None if it has none.
        types: the keys of the types that the actor may not use; empty if the whole action is denied.
        rule: the rule that limits the request; None if no rule allows it at all.
    """

    code = "access_denied"

    def __init__(
        self,
        actor: str | None,
        action: str,
        *,
        branch: str | None = None,
        target_branch: str | None = None,
        types: Sequence[str] = (),
        rule: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(denied_text(actor, action, branch, target_branch, types), hint=hint)
        self.actor = actor
        self.action = action
        self.branch = branch
        self.target_branch = target_branch
        self.types = tuple(types)
        self.rule = rule


class PolicyError(InputError):
    """A policy bundle or a tests file is not valid. The message names the file, the line and the rule."""

    code = "policy"
