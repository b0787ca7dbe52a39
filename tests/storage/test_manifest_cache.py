"""Each commit adds to the caches of a process. They have limits, so that a process may run for a long time."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import omnigraph
from omnigraph.commit import store
from omnigraph.engine.session import Session
from omnigraph.errors import BranchNotFoundError
from omnigraph.read.columns.derived_files import Made, Origin
from omnigraph.storage import datasets, file_checks, ledger, ledger_seal
from omnigraph.storage.lru_cache import LruCache

LIMIT = 8 * 16 * 1024
COMMITS = 40
SCHEMA = "node A { name: String @key }"
INSERT = "query q($name: String) { insert A { name: $name } }"


def written(path: Path) -> Session:
    """The session of a new graph after many commits."""
    graph = omnigraph.init(path, SCHEMA)
    for number in range(COMMITS):
        graph.mutate(INSERT, {"name": f"a{number}"})
    return graph.session


def test_cached_manifests_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = written(tmp_path / "default")
    assert session.store.tables.datasets._session.size_bytes() > 100_000
    session.close()
    monkeypatch.setenv("OMNIGRAPH_CACHE_MEMORY", str(LIMIT))
    session = written(tmp_path / "limited")
    assert session.store.tables.datasets._session.size_bytes() < 2 * LIMIT // 8
    session.close()


def test_cached_versions_of_the_history_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = written(tmp_path / "default")
    assert session.store.capture("main").ledger._dataset.session().size_bytes() > 200_000
    session.close()
    monkeypatch.setattr(ledger, "_CACHE_BYTES", 32 * 1024)
    session = written(tmp_path / "limited")
    assert session.store.capture("main").ledger._dataset.session().size_bytes() <= 2 * 32 * 1024
    session.close()


def test_the_fragments_of_cached_handles_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = written(tmp_path / "default")
    assert len(session.store.tables.datasets._handles._held) >= COMMITS, "small handles are all cached"
    session.close()
    monkeypatch.setattr(datasets, "_FRAGMENTS", 10 * COMMITS)
    session = written(tmp_path / "limited")
    handles = session.store.tables.datasets._handles._held
    newest = session.store.capture("main").tables["node:A"].ref
    assert list(handles) == [newest.at(version) for version in range(newest.version - 9, newest.version + 1)]
    session.close()


def test_the_cached_digests_of_fragments_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, each commit adds the digest of its fragment to all of the next versions in the cache."""
    session = written(tmp_path / "graph")
    newest = session.store.capture("main").tables["node:A"].ref
    versions = [newest.at(version) for version in range(newest.version - 29, newest.version + 1)]
    monkeypatch.setattr(datasets, "_FRAGMENTS", 10 * COMMITS)
    with omnigraph.open(tmp_path / "graph", read_only=True) as graph:
        tables = graph.session.store.tables
        for ref in versions:
            assert len(tables.at(ref).fragment_digests()) == ref.version - 1
        cached = list(tables.datasets._digests._held)
        assert cached == versions[-len(cached) :]
        assert 10 <= len(cached) <= 12
    session.close()


def test_the_cached_states_of_branches_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may delete a branch, and this one never learns of it."""
    monkeypatch.setattr(store, "_BRANCHES", 3)
    with omnigraph.init(tmp_path / "graph", SCHEMA) as writer, omnigraph.open(tmp_path / "graph") as reader:
        for number in range(6):
            writer.branches.create(f"b{number}")
            writer.mutate(INSERT, {"name": f"a{number}"}, branch=f"b{number}")
            rows = reader.query("query q() { match { $a: A } return { $a.name as name } }", branch=f"b{number}")
            assert rows.to_pylist() == [{"name": f"a{number}"}]
            writer.branches.delete(f"b{number}")
            with pytest.raises(BranchNotFoundError):
                reader.session.store.capture(f"b{number}")
        assert len(reader.session.store._known._held) <= 3


def test_the_size_of_a_topology_includes_the_names_of_fragments() -> None:
    few, many = (Origin("f", 1, 0, 10, tuple(f"{number:016x}" for number in range(count))) for count in (1, 1_001))
    assert Made("t", many, many, many).nbytes - Made("t", few, few, few).nbytes > 3 * 1_000 * 64


def test_values_are_removed_when_they_are_too_heavy_together() -> None:
    cache: LruCache[str] = LruCache(10, 100)
    for name, weight in (("a", 40), ("b", 40), ("c", 40)):
        assert cache.put(name, name, weight) == name
    assert [cache.get(name) for name in "abc"] == [None, "b", "c"]
    assert cache.put("large", "large", 101) == "large"
    assert [cache.get(name) for name in ("large", "b", "c")] == [None, "b", "c"]
    cache.put("b", "other", 90)
    assert [cache.get(name) for name in "bc"] == ["other", None]
    cache.discard(lambda key: key == "b")
    cache.put("d", "d", 100)
    assert cache.get("d") == "d"
    cache.clear()
    assert cache.get("d") is None


def test_few_checked_files_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_checks, "_REMEMBERED", 10)
    monkeypatch.setattr(file_checks, "_REMEMBERED_FILES", 10)
    monkeypatch.setattr(ledger_seal, "_REMEMBERED", 10)
    session = written(tmp_path / "graph")
    with omnigraph.open(tmp_path / "graph") as graph:
        assert len(graph.query("query q() { match { $a: A } return { $a.name as name } }")) == COMMITS
        checks = graph.session.store.tables.datasets._checks
    assert checks is not None
    remembered = [checks._sound, checks._known, session.store.manifest._parts._sound]
    assert [len(each._held) for each in remembered] == [10, 10, 10]
    session.close()


def test_cached_topologies_do_not_keep_old_snapshots(tmp_path: Path) -> None:
    """Otherwise each commit with a read would leave a snapshot with its handles, and a closed graph would stay open."""
    graph = omnigraph.init(tmp_path / "graph", f"{SCHEMA}\nedge Next: A -> A")
    for number in range(COMMITS):
        graph.mutate(INSERT, {"name": f"a{number}"})
        assert len(graph.query("query q() { match { $a: A  $a next $b } return { $b.name as name } }")) == 0
    graph.close()
    del graph
    gc.collect()
    root = str(tmp_path / "graph")
    assert not [one for one in gc.get_objects() if isinstance(one, datasets.Datasets) and one.root == root]
