"""What grows with a graph and what does not: one million edges, ten, fifty; everybody follows ten others on average.

Each figure is taken in a process of its own. A topology is made from nothing; a new process opens a graph whose
topology is on disk, and one that has indexes only, and gives its first answer; a warm one answers questions whose
answers are as large in every graph. The peer is numpy alone, which gets the ends of edges as numbers and has nothing
to look up, open or check. All answers are compared with its own.

Times are of the processor where growth is judged, all threads together: other work on the machine lengthens those of
the clock more. Memory is the most that the process had resident, and pages of mapped files that it touched are part of
that.

Flags: `--edges N,N` for the sizes, `--keep FOLDER` to keep the graphs and topologies for the next time (the largest
takes 6 GB), and `--only answers` to leave out the making of topologies that are kept.
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
from omnigraph.storage.files.cache_directory import DIRECTORY_VARIABLE

HERE = Path(__file__).resolve().parent
GIB = 1 << 30
FULL = [1_000_000, 10_000_000, 50_000_000]
QUICK = [20_000, 60_000]
FIRST, LAST = "1 hop, names", "3 hops, reach"
READY, INDEXED = "topology on disk", "indexes only"


Figures = dict[str, list[float]]
"""The samples of each figure."""


@dataclass(slots=True)
class Size:
    """What was measured about the graph of one size; times in seconds, memory in bytes."""

    edges: int
    build: Figures = field(default_factory=dict)
    floor: Figures = field(default_factory=dict)
    first: dict[tuple[str, str], Figures] = field(default_factory=dict)
    hops: dict[str, Timing] = field(default_factory=dict)
    bare: dict[str, Timing] = field(default_factory=dict)
    answer: dict[str, float] = field(default_factory=dict)
    """How many rows an answer has, or how many people it counts."""
    peaks: dict[str, int] = field(default_factory=dict)


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--edges", type=lambda text: [int(size) for size in text.split(",")], help="the sizes")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where graphs are made, and looked for")
    parser.add_argument("--only", choices=["answers"], help="take the topologies that were kept")


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
    builds = turns if bench.options.only is None or not cache.exists() else 0
    for _ in range(builds):
        shutil.rmtree(cache, ignore_errors=True)
        built, bare = run("build.py", place, cache=cache), run("floor.py", edges, rounds)
        for taken, figures in ((size.build, built), (size.floor, bare)):
            for name in ("seconds", "cpu", "peak"):
                taken.setdefault(name, []).append(figures[name])
    if builds == 0:
        bare = run("floor.py", edges, rounds)
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
    size.peaks = {
        f"first answer, {state}": int(max(max(size.first[state, question]["peak"]) for question in (FIRST, LAST)))
        for state in (READY, INDEXED)
    }
    size.peaks |= {"warm": int(warm["peak"])}
    if size.build:
        size.peaks |= {"build": max(map(int, size.build["peak"]))}
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
        report_build(bench, size)
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


def report_build(bench: Benchmark, size: Size) -> None:
    if size.build:
        built, bare = (Timing(name, tuple(of["seconds"])) for name, of in (("ours", size.build), ("numpy", size.floor)))
        bench.add(Comparison(f"topology of {size.edges:,} edges", built, {"numpy, from numbers": bare}))
        print(
            f"  of the processor {median(size.build['cpu'])} s, {median(size.floor['cpu'])} s; "
            f"memory {figure(size.peaks['build'] / GIB)} GiB, {figure(max(size.floor['peak']) / GIB)} GiB"
        )


def median(samples: list[float]) -> str:
    return figure(statistics.median(samples))


def goals(bench: Benchmark, sizes: list[Size]) -> None:
    least, largest = sizes[0], sizes[-1]
    for before, after in pairwise(sizes):
        if before.build and after.build:
            # Memory is slower the more of it is used. That lengthens the floor too, and no less.
            counts = (before.edges, after.edges)
            ours, bare = growth(before.build, after.build, *counts), growth(before.floor, after.floor, *counts)
            name = f"topology, {before.edges:,} to {after.edges:,} edges, for each edge"
            bench.goal(name, ours, limit=max(1.3, bare), unit="×")
    for question in least.hops:
        each = [size.hops[question].median / size.answer[question] for size in (least, largest)]
        bench.goal(
            f"{question}, {least.edges:,} to {largest.edges:,} edges, for each in the answer",
            each[1] / each[0],
            limit=2,
            unit="×",
        )
    for size in sizes:
        for state in (READY, INDEXED):
            seconds = statistics.median(size.first[state, FIRST]["cpu"])
            bench.goal(f"open and first hop, {state}, {size.edges:,} edges", seconds * 1e3, limit=300, unit="ms")
    bench.goal(f"memory at {largest.edges:,} edges", max(largest.peaks.values()) / GIB, limit=8, unit="GiB")


def growth(before: Figures, after: Figures, fewer: int, more: int) -> float:
    """By how much more an edge takes in the larger graph."""
    return statistics.median(after["cpu"]) / more / (statistics.median(before["cpu"]) / fewer)


if __name__ == "__main__":
    main()
