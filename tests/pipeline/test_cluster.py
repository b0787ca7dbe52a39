"""A cluster gives the same result as one process, and a killed process of it loses and duplicates no rows."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.commit.child import Children
from tests.commit.conftest import children, parent
from tests.patience import PATIENCE
from tests.pipeline.killed_tasks import DeadlyComparison, DeadlyReading, DeadlyRouting, SlowReading, Victim
from tests.pipeline.standalone import Standalone, session_on, standalone
from tests.pipeline.test_same_graph import (
    CHANGES,
    FORMATS,
    MODES,
    PARTS,
    Change,
    _as_it_is,
    _overlapping,
    _size,
    _typed,
)
from tests.pipeline.worlds import graph_at, numbered, outcome, rows, write
from tests.sampling import every_nth
from tests.upkeep.reached import listing, pins, unreached, views

from omnigraph.engine.engines import SparkOptions
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, open
from omnigraph.pipeline.load import input_parts
from omnigraph.pipeline.spark import shuffle
from omnigraph.pipeline.spark.session import Session
from omnigraph.pipeline.spark.shuffle import Shuffle
from omnigraph.write.load import LoadPhase, LoadProgress
from omnigraph.write.receipt import LoadReceipt

__all__ = ["children", "parent"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def processes(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A process has one session, so stop the other one."""
    session.stop()
    with standalone(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(processes: Standalone) -> Iterator[Session]:
    with session_on(processes) as made:
        yield made


def _cases(mode: str) -> list[tuple[Change, str, int]]:
    """Every kind of change in every mode, and every format in one; the case number decides the number of partitions."""
    shift = MODES.index(mode)
    changed = [(change, FORMATS[i % 2], PARTS[(i + shift) % 3]) for i, change in enumerate(CHANGES)]
    return changed + [(_as_it_is, format, PARTS[(i + 1) % 3]) for i, format in enumerate(FORMATS[2:]) if i % 3 == shift]


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.soak)], ids=["some cases", "all cases"])
@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_gives_the_same_graph_and_errors(cluster: Session, tmp_path: Path, mode: str, step: int) -> None:
    for number, (change, format, parts) in enumerate(_cases(mode)[MODES.index(mode) % step :: step]):
        place = tmp_path / str(number)
        content = rows(3, first=100)
        change(content)
        source = write(place / "input", content if format in FORMATS[:2] else _typed(content), format)
        here, there = graph_at(place / "here"), graph_at(place / "there")
        expected = outcome(here, lambda: here.load(source, mode=mode))  # noqa: B023
        found = outcome(there, lambda: _loaded(there, source, mode, cluster, parts))  # noqa: B023
        assert found == expected, (change, format, parts)
        assert there.verify().ok
        assert not (place / "there" / "__staging").exists()


def _loaded(graph: Graph, source: Any, mode: str, cluster: Session, parts: int = 7, **said: Any) -> LoadReceipt:
    """Load in about this many partitions, and compare some rows at a time."""
    options = SparkOptions(cluster, split_bytes=-(-_size(source) // parts), part_rows=200)
    return graph.load(source, mode=mode, engine="spark", spark=options, **said)


MOMENTS = ["reading", "written", "routing", "comparing", "worker", "slow"]


@pytest.mark.parametrize("moment", every_nth(MOMENTS, 2))
def test_a_load_survives_the_loss_of_an_executor_or_worker(
    cluster: Session, processes: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    source = write(tmp_path / "input", rows(3, first=100), "ndjson")
    here, there = graph_at(tmp_path / "here"), graph_at(tmp_path / "there")
    mode = MODES[MOMENTS.index(moment) % 3]
    expected = outcome(here, lambda: here.load(source, mode=mode))
    marker = tmp_path / "died"
    _arm(monkeypatch, moment, marker)
    found = outcome(there, lambda: _loaded(there, source, mode, cluster))
    monkeypatch.undo()
    assert marker.exists(), f"nobody died: {found.said}"
    assert found == expected
    assert there.verify().ok
    processes.restore()
    # Rows that were written twice are removed, and nothing else.
    orphans = _cleaned(there)
    if moment in ("written", "worker", "slow"):
        assert orphans
    assert outcome(there, lambda: _loaded(there, _one_more(), "append", cluster)).commits == expected.commits + 1


def _one_more() -> list[dict[str, Any]]:
    return [{"type": "Person", "data": {"name": "afterwards"}}]


def _arm(monkeypatch: pytest.MonkeyPatch, moment: str, marker: Path) -> None:
    if moment == "comparing":
        cogroup = Shuffle.cogroup

        def deadly(self: Shuffle, sides: Any, compare: Any, *more: Any) -> Any:
            return cogroup(self, sides, DeadlyComparison(compare, marker, os.getpid()), *more)

        monkeypatch.setattr(Shuffle, "cogroup", deadly)
    elif moment == "routing":
        split = shuffle._split_blocks
        monkeypatch.setattr(shuffle, "_split_blocks", lambda *args: DeadlyRouting(split(*args), marker))
    elif moment == "slow":
        monkeypatch.setattr(input_parts, "run", SlowReading(marker))
    else:
        victim = Victim.WORKER if moment == "worker" else Victim.EXECUTOR
        monkeypatch.setattr(input_parts, "run", DeadlyReading(marker, moment != "reading", victim))


def _cleaned(graph: Graph) -> int:
    """Clean up, check that only orphans are removed, and return their number."""
    place = Path(graph.session.store.objects.uri.path)
    before, content = listing(place), b"".join(graph.export())
    refs = pins(graph, views(graph, 99))
    gone = unreached(place, refs)
    done = graph.cleanup(keep=99, orphans_older_than=timedelta(0))
    assert done.errors == ()
    assert done.versions_removed == 0
    after = listing(place)
    assert {path for path in before if path not in after and "_transactions" not in path} == gone
    assert after.items() <= before.items()
    assert unreached(place, refs) == set()
    assert b"".join(graph.export()) == content
    assert not (place / "__staging").exists()
    return len(gone)


# Concurrent small writes

QUERIES = """
query add($name: String, $age: I32) { insert Person { name: $name, age: $age } }
query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query gone($name: String) { delete Person where name = $name }
query wrote($name: String, $note: String) { insert Wrote { from: $name, to: $note, place: "desk" } }
"""
BEFORE, ALL = 10, 50


@dataclass
class Beside:
    """Mutations that run during a load, in this process and in others.

    Attributes:
        done: the acknowledged ones by commit, and those without an effect.
        refused: the kinds of errors of the others.
        enough: some ran after the load had read its input.
        loaded: the load has ended.
    """

    graph: Graph
    children: Children
    done: dict[str | None, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    nothing: int = 0
    refused: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)
    loaded: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, which: int, numbers: range) -> None:
        """Run every second mutation; the last of them after the load."""
        chance = Random(which)
        for number in numbers:
            if number >= ALL - BEFORE:
                assert self.loaded.wait(PATIENCE)
            name = f"person {chance.choice([number % 30, 10 + number % 20, 100 + number])}"
            query = ("add", "age", "wrote", "gone", "age")[number // 2 % 5]
            params: dict[str, Any] = {"name": f"new {number}" if query == "add" else name}
            params |= {"age": number} if query in ("add", "age") else {}
            params |= {"note": f"n{number % 20}"} if query == "wrote" else {}
            commit, refused = self._mutate(which, query, params)
            with self.lock:
                if refused is not None:
                    self.refused.append(refused)
                elif commit is None:
                    self.nothing += 1
                else:
                    self.done[commit] = (query, params)
                if len(self.done) + len(self.refused) + self.nothing >= BEFORE:
                    self.enough.set()

    def _mutate(self, which: int, query: str, params: dict[str, Any]) -> tuple[str | None, str | None]:
        """The commit, if there is one, or the kind of error."""
        if which:
            text = re.search(rf"query {query}.*", QUERIES)
            assert text is not None
            ended = self.children.run("mutate", uri=self.graph.uri, text=text[0], params=params)
            assert ended.signal == 0
            return ended.result, ended.error
        try:
            commit = self.graph.mutate(QUERIES, params, name=query).commit
        except OmnigraphError as error:
            return None, type(error).__name__
        return None if commit is None else commit.id, None

    def told(self, progress: LoadProgress) -> None:
        if progress.phase is LoadPhase.CHECKING:
            assert self.enough.wait(PATIENCE)


@pytest.mark.parametrize("mode", every_nth(["append", "merge"], 2, first=1))
def test_concurrent_mutations_and_a_load_keep_all_writes(
    cluster: Session, children: Children, tmp_path: Path, mode: str
) -> None:
    content = rows(3, first=100)
    if mode == "merge":
        _overlapping(content)
    source = write(tmp_path / "input", content, "ndjson")
    graph = graph_at(tmp_path / "graph")
    graph.session.store.timeouts.wait = PATIENCE
    beside = Beside(open(graph.uri), children)
    beside.graph.session.store.timeouts.wait = PATIENCE
    threads = [threading.Thread(target=beside.work, args=(which, range(which, ALL, 2))) for which in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        receipt = _loaded(graph, source, mode, cluster, progress=beside.told)
    finally:
        beside.loaded.set()
        for thread in threads:
            thread.join()
    assert len(beside.done) + len(beside.refused) + beside.nothing == ALL
    assert set(beside.refused) <= {
        "ReadSetChangedError",
        "ConstraintError",
        "KeyConflictError",
        "RecoveryRequiredError",
    }
    assert receipt.commit is not None
    replayed = graph_at(tmp_path / "replayed")
    history = [commit.id for commit in reversed(list(graph.commits.list().commits))][2:]
    assert sorted(history) == sorted([*map(str, beside.done), receipt.commit.id])
    assert 0 < history.index(receipt.commit.id) < len(history) - 1, "they were not made at once"
    for commit in history:
        if commit == receipt.commit.id:
            replayed.load(source, mode=mode)
        else:
            query, params = beside.done[commit]
            replayed.mutate(QUERIES, params, name=query)
    assert numbered(b"".join(graph.export())) == numbered(b"".join(replayed.export()))
    assert graph.verify().ok
