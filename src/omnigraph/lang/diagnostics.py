"""Diagnostic codes of both languages, and the findings of lints."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.errors import Span


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A rule of the schema or query language. Tools match on `code`, never on the message.

    Attributes:
        summary: the condition that is reported, in one sentence.
        tier: for schema changes, the effect on data (`safe`, `validated`, `destructive`).
        reserved: whether the code is reserved and never reported.
    """

    code: str
    severity: Severity
    summary: str
    tier: str | None = None
    reserved: bool = False


_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a lint.

    Attributes:
        type_name: the type, if the finding is about one.
        property: the property, if the finding is about one.
        query_names: the affected queries, in the order of their names.
        span: the location in the source, if the finding has one.
        edge: whether the type is an edge type. A node type can have the same name.
    """

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()
    span: Span | None = None
    edge: bool = False

    def to_json(self) -> dict[str, object]:
        """The finding as JSON, without empty members."""
        members: dict[str, object] = {"severity": self.severity.value, "code": self.code, "message": self.message}
        if self.type_name is not None:
            members["type_name"] = self.type_name
        if self.property is not None:
            members["property"] = self.property
        if self.query_names:
            members["query_names"] = list(self.query_names)
        return members


def _order(finding: Finding) -> tuple[int, str, str, str]:
    return _RANK[finding.severity], finding.type_name or "", finding.property or "", finding.message


def sorted_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings for a report: errors first, then by type, property and message."""
    return sorted(findings, key=_order)
