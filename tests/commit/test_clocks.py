"""Commit times increase, also with a wrong clock, and a machine whose clock is far off cannot write to S3."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.commit.graphs import SEED, assert_whole, create, ids, put
from tests.s3_server import S3Root

from omnigraph.commit import clock, store
from omnigraph.errors import ClockError, InputError
from omnigraph.graph import Graph, open
from omnigraph.settings import CLOCK_TOLERANCE
from omnigraph.storage.objects.store_clock import StoreClock, tolerance

HOUR = 3600


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The error of this machine's clock in seconds is the last number of the list."""
    by = [0.0]
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + by[-1])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(by[-1] * 1e9))
    return by


def now(by: float = 0) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=by)


def test_commit_times_never_decrease(graph: Graph, shifted: list[float]) -> None:
    shifted.append(200)
    ahead = put(graph, ["ahead"])
    shifted.append(-50)
    behind = put(graph, ["behind"])
    assert behind.created_at == ahead.created_at + 1
    assert_whole(graph)


def test_commit_times_return_to_the_clock_after_a_head_in_the_future(graph: Graph, shifted: list[float]) -> None:
    before = put(graph, ["before"])
    shifted.append(HOUR)
    wrong = put(graph, ["wrong"])
    shifted.append(0)
    assert "wrong" not in graph.snapshot(at=now(1)).scan("node:A")["id"].to_pylist(), "it lies in the future"
    right = put(graph, ["right"])
    last = put(graph, ["last"])
    assert before.created_at < right.created_at < last.created_at < wrong.created_at
    assert right.created_at < time.time() * 1e6 + 1e6
    assert graph.snapshot(at=now(1)).commit.id == last.id
    found = graph.snapshot(at=datetime.fromtimestamp(before.created_at / 1e6, UTC) + timedelta(microseconds=1))
    assert found.commit.id == before.id
    assert ids(graph) == sorted([*SEED, "before", "wrong", "right", "last"])


def test_a_roll_back_commit_has_a_time_after_its_parent(graph: Graph, place: Path, shifted: list[float]) -> None:
    assert clock.commit_time(graph.session.store.capture("main")) <= store.now_micros()
    shifted.append(-HOUR)
    assert clock.commit_time(graph.session.store.capture("main")) > store.now_micros() - HOUR * 1_000_000


@pytest.mark.parametrize("text", ["", "soon", "-1", "0", "inf", "nan"])
def test_an_invalid_clock_tolerance_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(CLOCK_TOLERANCE.name, text)
    with pytest.raises(InputError, match=CLOCK_TOLERANCE.name):
        tolerance()


def test_the_clock_difference_allows_for_whole_seconds_and_request_time() -> None:
    """The store returns whole seconds, and a request takes time. A difference within these bounds is ignored."""
    measured = StoreClock()
    with measured.writing("a") as etags:
        etags.append("1")
    measured.read("a", "2", now(HOUR))
    measured.read("b", "1", now(HOUR))
    unknown = measured.ahead
    assert unknown is None, "written by somebody else"
    for by, least, most in ((0, 0, 0), (0.9, 0, 1), (HOUR, HOUR - 2, HOUR), (-HOUR, -HOUR, 2 - HOUR)):
        measured.read("a", "1", now(by))
        ahead = measured.ahead
        assert ahead is not None
        assert least <= ahead <= most


@pytest.mark.s3
def test_a_machine_whose_clock_is_far_off_cannot_write(s3_root: S3Root, shifted: list[float]) -> None:
    with create(s3_root.uri, s3_root.options) as graph:
        for wrong in (-2 * HOUR, 2 * HOUR):
            shifted.append(wrong)
            with pytest.raises(ClockError, match=r"seconds (ahead of|behind)") as caught:
                open(s3_root.uri, storage_options=s3_root.options)
            assert "OMNIGRAPH_CLOCK_TOLERANCE" in str(caught.value.hint)
            with open(s3_root.uri, read_only=True, storage_options=s3_root.options) as reader:
                assert ids(reader) == sorted(SEED)
        shifted.append(0)
        open(s3_root.uri, storage_options=s3_root.options).close()
        put(graph, ["right"])
        assert_whole(graph)


@pytest.mark.s3
def test_an_open_writer_notices_that_its_clock_is_changed(s3_root: S3Root, shifted: list[float]) -> None:
    """It reads its own lease before it publishes, and that answer has the store's time. No extra request is needed."""
    with create(s3_root.uri, s3_root.options) as graph:
        shifted.append(2 * HOUR)
        put(graph, ["one may pass"])
        with pytest.raises(ClockError):
            put(graph, ["two"])
        shifted.append(0)
        put(graph, ["three"])
        assert ids(graph) == sorted([*SEED, "one may pass", "three"])
