"""The table of errors: HTTP status, exit code and documentation of each class."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.errors.access import AccessDeniedError, PolicyError
from omnigraph.errors.blob import (
    BlobIntegrityError,
    BlobRangeError,
    ExternalBlobPolicyError,
    ExternalBlobSourceError,
)
from omnigraph.errors.changes import (
    ChangeCursorError,
    ChangeFeedGapError,
    ParentlessCommitError,
    SchemaBoundaryError,
)
from omnigraph.errors.client import ConfigurationError, NetworkError, RequestTimeoutError
from omnigraph.errors.embedding import EmbeddingError, EmbeddingModelError, EmbeddingUnavailableError
from omnigraph.errors.family import (
    CatalogError,
    CompileError,
    ConflictError,
    InputError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    ParseError,
    PlanError,
    RetryableError,
    TypeCheckError,
)
from omnigraph.errors.graph import (
    AlreadyInitializedError,
    BranchNotFoundError,
    ChangedSinceError,
    CorruptionError,
    DriftError,
    FormatError,
    IncompleteCopyError,
    InitializationClaimedError,
    InitializationCommittedError,
    InitializationIndeterminateError,
    KeyConflictError,
    LeaseLostError,
    LeaseTimeoutError,
    PreconditionFailedError,
    ReadOnlyError,
    ReadSetChangedError,
    RecoveryRequiredError,
    TransactionEndedError,
    VersionReclaimedError,
    WriteTimeoutError,
)
from omnigraph.errors.merge import MergeConflictsError, MergeSchemaError, TransactionConflictError
from omnigraph.errors.query import BudgetExceededError, CancelledError, ExecutionError, ParameterError
from omnigraph.errors.server import (
    ForbiddenError,
    MediaTypeError,
    MethodNotAllowedError,
    TooManyRequestsError,
    UnauthorizedError,
)
from omnigraph.errors.spark import PipelineCheckError, SparkError, SparkUnavailableError
from omnigraph.errors.storage import ClockError, DamagedFileError, FlushFailedError, StorageError
from omnigraph.errors.write import BadRowsError, ConstraintError, ResourceLimitError, SchemaDataError


@dataclass(frozen=True, slots=True)
class Report:
    """How the HTTP server and the command line report a class of errors.

    Attributes:
        http_status: status of an HTTP response.
        http_code: the field `code` of the HTTP error body.
        exit_code: exit status of the command line.
        anchor: heading in `docs/errors.md`.
    """

    http_status: int
    http_code: str
    exit_code: int
    anchor: str


REPORTS: dict[type[OmnigraphError], Report] = {
    OmnigraphError: Report(500, "internal", 1, "internal"),
    InputError: Report(400, "bad_request", 1, "bad_request"),
    AccessDeniedError: Report(403, "forbidden", 1, "access_denied"),
    PolicyError: Report(400, "bad_request", 1, "policy"),
    NotFoundError: Report(404, "not_found", 1, "not_found"),
    ConflictError: Report(409, "conflict", 1, "conflict"),
    RetryableError: Report(503, "unavailable", 1, "retry"),
    OutcomeUnknownError: Report(500, "internal", 1, "outcome_unknown"),
    CompileError: Report(400, "bad_request", 1, "compile"),
    ParseError: Report(400, "bad_request", 1, "parse"),
    CatalogError: Report(400, "bad_request", 1, "catalog"),
    TypeCheckError: Report(400, "bad_request", 1, "type"),
    PlanError: Report(400, "bad_request", 1, "plan"),
    StorageError: Report(500, "internal", 1, "storage"),
    FlushFailedError: Report(500, "internal", 1, "flush_failed"),
    ClockError: Report(500, "internal", 1, "clock"),
    ReadSetChangedError: Report(409, "conflict", 1, "read_set_changed"),
    KeyConflictError: Report(409, "conflict", 1, "key_conflict"),
    PreconditionFailedError: Report(412, "precondition_failed", 4, "precondition_failed"),
    ChangedSinceError: Report(412, "precondition_failed", 4, "changed_since"),
    TransactionConflictError: Report(409, "conflict", 1, "transaction_conflict"),
    MergeConflictsError: Report(409, "conflict", 1, "merge_conflicts"),
    MergeSchemaError: Report(409, "conflict", 1, "merge_schema"),
    TransactionEndedError: Report(400, "bad_request", 1, "transaction_ended"),
    RecoveryRequiredError: Report(503, "recovery_required", 1, "recovery_required"),
    DriftError: Report(409, "conflict", 1, "drift"),
    LeaseTimeoutError: Report(503, "unavailable", 1, "lease_timeout"),
    WriteTimeoutError: Report(409, "conflict", 1, "write_timeout"),
    LeaseLostError: Report(409, "conflict", 1, "lease_lost"),
    BranchNotFoundError: Report(404, "not_found", 1, "branch_not_found"),
    AlreadyInitializedError: Report(409, "conflict", 1, "already_initialized"),
    InitializationClaimedError: Report(409, "conflict", 1, "initialization_claimed"),
    InitializationCommittedError: Report(500, "internal", 1, "initialization_committed"),
    InitializationIndeterminateError: Report(500, "internal", 1, "initialization_indeterminate"),
    FormatError: Report(500, "internal", 1, "unsupported_format"),
    IncompleteCopyError: Report(500, "internal", 1, "incomplete_copy"),
    ReadOnlyError: Report(400, "bad_request", 1, "read_only"),
    VersionReclaimedError: Report(500, "internal", 1, "version_reclaimed"),
    ParentlessCommitError: Report(409, "conflict", 1, "parentless_commit"),
    SchemaBoundaryError: Report(409, "conflict", 1, "schema_boundary"),
    ChangeFeedGapError: Report(410, "change_feed_gap", 1, "change_feed_gap"),
    ChangeCursorError: Report(400, "bad_request", 1, "change_cursor_rejected"),
    ParameterError: Report(400, "bad_request", 1, "parameter"),
    ExecutionError: Report(400, "bad_request", 1, "execution"),
    BudgetExceededError: Report(413, "bad_request", 1, "budget_exceeded"),
    CancelledError: Report(503, "unavailable", 1, "cancelled"),
    BadRowsError: Report(400, "bad_request", 1, "bad_rows"),
    ConstraintError: Report(400, "bad_request", 1, "constraint"),
    SchemaDataError: Report(400, "bad_request", 1, "schema_data"),
    ResourceLimitError: Report(413, "bad_request", 1, "resource_limit"),
    ExternalBlobPolicyError: Report(400, "bad_request", 1, "external_blob_policy"),
    ExternalBlobSourceError: Report(424, "failed_dependency", 1, "external_blob_source"),
    BlobRangeError: Report(416, "bad_request", 1, "blob_range"),
    BlobIntegrityError: Report(500, "internal", 1, "blob_integrity"),
    EmbeddingError: Report(500, "internal", 1, "embedding"),
    EmbeddingModelError: Report(400, "bad_request", 1, "embedding_model"),
    EmbeddingUnavailableError: Report(503, "unavailable", 1, "embedding_unavailable"),
    SparkUnavailableError: Report(400, "bad_request", 1, "spark_unavailable"),
    SparkError: Report(500, "internal", 1, "spark"),
    PipelineCheckError: Report(400, "bad_request", 1, "pipeline_check"),
    UnauthorizedError: Report(401, "unauthorized", 1, "unauthorized"),
    ForbiddenError: Report(403, "forbidden", 1, "forbidden"),
    MethodNotAllowedError: Report(405, "method_not_allowed", 1, "method_not_allowed"),
    MediaTypeError: Report(415, "bad_request", 1, "unsupported_media_type"),
    TooManyRequestsError: Report(429, "too_many_requests", 1, "too_many_requests"),
    ConfigurationError: Report(400, "bad_request", 1, "configuration"),
    NetworkError: Report(503, "unavailable", 1, "network"),
    RequestTimeoutError: Report(503, "unavailable", 1, "request_timeout"),
    CorruptionError: Report(500, "internal", 1, "corruption"),
    DamagedFileError: Report(500, "internal", 1, "damaged_file"),
}


def report_for(error: OmnigraphError) -> Report:
    """The entry for the class of an error, or for its nearest base class in the table."""
    return next(REPORTS[cls] for cls in type(error).__mro__ if cls in REPORTS)
