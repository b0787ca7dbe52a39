"""Random questions to four graphs of two million edges, against DuckDB and ladybug: nothing can be tuned for them.

A seed decides which questions are drawn: paths, stars, trees, cycles and cliques with a tail, with filters of any
selectivity, inequalities, `not`, `optional`, aggregates, distinct and top rows. Each goes to this engine as `.gq`, to
DuckDB as SQL and to ladybug as Cypher. All answers must be the same. An engine that takes longer than 10 seconds counts
with these; a question that no peer answers in this time is drawn again.

Flags: `--seed N`, `--questions N`, `--graph NAME`, `--size SHARE` of the full graphs, `--data FOLDER` keeps the stored
graphs for the next run, `--ours` asks this engine alone, and `--worst FILE` writes the slowest questions and our plans.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from asking.draw import questions
from asking.estimate import Estimates
from asking.graphs import GRAPHS, Graph, write_files
from asking.ours import extensions
from asking.question import Question
from asking.race import OURS as NAME
from asking.race import Outcome, Race
from asking.report import line, listed, summarise, worst
from harness import Benchmark, Comparison
from study.contender import PEERS, Contender, Running

HERE = Path(__file__).resolve().parent / "asking"
OURS = Contender(NAME, str(HERE / "ours.py"), Path(sys.executable))
RIVALS = (
    Contender("duckdb", str(HERE / "on_duckdb.py"), PEERS, "duckdb"),
    Contender("ladybug", str(HERE / "on_ladybug.py"), PEERS, "ladybug"),
)
QUESTIONS = 240
MOST_ROWS = 1e9
"""Questions that go through more rows are drawn again, unless only counts are returned: no engine lists these."""
MOST_COUNTED = 1e10
WORST = 15


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, help="decides which questions are drawn")
    parser.add_argument("--questions", type=int, help=f"how many; by default {QUESTIONS}")
    parser.add_argument("--graph", choices=GRAPHS, help="one of the graphs")
    parser.add_argument("--size", type=float, help="a share of the full graphs")
    parser.add_argument("--data", type=Path, help="a folder that keeps the stored graphs for the next run")
    parser.add_argument("--ours", action="store_true", help="this engine alone")
    parser.add_argument("--worst", type=Path, help="a file for the slowest questions and our plans")


def main(argv: list[str] | None = None, rivals: tuple[Contender, ...] = RIVALS) -> None:
    bench = Benchmark("unseen", argv, flags)
    options = bench.options
    size = options.size or (0.01 if bench.quick else 1.0)
    wanted = options.questions or (12 if bench.quick else QUESTIONS)
    graphs = [GRAPHS[options.graph]] if options.graph else list(GRAPHS.values())
    present = [] if options.ours else [rival for rival in rivals if rival.present()]
    root = options.data or Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    outcomes: list[Outcome] = []
    try:
        for number, graph in enumerate(graphs):
            count = wanted * (number + 1) // len(graphs) - wanted * number // len(graphs)
            outcomes += asked(bench, graph, root / f"{graph.name}-{size}", size, count, [OURS, *present])
            if options.worst and present:
                options.worst.write_text(listed(worst(outcomes, WORST), plans=True) + "\n", encoding="utf-8")
    finally:
        if options.data is None:
            shutil.rmtree(root)
    finish(bench, outcomes, full=size >= 1 and len(present) == len(RIVALS) and wanted >= 200)


def asked(
    bench: Benchmark, graph: Graph, place: Path, size: float, count: int, contenders: list[Contender]
) -> list[Outcome]:
    """Put so many questions to a graph."""
    store(graph, place, size, contenders)
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        running = {
            contender.name: stack.enter_context(Running(contender, place / contender.name, graph.name, "open"))
            for contender in contenders
        }
        race = Race(running, place)
        drawn = possible(bench.options.seed, graph, place, size)
        while len(outcomes) < count:
            outcome = race.run(next(drawn))
            if outcome is None:
                continue
            outcomes.append(outcome)
            print(line(len(outcomes), outcome), flush=True)
            others = {name: timing for name, timing in outcome.timings.items() if name != NAME}
            bench.comparisons.append(Comparison(outcome.text, outcome.timings[NAME], others))
        slow = {id(outcome) for outcome in worst(outcomes, WORST)} if bench.options.worst else set()
        return [replace(one, plan=race.plan(one)) if id(one) in slow else one for one in outcomes]


def store(graph: Graph, place: Path, size: float, contenders: list[Contender]) -> None:
    if not (place / "files").exists():
        write_files(graph, place / "files", size)
    for contender in contenders:
        if not (place / contender.name).exists():
            contender.store(place / "files", place / contender.name, graph.name)


def possible(seed: int, graph: Graph, place: Path, size: float) -> Iterator[Question]:
    """The questions of a seed that an engine may be able to answer."""
    estimates = Estimates(place / "files")
    for question in questions(seed, graph, size, extensions()):
        most = MOST_COUNTED if "returns count" in question.features else MOST_ROWS
        if estimates.rows(question) <= most:
            yield question


def finish(bench: Benchmark, outcomes: list[Outcome], *, full: bool) -> None:
    for outcome in outcomes:
        if outcome.wrong:
            print(f"\n{outcome.wrong} gives another answer ({outcome.question.graph})\n{outcome.text}")
    compared = [outcome for outcome in outcomes if len(outcome.timings) > 1 and outcome.wrong != NAME]
    if compared:
        overall = summarise(compared)
        slowest = worst(compared, WORST)
        print(f"\nthe {len(slowest)} slowest, as a share of the best peer\n\n{listed(slowest)}\n")
        if full:
            bench.goal("median, against the best peer", overall.median, limit=0.4, unit="×")
            bench.goal("90th percentile, against the best peer", overall.p90, limit=1, unit="×")
            bench.goal("99th percentile, against the best peer", overall.p99, limit=2.5, unit="×")
            bench.goal("geometric mean, against the best peer", overall.mean, limit=0.33, unit="×")
    wrong = sum(outcome.wrong == NAME for outcome in outcomes)
    bench.goal("answers that differ from those of the peers", wrong, limit=0)
    bench.finish()


if __name__ == "__main__":
    main()
