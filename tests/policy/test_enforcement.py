"""Every verb of a handle obeys the policy: denied without a rule, and allowed by the action that the verb needs.

The test walks all public members of the handles. A new member fails it until it is listed here with its action.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import omnigraph
from omnigraph import BranchHandle, Changes, Graph, Policy, PreparedQuery, Schema, Transaction
from omnigraph.client import members as client_members
from omnigraph.client.call_threads import CallThreads
from omnigraph.client.clients import GraphClient, PreparedMembers
from omnigraph.client.embedded import Embedded
from omnigraph.client.protocol import Settings
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.write_request import Prepared, WriteRequest
from omnigraph.engine.access import Action, Decision, Denial
from omnigraph.errors import AccessDeniedError, InputError, NotFoundError, OmnigraphError
from omnigraph.graph.collections import Branches, Commits, Recovery, Tags
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.restricted.row_scope import Rows, RowScope
from omnigraph.restricted.rule_names import all_keys

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
node Company { name: String @key }
edge Knows: Person -> Person
"""
READ = "query all() { match { $p: Person } return { $p.name } }"
ADD = 'query add() { insert Person { name: "new" } }'


class Listed:
    """A policy that allows listed actions, and records what it is asked."""

    def __init__(self, *allowed: str, hidden: tuple[str, ...] = ()) -> None:
        self.allowed = set(allowed)
        self.hidden = hidden
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.denials: list[Denial] = []

    def decide(
        self, actor: str | None, action: Action, branch: str | None = None, target_branch: str | None = None
    ) -> Decision:
        self.asked.append((action.value, branch, target_branch))
        allowed = actor is not None and action.value in self.allowed
        return Decision(allowed, "listed" if allowed else None, "listed" if allowed else "not listed")

    def rows(
        self, actor: str, action: Action, branch: str | None, accepted: AcceptedSchema, reference: AcceptedSchema
    ) -> RowScope:
        types = {key: Rows.HIDDEN if key in self.hidden else Rows.ALL for key in all_keys(accepted)}
        return RowScope(types, {}, {"actor": actor, "groups": ()})

    def permits(self, actor: str | None, action: Action, branch: str | None) -> bool:
        return actor is not None and action.value in self.allowed

    def reads(self, actor: str | None) -> bool:
        return actor is not None and "read" in self.allowed

    def limits(self, actor: str) -> bool:
        return False  # so that the checks of the verbs are tested, and not a session that sees a part of the graph

    @property
    def digest(self) -> str:
        return f"{sorted(self.allowed)} {self.hidden}"

    def check(self, accepted: AcceptedSchema, former: Callable[[], Iterable[AcceptedSchema]] = tuple) -> None:
        pass

    def record(self, denial: Denial) -> None:
        self.denials.append(denial)


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A graph with two branches, a tag and some commits."""
    address = str(tmp_path / "graph")
    with omnigraph.init(address, SCHEMA, actor="founder") as graph:
        records: list[dict[str, object]] = [
            {"type": "Person", "data": {"name": "ann", "age": 30, "photo": "base64:AAAA"}},
            {"type": "Person", "data": {"name": "bob", "age": 20}},
            {"type": "Company", "data": {"name": "acme"}},
            {"edge": "Knows", "from": "ann", "to": "bob"},
        ]
        graph.load(records, mode="append")
        graph.branches.create("draft")
        graph.mutate('query q() { update Person set { age: 31 } where name = "ann" }', branch="draft")
        graph.tags.create("v1")
        graph.mutate('query q() { insert Company { name: "zeta" } }')
    return address


def opened(address: str, policy: Listed, actor: str | None = "kim") -> Graph:
    return omnigraph.open(address, policy=policy, actor=actor)


def draft_head(graph: Graph) -> str:
    """The head of the branch `draft`. Read through the storage, as an operator does."""
    return graph.session.store.capture("draft").head.id


def main_head(graph: Graph) -> str:
    return graph.session.store.capture("main").head.id


def write(graph: Graph) -> object:
    return graph.write_tables(WriteRequest("main", WriterKind.LOAD), lambda _: Prepared(()))


def transaction(graph: Graph, use: Callable[[Transaction], object]) -> object:
    with graph.branch("draft").transaction() as tx:
        return use(tx)


def client(graph: Graph) -> GraphClient:
    """The client of a graph in this process, as `omnigraph.connect` opens it."""
    return GraphClient(Embedded(graph.session, CallThreads()), Settings(None))


def to_pyg(graph: Graph) -> object:
    """The data of `to_pyg`. Without PyTorch Geometric, it fails after the rows are read."""
    with suppress(InputError):
        return graph.to_pyg()
    return None


def exhausted(found: Any) -> object:
    return list(found)


def with_(manager: Any) -> object:
    with manager as found:
        return found


Verb = tuple[str, Callable[[Graph], object]]
"""The actions that a verb needs, separated by spaces, and a call of the verb."""

FREE = ("", lambda graph: None)
"""A member that gives no access to the graph."""

OTHER = FREE
"""A handle with verbs of its own, which are listed under its class."""

R, X, C, A = "read", "export", "change", "admin"
GRAPH: dict[str, Verb] = {
    "branches": OTHER,
    "commits": OTHER,
    "tags": OTHER,
    "recovery": OTHER,
    "schema": OTHER,
    "changes": OTHER,
    "pipeline": OTHER,
    "branch": OTHER,
    "restricted": OTHER,
    "uri": FREE,
    "default_branch": FREE,
    "read_only": FREE,
    "actor": FREE,
    "embedder": FREE,
    "close": FREE,
    "catalog": (R, lambda g: g.catalog),
    "accepted_schema": (R, lambda g: g.accepted_schema),
    "schema_source": (R, lambda g: g.schema_source),
    "snapshot": (R, lambda g: g.snapshot()),
    "entity": (R, lambda g: g.entity("Person", "ann")),
    "blob": (R, lambda g: g.blob("Person", "ann", "photo")),
    "log": (R, lambda g: g.log("Person", "ann")),
    "blame": (R, lambda g: g.blame("Person", "ann")),
    "export": (X, lambda g: exhausted(g.export())),
    "to_networkx": (X, lambda g: g.to_networkx()),
    "to_numpy": (X, lambda g: g.to_numpy()),
    "to_pyg": (X, to_pyg),
    "draw": (X, lambda g: g.draw()),
    "pin": (R, lambda g: with_(g.pin())),
    "query": (R, lambda g: g.query(READ)),
    "prepare": (R, lambda g: g.prepare(READ)),
    "async_query": (R, lambda g: asyncio.run(g.async_query(READ))),
    "explain": (R, lambda g: g.explain(READ)),
    "refresh": (R, lambda g: g.refresh()),
    "load": (C, lambda g: g.load([{"type": "Person", "data": {"name": "eve"}}], mode="merge")),
    "merge": ("branch_merge", lambda g: g.merge("draft")),
    "revert": (C, lambda g: g.revert(draft_head(g), branch="draft")),
    "cherry_pick": (f"{C} {R}", lambda g: g.cherry_pick(draft_head(g))),
    "restore": (C, lambda g: g.restore("Person", "ann", "v1")),
    "diff": (R, lambda g: g.diff("main", "draft").stat),
    "mutate": (C, lambda g: g.mutate(ADD)),
    "verify": (A, lambda g: g.verify()),
    "repair": (A, lambda g: g.repair()),
    "indexes": (A, lambda g: g.indexes()),
    "ensure_indexes": (A, lambda g: g.ensure_indexes()),
    "optimize": (A, lambda g: g.optimize()),
    "status": (A, lambda g: g.status()),
    "upkeep": (A, lambda g: g.upkeep()),
    "watch_upkeep": (A, lambda g: next(g.watch_upkeep(Event()))),
    "cleanup": (A, lambda g: g.cleanup(keep=5, older_than=timedelta(days=1))),
    "backup": (A, lambda g: g.backup(f"{g.uri.removeprefix('file://')}-backup")),
    "embed": (C, lambda g: g.embed()),
    "write_tables": (C, write),
}
BRANCH: dict[str, Verb] = {
    "head": (R, lambda g: g.branch("draft").head),
    "snapshot": (R, lambda g: g.branch("draft").snapshot()),
    "entity": (R, lambda g: g.branch("draft").entity("Person", "ann")),
    "log": (R, lambda g: g.branch("draft").log("Person", "ann")),
    "blame": (R, lambda g: g.branch("draft").blame("Person", "ann")),
    "blob": (R, lambda g: g.branch("draft").blob("Person", "ann", "photo")),
    "export": (X, lambda g: exhausted(g.branch("draft").export())),
    "query": (R, lambda g: g.branch("draft").query(READ)),
    "prepare": (R, lambda g: g.branch("draft").prepare(READ)),
    "async_query": (R, lambda g: asyncio.run(g.branch("draft").async_query(READ))),
    "mutate": (C, lambda g: g.branch("draft").mutate(ADD)),
    "embed": (C, lambda g: g.branch("draft").embed()),
    "load": (C, lambda g: g.branch("draft").load([{"type": "Person", "data": {"name": "eve"}}], mode="merge")),
    "merge": ("branch_merge", lambda g: g.branch("draft").merge("main")),
    "revert": (C, lambda g: g.branch("draft").revert(draft_head(g))),
    "cherry_pick": (f"{C} {R}", lambda g: g.branch("draft").cherry_pick(main_head(g))),
    "restore": (f"{C} {R}", lambda g: g.branch("draft").restore("Person", "ann", "v1")),
    "transaction": (C, lambda g: with_(g.branch("draft").transaction())),
}
BRANCHES: dict[str, Verb] = {
    "list": (R, lambda g: g.branches.list()),
    "__iter__": (R, lambda g: list(g.branches)),
    "__contains__": (R, lambda g: "draft" in g.branches),
    "create": ("branch_create", lambda g: g.branches.create("other")),
    "delete": ("branch_delete", lambda g: g.branches.delete("draft")),
    "update": ("branch_merge", lambda g: g.branches.update("draft")),
    "reset": ("branch_delete branch_create", lambda g: g.branches.reset("draft", "v1")),
}
COMMITS: dict[str, Verb] = {
    "__iter__": (R, lambda g: list(g.commits)),
    "get": (R, lambda g: g.commits.get("v1")),
    "list": (R, lambda g: g.commits.list()),
}
TAGS: dict[str, Verb] = {
    "__iter__": (R, lambda g: list(g.tags)),
    "list": (R, lambda g: g.tags.list()),
    "create": ("branch_create", lambda g: g.tags.create("v2")),
    "delete": ("branch_delete", lambda g: g.tags.delete("v1")),
}
RECOVERY: dict[str, Verb] = {"list": (A, lambda g: g.recovery.list()), "pending": (A, lambda g: g.recovery.pending())}
SCHEMAS: dict[str, Verb] = {
    "source": (R, lambda g: g.schema.source),
    "catalog": (R, lambda g: g.schema.catalog),
    "accepted": (R, lambda g: g.schema.accepted),
    "show": (R, lambda g: g.schema.show()),
    "plan": (R, lambda g: g.schema.plan(SCHEMA)),
    "apply": ("schema_apply", lambda g: g.schema.apply(SCHEMA)),
}
CHANGES: dict[str, Verb] = {
    "of": (R, lambda g: g.changes.of(draft_head(g))),
    "poll": (R, lambda g: g.changes.poll(start="beginning")),
    "follow": (R, lambda g: list(g.changes.follow(start="beginning", timeout=0))),
    "baseline": (X, lambda g: exhausted(g.changes.baseline())),
}
TRANSACTION: dict[str, Verb] = {
    "mutate": (C, lambda g: transaction(g, lambda tx: tx.mutate(ADD))),
    "load": (C, lambda g: transaction(g, lambda tx: tx.load({"Person": [{"name": "eve"}]}, mode="merge"))),
    "query": (f"{C} {R}", lambda g: transaction(g, lambda tx: tx.query(READ))),
    "snapshot": (f"{C} {R}", lambda g: transaction(g, lambda tx: tx.snapshot())),
    "entity": (f"{C} {R}", lambda g: transaction(g, lambda tx: tx.entity("Person", "ann"))),
}
PREPARED: dict[str, Verb] = {"name": FREE, "__call__": (R, lambda g: g.prepare(READ)())}
EVE = '{"type":"Person","data":{"name":"eve"}}'
CLIENT_GRAPH: dict[str, Verb] = {
    "health": FREE,
    "snapshot": (R, lambda g: client(g).snapshot()),
    "query": (R, lambda g: client(g).query(READ)),
    "mutate": (C, lambda g: client(g).mutate(ADD)),
    "load": (C, lambda g: client(g).load(EVE, mode="merge")),
    "load_ndjson": (C, lambda g: client(g).load_ndjson(EVE, mode="merge")),
    "export": (X, lambda g: exhausted(client(g).export())),
    "export_parts": (X, lambda g: exhausted(client(g).export_parts())),
}
CLIENT_BRANCHES: dict[str, Verb] = {
    "list": (R, lambda g: client(g).branches.list()),
    "create": ("branch_create", lambda g: client(g).branches.create("other")),
    "delete": ("branch_delete", lambda g: client(g).branches.delete("draft")),
    "merge": ("branch_merge", lambda g: client(g).branches.merge("draft")),
}
CLIENT_COMMITS: dict[str, Verb] = {
    "list": (R, lambda g: client(g).commits.list()),
    "retrieve": (R, lambda g: client(g).commits.retrieve(draft_head(g))),
    "changes": (R, lambda g: client(g).commits.changes(draft_head(g))),
}
CLIENT_CHANGES: dict[str, Verb] = {
    "poll": (R, lambda g: client(g).changes.poll(start="beginning")),
    "baseline": (X, lambda g: exhausted(client(g).changes.baseline())),
}
CLIENT_SCHEMA: dict[str, Verb] = {
    "get": (R, lambda g: client(g).schema.get()),
    "apply": ("schema_apply", lambda g: client(g).schema.apply(SCHEMA)),
}
CLIENT_BLOBS: dict[str, Verb] = {
    "stat": (R, lambda g: client(g).blobs.stat("Person", "ann", "photo")),
    "get": (R, lambda g: client(g).blobs.get("Person", "ann", "photo")),
}
# A graph in this process has no stored queries, and its address is the one that the caller has given.
CLIENT_QUERIES: dict[str, Verb] = {"list": FREE, "invoke": FREE, "invoke_mutation": FREE}
CLIENT_GRAPHS: dict[str, Verb] = {"list": FREE}
CLIENT_PREPARED: dict[str, Verb] = {"call": (R, lambda g: client(g).prepare(READ)())}
HANDLES: dict[type, dict[str, Verb]] = {
    Graph: GRAPH,
    BranchHandle: BRANCH,
    Branches: BRANCHES,
    Commits: COMMITS,
    Tags: TAGS,
    Recovery: RECOVERY,
    Schema: SCHEMAS,
    Changes: CHANGES,
    Transaction: TRANSACTION,
    PreparedQuery: PREPARED,
    client_members.GraphMembers: CLIENT_GRAPH,
    client_members.BranchMembers: CLIENT_BRANCHES,
    client_members.CommitMembers: CLIENT_COMMITS,
    client_members.ChangeMembers: CLIENT_CHANGES,
    client_members.SchemaMembers: CLIENT_SCHEMA,
    client_members.BlobMembers: CLIENT_BLOBS,
    client_members.QueryMembers: CLIENT_QUERIES,
    client_members.ServerMembers: CLIENT_GRAPHS,
    PreparedMembers: CLIENT_PREPARED,
}
VERBS = {
    f"{handle.__name__}.{name}": verb for handle, verbs in HANDLES.items() for name, verb in verbs.items() if verb[0]
}
WRITES = {name for name, (actions, _) in VERBS.items() if set(actions.split()) - {R, X}}


def members(handle: type) -> Iterator[str]:
    """The public members of a handle, and the special methods that give access to something."""
    for name, value in vars(handle).items():
        special = name in ("__iter__", "__contains__", "__call__", "__getitem__", "__len__")
        if special or (not name.startswith("_") and (callable(value) or hasattr(value, "__get__"))):
            yield name


@pytest.mark.parametrize("handle", HANDLES, ids=lambda handle: handle.__name__)
def test_every_member_of_a_handle_is_listed(handle: type) -> None:
    """If this fails: add the check to the new verb in the engine, and the verb to this file."""
    assert set(members(handle)) == set(HANDLES[handle])


def test_the_walk_finds_members_of_all_kinds() -> None:
    class Handle:
        def verb(self) -> None: ...

        @property
        def value(self) -> int:
            return 1

        def __iter__(self) -> Iterator[int]:
            return iter(())

        def _private(self) -> None: ...

    assert set(members(Handle)) == {"verb", "value", "__iter__"}
    assert inspect.isclass(Handle)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_denied_without_a_rule(name: str, address: str) -> None:
    policy = Listed()
    with opened(address, policy) as graph:
        version = graph.session.store.capture("main").version, graph.session.store.capture("draft").version
        with pytest.raises((AccessDeniedError, NotFoundError)) as raised:
            VERBS[name][1](graph)
        assert (graph.session.store.capture("main").version, graph.session.store.capture("draft").version) == version
    actions = VERBS[name][0].split()
    assert len(policy.denials) == 1
    assert policy.denials[0].action in actions
    assert policy.denials[0].actor == "kim"
    if isinstance(raised.value, AccessDeniedError):
        assert raised.value.action in actions
        assert "not listed" in str(raised.value.hint)
    else:
        assert name in ("Changes.of", "CommitMembers.changes")


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_allowed_by_its_actions_alone(name: str, address: str) -> None:
    policy = Listed(*VERBS[name][0].split())
    with opened(address, policy) as graph:
        VERBS[name][1](graph)
    assert not policy.denials
    assert {action for action, _, _ in policy.asked} == set(VERBS[name][0].split()), "it asks for no other action"


@pytest.mark.parametrize("name", [name for name, (actions, _) in VERBS.items() if " " in actions])
def test_a_verb_needs_all_of_its_actions(name: str, address: str) -> None:
    actions = VERBS[name][0].split()
    for missing in actions:
        policy = Listed(*(action for action in actions if action != missing))
        with opened(address, policy) as graph, pytest.raises(AccessDeniedError):
            VERBS[name][1](graph)


@pytest.mark.parametrize("name", VERBS)
def test_without_an_actor_everything_is_denied(name: str, address: str) -> None:
    policy = Listed(*(action.value for action in Action))
    with (
        opened(address, policy, actor=None) as graph,
        pytest.raises((AccessDeniedError, NotFoundError)),
    ):
        VERBS[name][1](graph)
    assert [denial.actor for denial in policy.denials] == [None]


def test_without_a_policy_nothing_is_checked(address: str) -> None:
    with omnigraph.open(address) as graph:
        assert graph.session.access is None
        assert len(graph.query(READ)) == 2


# ---- the branches that a verb asks about

ASKED: dict[str, tuple[Callable[[Graph], object], list[tuple[str, str | None, str | None]]]] = {
    "a query of the default branch": (lambda g: g.query(READ), [("read", "main", None)]),
    "a query of a branch": (lambda g: g.query(READ, branch="draft"), [("read", "draft", None)]),
    "a query of a commit": (lambda g: g.query(READ, at=draft_head(g)), [("read", "draft", None)]),
    "a query of a tag": (lambda g: g.query(READ, at="v1"), [("read", "main", None)]),
    "the schema": (lambda g: g.schema.show(), [("read", None, None)]),
    "the branches": (lambda g: g.branches.list(), [("read", None, None)]),
    "a commit": (lambda g: g.commits.get("v1"), [("read", None, None)]),
    "the commits": (lambda g: g.commits.list(branch="draft"), [("read", "draft", None)]),
    "the changes of a commit": (lambda g: g.changes.of(draft_head(g)), [("read", "draft", None)]),
    "an export": (lambda g: exhausted(g.export(branch="draft")), [("export", "draft", None)]),
    "a diff": (lambda g: g.diff("main", "draft"), [("read", "main", None), ("read", "draft", None)]),
    "a mutation": (lambda g: g.mutate(ADD, branch="draft"), [("change", "draft", None)]),
    "a new branch": (lambda g: g.branches.create("x", source="draft"), [("branch_create", "draft", "x")]),
    "a branch at a commit": (
        lambda g: g.branches.create(" x ", commit=draft_head(g)),
        [("branch_create", "draft", "x")],
    ),
    "a deletion": (lambda g: g.branches.delete(" draft "), [("branch_delete", None, "draft")]),
    "a merge": (lambda g: g.merge("draft", " main "), [("branch_merge", "draft", "main")]),
    "a merge that deletes": (
        lambda g: g.merge("draft", delete_branch=True),
        [("branch_merge", "draft", "main"), ("branch_delete", None, "draft")],
    ),
    "the snapshot of a client": (lambda g: client(g).snapshot("draft"), [("read", "draft", None)]),
    "the snapshot of a commit of a client": (lambda g: client(g).snapshot(at="v1"), [("read", "main", None)]),
    "the schema of a client": (lambda g: client(g).schema.get(), [("read", None, None)]),
    "the branches of a client": (lambda g: client(g).branches.list(), [("read", None, None)]),
    "a commit of a client": (lambda g: client(g).commits.retrieve("v1"), [("read", None, None)]),
    "a schema change": (lambda g: g.schema.apply(SCHEMA), [("schema_apply", None, "main")]),
    "a load that forks": (
        lambda g: g.load({"Person": [{"name": "eve"}]}, mode="append", branch="new", base="draft"),
        [("change", "new", None), ("branch_create", "draft", "new")],
    ),
    "a transaction": (
        lambda g: transaction(g, lambda tx: (tx.mutate(ADD), tx.query(READ), tx.load({"Company": []}, mode="merge"))),
        [("change", "draft", None), ("read", "draft", None)],
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_verb_asks_once_with_its_branches(name: str, address: str) -> None:
    call, expected = ASKED[name]
    policy = Listed(*(action.value for action in Action))
    with opened(address, policy) as graph:
        call(graph)
    assert policy.asked == expected


def test_a_denied_commit_looks_like_an_unknown_one(address: str) -> None:
    with opened(address, Listed()) as graph:
        known, unknown = draft_head(graph), "01ZZZZZZZZZZZZZZZZZZZZZZZZ"
        errors = []
        for commit in (known, unknown):
            with pytest.raises(NotFoundError) as raised:
                graph.changes.of(commit)
            errors.append((type(raised.value), str(raised.value).replace(commit, "ID"), raised.value.hint))
        assert errors[0] == errors[1]


def test_a_denial_does_not_show_whether_a_branch_exists(address: str) -> None:
    with opened(address, Listed()) as graph:
        messages = []
        for branch in ("draft", "nosuch"):
            with pytest.raises(AccessDeniedError) as raised:
                graph.query(READ, branch=branch)
            messages.append(str(raised.value).replace(branch, "NAME"))
        assert messages[0] == messages[1]


class OnDrafts(Listed):
    """Allows everything on branches that are not `main`, and nothing without a branch."""

    def decide(
        self, actor: str | None, action: Action, branch: str | None = None, target_branch: str | None = None
    ) -> Decision:
        allowed = {branch, target_branch} - {None} != set() and "main" not in (branch, target_branch)
        return Decision(allowed, "drafts", "only drafts")

    def permits(self, actor: str | None, action: Action, branch: str | None) -> bool:
        return self.decide(actor, action, branch).allowed

    def reads(self, actor: str | None) -> bool:
        return True


@pytest.mark.parametrize(
    "call",
    [
        lambda g, commit: g.query(READ, at=commit),
        lambda g, commit: g.snapshot(commit=commit),
        lambda g, commit: g.entity("Person", "ann", at=commit),
        lambda g, commit: g.diff("draft", commit),
        lambda g, commit: g.schema.show(at=commit),
        lambda g, commit: g.changes.of(commit),
        lambda g, commit: g.cherry_pick(commit, "draft"),
        lambda g, commit: g.commits.get(commit),
        lambda g, commit: g.restore("Person", "ann", commit, branch="draft"),
        lambda g, commit: g.blob("Person", "ann", "photo", at=commit),
        lambda g, commit: g.log("Person", "ann", at=commit),
        lambda g, commit: exhausted(g.export(at=commit)),
        lambda g, commit: client(g).snapshot(at=commit),
        lambda g, commit: client(g).schema.get(at=commit),
        lambda g, commit: client(g).commits.retrieve(commit),
        lambda g, commit: client(g).commits.changes(commit),
        lambda g, commit: client(g).blobs.stat("Person", "ann", "photo", snapshot=commit),
    ],
)
def test_an_actor_of_some_branches_cannot_find_commits_of_others(
    call: Callable[[Graph, str], object], address: str
) -> None:
    """A commit of a branch that the actor may not read, and one that does not exist, give the same error."""
    with opened(address, OnDrafts()) as graph:
        errors = []
        for commit in (main_head(graph), "01ZZZZZZZZZZZZZZZZZZZZZZZZ"):
            with pytest.raises((AccessDeniedError, NotFoundError)) as raised:
                call(graph, commit)
            text = str(raised.value).replace(commit, "ID")
            errors.append((type(raised.value), text, raised.value.hint))
        assert errors[0] == errors[1]


def test_an_actor_of_some_branches_is_not_told_the_names_of_others(address: str) -> None:
    with opened(address, OnDrafts()) as graph, pytest.raises(NotFoundError) as raised:
        graph.query(READ, branch="mian")
    assert "main" not in f"{raised.value} {raised.value.hint}"


def test_a_prepared_query_asks_in_each_call(address: str) -> None:
    policy = Listed("read")
    with opened(address, policy) as graph:
        prepared = graph.prepare(READ)
        assert len(prepared()) == 2
        policy.allowed.clear()
        with pytest.raises(AccessDeniedError):
            prepared()


def test_a_commit_has_the_actor_of_the_session(address: str) -> None:
    """With a policy, a caller cannot write in the name of another actor."""

    def prepare(view: Any) -> Any:
        return Prepared((omnigraph.DeleteIds("node:Company", ["acme"]),))

    with opened(address, Listed("change")) as graph:
        commit = graph.write_tables(WriteRequest("main", WriterKind.LOAD, actor="lee"), prepare)
    assert commit is not None
    assert commit.actor == "kim"


def test_sessions_of_several_actors_share_a_store(address: str) -> None:
    with omnigraph.open(address) as graph:
        kim = Graph(graph.session.bound_to(Listed("read"), "kim"))
        lee = Graph(graph.session.bound_to(Listed(), "lee"))
        assert kim.session.store is graph.session.store
        assert len(kim.query(READ)) == len(graph.query(READ))
        with pytest.raises(AccessDeniedError, match="'lee' is not allowed the action read on branch 'main'"):
            lee.query(READ)
        assert graph.session.actor is None


# ---- types

HIDDEN: dict[str, Callable[[Graph], object]] = {
    "a query": lambda g: g.query("query q() { match { $c: Company } return { $c.name } }"),
    "a count of edges": lambda g: g.query("query q() { match { $a knows $b } return { count(*) as n } }"),
    "a prepared query": lambda g: g.prepare("query q() { match { $c: Company } return { $c.name } }"),
    "an explanation": lambda g: g.explain("query q() { match { $c: Company } return { $c.name } }"),
    "an entity": lambda g: g.entity("Company", "acme"),
    "a log": lambda g: g.log("Company", "acme"),
    "a blame": lambda g: g.blame("Company", "acme"),
    "an export of the type": lambda g: exhausted(g.export(types="Company")),
    "a baseline of the type": lambda g: exhausted(g.changes.baseline(types="Company")),
    "a poll of the type": lambda g: g.changes.poll(start="beginning", types="Company"),
    "the changes of a commit": lambda g: g.changes.of(main_head(g), types="Company"),
    "a diff of the type": lambda g: g.diff("main", "draft", types="Company"),
    "a snapshot": lambda g: g.snapshot(),
    "the catalogue": lambda g: g.catalog,
    "the schema": lambda g: g.schema.show(),
    "an insert": lambda g: g.mutate('query q() { insert Company { name: "new" } }'),
    "a deletion that cascades": lambda g: g.mutate('query q() { delete Person where name = "ann" }'),
    "a load": lambda g: g.load({"Company": [{"name": "new"}]}, mode="append"),
    "a load without a type name": lambda g: g.load([{"type": "Company", "data": {"name": "new"}}], mode="merge"),
    "a load of a transaction": lambda g: transaction(g, lambda tx: tx.load({"Company": [{"name": "x"}]}, mode="merge")),
    "a mutation of a transaction": lambda g: transaction(
        g, lambda tx: tx.mutate('query q() { insert Company { name: "new" } }')
    ),
    "a query of a transaction": lambda g: transaction(
        g, lambda tx: tx.query("query q() { match { $c: Company } return { $c.name } }")
    ),
    "an entity of a transaction": lambda g: transaction(g, lambda tx: tx.entity("Company", "acme")),
    "a restore": lambda g: g.restore("Company", "acme", "v1"),
    "a revert": lambda g: g.revert(main_head(g)),
    "a cherry-pick": lambda g: g.cherry_pick(draft_head(g)),
    "tables": write,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_verb_does_not_use_a_hidden_type(name: str, address: str) -> None:
    policy = Listed(*(action.value for action in Action), hidden=("node:Company", "edge:Knows"))
    with opened(address, policy) as graph:
        version = graph.session.store.capture("main").version, graph.session.store.capture("draft").version
        with pytest.raises(AccessDeniedError) as raised:
            HIDDEN[name](graph)
        assert (graph.session.store.capture("main").version, graph.session.store.capture("draft").version) == version
    assert set(raised.value.types) <= {"node:Company", "edge:Knows"}
    assert raised.value.types
    assert len(policy.denials) == 1


def test_a_request_without_types_is_limited_to_the_visible_ones(address: str) -> None:
    policy = Listed(*(action.value for action in Action), hidden=("node:Company", "edge:Knows"))
    with opened(address, policy) as graph:
        assert len(graph.query(READ)) == 2
        exported = b"".join(graph.export())
        assert exported.count(b"\n") == 2
        assert b"acme" not in exported
        lines = b"".join(graph.changes.baseline())
        assert b"acme" not in lines
        assert b"Knows" not in lines
        blocks = list(graph.changes.follow(start="beginning", timeout=0))
        assert {change.type_name for block in blocks for change in block.changes} == {"Person"}
        assert graph.changes.of(main_head(graph)).changes == ()
        assert [key for key, _ in graph.diff("main", "draft").stat().types] == ["node:Person"]
        found = graph.mutate('query q() { update Person set { age: 1 } where name = "ann" }')
        assert found.commit is not None
    assert not policy.denials


def test_without_any_visible_type_nothing_is_read(address: str) -> None:
    policy = Listed("read", "export", hidden=("node:Person", "node:Company", "edge:Knows"))
    for call in (
        lambda g: exhausted(g.export()),
        lambda g: exhausted(g.changes.baseline()),
        lambda g: g.changes.poll(start="beginning"),
        lambda g: g.changes.of(main_head(g)),
        lambda g: g.diff("main", "draft"),
    ):
        with opened(address, policy) as graph, pytest.raises(AccessDeniedError):
            call(graph)


# ---- row rules and masks, for verbs that do not apply them


class Limited(Listed):
    """A policy that limits the rows of persons."""

    def rows(
        self, actor: str, action: Action, branch: str | None, accepted: AcceptedSchema, reference: AcceptedSchema
    ) -> RowScope:
        return replace(
            super().rows(actor, action, branch, accepted, reference),
            hidden_properties={"node:Person": frozenset({"age"})},
        )


@pytest.mark.parametrize("name", [name for name in VERBS if {R, X, C} & set(VERBS[name][0].split())])
def test_a_verb_that_does_not_apply_row_limits_is_denied(name: str, address: str) -> None:
    """Except for the verbs that read no rows."""
    policy = Limited(*(action.value for action in Action))
    with opened(address, policy) as graph:
        if name.split(".")[0] in ("Branches", "Commits", "Tags") or name in (
            "BranchHandle.transaction",
            "BranchHandle.head",
            "BranchMembers.list",
            "CommitMembers.list",
            "CommitMembers.retrieve",
        ):
            VERBS[name][1](graph)
            return
        with pytest.raises(AccessDeniedError):
            VERBS[name][1](graph)


def test_a_policy_file_is_read_by_open(address: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        """
version: 1
groups: {crew: [kim]}
protected_branches: [main]
rules:
  - {id: reads, allow: {actors: {group: crew}, actions: [read], types: [Person, Knows]}}
  - {id: drafts, allow: {actors: {group: crew}, actions: [change], branch_scope: unprotected}}
"""
    )
    with omnigraph.open(address, policy=path, actor="kim") as graph:
        assert isinstance(graph.session.access.policy, Policy)  # type: ignore[union-attr]
        assert len(graph.query(READ)) == 2
        graph.mutate(ADD, branch="draft")
        with pytest.raises(AccessDeniedError, match="'kim' is not allowed the action change on branch 'main'"):
            graph.mutate(ADD)
        with pytest.raises(OmnigraphError):
            graph.entity("Company", "acme")
