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
    """Another commit intervened, and this write may not be replayed over it.

    Attributes:
        member: what moved: a table key, or `graph_head`.
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


class MergeRequiredError(ConflictError):
    """A branch moved while a transaction worked beside it. Nothing of the transaction is visible.

    Attributes:
        branch: the branch that moved.
        expected: the commit that the transaction began at.
        actual: its head now.
    """

    code = "merge_required"

    def __init__(self, branch: str, expected: str, actual: str) -> None:
        super().__init__(
            f"branch '{branch}' has moved from {expected} to {actual} since the transaction began",
            hint="nothing of it is visible; run the whole block again, so that it reads what is there now",
        )
        self.branch = branch
        self.expected = expected
        self.actual = actual


class TransactionEndedError(InputError):
    """A transaction was used after it ended."""

    code = "transaction_ended"


class RecoveryRequiredError(OutcomeUnknownError):
    """A write stopped half way. Its intent is recorded, and the next read-write open or write settles it."""

    code = "recovery_required"

    def __init__(self, operation_id: str, reason: str) -> None:
        super().__init__(
            f"write {operation_id} stopped half way: {reason}",
            hint="do not send it again; the next write or read-write open settles it, then look at the graph",
        )
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
