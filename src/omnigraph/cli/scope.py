"""What a command works on: the flags that say so, the graph they lead to, and the line that tells the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from omnigraph.cli.failures import WRITES
from omnigraph.cli.streams import at_terminal, require_stdout
from omnigraph.errors import InputError
from omnigraph.settings import BLOB_SOURCES

if TYPE_CHECKING:
    from omnigraph.cli.progress import Shown
    from omnigraph.engine.engines import Choice
    from omnigraph.engine.requests import ExecutionOptions
    from omnigraph.graph import Graph

F = TypeVar("F", bound=Callable[..., object])

GLOBAL_FLAGS = {
    "--store": ("--store names the storage of an existing graph", "Leave it out"),
    "--as": ("--as says who a write is by", "Leave it out"),
    "--yes": ("--yes consents to a destructive write", "Leave it out"),
    "--quiet": ("--quiet leaves out the line about a write's target", "Leave it out"),
}
"""Flags that may stand before or after a command: what each does, and what to do where it does not apply."""

REMEDIES = {("init", "--store"): "Give the address as the argument: omnigraph init URI --schema FILE"}

_STORE = click.option("--store", metavar="URI", help="The graph's storage: a path, file:// or s3://.")
_AS = click.option("--as", "actor", metavar="ACTOR", help="Who the write is by.")
_YES = click.option("--yes", is_flag=True, help="Consent to a destructive write on a remote graph.")
_QUIET = click.option("--quiet", is_flag=True, help="Leave out the line about the write's target.")


def addressed(*, positional: bool) -> Callable[[F], F]:
    """The ways to name a graph. Some commands also take it as their only argument."""

    def decorate(command: F) -> F:
        command = click.option("--uri", "uri_option", metavar="URI", help="The same as --store.")(_STORE(command))
        return click.argument("uri", required=False)(command) if positional else command

    return decorate


def writing(*, destructive: bool = False) -> Callable[[F], F]:
    """The flags of commands that write."""

    def decorate(command: F) -> F:
        command = _AS(_QUIET(command))
        return _YES(command) if destructive else command

    return decorate


def engines(by: str) -> Callable[[F], F]:
    """Give a command the choice where its work is done.

    Args:
        by: what decides it, unless the caller does.
    """
    engine = click.option(
        "--engine",
        type=click.Choice(["auto", "local", "spark"]),
        default="auto",
        help=f"In this process, or on Spark; auto goes by {by}.  [default: auto]",
    )
    master = click.option("--master", metavar="MASTER", help="Where Spark runs: local[*,4], spark://host:7077, ...")
    return lambda command: engine(master(command))


@contextmanager
def execution(
    verb: str, engine: str, master: str | None, shown: Shown, *, merge_threshold: str | None = None
) -> Iterator[ExecutionOptions]:
    """The options that say where the work of a command runs. Spark is stopped at the end, if it was started.

    Args:
        verb: the verb of the line on stderr that says that the work runs on Spark.
        engine: `auto`, `local` or `spark`.
        master: the Spark master.
        shown: the progress display.
        merge_threshold: the size of the rows of a type from which tasks merge them.
    """
    from omnigraph.engine.engines import Engine, SparkOptions
    from omnigraph.pipeline.spark.session import SparkSettings, session

    def tell(choice: Choice) -> None:
        if choice.spark_missing or (choice.engine is Engine.SPARK and shown.notes):
            click.echo(f"{verb} {choice}", err=True)

    spark = session(SparkSettings(master))
    try:
        options = SparkOptions(spark, jobs=shown.tasks, merge_threshold=merge_threshold)
        yield {"engine": engine, "spark": options, "chosen": tell}
    finally:
        spark.stop()


def takes_address(command: click.Command, way: str) -> bool:
    """Whether a command can be told its graph in a way: `uri`, its argument, or `uri_option`."""
    return any(param.name == way for param in command.params)


def address(*given: str | None) -> str:
    """The one address among the ways to give it."""
    named = [uri for uri in given if uri is not None]
    if not named:
        positional = takes_address(click.get_current_context().command, "uri")
        raise click.UsageError(f"name a graph: {'give its URI, or ' * positional}--uri URI, or --store URI")
    if len(named) > 1:
        raise click.UsageError("name the graph once: URI, --uri and --store mean the same")
    return named[0]


def open_to_read(uri: str) -> Graph:
    """A handle that changes nothing. Commands that only look work without the right to write."""
    from omnigraph.graph import open

    return open(uri, read_only=True)


def open_to_write(uri: str, actor: str | None, *, quiet: bool) -> Graph:
    """A handle that writes, after a line on stderr about what is written to."""
    from omnigraph.graph import open

    begin_write()
    if not quiet:
        say_target(uri)
    return open(uri, actor=actor, blob_sources=_blob_sources())


def begin_write() -> None:
    """To be called before anything is changed: from here on, a report that cannot be written is no failure of the work.

    Raises:
        InputError: there is no stdout.
    """
    require_stdout()
    click.get_current_context().meta[WRITES] = True


def say_target(uri: str) -> None:
    """Say on stderr what is written to."""
    command = " ".join(click.get_current_context().command_path.split()[1:])
    click.echo(f"omnigraph {command} → {_normal(uri)} (direct, {'local' if is_local(uri) else 'remote'})", err=True)


def _blob_sources() -> list[str]:
    """Where external blobs may come from, as the environment says."""
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
    """Ask before something is destroyed that others may see.

    Raises:
        InputError: nobody is there to ask, or the answer is no.
    """
    if yes or is_local(uri):
        return
    if as_json or not at_terminal():
        raise InputError(f"{what} on {_normal(uri)} cannot be undone", hint="add --yes if that is meant")
    answer = click.prompt(f"{what} on {_normal(uri)} cannot be undone. Go on? [y/N]", default="", show_default=False)
    if answer.strip().lower() not in ("y", "yes"):
        raise InputError("nothing was changed")
