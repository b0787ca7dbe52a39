"""The HTTP server under load: point queries, 2 hops, hybrid searches and one-row mutations.

For each kind of request, 1, 16 and 64 clients send to a server with one worker and to one with two, in turns, beside
the same calls of a graph in this process. Every answer is compared with that of the graph in this process, and at the
end the servers must have the rows that they acknowledged. The load generator is a process of its own. First every
client sends its next request when it has the answer to the last one: that gives the highest rate. Then requests are due
at fixed times (an open loop), at a part of that rate, and latencies count from these times. Servers and generator share
the cores of this machine, so the CPU time per request of both is printed, and how far the generator limits the result.

Flags: `--only TEXT` for the kinds whose names have a text, `--persons N`, `--rounds N`, `--seconds N` of each turn,
and `--soak SECONDS` for a long run of mixed readers and writers instead.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import omnigraph
from harness import Benchmark, Comparison, Timing, available_cores, duration, figure
from omnigraph.graph import Graph
from serving.generator import Generator, Load, Measured
from serving.requests import FIRST_EVENTS, READS, WRITES, Kind, kinds, make_reads, make_writes, write_files
from serving.server import Server

CLIENTS = (1, 16, 64)
WORKERS = (1, 2)
PERSONS, DOCUMENTS = 20_000, 10_000
SHARE = 0.6
"""The rate of the open loop, as a share of the highest rate."""

MOST_ADDED = 1.0
LEAST_GAIN = 1.8
LEAST_GROUPING = 6.0


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="the kinds of requests whose names have this text")
    parser.add_argument("--persons", type=int, help="number of persons; half as many documents")
    parser.add_argument("--rounds", type=int, help="how often each case takes a turn")
    parser.add_argument("--seconds", type=float, help="seconds of each turn")
    parser.add_argument("--soak", type=float, help="send mixed requests for so many seconds instead")


def main(argv: list[str] | None = None) -> None:
    bench = Benchmark("serve", argv, flags)
    persons = bench.options.persons or (500 if bench.quick else PERSONS)
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        if bench.options.soak is not None:
            from serving.soak import soak

            soak(bench, root, bench.options.soak)
        else:
            write_files(root / "files", max(200, persons // 2))
            make_reads(root / READS, root / "files", persons)
            with ExitStack() as stack:
                load(Machinery.started(stack, bench, root), kinds(root / "files", persons))
    finally:
        shutil.rmtree(root)
    bench.finish()


@dataclass(slots=True)
class Machinery:
    """The parts of a run.

    Attributes:
        servers: the server with each number of workers.
        graphs: the graphs of this process, by id.
        rounds: how often each case takes a turn.
        seconds: seconds of each turn.
        acknowledged: the number of writes that each server has acknowledged, by its number of workers.
    """

    bench: Benchmark
    generator: Generator
    servers: dict[int, Server]
    graphs: dict[str, Graph]
    rounds: int
    seconds: float
    acknowledged: Counter[int] = field(default_factory=Counter)
    _numbers: count[int] = field(default_factory=count)

    @classmethod
    def started(cls, stack: ExitStack, bench: Benchmark, root: Path) -> Machinery:
        servers = {}
        for workers in WORKERS:
            make_writes(root / f"{WRITES}-{workers}")
            graphs = {READS: root / READS, WRITES: root / f"{WRITES}-{workers}"}
            servers[workers] = stack.enter_context(Server.running(graphs, workers, root / f"server-{workers}"))
        make_writes(root / WRITES)
        opened = {
            READS: stack.enter_context(omnigraph.open(root / READS, read_only=True)),
            WRITES: stack.enter_context(omnigraph.open(root / WRITES)),
        }
        rounds = bench.options.rounds or (1 if bench.quick else 3)
        seconds = bench.options.seconds or (0.1 if bench.quick else 1.0)
        return cls(bench, stack.enter_context(Generator.running()), servers, opened, rounds, seconds)

    def run(
        self, kind: Kind, workers: int, clients: int, rate: float | None = None, seconds: float | None = None
    ) -> Run:
        """Send requests to a server.

        Raises:
            SystemExit: an answer is wrong.
        """
        server = self.servers[workers]
        first = next(self._numbers) * 10_000_000
        expected = kind.expected(self.graphs[kind.graph])
        load = Load(
            server.address, clients, kind.requests(server.address), expected, seconds or self.seconds, rate, first
        )
        before = server.cpu()
        found = self.generator.run(load)
        if found.failed:
            raise SystemExit(f"{kind.name}: {found.failed} of {found.sent} answers are wrong: {found.failure.decode()}")
        self.acknowledged[workers] += found.sent if kind.writes else 0
        return Run(found, server.cpu() - before)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the generator, and the CPU seconds of the server."""

    measured: Measured
    cpu: float

    @property
    def server_cpu(self) -> float:
        """CPU seconds of the server per request."""
        return self.cpu / self.measured.sent

    @property
    def client_cpu(self) -> float:
        """CPU seconds of the generator per request."""
        return self.measured.cpu / self.measured.sent


def load(machinery: Machinery, found: list[Kind]) -> None:
    chosen = [kind for kind in found if machinery.bench.options.only in kind.name]
    for kind in chosen:
        added(machinery, kind)
        rates(machinery, kind)
    check_written(machinery)
    print(f"load average {', '.join(f'{value:.1f}' for value in os.getloadavg())}")


def check_written(machinery: Machinery) -> None:
    """See that both servers have exactly the rows that they acknowledged.

    Raises:
        SystemExit: they do not.
    """
    for workers, server in machinery.servers.items():
        body = {"query": "query q() { match { $e: Event } return { count($e) as n } }"}
        found = server.post(f"/graphs/{WRITES}/query", body)["rows"][0]["n"]
        if found != FIRST_EVENTS + machinery.acknowledged[workers]:
            raise SystemExit(
                f"{workers} workers have {found} events, not {FIRST_EVENTS} + those that they acknowledged"
            )


# One client beside the embedded call


def added(machinery: Machinery, kind: Kind) -> None:
    """Compare requests of one client with calls in this process, at the same rate."""
    call = kind.call(machinery.graphs[kind.graph])
    slow = 1 / machinery.run(kind, 1, 1).measured.rate
    rate = SHARE / max(slow, seconds_per_call(call, machinery.seconds))
    over_http, embedded = [], []
    rounds = max(machinery.rounds, 1 if machinery.bench.quick else 5)
    for _ in range(rounds):
        embedded.append(paced(call, rate, machinery.seconds))
        over_http.append(machinery.run(kind, 1, 1, rate).measured)
    samples = {
        "over HTTP": tuple(one.quantile(0.5) for one in over_http),
        "embedded": tuple(statistics.median(one) for one in embedded),
    }
    timings = {name: Timing(name, taken) for name, taken in samples.items()}
    name = f"{kind.name}, one client at {figure(rate)} requests/s, p50"
    machinery.bench.add(Comparison(name, timings["over HTTP"], {"embedded": timings["embedded"]}))
    slowest = statistics.median(one.quantile(0.99) for one in over_http)
    slowest_embedded = statistics.median(sorted(one)[int(len(one) * 0.99)] for one in embedded)
    print(f"  p99: over HTTP {duration(slowest)}, embedded {duration(slowest_embedded)}")
    differences = [a - b for a, b in zip(samples["over HTTP"], samples["embedded"], strict=True)]
    if not machinery.bench.quick:
        name = f"{kind.name}: HTTP adds to p50 of one client"
        machinery.bench.goal(name, statistics.median(differences) * 1e3, MOST_ADDED, unit="ms")


def seconds_per_call(call: Callable[[], object], seconds: float) -> float:
    call()
    started = time.perf_counter()
    calls = 0
    while time.perf_counter() < started + seconds:
        call()
        calls += 1
    return (time.perf_counter() - started) / calls


def paced(call: Callable[[], object], rate: float, seconds: float) -> list[float]:
    """The latencies of calls that are due at a fixed rate."""
    latencies = []
    started = time.perf_counter()
    for number in range(max(1, round(rate * seconds))):
        due = started + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        call()
        latencies.append(time.perf_counter() - due)
    return latencies


# Several clients and workers


def rates(machinery: Machinery, kind: Kind) -> None:
    """Measure the highest rates, and latencies below them."""
    bench = machinery.bench
    cases = [(workers, clients) for clients in CLIENTS for workers in WORKERS]
    full: dict[tuple[int, int], list[Run]] = {case: [] for case in cases}
    for case in cases:
        machinery.run(kind, *case, seconds=machinery.seconds / 4)  # warm-up
    for round_ in range(machinery.rounds):
        first = round_ % len(cases)
        for case in cases[first:] + cases[:first]:
            full[case].append(machinery.run(kind, *case))
    highest = {case: statistics.median(run.measured.rate for run in runs) for case, runs in full.items()}
    below = {
        case: machinery.run(kind, *case, rate=SHARE * highest[case], seconds=2 * machinery.seconds) for case in cases
    }
    call = seconds_per_call(kind.call(machinery.graphs[kind.graph]) if not kind.writes else _more(machinery, kind), 0.5)
    print(f"\n{kind.name}: one thread of this process makes {figure(1 / call)} calls/s ({duration(call)} each)")
    print("  clients workers   at most    p50 / p99 then       at 60 %: p50 / p99     CPU/request: server + generator")
    for case in cases:
        workers, clients = case
        run = _middle(full[case])
        quantiles = [duration(one.measured.quantile(share)) for one in (run, below[case]) for share in (0.5, 0.99)]
        print(
            f"  {clients:>7} {workers:>7}{figure(highest[case]):>8}/s"
            f"{quantiles[0]:>10} / {quantiles[1]:<10}{quantiles[2]:>10} / {quantiles[3]:<10}"
            f"{duration(run.server_cpu):>10} + {duration(run.client_cpu)}"
        )
    for clients in CLIENTS:
        one, two = (
            Timing(f"{workers} workers", tuple(1 / run.measured.rate for run in full[workers, clients]))
            for workers in WORKERS
        )
        bench.comparisons.append(Comparison(f"{kind.name}, {clients} clients, per request", two, {one.name: one}))
    if kind.writes:
        grouping(machinery, kind, full)
    else:
        gain(machinery, kind, full)


def _more(machinery: Machinery, kind: Kind) -> Callable[[], object]:
    """Calls of a kind that writes, with names that are new again."""
    graph = machinery.graphs[kind.graph]
    return lambda: graph.mutate(kind.text, {**kind.params[0], "name": f"more-{next(machinery._numbers)}"})


def _middle(runs: list[Run]) -> Run:
    """The run with the median rate."""
    return sorted(runs, key=lambda run: run.measured.rate)[len(runs) // 2]


def gain(machinery: Machinery, kind: Kind, runs: dict[tuple[int, int], list[Run]]) -> None:
    """Compare two workers with one, and say how far the load generator limits the result."""
    one, two = (runs[workers, CLIENTS[-1]] for workers in WORKERS)
    found = statistics.median(b.measured.rate / a.measured.rate for a, b in zip(one, two, strict=True))
    a, b = _middle(one), _middle(two)
    cores = available_cores()
    used = " and ".join(f"{run.measured.rate * (run.server_cpu + run.client_cpu):.2f}" for run in (a, b))
    limit = cores / (b.server_cpu + b.client_cpu) / a.measured.rate
    print(
        f"  {CLIENTS[-1]} clients: server and generator use {used} of {cores} cores with one and two workers;"
        f" more than {limit:.2f} × is not possible here"
    )
    if not machinery.bench.quick:
        name = f"{kind.name}: two workers against one, {CLIENTS[-1]} clients"
        machinery.bench.goal(name, found, LEAST_GAIN, unit="×", at_least=True)


def grouping(machinery: Machinery, kind: Kind, runs: dict[tuple[int, int], list[Run]]) -> None:
    """Compare many writing clients with one."""
    single, many = runs[1, CLIENTS[0]], runs[1, CLIENTS[-1]]
    found = statistics.median(b.measured.rate / a.measured.rate for a, b in zip(single, many, strict=True))
    if not machinery.bench.quick:
        name = f"{kind.name}: {CLIENTS[-1]} clients against one"
        machinery.bench.goal(name, found, LEAST_GROUPING, unit="×", at_least=True)


if __name__ == "__main__":
    main()
