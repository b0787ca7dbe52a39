"""Every stable diagnostic identifier of both languages, in one place, and what a check reports with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from omnigraph.errors import Span


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One rule that a text can break. Tools match on `code`, never on a message.

    Attributes:
        summary: when it is reported, in one sentence.
        tier: for schema changes, what the change does to data (`safe`, `validated`, `destructive`).
        reserved: the number is taken and nothing reports it.
    """

    code: str
    severity: Severity
    summary: str
    tier: str | None = None
    reserved: bool = False


_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a lint has to say about one place.

    Attributes:
        type_name: the type that it is about.
        property: the property that it is about.
        query_names: the queries that it is about, in name order.
        span: where, when it is about one place.
        edge: whether the type is an edge type; a node type can have the same name.
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
        """The finding as reports give it; what does not apply is left out."""
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
    """Findings in the order in which every report lists them: errors first, then by type, property and message."""
    return sorted(findings, key=_order)


@cache
def all_codes() -> dict[str, Diagnostic]:
    """Every registered code of both languages, by code."""
    # The registries import this module.
    from omnigraph.lang.query.codes import CODES as OF_QUERIES
    from omnigraph.lang.schema.codes import CODES as OF_SCHEMAS

    twice = OF_SCHEMAS.keys() & OF_QUERIES.keys()
    if twice:
        raise ValueError(f"registered twice: {', '.join(sorted(twice))}")
    return dict(sorted((OF_SCHEMAS | OF_QUERIES).items()))
