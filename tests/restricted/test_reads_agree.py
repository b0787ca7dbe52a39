"""A restricted read gives the rows of the oracle over a graph from which the hidden rows were deleted.

Random schemas, graphs, row rules, policies and queries over the whole language. A pair is a query and a restricted
state of a graph. Half of the scopes are actors of random policies, whose rules the test reads in plain Python. A
developer's run tries 240 pairs, CI (if `CI` is set) 1,000, `make soak` 20,000. `OMNIGRAPH_PAIRS=<number>` sets the
number of pairs, `OMNIGRAPH_SEED=<number>` the first world.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from random import Random
from typing import cast

import pyarrow as pa
import pytest
from tests.read.graphs import State, World
from tests.read.limits import Limits
from tests.read.queries import Folding, Query, some_query
from tests.read.test_oracle_agrees import NOW, Reader, a_world, compare, outcome, too_large
from tests.read.thresholds import turned
from tests.read.webs import Web
from tests.restricted.scopes import SomePolicy, some_policy, some_rules, visible_graph

from omnigraph import Policy
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.row_scope import RowRules
from omnigraph.engine.session import Session
from omnigraph.evaluate import Request, bind
from omnigraph.lang.schema import Catalog
from omnigraph.read.budget import Budget, Spending
from omnigraph.read.context import Context
from omnigraph.read.context.trace import Trace
from omnigraph.read.execute.executor import explain
from omnigraph.read.execute.run import run
from omnigraph.restricted import table_view
from omnigraph.restricted.store import RestrictedStore
from omnigraph.testing import thresholds

PAIRS = int(os.environ.get("OMNIGRAPH_PAIRS") or (1_000 if os.environ.get("CI") else 240))
SEED = int(os.environ.get("OMNIGRAPH_SEED", "0"))
SHARES = 4
"""The number of tests among which the pairs are divided; they may run in parallel."""

SCOPES, QUERIES = 4, 12
"""Scopes per world, and queries per scope; each query runs on every state."""

KINDS = (None, None, Web, None, Folding, Web)


@dataclass(frozen=True)
class RestrictedReader(Reader):
    """A restricted state of a graph. It reads as `Reader` of the unrestricted test does."""

    session: Session
    rules: RowRules | SomePolicy

    @property
    def catalog(self) -> Catalog:
        """The visible schema of the state."""
        return self.session.schemas.at(self.state.snapshot).catalog

    def table(self, query: Query, limits: Limits | None = None, *, traced: bool = False) -> pa.Table:
        request = Request(bind(query.compiled.params, query.given), NOW)
        snapshot, session = self.state.snapshot, self.session
        view = session.view_of(snapshot)
        trace = Trace() if traced else None
        accepted = session.schemas.at(snapshot)
        with (limits or Limits()).applied() as spending:
            context = Context(snapshot, accepted, request, view.tables, lambda: view.topologies, spending, trace=trace)
            if traced:
                explain(query.prepared, replace(context, trace=Trace(), budget=Spending(Budget(seconds=None))))
            return run(query.prepared, context)


def readers(world: World, rules: RowRules | SomePolicy) -> list[RestrictedReader]:
    """The states of a world as an actor sees them; none if a policy does not limit its actor."""
    whole = world.graph.session
    if isinstance(rules, SomePolicy):
        session = whole.bound_to(Policy.read(rules.bundle), rules.actor)
        if session.whole is None:
            return []
    else:
        session = whole.restricted(rules.scope_of(whole.accepted))
    store = cast(RestrictedStore, session.store)
    assert isinstance(store, RestrictedStore)
    found = []
    for state in world.states:
        view = state.snapshot.manifest
        snapshot = Snapshot(session.store, store.restricted(view))
        shown = session.schemas.at(snapshot).catalog
        read = rules.rules(world.catalog, view.branch) if isinstance(rules, SomePolicy) else rules
        graph = visible_graph(state.graph, world.catalog, shown, read)
        found.append(RestrictedReader(State(state.name, snapshot, graph), world, session.views, session, rules))
    return found


def scopes(world: World, seed: int, count: int = SCOPES) -> Iterator[tuple[int, list[RestrictedReader]]]:
    """The states of a world for several actors: of row rules, and of policies."""
    for scope in range(count):
        rng = Random(f"scope {seed}/{scope}")
        found: list[RestrictedReader] = []
        while not found:
            found = readers(world, (some_policy if scope % 2 else some_rules)(rng, world.catalog))
        yield scope, found


def pairs(world: World, seed: int) -> Iterator[tuple[str, Query, RestrictedReader]]:
    for scope, states in scopes(world, seed):
        for number in range(QUERIES):
            # The rules of some policies differ between branches. A query is for the states that have its schema.
            rng = Random(f"{seed}/{scope}/{number}")
            drawn = rng.choice(states)
            if not drawn.catalog.nodes:
                continue
            query = some_query(rng, drawn.catalog, KINDS[number % len(KINDS)])
            for reader in states:
                has_schema = reader.state.snapshot.schema_hash == drawn.state.snapshot.schema_hash
                if has_schema and not too_large(query, reader.state):
                    yield f"{scope}/{number}", query, reader


def agreed(seed: int, most: int) -> Counter[str]:
    done: Counter[str] = Counter()
    with a_world(seed) as world:
        for name, query, reader in islice(pairs(world, seed), most):
            rng = Random(f"limits {seed}/{name}/{reader.state.name}")
            with turned(rng), thresholds(table_view, FEW_ROWS=rng.choice((1, 4, 1_000))):
                try:
                    said = outcome(query, reader, Limits(), traced=int(name.rpartition("/")[2]) % 5 == 4)
                    done[compare(query, reader.state, said)] += 1
                except Exception as error:
                    if os.environ.get("OMNIGRAPH_RAISE"):
                        raise
                    pytest.fail(
                        f"world {seed}, query {name}, state {reader.state.name!r}\n{type(error).__name__}: {error}\n"
                        f"{world.schema}\n{reader.rules}\n{query.text}\nwith {dict(query.given)}",
                        pytrace=False,
                    )
    return done


@pytest.mark.parametrize("total", [PAIRS, pytest.param(20_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("share", range(SHARES))
def test_a_restricted_read_agrees_with_the_oracle_over_the_visible_graph(
    share: int, total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    done: Counter[str] = Counter()
    wanted = math.ceil(total / SHARES)
    for seed in count(SEED + share, SHARES):
        done += agreed(seed, wanted - done.total())
        if done.total() >= wanted:
            break
    if wanted >= 200:
        assert done["rows"] > wanted / 6, done
        assert done["unsure"] + done["error"] < wanted / 8, done
