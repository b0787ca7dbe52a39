"""What every benchmark shares: fair timing, a description of the machine, and goals.

A benchmark is a script that says what to run and what it hopes for:

    from harness import Benchmark

    bench = Benchmark("sorting")
    result = bench.compare("a million floats", ours=numpy_sort, peers={"sorted()": python_sort})
    bench.goal("a million floats", result.ours.median * 1e3, limit=80, unit="ms")
    bench.goal("faster than sorted()", result.speedup("sorted()"), limit=5, unit="×", at_least=True)
    bench.finish()

It runs as `python bench/sorting.py [--quick] [--json FILE]` and exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn, TypedDict

Work = Callable[[], object]

SAMPLE_SECONDS = 0.02
"""A sample repeats short work until it lasts this long, so that the clock and the loop do not count."""

QUICK_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """The samples of one contender, in seconds per call."""

    name: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """How far the slowest sample lies from the fastest, as a share of the median."""
        return (max(self.samples) - min(self.samples)) / self.median if self.median else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours and its peers, timed side by side on the same work."""

    name: str
    ours: Timing
    peers: Mapping[str, Timing]

    def speedup(self, peer: str) -> float:
        """How many times as long the peer takes as ours."""
        return self.peers[peer].median / self.ours.median


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure we promised ourselves."""

    name: str
    measured: float
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        measured, limit = (f"{figure(value)} {self.unit}".rstrip() for value in (self.measured, self.limit))
        bound = "at least" if self.at_least else "at most"
        return f"GOAL {self.name}: measured {measured}, goal {bound} {limit}: {'met' if self.met else 'missed'}"


@dataclass(frozen=True, slots=True)
class Machine:
    """Enough to judge a figure by. The host name is nobody's business and is left out."""

    cpu: str
    cores: int
    system: str
    python: str

    @classmethod
    def here(cls) -> Machine:
        return cls(
            cpu=cpu_model(),
            cores=available_cores(),
            system=f"{platform.system()} {platform.machine()}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
        )

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, {self.system}, {self.python}"


class Report(TypedDict):
    """What `--json` writes; times are in seconds per call."""

    benchmark: str
    quick: bool
    machine: Mapping[str, object]
    timings: Sequence[Mapping[str, object]]
    goals: Sequence[Mapping[str, object]]


@dataclass(slots=True)
class Benchmark:
    """One benchmark script: reads the command line, collects results, reports them.

    Attributes:
        name: the name of the script, and of the benchmark in reports.
        argv: the command line, for tests; by default that of the process.
        flags: adds flags of its own to the command line.
        options: the command line, read.
        quick: whether the user asked for a rough answer; a benchmark may shrink its data then.
    """

    name: str
    argv: Sequence[str] | None = None
    flags: Callable[[argparse.ArgumentParser], object] | None = None
    options: argparse.Namespace = field(init=False)
    quick: bool = field(init=False)
    comparisons: list[Comparison] = field(init=False, default_factory=list)
    goals: list[Goal] = field(init=False, default_factory=list)
    _json: Path | None = field(init=False)

    def __post_init__(self) -> None:
        parser = arguments(f"The {self.name} benchmark.")
        if self.flags is not None:
            self.flags(parser)
        self.options = parser.parse_args(self.argv)
        self.quick = self.options.quick
        self._json = self.options.json
        print(f"{self.name} on {Machine.here()}{' (quick)' if self.quick else ''}")

    def compare(
        self, name: str, *, ours: Work, peers: Mapping[str, Work] | None = None, rounds: int = 15
    ) -> Comparison:
        """Time ours against its peers and print the medians; without peers, time ours alone."""
        peers = peers or {}
        if "ours" in peers:
            raise ValueError("a peer cannot be called 'ours'")
        timings = interleave({"ours": ours, **peers}, rounds=min(rounds, QUICK_ROUNDS) if self.quick else rounds)
        return self.add(Comparison(name, timings.pop("ours"), timings))

    def add(self, result: Comparison) -> Comparison:
        """Take in a comparison that was timed elsewhere, and print its medians."""
        self.comparisons.append(result)
        print(f"\n{result.name}")
        for timing in (result.ours, *result.peers.values()):
            against = f"{timing.median / result.ours.median:8.2f}×" if result.peers else ""
            print(f"  {timing.name:<24}{duration(timing.median):>12}  ±{timing.spread / 2:4.0%}{against}")
        return result

    def goal(self, name: str, measured: float, limit: float, unit: str = "", *, at_least: bool = False) -> Goal:
        """Hold a figure against its goal: at most `limit`, or at least `limit`."""
        goal = Goal(name, measured, limit, unit, at_least)
        self.goals.append(goal)
        print(goal)
        return goal

    def finish(self) -> NoReturn:
        """Write the JSON report if one was asked for, and exit: 0 when every goal is met, else 1."""
        if self._json is not None:
            self._json.write_text(json.dumps(self.report(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        sys.exit(0 if all(goal.met for goal in self.goals) else 1)

    def report(self) -> Report:
        return Report(
            benchmark=self.name,
            quick=self.quick,
            machine=asdict(Machine.here()),
            timings=[
                {"name": comparison.name, "contender": timing.name, "median": timing.median, "samples": timing.samples}
                for comparison in self.comparisons
                for timing in (comparison.ours, *comparison.peers.values())
            ],
            goals=[{**asdict(goal), "met": goal.met} for goal in self.goals],
        )


def arguments(description: str) -> argparse.ArgumentParser:
    """The command line of every benchmark, and of the runner."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less data: a rough answer, soon")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results to FILE as well")
    return parser


def interleave(work: Mapping[str, Work], rounds: int) -> dict[str, Timing]:
    """Time every contender once per round.

    A machine speeds up and slows down over seconds. Taking turns lets every contender see the same weather, and each
    round starts with the next contender, so that none always runs in the wake of the same other.
    """
    if rounds < 1:
        raise ValueError("a comparison needs at least one round")
    repeats = {name: warm_up(call) for name, call in work.items()}
    samples: dict[str, list[float]] = {name: [] for name in work}
    names = list(work)
    for round_ in range(rounds):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(sample(work[name], repeats[name]))
    return {name: Timing(name, tuple(taken)) for name, taken in samples.items()}


def warm_up(call: Work) -> int:
    """Run the work until it is warm; returns how many calls make a sample long enough to time."""
    call()
    repeats = 1
    while (taken := sample(call, repeats) * repeats) < SAMPLE_SECONDS:
        repeats = max(repeats * 2, int(repeats * SAMPLE_SECONDS / max(taken, 1e-9) * 1.1))
    return repeats


def sample(call: Work, repeats: int) -> float:
    """Seconds per call, over `repeats` calls, with the garbage collector out of the way."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats
    finally:
        if collecting:
            gc.enable()


def duration(seconds: float) -> str:
    """Seconds, in the unit a person would use.

    >>> duration(0.000277), duration(0.0412), duration(3.5)
    ('277 µs', '41.2 ms', '3.5 s')
    """
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{figure(seconds / scale)} {unit}"
    return f"{figure(seconds * 1e9)} ns"


def figure(value: float) -> str:
    """Three significant digits, never in exponent form.

    >>> figure(0.01234), figure(12.0), figure(1466.2)
    ('0.0123', '12', '1,466')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):.10f}".rstrip("0").rstrip(".")


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()
