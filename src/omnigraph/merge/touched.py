"""Which rows of a table can differ between some versions of it: told by what was written on the way to each.

Versions of a table are the knots of a tree: a branch of the graph that writes to a table forks it, and from there on
both go their own ways. Whatever differs between some versions was written after the last version that lies before all
of them.
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

FEW = 20_000
"""Up to so many ids, their rows are looked up; above it, the tables are read."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Ids of rows that may differ: a row whose id is not among them is the same in all versions.

    Attributes:
        ids: the ids, if they are few.
        numbers: their digests, sorted. Two ids may share one, so these name all of them and perhaps some more.
    """

    ids: pa.Array | None
    numbers: Digests

    @property
    def count(self) -> int:
        return len(self.numbers)

    def among(self, ids: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of some ids may be meant."""
        if len(self.numbers) == 0:
            return np.zeros(len(ids), bool)
        asked = digests([ids])
        places = np.minimum(np.searchsorted(self.numbers, asked), len(self.numbers) - 1)
        return np.asarray(self.numbers[places] == asked)


def touched(tables: TableStorage, refs: Sequence[TableRef], most: int | None = None) -> Touched | None:
    """The ids of rows that may differ between versions of a table.

    None when the way to one of them is gone, or when there are more than a number that is given.
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
                if count <= FEW:
                    ids.append(some)
                numbers.append(digests([pa.chunked_array([some], pa.utf8())]))
    except (KeyError, VersionReclaimedError):
        return None
    return Touched(pa.concat_arrays(ids).unique() if count <= FEW else None, np.unique(np.concatenate(numbers)))


def _steps(refs: Sequence[TableRef], forks: dict[str, TableRef]) -> Iterator[tuple[TableRef, TableRef]]:
    """The ways that lead to some versions, from the last one that lies before all of them, cut where they part.

    Raises:
        KeyError: a branch is not among the forks.
    """
    ways = [dict(_way(ref, forks)) for ref in refs]
    trunk = next(branch for branch in ways[0] if all(branch in way for way in ways))
    stops: dict[str | None, set[int]] = {}
    for way in ways:
        for branch, version in way.items():
            stops.setdefault(branch, set()).add(version)
            if branch == trunk:
                break
            assert branch is not None  # every way begins there
            stops[branch].add(forks[branch].version)
    for branch, versions in stops.items():
        for begin, end in pairwise(sorted(versions)):
            yield TableRef(refs[0].path, branch, begin), TableRef(refs[0].path, branch, end)


def _way(ref: TableRef, forks: dict[str, TableRef]) -> Iterator[tuple[str | None, int]]:
    """The branches that lead to a version, the last first, each with how far the way goes along it."""
    yield ref.branch, ref.version
    while ref.branch is not None:
        ref = forks[ref.branch]
        yield ref.branch, ref.version
