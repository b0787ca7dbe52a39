"""The contract of the server: every answer has a documented status, and the shape of that status."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

from omnigraph.dataclass import dataclass
from omnigraph.server import answers
from omnigraph.server.app import OPERATIONS, openapi_document
from omnigraph.server.openapi import operation_id
from omnigraph.server.operation import Operation

ROUTING = (400, 404, 405)
"""Statuses of requests that no operation answers."""


def strict(model: type[BaseModel]) -> type[BaseModel]:
    """The model, without other members."""
    return type(model.__name__, (model,), {"model_config": {"extra": "forbid"}})


ERROR = strict(answers.Error)


@dataclass(frozen=True, slots=True)
class Documented:
    """An operation, and the statuses that the OpenAPI document gives it."""

    operation: Operation
    path: re.Pattern[str]
    statuses: Mapping[int, frozenset[str]]
    """The media types of each status."""


def _documented() -> list[Documented]:
    document = openapi_document()
    found = []
    for one in OPERATIONS:
        responses = document["paths"][one.path][one.method.lower()]["responses"]
        pattern = re.sub(r"\\\{(\w+)\\\}", lambda name: ".+" if name[1] == "branch" else "[^/]+", re.escape(one.path))
        statuses = {int(status): frozenset(answer.get("content", ())) for status, answer in responses.items()}
        found.append(Documented(one, re.compile(pattern), statuses))
    return found


class Contract:
    """Checks answers against the OpenAPI document, and remembers which of its parts they have reached."""

    def __init__(self) -> None:
        self._documented = _documented()
        self._reached: set[tuple[str, int]] = set()

    @property
    def pairs(self) -> set[tuple[str, int]]:
        """All documented pairs of an operation id and a status."""
        return {(operation_id(one.operation), status) for one in self._documented for status in one.statuses}

    @contextmanager
    def recording(self) -> Iterator[set[tuple[str, int]]]:
        """Collect the pairs that answers reach while the block runs."""
        before, self._reached = self._reached, set()
        try:
            yield self._reached
        finally:
            self._reached = before | self._reached

    def check(self, method: str, target: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Check one answer.

        Args:
            method: the method of the request.
            target: its path, with the query.
            status: the status.
            headers: the headers, with names in lower case.
            body: the body.
        """
        assert headers["x-request-id"]
        assert headers["x-content-type-options"] == "nosniff"
        if status >= 400 and method != "HEAD":
            self._check_error(status, headers, body)
        path = unquote(urlsplit(target).path)
        one = next(
            (one for one in self._documented if one.operation.method == method and one.path.fullmatch(path)), None
        )
        if one is None:
            assert status in ROUTING or (status, path) == (200, "/openapi.json"), (method, path, status)
            return
        name = operation_id(one.operation)
        assert status in one.statuses, f"{name} answered {status}, which is not documented: {body!r}"
        self._reached.add((name, status))
        media = headers.get("content-type", "").partition(";")[0]
        if body:
            assert media in one.statuses[status], (name, status, media)
        if status == 200 and media == "application/json" and one.operation.answer is not None:
            one.operation.answer.model_validate_json(body)

    @staticmethod
    def _check_error(status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Check the one shape of errors."""
        if json.loads(body).get("status") == "draining":
            return
        assert headers["content-type"] == "application/json"
        found = ERROR.model_validate_json(body)
        assert isinstance(found, answers.Error)
        assert found.request_id == headers["x-request-id"]
        without_code = status in (410, 424, 503) or found.precondition_failure is not None
        assert (found.code is None) == without_code, found
        assert (status == 401) == ("www-authenticate" in headers)
        assert (status == 405) == ("allow" in headers)
        assert (status == 429) == ("retry-after" in headers)
        assert found.code == CODES.get(status, found.code)


CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "bad_request",
    415: "bad_request",
    416: "bad_request",
    429: "too_many_requests",
    500: "internal",
}
"""The code of each status that has one."""

CONTRACT = Contract()
