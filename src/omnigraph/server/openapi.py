"""The OpenAPI document, from the operations."""

# See docs/decisions/0337-the-document-lists-reachable-statuses.md

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from omnigraph import __version__
from omnigraph.server import answers
from omnigraph.server.operation import GRAPH, Operation

_REF = "#/components/schemas/{model}"
_SERVER = (400, 401, 403)
"""Errors of operations that need a credential."""
_GRAPH = (404, 429, 500)
"""Further errors of operations of a graph."""

_TITLES = {
    400: "The request is wrong.",
    401: "The bearer token is missing or not valid.",
    403: "The policy does not allow it.",
    404: "It does not exist.",
    409: "A conflict with the state of the graph.",
    410: "The history is no longer kept.",
    412: "A precondition failed.",
    413: "A limit is exceeded.",
    415: "The body has the wrong media type.",
    416: "No byte is in the range.",
    424: "An external source cannot be read.",
    429: "The actor has too many requests in flight.",
    500: "An internal error.",
    503: "A temporary condition stopped the request, or its outcome is unknown.",
}

_HEADERS = {
    401: ("WWW-Authenticate", "string", "`Bearer`."),
    429: ("Retry-After", "integer", "Seconds after which the request may be sent again."),
}


def document(operations: Sequence[Operation], *, secured: bool) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        operations: the operations.
        secured: whether requests need a bearer token.
    """
    models: list[type[BaseModel]] = [answers.Error]
    for one in operations:
        models += [model for model in (one.body, one.answer) if model is not None and model not in models]
    modes = [(model, "validation") for model in models]
    _, definitions = models_json_schema(modes, ref_template=_REF)  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, secured)
    components: dict[str, Any] = {"schemas": definitions["$defs"]}
    if secured:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "OmniGraph", "version": __version__},
        "paths": paths,
        "components": components,
    }


def _operation(one: Operation, secured: bool) -> dict[str, Any]:
    parameters = [_path_parameter(name) for name in re.findall(r"{(\w+)}", one.path)]
    parameters += [parameter.to_openapi() for parameter in one.query]
    parameters += [_header(name, description, required=False) for name, description in one.headers]
    if one.conditional:
        parameters.append(_header("Omnigraph-If-Graph-Commit", "The commit that has to be the head.", required=True))
    if one.idempotent:
        parameters.append(_header("Idempotency-Key", "A write with the same key happens once.", required=False))
    made: dict[str, Any] = {"operationId": operation_id(one), "summary": one.summary, "parameters": parameters}
    if one.successor is not None:
        made["deprecated"] = True
    body = _body(one)
    if body is not None:
        made["requestBody"] = body
    made["responses"] = _responses(one, secured)
    if secured and not one.public:
        made["security"] = [{"bearer": []}]
    return made


def operation_id(one: Operation) -> str:
    """The id of an operation. Those of graphs have a prefix that older clients know."""
    return f"cluster_{one.id}" if one.path.startswith(GRAPH) else one.id


def _path_parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if name == "graph_id":
        schema["pattern"] = "^[A-Za-z0-9-]{1,64}$"
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _header(name: str, description: str, *, required: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 1024}
    if required:
        schema = {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{26}$"}
    return {"name": name, "in": "header", "required": required, "description": description, "schema": schema}


def _body(one: Operation) -> dict[str, Any] | None:
    if one.body is not None:
        schema = {"$ref": _REF.format(model=one.body.__name__)}
        return {"required": one.body_required, "content": {"application/json": {"schema": schema}}}
    if one.body_media is not None:
        return {"required": True, "content": {one.body_media: {"schema": {"type": "string"}}}}
    return None


def _responses(one: Operation, secured: bool) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media in one.media:
        schema: dict[str, Any] = {"type": "string"}
        if media == "application/json" and one.answer is not None:
            schema = {"$ref": _REF.format(model=one.answer.__name__)}
        elif media.startswith("application/octet") or "arrow" in media:
            schema = {"type": "string", "format": "binary"}
        content[media] = {"schema": schema}
    success: dict[str, Any] = {"description": "Success."}
    if one.method != "HEAD":
        success["content"] = content
    if one.links:
        success["links"] = {
            name: {"operationId": f"cluster_{name}", "parameters": {parameter: f"$response.body#/{place}"}}
            for name, parameter, place in one.links
        }
    made: dict[str, Any] = {"200": success}
    for status, description in one.others:
        made[str(status)] = {"description": description}
        if status == 206:
            made["206"]["content"] = content
        if status == 503 and one.answer is not None:
            made["503"]["content"] = content
    error = {"application/json": {"schema": {"$ref": _REF.format(model=answers.Error.__name__)}}}
    for status in _errors(one, secured):
        made[str(status)] = {"description": _TITLES[status]}
        if one.method != "HEAD":
            made[str(status)]["content"] = error
        if status in _HEADERS:
            name, kind, description = _HEADERS[status]
            made[str(status)]["headers"] = {name: {"schema": {"type": kind}, "description": description}}
    return dict(sorted(made.items()))


def _errors(one: Operation, secured: bool) -> list[int]:
    """The statuses of the errors of an operation."""
    found = {*one.statuses, *((400,) if one.public else _SERVER)}
    if one.path.startswith(GRAPH):
        found |= {*_GRAPH}
        if one.method != "DELETE":
            found.add(413)  # of a body, or of the time limit of reads
    if one.body is not None or one.body_media is not None:
        found.add(415)
    return sorted(found if secured else found - {401})
