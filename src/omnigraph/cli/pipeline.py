"""Commands about declared pipelines: `pipeline run` and `pipeline check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_shown
from omnigraph.cli.scope import address, addressed, engines, open_to_read, open_to_write, writing

if TYPE_CHECKING:
    from omnigraph.pipeline.declared import Document, RunReceipt

_FILE = click.argument("file", type=click.Path(path_type=Path))
_VARIABLES = click.option(
    "--var", "variables", metavar="NAME=VALUE", multiple=True, help="A value for a variable of the file. Repeatable."
)


@click.group()
def pipeline() -> None:
    """Run pipelines that a file declares: sources, SQL, types, checks, and then a merge."""


@pipeline.command("run")
@_FILE
@addressed(positional=False)
@_VARIABLES
@click.option("--run-id", metavar="ID", help="Which run this is.  [default: made of the file, variables and inputs]")
@click.option("--check", is_flag=True, help="Check everything, and write nothing.")
@engines("the size of the input, and SQL needs Spark")
@writing()
@JSON
def run_pipeline(
    file: Path,
    uri_option: str | None,
    store: str | None,
    variables: tuple[str, ...],
    run_id: str | None,
    check: bool,
    engine: str,
    master: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a pipeline: load its rows as one commit on a branch, check the branch, and merge it or leave it for review.

    A run that was stopped goes on where it was when it is started again. The graph is the one that the file names,
    unless --uri or --store does.
    """
    from omnigraph.pipeline.declared import RunRequest, run
    from omnigraph.pipeline.spark.session import SparkSettings, session

    document = _document(file, variables)
    target = _graph_of(document, uri_option, store)
    spark = session(SparkSettings(master))
    shown = not quiet and not as_json
    handle = open_to_read(target) if check else open_to_write(target, actor, quiet=quiet)
    with handle as graph, progress_shown(shown=shown) as bar:
        request = RunRequest(
            run_id=run_id,
            check=check,
            engine=engine,
            session=spark,
            progress=bar.rows,
            jobs=bar.tasks,
            status=(lambda line: click.echo(line, err=True)) if shown else None,
        )
        try:
            receipt = run(graph, document, request)
        finally:
            spark.stop()
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _say(receipt)


@pipeline.command("check")
@_FILE
@_VARIABLES
@JSON
def check_pipeline(file: Path, variables: tuple[str, ...], as_json: bool) -> None:
    """Check what the file of a pipeline says, by itself. Nothing that it names is opened.

    'pipeline run --check' also reads and checks the rows, and writes nothing.
    """
    document = _document(file, variables)
    members = {
        "pipeline": document.name,
        "sources": list(document.sources),
        "steps": list(document.steps),
        "types": [target.key for target in document.targets],
        "checks": [found.name for found in document.checks],
        "then": None if document.then is None else document.then.value,
    }
    if as_json:
        print_json(members)
    else:
        counted = ", ".join(f"{len(members[name] or ())} {name}" for name in ("sources", "steps", "types", "checks"))
        click.echo(f"{file}: pipeline {document.name} with {counted}")
        click.echo("  the file by itself is right; 'pipeline run --check' also asks the graph, the SQL and the rows")


def _document(file: Path, variables: tuple[str, ...]) -> Document:
    from omnigraph.pipeline.declared import read_document

    given = {}
    for text in variables:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.UsageError(f"--var {text}: write NAME=VALUE")
        given[name] = value
    return read_document(file, given)


def _graph_of(document: Document, uri: str | None, store: str | None) -> str:
    if uri is None and store is None and document.graph is not None:
        return document.graph
    return address(uri, store)


def _say(receipt: RunReceipt) -> None:
    load = receipt.load
    rows = "rows that were loaded before" if load is None else f"{load.total} entities"
    said = {
        "checked": f"checked {rows}; nothing was written",
        "loaded": f"loaded {rows} to {receipt.branch}",
        "review": f"loaded {rows} to branch {receipt.branch}, for review",
        "merged": f"loaded {rows}, and merged {receipt.branch} into {receipt.base}",
    }
    click.echo(f"pipeline {receipt.pipeline}, run {receipt.run_id}: {said[receipt.stage.value]}")
    for outcome in receipt.checks:
        click.echo(f"  {'ok' if outcome.passed else 'later'}: {outcome}")
