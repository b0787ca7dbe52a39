"""Times work that changes its input: each round prepares the input first, and the preparation is not timed."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness import QUICK_ROUNDS, Benchmark, Comparison, Timing, Work


@dataclass(frozen=True, slots=True)
class Turn:
    """One contender.

    Attributes:
        prepare: returns the work of the next round. It is not timed.
    """

    prepare: Callable[[], Work]


def repeated(work: Work) -> Turn:
    """A contender that does the same work in every round."""
    return Turn(lambda: work)


def in_turns(bench: Benchmark, name: str, ours: Turn, peers: Mapping[str, Turn], rounds: int) -> Comparison:
    """Time contenders in turns, each once per round, after one round to warm up. Prints the CPU times, too."""
    turns = {"ours": ours, **peers}
    samples: dict[str, list[tuple[float, float]]] = {who: [] for who in turns}
    rounds = min(rounds, QUICK_ROUNDS) if bench.quick else rounds
    names = list(turns)
    for number in range(rounds + 1):
        first = number % len(names)
        for who in names[first:] + names[:first]:
            taken = timed(turns[who].prepare())
            if number:
                samples[who].append(taken)
    timings = {who: Timing(who, tuple(wall for wall, _ in taken)) for who, taken in samples.items()}
    found = bench.add(Comparison(name, timings.pop("ours"), timings))
    cpu = {who: statistics.median(used for _, used in taken) for who, taken in samples.items()}
    ratios = ", ".join(f"{cpu['ours'] / used:.2f}× of {who}" for who, used in cpu.items() if who != "ours" and used)
    print(f"  CPU time: ours {cpu['ours'] * 1000:,.0f} ms{f', {ratios}' if ratios else ''}", flush=True)
    return found


def timed(work: Work) -> tuple[float, float]:
    """Seconds, and seconds of CPU time of all threads, of one call."""
    gc.collect()
    gc.disable()
    try:
        start, used = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - start, time.process_time() - used
    finally:
        gc.enable()
