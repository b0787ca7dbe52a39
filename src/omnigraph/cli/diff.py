"""The `diff` command, and the display of changes for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.output import COLOR, JSON, uses_color
from omnigraph.cli.scope import address_options, open_to_read
from omnigraph.cli.streams import write_stdout
from omnigraph.cli.target import Target
from omnigraph.errors.source import cut, one_line
from omnigraph.errors.values import value_text

if TYPE_CHECKING:
    from omnigraph.changes.diff import ChangeCounts, Diff, TypeDiff

DEFAULT_LIMIT = 100
"""Changes that are shown to people by default."""

_COLORS = {"insert": "green", "update": "yellow", "delete": "red"}
_SIGNS = {"insert": "+", "update": "~", "delete": "-"}
_LONGEST_ID = 80


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@address_options(positional=False)
@click.option("--stat", "only_counts", is_flag=True, help="Show only the numbers of changes.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Compare only this type. Repeatable.")
@click.option("--id", "ids", metavar="ID", multiple=True, help="Compare only the entity with this id. Repeatable.")
@click.option(
    "--op",
    "ops",
    type=click.Choice(["insert", "update", "delete"]),
    multiple=True,
    help="Show only this kind of change. Repeatable.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Maximum number of changes to show.  [default: {DEFAULT_LIMIT}; all with --json]",
)
@COLOR
@JSON
def diff_states(
    before: str,
    after: str,
    target: Target,
    only_counts: bool,
    types: tuple[str, ...],
    ids: tuple[str, ...],
    ops: tuple[str, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the changes from state A to state B.

    A state is a branch, a commit id, a tag, or a time of main: 2026-03-14T09:30:00Z. Lines with + are inserted
    entities, lines with ~ updated ones, lines with - deleted ones.
    """
    with open_to_read(target.storage()) as graph:
        found = graph.diff(before, after, types=types or None, ids=ids or None, ops=ops or None)
        if as_json:
            write_stdout(chain(found.json_chunks(0 if only_counts else limit), [b"\n"]))
        else:
            print_diff(found, 0 if only_counts else DEFAULT_LIMIT if limit is None else limit)


def print_diff(diff: Diff, limit: int, all_by: str = "--limit shows more") -> None:
    """Print a diff for people: the numbers first, then the first changes, grouped by type.

    Args:
        diff: the diff.
        limit: the maximum number of changes to print.
        all_by: how to see the other changes.
    """
    stat = diff.stat()
    for line in _summary(diff):
        echo(line)
    shown = 0
    for one in diff:
        if one.counts.total and shown < limit:
            echo("")
            echo(click.style(one.label, bold=True))
            for line in _lines(one, limit - shown):
                echo(line)
            shown += min(one.counts.total, limit - shown)
    if 0 < limit < stat.total.total:
        echo(f"\n… and {stat.total.total - shown:,} more changes; {all_by}")


def _summary(diff: Diff) -> Iterator[str]:
    stat = diff.stat()
    if not stat.types:
        yield "no changes of entities" if diff.schema else "no changes"
    total = stat.total
    if stat.types:
        count = "1 change" if total.total == 1 else f"{total.total:,} changes"
        yield f"{count}: {total.inserts:,} inserted, {total.updates:,} updated, {total.deletes:,} deleted"
    width = max((len(key) for key, _ in stat.types), default=0)
    for key, counts in stat.types:
        yield f"  {key:<{width}}  {_counts(counts)}"
    for change in diff.schema:
        yield f"  schema: {change}"


def _counts(counts: ChangeCounts) -> str:
    numbers = {"insert": counts.inserts, "delete": counts.deletes, "update": counts.updates}
    return " ".join(click.style(f"{_SIGNS[op]}{number:,}", _COLORS[op]) for op, number in numbers.items() if number)


def _lines(one: TypeDiff, limit: int) -> Iterator[str]:
    """The first changes of a type, one line each; for an update, one more line per changed property."""
    shown, old_names, filled = 0, one.old_names, one.filled
    for batch in one.batches():
        for row in batch.slice(0, limit - shown).to_pylist():
            yield from change_lines(
                row["op"], row["id"], row["before"], row["after"], row["changed"], old_names, filled
            )
        shown += batch.num_rows
        if shown >= limit:
            return


def change_lines(
    op: str,
    entity: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    changed: Sequence[str],
    old_names: Mapping[str, str] | None = None,
    filled: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """The lines of one change.

    Args:
        op: `insert`, `update` or `delete`.
        entity: the id.
        before: the values before; None for an insert.
        after: the values after; None for a delete.
        changed: the changed properties of an update.
        old_names: the names in `before` of the properties of `after`, if they differ.
        filled: the old values of properties that `before` does not have.
    """
    image = after or before or {}
    ends = f" {_id(image['from'])} -> {_id(image['to'])}" if "from" in image else ""
    heading = f"{_SIGNS[op]} {_id(entity)}{ends}"
    if op != "update":
        values = ", ".join(
            f"{name}: {_value(value)}"
            for name, value in image.items()
            if name not in ("id", "from", "to") and value is not None
        )
        yield click.style(f"{heading}{'  ' if values else ''}{values}", _COLORS[op])
        return
    yield click.style(heading, _COLORS[op])
    for name in changed:
        known = name not in (filled or {})
        old = (before or {})[(old_names or {}).get(name, name)] if known else (filled or {})[name]
        new = (after or {})[name]
        yield f"    {name}: {click.style(_value(old), 'red')} → {click.style(_value(new), 'green')}"


def echo(line: str) -> None:
    """Print a line, in colours if the user wants them."""
    click.echo(line, color=uses_color())


def _id(text: str) -> str:
    """An id on one line, without characters that control the terminal."""
    return one_line(cut(text, _LONGEST_ID))


def _value(value: Any) -> str:
    return one_line(value_text(value))
