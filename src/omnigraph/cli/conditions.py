"""Options of commands that write: preconditions and the wait for the lease."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from omnigraph.cli.files import STDIN, read_bytes
from omnigraph.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Seconds to wait for the lease of the branch.  [default: 60]",
)


def condition_options(command: F) -> F:
    """Add the options `--unchanged-since`, `--reads` and `--timeout`."""
    options = [
        click.option(
            "--unchanged-since",
            metavar="ID",
            help="Write only if the data that the write depends on has not changed since this commit.",
        ),
        click.option(
            "--reads",
            multiple=True,
            metavar="FILE|GQ",
            help="With --unchanged-since: queries whose results must not have changed; a file or a text. Repeatable.",
        ),
        TIMEOUT,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def conditions(unchanged_since: str | None, reads: tuple[str, ...], timeout: float | None) -> dict[str, Any]:
    """The arguments of a write for these options.

    Raises:
        InputError: a file cannot be read, or is not UTF-8.
        CompileError: a text is not a query.
    """
    listed = [read for text in reads for read in _queries(text)]
    return {"unchanged_since": unchanged_since, "reads": tuple(listed), "timeout": timeout}


def _queries(text: str) -> list[tuple[str, dict[str, object], str]]:
    """All queries of a file or a text, each with its name."""
    from omnigraph.lang.query import parse_queries

    if text == "-" or text.endswith(".gq") or Path(text).is_file():
        try:
            text = read_bytes(STDIN if text == "-" else Path(text)).decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{text} is not UTF-8", hint="save the file as UTF-8") from error
    return [(text, {}, query.name) for query in parse_queries(text).queries]
