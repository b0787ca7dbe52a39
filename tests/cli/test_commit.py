"""`omnigraph commit`: the history, newest first, in pages."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

from tests.cli.shell import Shell
from tests.commit.together import together

import omnigraph
from omnigraph.write.mutation import MutationReceipt


def moment(commit: dict[str, Any]) -> str:
    return f"{datetime.fromtimestamp(commit['created_at'] / 1_000_000, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def test_commits_are_listed_newest_first(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann", actor="act-kim", message='say "hi"\nto Ann')
    lines = shell.run("commit", "list", graph, "--full").stdout.splitlines()
    newest, genesis = shell.json("commit", "list", graph)["commits"]
    assert lines == [
        f"{newest['graph_commit_id']} graph_branch=main graph_manifest_version=2 actor=act-kim "
        f'created_at={moment(newest)} kind=Load changes="+1" message="say \\"hi\\"\\nto Ann"',
        f"{genesis['graph_commit_id']} graph_branch=main graph_manifest_version=1 "
        f'created_at={moment(genesis)} message="create the graph"',
    ]


def test_the_history_shows_time_kind_counts_actor_and_message(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann", actor="act-kim", message="add Ann\nand more")
    text = 'query q() { update Person set { age: 3 } where name = "Ann" }'
    shell.run("mutate", "--uri", graph, "-e", text, "--as", "bob")
    shell.run("mutate", "--uri", graph, "-e", 'query q() { delete Person where name = "Ann" }')
    lines = shell.run("commit", "list", graph).stdout.splitlines()
    listed = shell.json("commit", "list", graph)["commits"]
    assert len(lines) == 4
    for line, commit in zip(lines, listed, strict=True):
        short, day, time = line.split()[:3]
        assert commit["graph_commit_id"].startswith(short)
        assert 14 <= len(short) < 26
        seconds = datetime.fromtimestamp(commit["created_at"] // 1_000_000, UTC)
        assert f"{day} {time}" == f"{seconds:%Y-%m-%d %H:%M:%S}"
    assert len({line.split()[0] for line in lines}) == 4
    assert [line.split()[3:] for line in lines] == [
        ["Mutation", "-1"],
        ["Mutation", "~1", "bob"],
        ["Load", "+1", "act-kim", "add", "Ann"],
        ["create", "the", "graph"],
    ]
    assert [commit["counts"] for commit in listed] == [
        {"node:Person": {"inserted": 0, "updated": 0, "deleted": 1}},
        {"node:Person": {"inserted": 0, "updated": 1, "deleted": 0}},
        {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}},
        None,
    ]


def test_a_commit_is_found_by_the_start_of_its_id(shell: Shell, graph: str) -> None:
    first = shell.add_person(graph, "Ann", message="add Ann")
    second = shell.add_person(graph, "Ben", message="add Ben")
    ids = [each["graph_commit_id"] for each in shell.json("commit", "list", graph)["commits"]]
    length = next(i for i in range(4, 27) if len({each[:i] for each in ids}) == len(ids))
    assert shell.json("commit", "show", first[:length], "--uri", graph)["graph_commit_id"] == first
    assert shell.json("commit", "show", second[:length].lower(), "--uri", graph)["graph_commit_id"] == second
    common = next(i for i in range(26) if first[i] != second[i])
    said = shell.fails("commit", "show", first[:common], "--uri", graph)
    for part in ("is the beginning of", first, second, "add Ben", "give more characters"):
        assert part in said
    assert "give at least 4 characters" in shell.fails("commit", "show", first[:3], "--uri", graph)
    assert "there is no commit or tag 'ZZZZZZ'" in shell.fails("commit", "show", "ZZZZZZ", "--uri", graph)
    count = ("query", "--uri", graph, "-e", "query q() { match { $p: Person } return { count($p) as n } }", "--json")
    assert shell.json(*count[:-1], "--snapshot", first[:length])["rows"] == [{"n": 1}]
    shell.run("tag", "create", "v1", "--commit", first[:length], "--uri", graph)
    shell.run("branch", "create", "old", "--from", first[:length], "--uri", graph)
    assert shell.json(*count[:-1], "--snapshot", "v1")["rows"] == [{"n": 1}]
    text = 'query q() { insert Person { name: "Cas" } }'
    said = shell.fails("mutate", "--uri", graph, "-e", text, "--if-commit", first[:length], code=4)
    assert first in said
    shell.run("mutate", "--uri", graph, "-e", text, "--if-commit", second[:length])


def test_printed_short_ids_are_unique_in_the_whole_graph(shell: Shell, graph: str) -> None:
    """They are accepted by other commands, also if commits of other branches were made in the same second."""
    shell.add_person(graph, "Ann")
    shell.run("branch", "create", "side", "--uri", graph)
    for age in range(4):
        text = f'query q() {{ update Person set {{ age: {age} }} where name = "Ann" }}'
        for branch in ("main", "side"):
            shell.run("mutate", "--uri", graph, "-e", text, "--branch", branch)
    printed = [line.split()[0] for line in shell.run("commit", "list", graph, "--limit", "1").stdout.splitlines()]
    printed += [line.split()[0] for line in shell.run("blame", "Person", "Ann", "--uri", graph).stdout.splitlines()]
    heads = shell.run("log", "Person", "Ann", "--uri", graph, "--branch", "side").stdout.splitlines()
    printed += [line.split()[1] for line in heads if not line.startswith(" ")]
    assert len(printed) > 6
    for short in printed:
        assert shell.json("commit", "show", short, "--uri", graph)["graph_commit_id"].startswith(short)


def test_an_unknown_expected_commit_is_wrong_input_and_not_a_lost_race(shell: Shell, graph: str) -> None:
    head = shell.add_person(graph, "Ann")
    shell.run("tag", "create", "jan", "--uri", graph)
    write = ("mutate", "--uri", graph, "-e", 'query q() { insert Person { name: "Ben" } }', "--if-commit")
    assert "there is no commit or tag 'nosuch'" in shell.fails(*write, "nosuch", code=1)
    assert "there is no commit or tag '01ZZZZZZ'" in shell.fails(*write, "01ZZZZZZ", code=1)
    said = shell.fails(*write, "main", code=1)
    assert "'main' is a branch, not a commit or tag" in said
    assert head in said
    # The name may have been a commit of a branch that was deleted meanwhile.
    assert f"is {head}, not 01ARZ3NDEKTSV4RRFFQ69G5FAV" in shell.fails(*write, "01ARZ3NDEKTSV4RRFFQ69G5FAV", code=4)
    for command in (("query", "-e", "query q() { match { $p: Person } return { $p.name } }"), ("export",)):
        assert "give at least 4 characters" in shell.fails(*command, "--uri", graph, "--snapshot", head[:3])
    assert "give at least 4 characters" in shell.fails("diff", head[:3], "main", "--uri", graph)
    shell.run(*write, "jan")


def test_merges_and_branch_updates_are_described(shell: Shell, graph: str) -> None:
    schema = shell.run("schema", "show", graph).stdout
    shell.add_person(graph, "Ann")
    shell.run("branch", "create", "side", "--uri", graph)
    shell.run("mutate", "--uri", graph, "-e", 'query q() { insert Person { name: "Ben" } }')
    shell.run("branch", "update", "side", "--uri", graph)
    shell.run("mutate", "--uri", graph, "-e", 'query q() { insert Person { name: "Cas" } }', "--branch", "side")
    shell.run("branch", "merge", "side", "--uri", graph)
    shell.run("mutate", "--uri", graph, "-e", 'query q() { insert Person { name: "Dan" } }')
    new = shell.write("new.pg", schema + "\nnode Extra { name: String @key }\n")
    shell.run("schema", "apply", graph, "--schema", new)
    shell.run("branch", "update", "side", "--uri", graph)
    shell.run("branch", "create", "other", "--uri", graph)
    shell.run("mutate", "--uri", graph, "-e", 'query q() { insert Person { name: "Eva" } }', "--branch", "other")
    shell.run("branch", "merge", "other", "--uri", graph, "--message", "Eva comes")

    def listed(branch: str) -> list[str]:
        lines = shell.run("commit", "list", graph, "--branch", branch).stdout.splitlines()
        return [" ".join(line.split()[3:]) for line in lines]

    assert [line for line in listed("side") if line.startswith("Branch")] == [
        "BranchUpdate +1 schema update side from main",
        "BranchUpdate +1 update side from main",
    ]
    assert listed("main")[:2] == ["BranchMerge +1 Eva comes", "SchemaApply schema"]
    assert "BranchMerge +1 merge side into main" in listed("main")


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
        "kind": "Load",
        "counts": {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}},
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
    assert shell.run("commit", "list", graph, "--filter", "actor=a=b", "--full").stdout.count("actor=a=b") == 1
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
        "kind": "Load",
        "counts": "node:Person=+1",
    }
    assert "there is no commit or tag 'nope'" in shell.fails("commit", "show", "nope", "--uri", graph)


def test_a_tag_names_a_commit_in_all_commands(shell: Shell, graph: str) -> None:
    first = shell.add_person(graph, "Ann", message="add Ann")
    shell.run("tag", "create", "q1", "--uri", graph)
    assert shell.json("commit", "show", "q1", "--uri", graph)["graph_commit_id"] == first
    assert shell.json("commit", "changes", "q1", "--uri", graph)["cause"]["graph_commit_id"] == first
    text = 'query q() { update Person set { age: 3 } where name = "Ann" }'
    shell.run("mutate", "--uri", graph, "-e", text, "--if-commit", "q1", "--unchanged-since", "q1")
    said = shell.fails("mutate", "--uri", graph, "-e", text, "--unchanged-since", "q1", code=4)
    assert first in said
    restored = shell.json("restore", graph, "--type", "Person", "--id", "Ann", "--snapshot", "q1")
    assert (restored["from_commit_id"], restored["changes"]["node:Person"]["updated"]) == (first, 1)
    both = ("restore", graph, "--type", "Person", "--id", "Ann", "--snapshot", "q1", "--at", "q1")
    assert "give --snapshot or --at, not both" in shell.fails(*both, code=2)


def test_a_branch_in_the_place_of_a_commit_is_reported_with_its_head(shell: Shell, graph: str) -> None:
    head = shell.add_person(graph, "Ann")
    shell.run("branch", "create", "dev", "--uri", graph)
    for command in (
        ("commit", "show", "main"),
        ("commit", "changes", "main"),
        ("branch", "reset", "dev", "--to", "main"),
        ("revert", "main"),
        ("query", "-e", "query q() { match { $p: Person } return { $p.name } }", "--snapshot", "main"),
    ):
        said = shell.fails(*command, "--uri", graph)
        assert "'main' is a branch, not a commit or tag" in said
        assert f"its head is {head}" in said


def test_a_state_is_a_commit_or_a_time(shell: Shell, graph: str) -> None:
    head = shell.add_person(graph, "Ann")
    shell.add_person(graph, "Bob")
    query = ("query", graph, "-e", "match { $p: Person } return { count($p) as n }", "--format", "csv", "--at")
    assert shell.run(*query, head[:20]).stdout == "n\n1\n"
    assert shell.run(*query, "2100-01-01").stdout == "n\n2\n"


def test_only_similar_commands_are_suggested(shell: Shell) -> None:
    assert "Did you mean 'branch'?" in shell.fails("brunch", code=2)
    said = shell.fails("branch", "rename", "a", code=2)
    assert "Did you mean" not in said
    assert "Known: create, delete, list, merge, reset, update" in said


def test_the_members_of_a_commit_are_shown_found_and_reverted(shell: Shell, graph: str) -> None:
    text = "query add($name: String) { insert Person { name: $name } }"
    with omnigraph.open(graph, actor="ann") as ours, omnigraph.open(graph, actor="bob") as theirs:
        pairs = [(ours, "Ann"), (theirs, "Bob")]
        made = together(ours, [partial(one.mutate, text, {"name": name}) for one, name in pairs])
    assert all(isinstance(one, MutationReceipt) for one in made)
    newest = shell.json("commit", "list", graph, "--filter", "actor=bob")["commits"][0]
    assert newest["actor_id"] is None
    assert [(one["actor_id"], one["changed"]) for one in newest["members"]] == [
        ("ann", {"node:Person": ["Ann"]}),
        ("bob", {"node:Person": ["Bob"]}),
    ]
    assert "ann, bob" in shell.run("commit", "list", graph).stdout.splitlines()[0]
    assert " members=2" in shell.run("commit", "list", graph, "--full").stdout.splitlines()[0]
    member = newest["members"][1]["member_id"]
    shown = shell.run("commit", "show", newest["graph_commit_id"], "--uri", graph).stdout
    labels = 'affected_edges="0" affected_nodes="1" query="add"'
    assert f'member {member}: actor=bob node:Person=+1 ("Bob") {labels}' in shown
    reverted = shell.run("revert", newest["graph_commit_id"], "--member", member, "--uri", graph).stdout
    assert reverted.startswith(f"reverted member {member} of commit {newest['graph_commit_id']} on main: commit ")
    with omnigraph.open(graph, read_only=True) as reader:
        assert reader.snapshot().scan("node:Person", columns=["id"])["id"].to_pylist() == ["Ann"]
