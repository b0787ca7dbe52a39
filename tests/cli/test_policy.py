"""`omnigraph policy`: validate, test, explain, denials."""

from __future__ import annotations

import json

import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.errors import AccessDeniedError

pytest.importorskip("cedarpy")

BUNDLE = """\
version: 1
groups:
  crew: [act-kim, act-lee]
  officers: [act-kim]
protected_branches: [main, release]
rules:
  - id: crew-reads
    allow:
      actors: {group: crew}
      actions: [read, export]
      branch_scope: any
  - id: crew-writes-drafts
    allow:
      actors: {group: crew}
      actions: [change]
      branch_scope: unprotected
  - id: officers-merge
    allow:
      actors: {group: officers}
      actions: [branch_merge]
      target_branch_scope: protected
"""
ROWS = """\
row_rules:
  - {id: old, type: Person, actions: [read], actors: {group: crew}, where: $.agee > 30}
"""
TESTS = """\
version: 1
cases:
  - {id: kim-merges, actor: act-kim, action: branch_merge, branch: draft/a, target_branch: main, expect: allow}
  - {id: lee-cannot, actor: act-lee, action: change, branch: main, expect: deny}
"""


@pytest.fixture
def bundle(shell: Shell) -> str:
    return shell.write("crew.yaml", BUNDLE)


def test_a_valid_bundle_is_reported_with_its_actors(shell: Shell, bundle: str) -> None:
    assert shell.run("policy", "validate", "--policy", bundle).stdout == "policy valid: bundle 'crew.yaml' [2 actors]\n"
    assert shell.json("policy", "validate", "--policy", bundle) == {
        "valid": True,
        "bundle": "crew.yaml",
        "rules": 3,
        "row_rules": 0,
        "masks": 0,
        "actors": 2,
        "schema_checked": False,
    }


def test_an_invalid_bundle_is_an_error_with_its_place(shell: Shell) -> None:
    path = shell.write("crew.yaml", BUNDLE.replace("group: officers", "group: oficers"))
    error = shell.fails("policy", "validate", "--policy", path)
    assert (
        "crew.yaml, line 19: rules[2].allow.actors.group: there is no group 'oficers' (rule 'officers-merge')" in error
    )
    assert "did you mean 'officers'" in error


def test_rules_about_rows_are_checked_against_a_graph_or_a_schema(shell: Shell, graph: str) -> None:
    path = shell.write("crew.yaml", BUNDLE + ROWS)
    assert shell.run("policy", "validate", "--policy", path).exit_code == 0
    for where in (("--store", graph), ("--uri", graph), ("--schema", shell.schema)):
        error = shell.fails("policy", "validate", "--policy", path, *where)
        assert "crew.yaml, line 23: where: Person has no property 'agee' (rule 'old')" in error
        assert "did you mean 'age'" in error
    good = shell.write("good.yaml", BUNDLE + ROWS.replace("agee", "age"))
    assert shell.json("policy", "validate", "--policy", good, "--store", graph)["schema_checked"] is True
    assert "not both" in shell.fails(
        "policy", "validate", "--policy", good, "--store", graph, "--schema", shell.schema, code=2
    )


def test_the_cases_of_a_tests_file_are_decided(shell: Shell, bundle: str) -> None:
    tests = shell.write("tests.yaml", TESTS)
    run = shell.run("policy", "test", "--policy", bundle, "--tests", tests)
    assert (run.exit_code, run.stdout) == (0, "policy tests passed: 2 cases\n")


def test_a_case_that_differs_fails(shell: Shell, bundle: str) -> None:
    tests = shell.write("tests.yaml", TESTS.replace("expect: deny", "expect: allow"))
    error = shell.fails("policy", "test", "--policy", bundle, "--tests", tests)
    assert (
        "tests.yaml, line 4: case 'lee-cannot' expects allow, but the decision is deny: no rule of crew.yaml" in error
    )
    assert "policy tests failed: 1 of 2 cases" in error
    printed = shell.run("policy", "test", "--policy", bundle, "--tests", tests, "--json")
    assert printed.exit_code == 1
    found = json.loads(printed.stdout)
    assert found["passed"] is False
    assert [(case["id"], case["passed"], case["matched_rule"]) for case in found["cases"]] == [
        ("kim-merges", True, "officers-merge"),
        ("lee-cannot", False, None),
    ]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("version: 1", "version: 3", "line 1: version: this release reads version 1 of tests files"),
        ("expect: deny", "expects: deny", "line 4: cases[1].expects: unknown name"),
        ("expect: deny", "expect: no", "line 4: cases[1].expect: 'no' is not one of the allowed values"),
        ("action: change", "action: chance", "line 4: cases[1].action: 'chance' is not one of the allowed values"),
        ("id: lee-cannot", "id: kim-merges", "line 4: cases[1].id: another case has the id 'kim-merges', in line 3"),
        ("actor: act-lee, ", "", "line 4: cases[1]: 'actor' is missing"),
        (TESTS.partition("cases:")[2], " []\n", "line 2: cases: the file has no cases"),
    ],
)
def test_an_invalid_tests_file_is_an_error_with_its_place(
    shell: Shell, bundle: str, before: str, after: str, message: str
) -> None:
    assert before in TESTS
    tests = shell.write("tests.yaml", TESTS.replace(before, after))
    assert f"tests.yaml, {message}" in shell.fails("policy", "test", "--policy", bundle, "--tests", tests)


def test_a_decision_is_explained(shell: Shell, bundle: str) -> None:
    request = ("--actor", "act-kim", "--action", "branch_merge", "--branch", "draft", "--target-branch", "main")
    assert shell.run("policy", "explain", "--policy", bundle, *request).stdout.splitlines() == [
        "decision: allow",
        "actor: act-kim",
        "action: branch_merge",
        "branch: draft",
        "target_branch: main",
        "matched_rule: officers-merge",
        "message: rule 'officers-merge' allows branch_merge",
    ]
    denied = shell.json("policy", "explain", "--policy", bundle, "--actor", "act-lee", "--action", "admin")
    assert denied == {
        "decision": "deny",
        "actor": "act-lee",
        "action": "admin",
        "branch": None,
        "target_branch": None,
        "matched_rule": None,
        "message": "no rule of crew.yaml allows admin here",
    }


def test_explain_offers_all_actions(shell: Shell, bundle: str) -> None:
    for action in omnigraph.Action:
        done = shell.run("policy", "explain", "--policy", bundle, "--actor", "nobody", "--action", action.value)
        assert done.stdout.startswith("decision: deny\n")


def test_denials_are_listed(shell: Shell, graph: str, bundle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DENIALS", str(shell.root / "audit" / "denials.jsonl"))
    assert shell.run("policy", "denials").stdout == ""
    for actor in ("act-lee", "stranger"):
        with omnigraph.open(graph, policy=bundle, actor=actor) as opened, pytest.raises(AccessDeniedError):
            opened.mutate('query q() { insert Person { name: "ann" } }')
    lines = shell.run("policy", "denials").stdout.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        f"actor=act-lee action=change branch=main rule=- graph={graph} (no rule of crew.yaml allows change here)",
        f"actor=stranger action=change branch=main rule=- graph={graph} (the actor is in no group of crew.yaml)",
    ]
    assert len(shell.run("policy", "denials", "--limit", "1").stdout.splitlines()) == 1
    (found,) = shell.json("policy", "denials", "--actor", "act-lee")["denials"]
    assert found["actor"] == "act-lee"
    assert found["policy"] == "crew.yaml"
