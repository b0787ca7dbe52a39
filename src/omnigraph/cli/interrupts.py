"""Ctrl-C during a command.

Python raises `KeyboardInterrupt` in the main thread, wherever it is. Some code replaces it by another error: Python
3.11 raises a `RuntimeError` if it happens while the members of a class are initialised, extension modules raise an
`ImportError`, and a Spark call that is cut off can raise an error of its own. So the arrival of the signal is recorded.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

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
