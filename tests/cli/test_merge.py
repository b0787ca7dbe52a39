"""`omnigraph branch merge`: its output, its commit, and its exit status."""

from __future__ import annotations

import json

import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.errors import SparkUnavailableError
from omnigraph.graph import Graph
from omnigraph.pipeline import backend
from omnigraph.settings import SPARK_THRESHOLD


@pytest.fixture
def place(shell: Shell) -> str:
    """A graph with a changed branch `side`."""
    uri = shell.init()
    with omnigraph.open(uri) as graph:
        _do(graph, 'insert Person { name: "ann", age: 1 }')
        graph.branches.create("side")
        _do(graph, 'insert Person { name: "bob", age: 1 }', "side")
    return uri


def _do(graph: Graph, text: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {text} }}", branch=branch)


def _disagree(place: str) -> None:
    with omnigraph.open(place) as graph:
        _do(graph, 'update Person set { age: 2 } where name = "ann"', "side")
        _do(graph, 'update Person set { age: 3 } where name = "ann"')


def test_a_merge_prints_its_outcome_and_counts(shell: Shell, place: str) -> None:
    done = shell.run("branch", "merge", "side", "--uri", place, "--message", "reviewed")
    assert done.exit_code == 0
    assert done.stdout == "merged side into main: fast_forward\n  node:Person: 1 inserted, 0 updated, 0 deleted\n"
    assert done.stderr == f"omnigraph branch merge → {place} (direct, local)\n"
    again = shell.run("branch", "merge", "side", "--store", place, "--quiet")
    assert (again.stdout, again.stderr) == ("main is already up to date with side: nothing to merge\n", "")


def test_merge_prints_json(shell: Shell, place: str) -> None:
    found = shell.json("branch", "merge", "main", "--into", "side", "--uri", place, "--as", "act-kim")
    assert (found["source"], found["target"], found["outcome"]) == ("main", "side", "already_up_to_date")
    found = shell.json("branch", "merge", "side", "--uri", place, "--as", "act-kim", "--delete-branch")
    assert (found["uri"], found["outcome"], found["actor_id"]) == (place, "fast_forward", "act-kim")
    assert found["branch_deleted"] is True
    assert found["commit"]["merged_parent_commit_id"] == found["source_commit_id"]
    assert (found["engine"], found["merge_conflicts"]) == ("local", [])


def test_conflicts_are_listed(shell: Shell, place: str) -> None:
    _disagree(place)
    refused = shell.run("branch", "merge", "side", "--uri", place)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "'side' cannot be merged into 'main':\n  Person 'ann': divergent_update:" in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("  help: nothing was written; ")
    preview = shell.run("branch", "merge", "side", "--uri", place, "--preview")
    assert preview.exit_code == 1
    assert preview.stdout.splitlines() == [
        "would not merge side into main: 1 conflict has no decision",
        "  node:Person: 1 inserted, 0 updated, 0 deleted",
        "  conflict: Person 'ann': divergent_update: 'side' and 'main' have both changed it, and differ in age "
        '(base {"age": 1}, ours {"age": 3}, theirs {"age": 2})',
        "  help: choose a side for all (--strategy) or for each (--resolve)",
        "",
        "node Person",
        '+ bob  age: 1, name: "bob"',
    ]
    printed = json.loads(shell.run("branch", "merge", "side", "--uri", place, "--preview", "--json").stdout)
    (conflict,) = printed["merge_conflicts"]
    assert {name: conflict[name] for name in ("base", "ours", "theirs", "base_undecided")} == {
        "base": {"age": 1},
        "ours": {"age": 3},
        "theirs": {"age": 2},
        "base_undecided": False,
    }
    resolved = shell.run("branch", "merge", "side", "--uri", place, "--resolve", "Person/ann=theirs", "--quiet")
    assert resolved.exit_code == 0
    with omnigraph.open(place, read_only=True) as graph:
        assert graph.entity("Person", "ann") == {"id": "ann", "name": "ann", "age": 2}


def test_a_strategy_resolves_conflicts(shell: Shell, place: str) -> None:
    _disagree(place)
    assert shell.run("branch", "merge", "side", "--uri", place, "--strategy", "ours").exit_code == 0
    with omnigraph.open(place, read_only=True) as graph:
        assert graph.entity("Person", "ann") == {"id": "ann", "name": "ann", "age": 3}


@pytest.mark.parametrize("text", ["Person", "Person/ann", "Person/ann=mine", "ann=ours"])
def test_an_invalid_resolution_is_refused(shell: Shell, place: str, text: str) -> None:
    assert shell.run("branch", "merge", "side", "--uri", place, "--resolve", text).exit_code == 2


def test_a_source_with_children_is_merged_and_not_deleted(shell: Shell, place: str) -> None:
    with omnigraph.open(place) as graph:
        graph.branches.create("child", source="side")
    done = shell.run("branch", "merge", "side", "--uri", place, "--delete-branch", "--quiet")
    assert done.exit_code == 0
    assert (
        done.stderr
        == "branch 'side' was not deleted: branch 'side' cannot be deleted: branches were created from it: child\n"
    )


def test_an_outdated_expected_commit_is_refused(shell: Shell, place: str) -> None:
    lost = shell.run("branch", "merge", "side", "--uri", place, "--if-commit", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert lost.exit_code == 4


def test_the_engine_is_chosen_by_size(shell: Shell, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the threshold on it runs on Spark, if Spark is available."""
    asked: list[str] = []

    def none() -> None:
        asked.append("Spark")
        raise SparkUnavailableError("there is no Java here")

    monkeypatch.setattr(backend, "check_available", none)
    assert shell.json("branch", "merge", "side", "--uri", place)["engine"] == "local"
    assert asked == []
    _disagree(place)
    monkeypatch.setenv(SPARK_THRESHOLD.name, "1")
    found = shell.json("branch", "merge", "side", "--uri", place, "--strategy", "theirs")
    assert (found["engine"], asked) == ("local", ["Spark"])


def test_an_update_prints_the_schema_and_the_help_for_invalid_values(shell: Shell, place: str) -> None:
    with omnigraph.open(place) as graph:
        _do(graph, 'update Person set { age: 50 } where name = "bob"', "side")
        graph.schema.apply(graph.schema.source.replace("age: I32?", "age: I32?  @range(age, 0..10)  note: String?"))
    preview = shell.run("branch", "update", "side", "--uri", place, "--preview")
    assert preview.exit_code == 1
    lines = preview.stdout.splitlines()
    assert lines[1:4] == [
        "  schema of main: 2 changes",
        "  schema: property Person.note: String? added",
        "  schema: node Person: @range(age, 0..10) added",
    ]
    assert lines[-1] == (
        "  help: the schema does not allow the values of 'ours': choose 'theirs' for them (--strategy or --resolve), "
        "or first change them on their branch"
    )
    done = shell.run("branch", "update", "side", "--uri", place, "--strategy", "theirs", "--engine", "local", "--quiet")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "  node:Person: 0 inserted, 0 updated, 1 deleted"
