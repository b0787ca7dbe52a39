"""The nearest of more vectors than memory holds: an index names them, and their distances decide."""

from __future__ import annotations

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.search.outline import Vector
from omnigraph.read.space.space import Mask, Numbers, Space

_SEVERAL = 4
"""How many times as many as are wanted an index is asked for, and again when too few of them are left."""

_FEWEST = 64
_PARTITION_ROWS = 4096
_PROBED = 4
"""One of so many partitions of an index is looked at, where it has as many as it gets by default."""


def named_by_index(space: Space, rank: ir.Nearest, query: Vector, numbers: Numbers, count: int) -> Mask | None:
    """Which of some entities an index names as the nearest, at least `count`.

    None where there is no such index, where it names too few, and where all vectors can stay in memory: then looking at
    each of them is exact, and quick enough.
    """
    name = rank.field.name
    if space.fits(space.count * query.nbytes) or space.vector_metrics.get(name) != rank.metric.value:
        return None
    probes = max(space.count // _PARTITION_ROWS // _PROBED, 32)
    wanted = max(count * _SEVERAL, _FEWEST)
    while wanted < space.count // _SEVERAL:
        found = space.nearest(name, query.tolist(), wanted, rank.metric.value, probes, _SEVERAL)
        named: Mask = np.isin(numbers, found)
        if int(named.sum()) >= count * _SEVERAL:
            return named
        if len(found) < wanted:
            return None
        wanted *= _SEVERAL
    return None
