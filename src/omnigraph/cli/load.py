"""The `load` command, and `ingest`, its old permissive form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from omnigraph.amounts import counted
from omnigraph.cli.conditions import condition_options, conditions
from omnigraph.cli.files import DOCUMENT, STDIN, path_or_document, read_bytes
from omnigraph.cli.output import JSON, print_json, shown_totals
from omnigraph.cli.progress import progress_display
from omnigraph.cli.scope import (
    address_options,
    confirm,
    connect_to_write,
    engine_options,
    execution,
    preview_option,
    write_options,
)
from omnigraph.cli.served import ServedGraph
from omnigraph.cli.streams import read_stdin, stdin
from omnigraph.cli.target import Place, Target
from omnigraph.dataclass import dataclass
from omnigraph.errors import BadRowsError, ConstraintError, InputError, KeyConflictError

if TYPE_CHECKING:
    from omnigraph.write.receipt import LoadReceipt

_STDIN = "-"
_NDJSON = (".ndjson", ".jsonl", ".json")
MOST_BYTES = 1 << 30
"""Maximum size of the files of one load into a graph of a server. The server has a limit of its own."""

_PLACE = re.compile(r"(line|record) ([0-9]+)")


_DATA = click.option(
    "--data",
    multiple=True,
    required=True,
    metavar="FILE",
    help="NDJSON, CSV, Parquet or Arrow: a file, a directory or a pattern; - is stdin. Repeatable.",
)
_FORMAT = click.option(
    "--format",
    type=click.Choice(["ndjson", "csv", "tsv", "parquet", "arrow"]),
    help="Format of the input, whatever the names of the files are.  [default: by the name; ndjson for pipes]",
)
_MODES = click.Choice(["overwrite", "append", "merge"])
_BRANCH = click.option("--branch", metavar="BRANCH", default="main", help="Branch to write to.  [default: main]")


@click.command()
@address_options(
    positional=True,
    served=True,
    stored_only=(
        *("type_name", "mapping", "no_embed", "if_commit", "unchanged_since", "reads", "timeout", "check"),
        *("engine", "master", "merge_threshold"),
    ),
)
@_DATA
@click.option(
    "--mode",
    type=_MODES,
    required=True,
    help="append: all ids must be new. merge: replace existing rows. overwrite: replace all rows of the types.",
)
@_BRANCH
@click.option("--from", "base", metavar="BASE", help="Create a missing branch from this branch.")
@_FORMAT
@click.option("--type", "type_name", metavar="TYPE", help="Type of the rows, if the file name does not give it.")
@click.option(
    "--mapping",
    type=DOCUMENT,
    metavar="FILE",
    help="Mapping of tables and columns to types and properties, in YAML or JSON.",
)
@click.option("--lenient", is_flag=True, help="Correct malformed values, and list the corrections on stderr.")
@click.option("--no-embed", is_flag=True, help="Do not compute the vectors of @embed properties.")
@click.option("--if-commit", metavar="ID", help="Load only if this commit is the head of the branch.")
@condition_options
@click.option("--idempotency-key", metavar="KEY", help="Do nothing if the branch has a commit with this key.")
@click.option("--message", metavar="TEXT", help="Message of the commit.")
@preview_option("check", "Check all rows, and write nothing.")
@engine_options("the size of the input")
@click.option(
    "--merge-threshold",
    metavar="SIZE",
    help="On Spark: merge the rows of a type in tasks if they have at least this size.  [default: 1 GiB]",
)
@write_options(destructive=True)
@JSON
def load(
    target: Target,
    data: tuple[str, ...],
    mode: str,
    branch: str,
    base: str | None,
    format: str | None,
    type_name: str | None,
    mapping: Path | None,
    lenient: bool,
    no_embed: bool,
    if_commit: str | None,
    unchanged_since: str | None,
    reads: tuple[str, ...],
    timeout: float | None,
    idempotency_key: str | None,
    message: str | None,
    check: bool,
    engine: str,
    master: str | None,
    merge_threshold: str | None,
    actor: str | None,
    quiet: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Load rows from files, as one commit.

    Checks all rows first. If one record is wrong, nothing is written. The exit code is 4 if the head is not the commit
    of --if-commit, or if the data changed since --unchanged-since.
    """
    if mapping is STDIN and _STDIN in data:
        raise click.UsageError("--data and --mapping both name standard input, which can be read only once")
    place = target.place()
    options = {
        "mode": mode,
        "branch": branch,
        "base": base,
        "format": format,
        "type_name": type_name,
        "mapping": None if mapping is None else path_or_document(mapping),
        "lenient": lenient,
        "embed": not no_embed,
        "expect_head": if_commit,
        "idempotency_key": idempotency_key,
        "message": message,
        "check": check,
        **conditions(unchanged_since, reads, timeout),
    }
    run_on = _EngineOptions(engine, master, merge_threshold)
    _load(place, data, options, run_on, _WriteOptions(actor, quiet, yes, as_json))


@click.command(hidden=True)
@address_options(positional=True, served=True)
@_DATA
@click.option("--mode", type=_MODES, default="merge", help="As in 'load'.  [default: merge]")
@_BRANCH
@click.option("--from", "base", metavar="BASE", default="main", help="As in 'load'.  [default: main]")
@write_options(destructive=True)
@JSON
def ingest(
    target: Target,
    data: tuple[str, ...],
    mode: str,
    branch: str,
    base: str | None,
    actor: str | None,
    quiet: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Load rows, and correct malformed values. Use 'load --lenient' instead."""
    click.echo("'ingest' is deprecated, use 'load --lenient'", err=True)
    options = {"mode": mode, "branch": branch, "base": base, "lenient": True}
    place = target.place()
    _load(place, data, options, _EngineOptions("local"), _WriteOptions(actor, quiet, yes, as_json))


@dataclass(frozen=True, slots=True)
class _EngineOptions:
    """The engine of a load, and the minimum size of rows that Spark merges in tasks."""

    engine: str
    master: str | None = None
    merge_threshold: str | None = None


@dataclass(frozen=True, slots=True)
class _WriteOptions:
    """The options of all commands that write."""

    actor: str | None
    quiet: bool
    yes: bool
    as_json: bool


def _load(
    place: Place, data: tuple[str, ...], options: dict[str, Any], run_on: _EngineOptions, write: _WriteOptions
) -> None:
    if data.count(_STDIN) > 1:
        raise click.UsageError("--data - was given more than once, but standard input can be read only once")
    if options["mode"] == "overwrite" and not options.get("check"):
        confirm("overwriting", place, yes=write.yes, as_json=write.as_json)
    with (
        connect_to_write(place, write.actor, quiet=write.quiet) as graph,
        progress_display(shown=not write.quiet and not write.as_json) as shown,
        execution(
            "loading", run_on.engine, run_on.master, shown, merge_threshold=run_on.merge_threshold, place=place
        ) as execute,
    ):
        if isinstance(graph, ServedGraph):
            receipt = _send(graph, data, options)
        else:
            source: list[str | IO[bytes]] = [stdin() if name == _STDIN else name for name in data]
            receipt = graph.load(source, progress=shown.rows, **options, **execute)
        uri = graph.uri
    for coercion in receipt.coerced:
        click.echo(f"lenient: {coercion}", err=True)
    if write.as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        print_receipt(uri, receipt, checked=bool(options.get("check")))


def _shown_changes(receipt: LoadReceipt) -> str:
    """The numbers of created and updated entities, or of those that an overwrite removed, as in ` (1 created)`."""
    if receipt.mode.value == "merge":
        return shown_totals(receipt.commit)
    if receipt.mode.value == "overwrite" and receipt.deleted:
        return f" (in place of {counted(receipt.deleted, 'entity', 'entities')})"
    return ""


def _send(graph: ServedGraph, data: tuple[str, ...], options: dict[str, Any]) -> LoadReceipt:
    """Load files into a graph of a server, in one request."""
    format = options.pop("format", None)
    size = sum(Path(name).stat().st_size for name in data if Path(name).is_file())
    if size > MOST_BYTES:
        raise InputError(
            f"the files have {size:,} bytes, and one request at most {MOST_BYTES:,}",
            hint="load them one after the other, or into the storage (--store)",
        )
    files = [(name, _ndjson(name, format)) for name in data]
    lines = b"\n".join(text for _, text in files)
    with _places_in(files):
        receipt = (graph.load if options["lenient"] else graph.load_ndjson)(lines, **options)
    return replace(
        receipt, coerced=tuple(replace(one, example=_located(one.example, files)) for one in receipt.coerced)
    )


def _ndjson(name: str, format: str | None) -> bytes:
    """The lines of a file for a server, without the last line break.

    Raises:
        InputError: the file cannot be read, or is not NDJSON.
    """
    path = Path(name)
    if format != "ndjson" and (format is not None or (name != _STDIN and path.suffix not in _NDJSON)):
        raise InputError(
            f"{name} is not NDJSON, and a server loads NDJSON only",
            hint="load it into the storage (--store), or add --format ndjson if it has lines of JSON",
        )
    return (read_stdin() if name == _STDIN else read_bytes(path)).removesuffix(b"\n")


def _located(place: str, files: list[tuple[str, bytes]]) -> str:
    """A place in a file, given a place in all files together, which is all that a server knows."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return place
    number = int(found[2])
    for name, text in files:
        lines = text.count(b"\n") + 1
        count = lines if found[1] == "line" else sum(1 for line in text.split(b"\n") if line.strip())
        if number <= count:
            where = f"{found[1]} {number}"
            return where if name == _STDIN else f"{Path(name).name}, {where}"
        number -= count
    return place


@contextmanager
def _places_in(files: list[tuple[str, bytes]]) -> Iterator[None]:
    """Name the file and its line in errors about rows."""
    try:
        yield
    except KeyConflictError as error:
        error.places = tuple(_located(one, files) for one in error.places)
        raise
    except BadRowsError as error:
        error.problems = tuple(replace(one, place=_located(one.place, files)) for one in error.problems)
        raise
    except ConstraintError as error:
        error.violations = tuple(replace(one, place=_located(one.place, files)) for one in error.violations)
        raise


def print_receipt(uri: str, receipt: LoadReceipt, *, checked: bool) -> None:
    """Print the result of a load for people."""
    done = "checked" if checked else "loaded"
    types = f"{counted(len(receipt.nodes), 'node type')} and {counted(len(receipt.edges), 'edge type')}"
    totals = _shown_changes(receipt)
    click.echo(
        f"{done} {uri} on branch {receipt.branch} with {receipt.mode.value}: "
        f"{counted(receipt.total, 'entity', 'entities')} across {types}{totals}"
    )
    if receipt.branch_created:
        click.echo(f"created branch {receipt.branch} from {receipt.base_branch}")
    for merge in receipt.merges:
        method = "tasks on Spark" if merge.way == "tasks" else "one process"
        click.echo(f"merged {merge.type_key} by {method}: {merge.why}")
