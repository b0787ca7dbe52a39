"""Every error has one shape: a closed set of codes, its details, and nothing that it must not show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from tests.server.conftest import INSERT, SELECT, Client, Serve

from omnigraph.errors import (
    REPORTS,
    BlobIntegrityError,
    BlobRangeError,
    BudgetExceededError,
    ChangeFeedGapError,
    Conflict,
    ConflictKind,
    DriftError,
    ExternalBlobSourceError,
    KeyConflictError,
    LeaseTimeoutError,
    MergeConflictsError,
    MethodNotAllowedError,
    OmnigraphError,
    ParentlessCommitError,
    PreconditionFailedError,
    ReadSetChangedError,
    RecoveryRequiredError,
    ResourceLimitError,
    SchemaBoundaryError,
    TooManyRequestsError,
    TransactionConflictError,
    UnauthorizedError,
    VersionReclaimedError,
    WriteTimeoutError,
)
from omnigraph.errors.body import CODES, code_of
from omnigraph.server import answers, history_routes, query_routes
from omnigraph.server.failures import error_body, error_response

CONFLICT = Conflict("node", "Ship", "argo", ConflictKind.DIVERGENT_UPDATE, "both sides changed it")

DETAILS: list[tuple[OmnigraphError, int, str | None, str, Any]] = [
    (
        ReadSetChangedError("node:Ship", 4, 5),
        409,
        "conflict",
        "published_dataset_version_conflict",
        {
            "entity_kind": "node",
            "type_name": "Ship",
            "expected_published_dataset_version": 4,
            "actual_published_dataset_version": 5,
        },
    ),
    (
        DriftError("edge:Docked", 4, 5, hint="x"),
        409,
        "conflict",
        "manifest_conflict",
        {"table_key": "edge:Docked", "expected": 4, "actual": 5},
    ),
    (
        ReadSetChangedError("graph_head", "01A", "01B"),
        409,
        "conflict",
        "read_set_conflict",
        {"member": "graph_head", "expected": "01A", "actual": "01B"},
    ),
    (
        ReadSetChangedError("node:Ship", None, 5),
        409,
        "conflict",
        "read_set_conflict",
        {"member": "node:Ship", "expected": None, "actual": 5},
    ),
    (
        KeyConflictError("node:Ship", "argo"),
        409,
        "conflict",
        "key_conflict",
        {"entity_kind": "node", "type_name": "Ship", "entity_id": "argo"},
    ),
    (
        ResourceLimitError("keyed entities for node:Ship", 8192, 9000),
        413,
        "bad_request",
        "resource_limit",
        {"resource": "keyed entities for node:Ship", "limit": 8192, "actual": 9000},
    ),
    (
        BudgetExceededError("seconds", 1.0, 1.5),
        413,
        "bad_request",
        "resource_limit",
        {"resource": "seconds", "limit": 1.0, "actual": 1.5},
    ),
    (BlobRangeError(9, 10, 4), 416, "bad_request", "blob_range", {"start": 9, "end": 10, "length": 4}),
    (
        ExternalBlobSourceError("s3://b/x", "no such object"),
        424,
        None,
        "external_blob_source",
        {"uri": "s3://b/x", "reason": "no such object"},
    ),
    (RecoveryRequiredError("01J", "killed"), 503, None, "recovery_required", {"operation_id": "01J"}),
    (
        PreconditionFailedError("main", "01A", "01B"),
        412,
        None,
        "precondition_failure",
        {"expected": "01A", "actual": "01B"},
    ),
    (
        ChangeFeedGapError("01J", "cursor"),
        410,
        None,
        "change_feed_gap",
        {"cursor": "cursor", "first_unreadable_commit_id": "01J"},
    ),
    (
        SchemaBoundaryError("01J", "Ship"),
        409,
        "conflict",
        "change_diff_refusal",
        {"reason": "schema_boundary", "graph_commit_id": "01J", "type_name": "Ship"},
    ),
    (
        ParentlessCommitError("01J"),
        409,
        "conflict",
        "change_diff_refusal",
        {"reason": "parentless_commit", "graph_commit_id": "01J", "type_name": None},
    ),
]


@pytest.mark.parametrize(("error", "status", "code", "name", "detail"), DETAILS, ids=lambda value: type(value).__name__)
def test_details(error: OmnigraphError, status: int, code: str | None, name: str, detail: Any) -> None:
    response = error_response(error, "id")
    body = json.loads(bytes(response.body))
    assert (response.status_code, body.get("code")) == (status, code)
    assert body[name] == detail
    assert (body["kind"], body["disposition"], body["request_id"]) == (error.code, error.disposition.value, "id")
    answers.Error.model_validate(body, strict=True)


def test_a_version_conflict_has_both_shapes() -> None:
    body = error_body(ReadSetChangedError("node:Ship", 4, 5), "id")
    assert body["manifest_conflict"] == {"table_key": "node:Ship", "expected": 4, "actual": 5}
    assert "read_set_conflict" not in body


def test_merge_conflicts_have_their_values() -> None:
    for error in (
        MergeConflictsError("draft", "main", [CONFLICT], 3),
        TransactionConflictError("main", [CONFLICT], 3, "01A", "01B"),
    ):
        body = error_body(error, "id")
        (found,) = body["merge_conflicts"]
        assert (found["entity_id"], found["kind"], body["total_conflicts"]) == ("argo", "divergent_update", 3)


def test_a_write_that_waited_too_long_has_no_details_without_a_table() -> None:
    assert error_body(WriteTimeoutError("too long"), "id").keys() & {"manifest_conflict", "read_set_conflict"} == set()


def test_headers() -> None:
    assert error_response(UnauthorizedError("x"), "id").headers["www-authenticate"] == "Bearer"
    assert error_response(MethodNotAllowedError("PUT", ("GET", "POST")), "id").headers["allow"] == "GET, POST"
    assert error_response(TooManyRequestsError("x", 60), "id").headers["retry-after"] == "60"


@pytest.mark.parametrize("cls", REPORTS, ids=lambda cls: cls.__name__)
def test_the_codes_are_closed(cls: type[OmnigraphError]) -> None:
    report = REPORTS[cls]
    code = code_of(report, report.http_status)
    assert code is None or code in CODES
    assert (code is None) == (report.http_status in (410, 412, 424, 503))


def test_change_routes_reduce_their_errors() -> None:
    body = error_body(KeyConflictError("node:Ship", "argo"), "id", change_route=True)
    assert "key_conflict" not in body
    gap = error_body(ChangeFeedGapError("01J"), "id", change_route=True)
    assert gap["change_feed_gap"]["cursor"] is None
    internal = error_body(BlobIntegrityError("/secret/path", "x"), "id", change_route=True)
    assert (internal["error"], internal["code"]) == ("internal error", "internal")
    assert "hint" not in internal
    reclaimed = VersionReclaimedError("cleanup has removed it")
    assert error_response(reclaimed, "id").status_code == 500
    assert error_response(reclaimed, "id", change_route=True).status_code == 410


def test_errors_of_busy_graphs_have_no_code() -> None:
    body = error_body(LeaseTimeoutError("busy"), "id")
    assert "code" not in body
    assert body["disposition"] == "retry"


def test_errors_of_queries_have_a_place(client: Client) -> None:
    found = client.post("/query", {"query": "query q() { match { $p: Persn } return { $p.name } }"})
    assert found.json["kind"] == "type"
    assert found.json["diagnostic"] == "T1"
    assert found.json["span"]["start"] < found.json["span"]["end"]
    answers.Error.model_validate_json(found.body)


def test_errors_of_execution_have_their_prefix(client: Client) -> None:
    text = "query q() { match { $p: Person } return { sum($p.age * 9223372036854775807) as s } }"
    found = client.post("/query", {"query": text})
    assert (found.status, found.json["code"]) == (400, "bad_request")
    assert found.json["error"] == "query: the result is too large for I64"


def test_an_unexpected_error_shows_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(query_routes, "on_snapshot", fail)
    found = client.post("/query", {"query": SELECT})
    assert (found.status, found.json["code"], found.json["error"]) == (500, "internal", "internal error")
    assert found.headers["x-request-id"] == found.json["request_id"]
    assert b"secret" not in found.body


def test_a_panic_of_a_library_fails_one_request(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicError(BaseException):
        pass

    def fail(*args: object) -> None:
        raise PanicError("a secret")

    monkeypatch.setattr(query_routes, "on_snapshot", fail)
    found = client.post("/query", {"query": SELECT})
    assert (found.status, found.json["error"]) == (500, "internal error")
    monkeypatch.undo()
    assert client.post("/query", {"query": SELECT}).status == 200


def test_an_error_after_the_status_breaks_the_connection(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def lines(self) -> Any:
            yield b"x" * 200_000
            raise OmnigraphError("damaged")

    monkeypatch.setattr(history_routes, "baseline", lambda session, request: Failing())
    with pytest.raises(Exception, match=r"IncompleteRead|Connection"):
        client.post("/changes/baseline", {})
    assert client.get("//healthz").status == 200


def test_the_model_of_errors_refuses_other_codes() -> None:
    body = error_body(OmnigraphError("x"), "id") | {"code": "other"}
    with pytest.raises(ValidationError):
        answers.Error.model_validate(body)


def test_two_writes_of_the_same_key_settle(serve: Serve) -> None:
    """A lost answer is settled with the idempotency key: the write exists once."""
    client = serve()
    body = {"query": INSERT, "params": {"n": "eve"}}
    first = client.post("/mutate", body, headers={"Idempotency-Key": "k"})
    client.post("/mutate", {"query": INSERT, "params": {"n": "zoe"}})
    again = client.post("/mutate", body, headers={"Idempotency-Key": "k"})
    assert again.json["commit"]["graph_commit_id"] == first.json["commit"]["graph_commit_id"]
    assert client.post("/query", {"query": SELECT}).json["row_count"] == 4
