"""The commands `changes poll` and `changes baseline`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import click

from omnigraph.cli.output import JSON, iso_time, print_json
from omnigraph.cli.scope import address_options, connect_to_read
from omnigraph.cli.target import Target
from omnigraph.errors import InputError
from omnigraph.errors.source import cut, one_line, printable

if TYPE_CHECKING:
    from omnigraph.changes.commit_page import ChangeCause, EntityChange

F = TypeVar("F", bound=Callable[..., object])


def filter_options(command: F) -> F:
    """Add the options that filter changes."""
    kind = click.option(
        "--kind", "kinds", type=click.Choice(["node", "edge"]), multiple=True, help="Only this kind. Repeatable."
    )
    type_ = click.option("--type", "types", metavar="TYPE", multiple=True, help="Only this type. Repeatable.")
    op = click.option(
        "--op",
        "ops",
        type=click.Choice(["insert", "update", "delete"]),
        multiple=True,
        help="Only this kind of change. Repeatable.",
    )
    return kind(type_(op(command)))


def limit_option(command: F) -> F:
    """Add the option for the number of changes of a page."""
    return click.option(
        "--limit", type=click.IntRange(min=1), metavar="N", default=1000, help="Changes per page.  [default: 1000]"
    )(command)


@click.group()
def changes() -> None:
    """Follow the changes of a branch."""


@changes.command("poll")
@address_options(positional=True, served=True, stored_only=("wait",))
@click.option("--branch", metavar="BRANCH", help="Branch to follow.  [default: main]")
@click.option("--cursor", metavar="CURSOR", help="Continue after an earlier poll.")
@click.option("--start", metavar="POSITION", help="Begin at now, beginning, or after:COMMIT.  [default: now]")
@click.option("--page-token", metavar="TOKEN", help="Continue inside the last commit of an earlier page.")
@limit_option
@filter_options
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=0.0,
    help="With --cursor: wait for a commit after the cursor. Without it, the command returns at once.",
)
@JSON
def poll_changes(
    target: Target,
    branch: str | None,
    cursor: str | None,
    start: str | None,
    page_token: str | None,
    limit: int,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
    wait: float,
    as_json: bool,
) -> None:
    """Show the changes of the commits after a position, oldest commit first.

    Store the printed cursor after you have applied the changes. Pass it to the next poll.
    """
    with connect_to_read(target.place()) as graph:
        page = graph.changes.poll(
            branch=branch,
            cursor=cursor,
            start=start,
            page_token=page_token,
            limit=limit,
            kinds=kinds or None,
            types=types or None,
            ops=ops or None,
            wait=wait,
        )
    if as_json:
        print_json(page.to_json())
        return
    for block in page.blocks:
        print_cause(block.cause)
        for change in block.changes:
            print_change(change)
    if not page.blocks:
        click.echo("(no new commits)")
    if page.next_page_token is not None:
        click.echo(f"next_page_token: {page.next_page_token}")
    if page.cursor is not None:
        click.echo(f"cursor: {page.cursor}")
        click.echo(f"caught_up: {'true' if page.caught_up else 'false'}")


def print_cause(cause: ChangeCause) -> None:
    """Print the commit of a block."""
    commit = cause.commit
    actor = f" {commit.actor}" if commit.actor is not None else ""
    message = "" if not commit.message else f"  {cut(commit.message.strip().partition(chr(10))[0])}"
    click.echo(printable(f"commit {commit.id} {iso_time(commit.created_at)}{actor}{message}"))


def print_change(change: EntityChange) -> None:
    """Print a change on one line."""
    click.echo(printable(f"  {change.op.value} {change.kind} {change.type_name} {one_line(cut(change.id, 80))}"))


@changes.command("baseline")
@address_options(positional=True, served=True)
@click.option("--branch", metavar="BRANCH", help="Branch to follow.  [default: main]")
@filter_options
@click.option("--out", metavar="PATH", required=True, help="File for the entities, as NDJSON.")
@JSON
def take_baseline(
    target: Target,
    branch: str | None,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
    out: str,
    as_json: bool,
) -> None:
    """Export a branch, and print the cursor from which `changes poll` continues.

    The cursor is printed only after the file is complete and on disk.
    """
    from omnigraph.storage.files.local_output import output_file

    with connect_to_read(target.place()) as graph, _locked(out):
        found = graph.changes.baseline(branch=branch, kinds=kinds or None, types=types or None, ops=ops or None)
        with output_file(out) as file:
            for chunk in found.lines():
                file.write(chunk)
        _flush_directory(out)
    members = {"snapshot": found.snapshot, **found.to_json()}
    if as_json:
        print_json(members)
    else:
        for name, value in members.items():
            click.echo(f"{name}: {value}")


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold an exclusive lock beside the output, so that two commands do not write it at the same time.

    Raises:
        InputError: another command writes the file, or the lock cannot be created.
    """
    descriptor = _lock(f"{path}.lock", path)
    try:
        yield
    finally:
        os.unlink(f"{path}.lock")
        os.close(descriptor)


def _lock(path: str, output: str) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise InputError(f"cannot write {cut(output)}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            hint = "wait for it, or use another file"
            raise InputError(f"another command holds {cut(path)}", hint=hint) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)  # its previous owner has removed the file, so others would not see this lock


def _flush_directory(path: str) -> None:
    """Make the name of a file durable."""
    directory = os.open(os.path.dirname(os.path.realpath(path)) or ".", os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
