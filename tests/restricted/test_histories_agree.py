"""Exports, diffs, the change feed and histories of a restricted session are those of the visible graph.

A random history has the full state of each commit. A rule is a condition and the same condition in Python, so the
expected changes are the differences of states from which hidden rows were removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.changes.histories import SCHEMA, History, Key, State, expected_changes, state_of
from tests.changes.test_histories import check_filters, check_images, flat, same_entity

import omnigraph
from omnigraph.changes.feed import ChangeBlock
from omnigraph.changes.row_images import OPS
from omnigraph.engine.row_scope import RowRules, Rows
from omnigraph.errors import ChangeCursorError, NotFoundError
from omnigraph.graph import Graph
from omnigraph.restricted import table_view
from omnigraph.testing import thresholds

Row = Mapping[str, Any]
GROUPS = tuple(f"k{i}" for i in range(0, 12, 2))
CONDITIONS: dict[str, list[tuple[str, Callable[[Row], bool]]]] = {
    "node:A": [
        ("$.n is null or $.n = 2", lambda row: row["n"] in (None, 2)),
        ("$.k in $groups", lambda row: row["k"] in GROUPS),
        ("$.x is not null", lambda row: row["x"] is not None),
        ("not ($.n = 1)", lambda row: row["n"] not in (None, 1)),
    ],
    "node:B": [
        ("$.k in $groups", lambda row: row["k"] in GROUPS),
        ("$.v is not null", lambda row: row["v"] is not None),
    ],
    "edge:AB": [("$.n is not null", lambda row: row["n"] is not None)],
    "edge:Same": [("$.w is null", lambda row: row["w"] is None), ("$.w > 0.0", lambda row: (row["w"] or 0) > 0)],
}
MASKS = {"node:A": ("x", "data", "at"), "edge:AB": ("n",), "edge:Same": ("w",), "node:B": ("v",)}
ENDS = {"edge:AB": ("node:A", "node:B"), "edge:Same": ("node:A", "node:A")}


def _any_row(row: Row) -> bool:
    return True


class Scope:
    """Random rules, and the visible part of a state."""

    def __init__(self, random: Random) -> None:
        chosen = {key: random.choice(choices) for key, choices in CONDITIONS.items() if random.random() < 0.6}
        self.masks = {key: [name for name in names if random.random() < 0.2] for key, names in MASKS.items()}
        self.hidden = {key for key in CONDITIONS if random.random() < 0.08}
        self.tests: dict[str, Callable[[Row], bool]] = {key: test for key, (_, test) in chosen.items()}
        types: dict[str, str | Rows] = {key: text for key, (text, _) in chosen.items()}
        self.rules = RowRules(types | dict.fromkeys(self.hidden, Rows.HIDDEN), self.masks, "k1", GROUPS)

    def visible(self, state: State) -> State:
        shown: State = {}
        for key in sorted(state, reverse=True):  # nodes first
            kind, _ = key
            row = state[key]
            if kind in self.hidden or not self.tests.get(kind, _any_row)(row):
                continue
            if kind in ENDS and any(
                (end, row[at]) not in shown for end, at in zip(ENDS[kind], ("from", "to"), strict=True)
            ):
                continue
            shown[key] = {name: value for name, value in row.items() if name not in self.masks.get(kind, ())}
        return shown


@pytest.fixture
def history(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    number = request.getfixturevalue("number")
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        made = History(graph, Random(number))
        for _ in range(14):
            made.step()
        with thresholds(table_view, FEW_ROWS=(1_000, 3)[number % 2]):
            yield made


def views(history: History, number: int, count: int = 3) -> Iterator[tuple[Scope, Graph]]:
    for each in range(count):
        scope = Scope(Random(f"{number}/{each}"))
        yield scope, history.graph.restricted(scope.rules)


NUMBERS = [0, 5, *(pytest.param(number, marks=pytest.mark.soak) for number in range(6, 200))]


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_an_export_has_the_visible_entities(history: History, number: int) -> None:
    for scope, graph in views(history, number):
        for commit, state in history.states.items():
            assert state_of(graph.export(at=commit)) == scope.visible(state), scope.rules


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_the_diff_of_any_two_commits_is_the_difference_of_their_visible_states(history: History, number: int) -> None:
    random = Random(number)
    for scope, graph in views(history, number):
        commits = list(history.states)
        for _ in range(12):
            before, after = random.choice(commits), random.choice(commits)
            expected = expected_changes(*(scope.visible(history.states[one]) for one in (before, after)))
            diff = graph.diff(before, after)
            found: dict[Key, tuple[str, set[str]]] = {}
            for one in diff:
                ops = []
                for batch in one.batches():
                    for row in batch.to_pylist():
                        found[one.key, row["id"]] = row["op"], set(row["changed"] or ())
                        ops.append(row["op"])
                counts = one.counts
                assert [counts.inserts, counts.updates, counts.deletes] == [ops.count(op.value) for op in OPS]
            assert found == expected, (scope.rules, before, after)
            check_images(diff.to_json(), *(scope.visible(history.states[one]) for one in (before, after)))
            if not scope.hidden:
                check_filters(graph, before, after, expected, random)


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_the_feed_has_the_changes_of_visible_states(history: History, number: int) -> None:
    commits = list(history.graph.commits)[::-1]
    for scope, graph in views(history, number):
        blocks: list[ChangeBlock] = []
        page = graph.changes.poll(start="beginning", max_commits=500)
        blocks += page.blocks
        while page.next_page_token is not None:
            page = graph.changes.poll(page_token=page.next_page_token)
            blocks += page.blocks
        assert [block.cause.commit.id for block in blocks] == [commit.id for commit in commits[1:]]
        for before, block in zip(commits, blocks, strict=False):
            after = block.cause.commit.id
            expected = expected_changes(*(scope.visible(history.states[one]) for one in (before.id, after)))
            found = {(f"{one.kind}:{one.type_name}", one.id): one for one in block.changes}
            assert {key: one.op.value for key, one in found.items()} == {k: op for k, (op, _) in expected.items()}
            for key, one in found.items():
                for image, state in ((one.before, before.id), (one.after, after)):
                    if image is not None:
                        assert same_entity(flat(image), scope.visible(history.states[state])[key])
            assert block.cause.commit.counts is None
            assert block.cause.commit.members == ()
            assert {one.id for one in graph.changes.of(after, limit=8000).changes} == {one.id for one in block.changes}


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_a_baseline_has_the_visible_entities(history: History, number: int) -> None:
    for scope, graph in views(history, number):
        assert state_of(graph.changes.baseline().lines()) == scope.visible(history.state("main"))


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_an_entity_log_has_the_visible_changes(history: History, number: int) -> None:
    commits = [commit.id for commit in list(history.graph.commits)[::-1]]
    for scope, graph in views(history, number):
        states = [scope.visible(history.states[one]) for one in commits]
        for key in sorted({key for state in history.states.values() for key in state}):
            expected = []
            for before, after, commit in zip([{}, *states], states, commits, strict=False):
                change = expected_changes(
                    {key: before[key]} if key in before else {}, {key: after[key]} if key in after else {}
                )
                expected += [(commit, op) for op, _ in change.values()]
            try:
                log = graph.log(*key, follow=False)
            except NotFoundError:
                assert not expected, (scope.rules, key)
                continue
            assert [(one.until_commit, one.operation.value) for one in log][::-1] == expected, (scope.rules, key)
            text = json.dumps(log.to_json(), default=str)
            assert '"changed"' not in text
            for name in scope.masks.get(key[0], ()):
                assert all(name not in (one.after or {}) and name not in one.properties for one in log)


def test_a_cursor_of_another_scope_is_rejected(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load([{"type": "A", "data": {"k": "k1", "n": 1}}], mode="append")
        one, other = (graph.restricted(RowRules({"node:A": rule})) for rule in ("$.n = 1", "$.n = 2"))
        cursor = one.changes.poll(start="beginning").cursor
        assert cursor is not None
        assert one.changes.poll(cursor=cursor).blocks == ()
        for reader in (other, graph):
            with pytest.raises(ChangeCursorError):
                reader.changes.poll(cursor=cursor)
