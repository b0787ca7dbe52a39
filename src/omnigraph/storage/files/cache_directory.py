"""The cache directory of this machine. It holds topologies, inverted indexes, vectors and Java classes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from omnigraph.settings import CACHE_DIR, LOCALAPPDATA, XDG_CACHE_HOME


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """The cache directory from the environment; None if the cache is disabled.

    >>> cache_directory({"OMNIGRAPH_CACHE_DIR": "/var/cache/graphs"})
    PosixPath('/var/cache/graphs')
    >>> cache_directory({"OMNIGRAPH_CACHE_DIR": ""}) is None
    True
    """
    given = CACHE_DIR.get(environ)
    if given is not None:
        return Path(given) if given else None
    return _user_directory(environ)


def open_cached(path: Path) -> BinaryIO:
    """Open a cache file of this user. A shared directory may have files of other users, which are not trusted.

    Raises:
        OSError: it cannot be read, is not a regular file, or belongs to another user.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_owner(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_own_file(path: Path) -> bool:
    """Whether a cache file exists and belongs to this user."""
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
        local = LOCALAPPDATA.get(environ)
        return Path(local) / "omnigraph" / "cache" if local else None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "omnigraph"
    return Path(XDG_CACHE_HOME.get(environ) or home / ".cache") / "omnigraph"
