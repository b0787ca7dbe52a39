"""What grows with a graph and what does not: one million edges, ten, fifty; everybody follows ten others on average.

Each figure is taken in a process of its own. A topology is made from nothing; a new process opens a graph whose
topology is on disk, and one that has indexes only, and gives its first answer; a warm one answers questions whose
answers are as large in every graph. The peer is numpy alone, which gets the ends of edges as numbers and has nothing
to look up, open or check. All answers are compared with its own.

Memory is the most that the process had resident, and pages of mapped files that it touched are part of that.

Flags: `--edges N,N` for the sizes, `--keep FOLDER` to keep the graphs for the next time. The largest takes 6 GB.
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
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import Benchmark, Comparison, Timing, figure
from omnigraph.graph.graph import FSYNC_VARIABLE
from omnigraph.read.derived import DIRECTORY_VARIABLE

HERE = Path(__file__).resolve().parent
GIB = 1 << 30
FULL = [1_000_000, 10_000_000, 50_000_000]
QUICK = [20_000, 60_000]
FIRST, LAST = "1 hop, names", "3 hops, reach"
READY, INDEXED = "topology on disk", "indexes only"


@dataclass(slots=True)
class Size:
    """What was measured about the graph of one size; times in seconds, memory in bytes."""

    edges: int
    build: dict[str, list[float]] = field(default_factory=dict)
    floor: dict[str, list[float]] = field(default_factory=dict)
    first: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict)
    hops: dict[str, Timing] = field(default_factory=dict)
    bare: dict[str, Timing] = field(default_factory=dict)
    answer: dict[str, float] = field(default_factory=dict)
    """How many rows an answer has, or how many people it counts."""
    peaks: dict[str, int] = field(default_factory=dict)


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--edges", type=lambda text: [int(size) for size in text.split(",")], help="the sizes")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where graphs are made, and looked for")


def main(argv: list[str] | None = None) -> None:
    bench = Benchmark("scale", argv, flags)
    os.environ[FSYNC_VARIABLE] = "0"
    root = bench.options.keep or Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        sizes = [measured(bench, edges, root) for edges in bench.options.edges or (QUICK if bench.quick else FULL)]
    finally:
        if not bench.options.keep:
            shutil.rmtree(root)
    report(bench, sizes)
    if not bench.quick:
        goals(bench, sizes)
    bench.finish()


def run(script: str, *arguments: object, cache: Path | None = None) -> dict[str, Any]:
    """What a script says about itself.

    Args:
        script: its name in `scaling`.
        arguments: what it is given.
        cache: where it keeps derived files; by default nowhere.
    """
    command = [sys.executable, str(HERE / "scaling" / script), *map(str, arguments)]
    environment = {**os.environ, DIRECTORY_VARIABLE: str(cache or "")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measured(bench: Benchmark, edges: int, root: Path) -> Size:
    place, cache = root / f"{edges}", root / f"{edges}-cache"
    root.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        run("load.py", edges, place)
    rounds = 1 if bench.quick else 15
    turns = 1 if bench.quick or edges > 20_000_000 else 3
    size = Size(edges)
    for _ in range(turns):
        shutil.rmtree(cache, ignore_errors=True)
        built, bare = run("build.py", place, cache=cache), run("floor.py", edges, rounds)
        for taken, figures in ((size.build, built), (size.floor, bare)):
            for name in ("seconds", "cpu", "peak"):
                taken.setdefault(name, []).append(figures[name])
    answers = {name: [tuple(answer) for answer in found] for name, found in bare["answers"].items()}
    for _ in range(1 if bench.quick else 3):
        for state, where, way in ((READY, cache, "topology"), (INDEXED, None, "lookups")):
            for question in (FIRST, LAST):
                found = run("first.py", edges, place, question, cache=where)
                agree(tuple(found["answer"]) == answers[question][0], f"{question}, {edges} edges, {state}")
                if not bench.quick:
                    agree(way in found["ways"], f"{question}, {edges} edges, {state}: by {found['ways']}")
                for name in ("import", "open", "first", "cpu", "peak"):
                    size.first.setdefault((state, question), {}).setdefault(name, []).append(found[name])
    warm = run("hops.py", edges, place, rounds, cache=cache)
    for question, found in warm["answers"].items():
        agree([tuple(answer) for answer in found] == answers[question], f"{question}, {edges} edges")
        size.hops[question] = Timing("ours", tuple(warm["samples"][question]))
        size.bare[question] = Timing("numpy", tuple(bare["samples"][question]))
        size.answer[question] = statistics.mean(rows for rows, _ in answers[question])
    size.peaks = {"build": max(map(int, size.build["peak"])), "warm": int(warm["peak"])} | {
        f"first answer, {state}": int(max(max(size.first[state, question]["peak"]) for question in (FIRST, LAST)))
        for state in (READY, INDEXED)
    }
    if not bench.options.keep:
        shutil.rmtree(place)
        shutil.rmtree(cache)
    return size


def agree(same: bool, what: str) -> None:
    if not same:
        raise AssertionError(f"{what}: not the expected answer")


# ---- what is said


def report(bench: Benchmark, sizes: list[Size]) -> None:
    for size in sizes:
        built, bare = (Timing(name, tuple(of["seconds"])) for name, of in (("ours", size.build), ("numpy", size.floor)))
        bench.add(Comparison(f"topology of {size.edges:,} edges", built, {"numpy, from numbers": bare}))
        print(
            f"  of the processor {median(size.build['cpu'])} s, {median(size.floor['cpu'])} s; "
            f"memory {figure(size.peaks['build'] / GIB)} GiB, {figure(max(size.floor['peak']) / GIB)} GiB"
        )
        for (state, question), found in size.first.items():
            timing = Timing("ours", tuple(found["first"]))
            bench.add(Comparison(f"first answer of a process, {size.edges:,} edges, {state}: {question}", timing, {}))
            print(
                f"  beside {median(found['import'])} s to import and {median(found['open'])} s to open; "
                f"of the processor {median(found['cpu'])} s"
            )
        for question, timing in size.hops.items():
            name = f"{question}, {size.edges:,} edges ({figure(size.answer[question])} in an answer)"
            bench.add(Comparison(name, timing, {"numpy": size.bare[question]}))
        memory = ", ".join(f"{name} {figure(peak / GIB)}" for name, peak in size.peaks.items())
        print(f"\nmemory at {size.edges:,} edges, GiB: {memory}")


def median(samples: list[float]) -> str:
    return figure(statistics.median(samples))


def goals(bench: Benchmark, sizes: list[Size]) -> None:
    """Growth is that of processor time, which other work on the machine does not lengthen as it does the clock's."""
    least, largest = sizes[0], sizes[-1]
    for before, after in pairwise(sizes):
        growth = statistics.median(after.build["cpu"]) / statistics.median(before.build["cpu"])
        bench.goal(
            f"topology, {before.edges:,} to {after.edges:,} edges, for each edge",
            growth / (after.edges / before.edges),
            limit=1.3,
            unit="×",
        )
    for question in least.hops:
        each = [size.hops[question].median / size.answer[question] for size in (least, largest)]
        bench.goal(
            f"{question}, {least.edges:,} to {largest.edges:,} edges, for each in the answer",
            each[1] / each[0],
            limit=2,
            unit="×",
        )
    for size in sizes:
        seconds = statistics.median(size.first[INDEXED, FIRST]["first"])
        bench.goal(f"first hop without a topology, {size.edges:,} edges", seconds * 1e3, limit=500, unit="ms")
    bench.goal(f"memory at {largest.edges:,} edges", max(largest.peaks.values()) / GIB, limit=8, unit="GiB")


if __name__ == "__main__":
    main()
