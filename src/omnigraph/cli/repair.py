"""The `repair` command: classifies and fixes tables and files that do not match the manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, begin_write, print_target
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.upkeep.repair import Repaired, RepairReport


@click.command()
@address_options(positional=True)
@click.option("--confirm", is_flag=True, help="Run the repair. The default is a preview.")
@click.option(
    "--force",
    is_flag=True,
    help="With --confirm: keep changes of other programs, and restore older versions if newer data is lost.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, as without --confirm.")
@click.option("--quiet", is_flag=True, help="Hide the line about the target of the write.")
@JSON
def repair(
    target: Target,
    confirm: bool,
    force: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare every table of every branch with the manifest, and repair differences after consent.

    Finds tables with a newer version that no known write made, damaged tables, and interrupted writes that can neither
    be completed nor undone. Never deletes a file: a file that blocks others is renamed. The exit code is 1 if a repair
    was refused.
    """
    from omnigraph.graph import repair as repair_graph

    if force and not confirm:
        raise click.UsageError("--force needs --confirm: look at the plan first")
    if dry_run and confirm:
        raise click.UsageError("give --dry-run or --confirm, not both")
    uri = target.storage()
    if confirm:
        begin_write()
        if not quiet:
            print_target(uri)
    report = repair_graph(uri, confirm=confirm, force=force)
    if as_json:
        print_json(_members(uri, report))
    else:
        _print_report(uri, report)
    if report.refused:
        raise click.exceptions.Exit(1)


def _members(uri: str, report: RepairReport) -> dict[str, object]:
    return {
        "uri": uri,
        "confirm": report.confirm,
        "force": report.force,
        "graph_manifest_version": report.manifest_version,
        "datasets": [
            {
                "branch": row.branch,
                "type_key": row.type_key,
                "published_dataset_version": row.published,
                "lance_head_version": row.head,
                "classification": row.classification.value,
                "action": row.action.value,
                "operations": list(row.operations),
                "rows_before": row.rows_before,
                "rows_after": row.rows_after,
                "rows_added": row.rows_added,
                "rows_removed": row.rows_removed,
                "plan": row.plan,
                "error": row.error,
            }
            for row in report.rows
        ],
    }


def _print_report(uri: str, report: RepairReport) -> None:
    mode = "confirm" if report.confirm else "preview"
    click.echo(f"repair {uri} — {mode} mode, {len(report.rows)} datasets")
    for row in report.rows:
        click.echo(f"  {_line(row)}")
        if row.error is not None:
            click.echo(f"    {row.error}")
        if row.plan is not None and row.action.value in ("preview", "refused"):
            click.echo(f"    plan: {row.plan}")
    if not report.confirm and not report.ok:
        click.echo("nothing was changed; add --confirm to repair, and --force to accept lost data or unknown changes")


def _line(row: Repaired) -> str:
    where = row.type_key if row.branch in (None, "main") else f"{row.type_key} on {row.branch}"
    versions = "" if row.published is None else f" published {row.published}, newest {row.head}"
    done = f" ({', '.join(row.operations)})" if row.operations else ""
    return f"{where}:{versions} {row.classification.value}{done}: {row.action.value}"
