"""`omnigraph commit`: the history, newest first, in pages."""

from __future__ import annotations

from tests.cli.shell import Shell


def test_commits_are_listed_newest_first(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann", actor="act-kim", message='say "hi"\nto Ann')
    lines = shell.run("commit", "list", graph).stdout.splitlines()
    newest, genesis = shell.json("commit", "list", graph)["commits"]
    assert lines == [
        f"{newest['graph_commit_id']} graph_branch=main graph_manifest_version=2 actor=act-kim "
        'message="say \\"hi\\"\\nto Ann"',
        f'{genesis["graph_commit_id"]} graph_branch=main graph_manifest_version=1 message="create the graph"',
    ]


def test_commit_list_prints_json(shell: Shell, graph: str) -> None:
    made = shell.add_person(graph, "Ann", actor="act-kim", message="Ann")
    listed = shell.json("commit", "list", graph)
    assert listed["cursor"] is None
    newest, genesis = listed["commits"]
    created_at = newest.pop("created_at")
    assert created_at > genesis["created_at"] > 1_700_000_000_000_000
    assert newest == {
        "graph_commit_id": made,
        "graph_branch": None,
        "graph_manifest_version": 2,
        "parent_commit_id": genesis["graph_commit_id"],
        "merged_parent_commit_id": None,
        "actor_id": "act-kim",
        "message": "Ann",
        "labels": {"step": "Ann"},
    }
    assert genesis["parent_commit_id"] is None
    assert genesis["actor_id"] is None


def test_commits_are_listed_in_pages(shell: Shell, graph: str) -> None:
    ids = [shell.add_person(graph, f"p{i}", actor=f"a{i % 2}") for i in range(5)][::-1]
    found: list[str] = []
    cursor: list[str] = []
    while True:
        page = shell.json("commit", "list", graph, "--limit", "2", *cursor)
        found += [commit["graph_commit_id"] for commit in page["commits"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert found[:-1] == ids
    first = shell.run("commit", "list", graph, "--limit", "2")
    assert first.stdout.count("\n") == 2
    assert first.stderr == f"there are more: add --cursor {ids[1]}\n"
    assert "does not belong to this history" in shell.fails("commit", "list", graph, "--cursor", "x")
    assert shell.fails("commit", "list", graph, "--limit", "0", code=2)


def test_commits_can_be_filtered_by_actor(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann", actor="a=b")
    shell.add_person(graph, "Ben", actor="kim")
    assert shell.run("commit", "list", graph, "--filter", "actor=a=b").stdout.count("actor=a=b") == 1
    assert shell.json("commit", "list", graph, "--filter", "actor=nobody") == {"commits": [], "cursor": None}
    for bad in ("actor", "actor=", "branch=main"):
        assert "write actor=NAME" in shell.fails("commit", "list", graph, "--filter", bad, code=2)


def test_the_history_of_a_branch_can_be_listed(shell: Shell, graph: str) -> None:
    shared = shell.add_person(graph, "Ann")
    shell.run("branch", "create", "draft", "--uri", graph)
    own = shell.add_person(graph, "Ben", branch="draft")
    on_main = shell.add_person(graph, "Cas")
    draft = shell.json("commit", "list", graph, "--branch", "draft")["commits"]
    assert [(c["graph_commit_id"], c["graph_branch"]) for c in draft[:2]] == [(own, "draft"), (shared, None)]
    assert shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"] == on_main
    said = shell.fails("commit", "list", graph, "--branch", "draf")
    assert "there is no branch 'draf'\n  help: did you mean 'draft'?" in said


def test_a_single_commit_can_be_shown(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "draft", "--uri", graph)
    made = shell.add_person(graph, "Ann", branch="draft", actor="kim", message="Ann")
    members = shell.json("commit", "show", made, "--uri", graph)
    assert members == shell.json("commit", "list", graph, "--branch", "draft")["commits"][0]
    lines = dict(
        line.split(": ", 1) for line in shell.run("commit", "show", made, "--store", graph).stdout.splitlines()
    )
    assert lines.pop("created_at").endswith("Z")
    assert lines == {
        "graph_commit_id": made,
        "graph_branch": "draft",
        "graph_manifest_version": "2",
        "parent_commit_id": members["parent_commit_id"],
        "actor_id": "kim",
        "message": "Ann",
        "labels": "step=Ann",
    }
    assert "there is no commit 'nope'" in shell.fails("commit", "show", "nope", "--uri", graph)
