"""Mixed readers and writers for a long time: nothing that was acknowledged is lost, and the server does not grow.

Beside them, `optimize` packs the small files of the writes. The caches of the workers have a small limit, so that they
are full after the warm-up, and later growth is a leak.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import omnigraph
from harness import Benchmark, figure
from omnigraph.client.clients import GraphClient
from serving.server import Server

WRITERS, READERS = 8, 4
EVENTS, COUNTERS = 5_000, 50
MOST_HANDLES = 2.0
MOST_MEMORY = 2.0
"""Most growth in percent per minute, from the middle third of the run to the last one."""

CACHE = "8MiB"
"""Memory for cached columns of each worker. Small, so that the cache is full after the warm-up."""

UPKEEP_SECONDS = 15.0
"""Pause between two runs of `optimize`."""

ID = "soak"
SCHEMA = """\
node Event { name: String @key  at: I64  text: String  @index(text, kind="fts") }
node Counter { name: String @key  value: I64 }
edge Next: Event -> Event
"""
INSERT = 'query add($name: String, $at: I64) { insert Event { name: $name, at: $at, text: "later" } }'
LINK = "query link($from: String, $to: String) { insert Next { from: $from, to: $to } }"
SET = "query set($name: String, $value: I64) { update Counter set { value: $value } where name = $name }"
READS = (
    "query point($name: String) { match { $e: Event { name: $name } } return { $e.at as at } }",
    "query next($name: String) { match { $e: Event { name: $name }  $e next $f } return { $f.name as name } }",
    'query words($name: String) { match { $e: Event  search($e.text, "first") } return { count(*) as found } }',
    "query all($name: String) { match { $e: Event  $e.at < 1000 } return { $e.name as name, $e.at as at } }",
)


@dataclass(slots=True)
class Sample:
    """The resources of the server at a time."""

    seconds: float
    handles: int
    resident: int


@dataclass(slots=True)
class Writer:
    """Writes until the end, with a key for each request.

    Attributes:
        events: the names of the events that were acknowledged.
        links: the events that were linked to the first one.
        value: the last acknowledged value of its counter.
    """

    number: int
    client: GraphClient
    events: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    value: int = 0

    def step(self) -> None:
        turn = len(self.events)
        name = f"event-{self.number}-{turn}"
        self.client.mutate(INSERT, {"name": name, "at": 10_000 + turn}, idempotency_key=name)
        self.events.append(name)
        if turn % 5 == 0:
            self.client.mutate(LINK, {"from": name, "to": "first-0"}, idempotency_key=f"link-{name}")
            self.links.append(name)
        if turn % 5 == 1:
            self.client.mutate(SET, {"name": f"counter-{self.number}", "value": turn}, idempotency_key=f"set-{name}")
            self.value = turn


@dataclass(slots=True)
class Keeper:
    """Packs the small files of many writes again and again, as an operator does."""

    graph: omnigraph.Graph
    pause: float
    runs: int = 0

    def step(self) -> None:
        time.sleep(self.pause)
        self.graph.optimize()
        self.runs += 1


@dataclass(slots=True)
class Reader:
    """Reads until the end."""

    number: int
    client: GraphClient
    reads: int = 0

    def step(self) -> None:
        turn = self.reads + self.number
        rows = self.client.query(READS[turn % len(READS)], {"name": f"first-{turn % EVENTS}"})
        if len(rows) == 0 and turn % len(READS) == 0:
            raise RuntimeError("an event is missing")
        if turn % 200 == 0:
            lines = sum(1 for _ in self.client.export())
            if lines < EVENTS:
                raise RuntimeError(f"an export has only {lines} lines")
        self.reads += 1


def soak(bench: Benchmark, root: Path, seconds: float) -> None:
    """Run readers and writers against two workers, and check the graph and the resources of the server."""
    place = root / ID
    rows = {"name": [f"first-{number}" for number in range(EVENTS)], "at": range(EVENTS), "text": ["first"] * EVENTS}
    counters = {"name": [f"counter-{number}" for number in range(COUNTERS)], "value": [0] * COUNTERS}
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load({"Event": pa.table(rows), "Counter": pa.table(counters)}, mode="append")
    with ExitStack() as stack:
        server = stack.enter_context(Server.running({ID: place}, 2, root / "server", OMNIGRAPH_CACHE_MEMORY=CACHE))
        client = stack.enter_context(omnigraph.connect(f"http://{server.address}", graph_id=ID))
        writers = [Writer(number, client) for number in range(WRITERS)]
        readers = [Reader(number, client) for number in range(READERS)]
        keeper = Keeper(stack.enter_context(omnigraph.open(place)), min(UPKEEP_SECONDS, seconds / 2))
        steps = [keeper.step, *(writer.step for writer in writers), *(reader.step for reader in readers)]
        failures, samples = run(steps, server, seconds)
    written = sum(len(writer.events) + len(writer.links) for writer in writers)
    reads = sum(reader.reads for reader in readers)
    print(
        f"\n{figure(seconds)} s: {written:,} inserts, {reads:,} reads, optimized {keeper.runs} times,"
        f" {len(failures)} failed requests"
    )
    for failure in failures[:5]:
        print(f"  {failure}")
    lost, doubled = compare(place, writers)
    bench.goal("failed requests", len(failures), 0)
    bench.goal("acknowledged writes that are lost", lost, 0)
    bench.goal("rows that are doubled or that nobody has written", doubled, 0)
    growth(bench, samples)


def run(steps: Sequence[Callable[[], None]], server: Server, seconds: float) -> tuple[list[str], list[Sample]]:
    """Run each step again and again in a thread of its own. Returns the failures and the resources of the server."""
    failures: list[str] = []
    started = time.monotonic()

    def work(step: Callable[[], None]) -> None:
        while time.monotonic() < started + seconds:
            try:
                step()
            except Exception as error:  # every failure is counted
                failures.append(f"{type(error).__name__}: {error}")
                return

    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    samples = []
    while any(thread.is_alive() for thread in threads):
        samples.append(Sample(time.monotonic() - started, server.handles(), server.resident()))
        time.sleep(min(1.0, seconds / 40))
    return failures, samples


def compare(place: Path, writers: list[Writer]) -> tuple[int, int]:
    """The number of acknowledged writes that the graph does not have, and of rows that nobody has acknowledged."""
    with omnigraph.open(place, read_only=True) as graph:
        events = _names(graph, "match { $e: Event  $e.at >= 10000 } return { $e.name as name }")
        links = _names(graph, 'match { $e next $f  $f.name = "first-0" } return { $e.name as name }')
        found = graph.query("query q() { match { $c: Counter } return { $c.name as name, $c.value as value } }")
        values = {row["name"]: row["value"] for row in found.to_pylist()}
    wanted = Counter(f"event {name}" for writer in writers for name in writer.events)
    wanted.update(f"link {name}" for writer in writers for name in writer.links)
    wanted.update(f"counter-{writer.number} {writer.value}" for writer in writers)
    stored = Counter(f"event {name}" for name in events) + Counter(f"link {name}" for name in links)
    stored.update(f"counter-{writer.number} {values[f'counter-{writer.number}']}" for writer in writers)
    return (wanted - stored).total(), (stored - wanted).total()


def _names(graph: omnigraph.Graph, body: str) -> list[str]:
    return [row["name"] for row in graph.query(f"query q() {{ {body} }}").to_pylist()]


def growth(bench: Benchmark, samples: list[Sample]) -> None:
    """Print how the handles and the memory of the server change, and compare the last third with the middle one."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    seconds = statistics.mean(one.seconds for one in last) - statistics.mean(one.seconds for one in middle)
    for name, limit, of in (
        ("open handles", MOST_HANDLES, lambda one: float(one.handles)),
        ("resident MiB", MOST_MEMORY, lambda one: one.resident / 2**20),
    ):
        values = list(map(of, samples))
        print(f"{name}: {', '.join(figure(value) for value in values[:: max(1, len(values) // 12)])}")
        before, after = (statistics.median(map(of, part)) for part in (middle, last))
        if not bench.quick:
            bench.goal(f"growth of {name} per minute", (after / before - 1) / seconds * 6_000, limit, unit="%")
