"""Reads and replaces the source files that commands name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from omnigraph.cli.streams import read_stdin
from omnigraph.errors import InputError

LANGUAGES = {".pg": "schema", ".gq": "queries"}


STDIN = Path("<stdin>")
"""The name of standard input in messages."""

_STDIN_OPTION, _STDIN_TEXT = "omnigraph.stdin_option", "omnigraph.stdin_text"
"""Keys in the context of a command: the parameter that names standard input, and its content."""


class _SourceFile(click.Path):
    """A file to read; `-` is standard input. If the file need not exist, it may be an address such as `s3://…`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not self.exists and "://" in value:
            return value
        if value != "-":
            return super().convert(value, param, ctx)
        if ctx is not None and param is not None and ctx.meta.setdefault(_STDIN_OPTION, param.name) != param.name:
            raise click.UsageError("two options name standard input (-), which can be read only once", ctx)
        return STDIN


SOURCE_FILE = _SourceFile(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
DOCUMENT = _SourceFile(allow_dash=True, path_type=Path)
"""A YAML or JSON document. The function that reads it reports a missing file."""


def read_bytes(path: Path) -> bytes:
    """The content of a file, or of standard input.

    Raises:
        InputError: the file cannot be read.
    """
    if path is STDIN:
        meta = click.get_current_context().meta
        if _STDIN_TEXT not in meta:
            meta[_STDIN_TEXT] = read_stdin()
        return bytes(meta[_STDIN_TEXT])
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def path_or_document(path: Path | str) -> Path | str | Mapping[str, Any]:
    """A file or its address, for a function that reads documents; the content of the document if it is standard input.

    Raises:
        InputError: standard input is not YAML, or not an object.
    """
    if path is not STDIN:
        return path
    from omnigraph.lang.documents import read_document

    document = read_document(read_bytes(STDIN), str(STDIN))
    document.members()
    content: Mapping[str, Any] = document.plain()
    return content


def read_schema(path: Path) -> bytes:
    """The content of a schema file.

    Raises:
        InputError: the file cannot be read, or is a query file.
    """
    if path.suffix == ".gq":
        raise InputError(f"{path} is a query file, not a schema file", hint="name the .pg file")
    return read_bytes(path)


def source_files(paths: Iterable[Path]) -> list[Path]:
    """The given `.pg` and `.gq` files, and those below the given directories, without duplicates.

    Raises:
        InputError: a path is neither such a file nor a directory, or there are no files.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            below = (p for p in sorted(path.rglob("*")) if p.suffix in LANGUAGES and p.is_file())
            found.update(dict.fromkeys(p for p in below if not _hidden(p.relative_to(path)) and not _stored(p)))
        elif path.suffix in LANGUAGES or path is STDIN:
            found[path] = None
        else:
            raise InputError(f"{path} is neither a .pg file, a .gq file nor a directory")
    if not found:
        raise InputError(
            "there are no .pg or .gq files here", hint="name a file, or a directory that contains such files"
        )
    return list(found)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _stored(path: Path) -> bool:
    """Whether a file belongs to a stored graph."""
    return any((directory / "__graph.json").exists() for directory in path.parents)


def is_graph(name: str) -> bool:
    """Whether an argument names a graph, and not a file or a directory of files."""
    return "://" in name or (Path(name) / "__graph.json").exists()


def replace_text(path: Path, text: str) -> None:
    """Replace the content of a file atomically: a crash leaves the old or the new content.

    Raises:
        InputError: the file cannot be written.
    """
    from omnigraph.storage.files.local_output import output_file

    if not path.is_file():
        raise InputError(f"cannot write {path}: it is not a regular file", hint="use '-' to format standard input")
    with output_file(path) as file:
        file.write(text.encode())
