"""The `omnigraph` command. Engines are imported by the commands that use them, so that help answers at once."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence

import click

from omnigraph import __version__
from omnigraph.cli.language import check, fmt, lint
from omnigraph.cli.schema import schema
from omnigraph.errors import OmnigraphError, report_for


class _Commands(click.Group):
    """The top-level commands: errors of the library become messages and exit codes here, in one place."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except OmnigraphError as error:
            click.echo(error.render(), err=True)
            ctx.exit(report_for(error).exit_code)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(__version__, "-v", "--version", prog_name="omnigraph", message="%(prog)s %(version)s")
def cli() -> None:
    """A typed property graph on Lance, with branches over the whole graph."""


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        click.echo(json.dumps({"version": __version__, "python": platform.python_version()}))
    else:
        click.echo(f"omnigraph {__version__}")


for command in (lint, check, fmt, schema):
    cli.add_command(command)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    cli.main(args=args, prog_name="omnigraph")


if __name__ == "__main__":
    main()
