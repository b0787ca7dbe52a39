"""The commands `login` and `logout`: they store and remove the tokens of servers."""

from __future__ import annotations

import click

from omnigraph.cli.credentials import check_server_name, credentials_path, remove_token, store_token
from omnigraph.cli.operator_config import read_config
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.streams import at_terminal, stdin
from omnigraph.errors import InputError


@click.command()
@click.argument("name")
@click.option("--token", metavar="TOKEN", help="The token. Other users may see the arguments of a process.")
@JSON
def login(name: str, token: str | None, as_json: bool) -> None:
    """Store the bearer token of the server NAME of the configuration.

    Without --token, reads one line from stdin; a terminal does not show it. The token is sent to the address of this
    server only.
    """
    server = check_server_name(name)
    declared = server in read_config().servers
    store_token(server, _read_token() if token is None else token)
    path = credentials_path()
    if as_json:
        print_json({"server": server, "credentials_path": str(path), "declared": declared})
    else:
        click.echo(f"stored credential for '{server}' in {path}")
    if not declared:
        click.echo(f"note: there is no server '{server}' in the configuration yet, so the token is not used", err=True)


def _read_token() -> str:
    """One line of stdin.

    Raises:
        InputError: there is none.
    """
    if at_terminal():
        return str(click.prompt("Token", hide_input=True, err=True)).strip()
    line = stdin().readline()
    try:
        text = line.decode("ascii").strip()
    except UnicodeDecodeError:
        raise InputError("this is not a token", hint="give the token alone, on one line") from None
    if not text:
        raise InputError("there is no token on stdin", hint="give the token on one line, or with --token")
    return text


@click.command()
@click.argument("name")
@JSON
def logout(name: str, as_json: bool) -> None:
    """Remove the stored token of the server NAME. Does nothing if there is none."""
    server = check_server_name(name)
    removed = remove_token(server)
    path = credentials_path()
    if as_json:
        print_json({"server": server, "credentials_path": str(path)})
    else:
        what = f"removed credential for '{server}' from" if removed else f"no credential for '{server}' in"
        click.echo(f"{what} {path}")
