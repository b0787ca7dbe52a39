"""Every route answers with the documented shape and status."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import lance
import pytest
from tests.server.conftest import INSERT, SELECT, Client, Serve

import omnigraph
from omnigraph.commit.failpoints import Failpoint, armed

COMMIT = {
    "graph_commit_id",
    "graph_branch",
    "graph_manifest_version",
    "parent_commit_id",
    "merged_parent_commit_id",
    "actor_id",
    "created_at",
}


def head(client: Client, branch: str = "main") -> str:
    found: str = client.get(f"/commits?branch={branch}&limit=1").json["commits"][0]["graph_commit_id"]
    return found


def test_health(client: Client) -> None:
    found = client.get("//healthz")
    assert found.status == 200
    assert found.json["status"] == "ok"
    assert found.json["version"] == omnigraph.__version__
    assert isinstance(found.json["internal_schema_version"], int)


def test_readiness_names_no_graph(client: Client) -> None:
    found = client.get("//readyz")
    assert (found.status, found.json["status"], found.json["state"], found.json["graphs"]) == (200, "ready", "open", 1)
    assert found.json["warnings"] == ["everyone who reaches this server may read and write: it has no tokens"]


def test_query(client: Client) -> None:
    found = client.post("/query", {"query": SELECT})
    assert found.status == 200
    assert found.json == {
        "query_name": "all",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
        "columns": ["name", "age"],
        "rows": [{"name": "ann", "age": 30}, {"name": "bob", "age": 40}],
        "graph_commit_id": head(client),
    }


def test_query_of_a_snapshot(client: Client) -> None:
    before = head(client)
    assert client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}}).status == 200
    found = client.post("/query", {"query": SELECT, "snapshot": before}).json
    assert found["target"] == {"branch": None, "snapshot": before}
    assert found["row_count"] == 2


def test_query_selects_by_name_and_takes_parameters(client: Client) -> None:
    text = SELECT + "\nquery one($n: String) { match { $p: Person { name: $n } } return { $p.age as age } }"
    unnamed = client.post("/query", {"query": text})
    assert (unnamed.status, unnamed.json["hint"]) == (400, "give the name of one query: all, one")
    assert client.post("/query", {"query": text, "name": "none"}).status == 404
    assert client.post("/query", {"query": text, "name": "one", "params": {"n": "bob"}}).json["rows"] == [{"age": 40}]
    wrong = client.post("/query", {"query": text, "name": "one", "params": {"n": 7}})
    assert wrong.status == 400
    assert "$n" in wrong.json["error"]


def test_read_is_frozen_and_deprecated(client: Client) -> None:
    found = client.post("/read", {"query_source": SELECT, "query_name": "all"})
    assert set(found.json) == {"query_name", "target", "row_count", "columns", "rows"}
    assert found.headers["deprecation"] == "true"
    assert found.headers["link"] == '<query>; rel="successor-version"'


@pytest.mark.parametrize(("route", "successor"), [("read", "query"), ("change", "mutate"), ("ingest", "load")])
def test_errors_of_deprecated_routes_have_the_headers_too(client: Client, route: str, successor: str) -> None:
    found = client.post(f"/{route}", {})
    assert found.status == 400
    assert found.headers["deprecation"] == "true"
    assert found.headers["link"] == f'<{successor}>; rel="successor-version"'


@pytest.mark.parametrize("route", ["mutate", "change"])
def test_mutate(client: Client, route: str) -> None:
    found = client.post(f"/{route}", {"query_source": INSERT, "query_name": "add", "params": {"n": "eve", "a": 5}})
    assert found.status == 200
    assert set(found.json) == {"branch", "query_name", "affected_nodes", "affected_edges", "commit"}
    assert (found.json["branch"], found.json["affected_nodes"], found.json["affected_edges"]) == ("main", 1, 0)
    assert found.json["commit"].keys() >= COMMIT
    assert found.json["commit"]["graph_branch"] is None


def test_a_mutation_without_effect_has_no_commit(client: Client) -> None:
    found = client.post("/mutate", {"query": 'query q() { delete Person where name = "none" }'})
    assert (found.status, found.json["commit"], found.json["affected_nodes"]) == (200, None, 0)


def test_query_refuses_a_mutation_and_names_the_route(client: Client) -> None:
    found = client.post("/query", {"query": INSERT, "params": {"n": "eve"}})
    assert found.status == 400
    assert "/mutate" in found.json["error"]


def test_a_mutation_needs_a_text(client: Client) -> None:
    assert client.post("/mutate", {"params": {}}).status == 400


def test_conditional_mutation(client: Client) -> None:
    seen = client.post("/query", {"query": SELECT}).json["graph_commit_id"]
    body = {"query": INSERT, "params": {"n": "eve"}}
    condition = {"Omnigraph-If-Graph-Commit": seen}
    assert client.post("/mutate/if-graph-commit", body, headers=condition).status == 200
    body["params"] = {"n": "zoe"}
    lost = client.post("/mutate/if-graph-commit", body, headers=condition)
    assert lost.status == 412
    assert "code" not in lost.json
    assert lost.json["precondition_failure"] == {"expected": seen, "actual": head(client)}
    assert client.post("/query", {"query": SELECT}).json["row_count"] == 3


@pytest.mark.parametrize("value", ["*", '"01M7RDV6170BH93VZ1NNB96318"', "W/x", "a, b", "main", ""])
def test_a_condition_is_a_plain_commit_id(client: Client, value: str) -> None:
    body = {"query": INSERT, "params": {"n": "eve"}}
    found = client.post("/mutate/if-graph-commit", body, headers={"Omnigraph-If-Graph-Commit": value})
    assert (found.status, found.json["code"]) == (400, "bad_request")


def test_the_condition_is_required_on_its_routes_and_rejected_elsewhere(client: Client) -> None:
    body = {"query": INSERT, "params": {"n": "eve"}}
    assert client.post("/mutate/if-graph-commit", body).status == 400
    seen = {"Omnigraph-If-Graph-Commit": head(client)}
    assert client.post("/mutate", body, headers=seen).status == 400
    assert client.get("/commits", headers=seen).status == 400
    assert client.post("/query", {"query": SELECT}).json["row_count"] == 2


def test_an_idempotency_key_makes_a_repetition_safe(client: Client) -> None:
    body = {"query": INSERT, "params": {"n": "eve"}}
    key = {"Idempotency-Key": "k1"}
    first, second = (client.post("/mutate", body, headers=key) for _ in range(2))
    assert first.status == second.status == 200
    assert first.json["commit"]["graph_commit_id"] == second.json["commit"]["graph_commit_id"]
    other = client.post("/mutate", {"query": INSERT, "params": {"n": "zoe"}}, headers=key)
    assert other.status == 400
    assert client.get("/commits", headers=key).status == 400


ROWS = '{"type":"Person","data":{"name":"eve","age":1}}\n{"edge":"Knows","from":"eve","to":"ann"}\n'


def test_load(client: Client) -> None:
    found = client.post("/load", {"data": ROWS})
    assert found.status == 200
    assert set(found.json) == {"uri", "branch", "branch_created", "mode", "nodes", "edges", "total_entities", "commit"}
    assert found.json["mode"] == "merge"
    assert found.json["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    assert found.json["total_entities"] == 2


def test_load_ndjson(client: Client) -> None:
    path = "/load/ndjson?branch=draft&from=main&mode=append"
    found = client.post(path, ROWS.encode(), media_type="application/x-ndjson")
    assert found.status == 200
    assert "uri" not in found.json
    assert (found.json["base_branch"], found.json["branch_created"], found.json["mode"]) == ("main", True, "append")
    again = client.post("/load/ndjson?branch=draft&mode=append", ROWS.encode(), media_type="application/x-ndjson")
    assert (again.status, again.json["code"]) == (409, "conflict")
    assert again.json["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "eve"}
    wrong = client.post("/load/ndjson", b"[1]", media_type="text/plain")
    assert (wrong.status, wrong.json["code"]) == (415, "bad_request")
    assert client.post("/load/ndjson?mode=x", b"", media_type="application/x-ndjson").status == 400
    missing = client.post("/load/ndjson?branch=none", ROWS.encode(), media_type="application/x-ndjson")
    assert (missing.status, missing.json["code"]) == (404, "not_found")


def test_ingest_creates_a_branch_from_main(client: Client) -> None:
    found = client.post("/ingest", {"data": ROWS, "branch": "new"})
    assert found.status == 200
    assert (found.json["base_branch"], found.json["branch_created"]) == ("main", True)


def test_branches(client: Client) -> None:
    made = client.post("/branches", {"name": "draft/a"})
    assert (made.status, set(made.json)) == (200, {"uri", "from", "name"})
    assert (made.json["from"], made.json["name"]) == ("main", "draft/a")
    assert client.post("/branches", {"name": "draft/a"}).status == 409
    assert client.post("/branches", {"name": "x", "from": "none"}).status == 404
    assert client.post("/branches", {"name": "../x"}).status == 400
    assert client.get("/branches").json == {"branches": ["draft/a", "main"]}
    assert client.get("/branches?limit=1").json == {"branches": ["draft/a"], "cursor": "draft/a"}
    assert client.get("/branches?limit=1&cursor=draft/a").json == {"branches": ["main"]}
    gone = client.delete("/branches/draft%2Fa")
    assert (gone.status, set(gone.json), gone.json["name"]) == (200, {"uri", "name"}, "draft/a")
    assert client.delete("/branches/draft%2Fa").status == 404
    assert client.delete("/branches/main").status == 409


def test_a_branch_starts_at_a_commit(client: Client) -> None:
    first = client.get("/commits").json["commits"][-1]["graph_commit_id"]
    assert client.post("/branches", {"name": "old", "commit": first}).status == 200
    assert client.post("/query", {"query": SELECT, "branch": "old"}).json["row_count"] == 0
    assert client.post("/branches", {"name": "b", "commit": first, "from": "main"}).status == 400


def test_merge(client: Client) -> None:
    client.post("/branches", {"name": "draft"})
    client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}, "branch": "draft"})
    found = client.post("/branches/merge", {"source": "draft", "delete_branch": True})
    assert found.status == 200
    assert (found.json["source"], found.json["target"], found.json["outcome"]) == ("draft", "main", "fast_forward")
    assert found.json["branch_deleted"] is True
    assert "actor_id" not in found.json
    assert client.post("/branches/merge", {"source": "main", "target": "main"}).status == 400
    assert client.post("/branches/merge", {"source": "none"}).status == 404


def test_merge_conflicts_are_listed_and_resolved(client: Client) -> None:
    client.post("/branches", {"name": "draft"})
    change = 'query q($a: I32) { update Person set { age: $a } where name = "ann" }'
    client.post("/mutate", {"query": change, "params": {"a": 1}})
    client.post("/mutate", {"query": change, "params": {"a": 2}, "branch": "draft"})
    found = client.post("/branches/merge", {"source": "draft"})
    assert (found.status, found.json["code"]) == (409, "conflict")
    (conflict,) = found.json["merge_conflicts"]
    assert conflict.keys() >= {"entity_kind", "type_name", "entity_id", "kind", "message"}
    assert (conflict["type_name"], conflict["entity_id"], conflict["kind"]) == ("Person", "ann", "divergent_update")
    preview = client.post("/branches/merge", {"source": "draft", "preview": True})
    assert (preview.status, preview.json["total_conflicts"]) == (200, 1)
    side = {"entity_kind": "node", "type_name": "Person", "entity_id": "ann", "side": "theirs"}
    assert client.post("/branches/merge", {"source": "draft", "resolutions": [side]}).status == 200
    assert client.post("/query", {"query": SELECT}).json["rows"][0]["age"] == 2


def test_tags(client: Client) -> None:
    first = client.get("/commits").json["commits"][-1]["graph_commit_id"]
    made = client.post("/tags", {"name": "v0", "commit": first})
    assert (made.status, made.json["name"], made.json["graph_commit_id"]) == (200, "v0", first)
    assert set(made.json) == {
        "uri",
        "name",
        "graph_commit_id",
        "graph_branch",
        "graph_manifest_version",
        "created_at",
    }
    assert client.post("/tags", {"name": "v1"}).json["graph_commit_id"] == head(client)
    assert client.post("/tags", {"name": "v1"}).status == 409
    assert client.post("/tags", {"name": "main"}).status == 409
    assert client.post("/tags", {"name": "a/b"}).status == 400
    assert client.post("/tags", {"name": "x", "commit": first, "branch": "main"}).status == 400
    assert client.post("/tags", {"name": "x", "branch": "none"}).status == 404
    assert [tag["name"] for tag in client.get("/tags").json["tags"]] == ["v0", "v1"]
    page = client.get("/tags?limit=1").json
    assert ([tag["name"] for tag in page["tags"]], page["cursor"]) == (["v0"], "v0")
    assert [tag["name"] for tag in client.get("/tags?cursor=v0").json["tags"]] == ["v1"]
    assert client.get("/tags?limit=0").status == 400
    assert client.post("/branches", {"name": "old", "commit": "v0"}).status == 200
    assert client.post("/query", {"query": SELECT, "snapshot": "v0"}).json["row_count"] == 0
    gone = client.delete("/tags/v1")
    assert (gone.status, set(gone.json), gone.json["name"]) == (200, {"uri", "name"}, "v1")
    assert client.delete("/tags/v1").status == 404


def test_diff(client: Client) -> None:
    client.post("/tags", {"name": "v1"})
    client.post("/branches", {"name": "draft"})
    client.post("/mutate", {"query": INSERT, "params": {"n": "eve", "a": 1}, "branch": "draft"})
    client.post("/mutate", {"query": 'query q() { delete Person where name = "bob" }', "branch": "draft"})
    found = client.get("/diff?from=v1&to=draft").json
    assert [(one["op"], one["type_name"], one["kind"]) for one in found["changes"]] == [
        ("delete", "Knows", "edge"),
        ("delete", "Person", "node"),
        ("insert", "Person", "node"),
    ]
    assert found["stats"] == {"inserts": 1, "updates": 0, "deletes": 2, "types_affected": 2}
    assert (found["truncated"], found["schema"], found["graph_branch"]) == (False, [], "draft")
    assert [one["id"] for one in client.get("/diff?from=v1&to=draft&type=Person&op=insert").json["changes"]] == ["eve"]
    assert [one["op"] for one in client.get("/diff?from=draft&to=v1&id=eve").json["changes"]] == ["delete"]
    counted = client.get("/diff?from=v1&to=draft&limit=0").json
    assert (counted["changes"], counted["stats"], counted["truncated"]) == ([], found["stats"], True)
    assert client.get("/diff?from=none&to=draft").status == 404
    for query in ("from=v1", "from=v1&to=v1&type=None", "from=v1&to=v1&limit=-1", "from=v1&to=v1&op=x"):
        assert client.get(f"/diff?{query}").status == 400


def test_recoveries(client: Client) -> None:
    assert client.get("/recoveries").json == {"recoveries": [], "pending": []}
    for name in ("eve", "zoe"):
        with armed(Failpoint.TABLES_COMMITTED, "crash"):
            assert client.post("/mutate", {"query": INSERT, "params": {"n": name}}).status == 500
        (pending,) = client.get("/recoveries").json["pending"]
        assert pending["graph_branch"] == "main"
        assert client.post("/mutate", {"query": INSERT, "params": {"n": f"{name}-2"}}).status == 200
    found = client.get("/recoveries").json
    assert [one["recovery_kind"] for one in found["recoveries"]] == ["RolledForward"] * 2
    assert found["pending"] == []
    page = client.get("/recoveries?limit=1").json
    assert page["recoveries"] == found["recoveries"][:1]
    rest = client.get(f"/recoveries?limit=1&cursor={page['cursor']}").json
    assert rest == {"recoveries": found["recoveries"][1:], "pending": []}
    assert client.get("/recoveries?cursor=x").status == 400


def test_the_media_type_of_a_result_is_negotiated(client: Client) -> None:
    ndjson, arrow = "application/x-ndjson", "application/vnd.apache.arrow.stream"
    for accept, media in (
        ("*/*", "application/json"),
        ("text/html, */*;q=0.1", "application/json"),
        (f"*/*, {ndjson};q=0.5", "application/json"),
        (f"{ndjson};q=0.9, */*;q=0.1", ndjson),
        (f"{ndjson}, application/json", ndjson),
        (f"application/json;q=0.1, {arrow};q=nan, {ndjson};q=0.2", ndjson),
        (f"application/json;q=0, {arrow.upper()}", arrow),
        ("text/plain", "application/json"),
    ):
        found = client.post("/query", {"query": SELECT}, headers={"Accept": accept})
        assert found.headers["content-type"].partition(";")[0] == media, accept


def test_a_version_conflict_has_both_shapes(client: Client, root: Path) -> None:
    """Another program has written to the table, so that its version is not that of the manifest."""
    datasets = {one["type_name"]: one for one in client.get("/snapshot").json["datasets"]}
    table = lance.dataset(str(root / datasets["Person"]["dataset_path"]))
    table.delete("id = 'bob'")
    found = client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}})
    assert (found.status, found.json["code"]) == (409, "conflict")
    expected = datasets["Person"]["published_dataset_version"]
    assert found.json["published_dataset_version_conflict"] == {
        "entity_kind": "node",
        "type_name": "Person",
        "expected_published_dataset_version": expected,
        "actual_published_dataset_version": expected + 1,
    }
    assert found.json["manifest_conflict"] == {
        "table_key": "node:Person",
        "expected": expected,
        "actual": expected + 1,
    }


def test_commits(client: Client) -> None:
    commits = client.get("/commits").json["commits"]
    assert len(commits) == 3
    assert all(commit.keys() >= COMMIT for commit in commits)
    page = client.get("/commits?limit=2").json
    assert [c["graph_commit_id"] for c in page["commits"]] == [c["graph_commit_id"] for c in commits[:2]]
    rest = client.get(f"/commits?limit=2&cursor={page['cursor']}").json
    assert [c["graph_commit_id"] for c in rest["commits"]] == [commits[2]["graph_commit_id"]]
    assert client.get(f"/commits/{commits[0]['graph_commit_id']}").json == commits[0]
    assert client.get("/commits/01AAAAAAAAAAAAAAAAAAAAAAAA").status == 404
    assert client.get("/commits?branch=none").status == 404


def test_commit_changes(client: Client) -> None:
    newest, _, first = (c["graph_commit_id"] for c in client.get("/commits").json["commits"])
    found = client.get(f"/commits/{newest}/changes").json
    assert found["cause"]["graph_commit_id"] == newest
    assert [(c["kind"], c["op"]) for c in found["changes"]] == [("edge", "insert")]
    assert client.get(f"/commits/{newest}/changes?kind=node").json["changes"] == []
    assert client.get(f"/commits/{newest}/changes?kind=node&kind=edge&op=insert").json["changes"] == found["changes"]
    parentless = client.get(f"/commits/{first}/changes")
    assert parentless.status == 409
    assert parentless.json["change_diff_refusal"]["reason"] == "parentless_commit"
    assert "hint" in parentless.json


@pytest.mark.parametrize("path", ["/changes", "/commits/{head}/changes"])
@pytest.mark.parametrize(
    ("query", "status"),
    [("limit=0", 400), ("limit=x", 400), ("limit=8193", 413), ("limit=1&limit=2", 400), ("unknown=1", 400)],
)
def test_parameters_of_change_routes_are_strict(client: Client, path: str, query: str, status: int) -> None:
    found = client.get(f"{path.format(head=head(client))}?{query}")
    assert (found.status, found.json["code"]) == (status, "bad_request")
    assert ("resource_limit" in found.json) == (status == 413)


def test_the_feed_continues_after_its_cursor(client: Client) -> None:
    start = client.get("/changes").json
    assert (start["blocks"], start["caught_up"]) == ([], True)
    client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}})
    (block,) = client.get(f"/changes?cursor={start['cursor']}").json["blocks"]
    assert [change["id"] for change in block["changes"]] == ["eve"]
    assert len(client.get("/changes?start=beginning").json["blocks"]) == 3
    wrong = client.get("/changes?cursor=x")
    assert wrong.status == 400
    assert wrong.json["error"].startswith("change cursor rejected: ")
    assert client.get("/changes?cursor=x&start=now").status == 400


def test_baseline(client: Client) -> None:
    found = client.post("/changes/baseline", {"kind": ["node"]})
    assert found.headers["content-type"].startswith("application/x-ndjson")
    *entities, last = found.lines
    assert [entity["data"]["name"] for entity in entities] == ["ann", "bob"]
    assert set(last["baseline"]) == {"snapshot_commit_id", "resume_cursor"}
    assert client.get(f"/changes?kind=node&cursor={last['baseline']['resume_cursor']}").json["blocks"] == []
    assert client.post("/changes/baseline").status == 200


def test_export(client: Client) -> None:
    found = client.post("/export", {})
    assert [next(iter(line)) for line in found.lines] == ["edge", "type", "type"]
    assert [line["data"]["name"] for line in client.post("/export", {"type_names": ["Person"]}).lines] == ["ann", "bob"]
    assert client.post("/export", {"type_names": []}).body == found.body
    assert client.post("/export", {"type_names": ["None"]}).status == 400
    assert client.post("/export", {"unknown": 1}).status == 400
    assert client.post("/export", b"{}", media_type="text/plain").status == 415
    assert client.post("/export", {"branch": "none"}).status == 404


def test_schema(client: Client) -> None:
    source = client.get("/schema").json["schema_source"]
    assert "node Person" in source
    changed = source.replace("age: I32?", "age: I32?  city: String?")
    found = client.post("/schema/apply", {"schema_source": changed})
    assert (found.status, found.json["applied"]) == (200, True)
    assert client.get("/schema").json["schema_source"] == changed
    assert client.post("/schema/apply", {"schema_source": "node"}).status == 400


def test_snapshot(client: Client) -> None:
    found = client.get("/snapshot").json
    assert found["graph_branch"] == "main"
    assert set(found["datasets"][0]) == {
        "entity_kind",
        "type_name",
        "dataset_path",
        "published_dataset_version",
        "native_dataset_branch",
        "entity_count",
    }
    assert {dataset["type_name"]: dataset["entity_count"] for dataset in found["datasets"]} == {"Person": 2, "Knows": 1}
    assert client.get("/snapshot?branch=none").status == 404


def test_branch_and_snapshot_exclude_each_other(client: Client) -> None:
    found = client.post("/query", {"query": SELECT, "branch": "main", "snapshot": head(client)})
    assert found.status == 400


def test_graph_ids(client: Client) -> None:
    assert replace(client, prefix="/graphs/other").get("/branches").status == 404
    assert replace(client, prefix="/graphs/a_b").get("/branches").status == 400


def test_unknown_routes_and_methods(client: Client) -> None:
    missing = client.get("//nothing")
    assert (missing.status, missing.json["code"]) == (404, "not_found")
    for method in ("PUT", "PATCH", "OPTIONS", "DELETE"):
        found = client.send(method, "/branches")
        assert (found.status, found.headers["allow"]) == (405, "GET, POST")
        assert found.json["code"] == "method_not_allowed"
    assert client.send("PUT", "/blob").headers["allow"] == "GET, HEAD"


def test_bodies_are_checked(client: Client, serve: Serve) -> None:
    for body in (b"", b"x", b"[]", b'{"query": 7}', b'{"query": "\\ud800"}'):
        found = client.post("/query", body)
        assert (found.status, found.json["code"]) == (400, "bad_request"), body
    large = client.post("/query", {"query": " " * (1 << 20)})
    assert (large.status, large.json["code"]) == (413, "bad_request")
    assert large.json["resource_limit"]["resource"] == "http_body_bytes"


def test_request_ids(client: Client) -> None:
    assert client.get("/branches", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    found = client.get("/branches?x=1", headers={"X-Request-Id": "a b"})
    assert found.headers["x-request-id"] == found.json["request_id"] != "a b"


def test_metrics_name_no_graph(client: Client) -> None:
    client.get("/branches")
    found = client.get("//metrics")
    assert found.headers["content-type"].startswith("text/plain")
    assert b'route="/graphs/{graph_id}/branches",status="200"} 1.0' in found.body
    assert b"/graphs/g/" not in found.body


def test_a_page_of_another_site_may_not_write(client: Client) -> None:
    body = {"query": INSERT, "params": {"n": "eve"}}
    assert client.post("/mutate", body, headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert client.post("/mutate", body, headers={"Sec-Fetch-Site": "same-origin"}).status == 200


def test_large_integers_stay_integers(client: Client) -> None:
    found = client.post(
        "/query",
        {"query": "query q($n: I64) { match { $p: Person } return { $n as n } limit 1 }", "params": {"n": str(2**62)}},
    )
    assert json.loads(found.body)["rows"] == [{"n": 2**62}]
