"""Stored queries: a checked, typed catalogue; invocation by name; denial that looks like absence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import SELECT, Client, Serve
from tests.server.test_identity import EVERYTHING, TOKENS, Allow

import omnigraph
from omnigraph.engine.access import Action
from omnigraph.errors import InputError, OmnigraphError, TypeCheckError
from omnigraph.server.served_graphs import GraphConfig

PEOPLE = """
query people($least: I32 = 0)
    @description("All people of some age.")
    @instruction("Ask for an age first.")
{
    match { $p: Person  $p.age >= $least }
    return { $p.name as name }
    order { name asc }
}

query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }
"""
KINDS = """
query kinds(
    $a: String, $b: Bool, $c: I32, $d: I64, $e: U64, $f: F64, $g: Date, $h: DateTime, $i: [I64], $j: String?,
    $k: Vector(3)
) {
    match { $p: Person { name: $a } }
    return { $b as b, $c as c, $d as d, $e as e, $f as f, $g as g, $h as h, $i as i, $j as j, $k as k }
}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "queries"
    made.mkdir()
    (made / "people.gq").write_text(PEOPLE, encoding="utf-8")
    (made / "notes.txt").write_text("not a query", encoding="utf-8")
    return made


@pytest.fixture
def config(root: Path, directory: Path) -> dict[str, GraphConfig]:
    return {"g": GraphConfig(str(root), directory)}


@pytest.fixture
def stored(serve: Serve, config: dict[str, GraphConfig]) -> Client:
    return serve(graphs=config)


def head(client: Client) -> str:
    found: str = client.get("/commits?limit=1").json["commits"][0]["graph_commit_id"]
    return found


def test_the_catalogue(stored: Client) -> None:
    assert stored.get("/queries").json["queries"] == [
        {
            "name": "add",
            "tool_name": "add",
            "mutation": True,
            "params": [
                {"name": "n", "kind": "string", "type": "String", "nullable": False},
                {"name": "a", "kind": "int", "type": "I32", "nullable": True},
            ],
        },
        {
            "name": "people",
            "tool_name": "people",
            "description": "All people of some age.",
            "instruction": "Ask for an age first.",
            "mutation": False,
            "params": [{"name": "least", "kind": "int", "type": "I32", "nullable": True}],
        },
    ]


def test_kinds_of_parameters(serve: Serve, config: dict[str, GraphConfig], directory: Path) -> None:
    (directory / "kinds.gq").write_text(KINDS, encoding="utf-8")
    entries = serve(graphs=config).get("/queries").json["queries"]
    params = {param["name"]: param for entry in entries if entry["name"] == "kinds" for param in entry["params"]}
    kinds = ["string", "bool", "int", "bigint", "bigint", "float", "date", "datetime", "list", "string", "vector"]
    assert [param["kind"] for param in params.values()] == kinds
    assert params["i"]["item_kind"] == "bigint"
    assert params["k"]["vector_dim"] == 3
    assert params["j"]["nullable"] is True


def test_invocation(stored: Client) -> None:
    assert stored.post("/queries/people").json["rows"] == [{"name": "ann"}, {"name": "bob"}]
    assert stored.post("/queries/people", {"params": {"least": 35}}).json["rows"] == [{"name": "bob"}]
    wrote = stored.post("/queries/add", {"params": {"n": "eve"}, "branch": "main"})
    assert (wrote.status, wrote.json["affected_nodes"]) == (200, 1)
    missing = stored.post("/queries/add", {})
    assert missing.status == 400
    assert "$n" in missing.json["error"]
    assert stored.post("/queries/none").status == 404


def test_the_expected_kind_is_checked_before_anything_happens(stored: Client) -> None:
    before = head(stored)
    for name, expected in [("add", False), ("people", True)]:
        found = stored.post(f"/queries/{name}", {"expect_mutation": expected, "params": {"n": "eve"}})
        assert (found.status, found.json["code"]) == (400, "bad_request")
    assert stored.post("/queries/add", {"snapshot": before, "params": {"n": "eve"}}).status == 400
    assert stored.post("/queries/people", {"snapshot": before, "expect_mutation": False}).status == 200
    assert head(stored) == before


def test_conditional_invocation(stored: Client) -> None:
    seen = {"Omnigraph-If-Graph-Commit": head(stored)}
    path = "/queries/add/if-graph-commit"
    assert stored.post(path, {"params": {"n": "eve"}}).status == 400
    assert stored.post(path, {"params": {"n": "eve"}}, headers=seen).status == 200
    lost = stored.post(path, {"params": {"n": "zoe"}}, headers=seen)
    assert lost.status == 412
    assert lost.json["precondition_failure"]["expected"] == seen["Omnigraph-If-Graph-Commit"]
    assert stored.post("/queries/people/if-graph-commit", {}, headers=seen).status == 400
    assert stored.post(path, {"params": {"n": "eve"}, "snapshot": "v1"}, headers=seen).status == 400
    assert stored.post("/queries/add", {"params": {"n": "zoe"}}, headers=seen).status == 400


def test_a_denied_query_looks_like_an_unknown_one(serve: Serve, config: dict[str, GraphConfig]) -> None:
    for options in ({}, {"policies": {"g": Allow(Action.READ, Action.CHANGE)}}):
        client = serve(graphs=config, tokens=TOKENS, **options).with_token("secret-of-kim")
        assert client.get("/queries").status == 200
        denied, unknown = (client.post(f"/queries/{name}", {}).json for name in ("people", "nobody"))
        for body in (denied, unknown):
            del body["request_id"]
        assert denied == unknown | {"error": unknown["error"].replace("nobody", "people")}


def test_the_inner_permission_is_checked_too(serve: Serve, config: dict[str, GraphConfig]) -> None:
    policies = {"g": Allow(Action.READ, Action.INVOKE_QUERY)}
    client = serve(graphs=config, tokens=TOKENS, policies=policies).with_token("secret-of-kim")
    assert client.post("/queries/people").status == 200
    assert client.post("/queries/add", {"params": {"n": "eve"}}).status == 403


def test_other_formats(stored: Client) -> None:
    found = stored.post("/queries/people", headers={"Accept": "application/x-ndjson"})
    assert found.lines[1:] == [{"name": "ann"}, {"name": "bob"}]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("query q() { match { $p: Nobody } return { $p.name } }", TypeCheckError),
        ("query people() { match { $p: Person } return { $p.name } }", InputError),
        ("query", OmnigraphError),
    ],
)
def test_queries_are_checked_at_start(
    serve: Serve, config: dict[str, GraphConfig], directory: Path, text: str, error: type[OmnigraphError]
) -> None:
    (directory / "wrong.gq").write_text(text, encoding="utf-8")
    with pytest.raises(error) as caught:
        serve(graphs=config)
    assert "wrong.gq" in caught.value.render()


def test_a_graph_with_a_wrong_query_is_not_served(
    serve: Serve, config: dict[str, GraphConfig], directory: Path, tmp_path: Path
) -> None:
    (directory / "wrong.gq").write_text("query", encoding="utf-8")
    omnigraph.init(tmp_path / "other", "node A { name: String @key }").close()
    graphs = config | {"other": GraphConfig(str(tmp_path / "other"))}
    client = serve(graphs=graphs)
    assert client.get("//graphs/other/branches").status == 200
    assert client.get("/branches").status == 404
    ready = client.get("//readyz").json
    assert (ready["graphs"], ready["quarantined"]) == (1, 1)
    with pytest.raises(OmnigraphError):
        serve(graphs=graphs, require_all=True)


def test_reload(serve: Serve, root: Path, config: dict[str, GraphConfig], directory: Path) -> None:
    from tests.server.conftest import LIMITS, serving

    from omnigraph.server.app import create_app

    app = create_app(config, unauthenticated=True, limits=LIMITS)
    with serving(app) as client:
        (directory / "more.gq").write_text(SELECT, encoding="utf-8")
        app.state.service.reload()
        assert client.post("/queries/all").status == 200
        (directory / "more.gq").write_text("query", encoding="utf-8")
        app.state.service.reload()
        assert client.post("/queries/all").status == 200
        (directory / "more.gq").unlink()
        app.state.service.reload()
        assert client.post("/queries/all").status == 404


def test_everything_with_a_policy(serve: Serve, config: dict[str, GraphConfig]) -> None:
    client = serve(graphs=config, tokens=TOKENS, policies={"g": EVERYTHING}).with_token("secret-of-lee")
    assert client.post("/queries/add", {"params": {"n": "eve"}}).json["actor_id"] == "lee"


VERSIONS = """
query ages_v2() @deprecated("ages_v10") { match { $p: Person } return { $p.age as age } order { age } }
query ages_v10() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }
query old_add($n: String) @deprecated("add") { insert Person { name: $n } }
query gone() @deprecated("") { match { $p: Person } return { $p.name as name } }
"""


@pytest.fixture
def versions(serve: Serve, config: dict[str, GraphConfig], directory: Path) -> Client:
    (directory / "versions.gq").write_text(VERSIONS, encoding="utf-8")
    return serve(graphs=config)


def test_a_name_without_a_version_runs_the_newest_version(versions: Client) -> None:
    newest = versions.post("/queries/ages")
    assert (newest.json["query_name"], newest.json["columns"]) == ("ages_v10", ["name", "age"])
    assert "deprecation" not in newest.headers
    assert versions.post("/queries/ages_v2").json["columns"] == ["age"]
    assert versions.post("/queries/ages_v3").status == 404
    assert versions.post("/queries/people_v1").status == 404


def test_a_query_of_exactly_this_name_comes_before_its_versions(
    serve: Serve, config: dict[str, GraphConfig], directory: Path
) -> None:
    (directory / "more.gq").write_text("query people_v2() { match { $p: Person } return { count($p) as n } }")
    client = serve(graphs=config)
    assert client.post("/queries/people").json["query_name"] == "people"
    assert client.post("/queries/people_v2").json["rows"] == [{"n": 2}]


def test_deprecated_queries_name_their_successor(versions: Client) -> None:
    entries = {one["name"]: one for one in versions.get("/queries").json["queries"]}
    marks = {name: (one["deprecated"], one.get("successor")) for name, one in entries.items() if "deprecated" in one}
    assert marks == {"ages_v2": (True, "ages_v10"), "old_add": (True, "add"), "gone": (True, None)}

    def headers(path: str, status: int, **options: Any) -> tuple[str | None, str | None]:
        answer = versions.post(f"/queries/{path}", **options)
        assert answer.status == status, answer
        return answer.headers.get("deprecation"), answer.headers.get("link")

    assert headers("ages_v2", 200) == ("true", '<ages_v10>; rel="successor-version"')
    assert headers("ages_v2", 200, headers={"Accept": "application/x-ndjson"})[0] == "true"
    assert headers("ages_v2", 400, body={"params": 1}) == ("true", '<ages_v10>; rel="successor-version"')
    assert headers("old_add", 200, body={"params": {"n": "eve"}}) == ("true", '<add>; rel="successor-version"')
    seen = {"Omnigraph-If-Graph-Commit": head(versions)}
    link = '<../add/if-graph-commit>; rel="successor-version"'
    assert headers("old_add/if-graph-commit", 200, body={"params": {"n": "zoe"}}, headers=seen) == ("true", link)
    assert headers("gone", 200) == ("true", None)
    assert headers("people", 200) == (None, None)


def test_the_deprecation_of_a_denied_query_is_not_shown(
    serve: Serve, config: dict[str, GraphConfig], directory: Path
) -> None:
    (directory / "versions.gq").write_text(VERSIONS, encoding="utf-8")
    client = serve(graphs=config, tokens=TOKENS).with_token("secret-of-kim")
    for name in ("ages", "ages_v2", "nobody"):
        denied = client.post(f"/queries/{name}")
        assert (denied.status, denied.json["error"]) == (404, f"there is no stored query '{name}'")
        assert denied.headers.keys().isdisjoint({"deprecation", "link"})


@pytest.mark.parametrize(
    ("successor", "problem"),
    [("nobody", "there is no such query"), ("q", "a query cannot replace itself"), ("add", "it writes")],
)
def test_a_successor_exists_and_can_replace_the_query(
    serve: Serve, config: dict[str, GraphConfig], directory: Path, successor: str, problem: str
) -> None:
    text = f'query q() @deprecated("{successor}") {{ match {{ $p: Person }} return {{ $p.name }} }}'
    (directory / "q.gq").write_text(text)
    with pytest.raises(InputError, match=f"'q' is not valid: it is deprecated for '{successor}': {problem}"):
        serve(graphs=config)
