"""Every execution strategy gives the same rows: each is forced, and compared with the oracle and with the default.

The same queries run on the same graph with the default strategy, and then with the strategy of the test.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.read.graphs import Indexes, World
from tests.read.queries import Query
from tests.read.test_oracle_agrees import Reader, a_world, compare, explained, outcome, pairs, readers, topology_files

from omnigraph.errors import OmnigraphError
from omnigraph.read.columns import entity_table
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.context.views import Views
from omnigraph.read.match import index_lookup, meet, parts
from omnigraph.read.plan import join_order, plan_candidates, planner
from omnigraph.read.topology import edge_lookup, topologies, topology
from omnigraph.read.topology.topologies import Topologies

PAIRS = int(os.environ.get("OMNIGRAPH_WAY_PAIRS") or (80 if os.environ.get("CI") else 60))
QUERIES = 30

Pair = tuple[int, Query, Reader]
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Way:
    """An execution strategy.

    Attributes:
        patch: the change of the engine.
        answers: how pairs are run.
        indexes: how much of the graph is indexed.
        derived: whether there are derived files.
    """

    patch: Callable[[Patch], None] = lambda patch: None
    answers: Callable[[World, Sequence[Pair]], Iterator[Any]] = lambda world, asked: _one_by_one(asked)
    indexes: Indexes = Indexes.ANY
    derived: bool = True


def _one_by_one(asked: Sequence[Pair]) -> Iterator[Any]:
    for _, query, reader in asked:
        yield outcome(query, reader)


def _afresh(reader: Reader) -> Reader:
    """Start with empty caches, as another process."""
    return replace(reader, views=Views(ColumnCache()))


def _cold(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    for _, query, reader in asked:
        yield outcome(query, _afresh(reader))


def _warm(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    for _, query, reader in asked:
        for _ in range(2):
            outcome(query, reader)
        yield outcome(query, reader)


# Topologies on disk


def _make_all(reader: Reader) -> None:
    """Build all topologies of a state in the form that is stored on disk."""
    fresh = _afresh(reader)
    view = fresh.views.of(fresh.state.snapshot, fresh.world.graph.accepted_schema)
    for edge in reader.world.catalog.edges:
        view.topologies.of(edge)


@contextmanager
def _made_from_the_tables() -> Iterator[None]:
    """Topologies are built from their tables only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topologies, "update_topology", lambda *_: None)
        yield


def _present(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    """Each state has its topologies on disk, and no edge is read."""
    with _made_from_the_tables():
        for reader in readers(world):
            _make_all(reader)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topology, "_read", _fail)
        yield from _cold(world, asked)


def _fail(*_: object) -> None:
    raise AssertionError("the edges are read, though their topology is there")


def _stale(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    """Only topologies of another state exist."""
    states = readers(world)
    names = [reader.state.name for reader in states]
    for _, query, reader in asked:
        shutil.rmtree(topology_files(world), ignore_errors=True)
        with _made_from_the_tables():
            _make_all(states[names.index(reader.state.name) - 1])
        yield outcome(query, _afresh(reader))


def _corrupted(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    """Every file is damaged."""
    for number, query, reader in asked:
        rng = Random(f"{number} {reader.state.name}")
        shutil.rmtree(topology_files(world), ignore_errors=True)
        _make_all(reader)
        for path in sorted(topology_files(world).glob("*")):
            _spoil(path, rng)
        yield outcome(query, _afresh(reader))


def _spoil(path: Path, rng: Random) -> None:
    content = bytearray(path.read_bytes())
    match rng.choice(("gone", "empty", "short", "long", "bit", "zeros")):
        case "gone":
            path.unlink()
            return
        case "empty":
            content.clear()
        case "short":
            del content[rng.randrange(len(content)) :]
        case "long":
            content += bytes(rng.randint(1, 100))
        case "bit":
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case _:
            content = bytearray(len(content))
    path.write_bytes(content)


def test_the_corruption_helper_damages_every_file(monkeypatch: Patch) -> None:
    """Without this, the strategy above proves nothing."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    with a_world(70_000) as world:
        (reader, *_) = readers(world)
        _make_all(reader)
        before = {path: path.read_bytes() for path in topology_files(world).glob("*")}
        assert before
        for path in before:
            _spoil(path, Random(str(path)))
        spoiled = {path: path.read_bytes() for path in topology_files(world).glob("*")}
        assert not before.items() & spoiled.items()


# Threads


def _one_thread(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    with _threads(1):
        yield from _one_by_one(asked)


def _eight_threads(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    """Eight concurrent reads, each of which may use eight threads."""
    with _threads(8), ThreadPoolExecutor(8) as threads:
        yield from threads.map(lambda pair: outcome(pair[1], pair[2]), asked)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = pa.cpu_count(), pa.io_thread_count()
    pa.set_cpu_count(number)
    pa.set_io_thread_count(number)
    try:
        yield
    finally:
        pa.set_cpu_count(before[0])
        pa.set_io_thread_count(before[1])


# Branches


def _on_a_branch(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    """Each state is read through a branch that begins there."""
    graph, made = world.graph, {}
    for reader in readers(world):
        name = f"at-{reader.state.name}"
        graph.branches.create(name, commit=reader.state.snapshot.commit.id)
        state = replace(reader.state, snapshot=graph.snapshot(branch=name))
        made[reader.state.name] = replace(reader, state=state)
    for _, query, reader in asked:
        yield outcome(query, made[reader.state.name])


def _of_a_branch_with_other_rows(world: World, asked: Sequence[Pair]) -> Iterator[Any]:
    """Each state is read after a branch that begins there diverged, through the shared caches."""
    graph = world.graph
    for reader in readers(world):
        name = f"from-{reader.state.name}"
        graph.branches.create(name, commit=reader.state.snapshot.commit.id)
        for edge in world.catalog.edges:
            graph.mutate(f"query q() {{ delete edge {edge} where id is not null }}", branch=name)
        other = replace(reader.state, snapshot=graph.snapshot(branch=name))
        for _, query, mine in asked:
            if mine.state.name == reader.state.name:
                outcome(query, replace(mine, state=other))
    yield from _one_by_one(asked)


# Choices of the engine


def _values_by_row_id(patch: Patch) -> None:
    """No column is read whole if single values can be read."""
    patch.setattr(entity_table, "SMALL_TABLE_ROWS", 0)
    patch.setattr(entity_table, "LOOKUP_COST_ROWS", 0)
    patch.setattr(entity_table, "LOOKUP_COST_ROWS_PER_VALUE", 1)
    patch.setattr(ColumnCache, "should_defer", lambda *_: True)


def _everything_in_memory(patch: Patch) -> None:
    """Columns and id indexes are loaded at once."""
    patch.setattr(ColumnCache, "should_defer", lambda *_: False)


def _nothing_in_memory(patch: Patch) -> None:
    """Nothing is cached for the next read."""
    patch.setattr(ColumnCache, "_keep", lambda *_: None)


def _listing(patch: Patch) -> None:
    """Counts enumerate all rows."""
    patch.setattr("omnigraph.read.plan.planner.Planner._count", lambda *_, **__: None)


def _subtracting(patch: Patch) -> None:
    """Inequalities and negated edges are always counted by subtraction, negated blocks always on candidates."""
    patch.setattr(planner, "MIN_SUBTRACT_GAIN", 0.0)
    patch.setattr(plan_candidates, "MIN_EXCLUDE_GAIN", 0.0)
    patch.setattr(plan_candidates, "MIN_EXCLUDE_COST_EDGES", 0.0)


def _meeting(patch: Patch) -> None:
    """Variables between two bound variables are eliminated wherever this is possible, a few paths at a time."""
    patch.setattr(join_order, "MEET_COST_EDGES", -1.0)
    patch.setattr(join_order, "MIN_COST_PER_STATE_EDGES", -inf)
    patch.setattr(meet, "CHUNK_PATHS", 3)
    patch.setattr(meet, "MAX_MARK_BITS", 2)


def _in_parts(patch: Patch) -> None:
    """Every operator runs on parts of a few rows, in four threads."""
    patch.setenv("OMNIGRAPH_THREADS", "4")
    patch.setattr(parts, "PART_ROWS", 3)
    patch.setattr(parts, "MIN_PARALLEL_ROWS", 0)
    patch.setattr(parts, "MIN_PARALLEL_BYTES", 0)


def _edges_looked_up(patch: Patch) -> None:
    """No topology is built if edges can be looked up in the table, also without an index."""
    patch.setattr(edge_lookup, "LOOKUP_COST_EDGES", -(10**9))
    patch.setattr(edge_lookup, "LOOKUP_COST_EDGES_PER_NODE", 0)
    patch.setattr(edge_lookup, "LOOKUP_COST_EDGES_PER_RESULT", 0)
    patch.setattr(edge_lookup, "MAX_UNINDEXED_EDGES", 10**9)
    patch.setattr(Topologies, "_is_ready", lambda *_: False)


def _edges_in_arrays(patch: Patch) -> None:
    """No edge is looked up in the table."""
    patch.setattr(edge_lookup, "MAX_UNINDEXED_EDGES", -1)


def _indexes_asked(patch: Patch) -> None:
    """Every condition that an index supports is looked up, even in a small table."""
    patch.setattr(index_lookup, "SMALL_TABLE_ROWS", 0)
    patch.setattr(entity_table, "SMALL_TABLE_ROWS", 0)
    patch.setattr(ColumnCache, "should_defer", lambda *_: True)


WAYS = {
    "no indexes": Way(patch=_indexes_asked, indexes=Indexes.NONE),
    "partial indexes": Way(patch=_indexes_asked, indexes=Indexes.PARTIAL),
    "full indexes": Way(patch=_indexes_asked, indexes=Indexes.FULL),
    "topology present": Way(answers=_present),
    "topology absent": Way(answers=_cold, derived=False),
    "topology stale": Way(answers=_stale),
    "topology corrupted": Way(answers=_corrupted),
    "CSR forced": Way(patch=_edges_in_arrays),
    "BTREE forced": Way(patch=_edges_looked_up, indexes=Indexes.FULL),
    "lookups without an index": Way(patch=_edges_looked_up, indexes=Indexes.NONE),
    "one thread": Way(answers=_one_thread),
    "eight threads": Way(answers=_eight_threads),
    "cold": Way(answers=_cold),
    "warm": Way(answers=_warm),
    "a branch": Way(answers=_on_a_branch),
    "beside a branch": Way(answers=_of_a_branch_with_other_rows),
    "values by row id": Way(patch=_values_by_row_id),
    "everything in memory": Way(patch=_everything_in_memory),
    "nothing in memory": Way(patch=_nothing_in_memory),
    "listing": Way(patch=_listing),
    "subtracting": Way(patch=_subtracting),
    "in parts": Way(patch=_in_parts),
    "meeting": Way(patch=_meeting),
}


def _agree(said: pa.Table | OmnigraphError, usual: pa.Table | OmnigraphError) -> None:
    """Assert that two answers agree. One of them may fail on a value that is too large, and the other not."""
    if not isinstance(said, OmnigraphError) and not isinstance(usual, OmnigraphError):
        assert said.equals(usual), f"this way\n{said.to_pylist()}\nas it comes\n{usual.to_pylist()}"


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [PAIRS, pytest.param(1_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", WAYS)
def test_each_execution_strategy_agrees_with_the_oracle(name: str, wanted: int, monkeypatch: Patch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    way = WAYS[name]
    done: Counter[str] = Counter()
    for seed in count(70_000 + 100 * list(WAYS).index(name)):
        with a_world(seed, way.indexes, derived=way.derived) as world:
            asked = list(islice(pairs(world, seed, range(QUERIES)), wanted - done.total()))
            expected = list(_one_by_one(asked))
            with monkeypatch.context() as patch:
                way.patch(patch)
                views = Views(ColumnCache())
                fresh = [(number, query, replace(reader, views=views)) for number, query, reader in asked]
                found = list(way.answers(world, fresh))
            for (number, query, reader), said, usual in zip(asked, found, expected, strict=True):
                try:
                    done[compare(query, reader.state, said)] += 1
                    _agree(said, usual)
                except Exception as error:
                    pytest.fail(explained(error, seed, number, query, reader), pytrace=False)
        if done.total() >= wanted:
            break
    assert done["rows"] > wanted / 8, done
