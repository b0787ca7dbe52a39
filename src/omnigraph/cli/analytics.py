"""The commands `analytics pagerank`, `components`, `labels`, `triangles` and `paths`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.operator_config import FORMATS
from omnigraph.cli.output import JSON
from omnigraph.cli.scope import address_options, engine_options, open_to_read, open_to_write, state_options
from omnigraph.cli.target import Target
from omnigraph.dataclass import dataclass

if TYPE_CHECKING:
    from omnigraph.pipeline.analytics import Analysis
    from omnigraph.pipeline.analytics.outcome import Outcome

_FILES = (".parquet", ".arrow", ".csv")


@click.group()
def analytics() -> None:
    """Run graph algorithms: PageRank, components, communities, triangles, shortest paths."""


@dataclass(frozen=True, slots=True)
class _Options:
    """The options that all algorithms share."""

    target: Target
    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    branch: str | None
    at: str | datetime | None
    engine: str
    master: str | None
    property: str | None
    to: str | None
    message: str | None
    actor: str | None
    out: Path | None
    format: str
    quiet: bool
    as_json: bool


_OPTIONS = [
    address_options(positional=True),
    click.option("--node", "nodes", metavar="TYPE", multiple=True, help="Use only this node type. Repeatable."),
    click.option("--edge", "edges", metavar="TYPE", multiple=True, help="Use only this edge type. Repeatable."),
    state_options(),
    engine_options("the memory it needs"),
    click.option("--write", "property", metavar="PROPERTY", help="Write the result to a property of the nodes."),
    click.option(
        "--to", metavar="BRANCH", help="With --write: target branch, created from the snapshot if it does not exist."
    ),
    click.option("--message", metavar="TEXT", help="With --write: message of the commit."),
    click.option("--as", "actor", metavar="ACTOR", help="With --write: actor of the commit."),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"Write the result to a file: {', '.join(_FILES)}.",
    ),
    click.option("--format", type=click.Choice(FORMATS), default="table", help="Output format.  [default: table]"),
    click.option("--quiet", is_flag=True, help="Hide the line about the chosen engine."),
    JSON,
]


def _shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_TOP = click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Print only the N largest values, largest first."
)


@analytics.command()
@_shared_options
@click.option("--damping", type=float, default=0.85, help="Probability to follow an edge.  [default: 0.85]")
@click.option("--iterations", type=int, default=100, help="Maximum number of iterations.  [default: 100]")
@click.option(
    "--tolerance", type=float, default=1e-6, help="Stop if the ranks change by less than this.  [default: 1e-06]"
)
@_TOP
def pagerank(damping: float, iterations: int, tolerance: float, top: int | None, **values: Any) -> None:
    """PageRank of every node."""
    _run(
        "pagerank",
        _Options(**values),
        lambda analysis: analysis.pagerank(damping=damping, iterations=iterations, tolerance=tolerance),
        top=top,
    )


@analytics.command()
@_shared_options
def components(**values: Any) -> None:
    """Weakly connected component of every node."""
    _run("components", _Options(**values), lambda analysis: analysis.components())


@analytics.command()
@_shared_options
@click.option("--iterations", type=int, default=10, help="Maximum number of rounds.  [default: 10]")
def labels(iterations: int, **values: Any) -> None:
    """Community of every node, by label propagation."""
    _run("labels", _Options(**values), lambda analysis: analysis.labels(iterations=iterations))


@analytics.command()
@_shared_options
@_TOP
def triangles(top: int | None, **values: Any) -> None:
    """Number of triangles of every node."""
    _run("triangles", _Options(**values), lambda analysis: analysis.triangles(), top=top)


@analytics.command()
@_shared_options
@click.option(
    "--source", "sources", metavar="ID", multiple=True, required=True, help="Start node: an id, or Type:id. Repeatable."
)
@click.option(
    "--direction",
    type=click.Choice(["out", "in", "both"]),
    default="out",
    help="Direction of the edges.  [default: out]",
)
@click.option("--weight", metavar="PROPERTY", help="Edge property that is the length of an edge.")
def paths(sources: tuple[str, ...], direction: str, weight: str | None, **values: Any) -> None:
    """Shortest distances from the given nodes."""
    _run(
        "paths",
        _Options(**values),
        lambda analysis: analysis.shortest_paths(sources, direction=direction),
        weight=weight,
    )


def _run(
    name: str,
    options: _Options,
    algorithm: Callable[[Analysis], Outcome],
    *,
    weight: str | None = None,
    top: int | None = None,
) -> None:
    _check(options)
    uri = options.target.storage()
    from omnigraph.pipeline.pipeline import Pipeline
    from omnigraph.pipeline.spark.session import SparkSettings, session

    spark = session(SparkSettings(options.master))
    writes = options.property is not None
    handle = open_to_write(uri, options.actor, quiet=options.quiet) if writes else open_to_read(uri)
    try:
        with handle as graph:
            analysis = Pipeline(graph, spark).analyse(
                nodes=list(options.nodes) or None,
                edges=list(options.edges) or None,
                weight=weight,
                branch=options.branch,
                at=options.at,
                engine=options.engine,
            )
            if not options.quiet and not options.as_json:
                click.echo(f"{name} {analysis.choice}", err=True)
            outcome = algorithm(analysis)
            _deliver(name, options, outcome, top)
    finally:
        spark.stop()


def _check(options: _Options) -> None:
    if (options.property is None) != (options.to is None):
        raise click.UsageError("--write PROPERTY and --to BRANCH must be given together")
    if options.property is None and (options.message is not None or options.actor is not None):
        raise click.UsageError("--message and --as need a write: add --write PROPERTY and --to BRANCH")
    if options.out is not None and options.out.suffix not in _FILES:
        raise click.UsageError(f"--out {options.out}: the file name must end in {', '.join(_FILES)}")


def _deliver(name: str, options: _Options, outcome: Outcome, top: int | None) -> None:
    """Write the result to a property or a file, or print it."""
    if options.property is not None:
        assert options.to is not None
        receipt = outcome.write(options.property, branch=options.to, message=options.message)
        if not options.as_json:
            click.echo(f"wrote {options.property} of {receipt.total} nodes on branch {options.to}")
            return
        from omnigraph.cli.output import print_json

        print_json(receipt.to_json())
        return
    table = outcome.table
    if top is not None:
        table = table.sort_by([(outcome.name, "descending"), ("type", "ascending"), ("id", "ascending")]).slice(0, top)
    if options.out is not None:
        _write(table, options.out)
        return
    from omnigraph.cli.formats import print_result
    from omnigraph.read.result.result import Result

    state = outcome.snapshot
    named = options.at is not None
    result = Result(
        name, None if named else state.branch, state.commit.id if named else None, state.commit.id, table, None
    )
    print_result(result, "json" if options.as_json else options.format)


def _write(table: Any, path: Path) -> None:
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    from omnigraph.storage.files.local_output import output_file

    with output_file(path) as file:
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(table, file)
        elif path.suffix == ".arrow":
            pyarrow.feather.write_feather(table, file, compression="uncompressed")
        else:
            pyarrow.csv.write_csv(table, file)
