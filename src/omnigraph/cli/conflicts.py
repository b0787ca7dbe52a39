"""Options and output of commands that merge: conflicts, their resolutions, and the changes of each type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from omnigraph.cli.scope import preview_option
from omnigraph.errors import conflict_help
from omnigraph.errors.source import one_line

if TYPE_CHECKING:
    from omnigraph.merge.pick_receipt import PickReceipt
    from omnigraph.merge.receipt import MergeReceipt
    from omnigraph.merge.restore_receipt import RestoreReceipt

F = TypeVar("F", bound=Callable[..., object])


def conflict_options(ours: str, theirs: str) -> Callable[[F], F]:
    """Add the options `--dry-run`, `--strategy`, `--resolve` and `--level`.

    Args:
        ours: the side that wins with `ours`, for the help text.
        theirs: the side that wins with `theirs`.
    """
    preview = preview_option("preview", "Show the result, and write nothing.")
    strategy = click.option(
        "--strategy",
        type=click.Choice(["ours", "theirs"]),
        help=f"Resolve conflicts with the rows of {ours} (ours) or {theirs} (theirs).",
    )
    resolve = click.option(
        "--resolve",
        "resolutions",
        multiple=True,
        metavar="TYPE/ID=ours|theirs",
        help="Resolve one conflict. Takes precedence over the strategy. Repeatable.",
    )
    level = click.option(
        "--level",
        type=click.Choice(["row", "property"]),
        help="Merge whole rows, or single properties.  [default: by the schema, @merge(property)]",
    )
    return lambda command: preview(strategy(resolve(level(command))))


def resolution(text: str) -> tuple[tuple[str, str], str]:
    """Parse the value of `--resolve`."""
    name, slash, rest = text.partition("/")
    entity, equals, side = rest.rpartition("=")
    if not slash or not equals or side not in ("ours", "theirs"):
        raise click.BadParameter(f"'{text}' is not TYPE/ID=ours or TYPE/ID=theirs", param_hint="--resolve")
    return (name, entity), side


def conflict_count(total: int) -> str:
    """The beginning of the sentence about conflicts that nothing has decided."""
    return "1 conflict has" if total == 1 else f"{total:,} conflicts have"


def print_left_out(names: Sequence[str], branch: str) -> None:
    """Print the types and properties that a branch does not have, so that their values were not taken over."""
    click.echo(f"  left out, because {branch} does not have them: {', '.join(names)}")


def print_previewed(receipt: MergeReceipt | PickReceipt | RestoreReceipt) -> None:
    """Print the first changes of a preview with their values, as `diff` does."""
    from omnigraph.cli.diff import change_lines, echo

    title = None
    for change in receipt.previewed:
        if title != (change.entity_kind, change.type_name):
            title = change.entity_kind, change.type_name
            echo("")
            echo(click.style(" ".join(title), bold=True))
        for line in change_lines(change.op, change.entity_id, change.before, change.after, change.changed):
            echo(line)
    total = sum(one.inserted + one.updated + one.deleted for one in receipt.changes.values())
    if receipt.previewed and total > len(receipt.previewed):
        echo(f"\n… and {total - len(receipt.previewed):,} more changes")


def print_changes(receipt: MergeReceipt | PickReceipt, branch: str, valid: str = "ours") -> None:
    """Print the changes of each type, and the conflicts of a preview.

    Args:
        receipt: the receipt.
        branch: the branch that changes.
        valid: the side whose values the schema allows, if a value violates it.
    """
    for key, changes in receipt.changes.items():
        click.echo(f"  {key}: {changes.inserted} inserted, {changes.updated} updated, {changes.deleted} deleted")
    if receipt.edges_kept:
        click.echo(f"  {receipt.edges_kept:,} edges kept with their nodes")
    if receipt.left_out:
        print_left_out(receipt.left_out, branch)
    for conflict in receipt.conflicts:
        click.echo(f"  conflict: {one_line(f'{conflict} ({conflict.values})')}")
    if receipt.total_conflicts > len(receipt.conflicts):
        click.echo(f"  … and {receipt.total_conflicts - len(receipt.conflicts):,} more conflicts")
    if receipt.conflicts:
        click.echo(f"  help: {conflict_help(receipt.conflicts, valid)}")
