"""Alarms start a function after some time, unless they are cancelled. One thread waits for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Event

import pytest
from tests.patience import PATIENCE

from omnigraph.commit.alarms import Alarms


def waiting() -> int:
    return sum(thread.name == "omnigraph alarms" for thread in threading.enumerate())


def test_an_alarm_calls_its_function() -> None:
    called = Event()
    Alarms().set(called.set, 0.01)
    assert called.wait(PATIENCE)


def test_a_cancelled_alarm_does_not() -> None:
    alarms, cancelled, called = Alarms(), Event(), Event()
    first: Callable[[], None] = cancelled.set
    alarms.set(first, 0.2)
    alarms.cancel(first)
    alarms.set(called.set, 0.4)
    assert called.wait(PATIENCE)
    assert not cancelled.is_set()


def test_an_earlier_alarm_does_not_wait_for_a_later_one() -> None:
    alarms, called = Alarms(), Event()
    alarms.set(lambda: None, 3600)
    alarms.set(called.set, 0.01)
    assert called.wait(PATIENCE)


def test_a_call_that_blocks_does_not_delay_the_others() -> None:
    alarms, release, called = Alarms(), Event(), Event()

    def block() -> None:
        release.wait(PATIENCE)

    alarms.set(block, 0.01)
    alarms.set(called.set, 0.02)
    assert called.wait(PATIENCE)
    release.set()


def test_all_alarms_share_a_thread() -> None:
    alarms, before = Alarms(), waiting()
    for _ in range(20):
        alarms.set(lambda: None, 3600)
    assert waiting() == before + 1


def test_a_call_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    alarms, called = Alarms(), Event()
    alarms.set(lambda: None, 3600)  # the thread runs
    start = threading.Thread.start
    refused: list[str] = []

    def refusing(self: threading.Thread) -> None:
        if self.name == "omnigraph alarm" and not refused:
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    alarms.set(called.set, 0.01)
    assert called.wait(PATIENCE)
    assert refused
