"""Commands about branches: `branch create`, `branch list`, `branch delete`."""

from __future__ import annotations

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address, addressed, confirm, open_to_read, open_to_write, writing


@click.group()
def branch() -> None:
    """Create, list and delete branches of a graph."""


@branch.command()
@click.argument("name")
@addressed(positional=False)
@click.option(
    "--from",
    "start",
    metavar="BRANCH|COMMIT|TAG",
    default="main",
    help="Where it begins; of a branch and a tag of one name, the branch.  [default: main]",
)
@writing()
@JSON
def create(
    name: str, uri_option: str | None, store: str | None, start: str, actor: str | None, quiet: bool, as_json: bool
) -> None:
    """Create a branch. Nothing is copied."""
    from omnigraph.errors import NotFoundError
    from omnigraph.lang.names import did_you_mean

    with open_to_write(address(uri_option, store), actor, quiet=quiet) as graph:
        if start in graph.branches:
            made = graph.branches.create(name, source=start)
        else:
            try:
                made = graph.branches.create(name, commit=start)
            except NotFoundError as error:
                known = [branch.name for branch in graph.branches] + [tag.name for tag in graph.tags]
                raise NotFoundError(
                    f"there is no branch, commit or tag '{start}'", hint=did_you_mean(start, known)
                ) from error
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, "from": start, "name": made.name} | ({"actor_id": actor} if actor else {}))
    else:
        click.echo(f"created branch {made.name} from {start}")


@branch.command("list")
@addressed(positional=True)
@JSON
def list_branches(uri: str | None, uri_option: str | None, store: str | None, as_json: bool) -> None:
    """List the branches by name."""
    with open_to_read(address(uri, uri_option, store)) as graph:
        names = sorted(branch.name for branch in graph.branches)
    if as_json:
        print_json({"branches": names})
    else:
        click.echo("\n".join(names))


@branch.command()
@click.argument("name")
@addressed(positional=False)
@writing(destructive=True)
@JSON
def delete(
    name: str, uri_option: str | None, store: str | None, actor: str | None, quiet: bool, yes: bool, as_json: bool
) -> None:
    """Delete a branch, and with it the commits that only it has."""
    uri = address(uri_option, store)
    confirm(f"deleting branch '{name}'", uri, yes=yes, as_json=as_json)
    with open_to_write(uri, actor, quiet=quiet) as graph:
        graph.branches.delete(name)
        uri = graph.uri
    name = name.strip()
    if as_json:
        print_json({"uri": uri, "name": name} | ({"actor_id": actor} if actor else {}))
    else:
        click.echo(f"deleted branch {name}")
