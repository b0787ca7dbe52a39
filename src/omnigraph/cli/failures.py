"""Reporting of failed commands: one message on stderr and an exit code, without a traceback.

With `--json`, stdout gets the error as a JSON document, too.
"""

# See docs/decisions/0362-errors-as-json-go-to-stdout.md

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import click

from omnigraph.cli.interrupts import is_interrupt
from omnigraph.cli.streams import has_written, write_data
from omnigraph.errors import CompileError, Disposition, OmnigraphError, UnauthorizedError, cut, printable, report_for
from omnigraph.errors.body import error_body
from omnigraph.settings import BEARER_TOKEN, DEBUG

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 plus the number of the signal, as in shells."""


_LOG_IN = f"store the token of the server with 'omnigraph login NAME', or set {BEARER_TOKEN.name}"

WRITES = "omnigraph.writes"
"""Key in the context of a command: whether it has started to write."""


JSON_ERRORS = "omnigraph.json_errors"
"""Key in the context of a command: whether stdout gets errors as JSON."""


def report(error: BaseException, *, wrote: bool = False, as_json: bool = False) -> int:
    """Print the error to stderr, and return the exit code.

    Args:
        error: the error that ended the command.
        as_json: whether to print the error to stdout, too, as JSON.
        wrote: whether the command had started to write. If only its output fails, the message says that the write is
            done.

    Raises:
        OSError: stdout is a closed pipe. Then click ends the command without a message.
    """
    body: dict[str, Any]
    if is_interrupt(error):
        with suppress(ValueError):  # signals can be set only in the main thread
            # A second Ctrl-C ends the process at once, without waiting for Spark.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        # An interrupt inside exec() of a string, for example while a dataclass is defined, sets a flag in CPython. Then
        # `python -m` would kill itself with the signal and return no exit code. Evaluating a string clears the flag.
        eval("None")
        _print("stopped")
        if isinstance(error, OmnigraphError):  # an error of the work that followed, for example of a rollback
            _print(error.render())
        code, body = INTERRUPTED, {"error": "stopped", "kind": "interrupted"}
    elif isinstance(error, OmnigraphError):
        if isinstance(error, UnauthorizedError):
            error.hint = _LOG_IN  # that of the server names the header of HTTP
        _print(error.render())
        code, body = report_for(error).exit_code, error_body(error) | _location(error)
    elif isinstance(error, OSError):
        if error.errno == errno.EPIPE and not wrote:
            raise error
        about = printable(_os_error_message(error))
        is_done = wrote and error.filename is None
        _print(f"{about}\n{_DONE}" if is_done else about)
        code, body = 1, _io_body(about, is_done=is_done)
        if error.filename is None:
            as_json = False  # stdout cannot be written
            _discard_stdout()
    elif isinstance(error, MemoryError):
        _print("out of memory")
        code, body = 1, {"error": "out of memory", "code": "internal", "kind": "internal"}
    else:
        about = _internal_error_message(error)
        _print(about)
        message, _, hint = about.partition("\n  help: ")
        code = report_for(OmnigraphError("")).exit_code
        body = {"error": message, "code": "internal", "kind": "internal", "hint": hint}
    if as_json:
        print_json_error(body, code)
    if DEBUG.text() not in ("", "0"):
        import traceback

        _print("".join(traceback.format_exception(error)).rstrip())
    return code


def print_json_error(body: dict[str, Any], exit_code: int) -> None:
    """Print the body of an error to stdout as JSON, unless the command has already printed something there."""
    if has_written():
        return
    with suppress(OSError, ValueError):  # stdout may be closed or full; stderr has the message
        write_data(json.dumps(body | {"exit_code": exit_code}, indent=2, ensure_ascii=False) + "\n")


def usage_body(error: click.ClickException) -> dict[str, Any]:
    """The JSON body of an error in the arguments of a command."""
    return {
        "error": printable(error.format_message()),
        "code": "bad_request",
        "kind": "usage",
        "disposition": Disposition.FIX.value,
    }


def _io_body(message: str, *, is_done: bool) -> dict[str, Any]:
    disposition = Disposition.UNKNOWN if is_done else Disposition.FIX
    return {"error": message, "code": "internal", "kind": "io", "disposition": disposition.value}


def _location(error: OmnigraphError) -> dict[str, Any]:
    """The file, line and column of an error in a source text."""
    if not isinstance(error, CompileError) or error.source is None or error.location is None:
        return {}
    place = {"line": error.location.line, "column": error.location.column}
    return {"location": ({} if error.source.name is None else {"file": error.source.name}) | place}


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
