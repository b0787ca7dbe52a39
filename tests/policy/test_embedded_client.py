"""A client of a graph in this process shows an actor what a server would show it, and denies the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.server.conftest import LIMITS, serving

import omnigraph
from omnigraph.client.clients import GraphClient
from omnigraph.commit.manifest import commit_json
from omnigraph.errors import AccessDeniedError, ForbiddenError, OmnigraphError
from omnigraph.server.app import create_app
from omnigraph.server.served_graphs import GraphConfig

SCHEMA = "node Task { name: String @key  owner: String }\nnode Vault { code: String @key }\n"
BUNDLE: dict[str, Any] = {
    "version": 1,
    "groups": {"release": ["kim"], "rows": ["lee"], "types": ["mia"], "all": ["ann"]},
    "protected_branches": ["release"],
    "rules": [
        {
            "id": "release",
            "allow": {"actors": {"group": "release"}, "actions": ["read"], "branch_scope": "protected"},
        },
        {"id": "rows", "allow": {"actors": {"group": "rows"}, "actions": ["read"]}},
        {"id": "types", "allow": {"actors": {"group": "types"}, "actions": ["read"], "types": ["Task"]}},
        {"id": "all", "allow": {"actors": {"group": "all"}, "actions": ["read"]}},
    ],
    "row_rules": [
        {"id": "own", "actors": {"group": "rows"}, "type": "Task", "actions": ["read"], "where": "$.owner = $actor"},
        *(
            {"id": f"any-{group}", "actors": {"group": group}, "type": "Task", "actions": ["read"]}
            for group in ("release", "types", "all")
        ),
    ],
}
ACTORS = ("kim", "lee", "mia", "ann", "stranger")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(BUNDLE))
    return path


@pytest.fixture
def hidden(tmp_path: Path) -> str:
    """A graph whose branch `release` has other rows than `main`. The head of `main`."""
    with omnigraph.init(tmp_path / "graph", SCHEMA, actor="founder") as graph:
        graph.branches.create("release")
        graph.load({"Task": [{"name": "shown", "owner": "lee"}]}, mode="append", branch="release")
        rows = [{"name": "secret", "owner": "max"}, {"name": "own", "owner": "lee"}]
        graph.load({"Task": rows, "Vault": [{"code": "v"}]}, mode="append", message="a secret plan")
        return graph.branch("main").head.id


READS: dict[str, Callable[[GraphClient, str], Any]] = {
    "snapshot": lambda c, commit: c.snapshot(),
    "snapshot of a branch": lambda c, commit: c.snapshot("release"),
    "snapshot of a commit": lambda c, commit: c.snapshot(at=commit),
    "branches": lambda c, commit: c.branches.list(),
    "commits": lambda c, commit: [commit_json(one) for one in c.commits.list().commits],
    "commits of a branch": lambda c, commit: [commit_json(one) for one in c.commits.list(branch="release").commits],
    "commit": lambda c, commit: commit_json(c.commits.retrieve(commit)),
    "changes of a commit": lambda c, commit: c.commits.changes(commit).to_json(),
    "schema": lambda c, commit: c.schema.get(),
    "query": lambda c, commit: c.query("query q() { match { $t: Task } return { $t.name as n } }").to_pylist(),
}


def outcome(client: GraphClient, read: Callable[[GraphClient, str], Any], commit: str) -> Any:
    try:
        return read(client, commit)
    except (AccessDeniedError, ForbiddenError):
        return "denied"
    except OmnigraphError as error:
        return type(error)


def test_a_client_reads_what_a_server_shows(
    hidden: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_DENIALS", str(tmp_path / "denials.jsonl"))
    root, tokens = tmp_path / "graph", {actor: f"token-of-{actor}" for actor in ACTORS}
    config = GraphConfig(str(root), policy=policy)
    with serving(create_app({"g": config}, tokens=tokens, limits=LIMITS)) as server:
        for actor in ACTORS:
            address = f"http://{server.address}"
            remote = omnigraph.connect(address, token=tokens[actor], graph_id="g")
            with remote, omnigraph.connect(root, policy=policy, actor=actor) as embedded:
                for name, read in READS.items():
                    found, expected = outcome(embedded, read, hidden), outcome(remote, read, hidden)
                    assert found == expected, (actor, name)


def test_an_actor_of_one_branch_learns_nothing_of_another(hidden: str, policy: Path, tmp_path: Path) -> None:
    with omnigraph.connect(tmp_path / "graph", policy=policy, actor="kim") as client:
        for name in ("snapshot", "snapshot of a commit", "branches", "commits", "commit", "schema", "query"):
            with pytest.raises(AccessDeniedError) as raised:
                READS[name](client, hidden)
            assert "plan" not in str(raised.value), name
        counts = {table.type_name: table.entity_count for table in client.snapshot("release").datasets}
        assert counts == {"Task": 1, "Vault": 0}
