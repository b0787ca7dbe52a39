"""Bundles as Cedar policies: one permit per rule and action, and no forbids."""

# See docs/decisions/0304-cedar-decides-with-permits-only.md

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.errors import PolicyError
from omnigraph.policy.bundle import Bundle, Rule, Scope

try:
    import cedarpy
except ModuleNotFoundError:
    raise PolicyError(
        "policies need the package cedarpy, which is not installed", hint="pip install 'omnigraph[policy]'"
    ) from None

_ON_SERVER = (Action.GRAPH_LIST,)
_CONTEXT = {
    "has_branch": "Boolean",
    "branch": "String",
    "branch_is_protected": "Boolean",
    "has_target_branch": "Boolean",
    "target_branch": "String",
    "target_branch_is_protected": "Boolean",
    "has_type": "Boolean",
    "type": "String",
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CedarRequest:
    """A question to Cedar.

    Attributes:
        has_branch: whether the request has a branch. No rule depends on its name.
        type: a type key; None asks whether a rule allows the action, whatever its types are.
    """

    actor: str
    groups: tuple[str, ...]
    action: Action
    has_branch: bool
    branch_is_protected: bool
    has_target_branch: bool
    target_branch_is_protected: bool
    type: str | None = None


class CedarPolicies:
    """The policies of a bundle, parsed and validated against the schema.

    Args:
        bundle: the bundle.
        graph: the id of the graph.

    Raises:
        PolicyError: Cedar refuses a policy.
    """

    def __init__(self, bundle: Bundle, graph: str) -> None:
        self._graph = graph
        schema = json.dumps(cedar_schema())
        policies = policy_set(bundle)
        checked = cedarpy.validate_policies(cedarpy.policies_from_json_str(json.dumps(policies)), schema)
        if not checked.validation_passed:
            raise PolicyError(f"{bundle.name}: Cedar refuses the rules: {'; '.join(map(str, checked.errors))}")
        self._schema = cedarpy.Schema.from_json_str(schema)
        self._policies = cedarpy.PolicySet.from_json_str(json.dumps(policies))

    def matching(self, request: CedarRequest) -> tuple[str, ...]:
        """The ids of the rules that allow a request, sorted. Empty if it is denied."""
        answer = cedarpy.is_authorized(
            _question(request, self._graph), self._policies, _entities(request), self._schema
        )
        # A policy with an error is skipped. Such an answer cannot be trusted.
        if not answer.allowed or answer.diagnostics.errors:
            return ()
        return tuple(sorted(reason.rpartition(":")[0] for reason in answer.diagnostics.reasons))


def policy_set(bundle: Bundle) -> Json:
    """The Cedar policies of a bundle in Cedar's JSON format. Their ids are `<rule>:<action>`."""
    return {
        "staticPolicies": {
            f"{rule.id}:{action.value}": _permit(rule, action) for rule in bundle.rules for action in rule.actions
        },
        "templates": {},
        "templateLinks": [],
    }


def cedar_schema() -> Json:
    """The Cedar schema of all requests, in Cedar's JSON format."""
    context = {"type": "Record", "attributes": {name: {"type": kind} for name, kind in _CONTEXT.items()}}
    actions = {
        action.value: {
            "appliesTo": {
                "principalTypes": ["Actor"],
                "resourceTypes": ["Server" if action in _ON_SERVER else "Graph"],
                "context": context,
            }
        }
        for action in Action
    }
    entities: Json = {"Actor": {"memberOfTypes": ["Group"]}, "Group": {}, "Graph": {}, "Server": {}}
    return {"Omnigraph": {"entityTypes": entities, "actions": actions}}


def _permit(rule: Rule, action: Action) -> Json:
    conditions = []
    if rule.branch_scope is not None:
        conditions += _scope(rule.branch_scope, "")
    if rule.target_branch_scope is not None:
        conditions += _scope(rule.target_branch_scope, "target_")
    if rule.types is not None:
        conditions.append(_types(rule.types))
    return {
        "effect": "permit",
        "principal": {"op": "in", "entity": _entity("Group", rule.group)},
        "action": {"op": "==", "entity": _entity("Action", action.value)},
        "resource": {"op": "is", "entity_type": f"Omnigraph::{'Server' if action in _ON_SERVER else 'Graph'}"},
        "conditions": [{"kind": "when", "body": condition} for condition in conditions],
    }


def _scope(scope: Scope, prefix: str) -> list[Json]:
    if scope is Scope.ANY:
        return []
    is_protected = _context(f"{prefix}branch_is_protected")
    return [
        _context(f"has_{prefix}branch"),
        is_protected if scope is Scope.PROTECTED else {"!": {"arg": is_protected}},
    ]


def _types(types: tuple[str, ...]) -> Json:
    """A condition that is true for the types, and for requests without a type."""
    keys = [key for name in types for key in ([name] if ":" in name else [f"node:{name}", f"edge:{name}"])]
    listed = {"contains": {"left": {"Set": [{"Value": key} for key in keys]}, "right": _context("type")}}
    return {"||": {"left": {"!": {"arg": _context("has_type")}}, "right": listed}}


def _context(name: str) -> Json:
    return {".": {"left": {"Var": "context"}, "attr": name}}


def _entity(kind: str, name: str) -> Json:
    return {"type": f"Omnigraph::{kind}", "id": name}


def _question(request: CedarRequest, graph: str) -> Json:
    on_server = request.action in _ON_SERVER
    context: Mapping[str, object] = {
        "has_branch": request.has_branch,
        "branch": "",
        "branch_is_protected": request.branch_is_protected,
        "has_target_branch": request.has_target_branch,
        "target_branch": "",
        "target_branch_is_protected": request.target_branch_is_protected,
        "has_type": request.type is not None,
        "type": request.type or "",
    }
    return {
        "principal": _entity("Actor", request.actor),
        "action": _entity("Action", request.action.value),
        "resource": _entity("Server", "root") if on_server else _entity("Graph", graph),
        "context": context,
    }


def _entities(request: CedarRequest) -> list[Json]:
    """The entities of a request: only the actor. Its groups have no attributes."""
    parents = [_entity("Group", group) for group in request.groups]
    return [{"uid": _entity("Actor", request.actor), "attrs": {}, "parents": parents}]
