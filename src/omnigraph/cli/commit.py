"""The commands `commit list` and `commit show`."""

from __future__ import annotations

import click

from omnigraph.cli.output import JSON, iso_time, print_json, print_members, quoted
from omnigraph.cli.scope import address, address_options, open_to_read


@click.group()
def commit() -> None:
    """Show the history of a graph."""


def _read_filter(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Parse `actor=NAME`, and return the name."""
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if name != "actor" or not equals or not value:
        raise click.BadParameter("write actor=NAME", ctx, option)
    return value


@commit.command("list")
@address_options(positional=True)
@click.option("--branch", metavar="BRANCH", default="main", help="Branch whose history to list.  [default: main]")
@click.option("--filter", "actor", metavar="actor=NAME", callback=_read_filter, help="List only commits of this actor.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of commits.")
@click.option("--cursor", metavar="CURSOR", help="Continue after an earlier page.")
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
    """List the commits of a branch, newest first."""
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
@address_options(positional=False)
@click.option("--changes", is_flag=True, help="Show the changes since the first parent, as `diff` does.")
@JSON
def show(commit_id: str, uri_option: str | None, store: str | None, changes: bool, as_json: bool) -> None:
    """Show one commit of any branch."""
    from omnigraph.cli.diff import DEFAULT_LIMIT, json_diff, print_diff
    from omnigraph.commit.manifest import commit_json

    with open_to_read(address(uri_option, store)) as graph:
        found = graph.commits.get(commit_id)
        diff = graph.diff(found.parent, found.id) if changes and found.parent is not None else None
        members = commit_json(found)
        if as_json:
            print_json(members if not changes else members | {"changes": None if diff is None else json_diff(diff)})
            return
        print_members(members | {"graph_branch": found.branch, "created_at": iso_time(found.created_at)})
        if changes:
            click.echo()
            if diff is None:
                click.echo("the first commit has no parent, so it has no changes")
            else:
                print_diff(diff, DEFAULT_LIMIT)
