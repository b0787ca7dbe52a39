"""Ctrl-C during a command.

Python raises `KeyboardInterrupt` in the main thread, wherever it is. Some code replaces it by another error: Python
3.11 raises a `RuntimeError` if it happens while the members of a class are initialised, extension modules raise an
`ImportError`, and a Spark call that is cut off can raise an error of its own. So the arrival of the signal is recorded.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from omnigraph.read.budget import Cancellation

_arrivals: list[int] = []
"""The read end of the pipe to which Python writes the number of each signal; empty before `watch`."""


def watch() -> None:
    """Record interrupts from now on, whatever the handlers of the signal do. Spark installs a handler of its own."""
    if _arrivals:
        return
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    try:
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    except ValueError:  # not the main thread
        os.close(read)
        os.close(write)
        return
    _arrivals.append(read)


def is_interrupt(error: BaseException) -> bool:
    """Whether an error is an interrupt, or follows from one. Clears the record of interrupts."""
    return _arrived() | _is_in_chain(error)


def forget() -> None:
    """Clear the record of interrupts, after one was handled."""
    _arrived()


@contextmanager
def cancelled_by_interrupt() -> Iterator[Cancellation]:
    """Let Ctrl-C cancel the work of a block. A second Ctrl-C interrupts it wherever it is.

    Raises:
        KeyboardInterrupt: the work failed after Ctrl-C.
    """
    from omnigraph.read.budget import Cancellation

    cancel = Cancellation()

    def stop(number: int, frame: FrameType | None) -> None:
        if cancel.cancelled:
            raise KeyboardInterrupt
        cancel.cancel()

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not the main thread
        yield cancel
        return
    try:
        yield cancel
    except Exception as error:
        if cancel.cancelled:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def _arrived() -> bool:
    with suppress(OSError):  # there is nothing to read
        return any(signal.SIGINT in os.read(end, 4096) for end in _arrivals)
    return False


def _is_in_chain(error: BaseException) -> bool:
    found: BaseException | None = error
    passed: set[int] = set()
    while found is not None and id(found) not in passed:
        if isinstance(found, KeyboardInterrupt):
            return True
        passed.add(id(found))
        found = found.__cause__ or found.__context__
    return False
