"""Errors of a graph: concurrent writes, interrupted writes, and graphs that cannot be opened."""

from __future__ import annotations

from omnigraph.errors.family import (
    ConflictError,
    Disposition,
    InputError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    RetryableError,
)
from omnigraph.errors.source import cut, printable


class ReadSetChangedError(ConflictError):
    """A concurrent commit changed data that this write depends on, and the write cannot be retried automatically.

    Attributes:
        member: the changed part of the graph: a table key, `schema`, or `graph_head`.
        expected: the state that the write was prepared against.
        actual: the current state.
    """

    code = "read_set_changed"

    def __init__(self, member: str, expected: object, actual: object, *, hint: str | None = None) -> None:
        super().__init__(
            f"{member} changed while the write was prepared: expected {expected}, found {actual}",
            hint=hint or "read again, then decide whether the write is still correct",
        )
        self.member = member
        self.expected = expected
        self.actual = actual

    @property
    def table_key(self) -> str:
        """The changed part: the same value as `member`. All conflict errors have this attribute."""
        return self.member


class StagedFilesRemovedError(ReadSetChangedError):
    """Cleanup removed staged files of a write before its commit. Nothing happened.

    Attributes:
        path: one of the files, relative to the root of the graph.
    """

    def __init__(self, table_key: str, path: str) -> None:
        super().__init__(table_key, f"the staged file {path}", "none")
        self.path = path


_SHOWN_IDS = 5
_KEEP_LAST = "to keep the last record with each id, load with --mode merge"
_REPLACE = "to replace the existing entity, load with --mode merge, or use insert or merge in the query"


class KeyConflictError(ConflictError):
    """A duplicate key: a strict insert found an existing entity with the same id, or two of its records have it.

    Attributes:
        entity_id: the first of the duplicate ids; None if it is unknown.
        ids: up to a hundred of the duplicate ids.
        total: the number of duplicate ids.
        places: the places of `ids` in the input of a load, such as `people.csv, line 3`; empty if they are unknown.
        repeated: whether records of the input have the same ids. Otherwise the graph has them.
    """

    code = "key_conflict"

    def __init__(
        self,
        table_key: str,
        entity_id: str | None,
        *,
        ids: tuple[str, ...] = (),
        total: int = 1,
        places: tuple[str, ...] = (),
        repeated: bool = False,
    ) -> None:
        which = f"'{cut(entity_id)}'" if entity_id is not None else "one of the ids"
        more = f" (and {total - 1:,} more)" if total > 1 else ""
        super().__init__(f"{table_key}: {which} {_problem(repeated)}{more}", hint=_KEEP_LAST if repeated else _REPLACE)
        self.table_key = table_key
        self.entity_id = entity_id
        self.ids = ids or ((entity_id,) if entity_id is not None else ())
        self.total = total
        self.places = places
        self.repeated = repeated

    def render(self) -> str:
        """The first existing ids with their places in the input, one per line, and the number of the others."""
        if self.total <= 1 and not self.places:
            return super().render()
        places = self.places or ("",) * len(self.ids)
        located = list(zip(self.ids, places, strict=True))[:_SHOWN_IDS]
        problem = _problem(self.repeated)
        lines = [f"{place}: " * bool(place) + f"{self.table_key}: '{cut(found)}' {problem}" for found, place in located]
        if self.total > len(lines):
            lines.append(f"… and {self.total - len(lines):,} more")
        return printable("\n".join([*lines, f"  help: {self.hint}"]))


def _problem(repeated: bool) -> str:
    return "is the id of several records" if repeated else "exists already"


class PreconditionFailedError(OmnigraphError):
    """The branch head is not the commit that the caller named. Nothing happened."""

    code = "precondition_failed"
    disposition = Disposition.DECIDE

    def __init__(self, branch: str, expected: str, actual: str) -> None:
        super().__init__(f"the head of '{branch}' is {actual}, not {expected}", hint="read again, then decide")
        self.branch = branch
        self.expected = expected
        self.actual = actual


class ChangedSinceError(PreconditionFailedError):
    """Data that a write depends on has changed since the commit that the caller named. Nothing happened.

    Attributes:
        expected: the named commit.
        actual: the branch head.
        about: the changed data; None if the commit is not an ancestor of the head.
    """

    code = "changed_since"

    def __init__(self, branch: str, expected: str, actual: str, about: str | None) -> None:
        super().__init__(branch, expected, actual)
        self.about = about
        self.message = (
            f"commit {expected} is not an ancestor of {actual}, the head of '{branch}'"
            if about is None
            else f"{about} has changed since commit {expected}"
        )
        self.args = (self.message,)


class TransactionEndedError(InputError):
    """A transaction was used after it ended."""

    code = "transaction_ended"


class RecoveryRequiredError(OutcomeUnknownError):
    """A write was interrupted. Its sidecar exists. The next write, or opening the graph for writing, recovers it."""

    code = "recovery_required"

    def __init__(
        self,
        operation_id: str,
        reason: str,
        *,
        hint: str = "do not send it again: open the graph for writing, which recovers it, then read the graph",
    ) -> None:
        super().__init__(f"write {operation_id} was interrupted: {reason}", hint=hint)
        self.operation_id = operation_id
        self.reason = reason


class DriftError(ConflictError):
    """The newest version of a table is not the version in the manifest."""

    code = "drift"

    def __init__(self, table_key: str, expected: int, actual: int, *, hint: str) -> None:
        super().__init__(f"{table_key} is at version {actual}, but the manifest has version {expected}", hint=hint)
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class LeaseTimeoutError(RetryableError):
    """Another writer held the lease of the branch until the timeout."""

    code = "lease_timeout"


class WriteTimeoutError(LeaseTimeoutError):
    """A write was not committed before its timeout, because of other writers. Nothing happened.

    Attributes:
        table_key: the table whose concurrent change caused the last retry; None without a retry.
        expected: the state that the write was prepared against.
        actual: the state that it found.
    """

    code = "write_timeout"
    disposition = Disposition.DECIDE

    def __init__(
        self, message: str, table_key: str | None = None, expected: object = None, actual: object = None
    ) -> None:
        super().__init__(message, hint="nothing was written; send it again, or allow more time (timeout)")
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class LeaseLostError(ConflictError):
    """The lease on the branch passed to another writer before this one published."""

    code = "lease_lost"


class BranchNotFoundError(NotFoundError):
    """There is no branch of this name."""

    code = "branch_not_found"

    def __init__(self, branch: str, hint: str | None = None) -> None:
        super().__init__(f"there is no branch '{branch}'", hint=hint)
        self.branch = branch


class AlreadyInitializedError(ConflictError):
    """There is already a graph at this location."""

    code = "already_initialized"


class InitializationClaimedError(ConflictError):
    """Another process is creating a graph at this location, or crashed during the creation."""

    code = "initialization_claimed"


class InitializationCommittedError(OmnigraphError):
    """The graph was created, but a later step failed."""

    code = "initialization_committed"
    disposition = Disposition.UNKNOWN


class InitializationIndeterminateError(OmnigraphError):
    """Creating the graph failed, and it is unknown whether it exists."""

    code = "initialization_indeterminate"
    disposition = Disposition.UNKNOWN


class FormatError(InputError):
    """The graph was written in a format that this version does not read."""

    code = "unsupported_format"


class IncompleteCopyError(InputError):
    """A backup or restore to this location is running, or was interrupted."""

    code = "incomplete_copy"


class ReadOnlyError(InputError):
    """The caller tried to write to a graph that is open for reading only."""

    code = "read_only"


class VersionReclaimedError(OmnigraphError):
    """Cleanup has removed the requested version."""

    code = "version_reclaimed"


class CorruptionError(OmnigraphError):
    """The stored data is inconsistent. Nothing was changed. A person has to examine it."""

    code = "corruption"
