"""Asks all engines a question, compares their answers, and takes their times in turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from asking import cypher, gq, sql
from asking.compare import same
from asking.question import Question
from harness import Timing

LIMIT = 10.0
"""Seconds that a question may take. An engine that does not finish counts with these."""
PATIENCE = 120.0
"""Seconds for the engine that decides when two others disagree."""
OURS = "ours"
RENDER = {OURS: gq.render, "duckdb": sql.render, "ladybug": cypher.render}
SAMPLE_SECONDS = 0.02
FIRST_CALL_SECONDS, SLOWER = 1.0, 3.0
"""A peer may take this many seconds, and this many times as long as an earlier peer, until it is stopped."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The times of one question."""

    question: Question
    timings: Mapping[str, Timing]
    stopped: Mapping[str, str]
    """The engines that did not finish, and why."""
    wrong: str = ""
    """The engine that disagrees with the others."""
    plan: str = ""

    @property
    def text(self) -> str:
        return RENDER[OURS](self.question)

    @property
    def ours(self) -> float:
        return self.timings[OURS].median

    @property
    def best(self) -> float:
        return min(timing.median for name, timing in self.timings.items() if name != OURS)

    @property
    def ratio(self) -> float:
        """Our time as a share of that of the best peer."""
        return self.ours / self.best


class Orders(Protocol):
    """A process that takes the orders of `serve`."""

    def order(self, *words: object) -> object: ...


class Race:
    """Engines that have the same graph open."""

    def __init__(self, running: Mapping[str, Orders], folder: Path) -> None:
        self._running = running
        self._folder = folder

    def run(self, question: Question) -> Outcome | None:
        """The times, or None if no peer finishes with the right answer."""
        texts = {name: RENDER[name](question) for name in self._running}
        peers = [name for name in texts if name != OURS]
        first: dict[str, float] = {}
        stopped: dict[str, str] = {}
        for name in [*peers, OURS]:
            if name == OURS and peers and not first:
                return None
            limit = LIMIT if name == OURS else _limit(first)
            taken = self._order(name, "answer", texts[name], limit, str(self._folder / f"{name}.arrow"))
            if isinstance(taken, float):
                first[name] = taken
            else:
                stopped[name] = taken
        wrong = self._wrong(texts, list(first))
        right = {name: taken for name, taken in first.items() if name == OURS or name != wrong}
        if peers and not set(right) & set(peers):
            return None
        timings = self._times(texts, right)
        timings |= {name: Timing(name, (LIMIT,)) for name in stopped}
        return Outcome(question, timings, stopped, wrong)

    def plan(self, outcome: Outcome) -> str:
        reply = self._running[OURS].order("explain", outcome.text)
        assert isinstance(reply, list)
        return str(reply[1])

    def _wrong(self, texts: Mapping[str, str], finished: list[str]) -> str:
        """The engine that disagrees with the others: that with fewer on its side, and ours if there are as many."""
        sides = self._sides(finished)
        if len(sides) < 2:
            return ""
        # The other peer decides, and gets the time that it needs.
        late = [name for name in texts if name not in finished and self._asked(name, texts[name], PATIENCE)]
        sides = sorted(self._sides([*finished, *late]), key=lambda side: (len(side), OURS not in side))
        return next((name for name in sides[0] if name in finished), "")

    def _asked(self, name: str, text: str, seconds: float) -> bool:
        return isinstance(self._order(name, "answer", text, seconds, str(self._folder / f"{name}.arrow")), float)

    def _sides(self, names: list[str]) -> list[list[str]]:
        """The engines, grouped by their answers."""
        sides: list[tuple[pa.Table, list[str]]] = []
        for name in names:
            answer = self._read(name)
            side = next((members for other, members in sides if same(other, answer)), None)
            if side is None:
                sides.append((answer, [name]))
            else:
                side.append(name)
        return [members for _, members in sides]

    def _read(self, name: str) -> pa.Table:
        with pa.memory_map(str(self._folder / f"{name}.arrow")) as source:
            return pa.ipc.open_file(source).read_all()

    def _times(self, texts: Mapping[str, str], first: Mapping[str, float]) -> dict[str, Timing]:
        """Samples of each engine, in turns: the longer a question takes, the fewer."""
        slowest = max(first.values(), default=0)
        rounds = 5 if slowest < 0.3 else 3 if slowest < 2 else 1
        samples: dict[str, list[float]] = {name: [] for name in first}
        for round_ in range(rounds):
            names = list(first)
            at = round_ % len(names)
            for name in names[at:] + names[:at]:
                repeats = min(max(int(SAMPLE_SECONDS / first[name]), 1), 20)
                taken = self._order(name, "sample", texts[name], LIMIT, repeats)
                samples[name].append(taken if isinstance(taken, float) else LIMIT)
        return {name: Timing(name, tuple(taken)) for name, taken in samples.items()}

    def _order(self, name: str, *words: object) -> float | str:
        """The seconds that it took, or why it stopped."""
        reply = self._running[name].order(*words)
        assert isinstance(reply, list)
        return float(reply[1]) if reply[0] == "done" else str(reply[1])


def _limit(first: Mapping[str, float]) -> float:
    """Seconds for the next peer. Only the best one counts, so a peer that is much slower than another may stop."""
    return min([LIMIT, *(FIRST_CALL_SECONDS + SLOWER * taken for taken in first.values())])
