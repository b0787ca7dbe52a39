"""Commands about graph algorithms: `analytics pagerank`, `components`, `labels`, `triangles`, `paths`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.export import one_view
from omnigraph.cli.output import JSON
from omnigraph.cli.query import FORMATS
from omnigraph.cli.scope import address, addressed, engines, open_to_read, open_to_write

if TYPE_CHECKING:
    from omnigraph.pipeline.analytics import Analysis
    from omnigraph.pipeline.analytics.outcome import Outcome

_FILES = (".parquet", ".arrow", ".csv")


@click.group()
def analytics() -> None:
    """Run algorithms over the graph: ranks, components, communities, triangles, distances."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What every algorithm is told."""

    uri: str | None
    uri_option: str | None
    store: str | None
    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    branch: str | None
    at: str | None
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
    addressed(positional=True),
    click.option("--node", "nodes", metavar="TYPE", multiple=True, help="Only these node types. Repeatable."),
    click.option("--edge", "edges", metavar="TYPE", multiple=True, help="Only these edge types. Repeatable."),
    click.option("--branch", metavar="BRANCH", help="The newest state of a branch.  [default: main]"),
    click.option("--snapshot", "at", metavar="ID", help="The state that a commit left: its id, or a tag."),
    engines("the memory that it takes"),
    click.option("--write", "property", metavar="PROPERTY", help="Make the result a property of the nodes."),
    click.option("--to", metavar="BRANCH", help="With --write: the branch, made from the state that was looked at."),
    click.option("--message", metavar="TEXT", help="With --write: the commit's message."),
    click.option("--as", "actor", metavar="ACTOR", help="With --write: who the write is by."),
    click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help=f"A file: {', '.join(_FILES)}."),
    click.option("--format", type=click.Choice(FORMATS), default="table", help="How to print rows.  [default: table]"),
    click.option("--quiet", is_flag=True, help="Leave out the line about where it runs."),
    JSON,
]


def _asked(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_TOP = click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N largest, largest first.")


@analytics.command()
@_asked
@click.option("--damping", type=float, default=0.85, help="How likely a step follows an edge.  [default: 0.85]")
@click.option("--iterations", type=int, default=100, help="How often ranks are passed on, at most.  [default: 100]")
@click.option("--tolerance", type=float, default=1e-6, help="Stop when ranks change by less.  [default: 1e-06]")
@_TOP
def pagerank(damping: float, iterations: int, tolerance: float, top: int | None, **asked: Any) -> None:
    """How much each node is led to."""
    _run(
        "pagerank",
        _Asked(**asked),
        lambda found: found.pagerank(damping=damping, iterations=iterations, tolerance=tolerance),
        top=top,
    )


@analytics.command()
@_asked
def components(**asked: Any) -> None:
    """Which nodes are joined, whichever way the edges lead."""
    _run("components", _Asked(**asked), lambda found: found.components())


@analytics.command()
@_asked
@click.option("--iterations", type=int, default=10, help="How many rounds, at most.  [default: 10]")
def labels(iterations: int, **asked: Any) -> None:
    """Communities by label propagation."""
    _run("labels", _Asked(**asked), lambda found: found.labels(iterations=iterations))


@analytics.command()
@_asked
@_TOP
def triangles(top: int | None, **asked: Any) -> None:
    """How many triangles each node is a corner of."""
    _run("triangles", _Asked(**asked), lambda found: found.triangles(), top=top)


@analytics.command()
@_asked
@click.option("--source", "sources", metavar="ID", multiple=True, required=True, help="A node, or Type:id. Repeatable.")
@click.option("--direction", type=click.Choice(["out", "in", "both"]), default="out", help="[default: out]")
@click.option("--weight", metavar="PROPERTY", help="A property of the edges that says how long they are.")
def paths(sources: tuple[str, ...], direction: str, weight: str | None, **asked: Any) -> None:
    """How far nodes are from others."""
    _run(
        "paths",
        _Asked(**asked),
        lambda found: found.shortest_paths(sources, direction=direction),
        weight=weight,
    )


def _run(
    name: str,
    asked: _Asked,
    algorithm: Callable[[Analysis], Outcome],
    *,
    weight: str | None = None,
    top: int | None = None,
) -> None:
    one_view(asked.branch, asked.at)
    _check(asked)
    uri = address(asked.uri, asked.uri_option, asked.store)
    from omnigraph.pipeline.pipeline import Pipeline
    from omnigraph.pipeline.spark.session import SparkSettings, session

    spark = session(SparkSettings(asked.master))
    writes = asked.property is not None
    handle = open_to_write(uri, asked.actor, quiet=asked.quiet) if writes else open_to_read(uri)
    try:
        with handle as graph:
            found = Pipeline(graph, spark).analyse(
                nodes=list(asked.nodes) or None,
                edges=list(asked.edges) or None,
                weight=weight,
                branch=asked.branch,
                at=asked.at,
                engine=asked.engine,
            )
            if not asked.quiet and not asked.as_json:
                click.echo(f"{name} {found.choice}", err=True)
            outcome = algorithm(found)
            _give(name, asked, outcome, top)
    finally:
        spark.stop()


def _check(asked: _Asked) -> None:
    if (asked.property is None) != (asked.to is None):
        raise click.UsageError("--write PROPERTY and --to BRANCH belong together")
    if asked.property is None and (asked.message is not None or asked.actor is not None):
        raise click.UsageError("--message and --as are about a write: add --write PROPERTY and --to BRANCH")
    if asked.out is not None and asked.out.suffix not in _FILES:
        raise click.UsageError(f"--out {asked.out}: the endings are {', '.join(_FILES)}")


def _give(name: str, asked: _Asked, outcome: Outcome, top: int | None) -> None:
    """The result as it was asked for: as a property, in a file, or printed."""
    if asked.property is not None:
        assert asked.to is not None
        receipt = outcome.write(asked.property, branch=asked.to, message=asked.message)
        if not asked.as_json:
            click.echo(f"wrote {asked.property} of {receipt.total} nodes on branch {asked.to}")
            return
        from omnigraph.cli.output import print_json

        print_json(receipt.to_json())
        return
    table = outcome.table
    if top is not None:
        table = table.sort_by([(outcome.name, "descending"), ("type", "ascending"), ("id", "ascending")]).slice(0, top)
    if asked.out is not None:
        _write(table, asked.out)
        return
    from omnigraph.cli.formats import print_result
    from omnigraph.read.result.result import Result

    state = outcome.snapshot
    named = asked.at is not None
    result = Result(
        name, None if named else state.branch, state.commit.id if named else None, state.commit.id, table, None
    )
    print_result(result, "json" if asked.as_json else asked.format)


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
