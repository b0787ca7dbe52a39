"""The JSON body of an error, which is the same on the command line and over HTTP."""

# See docs/decisions/0291-error-bodies-name-the-class.md
# See docs/decisions/0362-errors-as-json-go-to-stdout.md

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from omnigraph.errors.blob import BlobRangeError, ExternalBlobSourceError
from omnigraph.errors.changes import ChangeFeedGapError, ParentlessCommitError, SchemaBoundaryError
from omnigraph.errors.family import CompileError, OmnigraphError
from omnigraph.errors.graph import (
    DriftError,
    KeyConflictError,
    PreconditionFailedError,
    ReadSetChangedError,
    RecoveryRequiredError,
    WriteTimeoutError,
)
from omnigraph.errors.merge import MergeConflictsError
from omnigraph.errors.query import BudgetExceededError
from omnigraph.errors.table import Report, report_for
from omnigraph.errors.write import BadRowsError, ConstraintError, ResourceLimitError

CODES = frozenset(
    {
        "unauthorized",
        "forbidden",
        "bad_request",
        "not_found",
        "method_not_allowed",
        "conflict",
        "too_many_requests",
        "internal",
    }
)
"""The closed set of values of `code`."""


def code_of(report: Report, status: int) -> str | None:
    """The member `code` of an error body; None if the body has none."""
    return report.http_code if report.http_code in CODES and status not in (410, 412, 424, 503) else None


def error_body(error: OmnigraphError) -> dict[str, Any]:
    """The body of an error: message, code, details, class, next step, hint and place."""
    report = report_for(error)
    body: dict[str, Any] = {"error": str(error)}
    code = code_of(report, report.http_status)
    if code is not None:
        body["code"] = code
    return body | error_details(error) | class_members(error)


def class_members(error: OmnigraphError) -> dict[str, Any]:
    """The members of a body that describe the class of the error, the next step and the place in the source."""
    body: dict[str, Any] = {"kind": error.code, "disposition": error.disposition.value}
    if error.hint:
        body["hint"] = error.hint
    if isinstance(error, CompileError) and error.diagnostic:
        body["diagnostic"] = error.diagnostic
    if error.span is not None:
        body["span"] = {"start": error.span.start, "end": error.span.end}
    return body


def error_details(error: OmnigraphError) -> dict[str, Any]:
    """The details of an error, each under the name that clients know."""
    match error:
        case MergeConflictsError():
            return {
                "merge_conflicts": [conflict.to_json() for conflict in error.conflicts],
                "total_conflicts": error.total,
            }
        case BadRowsError():
            return {"problems": [asdict(one) for one in error.problems], **_totals(error)}
        case ConstraintError():
            return {"violations": [asdict(replace(one, row=None)) for one in error.violations], **_totals(error)}
        case KeyConflictError():
            found: dict[str, Any] = {"key_conflict": {**_type(error.table_key), "entity_id": error.entity_id}}
            if error.total > 1 or error.places or error.repeated:
                found["key_conflicts"] = {"ids": error.ids, "places": error.places, "total": error.total}
            if error.repeated:
                found["key_conflicts"]["repeated"] = True
            return found
        case ReadSetChangedError() | DriftError() | WriteTimeoutError():
            return _version_conflict(error)
        case ResourceLimitError() | BudgetExceededError():
            limit = {"resource": error.resource, "limit": error.limit, "actual": error.actual}
            return {"resource_limit": limit}
        case BlobRangeError():
            return {"blob_range": {"start": error.start, "end": error.end, "length": error.length}}
        case ExternalBlobSourceError():
            return {"external_blob_source": {"uri": error.uri, "reason": error.reason}}
        case RecoveryRequiredError():
            return {"recovery_required": {"operation_id": error.operation_id}}
        case PreconditionFailedError():
            return {"precondition_failure": {"expected": error.expected, "actual": error.actual}}
        case ChangeFeedGapError():
            return {"change_feed_gap": error.to_json()}
        case ParentlessCommitError() | SchemaBoundaryError():
            return {"change_diff_refusal": error.to_json()}
        case _:
            return {}


def _totals(error: BadRowsError | ConstraintError) -> dict[str, Any]:
    """The number of all problems, and the numbers of each kind as lists of subject, form of the message and number."""
    counts = {"problem_counts": [[*kind, number] for kind, number in error.counts.items()]} if error.counts else {}
    return {"total_problems": error.total, **counts}


def _version_conflict(error: ReadSetChangedError | DriftError | WriteTimeoutError) -> dict[str, Any]:
    """The details of a conflict with a concurrent commit. The older `manifest_conflict` is still sent beside them."""
    key, expected, actual = error.table_key, error.expected, error.actual
    if key is None:
        return {}
    found: dict[str, Any] = {}
    if ":" in key and isinstance(expected, int) and isinstance(actual, int):
        versions = {"expected_published_dataset_version": expected, "actual_published_dataset_version": actual}
        found["published_dataset_version_conflict"] = _type(key) | versions
        found["manifest_conflict"] = {"table_key": key, "expected": expected, "actual": actual}
    else:
        found["read_set_conflict"] = {"member": key, "expected": _plain(expected), "actual": _plain(actual)}
    return found


def _plain(value: object) -> str | int | None:
    return value if value is None or isinstance(value, str | int) else str(value)


def _type(key: str) -> dict[str, str]:
    kind, _, name = key.partition(":")
    return {"entity_kind": kind, "type_name": name}
