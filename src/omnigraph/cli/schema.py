"""The command `schema plan`."""

from __future__ import annotations

from pathlib import Path

import click

from omnigraph.cli.files import read_schema
from omnigraph.cli.output import print_json

_NO_GRAPH = "0" * 26

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def schema() -> None:
    """Plan schema changes."""


@schema.command()
@click.option("--from", "old_path", type=_FILE, required=True, metavar="OLD.pg", help="Current schema.")
@click.option("--to", "new_path", type=_FILE, required=True, metavar="NEW.pg", help="New schema.")
@click.option("--allow-data-loss", is_flag=True, help="Plan drops that also remove the data from the history.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(old_path: Path, new_path: Path, allow_data_loss: bool, as_json: bool) -> None:
    """Show the steps from one schema to another, and whether each is safe.

    Changes nothing. The exit code is 1 if a step is not supported; the plan names an alternative.
    """
    from omnigraph.lang.schema import accept, compile_schema
    from omnigraph.lang.schema.migrate import plan as plan_change

    old = compile_schema(read_schema(old_path), str(old_path))
    new = compile_schema(read_schema(new_path), str(new_path))
    # Without a graph there are no stored identities, so the old schema gets temporary ones.
    made = plan_change(accept(old, _NO_GRAPH), new, allow_data_loss=allow_data_loss)
    if as_json:
        members = {"from": str(old_path), "to": str(new_path), "step_count": len(made.steps)}
        print_json(members | made.to_json())
    else:
        click.echo(f"supported: {'yes' if made.supported else 'no'}")
        click.echo("\n".join(made.lines()))
    if not made.supported:
        raise SystemExit(1)
