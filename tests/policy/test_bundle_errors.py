"""A bundle that is not valid is refused, and the error names the file, the line and the rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import InputError, PolicyError
from omnigraph.lang.schema import AcceptedSchema, accept, compile_schema
from omnigraph.policy import Policy, read_bundle

HEAD = """\
version: 1
groups:
  crew: [kim, lee]
protected_branches: [main]
"""
RULE = """\
rules:
  - id: reads
    allow:
      actors: {group: crew}
      actions: [read]
"""
SCHEMA = """
node Person { name: String @key  owner: String?  salary: I32?  note: Blob? }
node Both { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge Both: Person -> Person
"""


def accepted() -> AcceptedSchema:
    return accept(compile_schema(SCHEMA), "test")


def error_of(tmp_path: Path, text: str) -> PolicyError:
    """The error of a bundle, read from a file, and checked against the schema."""
    path = tmp_path / "policy.yaml"
    path.write_text(dedent(text), encoding="utf-8")
    with pytest.raises(PolicyError) as raised:
        Policy.read(path).check(accepted())
    return raised.value


INVALID = {
    "an unknown section": (HEAD + "ruels: []\n" + RULE, "policy.yaml, line 5: ruels: unknown name"),
    "another version": (
        "version: 2\ngroups: {}\n" + RULE,
        "policy.yaml, line 1: version: this release reads",
    ),
    "a boolean version": ("version: true\n" + RULE, "policy.yaml, line 1: version: this release"),
    "no version": ("groups: {crew: [kim]}\n" + RULE, "policy.yaml, line 1: 'version' is missing"),
    "no groups": ("version: 1\n" + RULE, "policy.yaml, line 1: 'groups' is missing"),
    "an empty group": (
        "version: 1\ngroups:\n  crew: []\n" + RULE,
        "policy.yaml, line 3: groups.crew: the list is empty",
    ),
    "an actor twice": (
        "version: 1\ngroups:\n  crew: [kim, kim]\n" + RULE,
        "policy.yaml, line 3: groups.crew[1]: duplicate actor 'kim'",
    ),
    "an actor that is a number": (
        "version: 1\ngroups:\n  crew: [7]\n" + RULE,
        "policy.yaml, line 3: groups.crew[0]: expected a text, found a number",
    ),
    "a group twice": (
        "version: 1\ngroups:\n  crew: [kim]\n  crew: [lee]\n" + RULE,
        "policy.yaml, line 4: duplicate name 'crew'",
    ),
    "no rules": (HEAD + "rules: []\n", "policy.yaml, line 5: rules: a bundle needs rules"),
    "a branch name that is not valid": (
        "version: 1\ngroups: {crew: [kim]}\nprotected_branches: ['a b']\n" + RULE,
        "policy.yaml, line 3: protected_branches[0]",
    ),
    "a rule without an id": (
        HEAD + "rules:\n  - allow: {actors: {group: crew}, actions: [read]}\n",
        "policy.yaml, line 6: rules[0]: 'id' is missing",
    ),
    "two rules with one id": (
        HEAD + RULE + RULE.removeprefix("rules:\n"),
        "policy.yaml, line 10: rules[1].id: another rule has this id, in line 6 (rule 'reads')",
    ),
    "a row rule with the id of a rule": (
        HEAD + RULE + "row_rules:\n  - {id: reads, type: Person, actions: [read], actors: {group: crew}}\n",
        "policy.yaml, line 11: row_rules[0].id: another rule has this id, in line 6 (rule 'reads')",
    ),
    "an unknown field of a rule": (
        HEAD + RULE.replace("allow:", "deny: {}\n    allow:"),
        "policy.yaml, line 7: rules[0].deny: unknown name (rule 'reads')",
    ),
    "an unknown field of allow": (
        HEAD + RULE + "      branches: any\n",
        "policy.yaml, line 10: rules[0].allow.branches: unknown name (rule 'reads')",
    ),
    "a field twice": (HEAD + RULE + "      actions: [read]\n", "policy.yaml, line 10: duplicate name 'actions'"),
    "an undefined group": (
        HEAD + RULE.replace("{group: crew}", "{group: crow}"),
        "policy.yaml, line 8: rules[0].allow.actors.group: there is no group 'crow' (rule 'reads')",
    ),
    "an unknown action": (
        HEAD + RULE.replace("[read]", "[raed]"),
        "policy.yaml, line 9: rules[0].allow.actions[0]: 'raed' is not one of the allowed values (rule 'reads')",
    ),
    "no action": (
        HEAD + RULE.replace("[read]", "[]"),
        "policy.yaml, line 9: rules[0].allow.actions: the list is empty (rule 'reads')",
    ),
    "an action twice": (
        HEAD + RULE.replace("[read]", "[read, read]"),
        "policy.yaml, line 9: rules[0].allow.actions[1]: duplicate action read (rule 'reads')",
    ),
    "a scope of another kind": (
        HEAD + RULE + "      target_branch_scope: any\n",
        "policy.yaml, line 10: rules[0].allow.target_branch_scope: target_branch_scope does not apply to read",
    ),
    "a scope for an action without branches": (
        HEAD + RULE.replace("[read]", "[admin]") + "      branch_scope: any\n",
        "policy.yaml, line 10: rules[0].allow.branch_scope: branch_scope does not apply to admin",
    ),
    "an unknown scope": (
        HEAD + RULE + "      branch_scope: some\n",
        "policy.yaml, line 10: rules[0].allow.branch_scope: 'some' is not one of the allowed values",
    ),
    "types of an action without types": (
        HEAD + RULE.replace("[read]", "[branch_merge]") + "      types: [Person]\n",
        "policy.yaml, line 10: rules[0].allow.types: types does not apply to branch_merge",
    ),
    "graph_list beside an action on a graph": (
        HEAD + RULE.replace("[read]", "[graph_list, read]"),
        "policy.yaml, line 6: a bundle with graph_list has no actions on a graph (rule 'reads')",
    ),
    "graph_list and a rule about a graph": (
        HEAD + RULE + RULE.removeprefix("rules:\n").replace("reads", "lists").replace("[read]", "[graph_list]"),
        "policy.yaml, line 6: a bundle with graph_list has no actions on a graph (rule 'reads')",
    ),
    "graph_list and masks": (
        HEAD + RULE.replace("[read]", "[graph_list]") + "masks: []\n",
        "policy.yaml, line 10: masks: a bundle with graph_list has no rules about rows",
    ),
    "a type that does not exist": (
        HEAD + RULE + "      types: [Persn]\n",
        "policy.yaml, line 6: there is no type 'Persn' (rule 'reads')",
    ),
    "a row rule about another action": (
        HEAD + RULE + "row_rules:\n  - {id: own, type: Person, actions: [export], actors: {group: crew}}\n",
        "policy.yaml, line 11: row_rules[0].actions[0]: a rule of this section cannot be about export (rule 'own')",
    ),
    "a row rule about a type that does not exist": (
        HEAD + RULE + "row_rules:\n  - {id: own, type: Persn, actions: [read], actors: {group: crew}}\n",
        "policy.yaml, line 11: there is no type 'Persn' (rule 'own')",
    ),
    "a row rule about two types": (
        HEAD + RULE + "row_rules:\n  - {id: own, type: Both, actions: [read], actors: {group: crew}}\n",
        "policy.yaml, line 11: 'Both' is a node type and an edge type (rule 'own')",
    ),
    "a mask of a property that does not exist": (
        HEAD + RULE + "masks:\n  - {id: pay, type: Person, properties: [salery], actors: {group: crew}}\n",
        "policy.yaml, line 11: Person has no property 'salery' (rule 'pay')",
    ),
    "a mask of the key": (
        HEAD + RULE + "masks:\n  - {id: pay, type: Person, properties: [name], actors: {group: crew}}\n",
        "policy.yaml, line 11: name is part of the key, which the id of each row shows (rule 'pay')",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_bundle_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    text, message = INVALID[name]
    assert error_of(tmp_path, text).message.startswith(message)


def with_condition(where: str) -> str:
    row_rule = f"""\
row_rules:
  - id: own
    type: Person
    actions: [read]
    actors: {{group: crew}}
    where: {where}
"""
    return HEAD + RULE + row_rule


CONDITIONS = {
    "a misspelt property": ("'$.ownr = $actor'", "Person has no property 'ownr'", "did you mean 'owner'?"),
    "a misspelt parameter": ("'$.owner = $actr'", "$actr is not a parameter of this query", "did you mean 'actor'?"),
    "values of other types": ("'$.salary = $actor'", "I32? cannot be compared with String", None),
    "a value that is no condition": ("'$.salary + 1'", "", None),
    "a list in place of a value": ("'$.owner = $groups'", "", None),
    "a blob": ("'$.note = $actor'", "note is a Blob, which cannot be tested", None),
    "no expression": ("'$.owner ='", "", None),
    "a second statement": (
        "'$.owner = $actor delete Person where $.owner = $actor'",
        "this is more than a condition",
        None,
    ),
    "a second query": (
        "'$.owner = $actor } query other() { delete Person where $.owner != \"\"'",
        "this is more than a condition",
        None,
    ),
    "the time": ("'$.salary > 3 and now() > now()'", "a condition on rows may not use now()", None),
    "an unclosed string": ("'$.owner = \"kim'", "", None),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_an_invalid_condition_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    where, message, hint = CONDITIONS[name]
    error = error_of(tmp_path, with_condition(where))
    assert error.message.startswith("policy.yaml, line 15: ")
    assert error.message.endswith("(rule 'own')")
    assert message in error.message
    assert hint is None or (error.hint is not None and hint.strip("?") in error.hint)


@pytest.mark.parametrize(
    ("type_name", "where"),
    [
        ("Person", "$.owner = $actor"),
        ("Person", "owner = $actor"),
        ("Person", '$.owner = "$.not a property" or $.owner in $groups'),
        ("Person", "$.salary is null // $.nothing"),
        ("Person", "$.id != $actor and not ($.salary > 3)"),
        ("Knows", "$.from = $actor or $.since < 2020"),
        ("edge:Both", "$.to = $actor"),
        ("node:Both", "$.name starts_with $actor"),
    ],
)
def test_a_valid_condition_is_accepted(type_name: str, where: str) -> None:
    row_rule = {"id": "own", "type": type_name, "actions": ["read"], "actors": {"group": "crew"}, "where": where}
    allow = {"actors": {"group": "crew"}, "actions": ["read"]}
    bundle = {
        "version": 1,
        "groups": {"crew": ["kim"]},
        "rules": [{"id": "r", "allow": allow}],
        "row_rules": [row_rule],
    }
    Policy.read(bundle).check(accepted())


@pytest.mark.parametrize("wrong", [{"version": 1}, [], 5, b"policy.yaml", Policy, object()])
def test_a_policy_of_a_wrong_type_is_refused(wrong: Any, tmp_path: Path) -> None:
    omnigraph.init(tmp_path / "graph", SCHEMA).close()
    uses: list[Callable[[], Graph]] = [
        lambda: omnigraph.open(tmp_path / "graph", policy=wrong, actor="kim"),
        lambda: omnigraph.init(tmp_path / "other", SCHEMA, policy=wrong, actor="kim"),
    ]
    for use in uses:
        with pytest.raises(
            InputError, match=f"policy: a value of type {type(wrong).__name__} is not a policy"
        ) as error:
            use()
        assert error.value.hint is not None
        assert error.value.hint.startswith("give the path of a policy file, or an omnigraph.Policy")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("wrong", [5, None, ["policy.yaml"]])
def test_a_bundle_of_a_wrong_type_is_refused(wrong: Any) -> None:
    with pytest.raises(PolicyError, match=f"found a value of type {type(wrong).__name__}"):
        Policy.read(wrong)


def test_a_file_that_does_not_exist_is_named() -> None:
    with pytest.raises(PolicyError, match=r"there is no file .*missing\.yaml"):
        read_bundle("missing.yaml")


def test_a_file_that_is_not_yaml_is_refused_with_its_place(tmp_path: Path) -> None:
    error = error_of(tmp_path, "version: 1\nrules: [\n")
    assert error.message.startswith("policy.yaml, line 3, column 1: not YAML")
