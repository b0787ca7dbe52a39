"""`omnigraph diff` and `commit show --changes`: the numbers first, then the changes, grouped by type."""

from __future__ import annotations

import sys
from hashlib import sha256

import click
import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.cli.diff import print_diff


@pytest.fixture
def changed(graph: str) -> str:
    """A graph with a branch that has an insert, an update and a delete."""
    with omnigraph.open(graph) as opened:
        opened.load(
            [{"type": "Person", "data": {"name": name, "age": 30}} for name in ("ann", "bob", "cid")]
            + [{"edge": "Knows", "from": "ann", "to": "bob", "data": {}}],
            mode="append",
        )
        opened.tags.create("first")
        opened.branches.create("draft")
        opened.load(
            [
                {"type": "Person", "data": {"name": "ann", "age": 31}},
                {"type": "Person", "data": {"name": "dan"}},
                {"type": "Person", "data": {"name": "bob", "age": 30}},
            ],
            mode="merge",
            branch="draft",
        )
        opened.mutate('query q() { delete Person where name = "cid" }', branch="draft")
    return graph


def test_a_diff_shows_numbers_and_changes(shell: Shell, changed: str) -> None:
    shown = shell.run("diff", "main", "draft", "--uri", changed).stdout
    assert shown.splitlines() == [
        "3 changes: 1 inserted, 1 updated, 1 deleted",
        "  node:Person  +1 -1 ~1",
        "",
        "node Person",
        "~ ann",
        "    age: 30 → 31",
        '- cid  age: 30, name: "cid"',
        '+ dan  name: "dan"',
    ]


def test_states_are_branches_commits_tags_and_times(shell: Shell, changed: str) -> None:
    head = shell.json("commit", "list", changed, "--branch", "draft")["commits"][0]["graph_commit_id"]
    wanted = shell.run("diff", "main", "draft", "--uri", changed).stdout
    assert shell.run("diff", "first", head, "--uri", changed).stdout == wanted
    assert shell.run("diff", "2199-01-01T00:00:00Z", "draft", "--uri", changed).stdout == wanted
    assert shell.run("diff", "main", "first", "--uri", changed).stdout == "no changes\n"
    assert "no branch, commit or tag 'drift'" in shell.fails("diff", "main", "drift", "--uri", changed)
    assert "before that time" in shell.fails("diff", "1999-01-01", "draft", "--uri", changed)


def test_a_diff_can_be_limited(shell: Shell, changed: str) -> None:
    numbers = shell.run("diff", "main", "draft", "--uri", changed, "--stat").stdout
    assert numbers == "3 changes: 1 inserted, 1 updated, 1 deleted\n  node:Person  +1 -1 ~1\n"
    first = shell.run("diff", "main", "draft", "--uri", changed, "--limit", "1").stdout
    assert first.endswith("~ ann\n    age: 30 → 31\n\n… and 2 more changes; --limit shows more\n")
    one = shell.run("diff", "main", "draft", "--uri", changed, "--id", "dan", "--type", "Person").stdout
    assert one.startswith("1 change: 1 inserted, 0 updated, 0 deleted\n")
    deletes = shell.run("diff", "main", "draft", "--uri", changed, "--op", "delete").stdout
    assert deletes.startswith("1 change: 0 inserted, 0 updated, 1 deleted\n")
    assert shell.run("diff", "main", "draft", "--uri", changed, "--type", "Knows").stdout == "no changes\n"
    assert "did you mean 'Person'" in shell.fails("diff", "main", "draft", "--uri", changed, "--type", "Persn")


def test_a_diff_prints_json(shell: Shell, changed: str) -> None:
    found = shell.json("diff", "main", "draft", "--uri", changed)
    assert found["stats"] == {"inserts": 1, "updates": 1, "deletes": 1, "types_affected": 1}
    assert (found["from_graph_manifest_version"], found["to_graph_manifest_version"]) == (2, 4)
    assert (found["graph_branch"], found["truncated"], found["schema"]) == ("draft", False, [])
    ann = found["changes"][0]
    version = ann.pop("published_dataset_version")
    assert isinstance(version, int)
    assert ann == {
        "kind": "node",
        "type_name": "Person",
        "id": "ann",
        "op": "update",
        "changed": ["age"],
        "before": {"properties": {"id": "ann", "age": 30, "name": "ann"}},
        "after": {"properties": {"id": "ann", "age": 31, "name": "ann"}},
    }
    short = shell.json("diff", "main", "draft", "--uri", changed, "--limit", "1")
    assert (len(short["changes"]), short["truncated"], short["stats"]) == (1, True, found["stats"])
    assert shell.json("diff", "main", "draft", "--uri", changed, "--stat")["changes"] == []


def test_a_commit_can_be_shown_with_its_changes(shell: Shell, changed: str) -> None:
    head, _, first, genesis = (
        commit["graph_commit_id"] for commit in shell.json("commit", "list", changed, "--branch", "draft")["commits"]
    )
    shown = shell.run("commit", "show", head, "--uri", changed, "--changes").stdout
    assert shown.partition("\n\n")[2].splitlines() == [
        "1 change: 0 inserted, 0 updated, 1 deleted",
        "  node:Person  -1",
        "",
        "node Person",
        '- cid  age: 30, name: "cid"',
    ]
    found = shell.json("commit", "show", first, "--uri", changed, "--changes")
    assert found["changes"]["stats"]["inserts"] == 4
    assert "changes" not in shell.json("commit", "show", first, "--uri", changed)
    assert "has no parent" in shell.run("commit", "show", genesis, "--uri", changed, "--changes").stdout
    assert shell.json("commit", "show", genesis, "--uri", changed, "--changes")["changes"] is None


def test_values_cannot_control_the_terminal(shell: Shell, graph: str) -> None:
    with omnigraph.open(graph) as opened:
        opened.load([{"type": "Person", "data": {"name": "a\x1b[31m\nb\x7f"}}], mode="append")
        before = opened.snapshot().commit.parent
        assert before is not None
    shown = shell.run("diff", before, "main", "--uri", graph).stdout
    assert "\x1b" not in shown
    assert "\x7f" not in shown
    assert "+ a\N{REPLACEMENT CHARACTER}[31m\\nb" in shown


def test_ids_cannot_reorder_the_lines_of_the_terminal(shell: Shell, graph: str) -> None:
    marked = "a\u202eb\u2028c\u2066d"
    with omnigraph.open(graph) as opened:
        before = opened.branch().head.id
        opened.branches.create("side")
        for branch, age in (("main", 1), ("side", 2)):
            opened.load([{"type": "Person", "data": {"name": marked, "age": age}}], mode="append", branch=branch)
        head = opened.branch().head.id
    for arguments in (
        ("diff", before, "main"),
        ("log", "Person", marked),
        ("blame", "Person", marked),
        ("branch", "merge", "side", "--preview"),
        ("branch", "merge", "side", "--preview", "--strategy", "theirs"),
        ("commit", "show", head, "--changes"),
    ):
        shown = shell.run(*arguments, "--uri", graph).stdout
        assert "a\\u202eb\\u2028c\\u2066d" in shown, arguments
        assert not set(marked) - set("abcd") & set(shown), arguments
    with omnigraph.open(graph) as opened:
        opened.load([{"edge": "Knows", "from": marked, "to": marked}], mode="append")
        edge = opened.snapshot().scan("edge:Knows")["id"].to_pylist()[-1]
    for name in ("from", "src"):
        shown = shell.run("blame", "Knows", edge, name, "--uri", graph).stdout
        assert 'from  "a\\u202eb\\u2028c\\u2066d"' in shown


def test_colours_are_for_terminals_only(shell: Shell, changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, bool | None]] = []
    monkeypatch.setattr(click, "echo", lambda line, color=None: lines.append((line, color)))

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal)
    with omnigraph.open(changed) as graph:
        for no_color, expected in (("", True), ("1", False)):
            monkeypatch.setenv("NO_COLOR", no_color)
            lines.clear()
            print_diff(graph.diff("main", "draft"), 10)
            assert {color for _, color in lines} == {expected}
    assert any("\x1b[32m" in line for line, _ in lines)


def test_values_of_a_new_property_are_shown_with_what_the_schema_change_filled_in(shell: Shell, changed: str) -> None:
    with omnigraph.open(changed) as graph:
        wider = graph.schema.source.replace(
            "name: String @key", "name: String @key  mail: String?  rank: I32 @default(3)", 1
        )
        graph.schema.apply(wider)
        graph.mutate('query q() { update Person set { mail: "a@b.c", rank: 4 } where name = "ann" }')
        commit = graph.commits.list().commits[1].id
    shown = shell.run("diff", "first", "main", "--uri", changed).stdout
    assert shown.splitlines() == [
        "1 change: 0 inserted, 1 updated, 0 deleted",
        "  node:Person  ~1",
        "  schema: property Person.mail: String? added",
        "  schema: property Person.rank: I32 added",
        "",
        "node Person",
        "~ ann",
        '    mail: null → "a@b.c"',
        "    rank: 3 → 4",
    ]
    no_match = shell.run("diff", "first", "main", "--uri", changed, "--id", "nobody").stdout
    assert no_match.splitlines()[0] == "no changes of entities"
    refused = shell.fails("commit", "changes", commit, "--uri", changed)
    assert f"omnigraph commit show {commit} --changes" in refused
    assert "baseline" not in refused
    assert "no changes of entities" in shell.run("commit", "show", commit, "--changes", "--uri", changed).stdout


def test_blobs_of_the_same_size_are_told_apart(shell: Shell) -> None:
    uri = str(shell.root / "blobs.omni")
    with omnigraph.init(uri, "node Pic { name: String @key  data: Blob? }") as graph:
        for data in ("base64:Zmlyc3Q=", "base64:b3RoZXI="):
            graph.load([{"type": "Pic", "data": {"name": "a", "data": data}}], mode="merge")
        first, second = (sha256(data).hexdigest()[:8] for data in (b"first", b"other"))
        head = graph.snapshot().commit
    shown = shell.run("diff", str(head.parent), head.id, "--uri", uri).stdout
    assert f"data: <blob of 5 bytes, sha256:{first}> → <blob of 5 bytes, sha256:{second}>" in shown
    log = shell.run("log", "Pic", "a", "--uri", uri).stdout
    assert '    data: {"size": 5, "uri": null} → {"size": 5, "uri": null} (other content)' in log.splitlines()


def test_changes_of_constraints_and_defaults_are_shown(shell: Shell) -> None:
    uri = str(shell.root / "rules.omni")
    text = "node T {{ k: String @key  n: I32? @default({})  @range(n, 1..{}) }}"
    with omnigraph.init(uri, text.format(3, 15)) as graph:
        graph.branches.create("side")
        commit = graph.schema.apply(text.format(4, 16)).commit
    assert commit is not None
    changes = [
        "  schema: property T.n: default changed from 3 to 4",
        "  schema: node T: @range(n, 1..15) changed to @range(n, 1..16)",
    ]
    wanted = ["no changes of entities", *changes]
    assert shell.run("diff", "side", "main", "--uri", uri).stdout.splitlines() == wanted
    assert shell.run("commit", "show", commit.id, "--changes", "--uri", uri).stdout.splitlines()[-3:] == wanted
    updated = shell.run("branch", "update", "side", "--uri", uri).stdout.splitlines()
    assert updated[1:] == ["  schema of main: 2 changes", *changes]
