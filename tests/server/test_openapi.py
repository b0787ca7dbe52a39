"""The OpenAPI document has every route, and the answers of the server fit it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute
from tests.server.conftest import INSERT, SELECT, Client, Serve
from tests.server.contract import strict

from omnigraph.server import answers
from omnigraph.server.app import OPERATIONS, create_app, openapi_document
from omnigraph.server.openapi import operation_id
from omnigraph.server.operation import Operation

STATUSES = {200, 206, 302, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 416, 424, 429, 500, 503}
DEPRECATED = {"cluster_read", "cluster_change", "cluster_ingest"}

ROUTES = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/graphs"),
    *{
        (method, f"/graphs/{{graph_id}}{path}")
        for method, path in [
            ("GET", "/snapshot"),
            ("GET", "/blob"),
            ("HEAD", "/blob"),
            ("POST", "/query"),
            ("POST", "/read"),
            ("POST", "/export"),
            ("POST", "/mutate"),
            ("POST", "/mutate/if-graph-commit"),
            ("POST", "/change"),
            ("GET", "/queries"),
            ("POST", "/queries/{name}"),
            ("POST", "/queries/{name}/if-graph-commit"),
            ("GET", "/schema"),
            ("POST", "/schema/apply"),
            ("POST", "/load"),
            ("POST", "/load/ndjson"),
            ("POST", "/ingest"),
            ("GET", "/branches"),
            ("POST", "/branches"),
            ("DELETE", "/branches/{branch}"),
            ("POST", "/branches/merge"),
            ("GET", "/tags"),
            ("POST", "/tags"),
            ("DELETE", "/tags/{tag}"),
            ("GET", "/diff"),
            ("GET", "/recoveries"),
            ("GET", "/commits"),
            ("GET", "/commits/{commit_id}"),
            ("GET", "/commits/{commit_id}/changes"),
            ("GET", "/changes"),
            ("POST", "/changes/baseline"),
        ]
    },
}


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_documented() -> None:
    assert {(method, path) for method, path, _ in operations(openapi_document())} == ROUTES


def test_every_documented_route_is_served(client: Client, root: Any) -> None:
    app = create_app({"g": str(root)}, unauthenticated=True)
    served = {
        (method, route.path.replace(":path", ""))
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert served == ROUTES | {("GET", "/openapi.json")}
    app.state.service.close()


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for _, _, operation in operations(openapi_document())]
    assert len(ids) == len(set(ids))
    assert all(
        found.startswith("cluster_") for found in ids if found not in ("health", "readiness", "metrics", "list_graphs")
    )


def test_deprecated_operations_are_marked() -> None:
    found = {one["operationId"] for _, _, one in operations(openapi_document()) if one.get("deprecated")}
    assert found == DEPRECATED


def test_only_known_statuses_are_documented() -> None:
    for _, _, operation in operations(openapi_document()):
        assert {int(status) for status in operation["responses"]} <= STATUSES


def test_every_reference_resolves() -> None:
    document = openapi_document()

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for member in value.values() for found in references(member)]
        return [found for item in value for found in references(item)] if isinstance(value, list) else []

    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def test_links_name_operations_and_their_parameters() -> None:
    found = operations(openapi_document())
    parameters = {one["operationId"]: {each["name"] for each in one["parameters"]} for _, _, one in found}
    links = [link for _, _, one in found for link in one["responses"]["200"].get("links", {}).values()]
    assert len(links) == 4
    assert all(link["parameters"].keys() <= parameters[link["operationId"]] for link in links)


def test_security(serve: Serve) -> None:
    secured = serve(tokens={"kim": "secret"})
    document = secured.get("//openapi.json").json
    assert document == openapi_document()
    for _, path, operation in operations(document):
        assert ("security" in operation) == (path not in ("/healthz", "/readyz", "/metrics"))
    opened = serve().get("//openapi.json").json
    assert "securitySchemes" not in opened["components"]
    assert not any("security" in operation for _, _, operation in operations(opened))


def by_id(name: str) -> Operation:
    return next(one for one in OPERATIONS if operation_id(one) == f"cluster_{name}")


def test_answers_fit_their_models(client: Client) -> None:
    """Members at the top of each answer are documented, and all have the documented types."""
    rows = '{"type":"Person","data":{"name":"zoe"}}\n'
    answered = {
        "query": client.post("/query", {"query": SELECT}),
        "read": client.post("/read", {"query_source": SELECT}),
        "mutate": client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}}),
        "load": client.post("/load", {"data": rows}),
        "ingest": client.post("/ingest", {"data": rows, "branch": "new"}),
        "load_ndjson": client.post("/load/ndjson", rows.encode(), media_type="application/x-ndjson"),
        "create_branch": client.post("/branches", {"name": "draft"}),
        "list_branches": client.get("/branches?limit=1"),
        "list_commits": client.get("/commits?limit=1"),
        "list_queries": client.get("/queries"),
        "get_schema": client.get("/schema"),
        "get_snapshot": client.get("/snapshot"),
        "poll_changes": client.get("/changes?start=beginning"),
    }
    commit = answered["list_commits"].json["commits"][0]["graph_commit_id"]
    answered["get_commit"] = client.get(f"/commits/{commit}")
    answered["list_commit_changes"] = client.get(f"/commits/{commit}/changes?limit=1")
    answered["create_tag"] = client.post("/tags", {"name": "v1", "commit": commit})
    answered["list_tags"] = client.get("/tags")
    answered["diff"] = client.get("/diff?from=v1&to=main")
    answered["list_recoveries"] = client.get("/recoveries")
    answered["delete_tag"] = client.delete("/tags/v1")
    answered["delete_branch"] = client.delete("/branches/draft")
    for name, found in answered.items():
        assert found.status == 200, name
        model = by_id(name).answer
        assert model is not None
        strict(model).model_validate_json(found.body)
    merged = client.post("/branches/merge", {"source": "new"})
    answers.Merge.model_validate_json(merged.body)
    changed = client.get("/schema").json["schema_source"].replace("age: I32?", "age: I32?  x: I32?")
    answers.SchemaApplied.model_validate_json(client.post("/schema/apply", {"schema_source": changed}).body)
    answers.Health.model_validate_json(client.get("//healthz").body)
    answers.Readiness.model_validate_json(client.get("//readyz").body)


@pytest.mark.parametrize("one", OPERATIONS, ids=operation_id)
def test_every_operation_refuses_what_it_does_not_take(client: Client, one: Operation) -> None:
    path = one.path.format(graph_id="g", name="n", branch="b", commit_id="c", tag="t")
    found = client.send(one.method, f"//{path.lstrip('/')}?unknown=1")
    assert found.status == 400
    if one.method != "HEAD":
        answers.Error.model_validate_json(found.body)
