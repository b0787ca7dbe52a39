"""Waiting for what cannot be stopped: work that is done elsewhere, and knows of no budget."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from omnigraph.read.budget import checkpoint

T = TypeVar("T")

_PATIENCE = 0.02
"""How long is waited at a time, in seconds."""


def waited_for(work: Callable[[], T]) -> T:
    """What some work gives, done in a thread of its own: the read that waits for it can be stopped meanwhile.

    Work that nobody waits for any more goes on until it ends by itself, and does not keep the process from ending.

    Raises:
        BudgetExceededError: the time of the read that runs in this thread is over.
        CancelledError: it was told to stop.
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # whatever it is, the one who waits is told
            found.set_exception(error)

    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    while not wait([found], _PATIENCE).done:
        checkpoint()
    return found.result()
