"""Names of branches and tags."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote

from omnigraph.errors import InputError

SYSTEM = "__"
"""Prefix of reserved branch names."""

_PART = re.compile(r"[\w.-]+")
_LONGEST = 200
"""Maximum length of a name in bytes, after it is percent-encoded twice for file names.

File systems allow 255 bytes, and a file name has a suffix while the file is written.
"""


class SystemBranch(str):
    """A reserved branch name.

    Only code that has an object of this type may use the branch. The same name as a plain string is refused.
    """

    __slots__ = ()


def recorded_branch(name: str) -> str:
    """A branch name from an internal file."""
    return SystemBranch(name) if name.startswith(SYSTEM) else name


def branch_name(name: str) -> str:
    """Validate and trim a branch name.

    Raises:
        InputError: the name is invalid.
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
    """Validate and trim a tag name.

    Raises:
        InputError: the name is invalid.
    """
    name = name.strip()
    _check(name, [name], "use letters, digits, '.', '-', '_'")
    return name


def is_tag_name(name: str) -> bool:
    """Whether a name is a valid tag name."""
    try:
        return tag_name(name) == name
    except InputError:
        return False


def _check(name: str, parts: list[str], hint: str) -> None:
    if not name:
        raise InputError("the name is empty", hint=hint)
    if name.startswith(SYSTEM):
        raise InputError(f"'{name}': names that begin with __ are reserved", hint=hint)
    # The path segments `.` and `..` could lead to the files of other branches.
    bad = ".." in name or name.endswith(".lock") or not all(_PART.fullmatch(part) and part != "." for part in parts)
    if bad:
        raise InputError(f"'{name}' is not a valid name of a branch or tag", hint=hint)
    if len(quote(quote(name, safe=""), safe="")) > _LONGEST:
        raise InputError(f"'{name[:40]}…' is too long", hint=f"use at most {_LONGEST} plain characters")
