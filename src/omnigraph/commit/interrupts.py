"""Interrupts: steps that are completed although a thread is interrupted (Ctrl-C)."""

# See docs/decisions/0367-an-interrupted-writer-gives-up-the-lease.md

from __future__ import annotations

from collections.abc import Callable


def complete(*steps: Callable[[], None]) -> None:
    """Run steps that can be repeated. Each is repeated until no interrupt ends it, and all run if one fails.

    Raises:
        KeyboardInterrupt: the thread was interrupted. It is a new one: an error that a frame of its own traceback
            refers to would keep the locks and leases of all its frames from being released by reference counting.
    """
    if steps:
        try:
            _repeat(steps[0])
        finally:
            complete(*steps[1:])


def _repeat(step: Callable[[], None]) -> None:
    is_interrupted = False
    while True:
        try:
            step()
            break
        except KeyboardInterrupt:
            is_interrupted = True
    if is_interrupted:
        raise KeyboardInterrupt
