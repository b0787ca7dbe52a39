"""What a load has left behind: its rows, a number for all of them in their order, and its commits."""

from __future__ import annotations

import time

import numpy as np

from omnigraph.graph import Graph
from omnigraph.write.load import LoadProgress
from omnigraph.write.rows.hashing import value_digests

_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)


def state(graph: Graph) -> dict[str, object]:
    """What two graphs of the same rows have in common, whoever loaded them. Ids of edges are made, so they differ."""
    snapshot = graph.snapshot()
    keys = sorted(key for key, pin in snapshot.tables.items() if pin.row_count)
    return {
        "rows": {key: snapshot.tables[key].row_count for key in keys},
        "digest": {key: _digest(graph, key) for key in keys},
        "commits": len(graph.commits.list().commits) - 1,  # the first makes the graph
    }


def _digest(graph: Graph, key: str) -> str:
    snapshot = graph.snapshot()
    columns = [name for name in snapshot.table(key).schema().names if not (name == "id" and key.startswith("edge:"))]
    total, first = np.uint64(0), 0
    for batch in snapshot.batches(key, columns=columns):
        mixed = np.zeros(batch.num_rows, np.uint64)
        for column in batch.columns:
            mixed = (mixed ^ value_digests(column)) * _FACTOR
        places = np.arange(first, first + batch.num_rows, dtype=np.uint64)
        first += batch.num_rows
        total = np.add.reduce(mixed * (places * np.uint64(2) + np.uint64(1)), initial=total)
    return f"{int(total):016x}"


class Phases:
    """How long each phase of a load took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._now = ""
        self._since = 0.0

    def __call__(self, progress: LoadProgress) -> None:
        if progress.phase.value != self._now:
            self.end()
            self._now = progress.phase.value

    def end(self) -> None:
        """The load has come to its end."""
        now = time.perf_counter()
        if self._now:
            self.seconds[self._now] = self.seconds.get(self._now, 0.0) + now - self._since
        self._now, self._since = "", now
