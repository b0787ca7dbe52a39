"""A schema change whose files cannot be flushed is undone, also if it was already visible."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.commit.graphs import assert_whole
from tests.commit.test_failed_flush import Flushes
from tests.migrate.cases import CASES
from tests.migrate.garden import SCHEMA, content, modelled

from omnigraph.errors import FlushFailedError, WriteUndoneError
from omnigraph.graph import open
from omnigraph.settings import FSYNC

CASE = CASES["everything at once"]


@pytest.fixture
def flushes(place: Path, monkeypatch: pytest.MonkeyPatch) -> Flushes:
    monkeypatch.setenv(FSYNC.name, "1")
    made = Flushes(place)
    monkeypatch.setattr(os, "fsync", made)
    return made


def test_a_visible_schema_change_with_a_failed_flush_is_undone(place: Path, flushes: Flushes) -> None:
    new = CASE.schema(SCHEMA)
    with open(place) as graph:
        before, head = content(graph), graph.snapshot().commit.id
        with flushes.failing_in("__manifest/_versions/"), pytest.raises(WriteUndoneError):
            graph.schema.apply(new)
        graph.refresh()
        assert graph.schema.source == SCHEMA
        assert content(graph) == before == content(graph, at=head)
        assert_whole(graph)
        assert graph.schema.apply(new).applied
        assert content(graph) == modelled(before, CASE.model)
        assert graph.verify().ok
        assert_whole(graph)


@pytest.mark.slow
def test_a_schema_change_with_any_failed_flush_is_visible_completely_or_not_at_all(
    place: Path, flushes: Flushes
) -> None:
    """Fail the flush of each file and directory in turn."""
    new = CASE.schema(SCHEMA)
    with open(place) as graph:
        before = content(graph)
        number = 0
        while True:
            number += 1
            failed = False
            with flushes.failing_at(number):
                try:
                    graph.schema.apply(new)
                except FlushFailedError:
                    failed = True
            graph.refresh()
            assert_whole(graph)
            if not failed:
                break
            assert graph.schema.source == SCHEMA
            assert content(graph) == before, flushes.seen[number - 1]
        assert number > 5
        assert content(graph) == modelled(before, CASE.model)
    with open(place) as reopened:
        assert reopened.schema.source == new
        assert reopened.verify().ok
        assert_whole(reopened)
