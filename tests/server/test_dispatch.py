"""Requests reach their operations, also below middleware and other applications."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from tests.patience import PATIENCE
from tests.server.conftest import LIMITS, SELECT, service_of, serving

from omnigraph.read.result.result import Result
from omnigraph.server import result_formats
from omnigraph.server.app import OPERATIONS, create_app
from omnigraph.server.dispatch import Dispatch, Endpoint
from omnigraph.server.operation import Operation


def endpoint(operation: Operation) -> Endpoint:
    async def answer(request: Request) -> Response:
        return Response(operation.id)

    answer.__name__ = operation.id
    return answer


@pytest.fixture(scope="module")
def dispatch() -> Dispatch:
    async def nothing(*arguments: Any) -> None:
        raise AssertionError("no request goes on")

    found = {(one.method, one.path.replace("{branch}", "{branch:path}")): endpoint(one) for one in OPERATIONS}
    assert len(found) == len(OPERATIONS)
    return Dispatch(nothing, found)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method}-{one.id}")
def test_every_operation_is_found_with_its_parameters(dispatch: Dispatch, operation: Operation) -> None:
    names = re.findall(r"{(\w+)}", operation.path)
    given = {name: "a/b" if name == "branch" else f"one-{name}" for name in names}
    found = dispatch._find(operation.method, operation.path.format(**given))
    assert found is not None
    assert (getattr(found[0], "__name__", ""), found[1]) == (operation.id, given)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/graphs/g/query"),
        ("POST", "/graphs//query"),
        ("POST", "/graphs/g/query/"),
        ("POST", "/graphs/g/queryx"),
        ("POST", "/graph/g/query"),
        ("POST", "//graphs/g/query"),
        ("GET", "/graphs/g"),
        ("PUT", "/healthz"),
        ("GET", "/healthz/"),
    ],
)
def test_nothing_else_is_found(dispatch: Dispatch, method: str, path: str) -> None:
    assert dispatch._find(method, path) is None


def test_middleware_of_a_program_sees_all_requests(root: Path) -> None:
    seen: list[str] = []

    class Watching(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            seen.append(request.url.path)
            answer: Response = await call_next(request)
            answer.headers["X-Watched"] = "yes"
            return answer

    app = create_app({"g": str(root)}, unauthenticated=True, limits=LIMITS)
    app.add_middleware(Watching)
    with serving(app) as client:
        found = client.post("/query", {"query": SELECT})
        missing = client.get("/nothing")
    assert (found.status, found.json["row_count"], missing.status) == (200, 2, 404)
    assert found.headers["x-watched"] == missing.headers["x-watched"] == "yes"
    assert seen == ["/graphs/g/query", "/graphs/g/nothing"]


def test_the_application_can_be_mounted_below_a_path(root: Path) -> None:
    app = create_app({"g": str(root)}, unauthenticated=True, limits=LIMITS)
    outer: Any = Starlette(routes=[Mount("/below", app)])
    outer.state.service = service_of(app)

    def post(address: str, path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(address, timeout=PATIENCE)
        connection.request("POST", path, json.dumps({"query": SELECT}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text.startswith(b"{") else text

    try:
        with serving(outer) as client:
            status, found = post(client.address, "/below/graphs/g/query")
            assert (status, found["row_count"]) == (200, 2)
            assert post(client.address, "/graphs/g/query")[0] == 404
            assert post(client.address, "/below/nothing")[1]["code"] == "not_found"
    finally:
        service_of(app).close()


def test_few_rows_are_encoded_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", 'ä"\\\n\x00\x1f\x7f\u2028😀', None, "plain"]
    table = pa.table(
        {
            'a "name"': pa.array(texts),
            "flag": pa.array([True, False, None, True]),
            "small": pa.array([1, -(2**31), None, 2**31 - 1], pa.int32()),
            "wide": pa.array([2**63 - 1, -(2**63), None, 2**53 + 1], pa.int64()),
            "unsigned": pa.array([2**64 - 1, 0, None, 1], pa.uint64()),
        }
    )
    for rows in (table, table.slice(1, 2), table.slice(0, 0), pa.concat_tables([table, table.slice(2)])):
        result = Result("q", "main", None, "c", rows, None)
        few = result_formats.json_result(result)
        with monkeypatch.context() as patch:
            patch.setattr(result_formats, "_FEW_ROWS", -1)
            assert result_formats.json_result(result) == few
