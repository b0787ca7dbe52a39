"""Commit metadata is checked before a write begins, so that recovery never fails because of invalid metadata."""

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
    """No sidecar is left, and the next write succeeds."""
    assert sidecars(graph) == []
    assert ids(graph) == sorted(SEED)
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "next"])
    assert_whole(graph)


@pytest.mark.parametrize("field", ["actor", "message", "expect_head", "idempotency_key"])
@pytest.mark.parametrize("wrong", [*WRONG_TEXTS, "x" * (LONGEST_TEXT + 1)], ids=lambda value: repr(value)[:20])
def test_metadata_that_is_not_valid_text_is_refused(graph: Graph, field: str, wrong: Any) -> None:
    with pytest.raises(InputError, match=field.split("_", maxsplit=1)[0]):
        put(graph, ["new"], **{field: wrong})
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
def test_labels_that_are_not_valid_text_are_refused(graph: Graph, labels: Any) -> None:
    with pytest.raises(InputError, match="label"), graph.branch().transaction(labels=labels):
        raise AssertionError("it does not even begin")
    if isinstance(labels, Mapping):
        with pytest.raises(InputError, match="label"):
            put(graph, ["new"], labels=tuple(labels.items()))
    still_works(graph)


def test_a_duplicate_label_is_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="duplicate label 'a'"):
        put(graph, ["new"], labels=(("a", "1"), ("a", "2")))
    still_works(graph)


def test_an_empty_idempotency_key_is_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="the idempotency key is empty"):
        put(graph, ["new"], idempotency_key="")
    with pytest.raises(InputError, match="the idempotency key is empty"):
        graph.load({"A": []}, mode="append", idempotency_key="")
    with pytest.raises(InputError, match="the idempotency key is empty"):
        graph.branch().transaction(idempotency_key="")
    with pytest.raises(InputError, match="the idempotency key is empty"):
        graph.mutate('query q() { insert A { k: "x" } }', idempotency_key="")
    still_works(graph)


def test_a_load_with_invalid_metadata_fails_before_it_reads_its_input(graph: Graph, tmp_path: Path) -> None:
    wrong: Any = 5
    with pytest.raises(InputError, match="the message"):
        graph.load(tmp_path / "gone.ndjson", mode="append", message=wrong)


@pytest.mark.parametrize("wrong", WRONG_TEXTS, ids=repr)
def test_an_actor_that_is_not_valid_text_is_refused(place: Path, tmp_path: Path, wrong: Any) -> None:
    omnigraph.init(place, SCHEMA).close()
    with pytest.raises(InputError, match="the actor"):
        omnigraph.open(place, actor=wrong)
    with pytest.raises(InputError, match="the actor"):
        omnigraph.init(tmp_path / "other", SCHEMA, actor=wrong)
    assert not (tmp_path / "other").exists()


def test_valid_metadata_is_stored_unchanged(graph: Graph) -> None:
    labels = {"ü\0": "\U0001f600", "b": "x" * LONGEST_TEXT, "a": ""}
    made = put(graph, ["new"], labels=tuple(labels.items()), message="", actor="é" * (LONGEST_NAME // 2))
    assert dict(made.labels) == labels
    assert [name for name, _ in made.labels] == sorted(labels)
    found = graph.commits.get(made.id)
    assert (found.labels, found.message, found.actor) == (made.labels, "", "é" * (LONGEST_NAME // 2))


def test_a_label_of_the_engine_overrides_a_label_of_the_caller(graph: Graph) -> None:
    request = WriteRequest(labels=(("a", "mine"), ("b", "mine")))
    write = table_write("node:A", Operation.APPEND, ["new"])
    made = graph.write_tables(request, lambda _: Prepared([write], (("a", "engine"),)))
    assert made is not None
    assert made.labels == (("a", "engine"), ("b", "mine"))


def test_a_commit_that_cannot_be_serialised_leaves_no_sidecar(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata that passes the checks but cannot be serialised fails before the sidecar is written."""

    def refuse(value: object) -> str:
        raise TypeError("not serializable")

    monkeypatch.setattr(manifest_rows, "_json", refuse)
    with pytest.raises(TypeError):
        put(graph, ["new"])
    monkeypatch.undo()
    still_works(graph)


def test_a_sidecar_with_invalid_metadata_is_named_in_the_error(graph: Graph, place: Path) -> None:
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
