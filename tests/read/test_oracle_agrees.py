"""Every read gives the rows of the oracle, in its order: random schemas, graphs and queries over the whole language.

A pair is a query and a state of a graph. A developer's run tries 300 pairs, CI (if `CI` is set) 4,000,
`make soak` 400,000. `OMNIGRAPH_PAIRS=<number>` sets the number of pairs, `OMNIGRAPH_SEED=<number>` the first world. A
disagreement names its world and query; `OMNIGRAPH_SEED=<world> OMNIGRAPH_QUERY=<query>` runs only these.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import count, islice
from math import prod
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from tests.read.graphs import Indexes, State, World
from tests.read.limits import SMALL_MEMORY, Countdown, Limits, some_limits
from tests.read.oracle import Answer, BadCountError, Oracle, Rough
from tests.read.queries import Folding, Query, some_query
from tests.read.thresholds import CHOICES, FORMAT_CHOICES, turned
from tests.read.webs import Web

from omnigraph.errors import BudgetExceededError, CancelledError, ExecutionError, InputError, OmnigraphError
from omnigraph.evaluate import Request, bind
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.read.budget import Budget, Spending
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.columns.derived_files import DerivedFiles
from omnigraph.read.context import Context
from omnigraph.read.context.trace import Trace
from omnigraph.read.context.views import Views
from omnigraph.read.execute.executor import explain
from omnigraph.read.execute.run import run
from omnigraph.read.search import word_store
from omnigraph.read.topology import topologies

NOW = 1_773_480_600_123
PAIRS = int(os.environ.get("OMNIGRAPH_PAIRS") or (4_000 if os.environ.get("CI") else 300))
SEED = int(os.environ.get("OMNIGRAPH_SEED", "0"))
QUERY = os.environ.get("OMNIGRAPH_QUERY")
SHARES = 8
"""The number of tests among which the pairs are divided; they may run in parallel."""

ENOUGH = 200
"""From this number of pairs on, a test checks its statistics."""

QUERIES = 60
"""Queries per world; each runs on every state."""

KINDS = (None, None, Web, None, Folding, Web)
"""The kinds of the queries of a world, in turn. None stands for the whole language."""

LARGEST = 15_000
"""The largest number of assignments for the oracle."""


@dataclass(frozen=True)
class Reader:
    """A state of a graph, ready to be read."""

    state: State
    world: World
    views: Views

    def table(self, query: Query, limits: Limits | None = None, *, traced: bool = False) -> pa.Table:
        request = Request(bind(query.compiled.params, query.given), NOW)
        accepted, snapshot = self.world.graph.accepted_schema, self.state.snapshot
        view = self.views.of(snapshot, accepted)
        trace = Trace() if traced else None
        with (limits or Limits()).applied() as spending:
            context = Context(snapshot, accepted, request, view.tables, lambda: view.topologies, spending, trace=trace)
            if traced:
                explain(query.prepared, replace(context, trace=Trace(), budget=Spending(Budget(seconds=None))))
            table = run(query.prepared, context)
        assert not isinstance(spending.cancel, Countdown) or not spending.cancel.expired, (
            "a cancelled read has a result"
        )
        return table


def readers(world: World) -> list[Reader]:
    """The states of a world. They share caches, so that mixed-up versions would be found."""
    views = Views(ColumnCache())
    return [Reader(state, world, views) for state in world.states]


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as the oracle represents them: dates as numbers, lists as tuples."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in plain(chunk)]
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        items = plain(column.flatten())
        lengths = [None if value is None else len(value) for value in column.to_pylist()]
        found, at = [], 0
        for length in lengths:
            found.append(None if length is None else tuple(items[at : at + length]))
            at += length or 0
        return found
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    if pa.types.is_date64(column.type):
        column = column.view(pa.int64())
    return list(column.to_pylist())


def is_same(found: Any, expected: Any) -> bool:
    """Whether a value equals the expected one exactly."""
    return bool(found == expected) and isinstance(found, float) == isinstance(expected, float)


def is_near(found: Any, expected: Any) -> bool:
    """Whether an aggregate equals the expected one; floats may be added in another order."""
    if isinstance(expected, float) and isinstance(found, float):
        slack = expected.slack if isinstance(expected, Rough) else 0.0
        return math.isclose(found, expected, rel_tol=1e-12, abs_tol=slack)
    return is_same(found, expected)


def too_large(query: Query, state: State) -> bool:
    """Whether the oracle would be too slow."""
    counts = {name: len(rows) for name, rows in state.graph.nodes.items()}
    matches = (*(stage.read.match for stage in query.read.stages), query.read.match)
    nodes = (node for match in matches for node in _nodes(match))
    return prod(max(1, sum(counts[t] for t in node.types)) for node in nodes) > LARGEST


def _nodes(block: ir.Block) -> Iterator[ir.NodeVar]:
    yield from block.nodes
    for inner in (*block.optionals, *block.negations, *(value.block for value in block.values)):
        yield from _nodes(inner)


class DisagreementError(AssertionError):
    """The engine and the oracle disagree."""


def outcome(
    query: Query, reader: Reader, limits: Limits | None = None, *, traced: bool = False
) -> pa.Table | OmnigraphError:
    """The answer of the engine."""
    try:
        return reader.table(query, limits, traced=traced)
    except OmnigraphError as error:
        return error


def stopped_by(limits: Limits, said: pa.Table | OmnigraphError) -> str | None:
    """The limit that stopped a read; None if no limit did."""
    if limits.checks is not None and isinstance(said, CancelledError):
        return "cancelled"
    if limits.memory in SMALL_MEMORY and isinstance(said, BudgetExceededError) and said.resource == "bytes":
        return "out of memory"
    return None


def compare(query: Query, state: State, said: pa.Table | OmnigraphError) -> str:
    """Compare the answer of the engine with the answer of the oracle.

    Returns:
        The kind of agreement, for the statistics.

    Raises:
        DisagreementError: they differ.
    """
    oracle = Oracle(state.graph, query.params, NOW)
    answer: Answer | None
    try:
        answer = oracle.answer(query.read)
    except BadCountError:
        answer = None
    if isinstance(said, OmnigraphError):
        if answer is None:
            _agree(isinstance(said, InputError), f"a count is negative, and the engine says {said!r}")
            return "bad count"
        _agree(isinstance(said, ExecutionError), f"the engine says {said!r}")
        _agree(answer.fails or answer.may_fail or oracle.can_fail(query.read), f"the engine says {said!r}")
        return "error"
    table = said
    _agree(answer is not None, "the engine takes a negative count")
    assert answer is not None
    _agree(not answer.fails, "the engine gives a result where a value is too large")
    if answer.may_differ:
        return "unsure"
    expected_schema = pa.schema(
        [pa.field(c.name, arrow_type(c.expr.type), c.expr.type.nullable) for c in query.read.columns]
    )
    _agree(table.schema == expected_schema, f"columns {table.schema}, not {expected_schema}")
    rows = list(zip(*(plain(table[name]) for name in answer.columns), strict=True))
    groupings = {column.name for column in query.read.keys}
    alike = [is_near if query.read.grouped and name not in groupings else is_same for name in answer.columns]
    same = len(rows) == len(answer.rows) and all(
        agree(value, other)
        for row, expected in zip(rows, answer.rows, strict=True)
        for agree, value, other in zip(alike, row, expected, strict=True)
    )
    _agree(same, f"the engine gives\n{_shown(rows)}\nthe oracle\n{_shown(answer.rows)}")
    return "rows" if rows else "no rows"


def _agree(holds: bool, message: str) -> None:
    if not holds:
        raise DisagreementError(message)


def _shown(rows: Any) -> str:
    return "\n".join(f"  {row}" for row in rows) or "  nothing"


def pairs(world: World, seed: int, queries: range) -> Iterator[tuple[int, Query, Reader]]:
    states = readers(world)
    for number in queries:
        if number % 15 == 14:
            states = readers(world)  # empty caches, as in another process
        query = some_query(Random(f"{seed}/{number}"), world.catalog, KINDS[number % len(KINDS)])
        for reader in states:
            if not too_large(query, reader.state):
                yield number, query, reader


def explained(error: Exception, seed: int, number: int, query: Query, reader: Reader) -> str:
    return (
        f"world {seed}, query {number}, state {reader.state.name!r}\n{type(error).__name__}: {error}\n"
        f"{reader.world.schema}\n{query.text}\nwith {dict(query.given)}\n{ir.render(query.compiled)}"
    )


_TOPOLOGIES = "topologies"


def topology_files(world: World) -> Path:
    """The directory of a world's topologies."""
    return world.place.with_name(_TOPOLOGIES)


@contextmanager
def a_world(seed: int, indexes: Indexes = Indexes.ANY, *, derived: bool = True) -> Iterator[World]:
    """A world with its own directory of derived files, or with none."""
    with TemporaryDirectory() as place:
        homes = {topologies: Path(place) / _TOPOLOGIES, word_store: Path(place) / "words"}
        with ExitStack() as patches:
            for module, home in homes.items():
                files = DerivedFiles(home if derived else None)
                patches.enter_context(patch.object(module, "process_files", lambda files=files: files))
            world = World(seed, Path(place) / "graph", indexes)
            yield world
            world.close()


def agreed(seed: int, queries: range, most: int, stopped: Counter[str]) -> Counter[str]:
    """Run pairs of one world on both, and count the kinds of agreement.

    Each pair has its own thresholds and limits. A read that a limit stopped runs again without limits, with the same
    caches.
    """
    done: Counter[str] = Counter()
    with turned(Random(f"format {seed}"), FORMAT_CHOICES) as format_numbers, a_world(seed) as world:
        for number, query, reader in islice(pairs(world, seed, queries), most):
            rng = Random(f"limits {seed}/{number}/{reader.state.name}")
            limits, traced = some_limits(rng), number % 8 == 7
            with turned(rng) as numbers:
                try:
                    said = outcome(query, reader, limits, traced=traced)
                    if (limit := stopped_by(limits, said)) is not None:
                        stopped[limit] += 1
                        said = outcome(query, reader, Limits(limits.threads), traced=traced)
                    done[compare(query, reader.state, said)] += 1
                except Exception as error:
                    why = explained(error, seed, number, query, reader)
                    pytest.fail(f"{why}\n{limits}\n{format_numbers | numbers}", pytrace=False)
    return done


@pytest.mark.parametrize("total", [PAIRS, pytest.param(400_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("share", range(SHARES))
def test_the_engine_agrees_with_the_oracle(share: int, total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    if QUERY is not None:
        agreed(SEED, range(int(QUERY), int(QUERY) + 1), total, Counter())
        return
    done: Counter[str] = Counter()
    stopped: Counter[str] = Counter()
    wanted = math.ceil(total / SHARES)
    for seed in count(SEED + share, SHARES):
        done += agreed(seed, range(QUERIES), wanted - done.total(), stopped)
        if done.total() >= wanted:
            break
    if wanted >= ENOUGH:
        assert done["rows"] > wanted / 4, done
        assert done["unsure"] + done["error"] < wanted / 10, done
        assert stopped["cancelled"] > wanted / 50, stopped
        assert wanted / 100 < stopped["out of memory"] < wanted / 4, stopped


@pytest.mark.slow
def test_concurrent_queries_give_the_rows_of_sequential_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")

    def tried(pair: tuple[int, Query, Reader]) -> pa.Table | str:
        said = outcome(pair[1], pair[2])
        return str(said) if isinstance(said, OmnigraphError) else said

    with a_world(SEED) as world:
        expected = [tried(pair) for pair in pairs(world, SEED, range(QUERIES))]
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(tried, pairs(world, SEED, range(QUERIES))))
    assert found == expected


def test_the_overridden_thresholds_exist() -> None:
    for module, numbers in {**CHOICES, **FORMAT_CHOICES}.items():
        home = import_module(f"omnigraph.read.{module}")
        assert [name for name in numbers if not hasattr(home, name)] == [], module
