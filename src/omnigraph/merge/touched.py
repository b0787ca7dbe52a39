"""Finds the rows that can differ between versions of a table, from the rows written since their common ancestor.

The versions of a table form a tree: the first write of a graph branch to a table starts a new chain of versions (a
fork). Rows that differ between versions were written after the last common ancestor of these versions.
"""

# See docs/decisions/0113-a-merge-compares-what-was-written.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from omnigraph.errors import VersionReclaimedError
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rows.hashing import Digests, digests

MAX_LOOKUP_IDS = 20_000
"""Maximum number of ids whose rows are looked up. With more ids, the tables are scanned."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The ids of rows that may differ. All other rows are equal in all versions.

    Attributes:
        ids: the ids; None if there are more than `MAX_LOOKUP_IDS`.
        numbers: the sorted hashes of the ids. Hashes can collide, so a few ids of other rows may match, too.
    """

    ids: pa.Array | None
    numbers: Digests

    @property
    def count(self) -> int:
        return len(self.numbers)

    def among(self, ids: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Mask of the ids that may differ."""
        if len(self.numbers) == 0:
            return np.zeros(len(ids), bool)
        hashes = digests([ids])
        positions = np.minimum(np.searchsorted(self.numbers, hashes), len(self.numbers) - 1)
        return np.asarray(self.numbers[positions] == hashes)


def touched(tables: TableStorage, refs: Sequence[TableRef], most: int | None = None) -> Touched | None:
    """The ids of rows that may differ between versions of a table.

    None if the version history is incomplete, or if there are more than `most` ids.
    """
    ids: list[pa.Array] = [pa.array([], pa.utf8())]
    numbers: list[Digests] = [np.zeros(0, np.uint64)]
    count = 0
    try:
        for begin, end in _steps(refs, tables.fork_points(refs[0].path)):
            for some in tables.at(end).touched_since(begin):
                count += len(some)
                if most is not None and count > most:
                    return None
                if count <= MAX_LOOKUP_IDS:
                    ids.append(some)
                numbers.append(digests([pa.chunked_array([some], pa.utf8())]))
    except (KeyError, VersionReclaimedError):
        return None
    return Touched(
        pa.concat_arrays(ids).unique() if count <= MAX_LOOKUP_IDS else None, np.unique(np.concatenate(numbers))
    )


def _steps(refs: Sequence[TableRef], forks: dict[str, TableRef]) -> Iterator[tuple[TableRef, TableRef]]:
    """The version ranges from the last common ancestor to each version, split at the forks.

    Raises:
        KeyError: a table branch is missing in `forks`.
    """
    paths = [dict(_path(ref, forks)) for ref in refs]
    trunk = next(branch for branch in paths[0] if all(branch in path for path in paths))
    stops: dict[str | None, set[int]] = {}
    for path in paths:
        for branch, version in path.items():
            stops.setdefault(branch, set()).add(version)
            if branch == trunk:
                break
            assert branch is not None  # None is the main version chain, which all paths share
            stops[branch].add(forks[branch].version)
    for branch, versions in stops.items():
        for begin, end in pairwise(sorted(versions)):
            yield TableRef(refs[0].path, branch, begin), TableRef(refs[0].path, branch, end)


def _path(ref: TableRef, forks: dict[str, TableRef]) -> Iterator[tuple[str | None, int]]:
    """The table branches from a version back to the main version chain (None), each with the newest version in use."""
    yield ref.branch, ref.version
    while ref.branch is not None:
        ref = forks[ref.branch]
        yield ref.branch, ref.version
