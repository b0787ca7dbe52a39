"""`omnigraph tag`: create, list, delete."""

from __future__ import annotations

from tests.cli.shell import Shell


def test_tags_can_be_created_listed_and_deleted(shell: Shell, graph: str) -> None:
    head = shell.add_person(graph, "Ann")
    created = shell.run("tag", "create", "v1", "--uri", graph)
    assert created.stdout == f"created tag v1 at {head}\n"
    assert created.stderr == f"omnigraph tag create → {graph} (direct, local)\n"
    assert shell.run("tag", "list", graph).stdout == f"v1 {head} graph_branch=main graph_manifest_version=2\n"
    assert shell.run("tag", "delete", "v1", "--store", graph, "--quiet").stdout == "deleted tag v1\n"
    assert shell.run("tag", "list", graph).stdout == ""


def test_a_tag_can_be_created_from_a_branch_a_commit_or_a_tag(shell: Shell, graph: str) -> None:
    first = shell.add_person(graph, "Ann")
    shell.run("branch", "create", "draft", "--uri", graph)
    second = shell.add_person(graph, "Ben", branch="draft")
    for name, *target in (("a", "--branch", "draft"), ("b", "--commit", first), ("c", "--commit", "a")):
        assert shell.run("tag", "create", name, *target, "--uri", graph).exit_code == 0
    tags = {
        tag["name"]: (tag["graph_commit_id"], tag["graph_branch"]) for tag in shell.json("tag", "list", graph)["tags"]
    }
    assert tags == {"a": (second, "draft"), "b": (first, None), "c": (second, "draft")}


def test_tag_commands_print_json(shell: Shell, graph: str) -> None:
    made = shell.json("tag", "create", "v1", "--uri", graph, "--as", "kim")
    assert list(made) == [
        *("uri", "name", "graph_commit_id", "graph_branch", "graph_manifest_version", "created_at", "actor_id")
    ]
    (listed,) = shell.json("tag", "list", graph)["tags"]
    assert listed == {name: made[name] for name in listed}
    assert shell.json("tag", "delete", "v1", "--uri", graph) == {"uri": graph, "name": "v1"}


def test_a_tag_and_a_branch_cannot_have_the_same_name(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "dev", "--uri", graph)
    for name in ("main", "dev"):
        assert f"'{name}' is the name of a branch" in shell.fails("tag", "create", name, "--uri", graph)
    shell.run("tag", "create", "v1", "--uri", graph)
    assert "'v1' is the name of a tag" in shell.fails("branch", "create", "v1", "--uri", graph)
    assert [tag["name"] for tag in shell.json("tag", "list", graph)["tags"]] == ["v1"]
    assert sorted(shell.json("branch", "list", graph)["branches"]) == ["dev", "main"]


def test_invalid_tags_are_refused(shell: Shell, graph: str) -> None:
    shell.run("tag", "create", "v1", "--uri", graph)
    assert "tag 'v1' exists already" in shell.fails("tag", "create", "v1", "--uri", graph, "--quiet")
    assert "did you mean 'v1'?" in shell.fails("tag", "delete", "v11", "--uri", graph, "--quiet")
    assert "is not a valid name" in shell.fails("tag", "create", "a b", "--uri", graph, "--quiet")
    assert "there is no branch 'x'" in shell.fails("tag", "create", "t", "--branch", "x", "--uri", graph, "--quiet")
    assert "there is no commit or tag 'x'" in shell.fails(
        "tag", "create", "t", "--commit", "x", "--uri", graph, "--quiet"
    )
    assert "not both" in shell.fails("tag", "create", "t", "--commit", "x", "--branch", "y", "--uri", graph, code=2)
