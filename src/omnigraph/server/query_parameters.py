"""The query parameters of operations."""

from __future__ import annotations

from typing import Any

from omnigraph.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A query parameter.

    Attributes:
        repeated: whether it may be given several times.
        kind: its JSON type.
        values: the allowed values; empty for all.
        least: the smallest number.
        most: the largest number.
    """

    name: str
    description: str
    repeated: bool = False
    required: bool = False
    kind: str = "string"
    values: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None

    def to_openapi(self) -> dict[str, Any]:
        """The parameter object of the OpenAPI document."""
        schema: dict[str, Any] = {"type": self.kind}
        if self.values:
            schema["enum"] = list(self.values)
        bounds = {"minimum": self.least, "maximum": self.most}
        schema |= {name: bound for name, bound in bounds.items() if bound is not None}
        if self.repeated:
            schema = {"type": "array", "items": schema}
        return {
            "name": self.name,
            "in": "query",
            "required": self.required,
            "description": self.description,
            "schema": schema,
        }


BRANCH = QueryParameter("branch", "The branch; `main` by default.")
SNAPSHOT = QueryParameter("snapshot", "The id of a commit. Excludes `branch`.")
LIMIT = QueryParameter("limit", "The maximum number of entries of the page; all by default.", kind="integer", least=1)
CURSOR = QueryParameter("cursor", "The cursor of the page before.")
