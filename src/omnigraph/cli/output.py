"""Printing of results: JSON for programs, text lines for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from omnigraph.cli.streams import write_data
from omnigraph.errors.source import printable


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


def quoted(text: str) -> str:
    """The text as a JSON string, on one line."""
    return json.dumps(text, ensure_ascii=False)


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
