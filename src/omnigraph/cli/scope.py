"""Options and functions that select the graph of a command, open it, and choose the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, TypeVar, cast

import click

from omnigraph.cli.failures import WRITES
from omnigraph.cli.streams import at_terminal, require_stdout
from omnigraph.errors import InputError
from omnigraph.settings import BLOB_SOURCES

if TYPE_CHECKING:
    from omnigraph.cli.progress import ProgressDisplay
    from omnigraph.engine.engines import Choice
    from omnigraph.engine.request_options import ExecutionOptions
    from omnigraph.graph import Graph

F = TypeVar("F", bound=Callable[..., object])

GLOBAL_FLAGS = {
    "--store": ("--store names the storage of an existing graph", "Omit it"),
    "--as": ("--as names the actor of a write", "Omit it"),
    "--yes": ("--yes consents to a destructive write", "Omit it"),
    "--quiet": ("--quiet hides the line about a write's target", "Omit it"),
}
"""Flags that are allowed before or after a command: a description, and advice for commands that do not take them."""

REMEDIES = {("init", "--store"): "Give the address as the argument: omnigraph init URI --schema FILE"}


def _once(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The value of an option that must not be repeated. Click alone would use the last value without a message."""
    if len(values) > 1:
        raise click.UsageError(f"give {option.opts[0]} once: a command works on one graph")
    return values[0] if values else None


_STORE = click.option(
    "--store", multiple=True, callback=_once, metavar="URI", help="Storage of the graph: a path, file:// or s3://."
)
_AS = click.option("--as", "actor", metavar="ACTOR", help="Actor of the commit.")
_YES = click.option("--yes", is_flag=True, help="Consent to a destructive write on a remote graph.")
_QUIET = click.option("--quiet", is_flag=True, help="Hide the line about the target of the write.")


def address_options(*, positional: bool) -> Callable[[F], F]:
    """Add the options that name a graph. With `positional`, the command also takes the graph as an argument."""

    def decorate(command: F) -> F:
        uri = click.option("--uri", "uri_option", multiple=True, callback=_once, metavar="URI", help="Same as --store.")
        command = uri(_STORE(command))
        return click.argument("uri", required=False)(command) if positional else command

    return decorate


def state_options(verb: str = "Read") -> Callable[[F], F]:
    """Add the options `--branch`, `--snapshot` and `--at`, which select a state of the graph.

    The command gets the arguments `branch` and `at`; `at` is a commit id or tag, a time, or None.

    Args:
        verb: the verb of the help texts.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def run(*args: object, snapshot: str | None, moment: datetime | None, **values: object) -> object:
            if snapshot is not None and values["branch"] is not None:
                raise click.UsageError("give --branch or --snapshot, not both")
            if snapshot is not None and moment is not None:
                raise click.UsageError("give --snapshot or --at, not both")
            return command(*args, at=moment if snapshot is None else snapshot, **values)

        options = [
            click.option("--branch", metavar="BRANCH", help=f"{verb} the head of a branch.  [default: main]"),
            click.option(
                "--snapshot", metavar="ID", help=f"{verb} the snapshot of a commit: its id, the start of it, or a tag."
            ),
            click.option(
                "--at",
                "moment",
                type=_moment,
                metavar="TIME",
                help=f"{verb} the branch at a time: 2026-03-14, 2026-03-14T09:30:00Z.",
            ),
        ]
        decorated: Callable[..., object] = run
        for option in reversed(options):
            decorated = option(decorated)
        return cast(F, decorated)

    return decorate


def _moment(text: str) -> datetime:
    """Parse a time in ISO 8601; UTC by default."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"'{text}' is not a time: write 2026-03-14 or 2026-03-14T09:30:00Z; for a commit or tag, use --snapshot"
        )
        raise click.BadParameter(message) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def write_options(*, destructive: bool = False) -> Callable[[F], F]:
    """Add the options of commands that write."""

    def decorate(command: F) -> F:
        command = _AS(_QUIET(command))
        return _YES(command) if destructive else command

    return decorate


def engine_options(by: str) -> Callable[[F], F]:
    """Add the options that choose the engine.

    Args:
        by: the measure that `auto` decides by, for the help text.
    """
    engine = click.option(
        "--engine",
        type=click.Choice(["auto", "local", "spark"]),
        default="auto",
        help=f"Run in this process or on Spark; auto decides by {by}.  [default: auto]",
    )
    master = click.option("--master", metavar="MASTER", help="Spark master: local[*,4], spark://host:7077, ...")
    return lambda command: engine(master(command))


@contextmanager
def execution(
    verb: str, engine: str, master: str | None, shown: ProgressDisplay, *, merge_threshold: str | None = None
) -> Iterator[ExecutionOptions]:
    """The options that choose where the work of a command runs. Stops Spark at the end, if it was started.

    Args:
        verb: the verb for the line on stderr, such as `loading`.
        engine: `auto`, `local` or `spark`.
        master: the Spark master.
        shown: the progress display.
        merge_threshold: the minimum size of the rows of a type that Spark merges in tasks, such as `1 GiB`.
    """
    from omnigraph.engine.engines import Engine, SparkOptions
    from omnigraph.pipeline.spark.session import SparkSettings, session

    def report(choice: Choice) -> None:
        if choice.spark_missing or (choice.engine is Engine.SPARK and shown.notes):
            click.echo(f"{verb} {choice}", err=True)

    spark = session(SparkSettings(master))
    try:
        options = SparkOptions(spark, jobs=shown.tasks, merge_threshold=merge_threshold)
        yield {"engine": engine, "spark": options, "chosen": report}
    finally:
        spark.stop()


def takes_address(command: click.Command, parameter: str) -> bool:
    """Whether a command takes its graph as the given parameter: `uri` (the argument) or `uri_option`."""
    return any(param.name == parameter for param in command.params)


def address(*given: str | None) -> str:
    """The address of the graph. Exactly one of the arguments must be given."""
    named = [uri for uri in given if uri is not None]
    if not named:
        positional = takes_address(click.get_current_context().command, "uri")
        raise click.UsageError(f"name a graph: {'give its URI, or ' * positional}--uri URI, or --store URI")
    if len(named) > 1:
        raise click.UsageError("name the graph once: URI, --uri and --store are the same")
    return named[0]


def open_to_read(uri: str) -> Graph:
    """Open a graph read-only. Works without write permission."""
    from omnigraph.graph import open

    return open(uri, read_only=True)


def open_to_write(uri: str, actor: str | None, *, quiet: bool) -> Graph:
    """Open a graph for writing. Prints the target to stderr first."""
    from omnigraph.graph import open

    begin_write()
    if not quiet:
        print_target(uri)
    return open(uri, actor=actor, blob_sources=_blob_sources())


def begin_write() -> None:
    """Record that the command starts to write. If printing its result fails, the error says that the write is done.

    Raises:
        InputError: stdout is closed.
    """
    require_stdout()
    click.get_current_context().meta[WRITES] = True


def print_target(uri: str) -> None:
    """Print to stderr which graph is written to."""
    command = " ".join(click.get_current_context().command_path.split()[1:])
    click.echo(f"omnigraph {command} → {_normal(uri)} (direct, {'local' if is_local(uri) else 'remote'})", err=True)


def _blob_sources() -> list[str]:
    """The allowed sources of external blobs, from the environment."""
    named = (BLOB_SOURCES.get() or "").split()
    if named:
        from omnigraph.write.external_blobs import BlobPolicy

        try:
            BlobPolicy.allowing(named)
        except InputError as error:
            raise InputError(f"{BLOB_SOURCES.name}: {error}", hint=error.hint) from None
    return named


def is_local(uri: str) -> bool:
    from omnigraph.storage.uri import GraphUri, Scheme

    return GraphUri.parse(uri).scheme is Scheme.LOCAL


def _normal(uri: str) -> str:
    from omnigraph.storage.uri import GraphUri

    return str(GraphUri.parse(uri))


def confirm(what: str, uri: str, *, yes: bool, as_json: bool) -> None:
    """Ask for consent before a destructive write to a remote graph.

    Raises:
        InputError: stdin is not a terminal, or the answer is no.
    """
    if yes or is_local(uri):
        return
    if as_json or not at_terminal():
        raise InputError(f"{what} on {_normal(uri)} cannot be undone", hint="add --yes to consent")
    answer = click.prompt(f"{what} on {_normal(uri)} cannot be undone. Continue? [y/N]", default="", show_default=False)
    if answer.strip().lower() not in ("y", "yes"):
        raise InputError("not confirmed, so nothing was changed")
