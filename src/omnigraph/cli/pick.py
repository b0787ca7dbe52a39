"""The commands `revert` and `cherry-pick`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from omnigraph.cli.conditions import condition_options, conditions
from omnigraph.cli.conflicts import conflict_count, conflict_options, print_changes, print_previewed, resolution
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import ProgressDisplay
from omnigraph.cli.scope import (
    address_options,
    engine_options,
    execution,
    open_to_read,
    open_to_write,
    write_options,
)
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.merge.pick_receipt import PickReceipt

F = TypeVar("F", bound=Callable[..., Any])


def _pick_options(theirs: str) -> Callable[[F], F]:
    """Add the options of both commands. `theirs` is the side that wins with `--strategy theirs`."""
    options = [
        address_options(positional=False),
        click.option(
            "--parent",
            type=click.IntRange(1, 2),
            metavar="1|2",
            help="For a merge commit: the parent that its changes are relative to; 2 is the head of the merged branch.",
        ),
        conflict_options("BRANCH", theirs),
        click.option("--if-commit", metavar="ID", help="Write only if this commit is the head of BRANCH."),
        condition_options,
        click.option("--idempotency-key", metavar="KEY", help="Do nothing if BRANCH has a commit with this key."),
        click.option("--message", metavar="TEXT", help="Message of the commit."),
        engine_options("the size of the data to compare"),
        write_options(),
        JSON,
    ]

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@click.argument("commit_id", metavar="COMMIT")
@click.option("--branch", metavar="BRANCH", default="main", help="Branch that gets the commit.  [default: main]")
@click.option("--member", metavar="ID", help="Undo only this member of COMMIT, which 'commit show' lists.")
@_pick_options("the parent of COMMIT")
def revert(commit_id: str, branch: str, member: str | None, **given: Any) -> None:
    """Undo the changes of COMMIT on a branch, as a new commit. Later changes stay.

    If the branch has changed the same rows since then, there are conflicts. Then nothing is written and the exit code
    is 1, also for a preview.
    """
    _run("revert", commit_id, {"branch": branch} | ({} if member is None else {"member": member}), **given)


@click.command("cherry-pick")
@click.argument("commit_id", metavar="COMMIT")
@click.option(
    "--into", "branch", metavar="BRANCH", default="main", help="Branch that gets the commit.  [default: main]"
)
@_pick_options("COMMIT")
def cherry_pick(commit_id: str, branch: str, **given: Any) -> None:
    """Apply the changes of COMMIT to a branch, as a new commit.

    Only its own changes are applied, not those of earlier commits. If there are conflicts, nothing is written and the
    exit code is 1, also for a preview.
    """
    _run("cherry_pick", commit_id, {"into": branch}, **given)


def _run(
    verb: str,
    commit_id: str,
    where: dict[str, str],
    *,
    target: Target,
    resolutions: tuple[str, ...],
    if_commit: str | None,
    unchanged_since: str | None,
    reads: tuple[str, ...],
    timeout: float | None,
    engine: str,
    master: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    options |= {"resolutions": dict(resolution(text) for text in resolutions), "expect_head": if_commit, **where}
    options |= conditions(unchanged_since, reads, timeout)
    uri = target.storage()
    shown = ProgressDisplay(notes=not quiet and not as_json)
    with (
        open_to_read(uri) if options["preview"] else open_to_write(uri, actor, quiet=quiet) as graph,
        execution("comparing", engine, master, shown) as execute,
    ):
        receipt: PickReceipt = getattr(graph, verb)(commit_id, **options, **execute)
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _print_receipt("revert" if verb == "revert" else "pick", receipt)
    if not receipt.is_clean:
        raise SystemExit(1)


def _print_receipt(verb: str, receipt: PickReceipt) -> None:
    from omnigraph.merge.pick_receipt import PickOutcome

    one = f"commit {receipt.commit_id}"
    if receipt.member_id is not None:
        one = f"member {receipt.member_id} of {one}"
    what = f"{one} on {receipt.branch}"
    if receipt.conflicts:
        click.echo(f"would not {verb} {what}: {conflict_count(receipt.total_conflicts)} no decision")
    elif receipt.outcome is PickOutcome.NOTHING_TO_DO:
        click.echo(f"nothing to {verb}: {receipt.branch} already has the rows that {one} leads to")
    else:
        made = "" if receipt.commit is None else f": commit {receipt.commit.id}"
        done = f"would {verb}" if receipt.preview else receipt.outcome.value
        click.echo(f"{done} {what}{made}")
    print_changes(receipt, receipt.branch)
    if receipt.edges_omitted:
        click.echo(f"  {receipt.edges_omitted:,} edges not restored, because one of their nodes no longer exists")
    print_previewed(receipt)
