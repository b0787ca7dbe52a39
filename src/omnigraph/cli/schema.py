"""Commands about schemas: `schema plan`."""

from __future__ import annotations

from pathlib import Path

import click

from omnigraph.cli.files import read_schema
from omnigraph.cli.output import print_json

_NO_GRAPH = "0" * 26

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def schema() -> None:
    """Plan changes of a schema."""


@schema.command()
@click.option("--from", "old_path", type=_FILE, required=True, metavar="OLD.pg", help="The schema as it is.")
@click.option("--to", "new_path", type=_FILE, required=True, metavar="NEW.pg", help="The schema as it should be.")
@click.option("--allow-data-loss", is_flag=True, help="Plan drops that also remove the data from history.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(old_path: Path, new_path: Path, allow_data_loss: bool, as_json: bool) -> None:
    """Show the steps from one schema to another, and whether each is safe.

    Nothing is changed. The exit status is 1 when a step cannot be done; the plan says what to do instead.
    """
    from omnigraph.lang.schema import accept, compile_schema
    from omnigraph.lang.schema import plan as plan_change

    old = compile_schema(read_schema(old_path), str(old_path))
    new = compile_schema(read_schema(new_path), str(new_path))
    # Without a graph there are no stored identities, so the old schema gets some that nobody keeps.
    made = plan_change(accept(old, _NO_GRAPH), new, allow_data_loss=allow_data_loss)
    if as_json:
        members = {"from": str(old_path), "to": str(new_path), "step_count": len(made.steps)}
        print_json(members | made.to_json())
    else:
        click.echo(f"supported: {'yes' if made.supported else 'no'}")
        click.echo("\n".join(made.lines()))
    if not made.supported:
        raise SystemExit(1)
