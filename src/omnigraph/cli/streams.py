"""The standard streams of a command. Each of them may be closed."""

from __future__ import annotations

import fcntl
import io
import os
import stat
import sys
from collections.abc import Iterable
from typing import BinaryIO

import click

from omnigraph.errors import InputError
from omnigraph.errors.source import printable


def open_closed_streams() -> None:
    """Open the null device in place of standard streams that are closed.

    Otherwise the next opened file gets the descriptor of the closed stream, and printed text would go into a data file.
    Reads from stdin are rejected by `stdin`, writes to stdout fail as on a full disk, and messages to stderr are
    dropped.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, flags)  # the opposite access mode, so that reads and writes fail
            if null != number:
                os.dup2(null, number)
                os.close(null)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)


def require_stdout() -> None:
    """Check that stdout is open. Commands that write to a graph call this first, because they print a receipt later.

    Raises:
        InputError: stdout is closed. Nothing was written.
    """
    try:
        number = sys.stdout.fileno()
        closed = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except (AttributeError, OSError, ValueError):  # the stream has no file descriptor, as in tests
        return
    if closed:
        raise InputError(
            "cannot write to stdout: it is closed", hint="nothing was written; redirect stdout to a file or a pipe"
        )


def stdin() -> BinaryIO:
    """Standard input, as bytes.

    Raises:
        InputError: stdin is closed, or cannot be read.
    """
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("cannot read stdin: it is closed", hint="name a file, or redirect stdin")
    try:
        number = sys.stdin.fileno()
    except (OSError, ValueError):  # the stream has no file descriptor, as in tests
        return sys.stdin.buffer
    try:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise InputError("cannot read stdin: it is a directory", hint="name a file, or redirect stdin")
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise InputError(
                "cannot read stdin: it is open for writing only", hint="redirect stdin from a file or a pipe"
            )
    except OSError as error:
        raise InputError(f"cannot read stdin: {error.strerror}") from error
    return sys.stdin.buffer


def read_stdin() -> bytes:
    """The content of standard input.

    Raises:
        InputError: stdin is closed, or cannot be read.
    """
    source = stdin()
    try:
        return source.read()
    except OSError as error:
        raise InputError(f"cannot read stdin: {error.strerror}") from error


def at_terminal() -> bool:
    """Whether stdin is a terminal, so that the command can ask the user."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


_WRITTEN = "omnigraph.written"
"""Key in the context of a command: whether it has written data to stdout."""


def has_written() -> bool:
    """Whether the command has written data to stdout."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and _WRITTEN in ctx.meta


def _note_write() -> None:
    ctx = click.get_current_context(silent=True)
    if ctx is not None:
        ctx.meta[_WRITTEN] = True


def write_stdout(chunks: Iterable[bytes]) -> None:
    """Write bytes to stdout unchanged."""
    sys.stdout.flush()
    for chunk in chunks:
        _note_write()
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def write_data(text: str) -> None:
    """Write data to stdout: unchanged to a file or a pipe, without control characters to a terminal.

    `click.echo` removes escape sequences if stdout is not a terminal, which would change the data.
    """
    if sys.stdout.isatty():
        _note_write()
        click.echo(printable(text), nl=False)
    else:
        write_stdout([text.encode()])
