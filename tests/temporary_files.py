"""Where tests keep their files: in memory, if there is enough of it.

Tests create many small files, and every lease, reference and manifest replaces a file. In memory, the same tests took
about 40 % less time than on a disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 8 << 30
"""The free space in memory from which on it is used. Containers often have 64 MiB."""


def keep_in_memory() -> None:
    """Make a directory in memory the one for temporary files of this process and its children.

    It stays as it is if `TMPDIR` is set.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH_BYTES:
        return
    directory = MEMORY / f"omnigraph-tests-{os.getuid()}"
    directory.mkdir(mode=0o755, exist_ok=True)
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None


def empty(directory: Path) -> None:
    """Remove everything in a directory. The directory stays, so that no later test gets one of the same name.

    A process may have cached what it read under a name.
    """
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
