"""Errors from the bodies of a server's answers: the classes that the embedded library raises, with their details."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import orjson

from omnigraph.client import answers
from omnigraph.errors import (
    BadRowsError,
    BudgetExceededError,
    CompileError,
    ConflictError,
    ConstraintError,
    Disposition,
    ExecutionError,
    ForbiddenError,
    InputError,
    MergeConflictsError,
    MethodNotAllowedError,
    NetworkError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    Problem,
    Span,
    TooManyRequestsError,
    UnauthorizedError,
    Violation,
)
from omnigraph.errors.table import REPORTS

_CLASSES = {kind.code: kind for kind in REPORTS}
_BY_STATUS: dict[int, type[OmnigraphError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    405: MethodNotAllowedError,
    409: ConflictError,
    412: ConflictError,
    429: TooManyRequestsError,
}
_DETAILS = ("resource_limit", "blob_range", "external_blob_source", "recovery_required", "precondition_failure")
"""Details whose members are attributes of the error."""

_COMPILE_PREFIX = " error: "
_RETRY_SECONDS = 60


def error_of(status: int, headers: Mapping[str, str], raw: bytes, *, writes: bool) -> OmnigraphError:
    """The error that an answer reports.

    Args:
        status: the status of the answer.
        headers: its headers, with names in lower case.
        raw: its body.
        writes: whether the request writes. If a proxy answers in place of the server, its outcome is unknown.
    """
    body = _body(raw)
    request_id = headers.get("x-request-id") or body.get("request_id")
    kind = _CLASSES.get(str(body.get("kind")))
    try:
        error = _foreign(status, headers, body, writes=writes) if kind is None else _rebuilt(kind, headers, body)
    except UNREADABLE:  # another release, or not a server of graphs
        error = _foreign(status, headers, body, writes=writes)
    error.request_id = request_id
    return error


UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""Errors of the conversion of an answer that lacks the expected members."""


def strange_answer(*, writes: bool) -> OmnigraphError:
    """The error about an answer with a status of success that a server of graphs does not give."""
    if writes:
        return OutcomeUnknownError("the answer to a write is not that of an OmniGraph server", hint=READ_FIRST)
    return NetworkError("the answer is not that of an OmniGraph server", hint="check the address of the server")


def _body(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def _foreign(status: int, headers: Mapping[str, str], body: Mapping[str, Any], *, writes: bool) -> OmnigraphError:
    """The error of an answer that does not come from OmniGraph, or from an older release."""
    message = str(body.get("error") or f"the server answered with status {status}")
    if status < 400:
        return InputError(
            f"{message}, which is not the answer of an OmniGraph server", hint="check the address of the server"
        )
    if status >= 500:
        return OutcomeUnknownError(message, hint=READ_FIRST) if writes else NetworkError(message)
    return _made(_BY_STATUS.get(status, InputError), message, None, headers)


READ_FIRST = "read the graph to see whether it was written; with the same idempotency key it can be sent again"


def _made(kind: type[OmnigraphError], message: str, hint: str | None, headers: Mapping[str, str]) -> OmnigraphError:
    """An error of a class with a given message. Constructors that make their own message are not called."""
    error = kind.__new__(kind, message)
    OmnigraphError.__init__(error, message, hint=hint)
    if isinstance(error, MethodNotAllowedError):
        error.allowed = tuple(name.strip() for name in headers.get("allow", "").split(",") if name.strip())
    if isinstance(error, TooManyRequestsError):
        given = headers.get("retry-after", "")
        error.retry_after = int(given) if given.isdecimal() else _RETRY_SECONDS  # a proxy may send a date
    return error


def _rebuilt(kind: type[OmnigraphError], headers: Mapping[str, str], body: Mapping[str, Any]) -> OmnigraphError:
    message, hint = str(body.get("error", "")), body.get("hint")
    span = Span(body["span"]["start"], body["span"]["end"]) if "span" in body else None
    error: OmnigraphError
    if issubclass(kind, CompileError):
        diagnostic = body.get("diagnostic")
        text = message.partition(_COMPILE_PREFIX)[2] or message
        text = text.removeprefix(f"{diagnostic}: ")
        return kind(text, span=span, diagnostic=diagnostic, hint=hint)
    if issubclass(kind, ExecutionError):
        message = message.removeprefix(ExecutionError.PREFIX)
    error = _made(kind, message, hint, headers)
    error.span = span
    error.disposition = Disposition(body.get("disposition", kind.disposition))
    for name, value in _attributes(kind, body).items():
        setattr(error, name, value)
    for name in inspect.signature(kind.__init__).parameters:
        if not hasattr(error, name):
            setattr(error, name, None)  # an attribute that the body does not have
    return error


def _attributes(kind: type[OmnigraphError], body: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an error, from the details of the body."""
    found: dict[str, Any] = {}
    for name in _DETAILS:
        found |= body.get(name, {})
    if issubclass(kind, MergeConflictsError):
        found["conflicts"] = tuple(map(answers.conflict, body.get("merge_conflicts", ())))
        found["total"] = body.get("total_conflicts", len(found["conflicts"]))
        text, listed = str(body.get("error", "")), found["conflicts"]
        found["_summary"] = text.partition(f": {listed[0]}")[0] if listed else text
    if issubclass(kind, BadRowsError):
        found |= {"problems": tuple(answers.known(Problem, one) for one in body.get("problems", ()))}
        found |= {"total": body.get("total_problems", len(found["problems"])), "counts": _counts(body)}
    if issubclass(kind, ConstraintError):
        found |= {"violations": tuple(answers.known(Violation, one) for one in body.get("violations", ()))}
        found |= {"total": body.get("total_problems", len(found["violations"])), "counts": _counts(body)}
    if "key_conflict" in body:
        detail = body["key_conflict"]
        found |= {"table_key": _key(detail), "entity_id": detail["entity_id"]}
        known = detail["entity_id"]
        several = body.get("key_conflicts", {"ids": () if known is None else (known,), "total": 1, "places": ()})
        found |= several | {name: tuple(several[name]) for name in ("ids", "places")}
    if "published_dataset_version_conflict" in body:
        detail = body["published_dataset_version_conflict"]
        versions = {name: detail[f"{name}_published_dataset_version"] for name in ("expected", "actual")}
        found |= {"table_key": _key(detail), "member": _key(detail)} | versions
    if "read_set_conflict" in body:
        detail = body["read_set_conflict"]
        found |= {"table_key": detail["member"]} | detail
    if "change_feed_gap" in body:
        found |= body["change_feed_gap"]
    if "change_diff_refusal" in body:
        detail = body["change_diff_refusal"]
        found |= {"commit_id": detail["graph_commit_id"], "type_name": detail["type_name"]}
    if issubclass(kind, BudgetExceededError):
        found = {name: found.get(name) for name in ("resource", "limit", "actual")}
    # `table_key` of some classes is a property of `member`, and the reason of others a constant of the class.
    return {name: value for name, value in found.items() if not isinstance(getattr(kind, name, None), property)}


def _counts(body: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The numbers of problems of each kind."""
    return {(subject, form): number for subject, form, number in body.get("problem_counts", ())}


def _key(detail: Mapping[str, Any]) -> str:
    return f"{detail['entity_kind']}:{detail['type_name']}"
