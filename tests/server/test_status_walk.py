"""Every documented status of every operation is reached by a request, and no other status is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from tests.server.conftest import LIMITS, SELECT, Answer, Client, service_of, serving
from tests.server.contract import CONTRACT

import omnigraph
from omnigraph.commit import publish
from omnigraph.commit.failpoints import Failpoint, armed
from omnigraph.commit.store import Store, Timeouts
from omnigraph.errors import OmnigraphError
from omnigraph.server.app import OPERATIONS, create_app
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.served_graphs import GraphConfig

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
node Doc { slug: String @key  text: String?  place: Vector(4)? @embed("text") }
node Crate { name: String @key }
edge Knows: Person -> Person
"""
ADD = "query add($n: String, $f: Blob?) { insert Person { name: $n, photo: $f } }"
NEAR = "query near($t: String) { match { $d: Doc } return { $d.slug } order { nearest($d.place, $t) } limit 1 }"
TOKENS = {"boss": "secret-of-boss", "guest": "secret-of-guest"}
ACTIONS = "read export change schema_apply branch_create branch_delete branch_merge invoke_query admin"
BODY_LIMIT = 64 * 1024
ROWS = '{"type":"Person","data":{"name":"eve"}}\n'
NDJSON = "application/x-ndjson"

QUERIES: dict[str, str] = {
    "blob": "entity=node&type=Person&id=ann&property=photo",
    "diff": "from=main&to=main",
}
"""The required query parameters, by the last part of the path."""

BODIES: dict[str, Any] = {
    "query": {"query": SELECT},
    "read": {"query_source": SELECT},
    "invoke_query": {"params": {"n": "zed"}},
    "invoke_query_if_graph_commit": {"params": {"n": "zed"}},
    "mutate": {"query": ADD, "params": {"n": "zed"}},
    "mutate_if_graph_commit": {"query": ADD, "params": {"n": "zed"}},
    "change": {"query_source": ADD, "params": {"n": "zed"}},
    "load": {"data": ROWS},
    "load_ndjson": ROWS.encode(),
    "ingest": {"data": ROWS},
    "create_branch": {"name": "other"},
    "merge_branches": {"source": "draft"},
    "create_tag": {"name": "second"},
    "apply_schema": {"schema_source": SCHEMA.replace("age: I32?", "age: I32?  city: String?")},
    "export": {},
    "stream_baseline": {},
}


def send(client: Client, one: Operation, *, query: str = "", head: str = "0" * 26, **changes: Any) -> Answer:
    """Send a request to an operation, with the parameters and the body that it needs."""
    prefix = client.prefix if one.path.startswith(GRAPH) else ""
    path = one.path.removeprefix(GRAPH).format(branch="draft", tag="t", name="add", commit_id=head)
    needed = QUERIES.get(path.rpartition("/")[2], "") if one.query else ""
    asked = "&".join(part for part in (needed, query) if part)
    headers = {"Omnigraph-If-Graph-Commit": head} if one.conditional else {}
    options: dict[str, Any] = {"media_type": one.body_media or "application/json"} | changes
    options["headers"] = headers | options.get("headers", {})
    body = options.pop("body", BODIES.get(one.id))
    return client.send(one.method, f"/{prefix}{path}" + (f"?{asked}" if asked else ""), body, **options)


def expect(status: int, answer: Answer) -> Answer:
    assert answer.status == status, (status, answer.status, answer.body)
    return answer


_WITHOUT_COMMIT = ("query", "read", "create_branch", "delete_branch")
WRITERS = [one for one in OPERATIONS if 503 in one.statuses and one.id not in _WITHOUT_COMMIT]
"""The operations that make a commit."""


def of_graphs() -> list[Operation]:
    return [one for one in OPERATIONS if one.path.startswith(GRAPH)]


class Served:
    """A server of one graph, and clients of it."""

    def __init__(self, app: FastAPI, client: Client) -> None:
        self.app = app
        self.anyone = client
        self.boss = client.with_token(TOKENS["boss"])
        self.guest = client.with_token(TOKENS["guest"])

    @property
    def store(self) -> Store:
        return service_of(self.app).graphs.get("g").session.store

    def head(self) -> str:
        return str(self.boss.get("/commits?limit=1").json["commits"][0]["graph_commit_id"])


Place = Callable[..., Served]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Serves a graph of its own: `place("name", limits=…)`."""
    monkeypatch.setenv("OMNIGRAPH_DENIALS", str(tmp_path / "denials.jsonl"))
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai-compatible")
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "1")
    monkeypatch.setenv("OPENROUTER_API_KEY", "key")
    queries, assets, lists = tmp_path / "queries", tmp_path / "assets", tmp_path / "server.yaml"
    for directory in (queries, assets):
        directory.mkdir()
    (queries / "all.gq").write_text(f"{ADD}\n{NEAR}\n{SELECT}")
    (assets / "ann.jpg").write_bytes(b"0123456789")
    group = {"version": 1, "groups": {"boss": ["boss"], "guests": ["guest"]}}
    rule = {"id": "lists", "allow": {"actors": {"group": "boss"}, "actions": ["graph_list"]}}
    lists.write_text(yaml.safe_dump(group | {"rules": [rule]}))
    with ExitStack() as servers:

        def serve(name: str, *, where: str | None = None, **limits: Any) -> Served:
            root, policy, source = tmp_path / name, tmp_path / f"{name}.yaml", assets.as_uri() + "/"
            boss, guests = {"actors": {"group": "boss"}}, {"actors": {"group": "guests"}}
            rows = {"id": "rows", "actors": {"group": "boss"}, "type": "Person", "actions": ["read"], "where": where}
            limited = {"row_rules": [rows]} if where is not None else {}
            rules = [
                {"id": "all", "allow": boss | {"actions": ACTIONS.split()}},
                {"id": "asks", "allow": guests | {"actions": ["invoke_query"]}},
            ]
            policy.write_text(yaml.safe_dump(group | {"rules": rules} | limited))
            omnigraph.init(root, SCHEMA).close()
            app = create_app(
                {"g": GraphConfig(str(root), queries, (source,), policy)},
                tokens=TOKENS,
                server_policy=lists,
                limits=replace(LIMITS, **limits),
            )
            return Served(app, servers.enter_context(serving(app)))

        yield serve


def test_every_documented_status_is_reached(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CONTRACT.recording() as reached:
        served = place("main", body=BODY_LIMIT, load_body=BODY_LIMIT)
        assets = (tmp_path / "assets").as_uri()
        read_blobs(served.boss, assets)
        answer_everything(served)
        refuse_everywhere(served)
        conflict(served, assets)
        leave_unknown_outcomes(served, monkeypatch)
        read_lost_history(place("history"))
        refuse_busy_actors(place("busy", actor_reads=0, actor_writes=0))
        run_out_of_time(place("hurried", request_seconds=0.0))
        deny_with_an_unfit_policy(place("unfit", where="$.age > 3"))
        damage(place("damaged"), tmp_path / "damaged")
        drain(served)
    assert sorted(CONTRACT.pairs - reached) == []
    assert sorted(reached - CONTRACT.pairs) == []


def answer_everything(served: Served) -> None:
    """Each operation answers 200."""
    boss = served.boss
    expect(200, boss.post("/branches", {"name": "draft"}))
    expect(200, boss.post("/tags", {"name": "t"}))
    for one in OPERATIONS:
        expect(200, send(boss, one, head=served.head()))
    for name in ("draft", "other"):
        if name not in boss.get("/branches").json["branches"]:
            expect(200, boss.post("/branches", {"name": name}))
    expect(200, boss.post("/tags", {"name": "t"}))


def refuse_everywhere(served: Served) -> None:
    """The refusals that all operations share: of parameters, credentials, permissions, graphs and bodies."""
    head = served.head()
    for one in OPERATIONS:
        expect(400, send(served.boss, one, query="unknown=1", head=head))
        if one.public:
            continue
        expect(401, send(served.anyone, one, head=head))
        if one.id not in ("invoke_query", "invoke_query_if_graph_commit", "list_commit_changes"):
            expect(403, send(served.guest, one, head=head))
    for path, headers in (("", {}), ("/if-graph-commit", {"Omnigraph-If-Graph-Commit": head})):
        expect(403, served.guest.post(f"/queries/add{path}", {"params": {"n": "x"}}, headers=headers))
    assert served.guest.get(f"/commits/{head}/changes").status == 404
    for one in of_graphs():
        expect(404, send(replace(served.boss, prefix="/graphs/none"), one, head=head))
        if BODIES.get(one.id) is not None:
            expect(413, send(served.boss, one, head=head, body=b" " * (BODY_LIMIT + 1)))
            expect(415, send(served.boss, one, head=head, media_type="text/html"))


def read_blobs(boss: Client, assets: str) -> None:
    """All ways to answer with a blob, or not to."""
    path = "/blob?entity=node&type=Person&property=photo&id="
    expect(200, boss.post("/mutate", {"query": ADD, "params": {"n": "ann", "f": f"{assets}/ann.jpg"}}))
    expect(200, boss.post("/branches", {"name": "blobs"}))
    rows = f'{{"type":"Person","data":{{"name":"leo","photo":"{assets}/ann.jpg"}}}}\n'
    expect(200, boss.post("/load", {"data": rows, "mode": "overwrite", "branch": "blobs"}))
    for method in ("GET", "HEAD"):
        expect(302, boss.send(method, f"{path}leo&branch=blobs"))
        expect(304, boss.send(method, f"{path}ann", headers={"If-None-Match": "*"}))
        expect(412, boss.send(method, f"{path}ann", headers={"If-Match": '"x"'}))
    expect(206, boss.get(f"{path}ann", headers={"Range": "bytes=2-4"}))
    expect(416, boss.get(f"{path}ann", headers={"Range": "bytes=10-"}))


def conflict(served: Served, assets: str) -> None:
    """Conflicts, conditions that do not hold, sources that cannot be read, and locks that are taken."""
    boss, head = served.boss, served.head()
    expect(409, boss.post("/branches", {"name": "draft"}))
    expect(409, boss.post("/tags", {"name": "t"}))
    expect(200, boss.post("/branches", {"name": "child", "from": "draft"}))
    expect(409, boss.delete("/branches/draft"))
    expect(200, boss.delete("/branches/child"))
    first = boss.get("/commits").json["commits"][-1]["graph_commit_id"]
    expect(409, boss.get(f"/commits/{first}/changes"))
    gone = {"n": "x", "f": f"{assets}/gone.jpg"}
    row = {"type": "Person", "data": {"name": "x", "photo": gone["f"]}}
    text: dict[str, Any] = {"body": {"data": json.dumps(row)}}
    lines: dict[str, Any] = {"body": f"{json.dumps(row)}\n".encode()}
    for one in WRITERS:
        if one.conditional:
            expect(412, send(boss, one, head=first))
        if 424 in one.statuses:
            other = {"load": text, "ingest": text, "load_ndjson": lines}.get(one.id)
            expect(424, send(boss, one, head=head, **(other or {"body": BODIES[one.id] | {"params": gone}})))
    with waiting(served.store, 0.1), served.store.exclusive("main"):
        for one in WRITERS:
            expect(409, send(boss, one, head=head, **changing(boss, one, "a")))
    with waiting(served.store, 0.1), served.store.exclusive_refs():
        expect(503, boss.post("/branches", {"name": "late"}))
        expect(503, boss.delete("/branches/draft"))
    for path in ("/queries/near", "/query", "/read"):
        source = {"/query": {"query": NEAR}, "/read": {"query_source": NEAR}}.get(path, {})
        expect(503, boss.post(path, {**source, "params": {"t": "x"}}))


def changing(boss: Client, one: Operation, mark: str) -> dict[str, Any]:
    """What a write needs to change something again."""
    if one.id == "merge_branches":
        expect(200, boss.post("/mutate", {"query": ADD, "params": {"n": mark}, "branch": "draft"}))
    if one.id == "apply_schema":
        return {"body": {"schema_source": BODIES[one.id]["schema_source"].replace("city", f"city_{mark}")}}
    return {}


@contextmanager
def waiting(store: Store, seconds: float) -> Iterator[None]:
    """Let writers wait for a lock no longer than this."""
    before = store.timeouts
    object.__setattr__(store, "timeouts", Timeouts(wait=seconds))
    try:
        yield
    finally:
        object.__setattr__(store, "timeouts", before)


def leave_unknown_outcomes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that fail after their sidecar was written, and that cannot be settled either."""

    def fails(*args: object) -> None:
        raise OmnigraphError("the disk is gone")

    for one in WRITERS:
        changed = changing(served.boss, one, "b")
        head = served.head()
        with monkeypatch.context() as patches, armed(Failpoint.TABLES_COMMITTED):
            patches.setattr(publish, "settle", fails)
            found = expect(503, send(served.boss, one, head=head, **changed))
        assert found.json["recovery_required"]["operation_id"]
        assert "code" not in found.json
        assert served.boss.get("/recoveries").json["pending"]
        expect(200, served.boss.post("/mutate", {"query": ADD, "params": {"n": f"after-{one.id}"}}))
        assert served.boss.get("/recoveries").json["pending"] == []


def read_lost_history(served: Served) -> None:
    """The feed before a schema change, and after a cleanup."""
    boss = served.boss
    commits = [
        expect(200, boss.post("/mutate", {"query": ADD, "params": {"n": name}})).json["commit"]["graph_commit_id"]
        for name in "abc"
    ]
    expect(200, boss.post("/mutate", {"query": 'query q() { insert Crate { name: "c" } }'}))
    start = served.head()
    without = {"schema_source": SCHEMA.replace("node Crate { name: String @key }\n", ""), "allow_data_loss": True}
    expect(200, boss.post("/schema/apply", without))
    expect(409, boss.get(f"/changes?start=after:{start}"))
    with omnigraph.open(str(served.store.objects.uri)) as graph:
        graph.cleanup(keep=1)
    expect(410, boss.get("/changes?start=beginning"))
    found = expect(410, boss.get(f"/commits/{commits[1]}/changes"))
    assert found.json["change_feed_gap"] == {"cursor": None, "first_unreadable_commit_id": commits[1]}


def refuse_busy_actors(served: Served) -> None:
    for one in of_graphs():
        expect(429, send(served.boss, one))


def run_out_of_time(served: Served) -> None:
    for one in of_graphs():
        if one.method in ("GET", "HEAD"):
            expect(413, send(served.boss, one))


def deny_with_an_unfit_policy(served: Served) -> None:
    """After a property is renamed that a condition of the policy names, even its own changes are denied."""
    head = served.head()
    with omnigraph.open(str(served.store.objects.uri)) as graph:
        graph.schema.apply(SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")'))
    for one in of_graphs():
        expect(403, send(served.boss, one, head=head))


def damage(served: Served, root: Path) -> None:
    """The manifest of the graph is removed."""
    head = served.head()
    shutil.rmtree(root / "__manifest")
    for one in of_graphs():
        expect(500, send(served.boss, one, head=head))


def drain(served: Served) -> None:
    service_of(served.app).draining = True
    found = expect(503, served.anyone.get("//readyz"))
    assert found.json["status"] == "draining"
