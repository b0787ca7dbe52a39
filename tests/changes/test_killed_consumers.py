"""A consumer process that is killed anywhere resumes without loss or repetition.

The consumer stores its copy, a log of all changes and its position in one SQLite database, in one transaction per page.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.changes.histories import SCHEMA, History, state_of
from tests.changes.test_histories import flat, same_entity
from tests.commit.child import Children
from tests.commit.conftest import children, parent
from tests.patience import PATIENCE, until

import omnigraph

__all__ = ["children", "parent"]

STEPS = 12


@pytest.fixture
def history(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[History]:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        yield History(graph, Random(request.param))


def rows(file: Path, query: str) -> list[tuple[str, ...]]:
    with sqlite3.connect(file) as store:
        return store.execute(query).fetchall()


def assert_same(history: History, file: Path) -> None:
    """Check that the consumer has every change once and in order, and the content of the branch."""
    wanted = [
        (block.cause.commit.id, change.text)
        for block in history.graph.changes.follow(start="beginning", timeout=0)
        for change in block.changes
    ]
    assert rows(file, "select commit_id, text from log order by place") == wanted
    state = state_of(history.graph.export())
    copy = {
        (key, entity): flat(json.loads(image)) for key, entity, image in rows(file, "select key, id, image from copy")
    }
    assert copy.keys() == state.keys()
    assert all(same_entity(copy[key], state[key]) for key in state)


@pytest.mark.slow
@pytest.mark.parametrize(("history", "seed"), [(seed, seed) for seed in range(3)], indirect=["history"])
def test_a_consumer_that_is_killed_at_any_time_has_every_change_once(
    history: History, children: Children, tmp_path: Path, seed: int
) -> None:
    """The graph changes meanwhile."""
    random, file, stop = Random(seed), tmp_path / "store.db", tmp_path / "stop"
    job: dict[str, Any] = {
        "uri": history.graph.uri,
        "store": str(file),
        "stop": str(stop),
        "limit": 3,
        "max_bytes": 400,
    }
    killed = 0
    for _ in range(STEPS):
        child = children.start("consume", **job)
        history.step()
        time.sleep(random.random() * 0.2)
        os.kill(child, signal.SIGKILL)
        killed += children.wait(child).signal == signal.SIGKILL
    assert killed == STEPS
    stop.touch()
    children.run("consume", **job).ok()
    assert_same(history, file)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["applied", "stored"])
@pytest.mark.parametrize("history", [7], indirect=True)
def test_a_consumer_that_is_killed_around_each_page_has_every_change_once(
    history: History, children: Children, tmp_path: Path, when: str
) -> None:
    """It is killed after it has applied a page and before it stores it with the cursor, and right after that."""
    history.graph.load(history.rows({}, 8), mode="merge")
    history.remember()
    for _ in range(STEPS):
        history.step()
    file, stop = tmp_path / "store.db", tmp_path / "stop"
    stop.touch()
    job: dict[str, Any] = {
        "uri": history.graph.uri,
        "store": str(file),
        "stop": str(stop),
        "limit": 2,
        "max_bytes": 300,
    }
    kills, end = 0, time.monotonic() + PATIENCE
    while children.run("consume", dies=when, page=kills % 3, **job).signal == signal.SIGKILL:
        kills += 1
        if when == "applied" and kills % 3 == 0:
            # A page that is never stored comes again, so let one pass.
            children.run("consume", dies="stored", page=0, **job)
        assert time.monotonic() < end
    assert kills > 3
    assert_same(history, file)


@pytest.mark.slow
@pytest.mark.parametrize("history", [11], indirect=True)
def test_a_killed_consumer_waits_for_changes_after_it_resumed(
    history: History, children: Children, tmp_path: Path
) -> None:
    file, stop = tmp_path / "store.db", tmp_path / "stop"
    job: dict[str, Any] = {
        "uri": history.graph.uri,
        "store": str(file),
        "stop": str(stop),
        "limit": 100,
        "max_bytes": 1 << 20,
    }
    assert children.run("consume", dies="stored", page=0, **job).signal == signal.SIGKILL
    child = children.start("consume", **job)
    history.graph.load(history.rows({}, 8), mode="merge")
    until(lambda: bool(rows(file, "select 1 from log")))
    stop.touch()
    children.wait(child).ok()
    assert_same(history, file)
