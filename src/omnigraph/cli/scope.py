"""Options and functions that select the graph of a command, open it, and choose the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, TypeVar, cast

import click
from click.core import ParameterSource

from omnigraph.cli.failures import WRITES
from omnigraph.cli.operator_config import read_config
from omnigraph.cli.served import ServedGraph
from omnigraph.cli.streams import at_terminal, require_stdout
from omnigraph.cli.target import Place, Served, Target
from omnigraph.errors import InputError
from omnigraph.settings import BLOB_SOURCES

if TYPE_CHECKING:
    from omnigraph.cli.progress import ProgressDisplay
    from omnigraph.engine.engines import Choice
    from omnigraph.engine.request_options import ExecutionOptions
    from omnigraph.graph import Graph

F = TypeVar("F", bound=Callable[..., object])

GLOBAL_FLAGS = {
    "--server": ("--server addresses a graph of a server", "Omit it"),
    "--graph": ("--graph selects a graph of a server", "Omit it"),
    "--store": ("--store names the storage of an existing graph", "Omit it"),
    "--as": ("--as names the actor of a write", "Omit it"),
    "--profile": ("--profile names what commands work on", "Omit it"),
    "--yes": ("--yes consents to a destructive write", "Omit it"),
    "--quiet": ("--quiet hides the line about a write's target", "Omit it"),
}
"""Flags that are allowed before or after a command: a description, and advice for commands that do not take them. If
several do not apply, the first one of this order is reported."""

FLAGS_WITH_VALUES = ("--server", "--graph", "--store", "--as", "--profile")

REMEDIES = {("init", "--store"): "Give the address as the argument: omnigraph init URI --schema FILE"}


def _once(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The value of an option that must not be repeated. Click alone would use the last value without a message."""
    if len(values) > 1:
        raise click.UsageError(f"give {option.opts[0]} once: a command works on one graph")
    if values == ("",):  # of a variable that is not set: no default may take its place
        raise click.UsageError(f"{option.opts[0]} is empty")
    return values[0] if values else None


def _global(flag: str, name: str, metavar: str, help: str) -> Callable[[F], F]:
    return click.option(flag, name, multiple=True, callback=_once, metavar=metavar, help=help)


_STORE = _global("--store", "store", "URI", "Storage of the graph: a path, file:// or s3://.")
_URI = _global("--uri", "uri_option", "URI", "Same as --store.")
_SERVER = _global("--server", "server", "NAME|URL", "Server of the graph: a name of the configuration, or an address.")
_GRAPH = _global("--graph", "graph_id", "ID", "Graph of the server.")
_PROFILE = _global("--profile", "profile", "NAME", "Profile of the configuration that names the server or the storage.")
_AS = click.option("--as", "actor", metavar="ACTOR", help="Actor of the commit.")
_YES = click.option("--yes", is_flag=True, help="Consent to a destructive write on a remote graph.")
_QUIET = click.option("--quiet", is_flag=True, help="Hide the line about the target of the write.")


def address_options(
    *, positional: bool, served: bool = False, stored_only: tuple[str, ...] = (), profiles: bool = True
) -> Callable[[F], F]:
    """Add the options that name a graph. The command gets them as its argument `target`.

    Args:
        positional: whether the graph can be given as an argument, too.
        served: whether the command also works with a graph of a server.
        stored_only: the names of the parameters that need the storage of the graph.
        profiles: whether profiles and defaults of the configuration can name the graph.
    """
    options = [_STORE, _URI, *([_SERVER, _GRAPH] if served else []), *([_PROFILE] if profiles else [])]
    graph = click.argument("uri", required=False, metavar="[GRAPH]")
    return _with_target([graph, *options] if positional else options, stored_only)


def server_options(command: F) -> F:
    """Add the options of a command that works with servers only. The command gets them as its argument `target`."""
    return _with_target([_SERVER, _PROFILE], ())(command)


def _with_target(options: list[Callable[[F], F]], stored_only: tuple[str, ...]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        @wraps(command)
        def run(*args: object, **values: object) -> object:
            given = {name: cast("str | None", values.pop(name)) for name in _TARGET_FIELDS if name in values}
            return command(*args, target=Target(**given, stored_only=stored_only), **values)

        decorated = cast(F, run)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


_TARGET_FIELDS = ("uri", "uri_option", "store", "server", "graph_id", "profile")


def state_options(verb: str = "Read") -> Callable[[F], F]:
    """Add the options `--branch`, `--snapshot` and `--at`, which select a state of the graph.

    The command gets the arguments `branch` and `at`; `at` is a commit id or tag, a time, or None.

    Args:
        verb: the verb of the help texts.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def run(*args: object, snapshot: str | None, at: str | datetime | None, **values: object) -> object:
            if snapshot is not None and at is not None:
                raise click.UsageError("give --snapshot or --at, not both")
            state = at if snapshot is None else snapshot
            if isinstance(state, str) and values["branch"] is not None:
                if click.get_current_context().get_parameter_source("branch") is not ParameterSource.DEFAULT_MAP:
                    option = "--snapshot" if at is None else "--at with a commit"
                    raise click.UsageError(f"give --branch or {option}, not both")
                values["branch"] = None  # that of the project file
            return command(*args, at=state, **values)

        options = [
            click.option("--branch", metavar="BRANCH", help=f"{verb} the head of a branch.  [default: main]"),
            click.option(
                "--snapshot", metavar="ID", help=f"{verb} the snapshot of a commit: its id, the start of it, or a tag."
            ),
            click.option(
                "--at",
                type=_state,
                metavar="COMMIT|TAG|TIME",
                help=f"{verb} a commit or tag; or the branch at a time: 2026-03-14, 2026-03-14T09:30:00Z.",
            ),
        ]
        decorated: Callable[..., object] = run
        for option in reversed(options):
            decorated = option(decorated)
        return cast(F, decorated)

    return decorate


def _state(text: str) -> str | datetime:
    """A time in ISO 8601, by default in UTC; or a commit or tag."""
    if not looks_like_time(text):
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = f"'{text}' is not a time: write 2026-03-14 or 2026-03-14T09:30:00Z; for a tag, use --snapshot"
        raise click.BadParameter(message) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def looks_like_time(text: str) -> bool:
    """Whether a text begins as a time does. Ids of commits have no `-`."""
    return "-" in text and text[:4].isdecimal()


def preview_option(old_name: str, help: str) -> Callable[[F], F]:
    """Add the option `--dry-run`.

    Args:
        old_name: `preview` or `check`: the old name of the option, which is also the name of the parameter.
        help: the help text.
    """
    return click.option("--dry-run", f"--{old_name}", old_name, is_flag=True, help=help)


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
    engine_option = click.option(
        "--engine",
        type=click.Choice(["auto", "local", "spark"]),
        default="auto",
        help=f"Run in this process or on Spark; auto decides by {by}.  [default: auto]",
    )
    master_option = click.option(
        "--master", metavar="MASTER", help="Run on Spark with this master: local[*,4], spark://host:7077, ..."
    )

    def decorate(command: F) -> F:
        @wraps(command)
        def run(*args: object, engine: str, master: str | None, **values: object) -> object:
            if master is not None and engine != "spark":
                if click.get_current_context().get_parameter_source("engine") is not ParameterSource.COMMANDLINE:
                    engine = "spark"
                elif engine == "local":
                    raise click.UsageError("--master names a Spark cluster, and --engine local uses none. Omit one.")
            return command(*args, engine=engine, master=master, **values)

        return engine_option(master_option(cast(F, run)))

    return decorate


@contextmanager
def execution(
    verb: str,
    engine: str,
    master: str | None,
    shown: ProgressDisplay,
    *,
    merge_threshold: str | None = None,
    place: Place = "",
) -> Iterator[ExecutionOptions]:
    """The options that choose where the work of a command runs. Stops Spark at the end, if it was started.

    Args:
        verb: the verb for the line on stderr, such as `loading`.
        engine: `auto`, `local` or `spark`.
        master: the Spark master.
        shown: the progress display.
        merge_threshold: the minimum size of the rows of a type that Spark merges in tasks, such as `1 GiB`.
        place: the graph. There are no options for a server, which computes in its own process.
    """
    if isinstance(place, Served):
        yield {}
        return
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


def open_to_read(uri: str) -> Graph:
    """Open a graph read-only. Works without write permission."""
    from omnigraph.graph import open

    return open(uri, read_only=True)


def open_to_write(uri: str, actor: str | None, *, quiet: bool) -> Graph:
    """Open a graph for writing. Prints the target to stderr first.

    Args:
        uri: the storage of the graph.
        actor: the actor of the commit; by default that of the configuration.
        quiet: whether to print nothing.
    """
    from omnigraph.graph import open

    begin_write()
    if not quiet:
        print_target(uri)
    return open(uri, actor=actor or read_config().actor, blob_sources=blob_sources())


def connect_to_read(place: Place) -> Graph | ServedGraph:
    """Open a graph read-only, or connect to a server."""
    return open_to_read(place) if isinstance(place, str) else ServedGraph(place, place.connect())


def connect_to_write(place: Place, actor: str | None, *, quiet: bool) -> Graph | ServedGraph:
    """Open a graph for writing, or connect to a server. Prints the target to stderr first.

    Raises:
        UsageError: an actor is given for a server, which knows the actor by the token.
    """
    if isinstance(place, str):
        return open_to_write(place, actor, quiet=quiet)
    if actor is not None:
        raise click.UsageError(
            f"'{_command()}' writes to a server; the actor comes from the token, and --as does not apply. Omit it."
        )
    begin_write()
    if not quiet:
        print_target(place)
    return ServedGraph(place, place.connect())


def begin_write() -> None:
    """Record that the command starts to write. If printing its result fails, the error says that the write is done.

    Raises:
        InputError: stdout is closed.
    """
    require_stdout()
    click.get_current_context().meta[WRITES] = True


def print_target(place: Place) -> None:
    """Print to stderr which graph is written to."""
    how = "served" if isinstance(place, Served) else f"direct, {'local' if is_local(place) else 'remote'}"
    click.echo(f"omnigraph {_command()} → {_normal(place)} ({how})", err=True)


def _command() -> str:
    """The words of the command that runs."""
    return " ".join(click.get_current_context().command_path.split()[1:])


def blob_sources() -> list[str]:
    """The allowed sources of external blobs, from the environment."""
    named = (BLOB_SOURCES.get() or "").split()
    if named:
        from omnigraph.write.external_blobs import BlobPolicy

        try:
            BlobPolicy.allowing(named)
        except InputError as error:
            raise InputError(f"{BLOB_SOURCES.name}: {error}", hint=error.hint) from None
    return named


def is_local(place: Place) -> bool:
    """Whether a graph is on a disk of this machine, and opened by this process."""
    from omnigraph.storage.uri import GraphUri, Scheme

    return isinstance(place, str) and GraphUri.parse(place).scheme is Scheme.LOCAL


def _normal(place: Place) -> str:
    from omnigraph.storage.uri import GraphUri

    return str(GraphUri.parse(place)) if isinstance(place, str) else place.uri


def confirm(what: str, place: Place, *, yes: bool, as_json: bool) -> None:
    """Ask for consent before a destructive write to a remote graph.

    Raises:
        InputError: stdin is not a terminal, or the answer is no.
    """
    if yes or is_local(place):
        return
    where = _normal(place)
    if as_json or not at_terminal():
        raise InputError(f"{what} on {where} cannot be undone", hint="add --yes to consent")
    answer = click.prompt(f"{what} on {where} cannot be undone. Continue? [y/N]", default="", show_default=False)
    if answer.strip().lower() not in ("y", "yes"):
        raise InputError("not confirmed, so nothing was changed")
