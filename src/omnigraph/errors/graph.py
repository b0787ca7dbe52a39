"""Errors of the store: conflicts between writers, interrupted work, and graphs that cannot be opened."""

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
from omnigraph.errors.source import cut


class ReadSetChangedError(ConflictError):
    """Another commit changed what this write depends on, and the write may not be run again on the result.

    Attributes:
        member: what moved: a table key, `schema`, or `graph_head`.
        expected: what the write was prepared against.
        actual: what is there now.
    """

    code = "read_set_changed"

    def __init__(self, member: str, expected: object, actual: object) -> None:
        super().__init__(
            f"{member} changed while the write was prepared: expected {expected}, found {actual}",
            hint="read again, then decide whether the write still makes sense",
        )
        self.member = member
        self.expected = expected
        self.actual = actual

    @property
    def table_key(self) -> str:
        """What moved, under the name that every conflict gives it."""
        return self.member


class StagedFilesRemovedError(ReadSetChangedError):
    """Files that a write had staged were removed by a cleanup before the write was committed. Nothing happened.

    Attributes:
        path: one of the files, below the root of the graph.
    """

    def __init__(self, table_key: str, path: str) -> None:
        super().__init__(table_key, f"the staged file {path}", "none")
        self.path = path


_REPLACE = "to replace what exists, load with mode merge (--mode merge), or write insert or merge in the query"


class KeyConflictError(ConflictError):
    """A strict insert met an entity that exists."""

    code = "key_conflict"

    def __init__(self, table_key: str, entity_id: str | None) -> None:
        which = f"'{cut(entity_id)}'" if entity_id is not None else "one of the ids"
        super().__init__(f"{table_key}: {which} exists already", hint=_REPLACE)
        self.table_key = table_key
        self.entity_id = entity_id


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
    """Something that a write depends on has changed since the commit that the caller named. Nothing happened.

    Attributes:
        expected: that commit.
        actual: the branch head.
        about: what has changed; None when the commit does not lead to the head at all.
    """

    code = "changed_since"

    def __init__(self, branch: str, expected: str, actual: str, about: str | None) -> None:
        super().__init__(branch, expected, actual)
        self.about = about
        self.message = (
            f"commit {expected} does not lead to {actual}, the head of '{branch}'"
            if about is None
            else f"{about} has changed since commit {expected}"
        )
        self.args = (self.message,)


class TransactionEndedError(InputError):
    """A transaction was used after it ended."""

    code = "transaction_ended"


class RecoveryRequiredError(OutcomeUnknownError):
    """A write stopped half way. Its intent is recorded, and the next read-write open or write settles it."""

    code = "recovery_required"

    def __init__(
        self,
        operation_id: str,
        reason: str,
        *,
        hint: str = "do not send it again; the next write or read-write open settles it, then look at the graph",
    ) -> None:
        super().__init__(f"write {operation_id} stopped half way: {reason}", hint=hint)
        self.operation_id = operation_id
        self.reason = reason


class DriftError(ConflictError):
    """A table's newest version is not the one that the graph points at."""

    code = "drift"

    def __init__(self, table_key: str, expected: int, actual: int, *, hint: str) -> None:
        super().__init__(f"{table_key} is at version {actual}, the graph points at {expected}", hint=hint)
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class LeaseTimeoutError(RetryableError):
    """Another writer kept the branch for longer than this one would wait."""

    code = "lease_timeout"


class WriteTimeoutError(LeaseTimeoutError):
    """A write did not get its turn before its deadline. Nothing happened.

    Attributes:
        table_key: what another commit changed last, so that the write had to be run again; None when it never came so
            far.
        expected: what the write was prepared against.
        actual: what was there instead.
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
    """There is a graph at this place."""

    code = "already_initialized"


class InitializationClaimedError(ConflictError):
    """Another process is creating a graph at this place, or died while it did."""

    code = "initialization_claimed"


class InitializationCommittedError(OmnigraphError):
    """The graph was created, and something failed afterwards."""

    code = "initialization_committed"
    disposition = Disposition.UNKNOWN


class InitializationIndeterminateError(OmnigraphError):
    """Creating the graph failed, and nobody can say from here whether it exists."""

    code = "initialization_indeterminate"
    disposition = Disposition.UNKNOWN


class FormatError(InputError):
    """The graph was written in a format that this version does not read."""

    code = "unsupported_format"


class IncompleteCopyError(InputError):
    """A backup or a restore to this place was interrupted, or is at work."""

    code = "incomplete_copy"


class ReadOnlyError(InputError):
    """A write through a handle that was opened to read."""

    code = "read_only"


class VersionReclaimedError(OmnigraphError):
    """A version that history names has been removed by cleanup."""

    code = "version_reclaimed"


class CorruptionError(OmnigraphError):
    """What is stored contradicts itself. Nothing was changed; a person has to look."""

    code = "corruption"
