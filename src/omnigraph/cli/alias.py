"""The `alias` command: runs a stored query of a server under a short name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import click

from omnigraph.cli.files import SOURCE_FILE
from omnigraph.cli.mutate import parameters
from omnigraph.cli.operator_config import FORMATS, read_config
from omnigraph.cli.output import JSON
from omnigraph.cli.query import chosen_format
from omnigraph.cli.target import Served, Target
from omnigraph.errors import InputError


@click.command()
@click.argument("name")
@click.argument("args", nargs=-1)
@click.option("--params", metavar="JSON", help="Parameters, as a JSON object.")
@click.option("--params-file", type=SOURCE_FILE, metavar="FILE", help="Parameters, in a JSON file.")
@click.option("--format", type=click.Choice(FORMATS), help="Output format.  [default: that of the alias, or table]")
@JSON
def alias(
    name: str, args: tuple[str, ...], params: str | None, params_file: Path | None, format: str | None, as_json: bool
) -> None:
    """Run the alias NAME of the configuration: a stored query that reads.

    ARGS are values of the parameters that the alias lists, in order: JSON, or a text. --params overrides them, and they
    override the fixed parameters of the alias.
    """
    found = read_config().alias(name)
    if len(args) > len(found.args):
        listed = " ".join(one.upper() for one in found.args) or "none"
        raise click.UsageError(f"too many arguments: alias '{name}' takes {listed}")
    positional = {key: argument(text) for key, text in zip(found.args, args, strict=False)}
    given = {**found.params, **positional, **parameters(params, params_file)}
    place = Target(server=found.server, graph_id=found.graph).place()
    if not isinstance(place, Served):
        raise InputError(f"alias '{name}' names no server", hint="write server: into the alias")
    from omnigraph.cli.formats import Layout, print_result

    with place.connect() as client:
        result = client.queries.invoke(found.query, given)
    chosen = chosen_format("json" if as_json else format, None, found.format)
    print_result(result, chosen, layout=Layout.of_config())


def argument(text: str) -> object:
    """The value of an argument: JSON, or the text itself."""
    try:
        return json.loads(text, parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        return text


def _not_a_number(word: str) -> NoReturn:
    raise ValueError(word)
