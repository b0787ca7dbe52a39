"""Actors who see only a part of a graph create branches and tags, and merge. Nothing hidden shows in that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.leaks.worlds import ACTORS, Hidden, World, build

import omnigraph
from omnigraph import Policy
from omnigraph.errors import (
    AccessDeniedError,
    BranchNotFoundError,
    ChangeFeedGapError,
    ConflictError,
    InputError,
    MergeConflictsError,
)
from omnigraph.graph import Graph
from omnigraph.policy.denials import DenialLog

TITLES = "query q() { match { $t: Task } return { $t.name as name, $t.title as title } order { name } }"
Open = Callable[[str], Graph]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DenialLog:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    monkeypatch.setenv("OMNIGRAPH_DENIALS", str(tmp_path / "denials.jsonl"))
    return DenialLog()


@pytest.fixture
def world(tmp_path: Path, log: DenialLog) -> World:
    return build(tmp_path / "world", Hidden.NOTHING)


@pytest.fixture
def opened(world: World) -> Iterator[Open]:
    """Opens the graph for an actor, or for nobody: without a policy."""
    with ExitStack() as held:

        def opens(actor: str) -> Graph:
            graph = omnigraph.open(world.root) if actor == "nobody" else world.open(actor)
            return held.enter_context(graph)

        yield opens


def titles(graph: Graph, branch: str = "main") -> dict[str, Any]:
    return {row["name"]: row["title"] for row in graph.query(TITLES, branch=branch).to_pylist()}


def test_a_merge_takes_over_hidden_rows(opened: Open) -> None:
    whole, rows = opened("nobody"), opened("rows")
    whole.branches.create("late")
    whole.mutate('query q() { update Task set { title: "late" } where true }', branch="late")
    preview = rows.merge("late", preview=True)
    receipt = rows.merge("late")
    for found in (preview, receipt):
        assert (found.changes, found.previewed, found.edges_kept, found.left_out) == ({}, (), 0, ())
    assert receipt.commit is not None
    assert receipt.commit.counts is None
    assert "merge" not in dict(receipt.commit.labels)
    assert receipt.actor == "rows"
    assert set(titles(opened("nobody")).values()) == {"late"}
    assert whole.branch("main").head.counts is not None, "the stored commit has them"


@pytest.mark.parametrize("options", [{}, {"strategy": "theirs"}, {"strategy": "ours", "preview": True}])
@pytest.mark.parametrize("source", ["draft", "clash"])
def test_a_conflict_about_a_hidden_row_is_refused_without_values(
    source: str, options: dict[str, Any], opened: Open, log: DenialLog
) -> None:
    rows, before = opened("rows"), titles(opened("nobody"))
    with pytest.raises(AccessDeniedError) as raised:
        rows.merge(source, **options)
    assert not [word for word in ("lee", "title", "drafted", "of others") if word in raised.value.render()]
    assert [one.denial.action for one in log.records()] == ["branch_merge"]
    assert titles(opened("nobody")) == before
    assert opened("nobody").merge(source, preview=True).total_conflicts == 1


def test_a_conflict_about_a_visible_row_is_reported_and_resolved(opened: Open) -> None:
    rows = opened("rows")
    with pytest.raises(MergeConflictsError) as raised:
        rows.merge("twist")
    (conflict,) = raised.value.conflicts
    assert (conflict.entity_id, conflict.ours, conflict.theirs) == ("kim-2", {"title": "on main"}, {"title": "twisted"})
    with pytest.raises(InputError, match="no conflict about Task 'lee-1'"):
        rows.merge("twist", resolutions={("Task", "lee-1"): "ours", conflict: "theirs"})
    assert rows.merge("twist", resolutions={conflict: "theirs"}).resolved == 1
    assert titles(rows)["kim-2"] == "twisted"


def test_a_conflict_about_a_masked_property_is_refused(opened: Open) -> None:
    whole = opened("nobody")
    whole.branches.create("raise")
    whole.mutate('query q() { update Task set { pay: 1 } where name = "kim-1" }', branch="raise")
    whole.mutate('query q() { update Task set { pay: 2 } where name = "kim-1" }')
    with pytest.raises(AccessDeniedError) as raised:
        opened("masks").merge("raise")
    assert not [word for word in ("pay", "kim-1") if word in raised.value.render()]
    with pytest.raises(MergeConflictsError):
        opened("types").merge("raise")


def test_a_violation_that_involves_hidden_rows_is_refused(opened: Open) -> None:
    whole = opened("nobody")
    whole.branches.create("mails")
    whole.mutate('query q() { update Task set { email: "same@x" } where name = "kim-1" }', branch="mails")
    whole.mutate('query q() { update Task set { email: "same@x" } where name = "lee-1" }')
    with pytest.raises(AccessDeniedError) as raised:
        opened("rows").merge("mails")
    assert not [word for word in ("email", "same", "lee", "unique") if word in raised.value.render()]


@pytest.mark.parametrize("actor", ["rows", "masks", "types"])
def test_branches_and_tags_of_limited_actors_have_all_rows(actor: str, opened: Open) -> None:
    limited, whole = opened(actor), opened("nobody")
    limited.branches.create("mine")
    tag = limited.tags.create("marked", branch="mine")
    assert titles(whole, "mine") == titles(whole)
    assert tag.commit_id == whole.branch("main").head.id
    limited.load([{"type": "Log", "data": {"name": "l", "level": 1}}], mode="merge", branch="forked", base="mine")
    assert titles(whole, "forked") == titles(whole)
    assert limited.branches.reset("forked", "v1").is_changed
    for name in ("marked", *(one.name for one in limited.tags if one.name.startswith("reset"))):
        limited.tags.delete(name)
    for name in ("forked", "mine"):
        limited.branches.delete(name)
    assert {"mine", "forked"}.isdisjoint(branch.name for branch in whole.branches)


def test_a_branch_that_an_actor_may_not_read_looks_absent(opened: Open, world: World) -> None:
    graph = opened("branches")
    calls: list[Callable[[str], object]] = [
        lambda name: graph.branches.create("x", source=name),
        lambda name: graph.branches.delete(name),
        lambda name: graph.branches.reset(name, "v1"),
        lambda name: graph.tags.create("x", branch=name),
        lambda name: graph.merge(name),
        lambda name: graph.merge("main", name),
        lambda name: graph.load({"Log": []}, mode="append", branch="release2", base=name),
    ]
    for call in calls[:-1]:
        messages = []
        for name in ("draft", "drafx"):
            with pytest.raises(BranchNotFoundError) as raised:
                call(name)
            messages.append(raised.value.render().replace(name, "NAME"))
        assert messages[0] == messages[1]
        assert "clash" not in messages[0]
        assert "twist" not in messages[0]
    assert titles(opened("nobody"), "draft")


@pytest.mark.parametrize("name", ["draft", "draft/below", "drafted"])
def test_a_hidden_name_that_is_taken_gets_the_generic_denial(name: str, opened: Open, log: DenialLog) -> None:
    graph = opened("branches")
    with pytest.raises(AccessDeniedError) as raised:
        graph.branches.create(name)
    assert raised.value.render().count("draft") == raised.value.render().count(name)
    with pytest.raises(AccessDeniedError):
        graph.tags.create(name if "/" not in name else "draft")
    assert {one.denial.action for one in log.records()} == {"branch_create"}
    with pytest.raises(ConflictError):
        graph.branches.create("release")


def test_a_copy_must_not_show_more_than_its_source(tmp_path: Path, log: DenialLog) -> None:
    work = ["branch_create", "branch_merge", "branch_delete", "change"]
    rules = [
        {"id": "some", "allow": {"actors": {"group": "g"}, "actions": ["read"], "types": ["Log"]}},
        {"id": "all", "allow": {"actors": {"group": "g"}, "actions": ["read"], "branch_scope": "unprotected"}},
        {
            "id": "work",
            "allow": {
                "actors": {"group": "g"},
                "actions": work,
            },
        },
    ]
    bundle = {"version": 1, "groups": {"g": ["kim"]}, "protected_branches": ["main"], "rules": rules}
    policy = Policy.read(bundle)
    with omnigraph.init(tmp_path / "g", "node Log { k: String @key }  node Pay { k: String @key }") as whole:
        whole.load({"Log": [{"k": "a"}], "Pay": [{"k": "b"}]}, mode="append")
        whole.branches.create("draft")
        whole.load({"Pay": [{"k": "c"}]}, mode="append")
        whole.load({"Log": [{"k": "d"}]}, mode="append", branch="draft")
    with omnigraph.open(tmp_path / "g", policy=policy, actor="kim") as kim:
        assert kim.query("query q() { match { $p: Pay } return { $p.k } }", branch="draft").row_count == 1
        calls: list[Callable[[], object]] = [
            lambda: kim.branches.create("copy"),
            lambda: kim.branches.create("copy", commit=kim.branch("main").head.id),
            lambda: kim.branches.reset("draft", kim.branch("main").head.id),
            lambda: kim.merge("main", "draft"),
            lambda: kim.load({"Log": []}, mode="append", branch="copy", base="main"),
        ]
        for call in calls:
            with pytest.raises(AccessDeniedError, match="branch"):
                call()
        assert len(list(log.records())) == len(calls)
        kim.branches.create("other", source="draft")
        assert kim.merge("draft").outcome.value == "merged"


def test_an_idempotency_key_belongs_to_its_actor(opened: Open) -> None:
    add = "query q($n: String) { insert Log { name: $n, level: 1 } }"
    first, second = opened("rows"), opened("masks")
    receipts = [graph.mutate(add, {"n": graph.actor}, idempotency_key="k") for graph in (first, second)]
    again = [graph.mutate(add, {"n": graph.actor}, idempotency_key="k") for graph in (first, second)]
    commits = [one.commit.id for one in (*receipts, *again) if one.commit is not None]
    assert commits[:2] == commits[2:]
    assert commits[0] != commits[1]
    with pytest.raises(InputError, match=commits[1]):
        second.mutate(add, {"n": "other"}, idempotency_key="k")
    rows = [{"type": "Log", "data": {"name": "loaded", "level": 1}}]
    assert second.load(rows, mode="merge", idempotency_key="l").commit is not None
    assert first.load(rows, mode="merge", idempotency_key="l").actor == "rows"


def test_actors_with_the_same_key_are_committed_together(tmp_path: Path, log: DenialLog) -> None:
    names = [f"actor-{number}" for number in range(8)]
    omnigraph.init(tmp_path / "g", "node Log { k: String @key }").close()
    with ExitStack() as held, ThreadPoolExecutor(len(names)) as pool:
        graphs = [held.enter_context(omnigraph.open(tmp_path / "g", actor=name)) for name in names]

        def add(graph: Graph) -> tuple[str | None, str]:
            text = "query q($k: String) { insert Log { k: $k } }"
            receipt = graph.mutate(text, {"k": str(graph.actor)}, idempotency_key="same")
            assert receipt.commit is not None
            return receipt.actor, receipt.commit.id

        found = list(pool.map(add, graphs))
        assert [actor for actor, _ in found] == names
        assert list(pool.map(add, graphs)) == found
        assert graphs[0].query("query q() { match { $l: Log } return { count($l) as n } }").to_pylist() == [{"n": 8}]


def test_every_actor_of_the_matrix_has_a_denial(opened: Open, log: DenialLog) -> None:
    for actor in ACTORS:
        with pytest.raises(AccessDeniedError):
            opened(actor).optimize()
    assert [one.denial.actor for one in log.records()] == list(ACTORS)


def _says_nothing_of_drafts(shown: object) -> None:
    text = str(shown.to_json() if hasattr(shown, "to_json") else shown)
    assert not [word for word in ("draft", "clandestine", "somebody") if word in text], text


def _with_merged_draft(whole: Graph) -> None:
    """Merge a branch that some actors may not read into `main`, and create another branch from it."""
    edit = 'query q() { update Task set { title: "from afar" } where name = "kim-4" }'
    whole.mutate(edit, branch="draft", message="clandestine", labels={"by": "somebody"})
    whole.merge("draft", strategy="theirs")
    whole.branches.delete("release")
    whole.branches.create("release", source="draft")


@pytest.mark.parametrize("branch", ["main", "release"])
def test_histories_do_not_show_commits_of_branches_that_cannot_be_read(branch: str, opened: Open) -> None:
    _with_merged_draft(opened("nobody"))
    reader = opened("branches")
    listed = reader.commits.list(branch=branch)
    handle = reader.branch(branch)
    log, blamed = handle.log("Task", "kim-4"), handle.blame("Task", "kim-4")
    for shown in (listed.commits, listed._repr_html_(), handle.head, handle.snapshot().commit, log, blamed):
        _says_nothing_of_drafts(shown)
    assert titles(reader, branch)["kim-4"] == "from afar"
    values = {value.property: value for value in blamed}
    assert values["title"].commit is None
    assert (values["owner"].commit is not None) == (branch == "main")
    whole = opened("nobody")
    assert "clandestine" in str(whole.branch(branch).log("Task", "kim-4").to_json())
    assert [one.id for one in listed.commits] == [one.id for one in whole.commits.list(branch=branch).commits]


def test_a_feed_ends_at_a_commit_of_a_branch_that_cannot_be_read(opened: Open) -> None:
    whole, reader = opened("nobody"), opened("branches")
    _with_merged_draft(whole)
    page = reader.changes.poll(start="beginning", branch="release")
    _says_nothing_of_drafts(page)
    with pytest.raises(ChangeFeedGapError) as raised:
        reader.changes.poll(cursor=page.cursor, branch="release")
    _says_nothing_of_drafts(raised.value.render())
    cursor = reader.changes.baseline(branch="release").resume_cursor
    whole.mutate('query q() { update Task set { title: "later" } where name = "kim-4" }', branch="release")
    (block,) = reader.changes.poll(cursor=cursor, branch="release").blocks
    assert [one.id for one in block.changes] == ["kim-4"]
    for found in reader.changes.poll(start="beginning").blocks:
        _says_nothing_of_drafts(found.cause.commit)


def test_a_parent_that_cannot_be_read_is_not_named(opened: Open, log: DenialLog) -> None:
    whole, reader = opened("nobody"), opened("branches")
    _with_merged_draft(whole)
    made = reader.branches.create("copy", commit=reader.branch("release").head.id)
    _says_nothing_of_drafts(made)
    with pytest.raises(AccessDeniedError) as raised:
        reader.branches.update("release")
    _says_nothing_of_drafts(raised.value.render())
    then = datetime.fromtimestamp(whole.commits.list(branch="release").commits[1].created_at / 1_000_000, UTC)
    with pytest.raises(AccessDeniedError) as raised:
        reader.query(TITLES, branch="release", at=then)
    _says_nothing_of_drafts(raised.value.render())
    assert [one.denial.branch for one in log.records()] == ["draft", "draft"]


@pytest.fixture
def renamed(tmp_path: Path, log: DenialLog) -> Iterator[Graph]:
    """A graph whose type and property have other names on the branch `old`, with conflicts about two rows."""
    before = "node Task { name: String @key  owner: String?  title: String?  pay: I64? }"
    after = """
    node Job @rename_from("Task") {
        name: String @key  owner: String?  title: String?  wage: I64? @rename_from("pay")
    }
    """
    with omnigraph.init(tmp_path / "renamed", before) as graph:
        graph.load({"Task": [{"name": name, "owner": "kim", "pay": 1} for name in ("a", "b")]}, mode="append")
        graph.branches.create("old")
        graph.mutate('query q() { update Task set { pay: 666 } where name = "a" }', branch="old")
        graph.mutate('query q() { update Task set { owner: "lee", title: "theirs" } where name = "b" }', branch="old")
        graph.schema.apply(after)
        graph.mutate('query q() { update Job set { wage: 777 } where name = "a" }')
        graph.mutate('query q() { update Job set { title: "ours" } where name = "b" }')
        yield graph


@pytest.mark.parametrize(("source", "target"), [("old", "main"), ("main", "old")])
@pytest.mark.parametrize(
    "rules",
    [
        omnigraph.RowRules({}, {"node:Job": ["wage"]}),
        omnigraph.RowRules({"node:Job": '$.owner = "kim"'}),
        omnigraph.RowRules({"node:Job": omnigraph.Rows.HIDDEN}),
    ],
)
def test_a_conflict_is_judged_by_the_names_of_each_state(
    rules: omnigraph.RowRules, source: str, target: str, renamed: Graph
) -> None:
    limited = renamed.restricted(rules)
    for preview in (True, False):
        with pytest.raises(AccessDeniedError) as raised:
            limited.merge(source, into=target, preview=preview)
        text = f"{raised.value.render()} {vars(raised.value)}"
        assert not [word for word in ("666", "777", "theirs", "lee", "wage") if word in text]
    with pytest.raises(MergeConflictsError):
        renamed.restricted(omnigraph.RowRules()).merge(source, into=target)


def test_maintenance_needs_all_branches(world: World, log: DenialLog, tmp_path: Path) -> None:
    """Its reports name all branches, and a backup copies them."""
    bundle: dict[str, Any] = {
        "version": 1,
        "groups": {"some": ["sam"], "none": ["nic"], "all": ["ann"]},
        "protected_branches": ["main", "release"],
        "rules": [
            {"id": "sam", "allow": {"actors": {"group": "some"}, "actions": ["read"], "branch_scope": "protected"}},
            {"id": "ann", "allow": {"actors": {"group": "all"}, "actions": ["read"]}},
            *(
                {"id": f"admin-{group}", "allow": {"actors": {"group": group}, "actions": ["admin"]}}
                for group in ("some", "none", "all")
            ),
        ],
    }
    calls: tuple[Callable[[Graph], object], ...] = (
        lambda graph: graph.status(),
        lambda graph: graph.verify(branch="draft"),
        lambda graph: graph.indexes(branch="draft"),
        lambda graph: graph.repair(),
        lambda graph: graph.recovery.list(),
        lambda graph: graph.backup(str(tmp_path / f"backup of {graph.session.actor}")),
    )
    for actor in ("sam", "nic", "ann"):
        with omnigraph.open(world.root, policy=Policy.read(bundle, denials=log), actor=actor) as graph:
            for call in calls:
                if actor == "sam":
                    with pytest.raises(AccessDeniedError) as raised:
                        call(graph)
                    assert "draft" not in raised.value.render()
                else:
                    call(graph)
    assert [one.denial.action for one in log.records()] == ["admin"] * len(calls)
