"""The commands `policy validate`, `policy test`, `policy explain` and `policy denials`."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.files import SOURCE_FILE, path_or_document, read_schema
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, open_to_read
from omnigraph.cli.target import Target
from omnigraph.errors.source import one_line

if TYPE_CHECKING:
    from omnigraph.lang.schema import AcceptedSchema
    from omnigraph.policy import LoggedDenial

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_POLICY = click.option("--policy", "bundle", type=SOURCE_FILE, required=True, metavar="FILE", help="The policy bundle.")
_ACTIONS = (
    "read",
    "export",
    "change",
    "schema_apply",
    "branch_create",
    "branch_delete",
    "branch_merge",
    "invoke_query",
    "admin",
    "graph_list",
)


@click.group()
def policy() -> None:
    """Check the rules about who may do what, and list denied requests."""


@policy.command()
@_POLICY
@address_options(positional=False, profiles=False)
@click.option("--schema", "schema_file", type=SOURCE_FILE, metavar="FILE", help="Check that the rules fit this schema.")
@JSON
def validate(bundle: Path, target: Target, schema_file: Path | None, as_json: bool) -> None:
    """Check a bundle. With a graph or a schema, also check the types, properties and conditions of its rules."""
    from omnigraph.policy import Policy

    found = Policy.read(path_or_document(bundle))
    uri = target.storage() if target.is_given else None
    accepted, former = _accepted(uri, schema_file)
    if accepted is not None:
        found.check(accepted, lambda: former)
    if as_json:
        rules = {"rules": len(found.bundle.rules), "row_rules": len(found.bundle.row_rules)}
        counts = rules | {"masks": len(found.bundle.masks), "actors": len(found.bundle.actors)}
        print_json({"valid": True, "bundle": found.bundle.name, **counts, "schema_checked": accepted is not None})
    else:
        click.echo(f"policy valid: bundle '{found.bundle.name}' [{len(found.bundle.actors)} actors]")


def _accepted(uri: str | None, schema_file: Path | None) -> tuple[AcceptedSchema | None, list[AcceptedSchema]]:
    """The schema of `main` of a graph, and all that it has had; or the schema of a file; None if neither is given."""
    if uri is not None and schema_file is not None:
        raise click.UsageError("give --store or --schema, not both")
    if uri is not None:
        with open_to_read(uri) as graph:
            return graph.accepted_schema, list(graph.session.former_schemas())
    if schema_file is None:
        return None, []
    from omnigraph.lang.schema import accept, compile_schema

    return accept(compile_schema(read_schema(schema_file), str(schema_file)), "policy"), []


@policy.command("test")
@_POLICY
@click.option("--tests", type=SOURCE_FILE, required=True, metavar="FILE", help="The file with the cases.")
@JSON
def run_tests(bundle: Path, tests: Path, as_json: bool) -> None:
    """Decide the cases of a tests file, and compare the decisions with the expected ones."""
    from omnigraph.policy import Policy, run_cases

    results = run_cases(Policy.read(path_or_document(bundle)), path_or_document(tests))
    failed = [result for result in results if not result.passed]
    if as_json:
        cases = [
            {
                "id": result.id,
                "passed": result.passed,
                "expected": result.expected.value,
                "allowed": result.decision.allowed,
                "matched_rule": result.decision.rule,
                "message": result.decision.message,
            }
            for result in results
        ]
        print_json({"passed": not failed, "cases": cases})
    elif not failed:
        click.echo(f"policy tests passed: {len(results)} case{'s' * (len(results) != 1)}")
    for result in failed:
        place = "" if result.line is None else f", line {result.line}"
        found = "allow" if result.decision.allowed else "deny"
        message = (
            f"{tests.name}{place}: case '{result.id}' expects {result.expected.value}, but the decision is {found}"
        )
        click.echo(one_line(f"{message}: {result.decision.message}"), err=True)
    if failed:
        click.echo(f"policy tests failed: {len(failed)} of {len(results)} cases", err=True)
        raise click.exceptions.Exit(1)


@policy.command()
@_POLICY
@click.option("--actor", required=True, metavar="ACTOR", help="The actor of the request.")
@click.option(
    "--action",
    type=click.Choice(_ACTIONS),
    required=True,
    metavar="ACTION",
    help=f"The action of the request: {', '.join(_ACTIONS)}.",
)
@click.option("--branch", metavar="BRANCH", help="The branch of the request.")
@click.option("--target-branch", metavar="BRANCH", help="The branch that is created, deleted or merged into.")
@JSON
def explain(
    bundle: Path, actor: str, action: str, branch: str | None, target_branch: str | None, as_json: bool
) -> None:
    """Decide one request, and name the rule that allows it."""
    from omnigraph.policy import Policy

    decision = Policy.read(path_or_document(bundle)).decide(actor, action, branch, target_branch)
    lines = {
        "decision": "allow" if decision.allowed else "deny",
        "actor": actor,
        "action": action,
        "branch": branch,
        "target_branch": target_branch,
        "matched_rule": decision.rule,
        "message": decision.message,
    }
    if as_json:
        print_json(lines)
        return
    for name, value in lines.items():
        click.echo(one_line(f"{name}: {'-' if value is None else value}"))


@policy.command()
@click.option("--limit", type=click.IntRange(1), default=100, help="Number of newest denials.  [default: 100]")
@click.option("--actor", metavar="ACTOR", help="Only denials of this actor.")
@click.option("--file", "path", type=_FILE, metavar="FILE", help="The audit.  [default: the setting OMNIGRAPH_DENIALS]")
@JSON
def denials(limit: int, actor: str | None, path: Path | None, as_json: bool) -> None:
    """List the newest denied requests of this machine, oldest first."""
    from omnigraph.policy import DenialLog

    log = DenialLog(path)
    found = deque((one for one in log.records() if actor in (None, one.denial.actor)), limit)
    if as_json:
        print_json({"file": str(log.path), "denials": [one.to_json() for one in found]})
        return
    for one in found:
        click.echo(one_line(_line(one)))


def _line(one: LoggedDenial) -> str:
    parts = [one.time, f"actor={one.denial.actor or '-'}", f"action={one.denial.action}"]
    if one.denial.branch is not None:
        parts.append(f"branch={one.denial.branch}")
    if one.denial.target_branch is not None:
        parts.append(f"target_branch={one.denial.target_branch}")
    if one.denial.types:
        parts.append(f"types={','.join(one.denial.types)}")
    return " ".join([*parts, f"rule={one.denial.rule or '-'}", f"graph={one.denial.graph}", f"({one.denial.message})"])
