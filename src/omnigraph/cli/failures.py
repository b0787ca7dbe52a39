"""How a command ends that did not succeed: one message on stderr, and an exit code. Never a traceback."""

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
"""The exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


WRITES = "omnigraph.writes"
"""In the context of a command: whether it has begun to change something."""


def report(error: BaseException, *, wrote: bool = False) -> int:
    """Say what happened, and return the exit code.

    Args:
        error: what ended the command.
        wrote: whether it had begun to change something. It prints what it did afterwards.

    Raises:
        OSError: nobody reads the output any more; click ends such a command without a message.
    """
    if isinstance(error, KeyboardInterrupt):
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait for Spark to end
        # An interrupt inside an exec() of a string, as in the making of a dataclass, leaves a flag in CPython that ends
        # `python -m` by the signal instead of the exit code. Every evaluation of a string clears it.
        eval("None")
        _say("stopped")
        code = INTERRUPTED
    elif isinstance(error, OmnigraphError):
        _say(error.render())
        code = report_for(error).exit_code
    elif isinstance(error, OSError):
        if error.errno == errno.EPIPE and not wrote:
            raise error
        about = printable(_about(error))
        _say(f"{about}\n{_DONE}" if wrote and error.filename is None else about)
        _forget_stdout()
        code = 1
    elif isinstance(error, MemoryError):
        _say("out of memory")
        code = 1
    else:
        _say(_internal(error))
        code = report_for(OmnigraphError("")).exit_code
    if DEBUG.text() not in ("", "0"):
        import traceback

        _say("".join(traceback.format_exception(error)).rstrip())
    return code


_DONE = "  help: the work was done before that, only its report is lost; look at the graph before you send it again"


def _about(error: OSError) -> str:
    if error.errno == errno.EBADF:
        return "there is no stdout to write to: it is closed"
    what = "the output" if error.filename is None else os.fsdecode(error.filename)
    return f"cannot use {cut(what)}: {error.strerror or cut(str(error))}"


def _internal(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    reason = f": {cut(lines[0])}" if lines else ""
    return printable(
        f"internal error: {type(error).__name__}{reason}\n"
        f"  help: this is a mistake in omnigraph, please report it; {DEBUG.name}=1 shows the traceback"
    )


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # stderr may be closed or full; the exit code still tells
        click.echo(text, err=True)


def _forget_stdout() -> None:
    """Leave nothing for the end of the process to write, which could only fail again."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
