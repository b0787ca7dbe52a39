"""What is said about a commit is checked before anything moves, so that no write can stop for ever at its words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.commit.graphs import SCHEMA, SEED, Operation, assert_whole, ids, put, sidecars, table_write

import omnigraph
from omnigraph.commit import manifest_rows
from omnigraph.commit.commit_metadata import LONGEST_NAME, LONGEST_TEXT, MOST_LABELS
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.sidecar import pending
from omnigraph.commit.write_request import Prepared, WriteRequest
from omnigraph.errors import CorruptionError, InputError
from omnigraph.graph import Graph

HALF = "\ud800"
WRONG_TEXTS = [5, b"x", ["x"], HALF, f"a{HALF}b"]


def still_works(graph: Graph) -> None:
    """Nothing was left behind, and the next write is a write like any other."""
    assert sidecars(graph) == []
    assert ids(graph) == sorted(SEED)
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "next"])
    assert_whole(graph)


@pytest.mark.parametrize("said", ["actor", "message", "expect_head", "idempotency_key"])
@pytest.mark.parametrize("wrong", [*WRONG_TEXTS, "x" * (LONGEST_TEXT + 1)], ids=lambda value: repr(value)[:20])
def test_what_is_no_text_is_refused(graph: Graph, said: str, wrong: Any) -> None:
    with pytest.raises(InputError, match=said.split("_", maxsplit=1)[0]):
        put(graph, ["new"], **{said: wrong})
    still_works(graph)


@pytest.mark.parametrize(
    "labels",
    [
        {1: "a"},
        {"a": 1},
        {"a": None},
        {HALF: "x"},
        {"x": HALF},
        {"": "x"},
        {"x": "y" * (LONGEST_TEXT + 1)},
        {"x" * (LONGEST_NAME + 1): "y"},
        {1: "a", "b": "c"},
        dict.fromkeys(map(str, range(MOST_LABELS + 1)), "x"),
        [("a", "b")],
    ],
    ids=lambda value: repr(value)[:20],
)
def test_labels_are_texts(graph: Graph, labels: Any) -> None:
    with pytest.raises(InputError, match="label"), graph.branch().transaction(labels=labels):
        raise AssertionError("it does not even begin")
    if isinstance(labels, Mapping):
        with pytest.raises(InputError, match="label"):
            put(graph, ["new"], labels=tuple(labels.items()))
    still_works(graph)


def test_a_label_has_one_value(graph: Graph) -> None:
    with pytest.raises(InputError, match="duplicate label 'a'"):
        put(graph, ["new"], labels=(("a", "1"), ("a", "2")))
    still_works(graph)


def test_a_key_says_something(graph: Graph) -> None:
    with pytest.raises(InputError, match="the idempotency key is empty"):
        put(graph, ["new"], idempotency_key="")
    with pytest.raises(InputError, match="the idempotency key is empty"):
        graph.load({"A": []}, mode="append", idempotency_key="")
    with pytest.raises(InputError, match="the idempotency key is empty"):
        graph.branch().transaction(idempotency_key="")
    with pytest.raises(InputError, match="the idempotency key is empty"):
        graph.mutate('query q() { insert A { k: "x" } }', idempotency_key="")
    still_works(graph)


def test_a_load_is_refused_before_its_input_is_read(graph: Graph, tmp_path: Path) -> None:
    wrong: Any = 5
    with pytest.raises(InputError, match="the message"):
        graph.load(tmp_path / "gone.ndjson", mode="append", message=wrong)


@pytest.mark.parametrize("wrong", WRONG_TEXTS, ids=repr)
def test_an_actor_is_a_text(place: Path, tmp_path: Path, wrong: Any) -> None:
    omnigraph.init(place, SCHEMA).close()
    with pytest.raises(InputError, match="the actor"):
        omnigraph.open(place, actor=wrong)
    with pytest.raises(InputError, match="the actor"):
        omnigraph.init(tmp_path / "other", SCHEMA, actor=wrong)
    assert not (tmp_path / "other").exists()


def test_whatever_fits_is_kept(graph: Graph) -> None:
    labels = {"ü\0": "\U0001f600", "b": "x" * LONGEST_TEXT, "a": ""}
    made = put(graph, ["new"], labels=tuple(labels.items()), message="", actor="é" * (LONGEST_NAME // 2))
    assert dict(made.labels) == labels
    assert [name for name, _ in made.labels] == sorted(labels)
    found = graph.commits.get(made.id)
    assert (found.labels, found.message, found.actor) == (made.labels, "", "é" * (LONGEST_NAME // 2))


def test_what_the_engine_says_comes_before_what_the_caller_says(graph: Graph) -> None:
    request = WriteRequest(labels=(("a", "mine"), ("b", "mine")))
    write = table_write("node:A", Operation.APPEND, ["new"])
    made = graph.write_tables(request, lambda _: Prepared([write], (("a", "engine"),)))
    assert made is not None
    assert made.labels == (("a", "engine"), ("b", "mine"))


def test_what_cannot_be_published_is_not_promised(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever slips past the checks fails before the sidecar is written."""

    def refuse(value: object) -> str:
        raise TypeError("not serializable")

    monkeypatch.setattr(manifest_rows, "_json", refuse)
    with pytest.raises(TypeError):
        put(graph, ["new"])
    monkeypatch.undo()
    still_works(graph)


def test_a_sidecar_that_cannot_be_published_is_named(graph: Graph, place: Path) -> None:
    with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
        put(graph, ["new"])
    (left,) = pending(graph.session.store.objects)
    whole = graph.session.store.objects.get(left.path).data
    members = orjson.loads(whole)
    members["commit"]["labels"] = [[1, "a"]]
    graph.session.store.objects.put(left.path, orjson.dumps(members))
    for attempt in (lambda: omnigraph.open(place), lambda: put(graph, ["next"]), graph.refresh):
        with pytest.raises(CorruptionError, match=left.path):
            attempt()
    graph.session.store.objects.put(left.path, whole)
    graph.refresh()
    assert ids(graph) == sorted([*SEED, "new"])
