"""Nearest neighbours with the approximate Lance index, for more vectors than fit the cache. Results are re-ranked."""

from __future__ import annotations

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import Mask, Numbers
from omnigraph.read.search.vector_sketch import Vector

_SEVERAL = 4
"""Factor between the requested and the wanted results of the index. It applies again if filters leave too few."""

_FEWEST = 64
_PARTITION_ROWS = 4096
_PROBED = 4
"""The index probes 1 / this of its partitions, assuming the default number of partitions."""


def nearest_by_index(table: EntityTable, rank: ir.Nearest, query: Vector, numbers: Numbers, count: int) -> Mask | None:
    """Mask of entities that the index returns as nearest, at least `count` of them.

    None without a matching index, if it returns too few, or if all vectors fit the cache: exact distances are fast
    enough then.
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
