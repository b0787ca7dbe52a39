"""The schema changes of the kill matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.migrate.cases import CASES, Case

from omnigraph.commit.sidecar import WriterKind


@dataclass(frozen=True, slots=True)
class Applying:
    """A schema change.

    Attributes:
        name: its name among the cases.
        what: its effect on tables, for the page.
        tables: the tables that get new versions.
        steps: number of Lance commits per table.
    """

    name: str
    what: str
    tables: tuple[str, ...]
    steps: int = 1

    def __str__(self) -> str:
        return self.what

    @property
    def kind(self) -> WriterKind:
        return WriterKind.SCHEMA_APPLY

    @property
    def forks(self) -> bool:
        return False

    @property
    def case(self) -> Case:
        return CASES[self.name]


def schema_changes() -> Iterator[Applying]:
    yield Applying("rename a node type", "schema apply, no columns", ())
    yield Applying("drop a node type with its edges", "schema apply, drop types", ())
    yield Applying("rename a property", "schema apply, columns without values", ("node:Plant",))
    yield Applying("widen I32, U32 and F32", "schema apply, columns with values", ("edge:In", "node:Plant"))
    yield Applying("everything at once", "schema apply, all steps at once", ("node:Plant",), 2)
