"""No call of the Python interface tells an actor anything of what is hidden from it, and no denial is without a record.

As `test_routes.py`, for every member of the handles of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.leaks.calls import READS, WRITES, Calls
from tests.leaks.normal import Normal, plain
from tests.leaks.worlds import ACTORS, Hidden, World, build
from tests.policy.test_enforcement import VERBS

from omnigraph.errors import AccessDeniedError, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.policy.denials import DenialLog


@dataclass(frozen=True)
class Opened:
    """A graph of a pair, as the actor has opened it."""

    world: World
    graph: Graph
    normal: Normal
    log: DenialLog

    def answers(self, calls: Calls) -> Iterator[str]:
        """The results and errors of calls, without what differs between equal graphs."""
        for call in calls(self.graph, self.world):
            before = len(list(self.log.records()))
            found = _outcome(call)
            if isinstance(found, AccessDeniedError):
                assert len(list(self.log.records())) > before, f"a denial without a record: {found}"
            yield self.normal.text(str(_in_order(plain(found))))


def _outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, or its error."""
    try:
        return plain(call())
    except OmnigraphError as error:
        return error


def _in_order(value: Any) -> Any:
    """The value with the changes of a commit in the order of their types. Their own order comes from random ids."""
    if isinstance(value, dict):
        return {name: _in_order(part) for name, part in value.items()}
    if isinstance(value, list):
        parts = [_in_order(part) for part in value]
        is_changes = bool(parts) and all(isinstance(part, dict) and "op" in part for part in parts)
        return sorted(parts, key=lambda part: [part["kind"], part["type_name"]]) if is_changes else parts
    return value


@pytest.fixture(params=ACTORS)
def actor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(actor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Opened, Opened]]:
    """Two graphs that only differ in what is hidden from the actor."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    monkeypatch.setenv("OMNIGRAPH_DENIALS", str(tmp_path / "denials.jsonl"))
    with ExitStack() as held:
        found = []
        for name, hidden in (("one", Hidden.NOTHING), ("two", ACTORS[actor])):
            world = build(tmp_path / name, hidden)
            graph = held.enter_context(world.open(actor))
            found.append(Opened(world, graph, Normal(str(world.root), world.names), DenialLog()))
        yield found[0], found[1]


def test_every_member_takes_part() -> None:
    """If this fails: add calls of the new member to `calls.py`."""
    assert {*READS, *WRITES} == set(VERBS)


def test_results_do_not_depend_on_what_is_hidden(pair: tuple[Opened, Opened]) -> None:
    one, two = pair
    report: list[str] = []
    for name, calls in (WRITES | READS).items():
        for number, (first, second) in enumerate(zip(one.answers(calls), two.answers(calls), strict=True)):
            if first != second:
                lines = unified_diff(first.split(", "), second.split(", "), n=1, lineterm="")
                report += [f"{name}, call {number}:", *islice(lines, 2, 40), ""]
    assert not report, "answers differ:\n" + "\n".join(report)
