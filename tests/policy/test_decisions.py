"""Cedar decides as the rules say: compared with an oracle in plain Python, on random bundles and requests."""

from __future__ import annotations

import json
import random
from typing import Any

import cedarpy
import pytest

from omnigraph.engine.access import Action
from omnigraph.lang.schema import accept, compile_schema
from omnigraph.policy import Policy
from omnigraph.policy.bundle import TYPED
from omnigraph.policy.bundle_file import read_bundle
from omnigraph.policy.cedar import CedarPolicies, CedarRequest, cedar_schema, policy_set

GRAPH_ACTIONS = [action.value for action in Action if action is not Action.GRAPH_LIST]
BRANCHES = [None, "main", "release", "draft/a", "main2"]
ACTORS = ["kim", "lee", "mia", 'o"hara\n\\', "nobody", None]
TYPES = ["Person", "Company", "node:Both", "edge:Both", "Knows"]
KEYS = ["node:Person", "node:Company", "node:Both", "edge:Both", "edge:Knows"]
SCHEMA = """
node Person { name: String @key }
node Company { name: String @key }
node Both { name: String @key }
edge Both: Person -> Person
edge Knows: Person -> Person
"""


def random_bundle(rng: random.Random) -> dict[str, Any]:
    groups = {
        name: rng.sample([actor for actor in ACTORS[:4] if actor], rng.randint(1, 3))
        for name in rng.sample(["crew", "officers", "guests"], rng.randint(1, 3))
    }
    rules = []
    for number in range(rng.randint(1, 6)):
        allow: dict[str, Any] = {"actors": {"group": rng.choice(list(groups))}}
        kind = rng.choice(["branch", "target", "none", "mixed"])
        if kind == "branch":
            allow["actions"] = rng.sample(["read", "export", "change"], rng.randint(1, 3))
            if rng.random() < 0.7:
                allow["branch_scope"] = rng.choice(["any", "protected", "unprotected"])
            if rng.random() < 0.4:
                allow["types"] = rng.sample(TYPES, rng.randint(1, 3))
        elif kind == "target":
            actions = ["schema_apply", "branch_create", "branch_delete", "branch_merge"]
            allow["actions"] = rng.sample(actions, rng.randint(1, 4))
            if rng.random() < 0.7:
                allow["target_branch_scope"] = rng.choice(["any", "protected", "unprotected"])
        elif kind == "none":
            allow["actions"] = rng.sample(["invoke_query", "admin"], rng.randint(1, 2))
        else:
            allow["actions"] = rng.sample(GRAPH_ACTIONS, rng.randint(1, 4))
        rules.append({"id": f"{rng.choice('abc')}{rng.choice(['', '-', ':'])}{number}", "allow": allow})
    protected = rng.sample(["main", "release"], rng.randint(0, 2))
    return {"version": 1, "groups": groups, "protected_branches": protected, "rules": rules}


def expected_rules(
    bundle: dict[str, Any],
    actor: str | None,
    action: str,
    branch: str | None,
    target: str | None,
    key: str | None = None,
) -> list[str]:
    """The rules that allow a request, sorted."""

    def in_scope(scope: str, name: str | None) -> bool:
        if scope == "any":
            return True
        return name is not None and (name in bundle["protected_branches"]) == (scope == "protected")

    def has_type(allow: dict[str, Any]) -> bool:
        if "types" not in allow or key is None:
            return True
        return key in allow["types"] or key.split(":")[1] in allow["types"]

    return sorted(
        rule["id"]
        for rule in bundle["rules"]
        for allow in [rule["allow"]]
        if actor in bundle["groups"][allow["actors"]["group"]]
        and action in allow["actions"]
        and in_scope(allow.get("branch_scope", "any"), branch)
        and in_scope(allow.get("target_branch_scope", "any"), target)
        and has_type(allow)
    )


@pytest.mark.parametrize("bundles", [40, pytest.param(1_000, marks=pytest.mark.soak)])
def test_decisions_equal_those_of_the_rules(bundles: int) -> None:
    rng = random.Random(bundles)
    allowed = total = 0
    for _ in range(bundles):
        given = random_bundle(rng)
        policy = Policy.read(given)
        for _ in range(150):
            actor, action = rng.choice(ACTORS), rng.choice(GRAPH_ACTIONS)
            branch, target = rng.choice(BRANCHES), rng.choice(BRANCHES)
            rules = expected_rules(given, actor, action, branch, target)
            found = policy.decide(actor, action, branch, target)
            assert (found.allowed, found.rule) == (bool(rules), min(rules, default=None)), (given, actor, action)
            assert found.message
            allowed, total = allowed + found.allowed, total + 1
    assert total / 20 < allowed < total, "the requests are neither all allowed nor all denied"


@pytest.mark.parametrize("bundles", [25, pytest.param(500, marks=pytest.mark.soak)])
def test_the_types_of_a_scope_equal_those_of_the_rules(bundles: int) -> None:
    rng = random.Random(bundles)
    accepted = accept(compile_schema(SCHEMA), "test")
    hidden = 0
    for _ in range(bundles):
        given = random_bundle(rng)
        policy = Policy.read(given)
        for actor in ("kim", "lee", "mia"):
            for action in TYPED:
                for branch in BRANCHES:
                    scope = policy.rows(actor, action, branch, accepted, accepted)
                    visible = {key for key in KEYS if expected_rules(given, actor, action.value, branch, None, key)}
                    if "node:Person" not in visible:
                        visible -= {"edge:Both", "edge:Knows"}  # their ends are hidden
                    assert set(scope.visible(scope.types)) == visible, (given, actor, action, branch)
                    assert set(scope.types) == set(KEYS)
                    assert not scope.limits_rows
                    hidden += len(KEYS) - len(visible)
    assert hidden


def test_a_permit_has_the_id_of_its_rule_and_action() -> None:
    rule = {"id": "a:b", "allow": {"actors": {"group": "crew"}, "actions": ["read", "change"]}}
    policies = policy_set(read_bundle({"version": 1, "groups": {"crew": ["kim"]}, "rules": [rule]}))
    assert set(policies["staticPolicies"]) == {"a:b:read", "a:b:change"}
    assert all(one["effect"] == "permit" for one in policies["staticPolicies"].values())


@pytest.mark.parametrize("seed", range(20))
def test_all_policies_are_valid_for_the_schema(seed: int) -> None:
    policies = json.dumps(policy_set(read_bundle(random_bundle(random.Random(seed)))))
    found = cedarpy.validate_policies(cedarpy.policies_from_json_str(policies), cedar_schema())
    assert found.validation_passed, found.errors


def test_an_answer_with_an_error_is_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that reads an attribute that does not exist makes the answer unreliable, even if another one permits."""
    bundle = read_bundle({
        "version": 1,
        "groups": {"crew": ["kim"]},
        "rules": [{"id": "r", "allow": {"actors": {"group": "crew"}, "actions": ["read"]}}],
    })  # fmt: skip
    policies = CedarPolicies(bundle, "graph")
    request = CedarRequest("kim", ("crew",), Action.READ, True, False, False, False)
    assert policies.matching(request) == ("r",)
    broken = "permit(principal, action, resource) when { principal.missing };"
    monkeypatch.setattr(policies, "_policies", policies._policies.with_added_str(broken))
    assert policies.matching(request) == ()


def test_a_request_without_an_actor_is_denied() -> None:
    policy = Policy.read(random_bundle(random.Random(1)))
    assert policy.decide(None, "read", "main").message == "the request has no actor"
    assert "in no group" in policy.decide("stranger", "read", "main").message


def test_spaces_around_a_branch_do_not_change_the_decision() -> None:
    rule = {"id": "r", "allow": {"actors": {"group": "c"}, "actions": ["change"], "branch_scope": "unprotected"}}
    given = {"version": 1, "groups": {"c": ["kim"]}, "protected_branches": ["main"], "rules": [rule]}
    policy = Policy.read(given)
    assert policy.decide("kim", "change", "draft").allowed
    assert not policy.decide("kim", "change", " main ").allowed


def test_the_list_of_graphs_has_a_bundle_of_its_own() -> None:
    rule = {"id": "lists", "allow": {"actors": {"group": "crew"}, "actions": ["graph_list"]}}
    policy = Policy.read({"version": 1, "groups": {"crew": ["kim"]}, "rules": [rule]})
    assert policy.bundle.is_for_server
    assert policy.decide("kim", Action.GRAPH_LIST).rule == "lists"
    assert not policy.decide("kim", Action.READ, "main").allowed
    assert not policy.decide("lee", Action.GRAPH_LIST).allowed
