"""`omnigraph schema show`, `plan` and `apply` on a graph."""

from __future__ import annotations

import json

import pytest
from tests.cli.shell import SCHEMA, Shell

import omnigraph
from omnigraph.errors import VersionReclaimedError

NEW = SCHEMA.replace("age: I32?", 'years: I64? @rename_from("age")\n    city: String @default("Rome")')


def graph(shell: Shell) -> str:
    """A graph with three people."""
    place = str(shell.root / "people")
    shell.run("init", place, "--schema", shell.schema)
    rows = shell.write("people.csv", "name,age\nann,31\nbob,\ncid,40\n")
    assert shell.run("load", place, "--data", rows, "--mode", "append", "--type", "Person").exit_code == 0
    return place


def test_show_prints_the_schema_as_it_was_applied(shell: Shell) -> None:
    place = graph(shell)
    with omnigraph.open(place) as opened:
        before = opened.snapshot().commit.id
    shell.run("branch", "create", "dev", "--uri", place)
    assert shell.run("schema", "show", place).stdout == SCHEMA
    shell.run("schema", "apply", place, "--schema", shell.write("new.pg", NEW))
    assert shell.run("schema", "show", place).stdout == NEW
    assert shell.run("schema", "get", "--uri", place).stdout == NEW
    assert shell.run("schema", "show", place, "--branch", "dev").stdout == SCHEMA
    assert shell.run("schema", "show", place, "--snapshot", before).stdout == SCHEMA
    assert json.loads(shell.run("schema", "show", place, "--json").stdout)["schema_source"] == NEW
    assert shell.run("schema", "show", place, "--branch", "dev", "--snapshot", before).exit_code == 2


def test_plan_prints_the_steps_with_their_costs(shell: Shell) -> None:
    place, new = graph(shell), shell.write("new.pg", NEW)
    result = shell.run("schema", "plan", place, "--schema", new)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "supported: yes"
    assert "rename node property 'Person.age' to 'years' [safe] — metadata only" in lines
    assert any("writes 12 bytes" in line for line in lines)
    members = json.loads(shell.run("schema", "plan", place, "--schema", new, "--json").stdout)
    assert members["uri"] == place
    assert members["supported"] is True
    assert members["step_count"] == len(members["steps"]) == 3
    costs = {step["kind"]: step["cost"] for step in members["steps"]}
    assert costs["rename_property"] == {"metadata_only": True, "bytes_read": 0, "bytes_written": 0}
    assert costs["add_property"]["bytes_written"] == 12
    assert shell.run("schema", "show", place).stdout == SCHEMA, "planning changes nothing"


def test_apply_prints_the_steps_and_the_version(shell: Shell) -> None:
    place, new = graph(shell), shell.write("new.pg", NEW)
    result = shell.run("schema", "apply", place, "--schema", new, "--as", "kim", "--message", "cities")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("omnigraph schema apply → ")
    lines = result.stdout.splitlines()
    assert lines[0] == "supported: yes"
    assert lines[-2] == "applied: yes"
    with omnigraph.open(place) as opened:
        head = opened.snapshot().commit
        assert lines[-1] == f"graph_manifest_version: {head.manifest_version}"
        assert (head.actor, head.message, head.writer) == ("kim", "cities", "SchemaApply")
        rows = opened.snapshot().scan("node:Person").sort_by("id").to_pylist()
    assert [(row["id"], row["years"], row["city"]) for row in rows] == [
        ("ann", 31, "Rome"),
        ("bob", None, "Rome"),
        ("cid", 40, "Rome"),
    ]
    again = shell.run("schema", "apply", place, "--schema", new)
    assert again.exit_code == 0
    assert "no schema changes\n" in again.stdout
    assert "applied: no\n" in again.stdout


def test_apply_prints_json(shell: Shell) -> None:
    place, new = graph(shell), shell.write("new.pg", NEW)
    members = json.loads(shell.run("schema", "apply", place, "--schema", new, "--json").stdout)
    assert (members["uri"], members["supported"], members["applied"]) == (place, True, True)
    assert members["commit"]["graph_manifest_version"] == members["graph_manifest_version"]
    assert {step["kind"] for step in members["steps"]} == {"add_property", "rename_property", "widen_property"}
    again = json.loads(shell.run("schema", "apply", place, "--schema", new, "--json").stdout)
    assert (again["applied"], again["steps"], again["commit"]) == (False, [], None)


def test_apply_reports_rows_that_do_not_fit(shell: Shell) -> None:
    place = graph(shell)
    new = shell.write("new.pg", SCHEMA.replace("age: I32?", "age: I32"))
    result = shell.run("schema", "apply", place, "--schema", new)
    assert result.exit_code == 1
    assert "Person.age: 'bob': has no value" in result.stderr
    assert "help:" in result.stderr
    assert shell.run("schema", "show", place).stdout == SCHEMA


def test_drops_can_be_refused_or_made_hard(shell: Shell) -> None:
    place = graph(shell)
    with omnigraph.open(place) as opened:
        before = opened.snapshot().commit.id
    new = shell.write("new.pg", SCHEMA.replace("    age: I32?\n", ""))
    refused = shell.run("schema", "apply", place, "--schema", new, "--allow", "validated")
    assert refused.exit_code == 1
    assert "OG-DS-104" in refused.stderr
    assert "--allow drops" in refused.stderr
    done = json.loads(shell.run("schema", "apply", place, "--schema", new, "--allow-data-loss", "--json").stdout)
    assert done["steps"][0]["mode"] == "hard"
    assert done["hard_drops"][0]["type_key"] == "node:Person"
    with omnigraph.open(place) as opened, pytest.raises(VersionReclaimedError):
        opened.snapshot(commit=before).scan("node:Person")


def test_wrong_combinations_of_options_are_usage_errors(shell: Shell) -> None:
    place = graph(shell)
    for args in (
        ("plan", place),
        ("plan", "--from", shell.schema),
        ("plan", place, "--from", shell.schema, "--to", shell.schema),
        ("plan", "--from", shell.schema, "--to", shell.schema, "--schema", shell.schema),
        ("apply", place),
    ):
        assert shell.run("schema", *args).exit_code == 2, args
    assert shell.run("schema", "apply", place, "--schema", shell.queries).exit_code == 1


def test_two_contradicting_levels_are_a_usage_error(shell: Shell) -> None:
    """`--allow-data-loss` removes data from the history, so it must not win over a stricter level."""
    place = graph(shell)
    with omnigraph.open(place) as opened:
        before = opened.snapshot().commit.id
    new = shell.write("new.pg", SCHEMA.replace("    age: I32?\n", ""))
    for level in ("safe", "validated", "drops"):
        result = shell.run("schema", "apply", place, "--schema", new, "--allow-data-loss", "--allow", level, "--yes")
        assert result.exit_code == 2
        assert f"--allow {level} and --allow-data-loss exclude each other" in result.stderr
    assert shell.run("schema", "show", place).stdout == SCHEMA
    agreed = ("--allow-data-loss", "--allow", "data-loss", "--yes")
    assert shell.run("schema", "apply", place, "--schema", new, *agreed).exit_code == 0
    with omnigraph.open(place) as opened, pytest.raises(VersionReclaimedError):
        opened.entity("Person", "ann", at=before)
