"""The `verify` command: checks all files and constraints of a graph."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, open_to_read, state_options
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.write.rules.verify import IntegrityReport


@click.command()
@address_options(positional=True)
@state_options("Check")
@click.option("--all", "every", is_flag=True, help="Check every branch.")
@JSON
def verify(
    target: Target,
    branch: str | None,
    at: str | datetime | None,
    every: bool,
    as_json: bool,
) -> None:
    """Check all files of a state of the graph, and all of its entities against every constraint of the schema.

    Compares files with their recorded sizes and checksums, and reads them. Writes check only the rows that they change.
    This command also finds nodes without the edges that @card(1..) requires, and changes that other programs made. The
    exit code is 1 if it finds a problem.
    """
    if every and (branch is not None or at is not None):
        raise click.UsageError("--all checks every branch: omit --branch, --snapshot and --at")
    with open_to_read(target.storage()) as graph:
        names = [each.name for each in graph.branches] if every else [branch]
        reports = [graph.verify(branch=name, at=at) for name in names]
    if as_json:
        print_json([report.to_json() for report in reports] if every else reports[0].to_json())
    else:
        for report in reports:
            _print_report(report)
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(1)


def _print_report(report: IntegrityReport) -> None:
    for damage in report.files.damages:
        click.echo(f"{damage.path}: damaged: {damage.reason}")
    for violation in report.violations:
        click.echo(str(violation))
    if report.total > len(report.violations):
        click.echo(f"… and {report.total - len(report.violations)} more")
    entities = sum(report.entities.values())
    result = "every constraint holds" if report.total == 0 else f"{report.total} violations"
    if report.files.damages:
        click.echo(f"{len(report.files.damages)} files are damaged; see 'omnigraph repair'")
        if report.files.lost:
            click.echo(f"the constraints of branch {report.branch} were not checked")
            return
    click.echo(f"verified {entities} entities on branch {report.branch}: {result}")
