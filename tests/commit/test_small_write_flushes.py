"""The flushes of a small write: each file and directory once, and a sidecar that comes back is harmless."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commit.graphs import assert_whole

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from omnigraph.storage.objects.durable import DurableDirectories, FlushError, sync_tree

SCHEMA = "node P { name: String @key  age: I32? }"
PUT = "query put($name: String) { insert P { name: $name, age: 1 } }"


@pytest.fixture
def flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flushed files and directories, below the directory of the test."""
    monkeypatch.setenv(FSYNC.name, "1")
    seen: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(f"{tmp_path}/"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return seen


@pytest.fixture
def graph(tmp_path: Path, flushed: list[str]) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.mutate(PUT, {"name": "a"})
        yield graph


def names(graph: Graph) -> list[str]:
    return sorted(graph.snapshot().scan("node:P", columns=["id"])["id"].to_pylist())


def test_a_small_write_flushes_each_place_once(graph: Graph, flushed: list[str]) -> None:
    flushed.clear()
    graph.mutate(PUT, {"name": "b"})
    kinds = [_kind(path) for path in flushed]
    assert kinds[:2] == ["temporary sidecar", "__recovery"]
    files = {"table data/file", "table _transactions/file", "table _versions/file", "__manifest data/file"}
    directories = {"table data", "table _transactions", "table _versions", "__manifest data"}
    assert set(kinds[2:6]) == files, "all files of the tables and of the new part at once"
    assert set(kinds[6:10]) == directories
    assert kinds[10:] == ["__manifest _versions/file", "__manifest _versions"], "the removed sidecar is not flushed"


def _kind(path: str) -> str:
    parts = path.split("/")[1:]
    if parts[0] == "__recovery":
        return "__recovery" if len(parts) == 1 else "temporary sidecar"
    where, *rest = ["table", *parts[2:]] if parts[0] == "nodes" else parts
    return f"{where} {rest[0]}" + ("/file" if len(rest) > 1 else "")


def test_a_new_directory_is_flushed_with_the_one_above(graph: Graph, flushed: list[str]) -> None:
    """The first update of one of several rows makes a directory for deletion files."""
    update = "query set($name: String) { update P set { age: 5 } where name = $name }"
    graph.load({"P": [{"name": f"many-{i}"} for i in range(10)]}, mode="append")
    flushed.clear()
    graph.mutate(update, {"name": "many-1"})
    table = next(path for path in flushed if path.endswith("/_deletions")).rpartition("/")[0]
    assert table in flushed
    flushed.clear()
    graph.mutate(update, {"name": "many-2"})
    assert f"{table}/_deletions" in flushed
    assert table not in flushed


def test_a_directory_that_was_replaced_is_flushed_again(tmp_path: Path, flushed: list[str]) -> None:
    known = DurableDirectories()
    file = tmp_path / "t" / "data" / "f"

    def sync() -> list[str]:
        flushed.clear()
        sync_tree(str(tmp_path), ["t/data/f"], 2, known)
        return list(flushed)

    file.parent.mkdir(parents=True)
    file.write_text("1")
    assert sync() == ["t/data/f", "t/data", "t"]
    assert sync() == ["t/data/f", "t/data"]
    file.parent.rename(tmp_path / "old")
    file.parent.mkdir()
    file.write_text("2")
    assert sync() == ["t/data/f", "t/data", "t"]


def test_after_a_failed_flush_no_directory_is_known(tmp_path: Path, flushed: list[str]) -> None:
    known = DurableDirectories()
    file = tmp_path / "t" / "data" / "f"
    file.parent.mkdir(parents=True)
    file.write_text("1")
    sync_tree(str(tmp_path), ["t/data/f"], 2, known)
    with pytest.raises(FlushError):
        sync_tree(str(tmp_path), ["t/data/missing"], 2, known)
    flushed.clear()
    sync_tree(str(tmp_path), ["t/data/f"], 2, known)
    assert flushed == ["t/data/f", "t/data", "t"]


@pytest.mark.parametrize("later", [0, 3])
def test_a_sidecar_that_comes_back_after_a_power_failure_is_removed(tmp_path: Path, graph: Graph, later: int) -> None:
    with armed(Failpoint.PUBLISHED, "crash"), pytest.raises(SimulatedCrashError):
        graph.mutate(PUT, {"name": "b"})
    (sidecar,) = (tmp_path / "g" / "__recovery").glob("*.json")
    content = sidecar.read_bytes()
    graph.refresh()
    assert not sidecar.exists()
    for number in range(later):
        graph.mutate(PUT, {"name": f"later-{number}"})
    graph.close()
    sidecar.write_bytes(content)
    with omnigraph.open(tmp_path / "g") as again:
        assert names(again) == ["a", "b", *(f"later-{number}" for number in range(later))]
        assert not sidecar.exists()
        again.mutate(PUT, {"name": "next"})
        assert_whole(again)
