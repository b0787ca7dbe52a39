"""Over HTTP, two actors of one policy see their own rows only, and a denial is recorded once."""

from __future__ import annotations

import fcntl
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.patience import PATIENCE, until
from tests.server.conftest import Answer, Client, Serve

import omnigraph
from omnigraph import Graph
from omnigraph.errors import AccessDeniedError, PolicyError
from omnigraph.policy.denials import DenialLog
from omnigraph.server.served_graphs import GraphConfig

SCHEMA = """
node Task { name: String @key  owner: String  pay: I32?  photo: Blob? }
node Vault { code: String @key }
edge Needs: Task -> Task
edge Opens: Task -> Vault
"""
TOKENS = {"kim": "secret-of-kim", "lee": "secret-of-lee", "ann": "secret-of-ann", "mia": "secret-of-mia"}
CREW = ["read", "export", "change"]
POLICY: dict[str, Any] = {
    "version": 1,
    "groups": {"crew": ["kim", "lee"], "boss": ["ann"]},
    "protected_branches": ["main"],
    "rules": [
        {"id": "crew", "allow": {"actors": {"group": "crew"}, "actions": CREW, "types": ["Task", "Needs"]}},
        {"id": "asks", "allow": {"actors": {"group": "crew"}, "actions": ["invoke_query", "branch_merge"]}},
        {"id": "boss", "allow": {"actors": {"group": "boss"}, "actions": [*CREW, "schema_apply", "branch_create"]}},
    ],
    "row_rules": [
        {
            "id": "own",
            "actors": {"group": "crew"},
            "type": "Task",
            "actions": ["read", "change"],
            "where": "$.owner = $actor",
        },
        {"id": "all", "actors": {"group": "boss"}, "type": "Task", "actions": ["read", "change"]},
    ],
    "masks": [{"id": "no-pay", "actors": {"group": "crew"}, "type": "Task", "properties": ["pay"]}],
}
OF = {"kim": ["kim-a", "kim-b"], "lee": ["lee-a", "lee-b", "lee-c"]}
OTHER = {"kim": "lee", "lee": "kim"}
SELECT = "query q() { match { $t: Task } return { $t.name as name } order { name } }"
COUNT = "query q() { match { $t: Task } return { count($t) as n } }"
ARROW = "application/vnd.apache.arrow.stream"
QUERIES = """
query tasks() { match { $t: Task } return { $t.name as name } order { name } }
query vaults() { match { $v: Vault } return { $v.code as code } }
query add($n: String, $o: String) { insert Task { name: $n, owner: $o } }
query lock($c: String) { insert Vault { code: $c } }
query old() @deprecated("vaults") { match { $t: Task } return { $t.name as name } }
query all_v1() @deprecated("all") { match { $t: Task } return { $t.name as name } }
query all_v2() { match { $v: Vault } return { $v.code as code } }
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DenialLog:
    monkeypatch.setenv("OMNIGRAPH_DENIALS", str(tmp_path / "denials.jsonl"))
    return DenialLog()


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "tasks"
    with omnigraph.init(path, SCHEMA) as made:
        rows = [
            {"name": name, "owner": owner, "pay": 424_200 + number, "photo": "base64:YWJj"}
            for owner, names in OF.items()
            for number, name in enumerate(names)
        ]
        made.load({"Task": rows, "Vault": [{"code": "hoard"}]}, mode="append")
        needs = [{"from": names[0], "to": names[1]} for names in OF.values()]
        made.load({"Needs": [*needs, {"from": "kim-a", "to": "lee-a"}]}, mode="append")
        made.load({"Opens": [{"from": "kim-a", "to": "hoard"}]}, mode="append")
        made.branches.create("draft")
    return path


@pytest.fixture
def config(tmp_path: Path, graph: Path) -> GraphConfig:
    policy, queries = tmp_path / "policy.yaml", tmp_path / "queries"
    policy.write_text(yaml.safe_dump(POLICY))
    queries.mkdir()
    (queries / "all.gq").write_text(QUERIES)
    return GraphConfig(str(graph), queries, policy=policy)


@pytest.fixture
def anyone(serve: Serve, config: GraphConfig, log: DenialLog) -> Client:
    return serve(graphs={"g": config}, tokens=TOKENS)


@pytest.fixture(params=["kim", "lee"])
def actor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(anyone: Client, actor: str) -> Client:
    return anyone.with_token(TOKENS[actor])


def whole(graph: Path) -> omnigraph.Graph:
    return omnigraph.open(graph)


def says_nothing(answer: Answer, actor: str) -> Answer:
    text = answer.body + str(sorted(answer.headers.items())).encode()
    for word in (f"{OTHER[actor]}-", "Vault", "Opens", "hoard", "pay", "4242", "opens"):
        assert word.encode() not in text, (word, text)
    return answer


def names_of(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [row["name"] for row in answer.json["rows"]]


def test_queries_answer_with_own_rows_in_all_formats(client: Client, actor: str) -> None:
    assert names_of(says_nothing(client.post("/query", {"query": SELECT}), actor)) == OF[actor]
    assert client.post("/query", {"query": COUNT}).json["rows"] == [{"n": len(OF[actor])}]
    lines = says_nothing(client.post("/query", {"query": SELECT}, headers={"Accept": "application/x-ndjson"}), actor)
    assert [line["name"] for line in lines.lines if "name" in line] == OF[actor]
    arrow = says_nothing(client.post("/query", {"query": SELECT}, headers={"Accept": ARROW}), actor)
    assert pa.ipc.open_stream(arrow.body).read_all()["name"].to_pylist() == OF[actor]
    assert len(says_nothing(client.post("/read", {"query_source": SELECT}), actor).json["rows"]) == len(OF[actor])
    head = client.get("/commits").json["commits"][0]["graph_commit_id"]
    assert names_of(client.post("/query", {"query": SELECT, "snapshot": head})) == OF[actor]
    assert names_of(client.post("/query", {"query": SELECT, "branch": "draft"})) == OF[actor]


def test_exports_and_baselines_have_own_rows(client: Client, actor: str) -> None:
    head = client.get("/commits").json["commits"][0]["graph_commit_id"]
    for path, body in (("/export", {}), ("/export", {"snapshot": head}), ("/changes/baseline", {})):
        answer = says_nothing(client.post(path, body), actor)
        assert answer.status == 200, answer.body
        data = [line["data"] for line in answer.lines if line.get("type") == "Task"]
        assert sorted(row["name"] for row in data) == OF[actor]


def test_changes_have_own_rows(client: Client, actor: str, graph: Path) -> None:
    start = client.get("/changes?start=now").json["cursor"]
    with whole(graph) as made:
        rows = [{"name": f"{owner}-new", "owner": owner, "pay": 424_299} for owner in OF]
        made.load({"Task": rows}, mode="append")
        made.mutate('query q() { insert Vault { code: "hoard-2" } }')
    feed = says_nothing(client.get(f"/changes?cursor={start}"), actor)
    assert f"{actor}-new".encode() in feed.body
    says_nothing(client.get("/changes?start=beginning"), actor)
    commits = says_nothing(client.get("/commits"), actor).json["commits"]
    assert commits
    seen = b""
    for commit in commits:
        says_nothing(client.get(f"/commits/{commit['graph_commit_id']}"), actor)
        seen += says_nothing(client.get(f"/commits/{commit['graph_commit_id']}/changes"), actor).body
    assert f"{actor}-new".encode() in seen


def test_a_baseline_continues_in_the_feed(client: Client, actor: str, graph: Path) -> None:
    cursor = client.post("/changes/baseline").lines[-1]["baseline"]["resume_cursor"]
    with whole(graph) as made:
        made.load({"Task": [{"name": f"{owner}-new", "owner": owner} for owner in OF]}, mode="append")
    answer = says_nothing(client.get(f"/changes?cursor={cursor}"), actor)
    assert answer.status == 200, answer.body
    assert f"{actor}-new".encode() in answer.body


def blob(client: Client, name: str, kind: str = "Task", prop: str = "photo") -> Answer:
    return client.get(f"/blob?entity=node&type={kind}&id={name}&property={prop}")


def without(answer: Answer, *words: str) -> tuple[int, str]:
    text = str({name: value for name, value in answer.json.items() if name != "request_id"})
    for word in words:
        text = text.replace(word, "X")
    return answer.status, text


def test_hidden_blobs_and_absent_ones_have_the_same_error(client: Client, actor: str) -> None:
    assert blob(client, OF[actor][0]).body == b"abc"
    hidden = f"{OTHER[actor]}-a"
    found = without(blob(client, hidden), hidden)
    assert found[0] == 404
    assert found == without(blob(client, "nowhere"), "nowhere")
    assert without(blob(client, "hoard", "Vault", "code"), "Vault")[0] == 404


def test_the_schema_snapshot_and_branches_are_those_of_the_actor(client: Client, actor: str) -> None:
    schema = says_nothing(client.get("/schema"), actor)
    assert "Task" in schema.json["schema_source"]
    snapshot = says_nothing(client.get("/snapshot"), actor)
    assert snapshot.status == 200, snapshot.body
    counts = {str(name): value for name, value in _counts(snapshot.json)}
    assert str(len(OF[actor])) in str(counts)
    total = sum(map(len, OF.values()))
    assert total not in counts.values(), snapshot.body
    assert client.get("/branches").json["branches"] == ["draft", "main"]


def _counts(value: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """The numbers of rows in a JSON value."""
    if isinstance(value, dict):
        for member, part in value.items():
            yield from _counts(part, f"{name}.{member}")
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _counts(part, f"{name}.{place}")
    elif isinstance(value, int) and "count" in name:
        yield name, value


@pytest.mark.parametrize(
    "text",
    [
        "query q() { match { $v: Vault } return { $v.code } }",
        "query q() { match { $t: Task } return { $t.pay } }",
        "query q() { match { $t: Task  $t opens $v } return { $t.name } }",
    ],
)
def test_errors_of_hidden_names_are_those_of_unknown_names(text: str, client: Client) -> None:
    answer = client.post("/query", {"query": text})
    assert answer.status == 400
    unknown = text.replace("Vault", "Vaulx").replace("pay", "pax").replace("opens", "openx")
    other = client.post("/query", {"query": unknown})
    assert without(answer, "Vault", "pay", "opens") == without(other, "Vaulx", "pax", "openx")


def test_writes_obey_the_rules_of_changes(client: Client, actor: str, graph: Path, log: DenialLog) -> None:
    other, own = OTHER[actor], OF[actor][0]
    add = "query q($n: String, $o: String) { insert Task { name: $n, owner: $o } }"
    assert client.post("/mutate", {"query": add, "params": {"n": "mine", "o": actor}}).status == 200
    denied: list[Callable[[], Answer]] = [
        lambda: client.post("/mutate", {"query": add, "params": {"n": "theirs", "o": other}}),
        lambda: client.post("/mutate", {"query": add, "params": {"n": f"{other}-a", "o": actor}}),
        lambda: client.post(
            "/mutate", {"query": f'query q() {{ update Task set {{ owner: "{other}" }} where name = "{own}" }}'}
        ),
        lambda: client.post(
            "/load",
            {"data": f'{{"type": "Task", "data": {{"name": "{other}-a", "owner": "{actor}"}}}}', "mode": "merge"},
        ),
        lambda: client.post("/branches", {"name": "mine"}),
        lambda: client.post("/schema/apply", {"schema_source": SCHEMA}),
        lambda: client.delete("/branches/draft"),
    ]
    for send in denied:
        before = len(list(log.records()))
        answer = send()
        assert answer.status == 403, answer.body
        assert answer.json["code"] == "forbidden"
        assert [one.denial.actor for one in list(log.records())[before:]] == [actor]
    with whole(graph) as made:
        rows = made.query("query q() { match { $t: Task } return { $t.name, $t.owner } }").to_pylist()
        owners = {name: owner for owner, names in OF.items() for name in names}
        assert {row["t.name"]: row["t.owner"] for row in rows} == owners | {"mine": actor}
        assert made.branch("main").head.actor == actor


def test_stored_queries_that_need_hidden_types_do_not_exist(client: Client, actor: str) -> None:
    listed = says_nothing(client.get("/queries"), actor).json["queries"]
    assert [query["name"] for query in listed] == ["add", "all_v1", "old", "tasks"]
    for query in listed[1:3]:
        assert (query["deprecated"], "successor" in query) == (True, False)
        old = client.post(f"/queries/{query['name']}")
        assert (old.status, old.headers["deprecation"], "link" in old.headers) == (200, "true", False)
    assert client.post("/queries/all").json["query_name"] == "all_v1", "the newest version that is not hidden"
    assert names_of(client.post("/queries/tasks")) == OF[actor]
    unknown = without(client.post("/queries/nosuch"), "nosuch")
    assert unknown[0] == 404
    assert without(client.post("/queries/vaults"), "vaults") == unknown
    assert without(client.post("/queries/lock", {"params": {"c": "x"}}), "lock") == unknown
    for name in ("vaults", "nosuch"):
        assert without(client.post(f"/queries/{name}", b"no JSON"), name) == unknown
        assert first_bytes(client, f"/graphs/g/queries/{name}") == b"HTTP/1.1 100 Continue"
    assert client.post("/queries/add", {"params": {"n": "x", "o": OTHER[actor]}}).status == 403
    assert client.post("/queries/add", {"params": {"n": "x", "o": actor}}).status == 200


def first_bytes(client: Client, path: str) -> bytes:
    """The beginning of the answer to a request whose body the server has to ask for."""
    host, _, port = client.address.rpartition(":")
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\nContent-Length: 2\r\n"
        "Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(head.encode())
        return connection.recv(21)


def test_denials_look_like_absence_where_they_must(anyone: Client, log: DenialLog) -> None:
    ann, mia = (anyone.with_token(TOKENS[name]) for name in ("ann", "mia"))
    commit = ann.get("/commits").json["commits"][0]["graph_commit_id"]
    unknown = "01ZZZZZZZZZZZZZZZZZZZZZZZZ"
    found = [without(mia.get(f"/commits/{one}/changes"), one) for one in (commit, unknown)]
    assert found[0] == found[1]
    assert found[0][0] == 404
    found = [without(ann.post(f"/queries/{name}"), name) for name in ("tasks", "nosuch")]  # ann may not invoke
    assert found[0] == found[1]
    assert found[0][0] == 404
    found = [without(mia.post("/query", {"query": SELECT, "snapshot": one}), one) for one in (commit, unknown)]
    assert found[0] == found[1]
    assert found[0][0] == 403
    found = [without(mia.post("/export", {"snapshot": one}), one) for one in (commit, unknown)]
    assert found[0] == found[1]
    found = [without(mia.post("/query", {"query": SELECT, "branch": one}), one) for one in ("draft", "nosuch")]
    assert found[0] == found[1]
    assert {one.denial.actor for one in log.records()} == {"ann", "mia"}


@pytest.mark.parametrize(
    ("path", "body", "call"),
    [
        ("/mutate", {"query": "query q() { delete Task }"}, lambda g: g.mutate("query q() { delete Task }")),
        ("/query", {"query": SELECT, "branch": "draft"}, lambda g: g.query(SELECT, branch="draft")),
        ("/branches", {"name": "new"}, lambda g: g.branches.create("new")),
        ("/branches/merge", {"source": "draft"}, lambda g: g.merge("draft")),
    ],
)
def test_a_denial_says_the_same_as_without_a_server(
    path: str, body: dict[str, Any], call: Callable[[Graph], object], anyone: Client, config: GraphConfig
) -> None:
    denial = pytest.raises(AccessDeniedError)
    with omnigraph.open(config.uri, policy=config.policy, actor="mia") as graph, denial as denied:
        call(graph)
    answer = anyone.with_token(TOKENS["mia"]).post(path, body)
    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    assert answer.json["error"] == str(denied.value)
    assert answer.json["hint"] == denied.value.hint
    assert denied.value.message.startswith("'mia' is not allowed the action ")


def test_every_route_denies_a_stranger(anyone: Client, log: DenialLog) -> None:
    mia = anyone.with_token(TOKENS["mia"])
    for method, path, body in (
        ("GET", "/schema", None),
        ("GET", "/snapshot", None),
        ("GET", "/branches", None),
        ("GET", "/commits", None),
        ("GET", "/commits/01ZZZZZZZZZZZZZZZZZZZZZZZZ", None),
        ("GET", "/changes?start=now", None),
        ("GET", "/queries", None),
        ("GET", "/blob?entity=node&type=Task&id=kim-a&property=photo", None),
        ("POST", "/query", {"query": SELECT}),
        ("POST", "/export", {}),
        ("POST", "/changes/baseline", {}),
        ("POST", "/mutate", {"query": "query q() { delete Task }"}),
        ("POST", "/load", {"data": "", "mode": "merge"}),
        ("POST", "/branches", {"name": "x"}),
        ("POST", "/branches/merge", {"source": "draft"}),
        ("POST", "/schema/apply", {"schema_source": SCHEMA}),
        ("DELETE", "/branches/draft", None),
    ):
        before = len(list(log.records()))
        answer = mia.send(method, path, body)
        assert answer.status == 403, (path, answer.body)
        assert len(list(log.records())) == before + 1, path
        assert anyone.send(method, path, body).status == 401, path


def test_the_audit_does_not_block_other_requests(anyone: Client, log: DenialLog) -> None:
    mia = anyone.with_token(TOKENS["mia"])
    body = {"query": "query q() { delete Task }"}
    assert mia.post("/mutate", body).status == 403
    found: list[int] = []
    denied = threading.Thread(target=lambda: found.append(mia.post("/mutate", body).status))
    with log.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another program reads it, or its disk is slow
        denied.start()
        until(lambda: b"requests_in_flight 2.0" in anyone.get("//metrics").body)
        assert anyone.get("//healthz").status == 200
        assert found == []
    denied.join()
    assert found == [403]
    assert len(list(log.records())) == 2


def test_an_actor_with_all_rows_sees_the_whole_graph(anyone: Client) -> None:
    ann = anyone.with_token(TOKENS["ann"])
    assert names_of(ann.post("/query", {"query": SELECT})) == sorted([*OF["kim"], *OF["lee"]])
    assert "Vault" in ann.get("/schema").json["schema_source"]
    assert ann.post("/branches", {"name": "made"}).status == 200


def test_a_policy_that_no_longer_fits_denies_everything(anyone: Client) -> None:
    ann = anyone.with_token(TOKENS["ann"])
    changed = SCHEMA.replace("owner: String", 'holder: String @rename_from("owner")')
    assert ann.post("/schema/apply", {"schema_source": changed}).status == 200
    for name in ("ann", "kim"):
        answer = anyone.with_token(TOKENS[name]).post("/query", {"query": SELECT})
        assert answer.status == 403
        assert "owner" not in str(answer.json)


def test_a_reload_reads_the_policy_again(serve: Serve, config: GraphConfig, log: DenialLog, tmp_path: Path) -> None:
    from tests.server.conftest import LIMITS, service_of, serving

    from omnigraph.server.app import create_app

    app = create_app({"g": config}, tokens=TOKENS, limits=LIMITS)
    assert config.policy is not None
    with serving(app) as anyone:
        kim = anyone.with_token(TOKENS["kim"])
        assert names_of(kim.post("/query", {"query": SELECT})) == OF["kim"]
        config.policy.write_text("version: 7")
        service_of(app).reload()
        assert names_of(kim.post("/query", {"query": SELECT})) == OF["kim"], "an invalid policy does not replace it"
        config.policy.write_text(yaml.safe_dump(POLICY | {"groups": {"crew": ["lee"], "boss": ["ann", "kim"]}}))
        service_of(app).reload()
        assert len(names_of(kim.post("/query", {"query": SELECT}))) == 5
        config.policy.write_text(yaml.safe_dump(POLICY | {"groups": {"crew": ["lee"], "boss": ["ann"]}}))
        service_of(app).reload()
        assert kim.post("/query", {"query": SELECT}).status == 403


def test_the_policy_of_the_server_allows_the_list_of_graphs(
    serve: Serve, config: GraphConfig, log: DenialLog, tmp_path: Path
) -> None:
    path = tmp_path / "server.yaml"
    rule = {"id": "lists", "allow": {"actors": {"group": "boss"}, "actions": ["graph_list"]}}
    path.write_text(yaml.safe_dump({"version": 1, "groups": {"boss": ["ann"]}, "rules": [rule]}))
    anyone = serve(graphs={"g": config}, tokens=TOKENS, server_policy=path)
    assert [one["graph_id"] for one in anyone.with_token(TOKENS["ann"]).get("//graphs").json["graphs"]] == ["g"]
    assert anyone.with_token(TOKENS["kim"]).get("//graphs").status == 403
    assert anyone.get("//graphs").status == 401
    assert [(one.denial.actor, one.denial.action) for one in log.records()] == [("kim", "graph_list")]
    with pytest.raises(PolicyError, match="list of graphs"):
        serve(graphs={"g": GraphConfig(config.uri, policy=path)}, tokens=TOKENS)
    with pytest.raises(PolicyError, match="rules about a graph"):
        serve(graphs={"g": config}, tokens=TOKENS, server_policy=config.policy)


def test_a_graph_whose_policy_does_not_fit_is_not_served(serve: Serve, config: GraphConfig, log: DenialLog) -> None:
    assert config.policy is not None
    config.policy.write_text(yaml.safe_dump(POLICY).replace("Task", "Tusk"))
    with pytest.raises(PolicyError, match="Tusk"):
        serve(graphs={"g": config}, tokens=TOKENS)


def test_a_policy_that_allows_no_write_says_so(
    serve: Serve, config: GraphConfig, log: DenialLog, caplog: pytest.LogCaptureFixture
) -> None:
    assert config.policy is not None
    warning = "every write to 1 of the graphs is denied: no rule of their policies allows one"
    assert warning not in serve(graphs={"g": config}, tokens=TOKENS).get("//readyz").json["warnings"]
    rule = {"id": "reads", "allow": {"actors": {"group": "boss"}, "actions": ["read", "invoke_query"]}}
    config.policy.write_text(yaml.safe_dump({"version": 1, "groups": {"boss": ["ann"]}, "rules": [rule]}))
    client = serve(graphs={"g": config}, tokens=TOKENS)
    assert client.get("//readyz").json["warnings"] == [warning]
    assert warning in caplog.messages
    assert "no rule of a policy allows a write" in caplog.messages
