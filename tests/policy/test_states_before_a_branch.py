"""States of a branch from before it was created are those of another branch, with the rules of that one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Policy
from omnigraph.errors import AccessDeniedError
from omnigraph.graph import Graph

SCHEMA = "node Task { name: String @key }\nnode Vault { code: String @key }"
POLICY = {
    "version": 1,
    "groups": {"crew": ["kim"]},
    "protected_branches": ["main"],
    "rules": [
        {
            "id": "drafts",
            "allow": {
                "actors": {"group": "crew"},
                "actions": ["read", "export"],
                "branch_scope": "unprotected",
            },
        }
    ],
}
QUERY = "query q() { match { $t: Task } return { $t.name } }"


@pytest.mark.parametrize(
    "read",
    [
        lambda graph, at: graph.query(QUERY, branch="draft", at=at),
        lambda graph, at: graph.explain(QUERY, branch="draft", at=at),
        lambda graph, at: graph.snapshot(branch="draft", at=at),
        lambda graph, at: list(graph.export(branch="draft", at=at)),
        lambda graph, at: graph.branch("draft").snapshot(at=at),
    ],
)
def test_a_state_of_an_unreadable_branch_is_denied_without_names(
    read: Callable[[Graph, datetime], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_DENIALS", str(tmp_path / "denials.jsonl"))
    with omnigraph.init(tmp_path / "graph", SCHEMA) as whole:
        whole.load({"Task": [{"name": "old"}], "Vault": [{"code": "v"}]}, mode="append")
        before = datetime.now(UTC)
        whole.mutate('query q() { delete Task where name = "old" }')
        whole.branches.create("draft")
    with omnigraph.open(tmp_path / "graph", policy=Policy.read(POLICY), actor="kim") as kim:
        assert kim.query(QUERY, branch="draft").to_pylist() == []
        with pytest.raises(AccessDeniedError) as denied:
            read(kim, before)
        error = denied.value
        assert (error.branch, error.types) == (None, ())
        assert not {"main", "Task", "Vault"} & set(str(error).replace(",", " ").replace(":", " ").split())
