"""What repair finds, and what it does about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Classification(StrEnum):
    """How a table or a file stands to what the graph points at."""

    NO_DRIFT = "no_drift"
    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"
    UNREADABLE = "unreadable"
    UNSETTLED = "unsettled"
    """A sidecar whose write can be neither finished nor undone."""


class Action(StrEnum):
    """What is done about it."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    QUARANTINED = "quarantined"
    REFUSED = "refused"


@dataclass(slots=True)
class Repaired:
    """A table, or a file, and what is done about it.

    Attributes:
        branch: the branch that it belongs to; None for files of no branch.
        type_key: `node:<Type>` or `edge:<Type>`; `__manifest`; or the path of a file.
        published: the version that the graph points at.
        head: its newest version.
        operations: what was done to the table since, oldest first, as far as that can be told.
        plan: what repair does with consent, in words.
        error: what is wrong, or why nothing was done.
        rows_before: entities that the graph counts in the table before the act; None where nothing is planned.
        rows_after: entities that the table has after it.
        rows_added: entities that come; None where that cannot be told.
        rows_removed: entities that go; None where that cannot be told.
    """

    branch: str | None
    type_key: str
    published: int | None
    head: int | None
    classification: Classification
    action: Action = Action.NO_OP
    operations: tuple[str, ...] = ()
    plan: str | None = None
    error: str | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    rows_added: int | None = None
    rows_removed: int | None = None

    def refuse(self, reason: object) -> None:
        """Nothing was done, and why."""
        self.action, self.error = Action.REFUSED, str(reason)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What repair found and did.

    Attributes:
        manifest_version: that of `main` afterwards; None when it cannot be read.
        rows: by branch and table; files that cannot be read come first.
    """

    confirm: bool
    force: bool
    manifest_version: int | None
    rows: tuple[Repaired, ...]

    @property
    def refused(self) -> tuple[Repaired, ...]:
        return tuple(row for row in self.rows if row.action is Action.REFUSED)

    @property
    def ok(self) -> bool:
        """Whether there is nothing to repair."""
        return all(row.classification is Classification.NO_DRIFT for row in self.rows)
