"""A TypeScript client that is generated from the OpenAPI document does a whole tour through a graph."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.patience import PATIENCE
from tests.server.conftest import LIMITS, SELECT, Client, serving
from tests.server.test_identity import EVERYTHING

import omnigraph
from omnigraph.server.app import create_app

PROJECT = Path(__file__).parent / "typescript"
SCHEMA = "node Person { name: String @key  age: I32?  photo: Blob? }"


def run(project: Path, *command: str) -> str:
    """Run a command in the project, and return what it prints."""
    environ = {**os.environ, "npm_config_update_notifier": "false", "CI": "1", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project with the locked packages."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        message = "node and npm are not installed"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    made = tmp_path / "project"
    shutil.copytree(PROJECT, made, ignore=shutil.ignore_patterns("node_modules", "dist", "client"))
    run(made, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=6")
    return made


@pytest.mark.slow
def test_a_generated_client_does_the_tour(project: Path, tmp_path: Path) -> None:
    omnigraph.init(tmp_path / "graph", SCHEMA).close()
    app = create_app(
        {"people": str(tmp_path / "graph")}, tokens={"kim": "secret"}, policies={"people": EVERYTHING}, limits=LIMITS
    )
    with serving(app) as server:
        client = Client(server.address, "secret", "/graphs/people")
        (project / "openapi.json").write_bytes(client.get("//openapi.json").body)
        run(
            project,
            "npx",
            "openapi-ts",
            "-i",
            "openapi.json",
            "-o",
            "client",
            "-c",
            "@hey-api/client-fetch",
            "--silent",
        )
        run(project, "npx", "tsc", "-p", ".")
        found = json.loads(run(project, "node", "dist/tour.js", f"http://{server.address}", "secret", "people"))
        rows = client.post("/query", {"query": SELECT}).json["rows"]
    assert rows == [{"name": "ann", "age": 32}, {"name": "bob", "age": 31}, {"name": "cat", "age": None}]
    assert found["bytes"] == "234"
    assert found["fed"] == [["insert ann", "insert bob"], ["update ann"], ["update ann"]]
    assert found["commits"] == len(client_commits(tmp_path / "graph"))


def client_commits(root: Path) -> list[str]:
    with omnigraph.open(root, read_only=True) as graph:
        return [commit.id for commit in graph.commits]
