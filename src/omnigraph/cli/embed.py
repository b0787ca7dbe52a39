"""The `embed` command: computes vectors that are missing or out of date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.embed_files import FileOptions, embed_files, file_options, refuse_options
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_display
from omnigraph.cli.scope import address_options, engine_options, execution, open_to_write, preview_option, write_options
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.upkeep.vectors import EmbedReceipt

_OF_GRAPHS = (
    *(
        "uri",
        "uri_option",
        "store",
        "profile",
        "branch",
        "properties",
        "which",
        "if_commit",
        "message",
        "check",
        "engine",
    ),
    *("master", "actor"),
)
_OF_FILES = ("clean", "reembed_all", "select")


@click.command()
@address_options(positional=True)
@click.option("--branch", metavar="BRANCH", default="main", help="Branch to write to.  [default: main]")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Only this node type. Repeatable.  [default: all]")
@click.option(
    "--property",
    "properties",
    metavar="NAME",
    multiple=True,
    help="Only this vector property. Repeatable.  [default: all]",
)
@click.option(
    "--stale",
    "which",
    flag_value="stale",
    default=True,
    help="Compute vectors that are missing or of another model (default).",
)
@click.option("--missing", "which", flag_value="missing", help="Compute only missing vectors.")
@click.option("--all", "which", flag_value="all", help="Compute all vectors again.")
@click.option("--if-commit", metavar="ID", help="Write only if this commit is the head of the branch.")
@click.option("--message", metavar="TEXT", help="Message of the commit.")
@preview_option("check", "Compute the vectors, and write nothing.")
@engine_options("the size of the tables")
@file_options
@write_options()
@JSON
def embed(
    target: Target,
    branch: str,
    types: tuple[str, ...],
    properties: tuple[str, ...],
    which: str,
    if_commit: str | None,
    message: str | None,
    check: bool,
    engine: str,
    master: str | None,
    files: FileOptions,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compute the vectors of @embed properties that are missing or out of date, as one commit.

    The environment selects the model (OMNIGRAPH_EMBED_PROVIDER, OMNIGRAPH_EMBED_MODEL). Vectors that are up to
    date stay. Texts with a cached vector are not sent to the model again. The exit code is 4 if the head is not the
    commit of --if-commit.

    With --seed, or --input, --output and --spec, no graph is needed: the command copies records of the form
    {"type": …, "data": {…}} and adds the missing vectors.
    """
    if files.names_files:
        refuse_options(_OF_GRAPHS, "is about a graph, and does not apply to files")
        embed_files(files, types, quiet=quiet, as_json=as_json)
        return
    refuse_options(_OF_FILES, "is about files: give --seed, or --input, --output and --spec")
    options: dict[str, Any] = {
        "which": which,
        "types": types,
        "properties": properties,
        "branch": branch,
        "expect_head": if_commit,
        "message": message,
        "check": check,
    }
    uri = target.storage()
    with (
        open_to_write(uri, actor, quiet=quiet) as graph,
        progress_display(shown=not quiet and not as_json) as shown,
        execution("embedding", engine, master, shown) as execute,
    ):
        receipt = graph.embed(progress=shown.vectors, **options, **execute)
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _print_receipt(uri, receipt, checked=check)


def _print_receipt(uri: str | None, receipt: EmbedReceipt, *, checked: bool) -> None:
    for each in receipt.types:
        counts, names = each.counts, ", ".join(each.properties)
        verb = "would change" if checked else "changed"
        click.echo(
            f"{each.type_name} ({names}): {counts.changed} {verb}, {counts.right} up to date; "
            f"{counts.computed} texts computed with {receipt.model}, {counts.cached} cached"
        )
        if each.unknown:
            click.echo(
                f"{each.type_name}: the model of {', '.join(each.unknown)} is not recorded; --all computes them again"
            )
    if not receipt.types:
        click.echo(f"{uri} has no @embed properties")
