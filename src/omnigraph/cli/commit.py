"""Commands about history: `commit list`, `commit show`."""

from __future__ import annotations

import click

from omnigraph.cli.output import JSON, moment, print_json, print_members, quoted
from omnigraph.cli.scope import address, addressed, open_to_read


@click.group()
def commit() -> None:
    """Look at the history of a graph."""


def _read_filter(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """The actor of `actor=NAME`."""
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if name != "actor" or not equals or not value:
        raise click.BadParameter("write actor=NAME", ctx, option)
    return value


@commit.command("list")
@addressed(positional=True)
@click.option("--branch", metavar="BRANCH", default="main", help="Whose history.  [default: main]")
@click.option("--filter", "actor", metavar="actor=NAME", callback=_read_filter, help="Only commits by this actor.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option("--cursor", metavar="CURSOR", help="Go on where an earlier list ended.")
@JSON
def list_commits(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    branch: str,
    actor: str | None,
    limit: int | None,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List the commits that lead to a branch's head, newest first."""
    from omnigraph.commit.manifest import commit_json

    with open_to_read(address(uri, uri_option, store)) as graph:
        page = graph.commits.list(branch=branch, actor=actor, limit=limit, cursor=cursor)
    if as_json:
        print_json({"commits": [commit_json(found) for found in page.commits], "cursor": page.cursor})
        return
    for found in page.commits:
        parts = [found.id, f"graph_branch={found.branch}", f"graph_manifest_version={found.manifest_version}"]
        if found.actor is not None:
            parts.append(f"actor={found.actor}")
        if found.message is not None:
            parts.append(f"message={quoted(found.message)}")
        click.echo(" ".join(parts))
    if page.cursor is not None:
        click.echo(f"there are more: add --cursor {page.cursor}", err=True)


@commit.command()
@click.argument("commit_id")
@addressed(positional=False)
@JSON
def show(commit_id: str, uri_option: str | None, store: str | None, as_json: bool) -> None:
    """Show one commit, whichever branch it is on."""
    from omnigraph.commit.manifest import commit_json

    with open_to_read(address(uri_option, store)) as graph:
        found = graph.commits.get(commit_id)
    members = commit_json(found)
    if as_json:
        print_json(members)
    else:
        print_members(members | {"graph_branch": found.branch, "created_at": moment(found.created_at)})
