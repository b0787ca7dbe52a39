"""The commands `schema show`, `schema plan` and `schema apply`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.conditions import TIMEOUT
from omnigraph.cli.files import SOURCE_FILE, read_schema
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import progress_display
from omnigraph.cli.scope import (
    address_options,
    confirm,
    connect_to_read,
    connect_to_write,
    engine_options,
    execution,
    open_to_read,
    state_options,
    write_options,
)
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.client.answers import SchemaApplied
    from omnigraph.migrate.receipt import SchemaReceipt

_NO_GRAPH = "0" * 26

_LEVELS = ["safe", "validated", "drops", "data-loss"]


@click.group()
def schema() -> None:
    """Show the schema of a graph, plan changes, and apply them."""


@schema.command()
@address_options(positional=True, served=True)
@state_options()
@JSON
def show(
    target: Target,
    branch: str | None,
    at: str | datetime | None,
    as_json: bool,
) -> None:
    """Print the schema of a graph, as it was applied."""
    with connect_to_read(target.place()) as graph:
        source = graph.schema.show(branch=branch, at=at)
        where = graph.uri
    if as_json:
        print_json({"uri": where, "schema_source": source})
    else:
        click.echo(source, nl=not source.endswith("\n"))


schema.add_command(show, "get")


@schema.command()
@address_options(positional=True)
@click.option("--schema", "schema_path", type=SOURCE_FILE, metavar="FILE", help="New schema of the graph.")
@click.option("--from", "old_path", type=SOURCE_FILE, metavar="OLD.pg", help="Without a graph: the current schema.")
@click.option("--to", "new_path", type=SOURCE_FILE, metavar="NEW.pg", help="Without a graph: the new schema.")
@click.option("--allow-data-loss", is_flag=True, help="Plan drops that also remove the data from the history.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(
    target: Target,
    schema_path: Path | None,
    old_path: Path | None,
    new_path: Path | None,
    allow_data_loss: bool,
    as_json: bool,
) -> None:
    """Show the steps to a new schema, with the safety and the cost of each step.

    Give a graph and --schema, or two files with --from and --to. Without a graph there are no costs.

    Changes nothing. The exit code is 1 if a step is not supported; the plan names an alternative.
    """
    if old_path is not None or new_path is not None:
        if old_path is None or new_path is None or schema_path is not None or target.is_given:
            raise click.UsageError("give a graph and --schema FILE, or --from OLD.pg and --to NEW.pg")
        members, supported, lines = _offline(old_path, new_path, allow_data_loss)
    else:
        if schema_path is None:
            raise click.UsageError("give a graph and --schema FILE, or --from OLD.pg and --to NEW.pg")
        source = _source(schema_path)
        with open_to_read(target.storage()) as graph:
            planned = graph.schema.plan(source, allow="data_loss" if allow_data_loss else "drops")
            members = {"uri": graph.uri} | planned.to_json()
        supported, lines = planned.supported, planned.lines()
    if as_json:
        print_json(members)
    else:
        click.echo(f"supported: {'yes' if supported else 'no'}")
        click.echo("\n".join(lines))
    if not supported:
        raise SystemExit(1)


def _offline(old_path: Path, new_path: Path, allow_data_loss: bool) -> tuple[dict[str, Any], bool, list[str]]:
    from omnigraph.lang.schema import accept, compile_schema
    from omnigraph.lang.schema.migrate import check_has_types
    from omnigraph.lang.schema.migrate import plan as plan_change

    old = compile_schema(read_schema(old_path), str(old_path))
    new = compile_schema(read_schema(new_path), str(new_path))
    check_has_types(old, new)
    # Without a graph there are no stored identities, so the old schema gets temporary ones.
    made = plan_change(accept(old, _NO_GRAPH), new, allow_data_loss=allow_data_loss)
    members = {"from": str(old_path), "to": str(new_path), "step_count": len(made.steps)}
    return members | made.to_json(), made.supported, made.lines()


@schema.command()
@address_options(positional=True, served=True, stored_only=("branch", "if_commit", "timeout", "engine", "master"))
@click.option(
    "--schema", "schema_path", type=SOURCE_FILE, required=True, metavar="FILE", help="New schema of the graph."
)
@click.option(
    "--allow",
    type=click.Choice(_LEVELS),
    help="Most severe effect on data. A plan with more severe steps is refused.  [default: drops]",
)
@click.option("--allow-data-loss", is_flag=True, help="Same as --allow data-loss: drops also change the history.")
@click.option("--branch", metavar="BRANCH", help="Only main: other branches get the schema by 'branch update'.")
@click.option("--if-commit", metavar="ID", help="Apply only if this commit is the head of main.")
@TIMEOUT
@click.option("--message", metavar="TEXT", help="Message of the commit.")
@engine_options("the size of the columns to read and write")
@write_options(destructive=True)
@JSON
def apply(
    target: Target,
    schema_path: Path,
    allow: str | None,
    allow_data_loss: bool,
    branch: str | None,
    if_commit: str | None,
    timeout: float | None,
    message: str | None,
    engine: str,
    master: str | None,
    actor: str | None,
    quiet: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Change the schema of 'main' and its rows, as one commit.

    Other branches keep their schema until 'omnigraph branch update', and old commits are read with theirs. Rows that do
    not fit the new schema stop the change before it has any effect.
    """
    if allow_data_loss and allow not in (None, "data-loss"):
        raise click.UsageError(f"--allow {allow} and --allow-data-loss exclude each other")
    place = target.place()
    source = _source(schema_path)
    level = "data_loss" if allow_data_loss else (allow or "drops").replace("-", "_")
    if level == "data_loss":
        confirm("applying a schema with hard drops", place, yes=yes, as_json=as_json)
    with (
        connect_to_write(place, actor, quiet=quiet) as graph,
        progress_display(shown=not quiet and not as_json) as shown,
        execution("applying", engine, master, shown, place=place) as execute,
    ):
        receipt = graph.schema.apply(
            source, branch=branch, allow=level, expect_head=if_commit, timeout=timeout, message=message, **execute
        )
        where = graph.uri
    if as_json:
        print_json({"uri": where} | receipt.to_json())
    else:
        _print_receipt(receipt)
    for warning in receipt.warnings:
        click.echo(f"warning: {warning}", err=True)


def _print_receipt(receipt: SchemaReceipt | SchemaApplied) -> None:
    click.echo("supported: yes")
    click.echo("\n".join(receipt.lines()))
    click.echo(f"applied: {'yes' if receipt.applied else 'no'}")
    click.echo(f"graph_manifest_version: {receipt.graph_manifest_version}")


def _source(path: Path) -> str:
    """The text of a schema file. Compiled here, so that errors have the name of the user's file."""
    from omnigraph.lang.schema import compile_schema

    source = read_schema(path)
    compile_schema(source, str(path))
    return source.decode()
