"""How long small calls take: the first answer of a new process, and one more question of a running one.

A new process imports the package, opens a graph and asks one question. The peer only imports the libraries that no
process can do without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import omnigraph
from harness import Benchmark

PERSONS = 100_000

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Follows: Person -> Person { @key(src, dst) }\n"
LOOKUP = "query lookup($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"
HOP = "query hop($name: String) { match { $p: Person { name: $name }  $p follows $q } return { $q.age as age } }"

FIRST = """
import sys, omnigraph
with omnigraph.open(sys.argv[1]) as graph:
    graph.query(sys.argv[2], {"name": "p7"}).to_pylist()
"""
LIBRARIES = """
import omnigraph.storage  # so that pyarrow does not import pandas where it is installed
import pyarrow, lance, numpy
"""


def main() -> None:
    bench = Benchmark("calls")
    with tempfile.TemporaryDirectory() as scratch:
        address = Path(scratch) / "graph"
        with filled(address) as graph:
            processes = bench.compare(
                "new process: import, open, first answer",
                ours=process(scratch, FIRST, str(address), LOOKUP),
                peers={"import pyarrow, lance, numpy": process(scratch, LIBRARIES)},
                rounds=7,
            )
            params = {"name": "p7"}
            lookup, hop = graph.prepare(LOOKUP), graph.prepare(HOP)
            assert lookup(params).to_pylist() == graph.query(LOOKUP, params).to_pylist() == [{"age": 7}]
            assert len(hop(params)) == len(graph.query(HOP, params)) == 3
            point = bench.compare(
                "lookup by key, prepared",
                ours=lambda: lookup(params),
                peers={"not prepared": lambda: graph.query(LOOKUP, params)},
            )
            bench.compare(
                "one hop, prepared",
                ours=lambda: hop(params),
                peers={"not prepared": lambda: graph.query(HOP, params)},
            )
    bench.goal("new process", processes.ours.median, limit=0.35, unit="s")
    bench.goal("lookup by key, prepared", point.ours.median * 1e3, limit=0.15, unit="ms")
    bench.finish()


def filled(address: Path) -> omnigraph.Graph:
    graph = omnigraph.init(address, SCHEMA)
    names = [f"p{i}" for i in range(PERSONS)]
    people = pa.table({"name": names, "age": pa.array([i % 90 for i in range(PERSONS)], pa.int32())})
    sources = [name for name in names for _ in range(3)]
    targets = [names[(i * 7 + step) % PERSONS] for i in range(PERSONS) for step in (1, 2, 3)]
    graph.load({"Person": people, "Follows": pa.table({"from": sources, "to": targets})}, mode="append")
    return graph


def process(scratch: str, program: str, *arguments: str) -> Callable[[], None]:
    """A function that runs a program in a new process, with bytecode that earlier runs have cached."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = f"{scratch}/bytecode"
    environment["PYTHONPATH"] = str(Path(omnigraph.__file__).parents[1])
    command = [sys.executable, "-c", program, *arguments]

    def run() -> None:
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)

    run()
    return run


if __name__ == "__main__":
    main()
