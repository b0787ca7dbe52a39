"""The `load` command, and `ingest`, its old permissive form."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from omnigraph.cli.conditions import condition_options, conditions
from omnigraph.cli.mutate import precondition_json
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_display
from omnigraph.cli.scope import (
    address,
    address_options,
    confirm,
    engine_options,
    execution,
    open_to_write,
    write_options,
)
from omnigraph.cli.streams import stdin
from omnigraph.dataclass import dataclass
from omnigraph.errors import PreconditionFailedError

if TYPE_CHECKING:
    from omnigraph.write.receipt import LoadReceipt

_STDIN = "-"


_DATA = click.option(
    "--data",
    multiple=True,
    required=True,
    metavar="FILE",
    help="NDJSON, CSV, Parquet or Arrow: a file, a directory or a pattern; - reads NDJSON from stdin. Repeatable.",
)
_MODES = click.Choice(["overwrite", "append", "merge"])
_BRANCH = click.option("--branch", metavar="BRANCH", default="main", help="Branch to write to.  [default: main]")


@click.command()
@address_options(positional=True)
@_DATA
@click.option(
    "--mode",
    type=_MODES,
    required=True,
    help="append: all ids must be new. merge: replace existing rows. overwrite: replace all rows of the types.",
)
@_BRANCH
@click.option("--from", "base", metavar="BASE", help="Create a missing branch from this branch.")
@click.option("--type", "type_name", metavar="TYPE", help="Type of the rows, if the file name does not give it.")
@click.option(
    "--mapping", metavar="FILE", help="Mapping of tables and columns to types and properties, in YAML or JSON."
)
@click.option("--lenient", is_flag=True, help="Correct malformed values, and list the corrections on stderr.")
@click.option("--no-embed", is_flag=True, help="Do not compute the vectors of @embed properties.")
@click.option("--if-commit", metavar="ID", help="Load only if this commit is the head of the branch.")
@condition_options
@click.option("--idempotency-key", metavar="KEY", help="Do nothing if the branch has a commit with this key.")
@click.option("--message", metavar="TEXT", help="Message of the commit.")
@click.option("--check", is_flag=True, help="Check all rows, and write nothing.")
@engine_options("the size of the input")
@click.option(
    "--merge-threshold",
    metavar="SIZE",
    help="On Spark: merge the rows of a type in tasks if they have at least this size.  [default: 1 GiB]",
)
@write_options(destructive=True)
@JSON
def load(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    data: tuple[str, ...],
    mode: str,
    branch: str,
    base: str | None,
    type_name: str | None,
    mapping: str | None,
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
    given = address(uri, uri_option, store)
    options = {
        "mode": mode,
        "branch": branch,
        "base": base,
        "type_name": type_name,
        "mapping": mapping,
        "lenient": lenient,
        "embed": not no_embed,
        "expect_head": if_commit,
        "idempotency_key": idempotency_key,
        "message": message,
        "check": check,
        **conditions(unchanged_since, reads, timeout),
    }
    run_on = _EngineOptions(engine, master, merge_threshold)
    _load(given, data, options, run_on, _WriteOptions(actor, quiet, yes, as_json))


@click.command(hidden=True)
@address_options(positional=True)
@_DATA
@click.option("--mode", type=_MODES, default="merge", help="As in 'load'.  [default: merge]")
@_BRANCH
@click.option("--from", "base", metavar="BASE", default="main", help="As in 'load'.  [default: main]")
@write_options(destructive=True)
@JSON
def ingest(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
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
    given = address(uri, uri_option, store)
    _load(given, data, options, _EngineOptions("local"), _WriteOptions(actor, quiet, yes, as_json))


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
    uri: str, data: tuple[str, ...], options: dict[str, Any], run_on: _EngineOptions, write: _WriteOptions
) -> None:
    if data.count(_STDIN) > 1:
        raise click.UsageError("--data - was given more than once, but standard input can be read only once")
    if options["mode"] == "overwrite" and not options.get("check"):
        confirm("overwriting", uri, yes=write.yes, as_json=write.as_json)
    source: list[str | IO[bytes]] = [stdin() if name == _STDIN else name for name in data]
    with (
        open_to_write(uri, write.actor, quiet=write.quiet) as graph,
        progress_display(shown=not write.quiet and not write.as_json) as shown,
        execution("loading", run_on.engine, run_on.master, shown, merge_threshold=run_on.merge_threshold) as execute,
    ):
        try:
            receipt = graph.load(source, progress=shown.rows, **options, **execute)
        except PreconditionFailedError as error:
            if write.as_json:
                print_json(precondition_json(error))
            raise
        uri = graph.uri
    for coercion in receipt.coerced:
        click.echo(f"lenient: {coercion}", err=True)
    if write.as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _print_receipt(uri, receipt, checked=bool(options.get("check")))


def _print_receipt(uri: str, receipt: LoadReceipt, *, checked: bool) -> None:
    done = "checked" if checked else "loaded"
    click.echo(
        f"{done} {uri} on branch {receipt.branch} with {receipt.mode.value}: {receipt.total} entities across "
        f"{len(receipt.nodes)} node types and {len(receipt.edges)} edge types"
    )
    if receipt.branch_created:
        click.echo(f"created branch {receipt.branch} from {receipt.base_branch}")
    for merge in receipt.merges:
        method = "tasks on Spark" if merge.way == "tasks" else "one process"
        click.echo(f"merged {merge.type_key} by {method}: {merge.why}")
