"""Reads and replaces the source files that commands name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from omnigraph.errors import InputError

LANGUAGES = {".pg": "schema", ".gq": "queries"}


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


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
        elif path.suffix in LANGUAGES:
            found[path] = None
        else:
            raise InputError(f"{path} is neither a .pg file, a .gq file nor a directory")
    if not found:
        raise InputError(
            "there are no .pg or .gq files in the given directories",
            hint="name a file, or a directory that contains some",
        )
    return list(found)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _stored(path: Path) -> bool:
    """Whether a file belongs to a stored graph."""
    return any((directory / "__graph.json").exists() for directory in path.parents)


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
