"""Loads and mutations of many processes at once make one history, and the graph is what that history says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commit.child import Children
from tests.commit.graphs import assert_chain, assert_whole
from tests.write.mixed import read_logs, replay
from tests.write.requests import SEED, content, create

pytestmark = pytest.mark.slow

WRITERS, ROUNDS = 4, 25


def test_loads_and_mutations_at_once(children: Children, place: Path, tmp_path: Path) -> None:
    """They write the same nodes and edges, and remove them: no row is lost or doubled, and no edge hangs in the air."""
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
