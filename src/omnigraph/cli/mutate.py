"""The `mutate` command, and `change`, its old name."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from omnigraph.amounts import counted
from omnigraph.cli.conditions import condition_options, conditions
from omnigraph.cli.files import SOURCE_FILE, read_bytes
from omnigraph.cli.output import JSON, print_json, shown_totals
from omnigraph.cli.project import find_project
from omnigraph.cli.scope import address_options, connect_to_write, write_options
from omnigraph.cli.served import ServedGraph
from omnigraph.cli.statements import as_query, is_body, without_head, without_name
from omnigraph.cli.target import Place, Served, Target
from omnigraph.errors import CompileError, InputError, NotFoundError, ParameterError, cut, printable

if TYPE_CHECKING:
    from omnigraph.write.mutation import MutationReceipt

_MAX_DIGITS = 1000
_GIVEN = "given"
"""The name of a query that is given on the command line without `query NAME()`."""
_THE_TEXT = "the text"
"""The start of errors about a text without a query, or with several."""


@click.command()
@click.argument("name", required=False)
@address_options(positional=False, served=True, stored_only=("unchanged_since", "reads", "timeout"))
@click.option("--query", "query_path", type=SOURCE_FILE, metavar="FILE", help="Query file (.gq); NAME selects one.")
@click.option("-e", "--query-string", metavar="GQ", help="Query text.")
@click.option("--params", metavar="JSON", help="Parameters, as a JSON object.")
@click.option("--params-file", type=SOURCE_FILE, metavar="FILE", help="Parameters, in a JSON file.")
@click.option("--branch", metavar="BRANCH", default="main", help="Branch to write to.  [default: main]")
@click.option("--if-commit", metavar="ID", help="Write only if this commit is the head of the branch.")
@condition_options
@click.option("--idempotency-key", metavar="KEY", help="Do nothing if the branch has a commit with this key.")
@click.option("--message", metavar="TEXT", help="Message of the commit.")
@write_options()
@JSON
def mutate(
    name: str | None,
    target: Target,
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

    NAME selects a query if the source has several. Without a source, NAME is a stored query of a server. The exit code
    is 4 if the head is not the commit of --if-commit, or if the data changed since --unchanged-since.
    """
    place = target.place()
    text = stored_or_source(place, name, query_path, query_string)
    given = parameters(params, params_file)
    write_conditions = conditions(unchanged_since, reads, timeout)
    # A mutation prints no target: its text names the types.
    with connect_to_write(place, actor, quiet=True) as graph, errors_in(query_path):
        options: dict[str, Any] = {
            "branch": branch,
            "expect_head": graph.full_commit_id(if_commit) if isinstance(graph, ServedGraph) else if_commit,
            "idempotency_key": idempotency_key,
            "message": message,
            **write_conditions,
        }
        if text is not None:
            done = graph.mutate(text, given, name=name, **options)
        else:
            assert isinstance(graph, ServedGraph)
            done = graph.invoke_mutation(str(name), given, **options)
    if text is not None:
        warn_about_undeclared(text, name, given)
    if as_json:
        print_json(done.to_json())
        return
    print_receipt(done, replaces=text is not None and inserts_only(text, name))


def print_receipt(done: MutationReceipt, *, replaces: bool) -> None:
    """Print the result of a mutation for people.

    Args:
        done: the receipt.
        replaces: whether entities that existed were replaced, and not updated.
    """
    counts = f"{counted(done.affected_nodes, 'node')}, {counted(done.affected_edges, 'edge')}"
    totals = shown_totals(done.commit, "replaced" if replaces else "updated")
    click.echo(f"changed {done.branch} via {done.query_name}: {counts}{totals}")
    if done.actor is not None:
        click.echo(f"actor_id: {done.actor}")


@click.command(hidden=True, params=mutate.params, help="The old name of 'mutate'.")
@click.pass_context
def change(ctx: click.Context, /, **values: object) -> None:
    click.echo("'change' is deprecated, use 'mutate'", err=True)
    ctx.forward(mutate)


def stored_or_source(place: Place, name: str | None, path: Path | None, text: str | None) -> str | None:
    """The text of the queries; None if the command names a stored query of a server. Raises the errors of `source`."""
    if path is None and text is None and name is not None and isinstance(place, Served):
        return None
    return source(path, text, name)


def source(path: Path | None, text: str | None, name: str | None = None) -> str:
    """The text of the queries, from a file or from the command line. The command line may also give a query body.

    Without both, the project file names the file of the query `name`.

    Raises:
        UsageError: both a file and a text are given, or neither.
        InputError: the file is not UTF-8.
    """
    if path is None and text is None and (project := find_project()) is not None:
        path = project.queries_of(name)
    if (path is None) == (text is None):
        raise click.UsageError("give the query once: --query FILE or -e GQ")
    if path is None:
        assert text is not None
        return as_query(text, _GIVEN) if is_body(text) else text
    if path.suffix == ".pg":
        raise InputError(f"{path} is a schema file, not a query file", hint="name the .gq file")
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8", hint="save the file as UTF-8") from error


@contextmanager
def errors_in(path: Path | None) -> Iterator[None]:
    """Name the query file in the errors of its queries, or show the text of -e as it was given."""
    try:
        yield
    except CompileError as error:
        if error.source is not None and error.source.name is None:
            if path is None:
                without_head(error, _GIVEN)
                if error.hint is None and _lost_variables(error.source.text):
                    error.hint = "in double quotes, the shell replaces $names: write -e '…' with single quotes"
            error.source = replace(error.source, name="-e" if path is None else str(path))
        raise
    except ParameterError as error:
        if error.hint is None:
            error.hint = """parameters are a JSON object: --params '{"name": "ann"}'"""
        raise
    except (InputError, NotFoundError) as error:
        if error.message.startswith(_THE_TEXT):
            error.message = ("-e" if path is None else str(path)) + error.message.removeprefix(_THE_TEXT)
            error.args = (error.message,)
        without_name(error, _GIVEN, "-e")
        raise


_NAMELESS = re.compile(r"(^|[\s{(,])(:\s*\(?[A-Za-z]|\.[A-Za-z_*])")


def _lost_variables(text: str) -> bool:
    """Whether a query has no variables where it needs them, as in `match { : Person } return { .name }`."""
    return "$" not in text and _NAMELESS.search(text) is not None


def parameters(text: str | None, path: Path | None) -> dict[str, Any]:
    """The query parameters of a command.

    Raises:
        UsageError: the parameters are given both as a text and as a file.
        InputError: the parameters are not a JSON object.
    """
    if text is not None and path is not None:
        raise click.UsageError("give the parameters once: --params or --params-file")
    if path is not None:
        return json_object(read_bytes(path), str(path))
    return {} if text is None else json_object(text.encode(), "--params")


def inserts_only(text: str, name: str | None) -> bool:
    """Whether all statements of a query are `insert` or `create`. An `insert` replaces an entity that exists."""
    from omnigraph.lang.query import parse_queries, select_query
    from omnigraph.lang.query.ast import Insert, InsertMode, Write

    body = select_query(parse_queries(text), name).body
    return isinstance(body, Write) and all(
        isinstance(one, Insert) and one.mode is not InsertMode.MERGE for one in body.statements
    )


def warn_about_undeclared(text: str, name: str | None, given: Mapping[str, object]) -> None:
    """Warn about parameters that the query does not declare. They are probably misspelled."""
    from omnigraph.evaluate import undeclared
    from omnigraph.lang.names import did_you_mean
    from omnigraph.lang.query import parse_queries, select_query

    query = select_query(parse_queries(text), name)
    for extra in undeclared(query.params, given):
        near = did_you_mean(extra, [param.name for param in query.params])
        warning = f"warning: '{query.name}' has no parameter '{cut(extra)}'"
        click.echo(printable(f"{warning}; {near}" if near else warning), err=True)


def json_object(text: bytes, where: str) -> dict[str, Any]:
    """Parse parameters from a JSON object.

    Raises:
        InputError: the text is not a JSON object.
    """
    try:
        value = json.loads(text, parse_constant=_reject_constant, parse_int=_integer, object_pairs_hook=_members)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: not valid JSON: {error}", hint='for example {"name": "ann"}') from None
    except _InvalidJsonError as error:
        raise InputError(f"{where}: {error}") from None
    except RecursionError:
        raise InputError(f"{where}: the JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: parameters must be a JSON object", hint='for example {"name": "ann"}')
    return value


class _InvalidJsonError(Exception):
    """JSON that Python accepts, but that is not allowed in parameters."""


def _reject_constant(word: str) -> NoReturn:
    raise _InvalidJsonError(f"not valid JSON: {word} is not allowed as a number")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _InvalidJsonError(f"a number has {len(digits):,} digits, more than any parameter type allows")
    return int(digits)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        duplicate = next(name for name, count in counts.items() if count > 1)
        raise _InvalidJsonError(f"duplicate member '{cut(duplicate)}'")
    return members
