"""The distribution of our times as shares of those of the best peer, over all questions and by class."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from asking.race import OURS, Outcome
from harness import duration


@dataclass(frozen=True, slots=True)
class Distribution:
    count: int
    median: float
    p90: float
    p99: float
    mean: float
    """The geometric mean."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Distribution:
        ratios = [outcome.ratio for outcome in outcomes]
        median, p90, p99 = (float(value) for value in np.quantile(ratios, (0.5, 0.9, 0.99)))
        return cls(len(ratios), median, p90, p99, statistics.geometric_mean(ratios))

    def __str__(self) -> str:
        return f"{self.count:6}{self.median:9.3f}{self.p90:9.3f}{self.p99:9.3f}{self.mean:9.3f}"


def summarise(outcomes: list[Outcome]) -> Distribution:
    """Print the distribution of all questions and of each class."""
    classes: dict[str, list[Outcome]] = {}
    for one in outcomes:
        question = one.question
        for name in (f"graph {question.graph}", f"shape {question.shape}", *question.features):
            classes.setdefault(name, []).append(one)
    overall = Distribution.of(outcomes)
    print(f"\n{'ours / best peer':<22}{'count':>6}{'median':>9}{'p90':>9}{'p99':>9}{'mean':>9}")
    print(f"{'all':<22}{overall}")
    for name, members in sorted(classes.items()):
        print(f"{name:<22}{Distribution.of(members)}")
    stops = Counter(
        f"{name} did not finish: {re.sub(r'[0-9.]+', '…', why)[:60]}"
        for one in outcomes
        for name, why in one.stopped.items()
    )
    for why, count in sorted(stops.items()):
        print(f"{count:4} × {why}")
    return overall


def worst(outcomes: list[Outcome], count: int) -> list[Outcome]:
    compared = [outcome for outcome in outcomes if len(outcome.timings) > 1]
    return sorted(compared, key=lambda one: one.ratio, reverse=True)[:count]


def line(number: int, outcome: Outcome) -> str:
    """One question: the times of all engines, and what it is."""
    times = "  ".join(
        f"{name} {'—' if name in outcome.stopped else duration(timing.median):>8}"
        for name, timing in sorted(outcome.timings.items(), key=lambda item: item[0] != OURS)
    )
    ratio = f"{outcome.ratio:7.2f}×" if len(outcome.timings) > 1 else ""
    what = ", ".join((outcome.question.graph, outcome.question.shape, *outcome.question.features))
    return f"{number:4} {times} {ratio}  {what}{f'  {outcome.wrong} differs' if outcome.wrong else ''}"


def listed(outcomes: list[Outcome], *, plans: bool = False) -> str:
    """The questions with their texts, and with our plans if they are wanted."""
    return "\n\n".join(
        "\n".join([line(number, one), one.text, *([one.plan] if plans else [])])
        for number, one in enumerate(outcomes, start=1)
    )
