"""The report of a repair."""

from __future__ import annotations

from enum import StrEnum

from omnigraph.dataclass import dataclass


class Classification(StrEnum):
    """The relation of a table or a file to the manifest."""

    NO_DRIFT = "no_drift"
    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"
    UNREADABLE = "unreadable"
    UNSETTLED = "unsettled"
    """A sidecar whose write can be neither completed nor undone."""


class Action(StrEnum):
    """The action of a repair."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    QUARANTINED = "quarantined"
    REFUSED = "refused"


@dataclass(slots=True)
class Repaired:
    """A table or a file, and its repair.

    Attributes:
        branch: the branch that it belongs to; None for files without a branch.
        type_key: `node:<Type>` or `edge:<Type>`; `__manifest`; or the path of a file.
        published: the version in the manifest.
        head: its newest version.
        operations: the operations on the table since the published version, oldest first, as far as they are known.
        plan: a description of the repair that is done with consent.
        error: the damage, or the reason why nothing was done.
        rows_before: number of entities in the table before the repair, from the manifest; None if none is planned.
        rows_after: number of entities after the repair.
        rows_added: number of added entities; None if unknown.
        rows_removed: number of removed entities; None if unknown.
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
        """Record that nothing was done, with the reason."""
        self.action, self.error = Action.REFUSED, str(reason)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair.

    Attributes:
        manifest_version: the manifest version of `main` after the repair; None if it cannot be read.
        rows: the findings by branch and table; unreadable files come first.
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
