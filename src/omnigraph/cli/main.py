"""The `omnigraph` command. Each command imports the engine when it runs, so `--help` is fast."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from typing import Any

import click

from omnigraph import __version__
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
from omnigraph.cli.failures import WRITES, report
from omnigraph.cli.graphs import init, recovery, snapshot
from omnigraph.cli.history import blame, log
from omnigraph.cli.indexes import indexes
from omnigraph.cli.interrupts import watch
from omnigraph.cli.language import check, fmt, lint
from omnigraph.cli.load import ingest, load
from omnigraph.cli.mutate import change, mutate
from omnigraph.cli.optimize import optimize
from omnigraph.cli.output import print_json
from omnigraph.cli.pick import cherry_pick, revert
from omnigraph.cli.pipeline import pipeline
from omnigraph.cli.query import query, read
from omnigraph.cli.repair import repair
from omnigraph.cli.restore import restore
from omnigraph.cli.schema import schema
from omnigraph.cli.scope import GLOBAL_FLAGS, REMEDIES, takes_address
from omnigraph.cli.shell import shell
from omnigraph.cli.streams import open_closed_streams
from omnigraph.cli.tag import tag
from omnigraph.cli.upkeep import status, upkeep
from omnigraph.cli.verify import verify
from omnigraph.commit.format_version import CURRENT
from omnigraph.errors import cut

CAPABILITIES = {
    "any": (
        "a data",
        (
            query,
            explain,
            shell,
            mutate,
            load,
            pipeline,
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
        ),
    ),
    "direct": (
        "a storage",
        (init, schema, indexes, embed, upkeep, optimize, repair, cleanup, backup, restore, relocate, lint),
    ),
    "local": ("a local", (check, fmt)),
}
"""Commands by the access that they need: to a graph (`any`), to its storage (`direct`), or to local files (`local`)."""


class _Commands(click.Group):
    """The top-level group. It turns library errors into messages and exit codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move global flags from before the command to behind it. Each command parses the flags that it takes."""
        _check_text(args, ctx)
        early: list[str] = []
        while args and (flag := args[0].partition("=")[0]) in GLOBAL_FLAGS:
            takes_value = flag in ("--store", "--as") and "=" not in args[0]
            early += args[: 1 + takes_value]
            args = args[1 + takes_value :]
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, args[:end] + early + args[end:] if args else args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt as error:
            raise click.exceptions.Exit(report(error)) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise (_flag_error(error) or error) from None
        except _NO_SUCH_COMMAND as error:
            raise _command_error(error) from None
        except click.UsageError as error:
            raise (_extra_argument_error(error) or error) from None
        except (click.ClickException, click.Abort, click.exceptions.Exit, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic in Rust is a BaseException
            ctx.exit(report(error, wrote=bool(ctx.meta.get(WRITES))))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _check_text(args: Sequence[str], ctx: click.Context) -> None:
    """Check that all arguments are valid UTF-8, so that later code can rely on it."""
    for position, arg in enumerate(args, 1):
        try:
            arg.encode()
        except UnicodeEncodeError:
            found = cut(arg.encode(errors="surrogateescape").decode(errors="replace"))
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


def _flag_error(error: click.NoSuchOption) -> click.UsageError | None:
    """The message for a global flag that this command does not take."""
    flag = error.option_name
    if flag not in GLOBAL_FLAGS or error.ctx is None:
        return None
    names = error.ctx.command_path.split()[1:]
    kinds = (kind for kind, commands in CAPABILITIES.values() if names[0] in {command.name for command in commands})
    does, remedy = GLOBAL_FLAGS[flag]
    remedy = REMEDIES.get((names[0], flag), remedy)
    return click.UsageError(
        f"'{' '.join(names)}' is {next(kinds, 'a local')} command; {does} and does not apply. {remedy}.", error.ctx
    )


def _extra_argument_error(error: click.UsageError) -> click.UsageError | None:
    """The message for an extra argument that is probably the graph, if the command takes the graph as `--uri` only."""
    if error.ctx is None or not error.message.startswith("Got unexpected extra argument"):
        return None
    command = error.ctx.command
    if takes_address(command, "uri") or not takes_address(command, "uri_option"):
        return None
    return click.UsageError(f"{error.message}; give the graph with --uri", error.ctx)


_LEGEND = "\n".join(
    [
        "\b\nCapabilities (any: needs a graph, direct: its storage, local: only local files):",
        *(f"  {name:<8}{', '.join(str(c.name) for c in commands)}" for name, (_, commands) in CAPABILITIES.items()),
        "\nA write prints its target on stderr. (direct, local) means: without a server, on a disk of this machine.",
        f"\n{', '.join(GLOBAL_FLAGS)}: before or after a command that takes them.",
    ]
)
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=_Commands, context_settings=_SETTINGS, epilog=_LEGEND)
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
    lint,
    check,
    fmt,
    schema,
):
    cli.add_command(command)


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
