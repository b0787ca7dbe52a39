"""Plain inserts of a transaction are built together: with the same rows, counts and errors as one by one."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path

import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit.table_writes import Append
from omnigraph.engine import transaction
from omnigraph.errors import ConstraintError, OmnigraphError, ParameterError
from omnigraph.graph import Graph
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.query import compile_query
from omnigraph.write import collected_inserts
from omnigraph.write.collected_inserts import plain_insert

SCHEMA = """
node Thing {
  name: String @key
  small: I32?
  large: U64?
  ratio: F32?
  day: Date?
  at: DateTime?
  flag: Bool?
  state: enum(open, closed)?
  tags: [String]?
  size: I64 @default(3)
  @range(size, 0..100)
  @check(name, "^[a-z]+$")
}
node Pair { left: String  right: I64  note: String?  @key(left, right) }
node Event { label: String  made: DateTime @default(now())  on: Date @default(now()) }
node Mailed { name: String @key  mail: String? @unique }
node Shown { name: String @key  photo: Blob? }
edge Has: Thing -> Pair
"""
QUERIES = """
query thing($name: String, $small: I64?, $size: I64) { insert Thing { name: $name, small: $small, size: $size } }
query values($name: String, $large: U64?, $ratio: F32?, $day: Date?, $at: DateTime?, $flag: Bool?, $state: String?) {
  insert Thing { name: $name, large: $large, ratio: $ratio, day: $day, at: $at, flag: $flag, state: $state }
}
query constant($name: String) { insert Thing { name: $name, small: 7, state: "open", flag: true, at: now() } }
query pair($name: String, $right: I64, $note: String?) { insert Pair { left: $name, right: $right, note: $note } }
query event($name: String) { insert Event { label: $name } }
query mailed($name: String) { insert Mailed { name: $name } }
query shown($name: String) { insert Shown { name: $name } }
query tagged($name: String, $tags: [String]) { insert Thing { name: $name, tags: $tags } }
query merged($name: String, $small: I64?) { merge Thing { name: $name, small: $small } }
query created($name: String) { create Thing { name: $name } }
query both($name: String) { insert Thing { name: $name } insert Event { label: $name } }
query resized($name: String, $size: I64) { update Thing set { size: $size } where name = $name }
query gone($name: String) { delete Thing where name = $name }
query has($name: String, $right: I64) { insert Has { from: $name, to: "[\\"a\\",\\"1\\"]" } }
"""
PLAIN = ("thing", "values", "constant", "pair", "event")
OTHER = ("mailed", "shown", "tagged", "merged", "created", "both", "resized", "gone", "has")


def run(on: Graph | Transaction, query: str, params: dict[str, object]) -> object:
    """The counts of a query, or its error."""
    try:
        receipt = on.mutate(QUERIES, params, name=query)
    except OmnigraphError as error:
        return type(error), str(error)
    return receipt.affected_nodes, receipt.affected_edges


def contents(on: Graph | Transaction) -> dict[str, list[str]]:
    """All rows, without generated ids and times."""
    view = on.snapshot()
    found = {}
    for key in view.tables:
        rows = view.scan(key).to_pylist()
        hidden = {"made", "on", "at"} | (set() if key.startswith("node:") and key != "node:Event" else {"id"})
        found[key] = sorted(repr({name: row[name] for name in row if name not in hidden}) for row in rows)
    return found


def statement(chance: random.Random) -> tuple[str, dict[str, object]]:
    values: dict[str, list[object]] = {
        "name": ["a", "b", "c", "d", "a" * 50, "B", "", None, 7, "\ud800"],
        "small": [None, 1, -5, 2**31, 2**31 - 1, "12", 1.0, True],
        "size": [0, 1, 100, 101, -1, None],
        "large": [None, 0, 2**64 - 1, 2**64],
        "ratio": [None, 0.1, 1, 1e39, float("nan")],
        "day": [None, "2026-03-14", date(2020, 1, 1), "2026-13-01", 5],
        "at": [None, "2026-03-14T09:30:00Z", "yesterday"],
        "flag": [None, True, 1],
        "state": [None, "open", "closed", "ajar"],
        "right": [1, 2],
        "note": [None, "x"],
        "tags": [["x"], []],
    }
    query = chance.choice(PLAIN if chance.random() < 0.75 else OTHER)
    text = QUERIES[QUERIES.index(f"query {query}(") :]
    names = [part.partition(":")[0] for part in text[text.index("(") : text.index(")")].split("$")[1:]]
    if chance.random() < 0.05:
        names.pop()
    # The first values of each list are valid. Most statements use them.
    wide = chance.random() < 0.3
    return query, {name: chance.choice(values[name] if wide else values[name][:2]) for name in names}


@pytest.mark.parametrize("seed", range(12))
def test_inserts_do_what_they_do_one_by_one(tmp_path: Path, thresholds: Thresholds, seed: int) -> None:
    chance = random.Random(seed)
    thresholds(collected_inserts, MOST_COLLECTED=chance.choice([1, 3, 1_000]))
    thresholds(transaction, MOST_ROWS=chance.choice([7, 50_000, 50_000]))
    with omnigraph.init(tmp_path / "one", SCHEMA) as one, omnigraph.init(tmp_path / "other", SCHEMA) as other:
        for graph in (one, other):
            run(graph, "thing", {"name": "a", "small": 9, "size": 9})
        with one.branch().transaction() as tx:
            for _ in range(60):
                query, params = statement(chance)
                assert run(tx, query, params) == run(other, query, params), (query, params)
                if chance.random() < 0.03:
                    assert contents(tx) == contents(other), (query, params)
        assert contents(one) == contents(other)


@pytest.mark.parametrize("query", [*PLAIN, *OTHER])
def test_only_inserts_that_read_no_table_are_plain(tmp_path: Path, query: str) -> None:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        accepted = graph.session.schemas.at(graph.snapshot())
        compiled = compile_query(QUERIES, accepted.catalog, query)
        assert (plain_insert(accepted, compiled) is not None) == (query in PLAIN)


def test_a_statement_raises_its_own_error(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        with graph.branch().transaction() as tx:
            tx.mutate(QUERIES, {"name": "a", "small": 1, "size": 1}, name="thing")
            with pytest.raises(ParameterError):
                tx.mutate(QUERIES, {"name": "b", "small": "x", "size": 1}, name="thing")
            with pytest.raises(ConstraintError):
                tx.mutate(QUERIES, {"name": "c", "small": 1, "size": 101}, name="thing")
            tx.mutate(QUERIES, {"name": "d", "small": 1, "size": 1}, name="thing")
        assert graph.snapshot().scan("node:Thing")["id"].to_pylist() == ["a", "d"]
        assert tx.commit is not None
        assert [(one.key, one.inserted) for one in tx.commit.counts or ()] == [("node:Thing", 2)]


def test_times_are_those_of_the_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row has the time of its own statement, although all rows are built later."""
    moments = iter([1_000_000_000_000, 2_000_000_000_000])
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        with graph.branch().transaction() as tx:
            monkeypatch.setattr("omnigraph.engine.mutate.time.time_ns", lambda: next(moments) * 1_000_000)
            tx.mutate(QUERIES, {"name": "a"}, name="event")
            tx.mutate(QUERIES, {"name": "b"}, name="event")
            monkeypatch.undo()
        rows = graph.query(
            "query all() { match { $e: Event } return { $e.made, $e.on } order { $e.made } }"
        ).to_pylist()
        assert [row["e.made"].timestamp() for row in rows] == [1e9, 2e9]
        assert [row["e.on"] for row in rows] == [date(2001, 9, 9), date(2033, 5, 18)]


def test_long_texts_are_built_early(tmp_path: Path) -> None:
    """So that collected values do not fill the memory."""
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        inserts = collected_inserts.CollectedInserts()
        accepted = graph.session.schemas.at(graph.snapshot())
        insert = plain_insert(accepted, compile_query(QUERIES, accepted.catalog, "pair"))
        assert insert is not None
        row = insert.row({"name": "a", "right": 1, "note": "x" * 600_000}, 0)
        assert row is not None
        full = []
        for _ in range(2):
            inserts.add(insert, row)
            full.append(inserts.is_full)
        (write,) = inserts.take(graph.snapshot())
        assert [*full, inserts.is_full] == [False, True, False]
        assert isinstance(write, Append)
        assert write.rows.num_rows == 1, "the last row of an id counts"
