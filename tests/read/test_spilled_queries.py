"""Reads beyond the memory budget: the same rows, through unnamed temporary files, within the limits."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.read.test_sorting import Counting

import omnigraph
from omnigraph import Budget
from omnigraph.errors import BudgetExceededError, CancelledError, StorageError
from omnigraph.graph import Graph
from omnigraph.read.rows import spilled_rows
from omnigraph.read.rows.frame import Frame
from omnigraph.settings import FSYNC

SCHEMA = """
node Person { name: String @key  age: I32?  score: F64  city: String? }
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE = 150
EACH = 10
"""Friends of each person: the rows of two hops need several times the memory budget."""

SMALL = Budget(memory=128 * 1024)
LARGE = Budget(memory=None)
TWO_HOPS = "$a: Person  $b: Person  $c: Person  $a knows $b  $b knows $c"
READS = {
    "list": f"match {{ {TWO_HOPS} }} return {{ $a.name as a, $b.name as b, $c.name as c }}",
    "sort": f"match {{ {TWO_HOPS} }} return {{ $c.city as x, $a.score as s, $b.name as b }} order {{ x desc, s }}",
    "page": f"match {{ {TWO_HOPS} }} return {{ $c.name as x, $a.name as a }} order {{ x }} limit 4000 offset 900",
    "top": f"match {{ {TWO_HOPS} }} return {{ $c.name as x, $a.name as a }} order {{ $c.age desc }} limit 7 offset 3",
    "edges": "match { $a: Person  $a $e: knows $b  $b $f: knows $c } return { $e.id as e, $f.since as f }",
    "path": "match { $a: Person  $b: Person  shortest $p: $a knows{1,2} $b } return { nodes($p) as p, $b.name as b }",
    "optional": f"match {{ {TWO_HOPS}  optional {{ $c knows $a }} }} return {{ $a.name as a, $c.name as c }}",
    "group": f"match {{ {TWO_HOPS} }} return {{ $a.name as a, $c.name as c, sum($b.age) as n, avg($b.score) as m }}",
    "group, ordered": f"""match {{ {TWO_HOPS} }}
        return {{ $a.name as a, $c.city as c, collect($b.age) as n, max($b.name) as m }} order {{ m desc }} limit 9""",
    "having": f"""match {{ {TWO_HOPS} }} return {{ $a.name as a, $c.name as c, sum($b.age) as n }}
        having {{ sum($b.age) > 60 }} limit 11 offset 5""",
    "count": f"match {{ {TWO_HOPS}  $a.score < $c.score }} return {{ count(*) as n, count(distinct $b.city) as m }}",
    "count by group": f"""match {{ {TWO_HOPS}  $a.score < $c.score }}
        return {{ $b.city as b, count(*) as n }} order {{ n desc }}""",
    "distinct": f"match {{ {TWO_HOPS} }} return distinct {{ $a.name as a, $c.city as c }}",
    "distinct, limited": f"match {{ {TWO_HOPS} }} return distinct {{ $a.name as a, $c.city as c }} limit 10 offset 4",
    "no rows": f"match {{ {TWO_HOPS}  $a.score > $c.score + 2.0 }} return {{ $a.name as a }}",
}


def fill(graph: Graph, people: int = PEOPLE, each: int = EACH) -> None:
    rng = np.random.default_rng(7)
    names = pa.array([f"p{number:06}" for number in rng.permutation(people)])
    cities = pa.array([None, *(f"city {number}" for number in range(40))])
    graph.load(
        pa.table(
            {
                "name": names,
                "age": pa.array(rng.integers(0, 90, people), pa.int32(), mask=rng.random(people) < 0.1),
                "score": rng.random(people).round(2),
                "city": cities.take(pa.array(rng.integers(0, 41, people))),
            }
        ),
        mode="append",
        type_name="Person",
    )
    ends = [names.take(pa.array(rng.integers(0, people, people * each))) for _ in range(2)]
    since = pa.array(rng.integers(1990, 2020, people * each), pa.int32())
    graph.load(pa.table({"from": ends[0], "to": ends[1], "since": since}), mode="append", type_name="Knows")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FSYNC.name, "0")
        with omnigraph.init(tmp_path_factory.mktemp("spilled") / "graph", SCHEMA) as made:
            fill(made)
            yield made


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory, which must be empty afterwards."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


def ask(graph: Graph, name: str, budget: Budget, **others: Any) -> pa.Table:
    return graph.query(f"query q() {{ {READS[name]} }}", budget=budget, **others).to_arrow()


@pytest.mark.parametrize("name", READS)
def test_a_spilled_query_gives_the_same_rows(graph: Graph, scratch: Path, name: str) -> None:
    expected = ask(graph, name, LARGE)
    found = ask(graph, name, SMALL)
    assert found.schema == expected.schema
    assert found.to_pylist() == expected.to_pylist()


def test_a_result_beyond_the_budget_is_in_a_file(graph: Graph, scratch: Path) -> None:
    """The file has no name, and it is larger than the memory budget."""
    before = pa.total_allocated_bytes()
    found = ask(graph, "list", SMALL)
    assert found.nbytes > 2 * (SMALL.memory or 0)
    assert pa.total_allocated_bytes() - before < found.nbytes // 4
    assert found.num_rows == len({tuple(row.values()) for row in found.to_pylist()})


@pytest.mark.slow
def test_spilled_rows_are_read_back_once(graph: Graph, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_back: list[int] = []
    rows = spilled_rows._rows

    def counted(batch: pa.RecordBatch, like: Frame) -> spilled_rows.Weighted:
        read_back.append(batch.num_rows)
        return rows(batch, like)

    monkeypatch.setattr(spilled_rows, "_rows", counted)
    ask(graph, "sort", SMALL)
    assert len(read_back) > 3


def test_disk_space_is_limited_by_the_budget(graph: Graph, scratch: Path) -> None:
    with pytest.raises(BudgetExceededError, match="on disk") as caught:
        ask(graph, "distinct", Budget(memory=SMALL.memory, disk=20_000))
    assert caught.value.resource == "bytes on disk"


def test_a_result_beyond_the_disk_budget_is_refused_before_it_is_built(graph: Graph, scratch: Path) -> None:
    with pytest.raises(BudgetExceededError, match="of memory"):
        ask(graph, "list", Budget(memory=SMALL.memory, disk=1000))


def test_a_full_disk_is_reported(graph: Graph, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StorageError, match="No space left") as caught:
        ask(graph, "list", SMALL)
    assert "TMPDIR" in str(caught.value.hint)


def test_result_rows_are_counted_before_they_are_built(graph: Graph, scratch: Path) -> None:
    with pytest.raises(BudgetExceededError, match="rows of result"):
        ask(graph, "list", Budget(memory=SMALL.memory, returned=100))
    with pytest.raises(BudgetExceededError, match="rows of result"):
        ask(graph, "distinct", Budget(memory=SMALL.memory, returned=100))


def test_a_single_group_beyond_the_budget_is_refused(graph: Graph) -> None:
    """All rows are in one group, and the aggregate needs every value."""
    text = f"query q() {{ match {{ {TWO_HOPS} }} return {{ collect($c.name) as n }} }}"
    with pytest.raises(BudgetExceededError, match="of memory"):
        graph.query(text, budget=SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sort", "group", "distinct"])
def test_a_spilled_query_can_be_cancelled_at_any_time(graph: Graph, scratch: Path, name: str) -> None:
    counted = Counting(10**9)
    ask(graph, name, SMALL, cancel=counted)
    for part in (4, 2, 1):
        with pytest.raises(CancelledError):
            ask(graph, name, SMALL, cancel=Counting(counted.asked - counted.asked // (2 * part)))


@pytest.mark.slow
def test_explain_analyze_shows_that_a_query_ran_in_blocks(graph: Graph) -> None:
    found = graph.explain(f"query q() {{ {READS['sort']} }}", analyze=True, budget=SMALL)
    assert [step.action for step in found.steps] == ["blocks"]
    assert found.steps[0].rows == ask(graph, "sort", LARGE).num_rows


CHILD = """
import sys, threading, omnigraph
from omnigraph import Budget

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024

peak, over = [0], threading.Event()
def watch():
    while not over.wait(0.002):
        peak[0] = max(peak[0], resident())

with omnigraph.open(sys.argv[1]) as graph:
    warm = "match { $a: Person  $a knows $b } return { min($a.name) as a, min($a.city) as c, count($b) as n }"
    graph.query("query q() { " + warm + " }")
    graph.query(sys.argv[2] + " limit 1 }", budget=Budget(memory=int(sys.argv[3])))
    watcher = threading.Thread(target=watch)
    before = resident()
    watcher.start()
    found = graph.query(sys.argv[2] + " }", budget=Budget(seconds=None, memory=int(sys.argv[3])))
    over.set()
    watcher.join()
    print(found.row_count, found.to_arrow().nbytes, peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_spilled_query_stays_within_its_memory_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FSYNC.name, "0")
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        fill(graph, 4_000, 20)
    text = "query q() { match { $a: Person  $b: Person  $c: Person  $a knows $b  $b knows $c } "
    text += "return { $a.name as a, $b.name as b, $c.name as c, $c.city as city } order { city, $b.score }"
    memory = 16 << 20
    run = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "graph"), text, str(memory)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows, size, growth = map(int, run.stdout.split())
    assert rows > 1_500_000
    assert size > 3 * memory
    assert growth < 2 * memory, f"{growth:,} bytes more, of {memory:,}"
