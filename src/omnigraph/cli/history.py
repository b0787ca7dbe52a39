"""The commands `blame` and `log`: the history of one entity."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.output import JSON, iso_time, print_json
from omnigraph.cli.scope import address_options, open_to_read, state_options
from omnigraph.cli.target import Target
from omnigraph.errors import cut
from omnigraph.errors.source import one_line, printable

if TYPE_CHECKING:
    from omnigraph.commit.manifest import Commit
    from omnigraph.history.entity import BlamedValue, EntityLog, LoggedChange

_FIRST_PARENT = click.option(
    "--first-parent", is_flag=True, help="Name a merge itself, not the commits of the merged branch."
)
_WIDEST = 60
_SIGNS = {"insert": "+", "update": "~", "delete": "-"}


@click.command()
@click.argument("type_name", metavar="TYPE")
@click.argument("entity_id", metavar="ID")
@click.argument("property_", metavar="[PROPERTY]", required=False)
@address_options(positional=False)
@state_options()
@_FIRST_PARENT
@JSON
def blame(
    type_name: str,
    entity_id: str,
    property_: str | None,
    target: Target,
    branch: str | None,
    at: str | datetime | None,
    first_parent: bool,
    as_json: bool,
) -> None:
    """Show the commit and the actor that set each value of an entity.

    If a merge brought a value, the commit of the merged branch is shown.
    """
    with open_to_read(target.storage()) as graph:
        found = graph.blame(type_name, entity_id, property_, branch=branch, at=at, follow=not first_parent)
    if as_json:
        print_json(_plain([value.to_json() for value in found]))
        return
    for line in _blame_lines(found):
        click.echo(line)


@click.command()
@click.argument("type_name", metavar="TYPE")
@click.argument("entity_id", metavar="ID")
@address_options(positional=False)
@state_options()
@_FIRST_PARENT
@JSON
def log(
    type_name: str,
    entity_id: str,
    target: Target,
    branch: str | None,
    at: str | datetime | None,
    first_parent: bool,
    as_json: bool,
) -> None:
    """Show every commit that inserted, updated or deleted an entity, newest first, with the values."""
    with open_to_read(target.storage()) as graph:
        found = graph.log(type_name, entity_id, branch=branch, at=at, follow=not first_parent)
    if as_json:
        print_json(_plain(found.to_json()))
        return
    for line in _log_lines(found):
        click.echo(line)


def _blame_lines(values: Iterable[BlamedValue]) -> Iterator[str]:
    values = list(values)
    short = _short(value.commit for value in values)
    rows = []
    for value in values:
        origin = ["in or before", value.until_commit, "not kept"]
        if value.commit is not None:
            origin = [short[value.commit.id], _time(value.commit), value.commit.actor or "-"]
        elif value.after_commit is not None:
            origin = ["after", f"{value.after_commit}, in or before {value.until_commit}", "not kept"]
        rows.append((*origin, value.property, _text(value.value)))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    for row in rows:
        yield printable("  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip())


def _log_lines(log: EntityLog) -> Iterator[str]:
    from omnigraph.storage.blobs import BlobInfo

    short = _short(change.commit for change in log)
    for change in log:
        yield printable(_headline(change, short))
        for name in change.properties:
            before = "" if change.before is None else _text(change.before.get(name))
            after = "" if change.after is None else _text(change.after.get(name))
            arrow = " → " if before and after else ""
            same_size = before == after and isinstance((change.after or {}).get(name), BlobInfo)
            yield printable(f"    {name}: {before}{arrow}{after}{' (other content)' if same_size else ''}")
    for merge in log.incomplete_merges:
        yield f"merged by {merge}: not all commits are kept"
    for after, until in log.incomplete_ranges:
        yield f"after {after}, in or before {until}: not all commits are kept"
    if log.kept_from is not None:
        yield f"in or before {log.kept_from}: not kept"


def _headline(change: LoggedChange, short: dict[str, str]) -> str:
    sign = _SIGNS[change.operation.value]
    if change.commit is None:
        since, until = change.after_commit, change.until_commit
        return f"{sign} {change.operation.value} after {since}, in or before {until}: not kept"
    commit = change.commit
    parts = [f"{sign} {short[commit.id]}", _time(commit), change.operation.value]
    parts += [commit.actor or "-"]
    parts += [f"on {commit.branch}"] if change.merged_by is not None else []
    from omnigraph.graph.commit_rows import shown_message

    message = shown_message(commit)
    parts += [message] if message else []
    return "  ".join(parts)


def _short(commits: Iterable[Commit | None]) -> dict[str, str]:
    from omnigraph.commit.lineage import short_ids

    return short_ids([commit.id for commit in commits if commit is not None])


def _time(commit: Commit) -> str:
    return iso_time(commit.created_at)[:19].replace("T", " ")


def _text(value: object) -> str:
    """A value on one line."""
    text = one_line(json.dumps(_plain(value), ensure_ascii=False))
    return text if len(text) <= _WIDEST else cut(text[:_WIDEST] + "…")


def _plain(value: Any) -> Any:
    """A value with JSON types only."""
    from omnigraph.storage.blobs import BlobInfo

    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, BlobInfo):
        return {"size": value.size, "uri": value.uri}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value if value is None or isinstance(value, str | int | float | bool) else _moment(value)


def _moment(value: object) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
