"""Loading rows from files: `load`, and `ingest`, its permissive forerunner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from omnigraph.cli.conditions import conditional, conditions
from omnigraph.cli.mutate import precondition_json
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import Shown, progress_shown
from omnigraph.cli.scope import address, addressed, confirm, engines, open_to_write, writing
from omnigraph.cli.streams import stdin
from omnigraph.errors import PreconditionFailedError

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.pipeline.engine import Choice
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
    way = _Way(engine, master, merge_threshold)
    _load(given, data, options, way, actor=actor, quiet=quiet, yes=yes, as_json=as_json)


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
    _load(given, data, options, _Way("local"), actor=actor, quiet=quiet, yes=yes, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Way:
    """How the rows get into the graph: in this process or on Spark, where that runs, and from when on tasks merge."""

    engine: str
    master: str | None = None
    merge_threshold: str | None = None

    def load(
        self, graph: Graph, source: list[Any], options: dict[str, Any], shown: Shown
    ) -> tuple[LoadReceipt, Choice]:
        from omnigraph.graph.loading import LoadRequest, load_mode
        from omnigraph.graph.preconditions import unchanged
        from omnigraph.pipeline.engine import Engine, choose
        from omnigraph.pipeline.jobs import Watch
        from omnigraph.pipeline.load import SparkOptions
        from omnigraph.pipeline.load.either import load_by
        from omnigraph.pipeline.session import SparkSettings, session

        chosen = choose(self.engine, source, options=graph._store.objects.uri.storage_options)
        if chosen.amiss or (chosen.engine is Engine.SPARK and shown.notes):
            click.echo(f"loading {chosen}", err=True)
        read = {"mode": load_mode(options["mode"]), "mapping": graph._mapping(options.get("mapping"))}
        since, reads = options.pop("unchanged_since", None), options.pop("reads", ())
        request = LoadRequest(**options | read, unchanged=unchanged(since, reads), progress=shown.rows)
        spark = session(SparkSettings(self.master))
        try:
            spread = SparkOptions(spark, Watch(shown.tasks), merge_threshold=self.merge_threshold)
            return load_by(chosen, graph, source, request, spread), chosen
        finally:
            spark.stop()


def _load(
    uri: str,
    data: tuple[str, ...],
    options: dict[str, Any],
    way: _Way,
    *,
    actor: str | None,
    quiet: bool,
    yes: bool,
    as_json: bool,
) -> None:
    if data.count(_STDIN) > 1:
        raise click.UsageError("stdin can be read once")
    if options["mode"] == "overwrite" and not options.get("check"):
        confirm("overwriting", uri, yes=yes, as_json=as_json)
    source: list[str | IO[bytes]] = [stdin() if name == _STDIN else name for name in data]
    with open_to_write(uri, actor, quiet=quiet) as graph, progress_shown(shown=not quiet and not as_json) as shown:
        try:
            receipt, chosen = way.load(graph, source, options, shown)
        except PreconditionFailedError as error:
            if as_json:
                print_json(precondition_json(error))
            raise
        uri = graph.uri
    for coercion in receipt.coerced:
        click.echo(f"lenient: {coercion}", err=True)
    if as_json:
        print_json({"uri": uri, **receipt.to_json(), "engine": chosen.engine.value, "why": chosen.why})
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
