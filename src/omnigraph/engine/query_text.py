"""Query text, given as a string or as the path of a `.gq` file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from omnigraph.errors import InputError, cut, shown

QueryText = str | os.PathLike[str]
"""Queries, or the path of a `.gq` file."""

ListedRead = QueryText | tuple[QueryText, Mapping[str, object]] | tuple[QueryText, Mapping[str, object], str]
"""A query whose result a write depends on: text, (text, parameters) or (text, parameters, name)."""


def query_text(given: object) -> str:
    """The text of a query. Reads the file if a path is given.

    Raises:
        InputError: the file cannot be read, or the string looks like a file name.
    """
    if isinstance(given, str):
        if given.endswith(".gq") and len(given.split()) == 1:
            hint = "this looks like the name of a file: give a pathlib.Path, or the text of the file"
            raise InputError(f"'{cut(given)}' is not a query", hint=hint)
        return given
    if not isinstance(given, os.PathLike):
        hint = "give the text of the query, or the path of a file"
        raise InputError(
            f"a query must be a text or a path, not {shown(given)} of type {type(given).__name__}", hint=hint
        )
    path = Path(given)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8", hint="save the file as UTF-8") from error
