"""Rows on their way into tables: in memory up to a budget, beyond it in temporary files.

A file has no name from the moment that it is opened, so nothing is left behind however the process ends. What was
written is mapped into memory: for everybody else it is an Arrow table like any other, and the system brings its pages
in and throws them out as it likes.
"""

# See docs/decisions/0060-a-load-spills-into-files-without-names.md

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.amounts import parse_amount
from omnigraph.settings import LOAD_MEMORY
from omnigraph.storage.files.scratch import Scratch

DEFAULT_BUDGET = LOAD_MEMORY.amount({})
_ADVICE = "make room there, name another directory in TMPDIR, or give the load more memory"


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
    """Takes in tables by key, and gives each key's rows back as one table, in the order in which they came.

    Args:
        budget: how many bytes of rows stay in memory.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._in_files: dict[str, list[pa.Table]] = {}
        self._in_memory: dict[str, list[pa.Table]] = {}
        self._sizes: dict[str, int] = {}
        self.spilled = 0
        """How many bytes went to files."""

    def add(self, key: str, rows: pa.Table) -> None:
        """Take in rows.

        Raises:
            StorageError: the temporary directory is full.
        """
        self._in_memory.setdefault(key, []).append(rows)
        self._sizes[key] = self._sizes.get(key, 0) + rows.nbytes
        while sum(self._sizes.values()) > self._budget:
            self._spill(max(self._sizes, key=lambda key: self._sizes[key]))

    def _spill(self, key: str) -> None:
        """Move what is in memory of a key to a file."""
        self._in_files.setdefault(key, []).append(to_file(self._in_memory.pop(key)))
        self.spilled += self._sizes.pop(key)

    def take(self, key: str) -> pa.Table:
        """The rows of a key, which are no longer in the spool then."""
        self._sizes.pop(key, None)
        return pa.concat_tables([*self._in_files.pop(key, []), *self._in_memory.pop(key, [])])

    @property
    def keys(self) -> list[str]:
        """What there are rows of, sorted."""
        return sorted({*self._in_files, *self._in_memory})


def to_file(parts: list[pa.Table]) -> pa.Table:
    """Rows in a file without a name, mapped into memory.

    Raises:
        StorageError: the temporary directory is full, or cannot be written to.
    """
    with Scratch(parts[0].schema, hint=_ADVICE) as scratch:
        for part in parts:
            scratch.write(part)
        return scratch.table()
