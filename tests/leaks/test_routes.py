"""No route tells an actor anything of what is hidden from it.

For each actor there are two graphs that are equal in all that it may see. The same requests to both have the same
answers, byte for byte, except for ids, times and the address of the graph. Every operation of the server takes part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.leaks.normal import Normal
from tests.leaks.probes import ARROW, LAST, READS, WRITES, Probe, Probes, all_merges
from tests.leaks.worlds import ACTORS, TOKENS, Hidden, World, build
from tests.server.conftest import LIMITS, Answer, Client, serving

from omnigraph.server.app import OPERATIONS, create_app
from omnigraph.server.served_graphs import GraphConfig

_VOLATILE = ("date", "server", "x-request-id")
_TIMED = ("_seconds", "_disconnects")
"""Metrics that depend on time."""


@dataclass(frozen=True)
class Served:
    """A graph of a pair, behind a server."""

    world: World
    client: Client
    normal: Normal

    def answer(self, probe: Probe) -> str:
        """The answer to a request, without what differs between equal graphs."""
        media = probe.media
        sent = self.client.send(probe.method, probe.path, probe.body, headers=dict(probe.headers), media_type=media)
        return self.normal.text(_shown(probe, sent))


def _shown(probe: Probe, answer: Answer) -> str:
    headers = {name: text for name, text in sorted(answer.headers.items()) if name not in _VOLATILE}
    body: Any
    if headers.get("content-type") == ARROW:
        table = pa.ipc.open_stream(answer.body).read_all()
        body = [str(table.schema), table.to_pylist()]
        headers.pop("content-length", None)
    else:
        body = answer.body.decode("latin-1")
    if probe.path == "//metrics":
        body = "\n".join(line for line in body.splitlines() if not any(one in line for one in _TIMED))
        headers.pop("content-length", None)
    return f"{answer.status}\n{json.dumps(headers)}\n{_in_order(body)}"


def _in_order(body: Any) -> str:
    """The body with the changes of a commit in the order of their types. Their own order comes from random ids."""
    try:
        found = json.loads(body)
    except (TypeError, ValueError):
        return str(body)
    _sort_changes(found)
    return json.dumps(_without_request_id(found))


def _sort_changes(value: Any) -> None:
    if isinstance(value, dict):
        for member, part in value.items():
            _sort_changes(part)
            if member == "changes" and isinstance(part, list):
                part.sort(key=lambda one: json.dumps([one.get("kind"), one.get("id"), one.get("op")]))
            if member == "type" and isinstance(part, dict) and "id" in part:
                part["id"] = "<type>"
    elif isinstance(value, list):
        for part in value:
            _sort_changes(part)


def _without_request_id(value: Any) -> Any:
    return {name: one for name, one in value.items() if name != "request_id"} if isinstance(value, dict) else value


@pytest.fixture(params=ACTORS)
def actor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def served(actor: str, hidden: Hidden, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Served]]:
    """Two graphs that only differ in some hidden parts, each behind a server."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    monkeypatch.setenv("OMNIGRAPH_DENIALS", str(path / "denials.jsonl"))
    with ExitStack() as servers:
        found = []
        for name, parts in (("one", Hidden.NOTHING), ("two", hidden)):
            world = build(path / name, parts)
            config = GraphConfig(str(world.root), world.queries, policy=world.policy)
            client = servers.enter_context(serving(create_app({"g": config}, tokens=TOKENS, limits=LIMITS)))
            found.append(Served(world, client.with_token(TOKENS[actor]), Normal(str(world.root), world.names)))
        yield found[0], found[1]


@pytest.fixture
def pair(actor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Served]]:
    """Two graphs that only differ in what is hidden from the actor."""
    with served(actor, ACTORS[actor], tmp_path, monkeypatch) as found:
        yield found


def _probes_of(actor: str) -> Mapping[str, Probes]:
    """The requests that write. Actors that see all branches also merge those."""
    sees_all = Hidden.BRANCHES not in ACTORS[actor] or actor in ("idle", "stranger")
    return WRITES | {"merge_branches": all_merges} if sees_all else WRITES


def test_every_operation_takes_part() -> None:
    """If this fails: add requests to the new operation to `probes.py`."""
    assert {one.id for one in OPERATIONS} == {*READS, *WRITES, *LAST}


def test_answers_do_not_depend_on_what_is_hidden(pair: tuple[Served, Served], actor: str) -> None:
    one, two = pair
    report: list[str] = []
    statuses: set[str] = set()
    for group in (_probes_of(actor), READS, LAST):
        for name, probes in group.items():
            for first, second in zip(probes(one.world), probes(two.world), strict=True):
                answers = one.answer(first), two.answer(second)
                statuses.add(answers[0][:3])
                if answers[0] != answers[1]:
                    lines = unified_diff(answers[0].splitlines(), answers[1].splitlines(), n=0, lineterm="")
                    report += [f"{name}: {first}", *islice(lines, 3, None), ""]
    assert not report, "answers differ:\n" + "\n".join(report)
    assert statuses >= ({"403"} if actor in ("idle", "stranger") else {"200", "400", "403", "404"})


@pytest.mark.parametrize(
    ("hidden", "actor", "operation"),
    [
        (Hidden.ROWS, "masks", "query"),
        (Hidden.VALUES, "rows", "query"),
        (Hidden.TYPES, "rows", "get_schema"),
        (Hidden.BRANCHES, "rows", "list_branches"),
        (Hidden.BRANCHES, "rows", "get_commit"),
    ],
)
def test_an_actor_that_may_see_the_difference_gets_other_answers(
    hidden: Hidden, actor: str, operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(actor, hidden, tmp_path, monkeypatch) as (one, two):
        probes = READS[operation]
        pairs = [(one.answer(a), two.answer(b)) for a, b in zip(probes(one.world), probes(two.world), strict=True)]
    assert any(first != second for first, second in pairs)
