"""Loading rows from files: `load`, and `ingest`, its permissive forerunner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from omnigraph.cli.conditions import conditional, conditions
from omnigraph.cli.mutate import precondition_json
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_shown
from omnigraph.cli.scope import address, addressed, confirm, engines, execution, open_to_write, writing
from omnigraph.cli.streams import stdin
from omnigraph.errors import PreconditionFailedError

if TYPE_CHECKING:
    from omnigraph.write.receipt import LoadReceipt

_STDIN = "-"


_DATA = click.option(
    "--data",
    multiple=True,
    required=True,
    metavar="FILE",
    help="NDJSON, CSV, Parquet or Arrow: a file, a directory or a pattern; - is NDJSON from stdin. Repeatable.",
)
_MODES = click.Choice(["overwrite", "append", "merge"])
_BRANCH = click.option("--branch", metavar="BRANCH", default="main", help="Where to.  [default: main]")


@click.command()
@addressed(positional=True)
@_DATA
@click.option(
    "--mode",
    type=_MODES,
    required=True,
    help="append: every id is new. merge: what exists is replaced. overwrite: whole types are replaced.",
)
@_BRANCH
@click.option("--from", "base", metavar="BASE", help="The branch to fork a missing branch from.")
@click.option("--type", "type_name", metavar="TYPE", help="The type of a file whose name does not say it.")
@click.option("--mapping", metavar="FILE", help="What tables and their columns are, in YAML or JSON.")
@click.option("--lenient", is_flag=True, help="Read what can be read, and say on stderr what was changed for that.")
@click.option("--no-embed", is_flag=True, help="Leave out the vectors that would be computed from texts.")
@click.option("--if-commit", metavar="ID", help="Load only if this commit is the head of the branch.")
@conditional
@click.option("--idempotency-key", metavar="KEY", help="Do nothing if a commit of the branch carries this key.")
@click.option("--message", metavar="TEXT", help="The commit's message.")
@click.option("--check", is_flag=True, help="Check everything, and write nothing.")
@engines("the size of the input")
@click.option(
    "--merge-threshold",
    metavar="SIZE",
    help="On Spark: from so many bytes of rows of a type on tasks merge them, and not one process.  [default: 1 GiB]",
)
@writing(destructive=True)
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

    Everything is checked first: one wrong record, and nothing is written. The exit status is 4 when --if-commit names
    another commit than the head, or when something has changed since --unchanged-since.
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
    where = _Where(engine, master, merge_threshold)
    _load(given, data, options, where, _Manner(actor, quiet, yes, as_json))


@click.command(hidden=True)
@addressed(positional=True)
@_DATA
@click.option("--mode", type=_MODES, default="merge", help="As in 'load'.  [default: merge]")
@_BRANCH
@click.option("--from", "base", metavar="BASE", default="main", help="As in 'load'.  [default: main]")
@writing(destructive=True)
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
    """Load rows permissively. Use 'load --lenient' instead."""
    click.echo("'ingest' is called 'load --lenient' now; this name will go", err=True)
    options = {"mode": mode, "branch": branch, "base": base, "lenient": True}
    given = address(uri, uri_option, store)
    _load(given, data, options, _Where("local"), _Manner(actor, quiet, yes, as_json))


@dataclass(frozen=True, slots=True)
class _Where:
    """Where a load runs, and the size from which Spark tasks merge rows."""

    engine: str
    master: str | None = None
    merge_threshold: str | None = None


@dataclass(frozen=True, slots=True)
class _Manner:
    """The options of every command that writes."""

    actor: str | None
    quiet: bool
    yes: bool
    as_json: bool


def _load(uri: str, data: tuple[str, ...], options: dict[str, Any], where: _Where, manner: _Manner) -> None:
    if data.count(_STDIN) > 1:
        raise click.UsageError("stdin can be read once")
    if options["mode"] == "overwrite" and not options.get("check"):
        confirm("overwriting", uri, yes=manner.yes, as_json=manner.as_json)
    source: list[str | IO[bytes]] = [stdin() if name == _STDIN else name for name in data]
    with (
        open_to_write(uri, manner.actor, quiet=manner.quiet) as graph,
        progress_shown(shown=not manner.quiet and not manner.as_json) as shown,
        execution("loading", where.engine, where.master, shown, merge_threshold=where.merge_threshold) as execute,
    ):
        try:
            receipt = graph.load(source, progress=shown.rows, **options, **execute)
        except PreconditionFailedError as error:
            if manner.as_json:
                print_json(precondition_json(error))
            raise
        uri = graph.uri
    for coercion in receipt.coerced:
        click.echo(f"lenient: {coercion}", err=True)
    if manner.as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _say(uri, receipt, checked=bool(options.get("check")))


def _say(uri: str, receipt: LoadReceipt, *, checked: bool) -> None:
    done = "checked" if checked else "loaded"
    click.echo(
        f"{done} {uri} on branch {receipt.branch} with {receipt.mode.value}: {receipt.total} entities across "
        f"{len(receipt.nodes)} node types and {len(receipt.edges)} edge types"
    )
    if receipt.branch_created:
        click.echo(f"created branch {receipt.branch} from {receipt.base_branch}")
    for merge in receipt.merges:
        who = "tasks on Spark" if merge.way == "tasks" else "one process"
        click.echo(f"merged {merge.type_key} by {who}: {merge.why}")
