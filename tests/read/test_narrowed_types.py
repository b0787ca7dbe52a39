"""A clause after an optional block may narrow the types of a variable, so that the block has no match for it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.read.storage_requests import follows

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.match import close
from omnigraph.read.plan import plan_candidates, planner
from omnigraph.testing import thresholds

SCHEMA = """
interface Place { size: I64? }
node City implements Place { name: String @key }
node Lake implements Place { name: String @key }
node Fish { name: String @key }
edge Near: City -> City
edge Holds: Lake -> Fish
edge Eats: Fish -> Fish
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Three cities and two lakes, so that the third city has a number that no lake has."""
    with omnigraph.init(tmp_path_factory.mktemp("narrowed") / "graph", SCHEMA) as made:
        sizes = pa.nulls(3, pa.int64())
        made.load(
            {
                "City": pa.table({"name": ["c0", "c1", "c2"], "size": sizes}),
                "Lake": pa.table({"name": ["l0", "l1"], "size": sizes[:2]}),
                "Fish": pa.table({"name": ["f0", "f1"]}),
                "Near": follows([("c0", "c1"), ("c1", "c2"), ("c2", "c0")]),
                "Holds": follows([("l0", "f0"), ("l0", "f0"), ("l1", "f1")]),
                "Eats": follows([("f0", "f1"), ("f1", "f0"), ("f0", "f0")]),
            },
            mode="append",
        )
        yield made


BLOCKS = (
    "$a holds $f",
    "$f: Fish  $a holds $f",
    "$a holds $f  $f eats $g",
    "$a holds $f  $f eats $g  $a holds $g",
    "$a holds $f  optional { $f eats $g }",
    "$a $e: holds $f",
    "$a holds{1,2} $f",
)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("forced", [False, True])
def test_a_block_has_no_match_for_other_types(graph: Graph, block: str, forced: bool) -> None:
    match = f"match {{ $a: Place  optional {{ {block} }}  $a near $b }}"
    gain = 0.0 if forced else 1.0
    with (
        thresholds(planner, MIN_FOLD_COST_EDGES=-1.0 if forced else 1e9, MIN_FOLD_GAIN=gain),
        thresholds(plan_candidates, MIN_EXCLUDE_GAIN=gain),
        thresholds(close, MIN_SHORTER_GAIN=gain),
    ):
        listed = graph.query(f"query q() {{ {match} return {{ $a.id as a, $f.id as f }} order {{ a }} }}")
        counted = graph.query(f"query q() {{ {match} return {{ count(*) as n, count($f) as f, max($f.id) as m }} }}")
    assert listed.to_pylist() == [{"a": name, "f": None} for name in ("c0", "c1", "c2")]
    assert counted.to_pylist() == [{"n": 3, "f": 0, "m": None}]
