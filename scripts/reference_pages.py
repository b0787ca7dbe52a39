"""Write the reference pages that are generated from the code: settings, the command line and the Python API.

Run it after a change of a setting, a command or a public name. A test fails while a page is out of date.
"""

from __future__ import annotations

import enum
import inspect
import json
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import click

import omnigraph
from omnigraph import settings
from omnigraph.cli.main import cli
from omnigraph.client.verbs import Awaiting, LazyVerb, Verb

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by scripts/reference_pages.py. Do not edit. -->\n"
WIDTH = 100
MOST_USED = (
    "| to | use |",
    "|---|---|",
    "| create or open a graph | [`init`](#init), [`open`](#open), [`connect`](#connect) |",
    "| read | [`Graph.query`](#graphquery), [`Graph.prepare`](#graphprepare), [`Graph.entity`](#graphentity), "
    "[`Result`](#result) |",
    "| write | [`Graph.mutate`](#graphmutate), [`Graph.load`](#graphload), "
    "[`BranchHandle.transaction`](#branchhandletransaction) |",
    "| work with branches and history | [`graph.branches`](#graphbranches), [`Graph.branch`](#graphbranch), "
    "[`Graph.merge`](#graphmerge), [`Graph.diff`](#graphdiff), [`graph.commits`](#graphcommits) |",
    "| follow changes | [`Changes`](#changes) |",
    "| infer a schema | [`infer`](#infer) |",
    "| handle errors | [Errors](#errors) |",
)
"""The table of the names that most programs use. The build of the site checks its links."""

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")


def pages() -> dict[Path, Callable[[], str]]:
    """Every generated page with the function that makes its text."""
    reference = ROOT / "docs" / "reference"
    return {
        reference / "settings.md": settings_page,
        reference / "cli.md": cli_page,
        reference / "python.md": python_page,
        reference / "openapi.json": openapi_document,
    }


def main() -> int:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text(), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


# ---- the server


def openapi_document() -> str:
    """The OpenAPI document of the server."""
    from omnigraph.server.app import openapi_document as document

    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


# ---- settings


def settings_page() -> str:
    """All environment variables, by group."""
    lines = [
        "# Settings",
        "",
        NOTE,
        "OmniGraph reads these environment variables. Arguments of a call and options of a command override them. An",
        "*amount* is a number of bytes, or a number with `KiB`, `MiB`, `GiB` or `TiB`.",
    ]
    for group in settings.Group:
        lines += ["", f"## {group}", "", "| variable | value | default | meaning |", "|---|---|---|---|"]
        for setting in settings.all_settings():
            if setting.group is group:
                cells = [f"`{setting.name}`", setting.value, setting.default or setting.unset, setting.meaning]
                lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


# ---- the command line


def cli_page() -> str:
    """All commands with their arguments and options."""
    lines = [
        "# Command line",
        "",
        NOTE,
        "`omnigraph COMMAND --help` prints the same. Errors and exit codes are listed under [errors](../errors.md).",
    ]
    for name, command in _commands(cli, "omnigraph"):
        lines += ["", *_command(name, command)]
    return "\n".join(lines) + "\n"


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for word, each in command.commands.items():
            if not each.hidden:
                yield from _commands(each, f"{name} {word}")


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield f"{'##' if name.count(' ') < 2 else '###'} {name}"
    yield ""
    yield f"```text\n{name} {' '.join(command.collect_usage_pieces(context))}\n```"
    yield ""
    yield _prose(command.help or "")
    found = [param.get_help_record(context) for param in command.params]
    records = [(option, " ".join(help.split())) for option, help in filter(None, found) if help]
    if isinstance(command, click.Group):
        rows = [(word, each.get_short_help_str(200)) for word, each in command.commands.items() if not each.hidden]
        yield "\n| command | |\n|---|---|"
        anchors = [f"{name} {word}".replace(" ", "-") for word, _ in rows]
        links = zip(rows, anchors, strict=True)
        yield "\n".join(f"| [`{word}`](#{anchor}) | {_cell(_escaped(help))} |" for (word, help), anchor in links)
    if records:
        yield "\n| option | |\n|---|---|"
        yield "\n".join(f"| {_cell(f'`{option}`')} | {_cell(_escaped(help))} |" for option, help in records)


def _prose(help: str) -> str:
    """A help text as Markdown. Paragraphs that click does not wrap keep their lines."""
    blocks = []
    for block in inspect.cleandoc(help).split("\n\n"):
        if block.startswith("\b"):
            blocks.append("```text\n" + block.removeprefix("\b").strip("\n") + "\n```")
        else:
            blocks.append(_escaped(block))
    return "\n\n".join(blocks)


# ---- the Python API


def python_page() -> str:
    """All names that `omnigraph` exports."""
    lines = [
        "# Python API",
        "",
        NOTE,
        "Everything on this page can be imported from `omnigraph`. Other modules may change without notice.",
        "",
        *MOST_USED,
    ]
    values = {name: getattr(omnigraph, name) for name in omnigraph.__all__ if not name.startswith("__")}
    kinds: dict[str, Callable[[Any], bool]] = {
        "Functions": inspect.isroutine,
        "Classes": lambda value: inspect.isclass(value) and not issubclass(value, BaseException),
        "Errors": lambda value: inspect.isclass(value) and issubclass(value, BaseException),
    }
    kinds["Values"] = lambda value: not any(is_kind(value) for kind, is_kind in kinds.items() if kind != "Values")
    for kind, is_kind in kinds.items():
        names = sorted((name for name, value in values.items() if is_kind(value)), key=str.lower)
        if names:
            lines += ["", f"## {kind}"]
            for name in names:
                lines += ["", f"### {name}", "", *_entry(name, values[name])]
        if kind == "Functions":
            lines += [
                "",
                "## Parts of a graph",
                "",
                "Attributes of an open graph and of a client. Their classes are not exported.",
            ]
            for name, part in _parts():
                lines += ["", f"### {name}", "", *_class(name, part)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _parts() -> Iterator[tuple[str, type]]:
    """The classes behind the attributes of `Graph` and `GraphClient` that are not exported."""
    from omnigraph.client import clients
    from omnigraph.graph import collections

    for part in (collections.Branches, collections.Commits, collections.Tags, collections.Recovery):
        yield f"graph.{part.__name__.lower()}", part
    for served in (clients.Branches, clients.Commits, clients.Changes, clients.Schema, clients.Queries, clients.Graphs):
        yield f"client.{served.__name__.lower()}", served
    yield "client.blobs", clients.Blobs


def _entry(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isroutine(value):
        yield _signatures(name, value)
        yield _docstring(value)
    else:
        yield f"`{name}` is `{getattr(value, '__name__', None) or str(value).replace('omnigraph.', '')}`."


def _class(name: str, value: type) -> Iterator[str]:
    if issubclass(value, BaseException):
        yield f"Derives from `{value.__mro__[1].__name__}`.\n"
    elif (
        name[0].isupper()
        and not issubclass(value, enum.Enum)
        and "__init__" in vars(value)
        and not getattr(value, "_is_protocol", False)
    ):
        inspect.signature(value)  # a dataclass now builds its __init__
        yield _signatures(name, value.__init__)
    yield _docstring(value)
    if issubclass(value, enum.Enum):
        yield "\n" + "\n".join(f"- `{member.name}` = `{member.value!r}`" for member in value)
    for member, attribute in _members(value):
        yield f"\n#### {name}.{member}\n"
        if isinstance(attribute, property):
            kind = _annotation(inspect.signature(attribute.fget).return_annotation) if attribute.fget else ""
            yield f"```python\n{member}: {kind}\n```\n"
            yield _docstring(attribute)
        elif isinstance(attribute, Verb | LazyVerb):
            ask = inspect.unwrap(cast(Any, attribute))
            yield re.sub(r"-> Ask\[(.*)\]$", _returned(attribute), _signatures(member, ask), flags=re.MULTILINE)
            yield _docstring(ask)
        else:
            yield _signatures(member, getattr(value, member))
            yield _docstring(attribute)


def _returned(verb: object) -> str:
    """The type that a blocking client returns, in place of the request."""
    return r"-> \1" if isinstance(verb, Verb) else r"-> Iterator[\1]"


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class and of its bases in the package, in their order."""
    seen = set()
    for base in value.__mro__:
        if not base.__module__.startswith("omnigraph") or issubclass(base, BaseException):
            continue
        for name, attribute in vars(base).items():
            wanted = isinstance(attribute, property | classmethod | staticmethod) or inspect.isfunction(attribute)
            wanted |= isinstance(attribute, Verb | LazyVerb) and not issubclass(value, Awaiting)
            if wanted and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, attribute


def _signatures(name: str, function: Any) -> str:
    overloads = typing.get_overloads(function) or [function]
    return "```python\n" + "\n".join(_signature(name, each) for each in overloads) + "\n```\n"


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters: list[str] = []
    keyword_only = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parameters.append("*")
        unpacked = _unpacked(parameter, function)
        if unpacked is not None:
            parameters += ([] if keyword_only else ["*"]) + unpacked
        else:
            parameters.append(_parameter(parameter))
    returned = "" if name[0].isupper() else f" -> {_annotation(signature.return_annotation)}"
    line = f"{name}({', '.join(parameters)}){returned}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){returned}"


def _unpacked(parameter: inspect.Parameter, function: Any) -> list[str] | None:
    """The keyword arguments behind `**options: Unpack[Options]`."""
    name = re.fullmatch(r"(?:\w+\.)?Unpack\[(?:\w+\.)*(\w+)\]", _annotation(parameter.annotation))
    if parameter.kind is not parameter.VAR_KEYWORD or name is None:
        return None
    fields = inspect.unwrap(function).__globals__.get(name[1])
    if fields is None:
        return None
    required: frozenset[str] = fields.__required_keys__
    return [
        f"{field}: {_annotation(kind)}" + ("" if field in required else " = …")
        for field, kind in fields.__annotations__.items()
    ]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" * (parameter.kind is parameter.VAR_KEYWORD)
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: object) -> str:
    """A default value; `…` for one whose text depends on the machine."""
    plain = value is None or value == () or isinstance(value, bool | int | float | str)
    return repr(value.value if isinstance(value, enum.Enum) else value) if plain else "…"


def _docstring(value: Any) -> str:
    """A Google docstring as Markdown."""
    text = inspect.getdoc(value) or ""
    blocks = re.split(r"\n\n(?=\S)", text)
    return "\n\n".join(_section(block) for block in blocks if block.strip())


def _section(block: str) -> str:
    if block.lstrip().startswith(">>>"):
        return f"```pycon\n{textwrap.dedent(block).rstrip()}\n```"
    head, _, rest = block.partition("\n")
    if head.rstrip(":") in SECTIONS and head.endswith(":"):
        return f"**{head.rstrip(':')}**\n\n" + _items(textwrap.dedent(rest))
    if head.rstrip(":") in ("Example", "Examples"):
        return _section(textwrap.dedent(rest))
    return _escaped(block)


def _items(text: str) -> str:
    """The entries of a section: `name: meaning`, with continuation lines indented."""
    items = []
    for entry in re.split(r"\n(?=\S)", text.strip()):
        name, colon, meaning = entry.partition(": ")
        flat = " ".join(_escaped(meaning if colon else entry).split())
        items.append(f"- `{name}`: {flat}" if colon and re.fullmatch(r"[\w.*, ]+", name) else f"- {_flat(entry)}")
    return "\n".join(items)


def _flat(text: str) -> str:
    return " ".join(_escaped(text).split())


# ---- Markdown


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, except its code spans."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<_\[\]])", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
