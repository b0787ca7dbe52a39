"""What a load costs on Spark: against one process, no checks at all, and the COPY of another graph database.

A sixth of the rows are nodes with a key, all others edges between them, as NDJSON and as Parquet. Each contender loads
them in a process of its own into a new graph, forced to disk where it knows how. Spark works on this machine; its
session is warm, and its start is told apart. "No checks" is pyarrow and bare Lance tables.

What was loaded is compared before any time is believed: the load on Spark and the one in process must leave the same
rows in the same order, in one commit each, and everybody as many. Memory is the most that a process had resident. The
driver is the Python process that asks for the load and Java, which on one machine also runs the tasks; the Python
processes of tasks are apart.

Flags: `--rows N,N` for the sizes (`6000000,60000000`; the larger takes 7 GB for its files and 4 GB for a graph),
`--formats ndjson,parquet`, `--only spark,local,bare,ladybug`, `--rounds N`, and `--keep FOLDER` to keep the files for
the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bulk.data import write_files
from harness import Benchmark, Comparison, Timing, figure
from omnigraph.settings import FSYNC

HERE = Path(__file__).resolve().parent
LADYBUG = HERE.parent / ".venv-bench" / "bin" / "python"
GIB = 1 << 30
FULL = [6_000_000, 60_000_000]
QUICK = [6_000]
LARGE = 20_000_000
"""From here on one round is enough: a sample takes minutes."""

SPARK, LOCAL, BARE, COPY = "spark", "local", "bare", "ladybug"
NAMES = {SPARK: "Spark", LOCAL: "in process", BARE: "no checks", COPY: "ladybug COPY"}
SCRIPTS = {SPARK: "on_spark.py", LOCAL: "in_process.py", BARE: "bare.py", COPY: "ladybug_copy.py"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to load, and the files that it loads."""

    way: str
    files: str

    @property
    def name(self) -> str:
        return f"{NAMES[self.way]} from {self.files}"


@dataclass(slots=True)
class Size:
    """What was measured with so many rows."""

    rows: int
    runs: dict[Contender, list[dict[str, Any]]] = field(default_factory=dict)

    def timing(self, way: str, files: str) -> Timing:
        contender = Contender(way, files)
        return Timing(contender.name, tuple(run["seconds"] for run in self.runs[contender]))

    def has(self, way: str, files: str) -> bool:
        return Contender(way, files) in self.runs

    def peak(self, contender: Contender, *names: str) -> float:
        """The most memory, in GiB."""
        together = [float(sum(run.get(name, 0) for name in names)) for run in self.runs[contender]]
        return max(together) / GIB


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    return text.split(",")


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=numbers, help="the sizes")
    parser.add_argument("--formats", type=names, default=["ndjson", "parquet"], help="the files")
    parser.add_argument("--only", type=names, help="some of the contenders")
    parser.add_argument("--rounds", type=int, help="how often each of them loads")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the files are made, and looked for")


def main(argv: list[str] | None = None) -> None:
    bench = Benchmark("load", argv, flags)
    scratch = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        contenders = chosen(bench)
        sizes = []
        for rows in bench.options.rows or (QUICK if bench.quick else FULL):
            files = made_files(bench.options.keep or scratch, rows)
            sizes.append(measured(bench, Size(rows), contenders, files, scratch / "graph"))
            if not bench.options.keep:
                shutil.rmtree(files)
            report(bench, sizes[-1])
    finally:
        shutil.rmtree(scratch)
    goals(bench, sizes)
    bench.finish()


def chosen(bench: Benchmark) -> list[Contender]:
    ways = [way for way in NAMES if bench.options.only is None or way in bench.options.only]
    if COPY in ways and not has_ladybug():
        ways.remove(COPY)
    # The JSON reader of ladybug is an extension that has to be fetched.
    return [Contender(way, kind) for kind in bench.options.formats for way in ways if way != COPY or kind == "parquet"]


def has_ladybug() -> bool:
    try:
        subprocess.run([str(LADYBUG), "-c", "import ladybug"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print("\nladybug is not installed (make bench does it, where there is a network): not compared with its COPY")
        return False
    return True


def made_files(folder: Path, rows: int) -> Path:
    """The files of a size, made now unless they were kept."""
    place = folder / f"{rows}"
    if not place.exists():
        part = folder / f"{rows}.part"
        shutil.rmtree(part, ignore_errors=True)
        write_files(part, *nodes_and_edges(rows))
        part.rename(place)
    return place


def nodes_and_edges(rows: int) -> tuple[int, int]:
    return rows // 6, rows - rows // 6


def measured(bench: Benchmark, size: Size, contenders: list[Contender], files: Path, place: Path) -> Size:
    """Each contender once a round, in turns."""
    rounds = bench.options.rounds or (1 if bench.quick or size.rows >= LARGE else 3)
    for round_ in range(rounds):
        first = round_ % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            found = run(contender, files, place)
            agree(size, contender, found)
            size.runs.setdefault(contender, []).append(found)
    return size


def run(contender: Contender, files: Path, place: Path) -> dict[str, Any]:
    python = LADYBUG if contender.way == COPY else Path(sys.executable)
    script = HERE / "bulk" / SCRIPTS[contender.way]
    command = [str(python), str(script), str(files / contender.files), str(place)]
    try:
        done = subprocess.run(
            command, env={**os.environ, FSYNC.name: "1"}, stdout=subprocess.PIPE, text=True, check=True
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def agree(size: Size, contender: Contender, found: dict[str, Any]) -> None:
    """See that a load has left what it should, and what those before it have left.

    Raises:
        AssertionError: it has not.
    """
    nodes, edges = nodes_and_edges(size.rows)
    if "rows" in found and found["rows"] != {"node:Person": nodes, "edge:Knows": edges}:
        raise AssertionError(f"{contender.name}: {found['rows']} rows")
    if found.get("commits", 1) != 1:
        raise AssertionError(f"{contender.name}: {found['commits']} commits")
    if "digest" in found:
        for other, runs in size.runs.items():
            for run_ in runs:
                if other.files == contender.files and run_.get("digest", found["digest"]) != found["digest"]:
                    raise AssertionError(f"{contender.name}: not the rows of {other.name}")


# ---- what is said


def report(bench: Benchmark, size: Size) -> None:
    print(f"\n{size.rows:,} rows in one load")
    for contender, runs in size.runs.items():
        timing = size.timing(contender.way, contender.files)
        print(
            f"  {contender.name:<26}{figure(timing.median):>8} s  ±{timing.spread / 2:4.0%}"
            f"{size.rows / timing.median:>13,.0f} rows/s  memory {memory(size, contender)}"
        )
        print(f"    of the processor {figure(statistics.median(run['cpu'] for run in runs))} s")
        if "phases" in runs[0]:
            each = {name: statistics.median(run["phases"].get(name, 0) for run in runs) for name in runs[0]["phases"]}
            print(f"    {', '.join(f'{name} {figure(seconds)} s' for name, seconds in each.items())}")
        if "start" in runs[0]:
            jobs = ", ".join(f"{what}: {tasks} tasks in {stages}" for what, (stages, tasks) in runs[0]["jobs"].items())
            start = statistics.median(run["start"] for run in runs)
            print(f"    start of the session {figure(start)} s, apart; stages: {jobs}")
    for kind in bench.options.formats:
        others = [way for way in (LOCAL, BARE, COPY) if size.has(way, kind)]
        if size.has(SPARK, kind):
            peers = {NAMES[way]: size.timing(way, kind) for way in others}
            name = f"a load of {size.rows:,} rows from {kind}"
            bench.add(Comparison(name, size.timing(SPARK, kind), peers))


def memory(size: Size, contender: Contender) -> str:
    own = figure(size.peak(contender, "peak"))
    if contender.way != SPARK:
        return f"{own} GiB"
    together, java, workers = (size.peak(contender, *of) for of in (("peak", "java"), ("java",), ("workers",)))
    return f"of the driver {figure(together)} GiB (Python {own}, Java {figure(java)}), tasks {figure(workers)} GiB"


def goals(bench: Benchmark, sizes: list[Size]) -> None:
    for size in sizes:
        for contender in size.runs:
            if contender.way == SPARK:
                name = f"memory of the driver, {size.rows:,} rows from {contender.files}"
                bench.goal(name, size.peak(contender, "peak", "java"), limit=3, unit="GiB")
    least, largest = sizes[0], sizes[-1]
    if least.rows >= FULL[0] and both(least, LOCAL, "ndjson"):
        bench.goal(f"Spark against one process, {least.rows:,} rows", ratio(least, LOCAL, "ndjson"), 2.5, "×")
    if largest.rows < FULL[-1]:
        return
    if both(largest, LOCAL, "ndjson"):
        bench.goal(f"Spark against one process, {largest.rows:,} rows", ratio(largest, LOCAL, "ndjson"), 1, "×")
    if both(largest, COPY, "parquet"):
        bench.goal(f"Spark against ladybug's COPY, {largest.rows:,} rows", ratio(largest, COPY, "parquet"), 1, "×")
    for kind in bench.options.formats:
        if largest.rows > least.rows and least.has(SPARK, kind) and largest.has(SPARK, kind):
            each = [size.timing(SPARK, kind).median / size.rows for size in (least, largest)]
            name = f"Spark from {kind}, {least.rows:,} to {largest.rows:,} rows, for each row"
            bench.goal(name, each[1] / each[0], limit=1.2, unit="×")


def both(size: Size, way: str, kind: str) -> bool:
    return size.has(SPARK, kind) and size.has(way, kind)


def ratio(size: Size, way: str, kind: str) -> float:
    return size.timing(SPARK, kind).median / size.timing(way, kind).median


if __name__ == "__main__":
    main()
