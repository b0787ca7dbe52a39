"""Requests to every route, with names that exist in one graph of a pair, in both, or in none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.leaks.worlds import TYPES, UNKNOWN, VAULT, World

TYPE_NAMES = ("Vault", "Treasure", "Nonsense", "Task")
BRANCH_NAMES = ("draft", "hidden-x", "nosuch", "draf", "hidden")
COMMIT_NAMES = ("hidden", "main", UNKNOWN, "drafted", "hidden-tag", "v1", "nosuch", "draft", "hidden-x")
TASKS = ("lee-1", "lea-1", "kim-1", "nobody")
ARROW, NDJSON = "application/vnd.apache.arrow.stream", "application/x-ndjson"


@dataclass(frozen=True)
class Probe:
    """One request. `{commit:NAME}` stands for a commit of the graph.

    Attributes:
        body: JSON, or bytes with the media type.
    """

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/json"


def get(path: str, **query: str | list[str]) -> Probe:
    pairs = [(name, one) for name, value in query.items() for one in ([value] if isinstance(value, str) else value)]
    text = "&".join(f"{name}={quote(one, safe='')}" for name, one in pairs)
    return Probe("GET", f"{path}?{text}" if text else path)


def post(path: str, body: Any = None, **headers: str) -> Probe:
    return Probe("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})


def commits(world: World) -> list[str]:
    return [world.commits.get(name, name) for name in COMMIT_NAMES]


QUERIES = (
    "query q() { match { $t: Task } return { $t.* } }",
    "query q() { match { $t: Task } return { count($t) as n, min($t.title) as least, max($t.place) as p } }",
    "query q() { match { $t: Task } return { count($t) as n, min($t.title) as least } }",
    "query q() { match { $t: Task } return { $t.owner as o, count($t) as n } order { o } }",
    "query q() { match { $t: Task  $t needs $n } return { $t.name as t, $n.name as n } }",
    "query q() { match { $t: Task  $t needs{1,4} $n } return { $t.name as t, $n.name as n } }",
    "query q() { match { $t: Task  $t $e:needs $n } return { $t.name as t, $e.weight as w, $e.id as i } }",
    "query q() { match { $l: Log  $l wrote $t } return { $l.name as l, count($t) as n } }",
    "query q() { match { $t: Task  not { $t needs $n } } return { $t.name as t } }",
    "query q() { match { $t: Task  optional { $t needs $n } } return { $t.name as t, $n.name as n } }",
    'query q() { match { $t: Task  search($t.title, "fox") } return { $t.name as t, bm25($t.title, "fox") as s } }',
    'query q() { match { $t: Task } return { $t.name as t } order { bm25($t.title, "fox number") } limit 3 }',
    "query q() { match { $t: Task } return { $t.name as t } order { nearest($t.place, [1.0, 0.25]) } limit 3 }",
    'query q() { match { $t: Task  $t.name = "lee-1" } return { $t.title as t } }',
    'query q() { match { $t: Task  $t.email = "lea1@x" } return { $t.title as t } }',
    "query q() { match { $t: Task } return { $t.pay as p } }",
    "query q() { match { $t: Task  $t.pay > 6000 } return { $t.name as t } }",
    "query q() { match { $t: Task } return { $t.name as t } order { $t.pay } }",
    "query q() { match { $t: Task  $t $e:needs $n } return { $e.cause as c } }",
    "query q() { match { $v: Vault } return { $v.code as c } }",
    "query q() { match { $v: Treasur } return { $v.code as c } }",
    "query q() { match { $v: Precious } return { $v.worth as w } }",
    "query q() { match { $t: Task  $t guards $v } return { $t.name as t } }",
    "query q() { match { $t: Task  $t opens $v } return { count($v) as n } }",
    "query q() { match { $t: Task } return { $t.nothing as n } }",
    "query q() { match { $t: Nonsense } return { $t.name as n } }",
    "query q() { match { $t: Task } return { ",
)
"""Queries that read, with visible, hidden and unknown names."""

MUTATIONS = (
    'query q() { insert Task { name: "new-1", owner: "kim" } }',
    'query q() { insert Task { name: "lea-3", owner: "zed" } }',
    'query q() { insert Task { name: "kim-1", owner: "kim" } }',
    'query q() { update Task set { title: "changed" } where owner = "kim" }',
    'query q() { update Task set { title: "changed" } where name in ["lee-1", "lea-1"] }',
    "query q() { update Task set { pay: 1 } where true }",
    "query q() { update Task set { title: null } where pay > 6000 }",
    'query q() { delete Task where name = "lea-3" }',
    'query q() { delete Task where name = "lee-1" }',
    'query q() { delete Task where name = "kim-4" }',
    'query q() { insert Needs { from: "kim-3", to: "kim-2", weight: 1 } }',
    'query q() { insert Needs { from: "kim-3", to: "zoe-9", weight: 1 } }',
    'query q() { delete Needs where from = "kim-3" }',
    'query q() { insert Vault { code: "x" } }',
    'query q() { insert Treasure { code: "x" } }',
    'query q() { insert Nonsense { code: "x" } }',
    'query q() { insert Opens { from: "kim-1", to: "vault-1" } }',
    "query q() { delete Crown where true }",
    "query q() { match { $t: Task } return { $t.name } }",
)
"""Queries that write. None collides with a hidden row, which the one generic error would show."""

LOADS = (
    [{"type": "Task", "data": {"name": "kim-1", "owner": "kim", "title": "loaded"}}],
    [{"type": "Task", "data": {"name": "new-2", "owner": "kim", "email": "new2@x"}}],
    [{"type": "Task", "data": {"name": "new-2", "owner": "kim", "pay": 3}}],
    [{"type": "Task", "data": {"name": "new-3"}}],
    [{"type": "Log", "data": {"name": "log-1", "level": 3}}],
    [{"type": "Vault", "data": {"code": "x"}}],
    [{"type": "Treasure", "data": {"code": "x"}}],
    [{"type": "Nonsense", "data": {"code": "x"}}],
    [{"edge": "Needs", "from": "kim-4", "to": "kim-1"}],
    [{"edge": "Needs", "from": "kim-4", "to": "zoe-9"}],
    [{"edge": "Guards", "from": "kim-1", "to": "hoard-0"}],
    [{"edge": "Wears", "from": "kim-1", "to": "crown-1"}],
)


def queries(world: World) -> Iterator[Probe]:
    for text in QUERIES:
        yield post("/query", {"query": text})
    for media in (ARROW, NDJSON):
        yield post("/query", {"query": QUERIES[0]}, Accept=media)
    for branch in BRANCH_NAMES:
        yield post("/query", {"query": QUERIES[3], "branch": branch})
    for commit in commits(world):
        yield post("/query", {"query": QUERIES[3], "snapshot": commit})
    yield post("/query", {"query": QUERIES[0], "budget": {"rows": 1}})
    yield post("/query", {"query": QUERIES[0], "budget": {"returned": 1}})


def reads(world: World) -> Iterator[Probe]:
    for text in QUERIES[:4]:
        yield post("/read", {"query_source": text})


def mutations(path: str, world: World, **headers: str) -> Iterator[Probe]:
    for text in MUTATIONS:
        yield post(path, {"query": text, "message": "probe"}, **headers)
    for branch in BRANCH_NAMES:
        yield post(path, {"query": MUTATIONS[3], "branch": branch}, **headers)


def conditional(world: World) -> Iterator[Probe]:
    yield from mutations("/mutate/if-graph-commit", world, Omnigraph_If_Graph_Commit=world.commits["hidden"])


def mutate(world: World) -> Iterator[Probe]:
    yield from mutations("/mutate", world)
    for _ in range(2):
        yield post("/mutate", {"query": 'query q() { insert Log { name: "keyed", level: 1 } }'}, Idempotency_Key="k-1")
    yield post("/mutate", {"query": 'query q() { insert Log { name: "other", level: 1 } }'}, Idempotency_Key="k-1")
    yield post("/mutate", {"query": 'query q() { insert Log { name: "founded", level: 1 } }'}, Idempotency_Key="theirs")


def change(world: World) -> Iterator[Probe]:
    yield post("/change", {"query_source": MUTATIONS[3]})
    yield post("/change", {"query_source": MUTATIONS[13]})


def lines(rows: Any) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def loads(path: str, world: World) -> Iterator[Probe]:
    for rows in LOADS:
        yield post(path, {"data": lines(rows), "mode": "append" if path == "/ingest" else "merge"})
    yield post(path, {"data": "{"})
    for branch in BRANCH_NAMES:
        yield post(path, {"data": lines(LOADS[0]), "branch": branch})
    for base in ("draft", "hidden-x", "nosuch", "release"):
        yield post(path, {"data": lines(LOADS[0]), "branch": f"made-from-{base}", "from": base})


def load_ndjson(world: World) -> Iterator[Probe]:
    for rows in LOADS:
        yield Probe("POST", "/load/ndjson?mode=merge", lines(rows).encode(), media=NDJSON)
    for branch in BRANCH_NAMES:
        yield Probe("POST", f"/load/ndjson?branch={branch}", lines(LOADS[0]).encode(), media=NDJSON)


def stored(world: World) -> Iterator[Probe]:
    for name in ("tasks", "one", "pays", "pay_all", "vaults", "lock", "hoards", "bury", "nosuch", "hoard"):
        for body in (None, {"params": {"n": "kim-1", "c": "x"}}, {"expect_mutation": True}, {"expect_mutation": False}):
            yield post(f"/queries/{name}", body)
        yield post(f"/queries/{name}", {"params": "wrong"})
        yield post(f"/queries/{name}", {"snapshot": world.commits["main"]})
        yield post(f"/queries/{name}", {"branch": "nosuch"})
        yield post(f"/queries/{name}", {}, Idempotency_Key="k-2")


def stored_conditional(world: World) -> Iterator[Probe]:
    for name in ("tasks", "add", "vaults", "lock", "hoards", "bury", "nosuch"):
        yield post(f"/queries/{name}/if-graph-commit", {}, Omnigraph_If_Graph_Commit=UNKNOWN)


def create_branch(world: World) -> Iterator[Probe]:
    for name in ("made", "made/below", "v1", "bad name", "main", "release"):
        yield post("/branches", {"name": name})
    for source in BRANCH_NAMES:
        yield post("/branches", {"name": f"from-{source}", "from": source})
    for number, commit in enumerate(commits(world)):
        yield post("/branches", {"name": f"at-{number}", "commit": commit})


def delete_branch(world: World) -> Iterator[Probe]:
    for name in ("made", "nosuch", "main", "draf", "hidden", "from-nosuch", "at-1"):
        yield Probe("DELETE", f"/branches/{quote(name, safe='')}")


def merges(world: World) -> Iterator[Probe]:
    for source, target in (("release", "main"), ("nosuch", "main"), ("main", "nosuch"), ("main", "main")):
        yield post("/branches/merge", {"source": source, "target": target, "preview": True})
    resolutions = [
        {"entity_kind": "node", "type_name": name, "entity_id": entity, "side": "ours"}
        for name, entity in (("Treasure", "hoard-0"), ("Vault", "vault-1"), ("Nonsense", "x"), ("Task", "lea-1"))
    ]
    for one in resolutions:
        yield post("/branches/merge", {"source": "release", "preview": True, "resolutions": [one]})
    yield post("/branches/merge", {"source": "release", "strategy": "ours", "preview": True})
    yield post("/branches/merge", {"source": "release"})
    yield post("/branches/merge", {"source": "release"})
    yield post("/branches/merge", {"source": "main", "target": "release", "delete_branch": True})


def merges_of_others(world: World) -> Iterator[Probe]:
    """Merges of branches that actors without rules for branches may see."""
    for source in ("draft", "clash", "twist"):
        for options in ({"preview": True}, {}, {"strategy": "theirs", "preview": True}, {"strategy": "theirs"}):
            yield post("/branches/merge", {"source": source, **options})
    yield post("/branches/merge", {"source": "twist", "target": "draft", "delete_branch": True})


def all_merges(world: World) -> Iterator[Probe]:
    yield from merges(world)
    yield from merges_of_others(world)


def list_branches(world: World) -> Iterator[Probe]:
    yield get("/branches")
    yield get("/branches", limit="1")
    yield get("/branches", limit="1", cursor="draft")


def list_commits(world: World) -> Iterator[Probe]:
    yield get("/commits")
    yield get("/commits", limit="2")
    yield get("/commits", limit="2", cursor=world.commits["main"])
    yield get("/commits", cursor=world.commits["hidden"])
    for branch in BRANCH_NAMES:
        yield get("/commits", branch=branch)


def get_commit(world: World) -> Iterator[Probe]:
    for commit in commits(world):
        yield get(f"/commits/{commit}")


def commit_changes(world: World) -> Iterator[Probe]:
    for commit in commits(world):
        yield get(f"/commits/{commit}/changes")
    for name in TYPE_NAMES:
        yield get(f"/commits/{world.commits['main']}/changes", type=name)
    yield get(f"/commits/{world.commits['main']}/changes", limit="1", type="Task")


def poll(world: World) -> Iterator[Probe]:
    yield get("/changes", start="beginning")
    yield get("/changes", start="beginning", limit="1", kind="edge", type="Needs")
    yield get("/changes", start="now")
    for name in TYPE_NAMES:
        yield get("/changes", start="beginning", type=name)
    for commit in commits(world):
        yield get("/changes", start=f"after:{commit}")
    for branch in BRANCH_NAMES:
        yield get("/changes", start="now", branch=branch)
    yield get("/changes", cursor="nonsense")


def baseline(world: World) -> Iterator[Probe]:
    yield post("/changes/baseline", {})
    for name in TYPE_NAMES:
        yield post("/changes/baseline", {"type": [name]})
    for branch in BRANCH_NAMES:
        yield post("/changes/baseline", {"branch": branch})


def export(world: World) -> Iterator[Probe]:
    yield post("/export", {})
    for name in TYPE_NAMES:
        yield post("/export", {"type_names": [name]})
    for branch in BRANCH_NAMES:
        yield post("/export", {"branch": branch})
    for commit in commits(world):
        yield post("/export", {"snapshot": commit})


def diffs(world: World) -> Iterator[Probe]:
    for name in commits(world):
        yield Probe("GET", f"/diff?from={quote(name)}&to=main")
    for name in ("release", *BRANCH_NAMES):
        yield Probe("GET", f"/diff?from=main&to={quote(name)}")
    for name in TYPE_NAMES:
        yield Probe("GET", f"/diff?from=v1&to=main&type={name}")
    for task in TASKS:
        yield Probe("GET", f"/diff?from=v1&to=main&id={task}")
    yield Probe("GET", "/diff?from=v1&to=main&limit=1")


def list_tags(world: World) -> Iterator[Probe]:
    yield get("/tags")
    yield get("/tags", limit="1")
    yield get("/tags", limit="1", cursor="a")


def create_tag(world: World) -> Iterator[Probe]:
    for name in ("v1", "v2", "main", "bad name"):
        yield post("/tags", {"name": name})
    for branch in BRANCH_NAMES:
        yield post("/tags", {"name": f"tag-{branch}", "branch": branch})
    for number, commit in enumerate(commits(world)):
        yield post("/tags", {"name": f"tag-{number}", "commit": commit})


def delete_tag(world: World) -> Iterator[Probe]:
    for name in ("v2", "nosuch", "hidden-ta", "hidden", "draft"):
        yield Probe("DELETE", f"/tags/{name}")


def snapshot(world: World) -> Iterator[Probe]:
    yield get("/snapshot")
    for branch in BRANCH_NAMES:
        yield get("/snapshot", branch=branch)


def schema_apply(world: World) -> Iterator[Probe]:
    yield post("/schema/apply", {"schema_source": "node Nonsense {"})
    yield post("/schema/apply", {"schema_source": TYPES + VAULT + "node More { name: String @key }"})


def blobs(method: str, world: World) -> Iterator[Probe]:
    for task in TASKS:
        yield replace_method(method, get("/blob", entity="node", type="Task", id=task, property="photo"))
    for prop in ("pay", "title", "nothing"):
        yield replace_method(method, get("/blob", entity="node", type="Task", id="kim-1", property=prop))
    for name in TYPE_NAMES[:-1]:
        yield replace_method(method, get("/blob", entity="node", type=name, id="vault-1", property="code"))
    for branch in BRANCH_NAMES:
        one = get("/blob", entity="node", type="Task", id="kim-1", property="photo", branch=branch)
        yield replace_method(method, one)
    for commit in commits(world):
        one = get("/blob", entity="node", type="Task", id="kim-1", property="photo", snapshot=commit)
        yield replace_method(method, one)


def replace_method(method: str, probe: Probe) -> Probe:
    return Probe(method, probe.path)


Probes = Callable[[World], Iterator[Probe]]

READS: dict[str, Probes] = {
    "health": lambda world: iter([Probe("GET", "//healthz")]),
    "readiness": lambda world: iter([Probe("GET", "//readyz")]),
    "list_graphs": lambda world: iter([Probe("GET", "//graphs")]),
    "query": queries,
    "read": reads,
    "list_queries": lambda world: iter([get("/queries")]),
    "list_branches": list_branches,
    "list_commits": list_commits,
    "get_commit": get_commit,
    "list_commit_changes": commit_changes,
    "poll_changes": poll,
    "stream_baseline": baseline,
    "diff": diffs,
    "list_tags": list_tags,
    "list_recoveries": lambda world: iter([get("/recoveries")]),
    "get_snapshot": snapshot,
    "get_schema": lambda world: iter([get("/schema")]),
    "export": export,
    "get_blob": lambda world: blobs("GET", world),
    "stat_blob": lambda world: blobs("HEAD", world),
}
"""Requests that read, by operation."""

WRITES: dict[str, Probes] = {
    "invoke_query": stored,
    "invoke_query_if_graph_commit": stored_conditional,
    "mutate": mutate,
    "mutate_if_graph_commit": conditional,
    "change": change,
    "load": lambda world: loads("/load", world),
    "load_ndjson": load_ndjson,
    "ingest": lambda world: loads("/ingest", world),
    "create_branch": create_branch,
    "create_tag": create_tag,
    "delete_tag": delete_tag,
    "merge_branches": merges,
    "delete_branch": delete_branch,
    "apply_schema": schema_apply,
}
"""Requests that may write, by operation. They are sent in this order, and the reads again after them."""

LAST: dict[str, Probes] = {"metrics": lambda world: iter([Probe("GET", "//metrics")])}
"""Requests about what the others did."""
