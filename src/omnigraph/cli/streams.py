"""The standard streams of a command, which may be closed."""

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
    """Put something in the place of standard streams that are closed.

    The next file that is opened would get the number of the closed one: a data file as number 1 would take in whatever
    is printed. Reading stdin is refused by `stdin`, writing to stdout fails as it does on a full disk, and messages for
    stderr are dropped.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, flags)  # the wrong way round: reading and writing fail
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)


def require_stdout() -> None:
    """See that there is a stdout, for a command that writes to a graph first and says so afterwards.

    Raises:
        InputError: it is closed. Nothing was done.
    """
    try:
        number = sys.stdout.fileno()
        closed = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except (AttributeError, OSError, ValueError):  # not a file of the system, as in tests
        return
    if closed:
        raise InputError("there is no stdout to write to: it is closed", hint="nothing was done; give it an output")


def stdin() -> BinaryIO:
    """Standard input, as bytes.

    Raises:
        InputError: it is closed, or cannot be read.
    """
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("cannot read stdin: it is closed", hint="name a file, or give the command an input")
    try:
        number = sys.stdin.fileno()
    except (OSError, ValueError):  # not a file of the system, as in tests
        return sys.stdin.buffer
    try:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise InputError("cannot read stdin: it is a directory", hint="name a file, or give the command an input")
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise InputError("cannot read stdin: it is open for writing only", hint="give the command an input")
    except OSError as error:
        raise InputError(f"cannot read stdin: {error.strerror}") from error
    return sys.stdin.buffer


def read_stdin() -> bytes:
    """Everything in standard input.

    Raises:
        InputError: it is closed, or cannot be read.
    """
    source = stdin()
    try:
        return source.read()
    except OSError as error:
        raise InputError(f"cannot read stdin: {error.strerror}") from error


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def write_stdout(pieces: Iterable[bytes]) -> None:
    """Write bytes as they are."""
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def write_data(text: str) -> None:
    """Write data and not a message: byte for byte into a file or a pipe; a terminal gets no control characters.

    `click.echo` drops escape sequences wherever stdout is not a terminal, which would change the data.
    """
    if sys.stdout.isatty():
        click.echo(printable(text), nl=False)
    else:
        write_stdout([text.encode()])
