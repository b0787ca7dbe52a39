"""Schemathesis sends requests made from the OpenAPI document. No answer breaks the contract, and none is a 5xx."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.patience import PATIENCE
from tests.server.conftest import LIMITS, Client, serving
from tests.server.test_process import Process, processes, start  # noqa: F401

import omnigraph
from omnigraph.graph.collections import CommitPage, Commits
from omnigraph.server.app import create_app

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "ignored_auth",
    "fits_the_contract",
)
EXAMPLES = 6
"""Random cases of each operation."""

MANY = 300
"""The same in `make soak`."""

ACTIONS = "read export change schema_apply branch_create branch_delete branch_merge invoke_query admin"
QUERIES = """
query all() { match { $p: Person } return { $p.name } }
query add($n: String) { insert Person { name: $n } }
"""
SETTINGS = """
[parameters]
graph_id = "{graph}"
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph with a branch, a tag, a blob and stored queries."""
    path = tmp_path / "graph"
    schema = """
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person { since: I32? }
"""
    with omnigraph.init(path, schema) as made:
        rows = [{"name": "ann", "age": 30, "photo": b"0123456789"}, {"name": "bob", "age": 40}]
        made.load({"Person": rows, "Knows": [{"from": "ann", "to": "bob"}]}, mode="append")
        made.branches.create("draft")
        made.tags.create("v1")
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "all.gq").write_text(QUERIES)
    return path


def fuzz(
    client: Client, directory: Path, *, phases: str, examples: int = EXAMPLES, include: str = ""
) -> tuple[int, str]:
    """Run schemathesis against a server.

    Args:
        client: a client of the server, with the token to use.
        directory: a directory for the settings.
        phases: the phases of schemathesis.
        examples: the number of random cases of each operation.
        include: the id of the only operation to test.

    Returns:
        The exit code, and what it printed.
    """
    config = directory / "schemathesis.toml"
    config.write_text(SETTINGS.format(graph=client.prefix.rpartition("/")[2]))
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "--no-color", "run"),
        f"http://{client.address}/openapi.json",
        *("--phases", phases, "--max-examples", str(examples), "--checks", ",".join(CHECKS)),
        *("--seed", "7", "--generation-database", "none", "--continue-on-failure", "--suppress-health-check", "all"),
        *("--request-timeout", f"{PATIENCE:.0f}"),
        *(("--include-operation-id", include) if include else ()),
        *(("--header", f"Authorization: Bearer {client.token}") if client.token else ()),
    ]
    environ = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.server.fuzzing", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def process(graph: Path, tmp_path: Path, processes: ExitStack) -> Process:  # noqa: F811
    """A server process with a token of an actor who may do everything."""
    policy = tmp_path / "policy.yaml"
    rule = {"id": "all", "allow": {"actors": {"group": "boss"}, "actions": ACTIONS.split()}}
    policy.write_text(yaml.safe_dump({"version": 1, "groups": {"boss": ["boss"]}, "rules": [rule]}))
    return start(
        processes,
        *("--store", str(graph), "--policy", str(policy), "--queries", str(tmp_path / "queries")),
        OMNIGRAPH_SERVER_BEARER_TOKENS_JSON=json.dumps({"boss": "secret"}),
        OMNIGRAPH_DENIALS=str(tmp_path / "denials.jsonl"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(MANY, marks=pytest.mark.soak)])
def test_no_request_breaks_the_contract(process: Process, tmp_path: Path, examples: int) -> None:
    client = process.client.with_token("secret")
    code, printed = fuzz(client, tmp_path, phases="examples,coverage,fuzzing,stateful", examples=examples)
    assert code == 0, printed
    found = re.search(r"([0-9,]+) generated", printed)
    assert found is not None, printed
    assert int(found[1].replace(",", "")) > 500, printed
    assert process.client.get("//healthz").status == 200
    assert not [one for one in process.records if one["level"] == "error"]


@pytest.mark.slow
def test_no_request_without_a_credential_breaks_the_contract(process: Process, tmp_path: Path) -> None:
    code, printed = fuzz(process.client, tmp_path, phases="examples,fuzzing", examples=3)
    assert code == 0, printed


@pytest.mark.slow
def test_a_planted_error_is_found(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run reports an operation that fails for one kind of request, and only this one."""
    real = Commits.list

    def fail(commits: Commits, *, limit: int | None = None, **options: Any) -> CommitPage:
        if limit is not None and limit > 2:
            raise RuntimeError("planted")
        return real(commits, limit=limit, **options)

    monkeypatch.setattr(Commits, "list", fail)
    app = create_app({"g": str(graph)}, unauthenticated=True, limits=LIMITS)
    with serving(app) as client:
        code, printed = fuzz(client, tmp_path, phases="examples,fuzzing", examples=30, include="cluster_list_commits")
        assert code == 1, printed
        assert "Server error" in printed, printed
        assert "[500] Internal Server Error" in printed, printed
        assert "/graphs/g/commits?" in printed, printed
        code, printed = fuzz(client, tmp_path, phases="examples,fuzzing", include="cluster_list_branches")
        assert code == 0, printed
