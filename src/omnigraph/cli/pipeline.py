"""The commands `pipeline run` and `pipeline check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.files import DOCUMENT, path_or_document
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_display
from omnigraph.cli.scope import (
    address_options,
    engine_options,
    open_to_read,
    open_to_write,
    preview_option,
    write_options,
)
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.pipeline.declared import Document, RunReceipt

_FILE = click.argument("file", type=DOCUMENT)
_VARIABLES = click.option(
    "--var", "variables", metavar="NAME=VALUE", multiple=True, help="Value of a variable of the file. Repeatable."
)


@click.group()
def pipeline() -> None:
    """Run declared pipelines: a file names sources, SQL steps, target types, checks, and the final merge or review."""


@pipeline.command("run")
@_FILE
@address_options(positional=False)
@_VARIABLES
@click.option(
    "--run-id", metavar="ID", help="Id of the run.  [default: a digest of the file, the variables and the inputs]"
)
@preview_option("check", "Check the rows, and write nothing.")
@engine_options("the size of the input; SQL needs Spark")
@write_options()
@JSON
def run_pipeline(
    file: Path,
    target: Target,
    variables: tuple[str, ...],
    run_id: str | None,
    check: bool,
    engine: str,
    master: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a pipeline: load rows as one commit on a branch, check the branch, and merge it or leave it for review.

    An interrupted run continues when it is started again. --uri and --store override the graph that the file names.
    """
    from omnigraph.pipeline.declared import RunRequest, run
    from omnigraph.pipeline.spark.session import SparkSettings, session

    document = _document(file, variables)
    uri = _graph_of(document, target)
    spark = session(SparkSettings(master))
    shown = not quiet and not as_json
    handle = open_to_read(uri) if check else open_to_write(uri, actor, quiet=quiet)
    with handle as graph, progress_display(shown=shown) as bar:
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
        _print_receipt(receipt)


@pipeline.command("check")
@_FILE
@_VARIABLES
@JSON
def check_pipeline(file: Path, variables: tuple[str, ...], as_json: bool) -> None:
    """Check the file of a pipeline. Does not open the graph, and reads no rows.

    'pipeline run --dry-run' also reads and checks the rows, and writes nothing.
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
        click.echo("  the file is valid; 'pipeline run --dry-run' also checks the graph, the SQL and the rows")


def _document(file: Path, variables: tuple[str, ...]) -> Document:
    from omnigraph.pipeline.declared import read_document

    given = {}
    for text in variables:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.UsageError(f"--var {text}: write NAME=VALUE")
        given[name] = value
    return read_document(path_or_document(file), given)


def _graph_of(document: Document, target: Target) -> str:
    if document.graph is not None and not target.is_given:
        return document.graph
    return target.storage()


def _print_receipt(receipt: RunReceipt) -> None:
    load = receipt.load
    rows = "rows of an earlier attempt" if load is None else f"{load.total} entities"
    results = {
        "checked": f"checked {rows}; nothing was written",
        "loaded": f"loaded {rows} into {receipt.branch}",
        "review": f"loaded {rows} into branch {receipt.branch}, for review",
        "merged": f"loaded {rows} and merged {receipt.branch} into {receipt.base}",
    }
    click.echo(f"pipeline {receipt.pipeline}, run {receipt.run_id}: {results[receipt.stage.value]}")
    for outcome in receipt.checks:
        click.echo(f"  {'ok' if outcome.passed else 'later'}: {outcome}")
