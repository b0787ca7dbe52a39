"""Errors survive the way over HTTP: class, text, hint, disposition and details."""

from __future__ import annotations

import orjson
import pytest

from omnigraph.client.error_bodies import error_of
from omnigraph.errors import (
    BadRowsError,
    BlobRangeError,
    BranchNotFoundError,
    BudgetExceededError,
    CancelledError,
    CatalogError,
    ChangeCursorError,
    ChangedSinceError,
    ChangeFeedGapError,
    ConstraintError,
    DriftError,
    ExecutionError,
    ExternalBlobSourceError,
    ForbiddenError,
    InputError,
    KeyConflictError,
    MergeSchemaError,
    MethodNotAllowedError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    ParameterError,
    ParentlessCommitError,
    PreconditionFailedError,
    Problem,
    ReadSetChangedError,
    RecoveryRequiredError,
    ResourceLimitError,
    SchemaBoundaryError,
    Span,
    TooManyRequestsError,
    TypeCheckError,
    Violation,
)
from omnigraph.server.failures import error_response, status_of

ERRORS: list[tuple[OmnigraphError, tuple[str, ...]]] = [
    (InputError("no", hint="yes"), ()),
    (NotFoundError("none"), ()),
    (BranchNotFoundError("draft"), ()),
    (ForbiddenError("not you"), ()),
    (MethodNotAllowedError("PUT", ("GET", "POST")), ("allowed",)),
    (TooManyRequestsError("busy", 7), ("retry_after",)),
    (TypeCheckError("bad", span=Span(1, 3), diagnostic="T6", hint="good"), ("span", "diagnostic", "message")),
    (CatalogError("bad"), ("span", "diagnostic", "message")),
    (ParameterError("n", "wrong"), ()),
    (ExecutionError("too large"), ("message",)),
    (BudgetExceededError("rows", 1, 2), ("resource", "limit", "actual")),
    (ResourceLimitError("rows", 1, 2), ("resource", "limit", "actual")),
    (CancelledError("stopped"), ()),
    (KeyConflictError("node:Person", "ann"), ("table_key", "entity_id")),
    (
        KeyConflictError("node:Person", "ann", ids=("ann", "bob"), total=2, places=("a.csv, line 2", "a.csv, line 3")),
        ("ids", "total", "places"),
    ),
    (KeyConflictError("node:Person", "ann", ids=("ann", "bob"), total=2, repeated=True), ("ids", "total", "repeated")),
    (ReadSetChangedError("node:Person", 4, 5), ("member", "expected", "actual", "table_key")),
    (ReadSetChangedError("graph_head", "a", "b"), ("member", "expected", "actual")),
    (DriftError("node:Person", 4, 5, hint="repair"), ("table_key", "expected", "actual")),
    (PreconditionFailedError("main", "a", "b"), ("expected", "actual")),
    (ChangedSinceError("main", "a", "b", None), ("expected", "actual")),
    (RecoveryRequiredError("op", "why", hint="reopen"), ("operation_id",)),
    (ParentlessCommitError("c"), ("commit_id",)),
    (SchemaBoundaryError("c", "Person"), ("commit_id", "type_name")),
    (ChangeFeedGapError("c", "cursor"), ("first_unreadable_commit_id", "cursor")),
    (ChangeCursorError("old"), ()),
    (BlobRangeError(9, None, 4), ("start", "end", "length")),
    (ExternalBlobSourceError("s3://a/b", "gone"), ("uri", "reason")),
    (MergeSchemaError("no", ("node:A",), hint="update"), ()),
    (BadRowsError((Problem(1, "line 1", "Person", "bad"),), 3), ("problems", "total")),
    (ConstraintError((Violation("unique", "Person", "ann", "twice"),), 1), ("violations", "total")),
]


@pytest.mark.parametrize(
    ("error", "names"), ERRORS, ids=[f"{type(error).__name__}{i}" for i, (error, _) in enumerate(ERRORS)]
)
def test_an_error_stays_the_same(error: OmnigraphError, names: tuple[str, ...]) -> None:
    answer = error_response(error, "r1")
    headers = {name.lower(): value for name, value in answer.headers.items()}
    found = error_of(status_of(error), headers, bytes(answer.body), writes=True)
    assert type(found) is type(error) or (isinstance(error, type(found)) and error.code == found.code)
    assert str(found) == str(error)
    assert (found.hint, found.disposition, found.request_id) == (error.hint, error.disposition, "r1")
    assert [getattr(found, name) for name in names] == [getattr(error, name) for name in names]
    assert str(found) in found.render() or found.render() == error.render()
    assert error.hint is None or error.hint in found.render()
    assert {name for name in vars(error) if not name.startswith("_")} <= set(dir(found)) | {"table_key"}


@pytest.mark.parametrize(
    ("status", "writes", "expected"),
    [
        (401, False, "unauthorized"),
        (404, True, "not_found"),
        (409, True, "conflict"),
        (400, False, "bad_request"),
        (502, True, "outcome_unknown"),
        (503, False, "network"),
        (200, False, "bad_request"),
    ],
)
def test_an_answer_of_a_stranger(status: int, writes: bool, expected: str) -> None:
    for body in (b"<html>", b"[]", orjson.dumps({"error": "x", "kind": "new_kind"})):
        assert error_of(status, {}, body, writes=writes).code == expected


def test_the_text_of_an_unknown_outcome_says_what_to_do() -> None:
    found = error_of(504, {}, b"", writes=True)
    assert isinstance(found, OutcomeUnknownError)
    assert "idempotency key" in str(found.hint)
