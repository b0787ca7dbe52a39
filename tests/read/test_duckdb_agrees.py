"""DuckDB gives the same rows for the relational part of the language: random matches, hops, blocks, groups and orders.

A pair is a query and a state of a graph. `OMNIGRAPH_SQL_PAIRS=<number>` sets the number of pairs; a disagreement names
its world and query.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import isclose
from random import Random
from typing import Any

import duckdb
import pytest
from tests.read.graphs import State, World, some_value
from tests.read.queries import INTEGERS, ORDERS, TEXT, Maker, Query, literal, some_query
from tests.read.sql import NotRelationalError, Statement, tables
from tests.read.test_oracle_agrees import NOW, Reader, a_world, explained, plain, readers, too_large
from tests.read.webs import Web

from omnigraph.errors import ExecutionError
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.types import Scalar, ValueType

PAIRS = int(os.environ.get("OMNIGRAPH_SQL_PAIRS") or (400 if os.environ.get("CI") else 120))
QUERIES = 40
LARGEST = 60
"""In graphs with more nodes, DuckDB is slow to compute all distances."""


class Plain(Maker):
    """Generates queries, most of which SQL can express."""

    def kinds(self, *scalars: Scalar) -> list[tuple[str, ValueType]]:
        return [(place, kind) for place, kind in self.accesses() if kind.is_plain_scalar and kind.scalar in scalars]

    def comparable(self) -> tuple[str, ValueType]:
        """A property whose values SQL compares as this engine does."""
        return self.rng.choice(self.kinds(*(scalar for scalar in Scalar if scalar is not Scalar.F32)))

    def like(self, kind: ValueType) -> str:
        """A property or a constant to compare it with."""
        scalars = INTEGERS if kind.scalar in INTEGERS else (kind.scalar,)
        places = self.kinds(*scalars)
        if places and self.chance(40):
            return self.rng.choice(places)[0]
        return self.constant(kind.item)

    def condition(self, depth: int = 2) -> str:
        if depth > 0 and self.chance(30):
            parts = [f"({self.condition(depth - 1)})" for _ in range(self.pick(2, 2, 3))]
            joined = f" {self.pick('and', 'or', 'or')} ".join(parts)
            return f"not ({joined})" if self.chance(30) else joined
        return self.weighted(
            (6, self.compared), (2, self.searched_for), (3, self.listed_in), (3, self.missing), (2, self.identity)
        )

    def compared(self) -> str:
        place, kind = self.comparable()
        return f"{place} {self.pick(*ORDERS)} {self.like(kind)}"

    def searched_for(self) -> str:
        place = self.rng.choice(self.kinds(Scalar.STRING))[0]
        return f"{place} {self.pick('contains', 'starts_with', 'ends_with')} {self.constant(TEXT)}"

    def listed_in(self) -> str:
        lists = [(p, k) for p, k in self.accesses() if k.list and k.scalar is not Scalar.F32]
        if lists and self.chance(50):
            place, kind = self.rng.choice(lists)
            return f"{place} contains {self.like(kind.item)}"
        place, kind = self.comparable()
        items = ", ".join(literal(value, kind.item) for value in self.some_values(kind))
        return f"{place} {self.pick('in', 'in', 'not in')} [{items}]"

    def some_values(self, kind: ValueType) -> list[Any]:
        return [some_value(self.rng, kind.item) for _ in range(self.rng.randint(1, 3))]

    def missing(self) -> str:
        known = [*self.scope.nodes, *self.scope.edges, *self.scope.paths]
        place = f"${self.rng.choice(known)}" if self.chance(40) else self.rng.choice(self.accesses())[0]
        return f"{place} {self.pick('is null', 'is not null')}"

    def against_constant(self, var: str | None = None) -> str:
        return self.compared()

    def scalar(self, depth: int = 1) -> str:
        return self.comparable()[0]

    def anything(self) -> str:
        plain = [place for place, kind in self.accesses() if not kind.is_vector]
        return self.weighted(
            (6, lambda: self.rng.choice(plain)),
            (2, lambda: f"${self.rng.choice(list(self.scope.nodes))}"),
            (1, self.type_name),
            (1, lambda: f"length({self.rng.choice(self.kinds(Scalar.STRING))[0]})"),
            (1, self.filled),
            (3 if self.scope.paths else 0, lambda: f"length(${self.rng.choice(self.scope.paths)})"),
        )

    def filled(self) -> str:
        place, kind = self.comparable()
        return f"coalesce({place}, {self.like(kind)})"

    def rank(self) -> str | None:
        return None

    def number(self, depth: int = 1) -> str:
        return str(self.rng.randint(0, 3))

    def aggregate(self, keys: Sequence[str]) -> tuple[str, bool]:
        distinct = "distinct " if self.chance(25) else ""
        whole = self.kinds(*INTEGERS)
        choices: list[tuple[int, Callable[[], tuple[str, bool]]]] = [
            (3, lambda: ("count(*)", True)),
            (4, lambda: (f"count({distinct}{self.anything()})", True)),
            (3, lambda: (f"{self.pick('min', 'max')}({self.scalar()})", False)),
            (2, lambda: (f"collect({distinct}{self.scalar()})", False)),
        ]
        if whole:
            place = self.rng.choice(whole)[0]
            choices.append((5, lambda: (f"{self.pick('sum', 'avg')}({distinct}{place})", False)))
        return self.weighted(*choices)


class PlainWeb(Web, Plain):
    """Generates such queries with several edges among the same variables."""

    def tested_block(self, depth: int = 0) -> str:
        return self.condition(0)


def asked(database: duckdb.DuckDBPyConnection, statement: Statement) -> list[tuple[Any, ...]]:
    rows = database.execute(statement.text, statement.values).fetchall()
    return [tuple(tuple(value) if isinstance(value, list) else value for value in row) for row in rows]


def same(found: Any, expected: Any, *, near: bool) -> bool:
    if near and isinstance(found, float) and isinstance(expected, float):
        return isclose(found, expected, rel_tol=1e-12)
    return bool(found == expected) and isinstance(found, bool) == isinstance(expected, bool)


def database_of(world: World, state: State) -> duckdb.DuckDBPyConnection:
    """A state of a graph in DuckDB. The rows are those of the oracle, not those of this engine."""
    database = duckdb.connect()
    database.execute("SET threads = 1")
    for name, table in tables(world.catalog, state.graph):
        database.register("given", table)
        database.execute(f'CREATE TABLE "{name}" AS SELECT * FROM given')
        database.unregister("given")
    return database


def compare(query: Query, reader: Reader, database: duckdb.DuckDBPyConnection) -> str:
    """Run a query on both engines, and return the kind of agreement.

    Raises:
        NotRelationalError: DuckDB cannot run the query.
    """
    nodes = sum(map(len, reader.state.graph.nodes.values()))
    statement = Statement(reader.world.catalog, query.read, query.params, NOW, nodes)
    expected = asked(database, statement)
    try:
        table = reader.table(query)
    except ExecutionError:
        # A sum or a U64 among signed integers that exceeds I64, possibly in a group beyond the limit: DuckDB has wider
        # integers.
        assert any(map(_may_overflow, walk(query.read))), statement.text
        return "too large"
    found = list(zip(*(plain(column) for column in table.columns), strict=True))
    averages = [any(isinstance(e, float) for e in column) for column in zip(*expected, strict=True)]
    agree = len(found) == len(expected) and all(
        same(mine, theirs, near=near)
        for row, other in zip(found, expected, strict=True)
        for mine, theirs, near in zip(row, other, averages, strict=True)
    )
    assert agree, f"we say\n{found}\nDuckDB\n{expected}\n{statement.text}\n{statement.values}"
    return "rows" if found else "no rows"


def _may_overflow(part: object) -> bool:
    match part:
        case ir.Aggregate(function=ir.AggregateFunction.SUM):
            return True
        case ir.Apply(function=ir.Function.COALESCE, args=args, type=kind):
            return kind.scalar is Scalar.I64 and any(arg.type.scalar is Scalar.U64 for arg in args)
    return False


def pairs(world: World, seed: int) -> Iterator[tuple[int, Query, Reader, duckdb.DuckDBPyConnection]]:
    states = readers(world)
    databases = [database_of(world, reader.state) for reader in states]
    for number in range(QUERIES):
        query = some_query(Random(f"sql {seed}/{number}"), world.catalog, PlainWeb if number % 3 == 2 else Plain)
        if query.read.stages:
            continue  # stages are compared with the oracle
        for reader, database in zip(states, databases, strict=True):
            few = sum(map(len, reader.state.graph.nodes.values())) <= LARGEST
            if few and not too_large(query, reader.state):
                yield number, query, reader, database
    for database in databases:
        database.close()


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [PAIRS, pytest.param(10_000, marks=pytest.mark.soak)])
def test_duckdb_gives_the_same_rows_in_the_same_order(wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    done: Counter[str] = Counter()
    for seed in count(40_000):
        with a_world(seed) as world:
            for number, query, reader, database in pairs(world, seed):
                try:
                    done[compare(query, reader, database)] += 1
                except NotRelationalError:
                    done["ours alone"] += 1
                except Exception as error:
                    pytest.fail(explained(error, seed, number, query, reader), pytrace=False)
        if done["rows"] + done["no rows"] >= wanted:
            break
    # Most of the queries must return rows.
    assert done["rows"] > wanted / 3, done
    assert done["ours alone"] + done["too large"] < done.total() / 3, done
