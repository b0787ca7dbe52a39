"""The commands `tag create`, `tag list` and `tag delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address, address_options, open_to_read, open_to_write, write_options

if TYPE_CHECKING:
    from omnigraph.commit.tags import Tag


@click.group()
def tag() -> None:
    """Tag commits. A tagged commit stays readable."""


@tag.command()
@click.argument("name")
@address_options(positional=False)
@click.option("--branch", metavar="BRANCH", help="Tag the head of this branch.  [default: main]")
@click.option("--commit", "commit_id", metavar="COMMIT|TAG", help="Tag this commit.")
@write_options()
@JSON
def create(
    name: str,
    uri_option: str | None,
    store: str | None,
    branch: str | None,
    commit_id: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Tag a commit."""
    if branch is not None and commit_id is not None:
        raise click.UsageError("give --branch or --commit, not both")
    with open_to_write(address(uri_option, store), actor, quiet=quiet) as graph:
        created = graph.tags.create(name, commit=commit_id, branch=branch or "main")
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, **tag_json(created)} | ({"actor_id": actor} if actor else {}))
    else:
        click.echo(f"created tag {created.name} at {created.commit_id}")


@tag.command("list")
@address_options(positional=True)
@JSON
def list_tags(uri: str | None, uri_option: str | None, store: str | None, as_json: bool) -> None:
    """List the tags by name."""
    with open_to_read(address(uri, uri_option, store)) as graph:
        found = graph.tags.list()
    if as_json:
        print_json({"tags": [tag_json(tag) for tag in found]})
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
def delete(name: str, uri_option: str | None, store: str | None, actor: str | None, quiet: bool, as_json: bool) -> None:
    """Delete a tag. Keeps its commit."""
    with open_to_write(address(uri_option, store), actor, quiet=quiet) as graph:
        graph.tags.delete(name)
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, "name": name} | ({"actor_id": actor} if actor else {}))
    else:
        click.echo(f"deleted tag {name}")


def tag_json(tag: Tag) -> dict[str, Any]:
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "graph_branch": None if tag.branch == "main" else tag.branch,
        "graph_manifest_version": tag.manifest_version,
        "created_at": tag.created_at,
    }
