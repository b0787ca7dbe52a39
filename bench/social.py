"""A public study of embedded graph databases, with its nine questions and walks besides, against four other engines.

100,000 persons who live in cities, have interests, and follow each other 2.4 million times. Each engine runs in a
process of its own, with the data stored and opened the way its documentation advises, and takes the time of its own
answers; they take turns. Every answer has to be the same. The walks also stand beside plain numpy on arrays laid out
for them. Then fresh processes: from nothing to the first answer.

Flags: `--persons N` for another size, `--rounds N`, `--only q1,hop2`, and `--skip-cold`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness import Benchmark, Comparison, Timing
from study.contender import FLOOR, OURS, RIVALS, Contender, Running
from study.data import PERSONS, write_files
from study.questions import LONG_WALKS, QUESTIONS, WALKS

COLD = ("point", "hop1", "q3", "q8")
DIGITS = 9


class DifferentError(Exception):
    """Two contenders gave different answers, so their times mean nothing."""


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--persons", type=int, help="another size")
    parser.add_argument("--rounds", type=int, help="how often everyone takes a turn")
    parser.add_argument("--only", type=lambda text: text.split(","), help="some of the questions")
    parser.add_argument("--skip-cold", action="store_true", help="no fresh processes")


def main(argv: list[str] | None = None, rivals: tuple[Contender, ...] = RIVALS) -> None:
    bench = Benchmark("social", argv, flags)
    persons = bench.options.persons or (2_000 if bench.quick else PERSONS)
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        write_files(root / "files", persons)
        present = [rival for rival in rivals if rival.present()]
        for contender in (OURS, FLOOR, *present):
            contender.store(root / "files", root / contender.name)
        warm(bench, root, persons, present)
        if not bench.options.skip_cold:
            cold(bench, root, persons, present)
    finally:
        shutil.rmtree(root)
    bench.finish()


# ---- warm


def warm(bench: Benchmark, root: Path, persons: int, rivals: list[Contender]) -> None:
    full = persons >= PERSONS
    rounds = bench.options.rounds or (3 if bench.quick else 9)
    gains = []
    with ExitStack() as stack:
        running = {
            contender.name: stack.enter_context(Running(contender, root / contender.name, persons))
            for contender in (OURS, FLOOR, *rivals)
        }
        for question in bench.options.only or QUESTIONS:
            asked = {name: one for name, one in running.items() if name != FLOOR.name or question in WALKS}
            agree(question, {name: one.answer(question, root / f"{name}.arrow") for name, one in asked.items()})
            timings = race(question, asked, rounds)
            ours = timings.pop(OURS.name)
            bench.add(Comparison(f"{question}: {QUESTIONS[question]}", ours, timings))
            floor = timings.get(FLOOR.name)
            others = [timing.median for name, timing in timings.items() if name != FLOOR.name]
            if others:
                gains.append(min(others) / ours.median)
            if others and full:
                bench.goal(f"{question}, against the best of the others", 1 / gains[-1], limit=1, unit="×")
            if floor is not None and full and question in LONG_WALKS:
                bench.goal(f"{question}, against numpy", ours.median / floor.median, limit=3, unit="×")
    if gains:
        print()
        mean = statistics.geometric_mean(gains)
        print(f"the best of the others takes {mean:.1f} × as long, in the geometric mean of {len(gains)} questions")
        if full and bench.options.only is None:
            bench.goal("geometric mean, against the best of the others", mean, limit=5, unit="×", at_least=True)


def race(question: str, contenders: Mapping[str, Running], rounds: int) -> dict[str, Timing]:
    """Each contender once a round, in turns, when all are warm. They take the time themselves."""
    repeats = {name: one.order("warm", question) for name, one in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for round_ in range(rounds):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            taken = contenders[name].order("sample", question, repeats[name])
            assert isinstance(taken, float)
            samples[name].append(taken)
    return {name: Timing(name, tuple(taken)) for name, taken in samples.items()}


def agree(question: str, answers: Mapping[str, pa.Table]) -> None:
    """See that all answers have the same rows, in whatever order.

    Raises:
        DifferentError: they do not.
    """
    names = list(answers)
    plain = {name: comparable(answer) for name, answer in answers.items()}
    for name in names[1:]:
        if not plain[name].equals(plain[names[0]]):
            rows = {which: plain[which].slice(0, 5).to_pylist() for which in (names[0], name)}
            raise DifferentError(f"{question}: {names[0]} and {name} differ: {rows}")


def comparable(answer: pa.Table) -> pa.Table:
    """The rows in an order of their own, and in types that do not tell who made them."""
    plain = pa.table({name: _plain(answer[name]) for name in sorted(answer.column_names)})
    return plain.sort_by([(name, "ascending") for name in plain.column_names]).combine_chunks()


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        return pc.round(column.cast(pa.float64()), DIGITS)
    return column.cast(pa.utf8())


# ---- cold


def cold(bench: Benchmark, root: Path, persons: int, rivals: list[Contender]) -> None:
    contenders = [OURS, *rivals]
    rounds = bench.options.rounds or (1 if bench.quick else 7)
    for question in COLD:
        samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for round_ in range(rounds):
            first = round_ % len(contenders)
            for contender in contenders[first:] + contenders[:first]:
                file = root / f"{contender.name}.arrow"
                samples[contender.name].append(contender.cold(root / contender.name, persons, question, file))
        timings = {name: Timing(name, tuple(taken)) for name, taken in samples.items()}
        ours = timings.pop(OURS.name)
        bench.add(Comparison(f"a new process, {question}: {QUESTIONS[question]}", ours, timings))


if __name__ == "__main__":
    main()
