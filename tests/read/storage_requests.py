"""A graph to read, and a record of the requests that a read sends to storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.commit.snapshots import Snapshot
from omnigraph.graph import Graph
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.columns.derived_files import DerivedFiles
from omnigraph.read.columns.entity_table import EntityTables
from omnigraph.read.topology.topologies import Topologies
from omnigraph.read.topology.topology import Topology
from omnigraph.storage.table_view import TableView

READS = ("scan", "lookup", "batches", "take_rows", "take")

Asked = list[tuple[str, str, tuple[str, ...]]]
"""Calls: the method (`new parts` if only new fragments are read), the kind of table (`nodes`, `edges`), the columns."""


@contextmanager
def asked() -> Iterator[Asked]:
    """Record the requests to storage while this is open."""
    calls: Asked = []

    def watched(name: str, real: Any) -> Any:
        def call(self: TableView, *args: Any, columns: Sequence[str] = (), **rest: Any) -> Any:
            said = "new parts" if rest.get("after") else name
            calls.append((said, self.ref.path.partition("/")[0], tuple(columns)))
            return real(self, *args, columns=columns, **rest)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in READS:
            patch.setattr(TableView, name, watched(name, getattr(TableView, name)))
        yield calls


class View:
    """A snapshot with an empty cache."""

    def __init__(self, graph: Graph, files: Path | DerivedFiles | None, snapshot: Snapshot | None = None) -> None:
        kept = files if isinstance(files, DerivedFiles) else DerivedFiles(files)
        self.snapshot = snapshot or graph.snapshot()
        self.tables = EntityTables(self.snapshot, ColumnCache())
        self.topologies = Topologies(self.tables, graph.catalog, kept)

    def topology(self, edge: str) -> Topology:
        return self.topologies.of(edge)


Triples = list[tuple[str, str, str]]


def stored_edges(view: View, edge: str) -> Triples:
    """Source, target and id of every edge in the table."""
    rows = view.snapshot.scan(f"edge:{edge}", columns=["src", "dst", "id"])
    return sorted(zip(*(rows[name].to_pylist() for name in ("src", "dst", "id")), strict=True))


def topology_edges(view: View, edge: str, source: str, target: str, *, inward: bool = False) -> Triples:
    """Source, target and id of every edge in a topology."""
    topology = view.topology(edge)
    adjacency = topology.into if inward else topology.out
    near, far = (target, source) if inward else (source, target)
    starts = view.tables.nodes(near).all_numbers()
    degree, places = adjacency.walk(starts)
    others = adjacency.far(places)
    near_ids = view.tables.nodes(near).take("id", starts.repeat(degree)).to_pylist()
    far_ids = view.tables.nodes(far).take("id", others).to_pylist()
    edge_ids = view.tables.edges(edge).take("id", adjacency.edges(places)).to_pylist()
    ends = zip(far_ids, near_ids, strict=True) if inward else zip(near_ids, far_ids, strict=True)
    assert adjacency.first[-1] == len(adjacency.neighbour)
    for begin, end in zip(adjacency.first[:-1], adjacency.first[1:], strict=True):
        assert (adjacency.neighbour[begin:end][1:] >= adjacency.neighbour[begin:end][:-1]).all()
    return sorted((*pair, id_) for pair, id_ in zip(ends, edge_ids, strict=True))


def follows(pairs: Sequence[tuple[str, str]]) -> pa.Table:
    return pa.table({"from": [a for a, _ in pairs], "to": [b for _, b in pairs]})
