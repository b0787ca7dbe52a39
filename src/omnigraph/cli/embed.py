"""`omnigraph embed`: vectors are brought up to date with their texts and with the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.mutate import precondition_json
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_shown
from omnigraph.cli.scope import address, addressed, engines, execution, open_to_write, writing
from omnigraph.errors import PreconditionFailedError

if TYPE_CHECKING:
    from omnigraph.upkeep.vectors import EmbedReceipt


@click.command()
@addressed(positional=True)
@click.option("--branch", metavar="BRANCH", default="main", help="Where.  [default: main]")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="A node type. Repeatable.  [default: all]")
@click.option("--property", "properties", metavar="NAME", multiple=True, help="A vector. Repeatable.  [default: all]")
@click.option("--stale", "which", flag_value="stale", default=True, help="What is missing or made by another model.")
@click.option("--missing", "which", flag_value="missing", help="Only what is missing.")
@click.option("--all", "which", flag_value="all", help="All vectors, whatever made them.")
@click.option("--if-commit", metavar="ID", help="Only if this commit is the head of the branch.")
@click.option("--message", metavar="TEXT", help="The commit's message.")
@click.option("--check", is_flag=True, help="Compute what there is to compute, and write nothing.")
@engines("the size of the tables")
@writing()
@JSON
def embed(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    branch: str,
    types: tuple[str, ...],
    properties: tuple[str, ...],
    which: str,
    if_commit: str | None,
    message: str | None,
    check: bool,
    engine: str,
    master: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Bring the vectors of @embed properties up to date, as one commit.

    The model is the one that the environment asks for (OMNIGRAPH_EMBED_PROVIDER, OMNIGRAPH_EMBED_MODEL). What is right
    stays, and a text that was embedded before is not asked for again. The exit status is 4 when --if-commit names
    another commit than the head.
    """
    options: dict[str, Any] = {
        "which": which,
        "types": types,
        "properties": properties,
        "branch": branch,
        "expect_head": if_commit,
        "message": message,
        "check": check,
    }
    given = address(uri, uri_option, store)
    with (
        open_to_write(given, actor, quiet=quiet) as graph,
        progress_shown(shown=not quiet and not as_json) as shown,
        execution("embedding", engine, master, shown) as execute,
    ):
        try:
            receipt = graph.embed(progress=shown.vectors, **options, **execute)
        except PreconditionFailedError as error:
            if as_json:
                print_json(precondition_json(error))
            raise
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _say(uri, receipt, checked=check)


def _say(uri: str | None, receipt: EmbedReceipt, *, checked: bool) -> None:
    for each in receipt.types:
        counts, names = each.counts, ", ".join(each.properties)
        verb = "would change" if checked else "changed"
        click.echo(
            f"{each.type_name} ({names}): {counts.changed} {verb}, {counts.right} right; "
            f"{counts.computed} texts computed with {receipt.model}, {counts.cached} known"
        )
        if each.unknown:
            click.echo(f"{each.type_name}: nobody recorded what made {', '.join(each.unknown)}; --all computes it anew")
    if not receipt.types:
        click.echo(f"{uri} has no vectors that are computed")
