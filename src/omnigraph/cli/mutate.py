"""Running a query that writes: `mutate`, and `change`, its former name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from omnigraph.cli.conditions import conditional, conditions
from omnigraph.cli.files import read_bytes
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address, addressed, open_to_write, writing
from omnigraph.cli.statements import is_body, whole
from omnigraph.errors import InputError, PreconditionFailedError, cut, printable

_MOST_DIGITS = 1000
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("name", required=False)
@addressed(positional=False)
@click.option("--query", "query_path", type=FILE, metavar="FILE", help="The queries (.gq); NAME says which.")
@click.option("-e", "--query-string", metavar="GQ", help="The same as a text.")
@click.option("--params", metavar="JSON", help="The parameters: a JSON object.")
@click.option("--params-file", type=FILE, metavar="FILE", help="The same in a file.")
@click.option("--branch", metavar="BRANCH", default="main", help="The branch to write to.  [default: main]")
@click.option("--if-commit", metavar="ID", help="Write only if this commit is the head of the branch.")
@conditional
@click.option("--idempotency-key", metavar="KEY", help="Do nothing if a commit of the branch carries this key.")
@click.option("--message", metavar="TEXT", help="The commit's message.")
@writing()
@JSON
def mutate(
    name: str | None,
    uri_option: str | None,
    store: str | None,
    query_path: Path | None,
    query_string: str | None,
    params: str | None,
    params_file: Path | None,
    branch: str,
    if_commit: str | None,
    unchanged_since: str | None,
    reads: tuple[str, ...],
    timeout: float | None,
    idempotency_key: str | None,
    message: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a query that writes, as one commit.

    NAME says which query, when the source has several. The exit status is 4 when --if-commit names another commit
    than the head, or when something has changed since --unchanged-since.
    """
    uri = address(uri_option, store)
    text = source(query_path, query_string)
    given = parameters(params, params_file)
    asked = conditions(unchanged_since, reads, timeout)
    with open_to_write(uri, actor, quiet=True) as graph:
        try:
            done = graph.mutate(
                text,
                given,
                name=name,
                branch=branch,
                expect_head=if_commit,
                idempotency_key=idempotency_key,
                message=message,
                **asked,
            )
        except PreconditionFailedError as error:
            if as_json:
                print_json(precondition_json(error))
            raise
    warn_about_undeclared(text, name, given)
    if as_json:
        print_json(done.to_json())
        return
    counts = f"{done.affected_nodes} nodes, {done.affected_edges} edges"
    click.echo(f"changed {done.branch} via {done.query_name}: {counts}")
    if done.actor is not None:
        click.echo(f"actor_id: {done.actor}")


@click.command(hidden=True, params=mutate.params, help="The former name of 'mutate'.")
@click.pass_context
def change(ctx: click.Context, /, **values: object) -> None:
    click.echo("'change' is called 'mutate' now; this name will go", err=True)
    ctx.forward(mutate)


def source(path: Path | None, text: str | None) -> str:
    """The queries that a command was given, in a file or as a text. The body alone of one is text enough.

    Raises:
        UsageError: neither was given, or both.
        InputError: the file is not UTF-8.
    """
    if (path is None) == (text is None):
        raise click.UsageError("give the query once: --query FILE or -e GQ")
    if path is None:
        assert text is not None
        return whole(text, "given") if is_body(text) else text
    if path.suffix == ".pg":
        raise InputError(f"{path} is a schema, and queries are wanted here", hint="name the .gq file")
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8") from error


def parameters(text: str | None, path: Path | None) -> dict[str, Any]:
    """The parameters that a command was given.

    Raises:
        UsageError: they were given twice.
        InputError: they are not a JSON object.
    """
    if text is not None and path is not None:
        raise click.UsageError("give the parameters once: --params or --params-file")
    if path is not None:
        return json_object(read_bytes(path), str(path))
    return {} if text is None else json_object(text.encode(), "--params")


def warn_about_undeclared(text: str, name: str | None, given: Mapping[str, object]) -> None:
    """Name the parameters that a query does not have: most are misspelled."""
    from omnigraph.evaluate import undeclared
    from omnigraph.lang.names import did_you_mean
    from omnigraph.lang.query import parse_queries, select_query

    query = select_query(parse_queries(text), name)
    for extra in undeclared(query.params, given):
        near = did_you_mean(extra, [param.name for param in query.params])
        said = f"warning: '{query.name}' has no parameter '{cut(extra)}'"
        click.echo(printable(f"{said}; {near}" if near else said), err=True)


def json_object(text: bytes, where: str) -> dict[str, Any]:
    """Parameters that are written as JSON.

    Raises:
        InputError: they are not a JSON object.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_integer, object_pairs_hook=_members)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: this is not JSON: {error}") from None
    except _UnusableError as error:
        raise InputError(f"{where}: {error}") from None
    except RecursionError:
        raise InputError(f"{where}: the JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: parameters are a JSON object", hint='for example {"name": "ann"}')
    return value


class _UnusableError(Exception):
    """What Python's reader of JSON would take, or would not say in words."""


def _refuse(word: str) -> NoReturn:
    raise _UnusableError(f"this is not JSON: {word} is no number")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _UnusableError(f"a number of {len(digits):,} digits is none that a parameter could have")
    return int(digits)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _UnusableError(f"the member '{cut(twice)}' is given twice")
    return members


def precondition_json(error: PreconditionFailedError) -> dict[str, Any]:
    """The body that every surface gives for a lost condition."""
    return {
        "error": str(error),
        "precondition_failure": {"expected": error.expected, "actual": error.actual},
    }
