"""A match that runs in parts, in several threads, has the same result and the same limits."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from tests.patience import until
from tests.read.storage_requests import follows
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import BudgetExceededError, CancelledError, InputError
from omnigraph.graph import Graph
from omnigraph.read.budget import Budget, Cancellation
from omnigraph.read.budget.budget import Spending, query_threads
from omnigraph.read.match import parts

SCHEMA = """
node Person { name: String @key age: I64 }
edge Follows: Person -> Person
"""
COUNT = 3_000
TRIANGLES = "match { $a follows $b  $b follows $c  $a follows $c } "
PATHS = "match { $a follows $b  $b follows $c  $c.age > $a.age } "


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    random = np.random.default_rng(3)
    names = [f"p{i}" for i in range(COUNT)]
    ends = random.integers(0, COUNT, (60_000, 2))
    with omnigraph.init(tmp_path_factory.mktemp("parts") / "graph", SCHEMA) as made:
        made.load(
            {
                "Person": pa.table({"name": names, "age": random.integers(0, 90, COUNT)}),
                "Follows": follows([(names[a], names[b]) for a, b in ends.tolist()]),
            },
            mode="append",
        )
        yield made


def in_threads(thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch, threads: int, rows: int = 5_000) -> None:
    monkeypatch.setenv("OMNIGRAPH_THREADS", str(threads))
    thresholds(parts, PART_ROWS=rows, MIN_PARALLEL_ROWS=0, MIN_PARALLEL_BYTES=0)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    "text",
    [
        f"{TRIANGLES} return {{ count(*) as n }}",
        f"{TRIANGLES} return {{ $a.name as a, $c.name as c }} limit 50",
        f"{PATHS} return {{ $a.age as age, count(*) as n, sum($c.age) as s }} order {{ age }}",
        f"{PATHS} return distinct {{ $c.age as age }}",
        "match { $a follows $b  optional { $b follows $c  $c.age < 2 } } return { $a.name, $c.name } limit 99",
    ],
)
def test_the_result_does_not_depend_on_threads(
    graph: Graph, thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch, text: str, threads: int
) -> None:
    expected = graph.query(f"query q() {{ {text} }}")
    in_threads(thresholds, monkeypatch, threads)
    found = graph.query(f"query q() {{ {text} }}")
    assert found.to_arrow().equals(expected.to_arrow())


def test_several_threads_run_parts(graph: Graph, thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch) -> None:
    in_threads(thresholds, monkeypatch, 3)
    seen: set[str] = set()
    spend = Spending.spend

    def recording(self: Spending, rows: int = 0, columns: int = 0) -> None:
        seen.add(threading.current_thread().name)
        spend(self, rows, columns)

    monkeypatch.setattr(Spending, "spend", recording)
    graph.query(f"query q() {{ {TRIANGLES} return {{ count(*) as n }} }}")
    assert sum(name.startswith("omnigraph-read") for name in seen) > 1


def test_rows_of_all_threads_count(graph: Graph, thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"query q() {{ {PATHS} return {{ $a.name as a, sum($c.age) as s }} }}"
    spent = []
    for threads in (1, 4):
        in_threads(thresholds, monkeypatch, threads)
        with pytest.raises(BudgetExceededError) as caught:
            graph.query(text, budget=Budget(rows=900_000))
        spent.append(caught.value.resource)
    assert spent == ["rows", "rows"]


class Patient(Cancellation):
    """Counts the checks for cancellation in the threads of parts, and cancels after a number of them."""

    def __init__(self, patience: int) -> None:
        super().__init__()
        self.asked = 0
        self.patience = patience

    @property
    def cancelled(self) -> bool:
        self.asked += threading.current_thread().name.startswith("omnigraph-read")
        return self.asked > self.patience


def test_a_cancelled_query_stops_all_threads(
    graph: Graph, thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads(thresholds, monkeypatch, 4)
    match = "match { $a follows $b  $b follows $c  $c follows $d  $d.age > $a.age }"
    text = f"query q() {{ {match} return {{ sum($d.age) as n }} }}"
    for patience in (0, 5, 50):
        with pytest.raises(CancelledError):
            graph.query(text, cancel=Patient(patience))
    left = [t for t in threading.enumerate() if t.name.startswith("omnigraph-read")]
    until(lambda: not any(t.is_alive() for t in left))


def test_memory_of_all_parts_is_released() -> None:
    budget = Spending(Budget(memory=1 << 20))
    budget.keep(1000)
    budget.release(1000)
    budget.hold(500)
    assert budget.held == 500
    budget.forget_thread()
    assert (budget.held, budget.kept) == (0, 0)


PAGE_FAULTS = """
import sys
if sys.argv[1] == "keep":
    from omnigraph.read.budget.allocator import keep_freed_memory
    keep_freed_memory()
import resource
import numpy as np
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [np.ones(3 << 17) for _ in range(4)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are not affected")
def test_freed_arrays_are_used_again() -> None:
    def faults(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", PAGE_FAULTS, how], check=True, capture_output=True, text=True)
        return int(done.stdout)

    assert faults("keep") * 20 < faults("return")


def test_the_number_of_threads_comes_from_the_environment() -> None:
    assert query_threads({"OMNIGRAPH_THREADS": "7"}) == 7
    assert query_threads({}) >= 1
    for text in ("0", "-1", "two", ""):
        with pytest.raises(InputError, match="OMNIGRAPH_THREADS"):
            query_threads({"OMNIGRAPH_THREADS": text})


@pytest.mark.parametrize("threads", ["0", "abc", "-3"])
def test_an_invalid_number_of_threads_is_an_error_of_small_reads(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_THREADS", threads)
    with pytest.raises(InputError, match="OMNIGRAPH_THREADS"):
        graph.query('query q() { match { $p: Person { name: "p1" } } return { $p.age } }')


def test_parts_have_about_the_same_work() -> None:
    work = np.array([1, 1, 10_000_000, 1, 1])
    assert parts.part_bounds(work, 4, Spending(Budget())) == [0, 2, 5]
    assert parts.part_bounds(np.ones(10, np.int64), 4, Spending(Budget())) is None
