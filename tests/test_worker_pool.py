"""Reads and writes go on in threads that outlive the main thread, and in functions of `atexit`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from omnigraph.worker_pool import WorkerPool

SOURCES = Path(__file__).parents[1] / "src" / "omnigraph"

_OUTLIVES = """
import atexit, sys, threading
import omnigraph

graph = omnigraph.init(sys.argv[1], "node P { name: String @key  n: I64 }  edge Knows: P -> P")
graph.load({"P": [{"name": str(number), "n": number} for number in range(1_000)]}, mode="append")

def act(when):
    graph.mutate("query q($n: String) { insert P { name: $n, n: 0 } }", {"n": when})
    graph.load([{"type": "P", "data": {"name": when + " loaded", "n": 0}}], mode="append")
    graph.optimize()
    assert graph.verify().violations == ()
    graph.cleanup(keep=2)
    print(when)

def last():
    threading.main_thread().join()
    act("thread")

atexit.register(act, "atexit")
threading.Thread(target=last).start()
"""


def test_calls_work_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _OUTLIVES, str(tmp_path / "graph")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("thread\natexit\n", "", 0)


_POOL = """
import threading
from omnigraph.worker_pool import WorkerPool

def fail():
    raise ValueError("wrong")

kept = WorkerPool(2)
kept.submit(fail).exception()  # its thread closes it when the main thread ends

def last():
    threading.main_thread().join()
    for pool in (kept, WorkerPool(2)):
        with pool:
            print(list(pool.map(str, range(3))), repr(pool.submit(fail).exception()))
    try:
        pool.submit(print)
    except RuntimeError as error:
        print(error)

threading.Thread(target=last).start()
"""


def test_a_pool_works_in_the_calling_thread_after_the_main_thread_has_ended() -> None:
    done = subprocess.run([sys.executable, "-c", _POOL], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.splitlines()[:2] == ["['0', '1', '2'] ValueError('wrong')"] * 2
    assert "shutdown" in done.stdout.splitlines()[2]
    assert done.stderr == ""


def test_a_closed_pool_takes_no_work() -> None:
    pool = WorkerPool(1)
    assert pool.submit(int, "7").result(PATIENCE) == 7
    pool.shutdown()
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(int)


_OWN = ("server", "client", "pipeline", "worker_pool.py")
"""Work that has no caller that waits for it, and the pool itself."""


def test_calls_use_pools_that_work_to_the_end() -> None:
    found = [
        str(path.relative_to(SOURCES))
        for path in sorted(SOURCES.rglob("*.py"))
        if "ThreadPoolExecutor" in path.read_text(encoding="utf-8") and path.relative_to(SOURCES).parts[0] not in _OWN
    ]
    assert found == ["storage/objects/durable.py"], "use WorkerPool"
