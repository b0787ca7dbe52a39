"""The commands `profile list` and `profile show`."""

from __future__ import annotations

from typing import Any

import click

from omnigraph.cli.operator_config import Binding, OperatorConfig, Profile, read_config
from omnigraph.cli.output import JSON, print_json, print_members
from omnigraph.errors.source import one_line, printable
from omnigraph.settings import PROFILE


@click.group()
def profile() -> None:
    """Show the profiles of the configuration."""


@profile.command("list")
@JSON
def list_profiles(as_json: bool) -> None:
    """List the profiles: what each is bound to, and whether it is valid."""
    config = read_config()
    entries = [_entry(one) for one in config.profiles.values()]
    if as_json:
        print_json(entries)
        return
    for one in entries:
        parts = [str(one["name"]), str(one["binding"] or "-")]
        parts += [f"graph={one['default_graph']}"] if one["default_graph"] else []
        parts += [] if one["valid"] else [f"not valid: {one['error']}"]
        parts += ["active"] if one["active"] else []
        click.echo(printable(one_line("  ".join(parts))))
    if not entries:
        click.echo(f"(no profiles in {config.path})")


def _entry(one: Profile) -> dict[str, Any]:
    kind, target = one.targets[0] if one.error is None else (None, None)
    return {
        "name": one.name,
        "binding": ", ".join(f"{kind}:{target}" for kind, target in one.targets) or None,
        "scope_kind": kind,
        "target": target,
        "valid": one.error is None,
        "error": one.error,
        "default_graph": one.default_graph,
        "active": one.name == PROFILE.text(),
    }


@profile.command()
@click.argument("name", required=False)
@JSON
def show(name: str | None, as_json: bool) -> None:
    """Show what a profile resolves to; by default the profile of OMNIGRAPH_PROFILE, or the defaults."""
    config = read_config()
    chosen = name or PROFILE.text() or None
    binding = config.defaults_binding() if chosen is None else config.profile(chosen).binding()
    members = {"name": chosen, **_shown(config, binding), "output_format": config.output or "table"}
    if as_json:
        print_json(members)
    elif binding is None:
        click.echo(f"(no defaults in {config.path})")
    else:
        print_members(members)


def _shown(config: OperatorConfig, binding: Binding | None) -> dict[str, Any]:
    if binding is None:
        return dict.fromkeys(("scope_kind", "target", "endpoint", "default_graph"))
    known = {"server": config.servers, "cluster": config.clusters}.get(binding.kind, {})
    return {
        "scope_kind": binding.kind,
        "target": binding.target,
        "endpoint": known.get(binding.target, binding.target),
        "default_graph": binding.default_graph or (config.default_graph if binding.kind == "server" else None),
    }
