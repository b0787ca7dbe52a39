"""`omnigraph branch`: create, list, delete."""

from __future__ import annotations

import shutil

import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.cli import scope


def test_branches_can_be_created_listed_and_deleted(shell: Shell, graph: str) -> None:
    created = shell.run("branch", "create", "review/ann", "--uri", graph)
    assert created.exit_code == 0
    assert created.stdout == "created branch review/ann from main\n"
    assert created.stderr == f"omnigraph branch create → {graph} (direct, local)\n"
    assert shell.run("branch", "create", "alpha", "--store", graph, "--quiet").stderr == ""
    listed = shell.run("branch", "list", "--uri", graph)
    assert listed.stdout == "alpha\nmain\nreview/ann\n"
    assert listed.stderr == ""
    deleted = shell.run("branch", "delete", "review/ann", "--store", graph)
    assert deleted.stdout == "deleted branch review/ann\n"
    assert deleted.stderr == f"omnigraph branch delete → {graph} (direct, local)\n"
    assert shell.run("branch", "list", graph).stdout == "alpha\nmain\n"


def test_branch_commands_print_json(shell: Shell, graph: str) -> None:
    assert shell.json("branch", "create", "draft", "--uri", graph) == {"uri": graph, "from": "main", "name": "draft"}
    made = shell.json("branch", "create", "next", "--from", "draft", "--as", "act-kim", "--uri", graph)
    assert made == {"uri": graph, "from": "draft", "name": "next", "actor_id": "act-kim"}
    assert shell.json("branch", "list", graph) == {"branches": ["draft", "main", "next"]}
    assert shell.json("branch", "delete", "next", "--uri", graph, "--as", "kim") == {
        "uri": graph,
        "name": "next",
        "actor_id": "kim",
    }


def test_a_branch_begins_at_a_branch_a_commit_or_a_tag(shell: Shell, graph: str) -> None:
    first = shell.add_person(graph, "Ann")
    shell.run("tag", "create", "v1", "--uri", graph)
    shell.add_person(graph, "Ben")
    for name, start in (("head", "main"), ("old", first), ("tagged", "v1")):
        result = shell.run("branch", "create", name, "--from", start, "--uri", graph)
        assert result.stdout == f"created branch {name} from {start}\n"
    with omnigraph.open(graph) as opened:
        people = {b.name: opened.snapshot(branch=b.name).tables["node:Person"].row_count for b in opened.branches}
    assert people == {"main": 2, "head": 2, "old": 1, "tagged": 1}


def test_an_unknown_start_of_a_branch_is_reported(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "review", "--uri", graph)
    said = shell.fails("branch", "create", "x", "--from", "reviw", "--uri", graph)
    assert "there is no branch, commit or tag 'reviw'" in said
    assert "did you mean 'review'?" in said


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("taken", "branch 'taken' exists already"),
        ("main", "branch 'main' always exists"),
        ("taken/below", "'taken/below' and branch 'taken' cannot both exist"),
        ("a b", "'a b' is not a valid name of a branch or tag"),
        ("a//b", "'a//b' is not a valid name"),
        ("a..b", "'a..b' is not a valid name"),
        ("x.lock", "'x.lock' is not a valid name"),
        ("__x", "names that begin with __ are reserved"),
        (" ", "the name is empty"),
    ],
)
def test_an_invalid_branch_name_is_refused(shell: Shell, graph: str, name: str, reason: str) -> None:
    shell.run("branch", "create", "taken", "--uri", graph)
    assert reason in shell.fails("branch", "create", name, "--uri", graph)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("main", "branch 'main' cannot be deleted"),
        ("reviw", "there is no branch 'reviw'\n  help: did you mean 'review'?"),
    ],
)
def test_main_and_missing_branches_cannot_be_deleted(shell: Shell, graph: str, name: str, reason: str) -> None:
    shell.run("branch", "create", "review", "--uri", graph)
    assert reason in shell.fails("branch", "delete", name, "--uri", graph)


def test_a_branch_with_children_or_tags_is_not_deleted(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "parent", "--uri", graph)
    shell.run("branch", "create", "child", "--from", "parent", "--uri", graph)
    assert "branches were created from it: child" in shell.fails("branch", "delete", "parent", "--uri", graph)
    shell.run("branch", "delete", "child", "--uri", graph)
    shell.add_person(graph, "Ann", branch="parent")
    shell.run("tag", "create", "v1", "--branch", "parent", "--uri", graph)
    assert "its commits have tags: v1" in shell.fails("branch", "delete", "parent", "--uri", graph)


def test_a_graph_can_be_named_in_several_ways(shell: Shell, graph: str) -> None:
    assert shell.run("--store", graph, "branch", "list").stdout == "main\n"
    assert shell.run(f"--store={graph}", "--quiet", "branch", "create", "x").stdout == "created branch x from main\n"
    assert shell.run("branch", "list", f"file://{graph}").exit_code == 0
    assert "name a graph" in shell.fails("branch", "list", code=2)
    assert "name the graph once" in shell.fails("branch", "list", graph, "--store", graph, code=2)
    assert "is the address of a server" in shell.fails("branch", "list", "http://localhost:8080", code=2)
    assert "there is no graph at" in (said := shell.fails("branch", "list", str(shell.root)))
    assert "omnigraph init" in said
    assert "'branch list' is a data command; --as names the actor of a write" in shell.fails(
        "branch", "list", graph, "--as", "kim", code=2
    )


def test_branches_of_a_moved_graph_work(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "x", "--uri", graph)
    moved = str(shell.root / "elsewhere")
    shutil.move(graph, moved)
    assert "x" in shell.run("branch", "list", moved).stdout
    shell.run("branch", "create", "y", "--from", "x", "--uri", moved)


# ---- consent for destructive writes to remote graphs


def test_a_destructive_write_to_a_remote_graph_needs_consent(shell: Shell) -> None:
    for extra in ([], ["--json"]):
        said = shell.fails("branch", "delete", "x", "--uri", "memory://nowhere", *extra)
        assert "deleting branch 'x' on memory://nowhere cannot be undone" in said
        assert "--yes" in said
    assert "there is no graph" in shell.fails("branch", "delete", "x", "--uri", "memory://nowhere", "--yes", "--quiet")


@pytest.mark.parametrize(("answer", "said"), [("yes", "there is no graph"), ("n", "nothing was changed")])
def test_a_user_at_a_terminal_is_asked_for_consent(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: str, said: str
) -> None:
    monkeypatch.setattr("click.prompt", lambda *_, **__: answer)
    monkeypatch.setattr(scope, "at_terminal", lambda: True)
    result = shell.run("branch", "delete", "x", "--uri", "memory://nowhere")
    assert result.exit_code == 1
    assert said in result.stderr
