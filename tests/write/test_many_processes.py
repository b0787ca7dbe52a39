"""Concurrent loads and mutations of many processes make one history, and the graph equals its replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commit.child import Children
from tests.commit.graphs import assert_chain, assert_whole
from tests.write.mixed import read_logs, replay
from tests.write.requests import SEED, content, create

pytestmark = pytest.mark.slow

WRITERS, ROUNDS = 4, 25


def test_concurrent_loads_and_mutations_lose_no_write(children: Children, place: Path, tmp_path: Path) -> None:
    """They write and delete the same nodes and edges: no row is lost or duplicated, and no edge is an orphan."""
    with create(place) as graph:
        began = {commit.id for commit in graph.commits}
        logs = [tmp_path / f"w{number}.log" for number in range(WRITERS)]
        job = {"uri": graph.uri, "rounds": ROUNDS}
        for pid in [children.start("mixed", failpoint=None, name=log.stem, log=str(log), **job) for log in logs]:
            children.wait(pid).ok()
        graph.refresh()
        logged = read_logs(logs)
        assert len(logged) == WRITERS * ROUNDS
        done = {each["commit"]: each for each in logged if each.get("commit")}
        history = [commit.id for commit in reversed(assert_chain(graph)) if commit.id not in began]
        assert sorted(history) == sorted(done), "what was acknowledged is in the history, once, and nothing else is"
        assert content(graph) == replay(SEED, (done[commit] for commit in history))
        refused = {(each["what"], each["refused"]) for each in logged if "refused" in each}
        assert refused <= {("link", "ConstraintError")}, "nothing is refused because others write"
        assert graph.recovery.list() == []
        assert_whole(graph)
