"""An interrupt (Ctrl-C) at any point of a step leaves no lock taken, and the step can be repeated."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from threading import Thread
from types import FrameType
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from omnigraph.commit import lease
from omnigraph.commit.alarms import Alarms
from omnigraph.commit.heartbeats import HeartbeatSender
from omnigraph.commit.interrupts import complete
from omnigraph.commit.process_locks import FairLock
from omnigraph.commit.signal import Signal
from omnigraph.storage.objects import open_store


def interrupted(step: Callable[[], None], place: int) -> bool:
    """Run a step with one interrupt, where the interpreter looks for signals. False if there are not as many places."""
    places = count(1)

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if event in ("call", "return") and next(places) == place:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    gc.disable()  # the finalizers of other objects are no places of the step
    sys.settrace(trace)
    try:
        step()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False


def ends(step: Callable[[], object]) -> bool:
    """Whether a step ends, in a thread of its own."""
    thread = Thread(target=step, daemon=True)
    thread.start()
    thread.join(PATIENCE / 10)
    return not thread.is_alive()


def test_the_end_of_a_turn_can_be_repeated_and_leaves_nobody_waiting() -> None:
    for place in count(1):
        gate = FairLock()
        first, waits = gate.turn(), gate.turn()
        assert first.take(0)
        thread = Thread(target=waits.take, args=(PATIENCE,), daemon=True)
        thread.start()
        until(lambda gate=gate: len(gate._waiting) == 1)  # type: ignore[misc]
        was_interrupted = interrupted(first.end, place)
        first.end()
        thread.join(PATIENCE / 10)
        assert not thread.is_alive(), f"interrupted at place {place}"
        waits.end()
        assert gate.turn().take(0), f"interrupted at place {place}"
        if not was_interrupted:
            assert place > 1
            break


def dropping() -> Callable[[], None]:
    return partial(HeartbeatSender().drop, "a record")


def cancelling() -> Callable[[], None]:
    return partial(Alarms().cancel, print)


def waking() -> Callable[[], None]:
    return Signal().set


@pytest.mark.parametrize("step", [dropping, cancelling, waking])
def test_an_interrupted_step_leaves_no_lock_taken(step: Callable[[], Callable[[], None]]) -> None:
    for place in count(1):
        one = step()
        was_interrupted = interrupted(one, place)
        assert ends(one), f"interrupted at place {place}"
        if not was_interrupted:
            assert place > 1
            break


def test_the_release_of_a_lease_can_be_repeated() -> None:
    store = open_store("memory://interrupted-release")
    for place in count(1):
        held = lease.acquire(store, "main")
        was_interrupted = interrupted(held.release, place)
        held.release()
        assert lease.LeaseRecord.load(store.get(lease.lease_path("main")).data).owner is None, place
        assert not lease._ours, place
        if not was_interrupted:
            assert place > 1
            break


def test_all_steps_are_completed_although_one_is_interrupted_or_fails() -> None:
    done: list[str] = []
    interrupts = iter([KeyboardInterrupt(), KeyboardInterrupt()])

    def one() -> None:
        done.append("one")
        for error in interrupts:
            raise error
        raise LookupError

    with pytest.raises(LookupError):
        complete(one, lambda: done.append("two"))
    assert done == ["one", "one", "one", "two"]
    again = iter([KeyboardInterrupt(), None])

    def other() -> None:
        done.append("other")
        error = next(again)
        if error is not None:
            raise error

    with pytest.raises(KeyboardInterrupt):
        complete(other, lambda: done.append("last"))
    assert done[4:] == ["other", "other", "last"]


def test_interrupts_end_the_release_of_a_lease_if_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://release-without-answer")
    held = lease.acquire(store, "main")
    asked = []

    def interrupted_replace(*arguments: object) -> str:
        asked.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "replace", interrupted_replace)
    with pytest.raises(KeyboardInterrupt):
        complete(held.release)
    monkeypatch.undo()
    assert len(asked) == 2
    lease.acquire(store, "main", wait=0).release()
