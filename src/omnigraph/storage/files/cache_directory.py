"""Where this machine keeps what can be worked out again: topologies, words, vectors, Java's classes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

DIRECTORY_VARIABLE = "OMNIGRAPH_CACHE_DIR"
"""Where it is; an empty text means nowhere."""


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """Where the environment wants it; None for nowhere.

    >>> cache_directory({"OMNIGRAPH_CACHE_DIR": "/var/cache/graphs"})
    PosixPath('/var/cache/graphs')
    >>> cache_directory({"OMNIGRAPH_CACHE_DIR": ""}) is None
    True
    """
    given = environ.get(DIRECTORY_VARIABLE)
    if given is not None:
        return Path(given) if given else None
    return _user_directory(environ)


def open_cached(path: Path) -> BinaryIO:
    """Open a cache file that this user wrote. A shared directory may hold files of others, which are not trusted.

    Raises:
        OSError: it cannot be read, is no regular file, or belongs to another user.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_owner(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_own_file(path: Path) -> bool:
    """Whether a cache file is there and this user wrote it."""
    try:
        _check_owner(path, os.lstat(path))
    except OSError:
        return False
    return True


def _check_owner(path: Path, state: os.stat_result) -> None:
    owner = getattr(os, "geteuid", lambda: state.st_uid)()
    if not stat.S_ISREG(state.st_mode) or state.st_uid != owner:
        raise PermissionError(f"{path} does not belong to this user")


def _user_directory(environ: Mapping[str, str]) -> Path | None:
    if sys.platform == "win32":
        local = environ.get("LOCALAPPDATA")
        return Path(local) / "omnigraph" / "cache" if local else None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "omnigraph"
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "omnigraph"
