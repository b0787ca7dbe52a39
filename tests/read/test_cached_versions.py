"""The cache keeps a few versions of each column, topology and index, so it does not grow with the commits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.context.views import KEPT, Views

SCHEMA = """
node Person { name: String @key  age: I64  text: String @index(text, kind="fts") }
edge Knows: Person -> Person
"""
ADD = 'query add($name: String) { insert Person { name: $name, age: 1, text: "later" } }'
LINK = 'query link($name: String) { insert Knows { from: $name, to: "p0" } }'
READS = (
    "query q() { match { $p: Person  $p.age > 0 } return { $p.name as name } order { name } }",
    "query q() { match { $p: Person  $p knows $q } return { $q.name as name, count(*) as n } }",
    'query q() { match { $p: Person  search($p.text, "later") } return { count(*) as n } }',
)


@dataclass(frozen=True)
class Value:
    nbytes: int = 10


def test_the_least_recently_used_versions_are_dropped() -> None:
    cache = ColumnCache(10_000)
    cache.keep("first", Value(), "column")
    for version in range(40):
        cache.keep(version, Value(), "column")
        assert cache.find("first") is not None, "it is used after each commit"
    assert [version for version in range(40) if cache.holds(version)] == list(range(40 - KEPT + 1, 40))
    assert cache.size == KEPT * 10


def test_families_do_not_affect_each_other() -> None:
    cache = ColumnCache(10_000)
    cache.keep("another", Value(), "another column")
    for version in range(40):
        cache.keep(version, Value(), "column")
        cache.keep(("single", version), Value())
    assert cache.holds("another")
    assert all(cache.holds(("single", version)) for version in range(40)), "these are no versions of one value"
    assert cache.size == (KEPT + 1 + 40) * 10


def test_versions_that_are_dropped_for_their_size_are_forgotten() -> None:
    cache = ColumnCache(50)
    for version in range(100):
        cache.keep(version, Value(), ("family", version % 7))
        cache.keep(version, Value(20), ("family", version % 3))
    assert cache.size <= 50
    assert sum(map(len, cache._versions.values())) == sum(cache.holds(version) for version in range(100))


def test_the_cache_of_a_graph_does_not_grow_with_its_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    cache = ColumnCache()
    sizes = []
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        monkeypatch.setattr(graph.session, "views", Views(cache))
        for number in range(3 * KEPT):
            graph.mutate(ADD, {"name": f"p{number}"})
            graph.mutate(LINK, {"name": f"p{number}"})
            for read in READS:
                assert len(graph.query(read)) > 0
            sizes.append(len(cache._held))
    assert sizes[-1] == sizes[-KEPT]
    assert sizes[2] > sizes[1] > sizes[0], "each commit made new versions first"
