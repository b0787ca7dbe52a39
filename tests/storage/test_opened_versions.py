"""A process that opens many versions of tables does not keep what Lance has cached of the old ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.storage import datasets

ADD = "query add($name: String) { insert Person { name: $name } }"
COUNT = "query q() { match { $p: Person } return { count(*) as n } }"
POINT = "query q($name: String) { match { $p: Person { name: $name } } return { $p.name as name } }"


def test_lance_starts_with_empty_caches_after_many_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    monkeypatch.setattr(datasets, "_SESSION_VERSIONS", 8)
    with omnigraph.init(
        tmp_path / "graph", "node Person { name: String @key }  node Idle { name: String @key }"
    ) as graph:
        graph.mutate('query q() { insert Idle { name: "a" } }')
        opened = graph.session.store.tables.datasets
        first = graph.snapshot()
        sessions = [opened._session]
        for number in range(40):
            graph.mutate(ADD, {"name": f"p{number}"})
            assert graph.query(COUNT).to_pylist() == [{"n": number + 1}]
            assert len(graph.query(POINT, {"name": f"p{number}"})) == 1
            if opened._session is not sessions[-1]:
                sessions.append(opened._session)
            if number % 10 == 0:
                graph.optimize()
        assert len(sessions) > 3
        assert len(opened._handles._held) <= 8, "handles refer to the caches of their time"
        assert first.table("node:Person").count() == 0, "an earlier snapshot is opened again"


def test_commits_do_not_hand_the_old_caches_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    monkeypatch.setattr(datasets, "_SESSION_VERSIONS", 8)
    with omnigraph.init(tmp_path / "graph", "node Person { name: String @key }") as graph:
        opened = graph.session.store.tables.datasets
        first = opened._session
        for number in range(20):
            graph.mutate(ADD, {"name": f"p{number}"})
        held = [handle.session() for handle in opened._handles._held.values()]
        assert held
        assert all(one.is_same_as(opened._session) for one in held)  # type: ignore[attr-defined]  # not declared
        assert not opened._session.is_same_as(first)  # type: ignore[attr-defined]  # not declared
        assert graph.query(COUNT).to_pylist() == [{"n": 20}]
