"""The example library as data: typed Arrow batches of any size, the same for the same size and seed.

>>> from papers import generate
>>> sum(batch.num_rows for name, batch in generate(100, seed=7) if name == "Paper")
100
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from papers.edges import EDGE_BATCHES
from papers.embedding import embed
from papers.library import Library
from papers.nodes import NODE_BATCHES
from papers.types import EDGES, NODES, TYPES

__all__ = ["BATCH_ROWS", "EDGES", "NODES", "TYPES", "embed", "generate"]

BATCH_ROWS = 16_384


def generate(
    papers: int, seed: int = 7, *, types: Collection[str] | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The library with so many papers: node types first, then edge types, each in batches.

    Memory depends on `batch_rows` alone, and the rows do not depend on it: it says from how many papers (or authors,
    notes, …) a batch is made. A batch of edges can be several times as long.

    Args:
        papers: how many papers; all else grows with it.
        seed: another seed gives another library of the same shape.
        types: only these types; all by default.
        batch_rows: how much is made at a time.

    Yields:
        The name of a type, and a batch with the schema `TYPES[name]`.
    """
    library = Library(papers, seed)
    wanted = TYPES.keys() if types is None else set(types)
    if unknown := sorted(set(wanted) - TYPES.keys()):
        raise ValueError(f"unknown types: {', '.join(unknown)}")
    for name, (make, count) in (NODE_BATCHES | EDGE_BATCHES).items():
        if name not in wanted:
            continue
        total = count(library)
        for start in range(0, total, batch_rows):
            batch = make(library, np.arange(start, min(start + batch_rows, total), dtype=np.int64))
            if batch.num_rows:
                yield name, batch
