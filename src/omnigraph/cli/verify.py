"""`omnigraph verify`: the whole graph against its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address, addressed, open_to_read

if TYPE_CHECKING:
    from omnigraph.write.rules.verify import IntegrityReport


@click.command()
@addressed(positional=True)
@click.option("--branch", metavar="NAME", help="The branch to check.  [default: main]")
@click.option("--all", "every", is_flag=True, help="Check every branch.")
@JSON
def verify(
    uri: str | None, uri_option: str | None, store: str | None, branch: str | None, every: bool, as_json: bool
) -> None:
    """Check all files that a branch needs, and every constraint of the schema on everything in it.

    Files are compared with their recorded lengths and checksums, and read back. Writes check what they change; this
    also finds what no write can: nodes that @card(1..) wants edges of and that never had one, and what was changed by
    other hands. Exits with 1 when something is wrong.
    """
    if every and branch is not None:
        raise click.UsageError("--all checks every branch: leave out --branch")
    with open_to_read(address(uri, uri_option, store)) as graph:
        names = [each.name for each in graph.branches] if every else [branch]
        reports = [graph.verify(branch=name) for name in names]
    if as_json:
        print_json([report.to_json() for report in reports] if every else reports[0].to_json())
    else:
        for report in reports:
            _say(report)
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(1)


def _say(report: IntegrityReport) -> None:
    for damage in report.files.damages:
        click.echo(f"{damage.path}: damaged: {damage.reason}")
    for violation in report.violations:
        click.echo(str(violation))
    if report.total > len(report.violations):
        click.echo(f"… and {report.total - len(report.violations)} more")
    entities = sum(report.entities.values())
    said = "every constraint holds" if report.total == 0 else f"{report.total} violations"
    if report.files.damages:
        click.echo(f"{len(report.files.damages)} files are damaged; see 'omnigraph repair'")
        if report.files.lost:
            click.echo(f"the constraints of branch {report.branch} were not checked")
            return
    click.echo(f"verified {entities} entities on branch {report.branch}: {said}")
