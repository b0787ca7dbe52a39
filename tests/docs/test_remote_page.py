"""The examples of the page about servers run against a server process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.cli.served import LISTS, POLICY
from tests.client.conftest import ServerProcess
from tests.docs.test_guides_run import DOCS

import omnigraph
from page_examples import blocks, run_page

SCHEMA = "node Person { name: String @key  age: I32? }"
ROWS = b'{"type":"Person","data":{"name":"ann","age":30}}\n{"type":"Person","data":{"name":"bob","age":40}}\n'
ADDRESS, TOKEN = "https://graphs.example", "a-long-random-value"


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", TOKEN)
    text = (DOCS / "guide" / "remote.md").read_text(encoding="utf-8")
    for name in ("people.omni", "served.omni"):
        with omnigraph.init(tmp_path / name, SCHEMA) as graph:
            graph.load(ROWS, mode="append")
    for name, content in (("policy", POLICY), ("lists", LISTS)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    people = {"store": "served.omni", "queries": "queries", "policy": "policy.yaml"}
    config = tmp_path / "serve.yaml"
    config.write_text(yaml.safe_dump({"graphs": {"people": people}, "server_policy": "lists.yaml"}))
    (stored,) = [block for block in blocks(text) if block.file == "queries/people.gq"]
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "people.gq").write_text(stored.text, encoding="utf-8")
    server = ServerProcess(config, OMNIGRAPH_SERVER_BEARER_TOKENS_JSON=json.dumps({"kim": TOKEN}))
    try:
        page = tmp_path / "page.md"
        page.write_text(text.replace(ADDRESS, server.address), encoding="utf-8")
        examples = list(run_page(page, None))
        assert [str(example) for example in examples if not example.is_shown] == []
        assert len(examples) >= 12
    finally:
        server.stop()
