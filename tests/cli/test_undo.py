"""`omnigraph revert`, `cherry-pick`, `branch reset` and `restore`: their output, effects and exit status."""

from __future__ import annotations

import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.graph import Graph


@pytest.fixture
def place(shell: Shell) -> str:
    """A graph with a branch `side`."""
    uri = shell.init()
    with omnigraph.open(uri) as graph:
        _do(graph, 'insert Person { name: "ann", age: 1 }', message="add ann")
        graph.branches.create("side")
        _do(graph, 'insert Person { name: "bob", age: 1 }', "side", message="add bob")
    return uri


def _do(graph: Graph, text: str, branch: str = "main", message: str | None = None) -> str:
    commit = graph.mutate(f"query q() {{ {text} }}", branch=branch, message=message).commit
    assert commit is not None
    return commit.id


def _head(place: str, branch: str = "main") -> str:
    with omnigraph.open(place, read_only=True) as graph:
        return graph.branch(branch).head.id


def _names(place: str, branch: str = "main") -> list[str]:
    with omnigraph.open(place, read_only=True) as graph:
        return sorted(graph.snapshot(branch=branch).scan("node:Person")["id"].to_pylist())


def test_a_revert_prints_its_commit_and_counts(shell: Shell, place: str) -> None:
    added = _head(place)
    preview = shell.run("revert", added, "--uri", place, "--preview")
    counts = "  node:Person: 0 inserted, 0 updated, 1 deleted\n"
    values = '\nnode Person\n- ann  age: 1, name: "ann"\n'
    assert (preview.exit_code, preview.stdout) == (0, f"would revert commit {added} on main\n{counts}{values}")
    done = shell.run("revert", added, "--uri", place)
    assert done.stdout == f"reverted commit {added} on main: commit {_head(place)}\n{counts}"
    assert done.stderr == f"omnigraph revert → {place} (direct, local)\n"
    again = shell.run("revert", added, "--uri", place, "--quiet")
    assert again.stdout == f"nothing to revert: main already has the rows that commit {added} leads to\n"
    assert _names(place) == []


def test_a_cherry_pick_prints_json(shell: Shell, place: str) -> None:
    found = shell.json("cherry-pick", _head(place, "side"), "--uri", place, "--as", "act-kim", "--message", "picked")
    assert (found["outcome"], found["actor_id"], found["branch"]) == ("picked", "act-kim", "main")
    assert (found["commit"]["message"], found["commit"]["merged_parent_commit_id"]) == ("picked", None)
    assert _names(place) == ["ann", "bob"]


def test_conflicts_are_listed_and_resolved(shell: Shell, place: str) -> None:
    with omnigraph.open(place) as graph:
        wrong = _do(graph, 'update Person set { age: 2 } where name = "ann"')
        _do(graph, 'update Person set { age: 3 } where name = "ann"')
    refused = shell.run("revert", wrong, "--uri", place)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"commit {wrong} cannot be reverted on 'main'" in refused.stderr
    preview = shell.run("revert", wrong, "--uri", place, "--preview")
    assert preview.exit_code == 1
    assert preview.stdout.startswith(f"would not revert commit {wrong} on main: 1 conflict has no decision\n")
    assert 'base {"age": 2}, ours {"age": 3}, theirs {"age": 1}' in preview.stdout
    assert "nothing was written; " in refused.stderr
    help_line = refused.stderr.splitlines()[-1].replace("nothing was written; ", "")
    assert help_line in preview.stdout.splitlines(), "the same help"
    found = shell.json("revert", wrong, "--uri", place, "--resolve", "Person/ann=theirs")
    assert found["resolved"] == 1


def test_a_merge_needs_a_parent(shell: Shell, place: str) -> None:
    shell.json("branch", "merge", "side", "--uri", place)
    merge = _head(place)
    refused = shell.run("revert", merge, "--uri", place)
    assert refused.exit_code == 1
    assert "is a merge" in refused.stderr
    assert "--parent 1 or 2" in refused.stderr
    shell.json("revert", merge, "--uri", place, "--parent", "1")
    assert _names(place) == ["ann"]
    wrong = shell.run("revert", merge, "--uri", place, "--parent", "1", "--if-commit", merge)
    assert wrong.exit_code == 4


def test_a_merge_by_property(shell: Shell, place: str) -> None:
    with omnigraph.open(place) as graph:
        _do(graph, 'insert Person { name: "bob", age: 2 }')
    refused = shell.run("branch", "merge", "side", "--uri", place, "--level", "property")
    assert (refused.exit_code, "divergent_insert" in refused.stderr) == (1, True)
    assert shell.run("branch", "merge", "side", "--uri", place, "--level", "column").exit_code == 2


def test_a_reset_prints_the_tag(shell: Shell, place: str) -> None:
    head, to = _head(place, "side"), _head(place)
    preview = shell.run("branch", "reset", "side", "--to", to, "--uri", place, "--preview")
    line = f"  1 commit leaves the branch; tag side-before-reset-{head} keeps its previous head {head}\n"
    assert preview.stdout == f"would reset branch side to {to}\n{line}"
    done = shell.run("branch", "reset", "side", "--to", to, "--uri", place, "--if-commit", head)
    assert done.stdout == f"reset branch side to {to}\n{line}"
    again = shell.run("branch", "reset", "side", "--to", to, "--uri", place)
    assert again.stdout == f"branch side already is at {to}\n"
    assert shell.run("branch", "reset", "side", "--to", head, "--uri", place, "--if-commit", head).exit_code == 4
    back = shell.json("branch", "reset", "side", "--to", f"side-before-reset-{head}", "--uri", place, "--as", "kim")
    assert (back["head"], back["previous_head"], back["actor_id"]) == (head, to, "kim")
    refused = shell.run("branch", "reset", "main", "--to", to, "--uri", place)
    assert (refused.exit_code, "revert" in refused.stderr) == (1, True)


def test_single_entities_are_restored(shell: Shell, place: str) -> None:
    good = _head(place)
    with omnigraph.open(place) as graph:
        _do(graph, 'update Person set { age: 7 } where name = "ann"')
        _do(graph, 'insert Person { name: "cid" }')
    entity = ("--type", "Person", "--id", "ann", "--id", "cid", "--at", good)
    preview = shell.run("restore", place, *entity, "--preview")
    counts = "  node:Person: 0 inserted, 1 updated, 1 deleted\n"
    values = '\nnode Person\n~ ann\n    age: 7 → 1\n- cid  name: "cid"\n'
    assert preview.stdout == f"would restore 2 Person on main from commit {good}\n{counts}{values}"
    done = shell.run("restore", "--uri", place, *entity, "--edges")
    assert done.stdout == f"restored 2 Person on main from commit {good}\n{counts}"
    again = shell.run("restore", "--store", place, "--type", "Person", "--id", "ann", "--at", good)
    assert again.stdout == f"nothing to restore: main has the same rows as commit {good}\n"
    found = shell.json("restore", place, "--type", "Person", "--id", "ann", "--at", "2999-01-01T00:00:00Z")
    assert (found["changes"], found["commit"]) == ({}, None)


def test_a_restore_without_changes_lists_left_out_properties(shell: Shell, place: str) -> None:
    with omnigraph.open(place) as graph:
        old = graph.snapshot().commit.id
        for age in ("", "age: I32?"):
            graph.schema.apply(f"node Person {{ name: String @key {age} }}")
    said = shell.run("restore", place, "--type", "Person", "--id", "ann", "--at", old, "--preview").stdout
    assert said == (
        f"nothing to restore on main: the rest is the same as in commit {old}\n"
        "  left out, because main does not have them: Person.age (another property has this name now)\n"
    )
    same = shell.run("restore", place, "--type", "Person", "--id", "ann", "--at", _head(place)).stdout
    assert same == f"nothing to restore: main has the same rows as commit {_head(place)}\n"


def test_wrong_forms_of_restore_are_usage_errors(shell: Shell, place: str) -> None:
    for words, said in (
        (["restore"], "SOURCE DEST"),
        (["restore", place], "SOURCE DEST"),
        (["restore", place, "copy", "--id", "ann"], "give --type, too"),
        (["restore", place, "copy", "--type", "Person", "--id", "ann", "--at", "v1"], "omit DEST"),
        (["restore", place, "--type", "Person", "--id", "ann"], "--at"),
        (["restore", place, "--type", "Person", "--at", "v1"], "--id"),
    ):
        done = shell.run(*words)
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_the_beginning_of_an_id_is_accepted_by_all_commands(shell: Shell, place: str) -> None:
    """Also for commits that were merged from a deleted branch, and for those that a reset took from their branch."""
    with omnigraph.open(place) as graph:
        merged, base = graph.branch("side").head.id, graph.branch("main").head.id
        graph.merge("side", delete_branch=True)
        graph.branches.create("work")
        lost = _do(graph, 'insert Person { name: "cid", age: 1 }', "work")
        graph.branches.reset("work", base)

    def short(commit: str) -> str:
        with omnigraph.open(place, read_only=True) as graph:
            others = {one.id for branch in ("main", "work") for one in graph.branch(branch).commits.list().commits}
        others |= {merged, lost}
        return next(commit[:n] for n in range(8, 27) if sum(other.startswith(commit[:n]) for other in others) == 1)

    def run(*args: str) -> str:
        done = shell.run(*args, "--uri", place)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert lost in run("commit", "show", short(lost).lower())
    assert "cid" in run("diff", short(base), short(lost))
    assert "cid" in run("log", "Person", "cid", "--snapshot", short(lost))
    assert lost in run("cherry-pick", short(lost), "--preview", "--into", "work")
    assert lost in run("branch", "reset", "work", "--to", short(lost), "--preview")
    assert merged in run("revert", short(merged), "--preview")
    assert f"from commit {base}" in run("restore", "--type", "Person", "--id", "bob", "--at", short(base), "--preview")
    with omnigraph.open(place) as graph:
        assert graph.revert(short(merged)[:26].lower(), preview=True).commit_id == merged
        graph.tags.create(short(base), commit=lost)
        assert graph.snapshot(commit=short(base)).commit.id == lost, "the name of a tag comes first"
