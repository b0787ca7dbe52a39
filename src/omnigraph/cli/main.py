"""The `omnigraph` command. Each command imports the engine when it runs, so `--help` is fast."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from omnigraph import __version__
from omnigraph.cli.alias import alias
from omnigraph.cli.analytics import analytics
from omnigraph.cli.blob import blob
from omnigraph.cli.branch import branch
from omnigraph.cli.changes import changes
from omnigraph.cli.cleanup import cleanup
from omnigraph.cli.commit import commit
from omnigraph.cli.copies import backup, relocate
from omnigraph.cli.diff import diff_states
from omnigraph.cli.embed import embed
from omnigraph.cli.explain import explain
from omnigraph.cli.export import export
from omnigraph.cli.failures import JSON_ERRORS, WRITES, print_json_error, report, usage_body
from omnigraph.cli.graph_list import graphs
from omnigraph.cli.graphs import init, recovery, snapshot
from omnigraph.cli.history import blame, log
from omnigraph.cli.import_data import import_data
from omnigraph.cli.indexes import indexes
from omnigraph.cli.infer import infer
from omnigraph.cli.interrupts import watch
from omnigraph.cli.language import check, fmt, lint
from omnigraph.cli.load import ingest, load
from omnigraph.cli.login import login, logout
from omnigraph.cli.mutate import change, mutate
from omnigraph.cli.optimize import optimize
from omnigraph.cli.output import print_json
from omnigraph.cli.pick import cherry_pick, revert
from omnigraph.cli.pipeline import pipeline
from omnigraph.cli.policy import policy
from omnigraph.cli.profile import profile
from omnigraph.cli.project import find_project
from omnigraph.cli.queries import queries
from omnigraph.cli.query import query, read
from omnigraph.cli.repair import repair
from omnigraph.cli.restore import restore
from omnigraph.cli.schema import schema
from omnigraph.cli.scope import FLAGS_WITH_VALUES, GLOBAL_FLAGS, REMEDIES
from omnigraph.cli.serve import serve
from omnigraph.cli.shell import shell
from omnigraph.cli.streams import open_closed_streams
from omnigraph.cli.tag import tag
from omnigraph.cli.target import is_graph_name, takes_address, takes_graph_first
from omnigraph.cli.upkeep import status, upkeep
from omnigraph.cli.verify import verify
from omnigraph.commit.format_version import CURRENT
from omnigraph.errors import cut

CAPABILITIES = {
    "any": "a data",
    "served": "a server",
    "direct": "a storage",
    "control": "a control",
    "local": "a local",
}
"""The target of a command: a graph of a server or in a storage (`any`), a server, the storage of a graph (`direct`),
the rules and stored queries of graphs (`control`), or local files. The values are the words of messages."""

_CONTROL = ("policy", "queries")
_DIRECT = ("init", "import", "restore", "lint", "serve")
"""Commands that work on storage, but that name it in another way than with `--store`."""


def capability(path: Sequence[str], command: click.Command) -> str:
    """The key of `CAPABILITIES` for a command.

    Args:
        path: the words of the command.
        command: the command.
    """
    taken = {option for param in command.params for option in param.opts}
    if path[0] in _CONTROL:
        return "control"
    if "--server" in taken:
        return "any" if "--store" in taken else "served"
    return "direct" if "--store" in taken or path[0] in _DIRECT else "local"


class _Commands(click.Group):
    """The top-level group. It turns library errors into messages and exit codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move global flags from before the command to behind it. Each command parses the flags that it takes."""
        ctx.meta[JSON_ERRORS] = _wants_json(args)
        _check_text(args, ctx)
        ctx.meta[_ARGUMENTS] = [arg.partition("=")[0] for arg in args if arg.startswith("--")]
        args = _current_names(args)
        early: list[str] = []
        while args and (flag := args[0].partition("=")[0]) in GLOBAL_FLAGS:
            takes_value = flag in FLAGS_WITH_VALUES and "=" not in args[0]
            early += args[: 1 + takes_value]
            args = args[1 + takes_value :]
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, _graph_as_option(self, args[:end] + early + args[end:]) if args else args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        given = args[1] if len(args) > 1 else kwargs.get("args", ())
        as_json = _wants_json(given)
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt as error:
            raise click.exceptions.Exit(report(error, as_json=as_json)) from None
        except click.ClickException as error:
            if as_json:
                print_json_error(usage_body(error), error.exit_code)
            raise

    def invoke(self, ctx: click.Context) -> object:
        try:
            ctx.default_map = _defaults(self)
            return super().invoke(ctx)
        except click.ClickException as error:
            explained = _explained(error)
            if ctx.meta[JSON_ERRORS]:
                print_json_error(usage_body(explained), explained.exit_code)
            raise explained from None
        except (click.Abort, click.exceptions.Exit, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic in Rust is a BaseException
            ctx.exit(report(error, wrote=bool(ctx.meta.get(WRITES)), as_json=ctx.meta[JSON_ERRORS]))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _wants_json(args: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON. It is known before they are parsed, because parsing can fail."""
    given = list(args)[: list(args).index("--")] if "--" in args else list(args)
    return "--json" in given or "--format=json" in given or ("--format", "json") in pairwise(given)


def _explained(error: click.ClickException) -> click.ClickException:
    """The error with a message that is specific to this command line, if there is one."""
    match error:
        case click.NoSuchOption():
            return _flag_error(error) or error
        case click.UsageError() if isinstance(error, _NO_SUCH_COMMAND):
            return _command_error(error)
        case click.UsageError():
            return _extra_argument_error(error) or error
        case _:
            return error


_ON_A_BRANCH = (
    *("query", "explain", "shell", "mutate", "load", "ingest", "export", "snapshot", "log", "blame", "embed"),
    *("revert", "blob get", "blob stat", "commit list", "changes poll", "changes baseline", "schema show"),
)
"""The commands whose `--branch` the project file fills in."""


def _defaults(group: click.Group) -> dict[str, Any]:
    """The options that the project file fills in, by command."""
    project = find_project()
    if project is None:
        return {}
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = {f"{name} {word}": one for word, one in getattr(command, "commands", {}).items()} or {name: command}
        for path, one in inner.items():
            given = {"engine": project.engine} if any(param.name == "engine" for param in one.params) else {}
            given |= {"branch": project.branch} if path in _ON_A_BRANCH else {}
            given = {key: value for key, value in given.items() if value is not None}
            words = path.split()
            if given:
                (found.setdefault(name, {}) if len(words) > 1 else found)[words[-1]] = given
    return found


def _graph_as_option(group: click.Group, args: list[str]) -> list[str]:
    """Make the graph an option if it is the first argument of a command that has other arguments, too.

    The first argument is the graph if there are more arguments than the command has, or if it cannot be a name.
    """
    command: click.Command = group
    start = 0
    while isinstance(command, click.Group) and start < len(args) and args[start] in command.commands:
        command, start = command.commands[args[start]], start + 1
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    if takes_address(command, "uri") or not takes_graph_first(command):
        return args
    places = list(_positional(command, args, start))
    slots = sum(one.nargs for one in arguments)
    if not places:
        return args
    is_named = is_graph_name(args[places[0]])
    if arguments and arguments[0].name == "name" and not arguments[0].required:  # the name of a query
        is_graph_first = is_named
    else:
        needed = sum(one.nargs for one in arguments if one.required)
        is_graph_first = len(places) > slots or (is_named and 0 < needed < len(places))
    if is_graph_first:
        graph = args[places[0]]
        return [*args[: places[0]], "--uri", graph, *args[places[0] + 1 :]]
    return args


def _positional(command: click.Command, args: list[str], start: int) -> Iterator[int]:
    """The places of the arguments that are no options and no values of options."""
    options = {
        name: 0 if param.is_flag or param.count else param.nargs
        for param in command.params
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
    }
    place = start
    while place < len(args) and args[place] != "--":
        text = args[place]
        if not text.startswith("-") or text == "-":
            yield place
        elif "=" not in text:
            place += options.get(text, 0)
        place += 1
    yield from range(place + 1, len(args))


def _current_names(args: list[str]) -> list[str]:
    """Replace `query lint` and `query check`, the old names of `lint`."""
    if args[:2] not in (["query", "lint"], ["query", "check"]):
        return args
    click.echo(f"'{args[0]} {args[1]}' is deprecated, use 'lint'", err=True)
    return ["lint", *args[2:]]


def _check_text(args: Sequence[str], ctx: click.Context) -> None:
    """Check that all arguments are valid UTF-8, so that later code can rely on it."""
    for position, arg in enumerate(args, 1):
        try:
            arg.encode()
        except UnicodeEncodeError:
            found = "…" if "login" in args else cut(arg.encode(errors="surrogateescape").decode(errors="replace"))
            raise click.UsageError(f"argument {position} is not UTF-8: '{found}'", ctx) from None


_NO_SUCH_COMMAND = getattr(click, "NoSuchCommand", ())
"""The error of an unknown command, which click has since 8.4. Earlier releases suggest no other command."""


def _command_error(error: click.UsageError) -> click.UsageError:
    """The error about an unknown command, with a suggestion only if a command has a similar name."""
    from omnigraph.lang.names import did_you_mean

    name, group = error.command_name, None if error.ctx is None else error.ctx.command  # type: ignore[attr-defined]
    known = sorted(group.commands) if isinstance(group, click.Group) else []
    hint = did_you_mean(name, known)
    message = f"No such command '{cut(name)}'." + (f" {hint[0].upper()}{hint[1:]}" if hint else "")
    return click.UsageError(message, error.ctx)


_IN_THE_QUERY = {("query", "--limit"): "Write 'limit 10' at the end of the query"}
"""Options that belong into the text of a query."""


def _flag_error(error: click.NoSuchOption) -> click.UsageError | None:
    """The message for a global flag that this command does not take."""
    flag = error.option_name
    if error.ctx is not None and (error.ctx.command.name, flag) in _IN_THE_QUERY:
        hint = _IN_THE_QUERY[error.ctx.command.name or "", flag]
        return click.UsageError(f"No such option '{flag}'. {hint}.", error.ctx)
    if flag not in GLOBAL_FLAGS or error.ctx is None:
        return None
    given = error.ctx.find_root().meta.get(_ARGUMENTS, ())
    taken = {option for param in error.ctx.command.params for option in param.opts}
    flag = next((one for one in GLOBAL_FLAGS if one in given and one not in taken), flag)
    names = error.ctx.command_path.split()[1:]
    kind = capability(names, error.ctx.command)
    does, remedy = GLOBAL_FLAGS[flag]
    if flag == "--server" and kind == "direct":
        remedy = "Give --store URI"
    remedy = REMEDIES.get((names[0], flag), remedy)
    return click.UsageError(
        f"'{' '.join(names)}' is {CAPABILITIES[kind]} command; {does} and does not apply. {remedy}.", error.ctx
    )


_ARGUMENTS = "omnigraph.arguments"
"""Key in the context of the program: the options of the command line."""


_OPTION_OF = {".gq": "--query", ".pg": "--schema"} | dict.fromkeys(
    (".ndjson", ".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow"), "--data"
)
"""The option that takes a file, by the ending of its name."""


def _extra_argument_error(error: click.UsageError) -> click.UsageError | None:
    """The message for an extra argument that is probably the graph, or a file that needs an option."""
    if error.ctx is None or not error.message.startswith("Got unexpected extra argument"):
        return None
    command = error.ctx.command
    extra = error.message.rpartition("(")[2].removesuffix(")")
    option = next((_OPTION_OF[Path(word).suffix] for word in extra.split() if Path(word).suffix in _OPTION_OF), None)
    if option is not None and any(option in param.opts for param in command.params):
        return click.UsageError(f"{error.message}; give a file with {option}", error.ctx)
    if takes_address(command, "uri") or not takes_graph_first(command) or error.ctx.params.get("uri_option"):
        return None
    return click.UsageError(f"{error.message}; the graph is the first argument", error.ctx)


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(__version__, "-v", "--version", prog_name="omnigraph", message="%(prog)s %(version)s")
def cli() -> None:
    """A typed property graph on Lance, with branches over the whole graph."""


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version(as_json: bool) -> None:
    """Print the version of the program and of the storage format."""
    if as_json:
        members = {"version": __version__, "internal_schema_version": CURRENT, "python": platform.python_version()}
        print_json(members)
    else:
        click.echo(f"omnigraph {__version__}\ninternal-schema {CURRENT}")


for command in (
    init,
    import_data,
    query,
    read,
    explain,
    shell,
    mutate,
    change,
    load,
    ingest,
    pipeline,
    embed,
    analytics,
    export,
    blob,
    branch,
    tag,
    commit,
    revert,
    cherry_pick,
    diff_states,
    changes,
    log,
    blame,
    snapshot,
    verify,
    recovery,
    status,
    upkeep,
    indexes,
    optimize,
    repair,
    cleanup,
    backup,
    restore,
    relocate,
    policy,
    lint,
    check,
    fmt,
    infer,
    schema,
    serve,
    graphs,
    queries,
    alias,
    login,
    logout,
    profile,
):
    cli.add_command(command)


def _show_graphs_in_usage(group: click.Group) -> None:
    """Show the graph as the first argument in the usage lines of the commands that take it as such."""
    for command in group.commands.values():
        if isinstance(command, click.Group):
            _show_graphs_in_usage(command)
        elif takes_graph_first(command) and not takes_address(command, "uri"):
            command.options_metavar = "[OPTIONS] [GRAPH]"


_show_graphs_in_usage(cli)


def _legend() -> str:
    """The end of the help text: the commands by what they work on."""
    found: dict[str, list[str]] = {name: [] for name in CAPABILITIES}
    for name, command in cli.commands.items():
        if command.hidden:
            continue
        inner = command.commands if isinstance(command, click.Group) else {}
        kinds = {word: capability((name, word), one) for word, one in inner.items()} or {
            "": capability((name,), command)
        }
        for kind in dict.fromkeys(kinds.values()):
            words = "|".join(word for word, one in kinds.items() if one == kind)
            found[kind].append(name if len(set(kinds.values())) == 1 else f"{name} {words}")
    return "\n".join(
        [
            "Capabilities (any: a graph of a server or in a storage, served: a server, direct: the storage of a graph, "
            "control: policies and stored queries, local: files of the user):",
            "\n\b",
            *(_wrapped(name, commands) for name, commands in found.items() if commands),
            "\nA write prints its target on stderr. (direct, local) means: without a server, on a local disk.",
            f"\n{', '.join(GLOBAL_FLAGS)}: before or after a command that takes them.",
        ]
    )


def _wrapped(name: str, commands: Sequence[str]) -> str:
    """A line of the legend, wrapped between commands so that it fits 80 columns."""
    lines = [f"  {name:<8}"]
    for number, command in enumerate(commands, 1):
        text = command + ("," if number < len(commands) else "")
        if len(lines[-1]) + len(text) > _LEGEND_WIDTH:
            lines.append(" " * 10)
        lines[-1] += text + " "
    return "\n".join(line.rstrip() for line in lines)


_LEGEND_WIDTH = 78  # click indents the legend by two columns

cli.epilog = _legend()


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    open_closed_streams()
    watch()
    try:
        cli.main(args=args, prog_name="omnigraph")
    except OSError as error:  # the help text cannot be printed; errors of commands are handled in `invoke`
        sys.exit(report(error))


if __name__ == "__main__":
    main()
