"""An actor with row rules, hidden types or masks reads and changes only what its policy shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph
from omnigraph import Graph, Policy
from omnigraph.commit.schema_files import archived_schemas
from omnigraph.engine import schemas
from omnigraph.engine.access import Action
from omnigraph.errors import AccessDeniedError, CompileError, NotFoundError, OmnigraphError, PolicyError
from omnigraph.lang.schema import accept, compile_schema, evolve
from omnigraph.pipeline.analytics.analysis import analyse
from omnigraph.policy.denials import DenialLog

SCHEMA = """
node Task { name: String @key  owner: String  pay: I32?  photo: Blob? }
node Vault { code: String @key }
edge Needs: Task -> Task
edge Opens: Task -> Vault
"""
BUNDLE: dict[str, Any] = {
    "version": 1,
    "groups": {"crew": ["kim", "lee"], "boss": ["ann"]},
    "protected_branches": ["main"],
    "rules": [
        {"id": "reads", "allow": {"actors": {"group": "crew"}, "actions": ["read"], "types": ["Task", "Needs"]}},
        {"id": "exports", "allow": {"actors": {"group": "crew"}, "actions": ["export"], "types": ["Task"]}},
        {"id": "changes", "allow": {"actors": {"group": "crew"}, "actions": ["change"], "types": ["Task", "Needs"]}},
        {"id": "merges", "allow": {"actors": {"group": "crew"}, "actions": ["branch_merge", "branch_create"]}},
        {
            "id": "boss",
            "allow": {"actors": {"group": "boss"}, "actions": ["read", "export", "change", "branch_merge", "admin"]},
        },
    ],
    "row_rules": [
        {"id": "own", "actors": {"group": "crew"}, "type": "Task", "actions": ["read"], "where": "$.owner = $actor"},
        {
            "id": "write-own",
            "actors": {"group": "crew"},
            "type": "Task",
            "actions": ["change"],
            "where": '$.owner = $actor and not ($.name = "fixed")',
        },
        {"id": "all", "actors": {"group": "boss"}, "type": "Task", "actions": ["read", "change"]},
    ],
    "masks": [{"id": "no-pay", "actors": {"group": "crew"}, "type": "Task", "properties": ["pay"]}],
}
TASKS = {"a": "kim", "b": "kim", "fixed": "kim", "c": "lee", "d": "lee"}
OF = {"kim": ["a", "b", "fixed"], "lee": ["c", "d"]}
OTHERS = {"kim": ("lee", '"c"', '"d"'), "lee": ("kim", '"a"', '"b"')}
NAMES = "query q() { match { $t: Task } return { $t.name } order { $t.name } }"


@pytest.fixture
def log(tmp_path: Path) -> DenialLog:
    return DenialLog(tmp_path / "denials.jsonl")


@pytest.fixture
def policy(log: DenialLog) -> Policy:
    return Policy.read(BUNDLE, denials=log)


@pytest.fixture
def address(tmp_path: Path) -> str:
    address = str(tmp_path / "graph")
    with omnigraph.init(address, SCHEMA) as graph:
        rows = [
            {"name": name, "owner": owner, "pay": 424_200 + number, "photo": "base64:YWJj"}
            for number, (name, owner) in enumerate(TASKS.items())
        ]
        graph.load({"Task": rows, "Vault": [{"code": "secret"}]}, mode="append")
        graph.load(
            {
                "Needs": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}, {"from": "c", "to": "d"}],
                "Opens": [{"from": "a", "to": "secret"}],
            },
            mode="append",
        )
        graph.branches.create("draft")
    return address


@pytest.fixture(params=["kim", "lee"])
def actor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def graph(address: str, policy: Policy, actor: str) -> Iterator[Graph]:
    with omnigraph.open(address, policy=policy, actor=actor) as made:
        yield made


def names(graph: Graph, **options: Any) -> list[str]:
    return [row["t.name"] for row in graph.query(NAMES, **options).to_pylist()]


def says_nothing(text: str, actor: str) -> None:
    for word in (*OTHERS[actor], "Vault", "Opens", "pay", "4242", "secret"):
        assert word not in text, word


def test_queries_see_the_rows_of_the_actor(graph: Graph, actor: str) -> None:
    shown = OF[actor]
    assert names(graph) == shown
    assert graph.prepare(NAMES)().to_pylist() == [{"t.name": name} for name in shown]
    assert len(asyncio.run(graph.async_query(NAMES))) == len(shown)
    counted = graph.query("query q() { match { $t: Task } return { count($t) as n } }").to_pylist()
    assert counted == [{"n": len(shown)}]
    walked = graph.query("query q() { match { $t: Task  $t needs $x } return { $t.name, $x.name } }").to_pylist()
    assert walked == [{"t.name": shown[0], "x.name": shown[1]}]
    says_nothing(str(graph.explain(NAMES, analyze=True)), actor)


def test_entities_blobs_and_histories_are_those_of_visible_rows(graph: Graph, actor: str) -> None:
    own, other = OF[actor][0], OF["lee" if actor == "kim" else "kim"][0]
    found = graph.entity("Task", own)
    assert found is not None
    assert "pay" not in found
    assert graph.entity("Task", other) is None
    assert graph.blob("Task", own, "photo").read() == b"abc"
    assert len(list(graph.log("Task", own)))
    for call in (
        lambda: graph.blob("Task", other, "photo"),
        lambda: graph.log("Task", other),
        lambda: graph.blame("Task", other),
        lambda: graph.entity("Vault", "secret"),
    ):
        with pytest.raises(NotFoundError) as raised:
            call()
        assert "pay" not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["{ match { $v: Vault } return { $v.code } }", "{ match { $t: Task } return { $t.pay } }"]
)
def test_hidden_types_and_properties_do_not_exist(text: str, graph: Graph) -> None:
    with pytest.raises(CompileError):
        graph.query(f"query q() {text}")


def test_the_schema_shows_what_is_visible(graph: Graph, actor: str) -> None:
    for text in (graph.schema.source, graph.schema_source, graph.schema.show()):
        assert "Task" in str(text)
        says_nothing(str(text), actor)
    assert set(graph.catalog.nodes) == {"Task"}


def test_exports_show_what_the_actor_may_export(graph: Graph, actor: str) -> None:
    """The actor may read edges, but not export them."""
    for exported in (graph.export(), graph.export(at=graph.snapshot()), graph.branch("draft").export()):
        lines = list(map(orjson.loads, b"".join(exported).splitlines()))
        assert sorted(line["data"]["name"] for line in lines) == OF[actor]
        says_nothing(str(lines), actor)


def test_diffs_and_feeds_show_visible_rows(graph: Graph, actor: str, address: str) -> None:
    start = graph.changes.poll(start="now").cursor
    before = graph.snapshot().commit.id
    with omnigraph.open(address) as whole:
        whole.load(
            {"Task": [{"name": f"new-{one}", "owner": one, "pay": 424299} for one in ("kim", "lee")]}, mode="merge"
        )
        whole.mutate('query q() { insert Vault { code: "other" } }')
    graph.refresh()
    page = graph.changes.poll(cursor=start)
    head = graph.branch("main").head.id
    seen = [str(page.to_json()), str(list(graph.diff(before, head))), str(graph.diff(before, head).stat)]
    seen.append(str([graph.changes.of(commit.id).to_json() for commit in list(graph.commits)[:2]]))
    assert f"new-{actor}" in seen[0]
    for text in seen:
        for word in (f"new-{'lee' if actor == 'kim' else 'kim'}", "Vault", "other", "424299"):
            assert word not in text
    assert names(graph) == sorted([*OF[actor], f"new-{actor}"])


def test_a_baseline_continues_in_the_feed(graph: Graph, actor: str, address: str) -> None:
    made = graph.changes.baseline(types=["Task"])
    lines = list(map(orjson.loads, b"".join(made).splitlines()))
    assert sorted(line["data"]["name"] for line in lines[:-1]) == OF[actor]
    with omnigraph.open(address) as whole:
        whole.load({"Task": [{"name": "z", "owner": actor}, {"name": "y", "owner": "no one"}]}, mode="merge")
    page = graph.changes.poll(cursor=made.resume_cursor, types=["Task"]).to_json()
    assert "z" in str(page)
    assert "no one" not in str(page)


def test_commits_do_not_count_hidden_rows(graph: Graph, actor: str) -> None:
    for commit in graph.commits:
        says_nothing(str(commit), actor)


def update(graph: Graph, name: str, owner: str) -> None:
    graph.mutate(f'query q() {{ update Task set {{ owner: "{owner}" }} where name = "{name}" }}')


def test_a_change_needs_the_row_before_and_after(address: str, policy: Policy, log: DenialLog) -> None:
    with omnigraph.open(address, policy=policy, actor="kim") as graph:
        graph.mutate('query q() { insert Task { name: "e", owner: "kim" } }')
        assert graph.branch("main").head.actor == "kim"
        for call in (
            lambda: update(graph, "a", "lee"),  # not allowed after
            lambda: update(graph, "fixed", "kim"),  # not allowed before
            lambda: graph.mutate('query q() { insert Task { name: "f", owner: "lee" } }'),
            lambda: graph.load({"Task": [{"name": "c", "owner": "kim"}]}, mode="merge"),  # hidden
            lambda: graph.mutate('query q() { delete Task where name = "fixed" }'),
        ):
            count = len(list(log.records()))
            with pytest.raises(AccessDeniedError) as raised:
                call()
            assert raised.value.action == "change"
            assert "lee" not in str(raised.value)
            assert [one.denial.actor for one in list(log.records())[count:]] == ["kim"]
        update(graph, "c", "kim")  # there is no such row for kim
    with omnigraph.open(address) as whole:
        rows = whole.query("query q() { match { $t: Task } return { $t.name, $t.owner } }").to_pylist()
        assert {row["t.name"]: row["t.owner"] for row in rows} == TASKS | {"e": "kim"}


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.branch("draft").transaction().__enter__(),
        lambda g: g.schema.apply(SCHEMA),
        lambda g: g.status(),
        lambda g: g.pipeline,
        lambda g: analyse(g),
        lambda g: g.cherry_pick("main"),
        lambda g: g.restore("Task", "a", "main"),
        lambda g: g.restricted(omnigraph.RowRules()),
        lambda g: g.session.bound_to(g.session.access.policy, "ann"),
    ],
)
def test_work_on_the_whole_graph_is_denied_and_recorded(call: Any, graph: Graph, actor: str, log: DenialLog) -> None:
    with pytest.raises(AccessDeniedError):
        call(graph)
    assert [one.denial.actor for one in log.records()] == [actor]


def test_an_actor_with_all_rows_has_the_whole_graph(address: str, policy: Policy) -> None:
    with omnigraph.open(address, policy=policy, actor="ann") as graph:
        assert names(graph) == sorted(TASKS)
        graph.status()
        graph.merge("draft")


def test_a_stranger_sees_nothing(address: str, policy: Policy) -> None:
    for actor in ("mia", None):
        with omnigraph.open(address, policy=policy, actor=actor) as graph:
            for call in (lambda: names(graph), lambda: graph.schema.source, lambda: list(graph.commits)):
                with pytest.raises(OmnigraphError):
                    call()


def test_sessions_are_cached_by_policy_and_actor(address: str, policy: Policy) -> None:
    with omnigraph.open(address) as whole:
        kim = whole.session.bound_to(policy, "kim")
        assert whole.session.bound_to(policy, "kim") is kim
        assert whole.session.bound_to(policy, "lee") is not kim
        assert whole.session.bound_to(Policy.read(BUNDLE), "kim") is not kim
        whole.schema.apply(SCHEMA + "node More { code: String @key }\n")
        assert whole.session.bound_to(policy, "kim") is not kim


def test_closing_a_limited_handle_closes_the_graph(address: str, policy: Policy) -> None:
    graph = omnigraph.open(address, policy=policy, actor="kim")
    whole = graph.session.whole
    assert whole is not None
    graph.close()
    assert whole.store.closed


DROPPED: dict[str, Any] = {
    "version": 1,
    "groups": {"crew": ["kim"], "boss": ["ann"]},
    "rules": [{"id": "reads", "allow": {"actors": {"group": "crew"}, "actions": ["read", "export"]}}],
    "row_rules": [{"id": "vault", "actors": {"group": "boss"}, "type": "Vault", "actions": ["read"]}],
    "masks": [{"id": "no-pay", "actors": {"group": "crew"}, "type": "Task", "properties": ["pay"]}],
}


def test_rules_about_dropped_types_and_properties_hide_them_in_old_states(address: str, log: DenialLog) -> None:
    policy = Policy.read(DROPPED, denials=log)
    with omnigraph.open(address) as whole:
        before = whole.branch("main").head.id
        whole.branches.delete("draft")
        whole.schema.apply("node Task { name: String @key  owner: String }\nedge Needs: Task -> Task\n")
    rules = omnigraph.RowRules({"node:Vault": omnigraph.Rows.HIDDEN}, {"node:Task": ["pay"]})
    with omnigraph.open(address, policy=policy, actor="kim") as kim, omnigraph.open(address) as whole:
        for graph in (kim, whole.restricted(rules)):
            shown = b"".join(graph.export(at=before)) + graph.schema.show(at=before).encode()
            shown += str(graph.diff(before, "main").to_json()).encode()
            assert b"Task" in shown
            assert not [word for word in (b"pay", b"4242", b"secret", b"Vault") if word in shown]
        for wrong in ("Vaults", "Opener"):
            with pytest.raises(PolicyError, match=f"there is no type '{wrong}'"):
                whole.session.bound_to(Policy.read(_about(wrong, "pay"), denials=log), "kim")
        with pytest.raises(PolicyError, match="Task has no property 'pays'"):
            whole.session.bound_to(Policy.read(_about("Vault", "pays"), denials=log), "kim")


@pytest.mark.parametrize("turned", [False, True])
def test_a_rule_about_a_dropped_type_fits_if_one_of_its_schemas_did(turned: bool) -> None:
    """The archive has no order: a property that the type did not always have makes no difference."""
    first = accept(compile_schema("node Task { name: String @key }\nnode Doc { name: String @key }"), "test")
    later = "node Task { name: String @key }\nnode Doc { name: String @key  owner: String? }"
    second = evolve(first, compile_schema(later))
    now = evolve(second, compile_schema("node Task { name: String @key }"))
    former = [second, first] if turned else [first, second]
    rule = {"id": "own", "actors": {"group": "crew"}, "type": "Doc", "actions": ["read"], "where": "$.owner = $actor"}
    mask = {"id": "no-owner", "actors": {"group": "crew"}, "type": "Doc", "properties": ["owner"]}
    rules = {"version": 1, "groups": {"crew": ["kim"]}, "rules": DROPPED["rules"]}
    policy = Policy.read(rules | {"row_rules": [rule], "masks": [mask]})
    policy.check(now, lambda: former)
    assert policy.rows("kim", Action.READ, "main", first, now).rows_of("node:Doc") is omnigraph.Rows.HIDDEN
    assert policy.rows("kim", Action.READ, "main", second, now).masked("node:Doc") == {"owner"}
    with pytest.raises(PolicyError, match="ownr"):
        Policy.read(rules | {"row_rules": [rule | {"where": "$.ownr = $actor"}]}).check(now, lambda: former)
    with pytest.raises(PolicyError, match="Doc has no property 'ownr'"):
        Policy.read(rules | {"masks": [mask | {"properties": ["ownr"]}]}).check(now, lambda: former)


def test_former_schemas_are_read_once_for_all_actors(
    address: str, log: DenialLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, reads = Policy.read(DROPPED, denials=log), []

    def counted(objects: Any) -> Any:
        reads.append(objects)
        return archived_schemas(objects)

    monkeypatch.setattr(schemas, "archived_schemas", counted)
    with omnigraph.open(address) as whole:
        whole.schema.apply(
            SCHEMA.replace("pay: I32?", "")
            .replace("node Vault { code: String @key }", "")
            .replace("edge Opens: Task -> Vault", "")
        )
        for actor in ("kim", "lee", "ann"):
            whole.session.bound_to(policy, actor)
        assert len(reads) == 1
        whole.schema.apply("node Task { name: String @key  owner: String }")
        renamed = DROPPED | {"row_rules": [DROPPED["row_rules"][0] | {"type": "Needs"}]}
        for actor in ("kim", "lee"):
            whole.session.bound_to(Policy.read(renamed, denials=log), actor)
        assert len(reads) == 2


def _about(type_name: str, prop: str) -> dict[str, Any]:
    (rule,), (mask,) = DROPPED["row_rules"], DROPPED["masks"]
    return DROPPED | {"row_rules": [rule | {"type": type_name}], "masks": [mask | {"properties": [prop]}]}
