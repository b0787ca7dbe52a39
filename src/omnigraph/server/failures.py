"""Error bodies: the status, the code and the details of each class of errors."""

# See docs/decisions/0291-error-bodies-name-the-class.md

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

from omnigraph.errors import (
    MethodNotAllowedError,
    OmnigraphError,
    TooManyRequestsError,
    UnauthorizedError,
    VersionReclaimedError,
    report_for,
)
from omnigraph.errors.body import class_members, code_of, error_details

REDUCED = ("resource_limit", "recovery_required", "change_feed_gap", "change_diff_refusal")
"""The details that the change routes report."""

INTERNAL = "internal error"
"""The text of an error that must not show its cause."""


def status_of(error: OmnigraphError, *, change_route: bool = False) -> int:
    """The HTTP status of an error."""
    if change_route and isinstance(error, VersionReclaimedError):
        return 410
    return report_for(error).http_status


def error_body(
    error: OmnigraphError, request_id: str, *, change_route: bool = False, redacted: bool = False
) -> dict[str, Any]:
    """The JSON body of an error.

    Args:
        error: the error.
        request_id: the id of the request, to find it in the log.
        change_route: whether the body is reduced, as the change routes do.
        redacted: whether the text of an internal error is replaced.
    """
    report, status = report_for(error), status_of(error, change_route=change_route)
    hidden = status == 500 and (change_route or redacted)
    body: dict[str, Any] = {"error": INTERNAL if hidden else str(error)}
    code = code_of(report, status)
    if code is not None:
        body["code"] = code
    details = error_details(error)
    body |= {name: value for name, value in details.items() if not change_route or name in REDUCED}
    body |= class_members(error) | {"request_id": request_id}
    if hidden:
        body.pop("hint", None)
    return body


def error_response(
    error: OmnigraphError, request_id: str, *, change_route: bool = False, redacted: bool = False
) -> Response:
    """The response of an error."""
    body = error_body(error, request_id, change_route=change_route, redacted=redacted)
    headers: dict[str, str] = {}
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowedError):
        headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, TooManyRequestsError):
        headers["Retry-After"] = str(error.retry_after)
    return Response(
        orjson.dumps(body),
        status_of(error, change_route=change_route),
        headers,
        media_type="application/json",
    )
