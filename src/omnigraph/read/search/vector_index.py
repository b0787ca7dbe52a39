"""Nearest neighbours from the approximate Lance index, if the vectors do not fit the cache.

The results are sorted again by their exact distances.
"""

from __future__ import annotations

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import Mask, Numbers
from omnigraph.read.search.vector_sketch import Vector

_SEVERAL = 4
"""The index is asked for this many times as many entities as are needed.

If the conditions of the query leave too few of them, the search is repeated with this many times as many entities.
"""

_FEWEST = 64
_PARTITION_ROWS = 4096
_PROBED = 4
"""The search reads 1 / `_PROBED` of the partitions of the index, if the index has the default number of partitions."""


def nearest_by_index(table: EntityTable, rank: ir.Nearest, query: Vector, numbers: Numbers, count: int) -> Mask | None:
    """Mask of the given entities that the index returns as nearest. There are at least `count` of them.

    Returns None if there is no index for the metric, or if the index returns too few entities. Also None if all vectors
    fit the cache, because then exact distances are fast enough.
    """
    name = rank.field.name
    if table.fits(table.count * query.nbytes) or table.vector_metrics.get(name) != rank.metric.value:
        return None
    probes = max(table.count // _PARTITION_ROWS // _PROBED, 32)
    wanted = max(count * _SEVERAL, _FEWEST)
    while wanted < table.count // _SEVERAL:
        found = table.nearest(name, query.tolist(), wanted, rank.metric.value, probes, _SEVERAL)
        named: Mask = np.isin(numbers, found)
        if int(named.sum()) >= count * _SEVERAL:
            return named
        if len(found) < wanted:
            return None
        wanted *= _SEVERAL
    return None
