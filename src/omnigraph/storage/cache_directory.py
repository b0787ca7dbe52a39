"""Where this machine keeps what can be worked out again: topologies, words, vectors, Java's classes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

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
