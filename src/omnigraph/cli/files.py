"""Reading and replacing the files that commands name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from omnigraph.errors import InputError

LANGUAGES = {".pg": "schema", ".gq": "queries"}


def read_bytes(path: Path) -> bytes:
    """The contents of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def read_schema(path: Path) -> bytes:
    """The contents of a schema file.

    Raises:
        InputError: it cannot be read, or is a query file.
    """
    if path.suffix == ".gq":
        raise InputError(f"{path} is a query file, and a schema is wanted here", hint="name the .pg file")
    return read_bytes(path)


def source_files(paths: Iterable[Path]) -> list[Path]:
    """The `.pg` and `.gq` files that are named, and all below the directories that are named, each once.

    Raises:
        InputError: a name is neither such a file nor a directory, or no file is left.
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
        raise InputError("there are no .pg or .gq files here", hint="name a file or a directory that holds some")
    return list(found)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _stored(path: Path) -> bool:
    """Whether a file is part of a graph rather than a source of somebody's."""
    return any((directory / "__graph.json").exists() for directory in path.parents)


def replace_text(path: Path, text: str) -> None:
    """Replace a file's contents in one step, so that a crash leaves the old text or the new one.

    Raises:
        InputError: it cannot be written.
    """
    from omnigraph.storage.files.local_output import output_file

    if not path.is_file():
        raise InputError(f"cannot write {path}: it is not a regular file", hint="use '-' to format standard input")
    with output_file(path) as file:
        file.write(text.encode())
