"""Printing of results: JSON for programs, text lines for people."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.streams import write_data
from omnigraph.errors.source import printable
from omnigraph.settings import NO_COLOR, TERM

if TYPE_CHECKING:
    from omnigraph.commit.manifest import Commit

_COLOR = "omnigraph.color"
"""Key in the context of a command: the value of `--color`."""

_NARROWEST = 20
"""Minimum width of output for a terminal."""


def print_json(value: object) -> None:
    """Print a value as indented JSON to stdout."""
    write_data(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_members(members: dict[str, Any]) -> None:
    """Print one line `key: value` per item. Skips null and empty values."""
    for name, value in members.items():
        if value is not None and value != {}:
            shown = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
            click.echo(printable(f"{name}: {shown}"))


def iso_time(micros: int) -> str:
    """A time in microseconds as an ISO 8601 text in UTC."""
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:06d}Z"


def shown_totals(commit: Commit | None, updated: str = "updated") -> str:
    """The numbers of entities that a commit created, updated and deleted, as in ` (1 created, 2 updated)`.

    Empty if nothing changed, or if the numbers are not recorded.
    """
    totals = None if commit is None else commit.totals
    if totals is None:
        return ""
    numbers = ((totals.inserted, "created"), (totals.updated, updated), (totals.deleted, "deleted"))
    shown = ", ".join(f"{number} {word}" for number, word in numbers if number)
    return f" ({shown})" if shown else ""


def quoted(text: str) -> str:
    """The text as a JSON string, on one line."""
    return json.dumps(text, ensure_ascii=False)


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _keep_color(ctx: click.Context, option: click.Parameter, value: str) -> None:
    ctx.meta[_COLOR] = value


COLOR = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    expose_value=False,
    callback=_keep_color,
    help="Colours; always: print as on a terminal, also into a pipe.  [default: auto]",
)


def _color() -> str:
    ctx = click.get_current_context(silent=True)
    return "auto" if ctx is None else str(ctx.meta.get(_COLOR, "auto"))


def is_for_terminal() -> bool:
    """Whether to print what people see on a terminal: stdout is one, or `--color always` was given."""
    return sys.stdout.isatty() or _color() == "always"


def terminal_width() -> int | None:
    """The number of columns of the terminal; None if the output is not for a terminal."""
    return max(_NARROWEST, get_terminal_size().columns) if is_for_terminal() else None


def uses_color() -> bool:
    """Whether to print colours. `--color` overrides `NO_COLOR` and `TERM=dumb`."""
    chosen = _color()
    if chosen != "auto":
        return chosen == "always"
    return sys.stdout.isatty() and not NO_COLOR.get() and TERM.get() != "dumb"
