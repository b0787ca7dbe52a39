"""What writing costs: single rows against bare Lance commits, transactions, threads, and loads in bulk.

A single row goes through `graph.mutate`: compile, look up, check, commit; see `writing.single`. A bulk load is timed in
a process of its own, for its peak memory; the peers are the same files through pyarrow into bare Lance tables, and
through the COPY of ladybug, another embedded graph database. Bulk loads leave out fsync but where it is said. All other
parts use it.

Flags: `--nodes N --edges N` for the size of the bulk load, `--rows N,N` for that of the tables that single rows go to,
`--commits N,N` for the history, and `--only single|transactions|threads|bulk`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bulk.data import write_files
from harness import Benchmark, Comparison, Timing, figure
from omnigraph.settings import FSYNC
from writing.single import single
from writing.threads import threads
from writing.transactions import transactions

HERE = Path(__file__).resolve().parent
LADYBUG = HERE.parent / ".venv-bench" / "bin" / "python"
GIB = 1 << 30
FULL_NODES = 1_000_000
"""The size that the goals for time are set for: in a small load, what is there once for each load counts for most."""

PARTS = ("single", "transactions", "threads", "bulk")


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, help="nodes of the bulk load")
    parser.add_argument("--edges", type=int, help="edges of the bulk load")
    parser.add_argument("--rows", type=sizes, help="rows of the tables that single rows go to")
    parser.add_argument("--commits", type=sizes, help="commits before a single row is written")
    parser.add_argument("--only", choices=PARTS, help="one part of the benchmark")


def sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",")]


def main(argv: list[str] | None = None) -> None:
    bench = Benchmark("write", argv, flags)
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        for part in PARTS:
            if bench.options.only in (None, part):
                os.environ[FSYNC.name] = "0" if part == "bulk" else "1"
                RUN[part](bench, root / part)
    finally:
        shutil.rmtree(root)
    bench.finish()


# ---- bulk


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to load: which Python runs which script, on which files, with fsync or without."""

    name: str
    script: str
    files: str
    python: Path = Path(sys.executable)
    fsync: bool = False


OURS = {kind: Contender(f"ours from {kind}", "ours.py", kind) for kind in ("parquet", "ndjson")}
BARE = {kind: Contender(f"no checks from {kind}", "bare.py", kind) for kind in ("parquet", "ndjson")}
DURABLE = Contender("ours from parquet, forced to disk", "ours.py", "parquet", fsync=True)
COPY = Contender("ladybug COPY from parquet", "ladybug_copy.py", "parquet", LADYBUG)


def bulk(bench: Benchmark, root: Path) -> None:
    nodes = bench.options.nodes or (20_000 if bench.quick else FULL_NODES)
    edges = bench.options.edges or (100_000 if bench.quick else 5_000_000)
    files = root / "files"
    write_files(files, nodes, edges)
    peers = [COPY] if has_ladybug() else []
    contenders = [*OURS.values(), *BARE.values(), DURABLE, *peers]
    timings, peaks = race(contenders, files, root / "places", rounds=1 if bench.quick else 3)
    print(f"\n{nodes:,} nodes and {edges:,} edges in one load")
    for contender in contenders:
        timing = timings[contender.name]
        rate = (nodes + edges) / timing.median
        print(
            f"  {contender.name:<36}{figure(timing.median):>8} s  ±{timing.spread / 2:4.0%}"
            f"{rate:>14,.0f} rows/s{figure(peaks[contender.name] / GIB):>8} GiB at most"
        )
    full = nodes >= FULL_NODES
    for kind, limit in (("parquet", 3), ("ndjson", 4)):
        ours, bare = timings[OURS[kind].name], timings[BARE[kind].name]
        bench.add(Comparison(f"a load of {nodes + edges:,} rows from {kind}", ours, {bare.name: bare}))
        if full:
            bench.goal(f"load from {kind}, against no checks", ours.median / bare.median, limit=limit, unit="×")
        bench.goal(f"peak memory of a load from {kind}", peaks[ours.name] / GIB, limit=2, unit="GiB")
    for peer in peers:
        ours, theirs = timings[DURABLE.name], timings[peer.name]
        bench.add(Comparison("a load from parquet, forced to disk", ours, {theirs.name: theirs}))
        if full:
            bench.goal("load from parquet, against ladybug's COPY", ours.median / theirs.median, limit=1, unit="×")


def has_ladybug() -> bool:
    try:
        subprocess.run([str(LADYBUG), "-c", "import ladybug"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print("\nladybug is not installed (make bench does it, where there is a network): not compared with its COPY")
        return False
    return True


def race(
    contenders: list[Contender], files: Path, places: Path, rounds: int
) -> tuple[dict[str, Timing], dict[str, int]]:
    """Each contender once a round, in turns. The timings, and the most memory that each came to take."""
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    peaks = dict.fromkeys(samples, 0)
    for round_ in range(rounds):
        first = round_ % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            figures = run(contender, files, places / f"{round_}")
            samples[contender.name].append(figures["seconds"])
            peaks[contender.name] = max(peaks[contender.name], int(figures["peak"]))
    return {name: Timing(name, tuple(taken)) for name, taken in samples.items()}, peaks


def run(contender: Contender, files: Path, place: Path) -> dict[str, float]:
    command = [str(contender.python), str(HERE / "bulk" / contender.script), str(files / contender.files), str(place)]
    environment = {**os.environ, FSYNC.name: "1" if contender.fsync else "0"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    shutil.rmtree(place)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


RUN = {"single": single, "transactions": transactions, "threads": threads, "bulk": bulk}

if __name__ == "__main__":
    main()
