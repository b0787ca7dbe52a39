"""The C allocator of a server: few arenas, and freed memory is returned, so that its processes do not grow."""

# See docs/decisions/0372-a-server-has-few-arenas.md

from __future__ import annotations

import ctypes
import os

from omnigraph.settings import MALLOC_ARENA_MAX

_M_ARENA_MAX = -8
"""Number of the option in malloc.h of glibc."""


def limit_arenas() -> None:
    """Let the allocator have one arena per core, and at least two, in this process and in its workers.

    glibc gives new threads arenas of their own, up to eight per core. Memory that is freed in one arena is not used by
    the threads of another one, so a server with many threads grows for hours. `mallopt` affects the arenas that this
    process makes from now on; the environment variable affects its workers. Other allocators ignore both. A variable
    that the operator has set is kept.
    """
    if MALLOC_ARENA_MAX.get() is not None:
        return
    arenas = max(2, os.cpu_count() or 2)
    os.environ[MALLOC_ARENA_MAX.name] = str(arenas)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, arenas)


def return_freed_memory() -> None:
    """Return freed memory to the operating system, where the allocator is that of glibc. Takes a few milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
