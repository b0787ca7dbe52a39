"""Recovery of an interrupted merge reads its lineage from a file, because the source may be deleted by then."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph
from omnigraph.commit import ancestor_files
from omnigraph.commit.ancestors import lineage_of
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.sidecar import pending
from omnigraph.graph import Graph


def _add(graph: Graph, name: str, branch: str = "main") -> str:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)
    return graph.branch(branch).head.id


def _interrupted(place: Path, failpoint: Failpoint) -> tuple[Graph, set[str]]:
    """A graph with an interrupted merge of a branch with some commits, and those commits."""
    graph = omnigraph.init(place, "node Person { name: String @key  age: I64? }")
    graph.branches.create("side")
    made = {_add(graph, f"s{i}", "side") for i in range(5)}
    _add(graph, "m")
    with pytest.raises(SimulatedCrashError), armed(failpoint, "crash"):
        graph.merge("side")
    return graph, made


def _names(graph: Graph) -> set[str]:
    return set(graph.snapshot().scan("node:Person", columns=["name"])["name"].to_pylist())


def _staged(place: Path) -> list[Path]:
    return list(place.glob("__staging/*/*"))


@pytest.mark.parametrize("failpoint", [Failpoint.TABLES_COMMITTED, Failpoint.BEFORE_PUBLISH])
def test_an_interrupted_merge_is_rolled_forward_without_its_source(place: Path, failpoint: Failpoint) -> None:
    graph, made = _interrupted(place, failpoint)
    (sidecar,) = pending(graph.session.store.objects)
    assert sidecar.ancestors is not None
    graph.branches.delete("side")
    graph = omnigraph.open(place)
    assert _names(graph) == {*(f"s{i}" for i in range(5)), "m"}
    rows = lineage_of(graph.session.store.capture("main"))
    assert set(rows.filter(rows["is_ancestor"])["id"].to_pylist()) == made
    assert graph.branch("main").head.merged_parent in made
    assert not _staged(place)
    assert not pending(graph.session.store.objects)


def test_an_interrupted_merge_without_its_ancestors_file_is_rolled_back(place: Path) -> None:
    graph, _ = _interrupted(place, Failpoint.TABLES_COMMITTED)
    (file,) = _staged(place)
    file.unlink()
    graph = omnigraph.open(place)
    assert _names(graph) == {"m"}
    assert graph.merge("side").outcome == "merged"
    assert _names(graph) == {*(f"s{i}" for i in range(5)), "m"}


def test_an_interrupted_merge_with_a_damaged_ancestors_file_is_rolled_back(place: Path) -> None:
    graph, _ = _interrupted(place, Failpoint.TABLES_COMMITTED)
    (file,) = _staged(place)
    file.write_bytes(file.read_bytes()[:-100])
    graph = omnigraph.open(place)
    assert _names(graph) == {"m"}


@pytest.mark.parametrize("failpoint", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.PUBLISHED])
def test_a_recovered_merge_leaves_no_ancestors_file(place: Path, failpoint: Failpoint) -> None:
    _interrupted(place, failpoint)
    graph = omnigraph.open(place)
    assert graph.merge("side").outcome in ("merged", "already_up_to_date")
    assert _names(graph) == {*(f"s{i}" for i in range(5)), "m"}
    assert not _staged(place)


def test_cleanup_removes_an_ancestors_file_without_a_sidecar(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = omnigraph.init(place, "node Person { name: String @key }")
    graph.branches.create("side")
    _add(graph, "s", "side")
    _add(graph, "m")
    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.commit.publish.remove_ancestors", lambda *_: None)
        graph.merge("side")
    assert len(_staged(place)) == 1
    hours_ago = time.time() - 2 * 3600
    for file in (place / "__staging").rglob("*.arrow"):
        os.utime(file, (hours_ago, hours_ago))
    graph.cleanup(keep=10, orphans_older_than=timedelta(0))
    assert not _staged(place)
    assert ancestor_files.read_ancestors(graph.session.store.objects, "__staging/gone/ancestors.arrow") is None
