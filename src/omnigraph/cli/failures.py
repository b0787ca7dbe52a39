"""Reporting of failed commands: one message on stderr and an exit code, without a traceback."""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import suppress

import click

from omnigraph.errors import OmnigraphError, cut, printable, report_for
from omnigraph.settings import DEBUG

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 plus the number of the signal, as in shells."""


WRITES = "omnigraph.writes"
"""Key in the context of a command: whether it has started to write."""


def report(error: BaseException, *, wrote: bool = False) -> int:
    """Print the error to stderr, and return the exit code.

    Args:
        error: the error that ended the command.
        wrote: whether the command had started to write. If only its output fails, the message says that the write is
            done.

    Raises:
        OSError: stdout is a closed pipe. Then click ends the command without a message.
    """
    if isinstance(error, KeyboardInterrupt):
        with suppress(ValueError):  # signals can be set only in the main thread
            # A second Ctrl-C ends the process at once, without waiting for Spark.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        # An interrupt inside exec() of a string, for example while a dataclass is defined, sets a flag in CPython. Then
        # `python -m` would kill itself with the signal and return no exit code. Evaluating a string clears the flag.
        eval("None")
        _print("stopped")
        code = INTERRUPTED
    elif isinstance(error, OmnigraphError):
        _print(error.render())
        code = report_for(error).exit_code
    elif isinstance(error, OSError):
        if error.errno == errno.EPIPE and not wrote:
            raise error
        about = printable(_os_error_message(error))
        _print(f"{about}\n{_DONE}" if wrote and error.filename is None else about)
        _discard_stdout()
        code = 1
    elif isinstance(error, MemoryError):
        _print("out of memory")
        code = 1
    else:
        _print(_internal_error_message(error))
        code = report_for(OmnigraphError("")).exit_code
    if DEBUG.text() not in ("", "0"):
        import traceback

        _print("".join(traceback.format_exception(error)).rstrip())
    return code


_DONE = "  help: the write is done, only its output is lost; check the graph before you run it again"


def _os_error_message(error: OSError) -> str:
    if error.errno == errno.EBADF:
        return "cannot write to stdout: it is closed"
    what = "the output" if error.filename is None else os.fsdecode(error.filename)
    return f"cannot use {cut(what)}: {error.strerror or cut(str(error))}"


def _internal_error_message(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    reason = f": {cut(lines[0])}" if lines else ""
    return printable(
        f"internal error: {type(error).__name__}{reason}\n"
        f"  help: this is a bug in omnigraph, please report it; {DEBUG.name}=1 shows the traceback"
    )


def _print(text: str) -> None:
    with suppress(OSError, ValueError):  # stderr may be closed or full; the exit code still reports the failure
        click.echo(text, err=True)


def _discard_stdout() -> None:
    """Redirect stdout to the null device, so that the flush at exit does not fail again."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
