"""Rows of a load before they are written: in memory up to a budget, then spilled to temporary files.

A temporary file is unlinked right after it is opened, so it disappears when the process ends. Spilled rows are
memory-mapped: callers get an ordinary Arrow table, and the operating system loads the rows from disk when needed.
"""

# See docs/decisions/0060-a-load-spills-into-files-without-names.md

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.amounts import parse_amount
from omnigraph.settings import LOAD_MEMORY
from omnigraph.storage.files.scratch import Scratch

DEFAULT_BUDGET = LOAD_MEMORY.amount({})
_ADVICE = "free disk space there, set TMPDIR to another directory, or give the load more memory"


def memory_budget(given: int | str | None, environ: Mapping[str, str] | None = None) -> int:
    """The memory budget in bytes: the argument, or else `OMNIGRAPH_LOAD_MEMORY`.

    >>> memory_budget("1.5 GiB"), memory_budget(None, {"OMNIGRAPH_LOAD_MEMORY": "64MiB"})
    (1610612736, 67108864)

    Raises:
        InputError: the value is not an amount of memory.
    """
    if given is not None:
        return parse_amount("memory_budget", str(given), what="an amount of memory", positive=True)
    return parse_amount(LOAD_MEMORY.name, LOAD_MEMORY.text(environ), what="an amount of memory", positive=True)


class Spool:
    """Collects rows by key, and returns the rows of a key as one table, in insertion order.

    Args:
        budget: bytes of rows that stay in memory. Further rows are written to temporary files.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._in_files: dict[str, list[pa.Table]] = {}
        self._in_memory: dict[str, list[pa.Table]] = {}
        self._sizes: dict[str, int] = {}
        self.spilled = 0
        """Bytes written to files."""

    def add(self, key: str, rows: pa.Table) -> None:
        """Add rows.

        Raises:
            StorageError: the temporary directory is full.
        """
        self._in_memory.setdefault(key, []).append(rows)
        self._sizes[key] = self._sizes.get(key, 0) + rows.nbytes
        while sum(self._sizes.values()) > self._budget:
            self._spill(max(self._sizes, key=lambda key: self._sizes[key]))

    def _spill(self, key: str) -> None:
        """Move the rows of a key from memory to a file."""
        self._in_files.setdefault(key, []).append(to_file(self._in_memory.pop(key)))
        self.spilled += self._sizes.pop(key)

    def take(self, key: str) -> pa.Table:
        """Remove the rows of a key from the spool and return them."""
        self._sizes.pop(key, None)
        return pa.concat_tables([*self._in_files.pop(key, []), *self._in_memory.pop(key, [])])

    @property
    def keys(self) -> list[str]:
        """The keys that have rows, sorted."""
        return sorted({*self._in_files, *self._in_memory})


def to_file(parts: list[pa.Table]) -> pa.Table:
    """Write rows to an unlinked temporary file. Returns them as a memory-mapped table.

    Raises:
        StorageError: the temporary directory is full or not writable.
    """
    with Scratch(parts[0].schema, hint=_ADVICE) as scratch:
        for part in parts:
            scratch.write(part)
        return scratch.table()
