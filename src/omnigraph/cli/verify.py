"""`omnigraph verify`: the whole graph against its schema."""

from __future__ import annotations

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address, addressed, open_to_read


@click.command()
@addressed(positional=True)
@click.option("--branch", metavar="NAME", help="The branch to check. [default: main]")
@JSON
def verify(uri: str | None, uri_option: str | None, store: str | None, branch: str | None, as_json: bool) -> None:
    """Check all files, and every constraint of the schema on everything that is stored.

    Files are compared with their recorded lengths and checksums, and read back. Writes check what they change; this
    also finds what no write can: nodes that @card(1..) wants edges of and that never had one, and what was changed by
    other hands. Exits with 1 when something is wrong.
    """
    with open_to_read(address(uri, uri_option, store)) as graph:
        report = graph.verify(branch=branch)
    if as_json:
        print_json(report.to_json())
    else:
        for damage in report.files.damages:
            click.echo(f"{damage.path}: damaged: {damage.reason}")
        for violation in report.violations:
            click.echo(str(violation))
        if report.total > len(report.violations):
            click.echo(f"… and {report.total - len(report.violations)} more")
        entities = sum(report.entities.values())
        said = "every constraint holds" if report.total == 0 else f"{report.total} violations"
        if report.files.lost:
            said = "constraints were not checked"
        if report.files.damages:
            click.echo(f"{len(report.files.damages)} files are damaged; see 'omnigraph repair'")
        click.echo(f"verified {entities} entities on branch {report.branch}: {said}")
    if not report.ok:
        raise click.exceptions.Exit(1)
