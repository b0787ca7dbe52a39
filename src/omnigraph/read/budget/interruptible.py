"""Wait for work that cannot be interrupted, such as an HTTP request. Meanwhile, the limits of the read still apply."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from omnigraph.read.budget.budget import checkpoint

T = TypeVar("T")

_POLL_SECONDS = 0.02
"""Seconds between two checks of the limits while a read waits."""


def run_interruptibly(work: Callable[[], T]) -> T:
    """Run work in its own thread and wait for it. The waiting read can time out or be cancelled meanwhile.

    If the read stops waiting, the work continues in the background. It does not prevent the process from exiting.

    Raises:
        BudgetExceededError: the read of this thread is out of time.
        CancelledError: the read was cancelled.
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # all errors are raised again in the waiting thread
            found.set_exception(error)

    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    while not wait([found], _POLL_SECONDS).done:
        checkpoint()
    return found.result()
