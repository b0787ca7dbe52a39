"""Arguments of a wrong type give an error of the library, never another exception."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import InputError, OmnigraphError

SCHEMA = """
node P { k: String @key  n: I32? }
node Q { k: String @key }
edge E: P -> Q { w: I32? }
"""

WRONG: list[Any] = [
    1,
    1.5,
    float("nan"),
    -1,
    10**30,
    True,
    b"x",
    [],
    [1],
    {},
    ("P", "1"),
    object(),
    "",
    "\0",
    "x" * 300,
    "../..",
    "é",
    datetime(2026, 3, 14, tzinfo=UTC),
    timedelta.max,
    timedelta(days=-1),
]


def calls(graph: Any, commit: str) -> dict[str, Callable[[Any], object]]:
    """Calls that take one argument each, and write nothing."""
    schema = "node P { k: String @key }"
    return {
        "plan": graph.schema.plan,
        "plan allow": lambda given: graph.schema.plan(schema, allow=given),
        "show at": lambda given: graph.schema.show(at=given),
        "diff before": lambda given: graph.diff(given, "main").stat(),
        "diff after": lambda given: graph.diff("main", given).stat(),
        "diff types": lambda given: graph.diff(commit, "b", types=given).stat(),
        "diff ids": lambda given: graph.diff(commit, "b", ids=given).stat(),
        "diff ops": lambda given: graph.diff(commit, "b", ops=given).stat(),
        "diff item": lambda given: graph.diff(commit, "b")[given],
        "merge resolutions": lambda given: graph.merge("b", resolutions=given, preview=True),
        "update resolutions": lambda given: graph.branches.update("b", resolutions=given, preview=True),
        "revert resolutions": lambda given: graph.revert(commit, resolutions=given, preview=True),
        "poll kinds": lambda given: graph.changes.poll(kinds=given),
        "poll types": lambda given: graph.changes.poll(types=given),
        "poll ops": lambda given: graph.changes.poll(ops=given),
        "poll cursor": lambda given: graph.changes.poll(cursor=given),
        "poll start": lambda given: graph.changes.poll(start=given),
        "changes of": graph.changes.of,
        "baseline types": lambda given: list(graph.changes.baseline(types=given)),
        "log at": lambda given: graph.log("P", "1", at=given),
        "blame property": lambda given: graph.blame("P", "1", given),
        "commits limit": lambda given: graph.commits.list(limit=given),
        "commits cursor": lambda given: graph.commits.list(cursor=given),
        "cleanup keep": lambda given: graph.cleanup(keep=given, preview=True),
        "cleanup older": lambda given: graph.cleanup(older_than=given, preview=True),
        "cleanup orphans": lambda given: graph.cleanup(keep=9, orphans_older_than=given, preview=True),
        "entity at": lambda given: graph.entity("P", "1", at=given),
        "query at": lambda given: graph.query("query q() { match { $p: P } return { $p.k } }", at=given),
        "restore at": lambda given: graph.restore("P", "1", at=given, preview=True),
    }


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with omnigraph.init(tmp_path_factory.mktemp("wrong") / "g", SCHEMA) as graph:
        graph.load([{"type": "P", "data": {"k": "1", "n": 1}}], mode="append")
        graph.branches.create("b")
        yield graph


def test_no_wrong_argument_gives_a_foreign_exception(graph: Any) -> None:
    foreign = []
    for name, call in calls(graph, graph.branch().head.id).items():
        for given in WRONG:
            try:
                call(given)
            except OmnigraphError:
                pass
            except Exception as error:
                foreign.append((name, repr(given)[:40], repr(error)))
    assert foreign == []


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("merge resolutions", [("P", "1")], "resolutions: .* is not a mapping"),
        ("diff before", 1.5, "1.5 is not a state of a graph"),
        ("log at", ["main"], "is not a state of a graph"),
        ("diff item", b"P", "is not the name of a type"),
        ("diff types", 3, "types: 3 is neither a text nor a list of texts"),
        ("poll kinds", 3, "kinds: 3 is neither a text nor a list of texts"),
        ("poll ops", b"insert", "ops: .* is neither a text nor a list of texts"),
        ("blame property", 3, "3 is not the name of a property"),
        ("plan", "\0", "is not a schema"),
        ("commits limit", 1.5, "limit must be a number of at least 1, not 1.5"),
        ("cleanup keep", 1.5, "keep: 1.5 is not a number of commits"),
        ("cleanup older", 7, "older_than: 7 is not an age"),
        ("cleanup older", timedelta.max, "older_than: .* is not an age"),
        ("cleanup orphans", None, "orphans_older_than: null is not an age"),
    ],
)
def test_the_message_names_the_argument(graph: Any, name: str, given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        calls(graph, graph.branch().head.id)[name](given)


def test_a_huge_limit_returns_all_commits(graph: Any) -> None:
    assert graph.commits.list(limit=10**30).commits == tuple(graph.commits)
