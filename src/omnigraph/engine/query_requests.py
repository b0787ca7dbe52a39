"""Requests of queries. They are apart from the other requests, so that a read imports no module that writes."""

# See docs/decisions/0153-one-request-per-verb.md

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.dataclass import dataclass
from omnigraph.engine.query_text import QueryText
from omnigraph.engine.session import At
from omnigraph.errors import InputError, shown
from omnigraph.read.budget import Budget, Cancellation


@dataclass(frozen=True)
class QueryRequest:
    """A query that reads one snapshot.

    Raises:
        InputError: a field has the wrong type.
    """

    text: QueryText
    params: Mapping[str, object] | None = None
    name: str | None = None
    branch: str | None = None
    at: At | None = None
    budget: Budget | None = None
    cancel: Cancellation | None = None

    def __post_init__(self) -> None:
        expected: tuple[tuple[str, object, type, str], ...] = (
            ("params", self.params, Mapping, "give a mapping from names to values"),
            ("name", self.name, str, "give the name of a query in the text"),
            ("budget", self.budget, Budget, "give an omnigraph.Budget"),
            ("cancel", self.cancel, Cancellation, "give an omnigraph.Cancellation"),
        )
        for what, value, kind, hint in expected:
            if value is not None and not isinstance(value, kind):
                raise InputError(f"{what} is {shown(value)}, of type {type(value).__name__}", hint=hint)


@dataclass(frozen=True)
class ExplainRequest(QueryRequest):
    """A query to explain. With `analyze`, it also runs."""

    analyze: bool = False
