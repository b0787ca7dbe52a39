"""Tests of a policy: a file with requests, and the expected decisions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action, Decision
from omnigraph.lang.documents import Value
from omnigraph.policy.bundle_file import as_policy_error, chosen, document_of, member
from omnigraph.policy.policy import Policy

_MEMBERS = ("id", "actor", "action", "branch", "target_branch", "expect")


class Expected(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The decision of one case.

    Attributes:
        id: the id of the case.
        line: its line in the tests file.
        expected: the expected decision.
        decision: the decision of the policy.
    """

    id: str
    line: int | None
    expected: Expected
    decision: Decision

    @property
    def passed(self) -> bool:
        return self.decision.allowed is (self.expected is Expected.ALLOW)


def run_cases(policy: Policy, given: str | os.PathLike[str] | Mapping[str, Any]) -> list[CaseResult]:
    """Decide all cases of a tests file.

    Args:
        policy: the policy.
        given: the path of the file, or its content.

    Raises:
        PolicyError: the file is not valid.
    """
    with as_policy_error():
        top = document_of(given)
        members = top.members(("version", "cases"))
        version = member(members, "version", top)
        if version.content is True or version.content != 1:
            raise version.error("this release reads version 1 of tests files")
        cases = member(members, "cases", top).items()
        if not cases:
            raise members["cases"].error("the file has no cases")
        seen: dict[str, int | None] = {}
        return [_result(policy, case, seen) for case in cases]


def _result(policy: Policy, case: Value, seen: dict[str, int | None]) -> CaseResult:
    members = case.members(_MEMBERS)
    name = member(members, "id", case).text()
    if name in seen:
        raise members["id"].error(f"another case has the id '{name}', in line {seen[name]}", "rename one of them")
    seen[name] = case.line
    branch, target = (members[field].text() if field in members else None for field in ("branch", "target_branch"))
    action = chosen(member(members, "action", case), Action)
    expected = chosen(member(members, "expect", case), Expected)
    decision = policy.decide(member(members, "actor", case).text(), action, branch, target)
    return CaseResult(name, case.line, expected, decision)
