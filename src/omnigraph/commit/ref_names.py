"""What branches and tags may be called."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote

from omnigraph.errors import InputError

SYSTEM = "__"
"""How the names of the system's own branches begin."""

_PART = re.compile(r"[\w.-]+")
_LONGEST = 200
"""As part of a file name, which is quoted twice and extended while it is written; file systems stop at 255."""


class SystemBranch(str):
    """The name of a branch that the system made for itself.

    Whoever has one may read and write the branch; the same name as plain text is refused everywhere.
    """

    __slots__ = ()


def recorded_branch(name: str) -> str:
    """A branch as a file of the system's own names it."""
    return SystemBranch(name) if name.startswith(SYSTEM) else name


def branch_name(name: str) -> str:
    """A name that a branch may have, trimmed.

    Raises:
        InputError: it may not.
    """
    if isinstance(name, SystemBranch):
        return name
    return _branch_name(name)


@lru_cache(maxsize=1024)
def _branch_name(name: str) -> str:
    name = name.strip()
    _check(name, name.split("/"), "use letters, digits, '.', '-', '_', and '/' between parts")
    return name


def tag_name(name: str) -> str:
    """A name that a tag may have, trimmed.

    Raises:
        InputError: it may not.
    """
    name = name.strip()
    _check(name, [name], "use letters, digits, '.', '-', '_'")
    return name


def is_tag_name(name: str) -> bool:
    """Whether a tag may have a name."""
    try:
        return tag_name(name) == name
    except InputError:
        return False


def _check(name: str, parts: list[str], hint: str) -> None:
    if not name:
        raise InputError("the name is empty", hint=hint)
    if name.startswith(SYSTEM):
        raise InputError(f"'{name}': names that begin with __ are the system's", hint=hint)
    # A part that is a dot stands for the directory above it, and so for other branches.
    bad = ".." in name or name.endswith(".lock") or not all(_PART.fullmatch(part) and part != "." for part in parts)
    if bad:
        raise InputError(f"'{name}' is not a name for a branch or tag", hint=hint)
    if len(quote(quote(name, safe=""), safe="")) > _LONGEST:
        raise InputError(f"'{name[:40]}…' is too long for a name", hint=f"use at most {_LONGEST} plain characters")
