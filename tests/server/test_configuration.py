"""The file with the graphs of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import InputError
from omnigraph.server.configuration import read_graphs, read_server_policy_path
from omnigraph.server.served_graphs import GraphConfig


def written(directory: Path, text: str) -> Path:
    path = directory / "graphs.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "graphs:\n  a: people.omni\n  007: {store: 's3://bucket/x', queries: q, policy: p.yaml, blob_sources: ['s3://b/']}\n"
        "server_policy: server.yaml\n",
    )
    assert read_graphs(path) == {
        "a": GraphConfig(str(tmp_path / "people.omni")),
        "007": GraphConfig("s3://bucket/x", tmp_path / "q", ("s3://b/",), tmp_path / "p.yaml"),
    }
    assert read_server_policy_path(path) == tmp_path / "server.yaml"
    assert read_server_policy_path(written(tmp_path, "graphs: {a: b}")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "graphs.yaml is empty"),
        ("[]", "expected names with values"),
        ("graphs: {a: b", "not YAML"),
        ("server_policy: x", "has no graphs"),
        ("graphs: []", "graphs: expected names with values"),
        ("graph: {}", "line 1: graph: unknown name"),
        ("graphs:\n  a: b\n  a: c\n", "line 3: duplicate name 'a'"),
        ("graphs: {a: b}\ngraphs: {c: d}\n", "line 2: duplicate name 'graphs'"),
        ("graphs:\n  a: {store: b, query: c}\n", "line 2: graphs.a.query: unknown name"),
        ("graphs: {a: {queries: c}}", "graphs.a: the graph has no store"),
        ("graphs: {a: 7}", "graphs.a: expected names with values"),
        ("graphs: {a: {store: b, blob_sources: c}}", "graphs.a.blob_sources: expected a list"),
        ("graphs: {a: {store: b, policy: [c]}}", "graphs.a.policy: expected a text"),
        ("graphs: {a_b: c}", "'a_b' is not the id of a graph"),
    ],
)
def test_a_file_that_is_not_valid_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_graphs(written(tmp_path, text))
    assert message in caught.value.message
