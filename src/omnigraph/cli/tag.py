"""The commands `tag create`, `tag list` and `tag delete`."""

from __future__ import annotations

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, open_to_read, open_to_write, write_options
from omnigraph.cli.target import Target


@click.group()
def tag() -> None:
    """Tag commits. A tagged commit stays readable."""


@tag.command()
@click.argument("name")
@address_options(positional=False)
@click.option("--branch", metavar="BRANCH", help="Tag the head of this branch.  [default: main]")
@click.option("--at", "--commit", "commit_id", metavar="COMMIT|TAG", help="Tag this commit.")
@write_options()
@JSON
def create(
    name: str,
    target: Target,
    branch: str | None,
    commit_id: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Tag a commit."""
    if branch is not None and commit_id is not None:
        raise click.UsageError("give --branch or --commit, not both")
    with open_to_write(target.storage(), actor, quiet=quiet) as graph:
        created = graph.tags.create(name, commit=commit_id, branch=branch or "main")
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, **created.to_json()} | ({"actor_id": actor} if actor else {}))
    else:
        click.echo(f"created tag {created.name} at {created.commit_id}")


@tag.command("list")
@address_options(positional=True)
@JSON
def list_tags(target: Target, as_json: bool) -> None:
    """List the tags by name."""
    with open_to_read(target.storage()) as graph:
        found = graph.tags.list()
    if as_json:
        print_json({"tags": [tag.to_json() for tag in found]})
        return
    for tag in found:
        click.echo(
            f"{tag.name} {tag.commit_id} graph_branch={tag.branch} graph_manifest_version={tag.manifest_version}"
        )


@tag.command()
@click.argument("name")
@address_options(positional=False)
@write_options()
@JSON
def delete(name: str, target: Target, actor: str | None, quiet: bool, as_json: bool) -> None:
    """Delete a tag. Keeps its commit."""
    with open_to_write(target.storage(), actor, quiet=quiet) as graph:
        graph.tags.delete(name)
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, "name": name} | ({"actor_id": actor} if actor else {}))
    else:
        click.echo(f"deleted tag {name}")
