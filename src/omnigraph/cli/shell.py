"""The `shell` command: runs queries one after another, from a terminal or from stdin."""

from __future__ import annotations

from datetime import datetime

import click

from omnigraph.cli.interrupts import forget
from omnigraph.cli.line_editing import LineEditing
from omnigraph.cli.operator_config import read_config
from omnigraph.cli.scope import address_options, state_options
from omnigraph.cli.shell_input import ShellInput, entries_of
from omnigraph.cli.shell_session import FORMATS, ShellSession
from omnigraph.cli.streams import at_terminal, stdin
from omnigraph.cli.target import Target


@click.command()
@address_options(positional=True)
@state_options()
@click.option("--format", type=click.Choice(FORMATS), default="table", help="Output format.  [default: table]")
@click.option("--read-only", is_flag=True, help="Refuse queries that write.")
@click.option("--stop-on-error", is_flag=True, help="Without a terminal: stop at the first error.")
@click.option("--as", "actor", metavar="ACTOR", help="Actor of the commits.")
def shell(
    target: Target,
    branch: str | None,
    at: str | datetime | None,
    format: str,
    read_only: bool,
    stop_on_error: bool,
    actor: str | None,
) -> None:
    """Run queries one after another. Each query that writes is one commit.

    On a terminal, the shell has a history and Tab completion; :help shows its commands. Otherwise it reads queries from
    stdin and prints their results in order; the exit code is 1 if one of them fails.
    """
    interactive = at_terminal()
    session = ShellSession(
        target.storage(),
        branch or "main",
        at,
        format,
        actor=actor or read_config().actor,
        read_only=read_only,
        interactive=interactive,
    )
    with session:
        if interactive:
            _run_interactive(session)
        else:
            _run_script(session, stop_on_error=stop_on_error)
    if session.failed and not interactive:
        click.get_current_context().exit(1)


def _run_script(session: ShellSession, *, stop_on_error: bool) -> None:
    """Run the queries and commands of a file or a pipe."""
    for entry in entries_of(stdin(), "stdin"):
        if not session.run(entry) or (session.failed and stop_on_error):
            return


def _run_interactive(session: ShellSession) -> None:
    """Run the queries and commands that a user types on a terminal."""
    lines = ShellInput("input")
    with LineEditing(session, lines) as editing:
        while True:
            if not lines.pending:
                lines.restart_lines()
            try:
                line = input("… " if lines.pending or lines.command else session.prompt)
                entries = lines.add(line)
                editing.remember(line, complete=not lines.pending)
                if not all(session.run(entry) for entry in entries):
                    return
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                forget()
                lines.finish()
                editing.remember("", complete=True)
                click.echo()
            except UnicodeDecodeError:
                click.echo("this line is not UTF-8", err=True)
