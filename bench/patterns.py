"""Questions whose patterns are joins with cycles, skew, aggregates and paths, against DuckDB and ladybug.

The persons of the study (`social.py`) and a small network in the shape of LSQB at scale 0.1, in one database. Each
engine runs in a process of its own and takes the time of its own answers; they take turns. Every answer has to be the
same.

Flags: `--only triangles,mutual`, `--rounds N`, `--persons N` for another size, `--data FOLDER` keeps the stored data
for the next run, and `--ours` asks this engine alone, in this process, so that a profiler sees it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from harness import Benchmark, Comparison
from matching import ours
from matching.data import write_files
from matching.questions import NOT_IN_SQL, QUESTIONS
from social import agree, race
from study.contender import PEERS, Contender, Running
from study.data import PERSONS

HERE = Path(__file__).resolve().parent / "matching"
OURS = Contender("ours", str(HERE / "ours.py"), Path(sys.executable))
RIVALS = (
    Contender("duckdb", str(HERE / "on_duckdb.py"), PEERS, "duckdb"),
    Contender("ladybug", str(HERE / "on_ladybug.py"), PEERS, "ladybug"),
)


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--persons", type=int, help="another size")
    parser.add_argument("--rounds", type=int, help="how often everyone takes a turn")
    parser.add_argument("--only", type=lambda text: text.split(","), help="some of the questions")
    parser.add_argument("--data", type=Path, help="a folder that keeps the stored data for the next run")
    parser.add_argument("--ours", action="store_true", help="this engine alone, in this process")


def main(argv: list[str] | None = None, rivals: tuple[Contender, ...] = RIVALS) -> None:
    bench = Benchmark("patterns", argv, flags)
    options = bench.options
    persons = options.persons or (2_000 if bench.quick else PERSONS)
    root = (options.data or Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))) / str(persons)
    try:
        present = [] if options.ours else [rival for rival in rivals if rival.present()]
        store(root, persons, [OURS, *present])
        if options.ours:
            alone(bench, root, persons)
        else:
            compare(bench, root, persons, present)
    finally:
        if options.data is None:
            shutil.rmtree(root.parent)
    bench.finish()


def store(root: Path, persons: int, contenders: list[Contender]) -> None:
    if not (root / "files").exists():
        write_files(root / "files", persons)
    for contender in contenders:
        if not (root / contender.name).exists():
            contender.store(root / "files", root / contender.name)


def alone(bench: Benchmark, root: Path, persons: int) -> None:
    known = ours.answers(root / OURS.name, persons)
    for question in bench.options.only or QUESTIONS:
        bench.compare(f"{question}: {QUESTIONS[question]}", ours=known[question], rounds=bench.options.rounds or 5)


def compare(bench: Benchmark, root: Path, persons: int, rivals: list[Contender]) -> None:
    rounds = bench.options.rounds or (3 if bench.quick else 7)
    ratios: dict[str, float] = {}
    with ExitStack() as stack:
        running = {
            contender.name: stack.enter_context(Running(contender, root / contender.name, persons))
            for contender in (OURS, *rivals)
        }
        for question in bench.options.only or QUESTIONS:
            asked = {name: one for name, one in running.items() if name != "duckdb" or question not in NOT_IN_SQL}
            agree(question, {name: one.answer(question, root / f"{name}.arrow") for name, one in asked.items()})
            timings = race(question, asked, rounds)
            mine = timings.pop(OURS.name)
            bench.add(Comparison(f"{question}: {QUESTIONS[question]}", mine, timings))
            if timings:
                ratios[question] = mine.median / min(timing.median for timing in timings.values())
    if ratios:
        summarise(bench, ratios, goals=persons >= PERSONS)


def summarise(bench: Benchmark, ratios: dict[str, float], *, goals: bool) -> None:
    print("\nours, as a share of the best of the others")
    for question, ratio in ratios.items():
        print(f"  {question:<12}{ratio:8.3f}")
    mean = statistics.geometric_mean(ratios.values())
    print(f"  {'geometric mean':<12}{mean:6.3f}")
    if not goals:
        return
    for question, ratio in ratios.items():
        bench.goal(f"{question}, against the best of the others", ratio, limit=1, unit="×")
    if len(ratios) == len(QUESTIONS):
        bench.goal("geometric mean, against the best of the others", mean, limit=0.25, unit="×")


if __name__ == "__main__":
    main()
