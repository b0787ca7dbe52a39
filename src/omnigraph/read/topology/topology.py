"""Topologies: the edges of a type in CSR form. They are cached in memory and on disk, updated, or built from tables.

A topology depends on three table versions: the edges, and the nodes at both ends. Its cache key consists of their
fingerprints. If the topology was built for earlier versions, it is updated incrementally: only inserted, deleted and
updated edges are read. For this, the earlier versions have to be in the history of the current versions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd

from omnigraph.lang.schema import Catalog
from omnigraph.read.budget.budget import checkpoint, note_read
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.columns.derived_files import DamagedError, DerivedFiles, Made, Stored, process_files
from omnigraph.read.columns.entity_table import EntityTables, as_one_array
from omnigraph.read.columns.numbers import NOTHING, Integers, Numbers, narrow
from omnigraph.read.topology.adjacency import Adjacency, by_both, by_one, firsts
from omnigraph.read.topology.edge_lookup import EdgeAccess, IndexedEdges
from omnigraph.read.topology.topology_update import Arrays, TopologyInputs, Update, update_topology
from omnigraph.storage.lookup import in_groups

__all__ = ["Adjacency", "Edges", "Topologies", "Topology"]

Edges = Adjacency | IndexedEdges
"""The edges of a type, grouped by the node at one end."""

_ROW_ID = "_rowid"
CHUNK_EDGES = 1 << 18
"""Number of edges per chunk, at least, when the edge table is read."""

_MAX_BASES = 4
"""Maximum number of earlier topologies on disk for which an incremental update is tried."""

SAVED_CHANGE_RATIO = 20
"""An updated topology is written to disk if at least one in `SAVED_CHANGE_RATIO` edges changed since the last write."""

SAVED_CHANGE_EDGES = 1_000
"""An updated topology is not written to disk if fewer edges than this changed since the last write."""


@dataclass(frozen=True, slots=True)
class DegreeStatistics:
    """Degree statistics of one edge type. A number is None if it is unknown.

    Attributes:
        edges: number of edges.
        sources: number of nodes with an outgoing edge.
        targets: number of nodes with an incoming edge.
        most_out: largest out-degree.
        most_in: largest in-degree.
    """

    edges: int
    sources: int | None = None
    targets: int | None = None
    most_out: int | None = None
    most_in: int | None = None


class Topology:
    """The CSR arrays of one edge type, in both directions.

    Args:
        made: the table versions that the topology was built from.
        arrays: the CSR arrays, by name.
        inputs: the tables. The topology is built again from them if the arrays are damaged.
        files: on-disk cache of topologies.
        unsaved: number of changed edges that are not in a topology on disk yet.
    """

    def __init__(
        self, made: Made, arrays: Arrays, inputs: TopologyInputs, files: DerivedFiles, unsaved: int = 0
    ) -> None:
        self.made = made
        self.arrays = arrays
        self.unsaved = unsaved
        self._inputs = inputs
        self._files = files
        self._lock = Lock()

    @cached_property
    def out(self) -> Adjacency:
        """The edges, grouped by source node."""
        return self._adjacency("out", self.made.sources.slots, self.made.targets.slots)

    @cached_property
    def into(self) -> Adjacency:
        """The edges, grouped by target node."""
        return self._adjacency("into", self.made.targets.slots, self.made.sources.slots)

    @cached_property
    def degrees(self) -> DegreeStatistics:
        """Degree statistics of the edge type, for both directions."""
        out, into = np.diff(self._array("out.first")), np.diff(self._array("into.first"))
        return DegreeStatistics(
            int(out.sum()),
            int(np.count_nonzero(out)),
            int(np.count_nonzero(into)),
            int(out.max(initial=0)),
            int(into.max(initial=0)),
        )

    def _adjacency(self, side: str, nodes: int, others: int) -> Adjacency:
        first, neighbour = self._array(f"{side}.first"), self._array(f"{side}.neighbour")
        if len(first) <= nodes:
            # Nodes that were inserted after the topology was built have no edges.
            first = np.concatenate([first, np.full(nodes + 1 - len(first), first[-1])])
        # Nodes with the highest numbers that have been deleted had no edges.
        first = first[: nodes + 1]
        return Adjacency(first.astype(np.int64, copy=False), neighbour, lambda: self._array(f"{side}.edge"), others)

    def _array(self, name: str) -> Integers:
        try:
            return self.arrays[name]
        except DamagedError:
            with self._lock:
                if isinstance(self.arrays, Stored):
                    _, self.arrays = _build(self._inputs, self._files)
            return self.arrays[name]

    def ensure_intact(self) -> None:
        """Build the topology again if its file was truncated after it was mapped into memory."""
        if self._is_truncated():
            with self._lock:
                if self._is_truncated():
                    _, self.arrays = _build(self._inputs, self._files)
                    for name in ("out", "into", "degrees"):
                        self.__dict__.pop(name, None)

    def _is_truncated(self) -> bool:
        return isinstance(self.arrays, Stored) and not self.arrays.is_whole

    @property
    def nbytes(self) -> int:
        held = 0 if isinstance(self.arrays, Stored) else sum(array.nbytes for array in self.arrays.values())
        return held + 16 * (self.made.sources.slots + self.made.targets.slots)


class Topologies:
    """The topologies of one snapshot, loaded or built on first use.

    Args:
        tables: node and edge tables.
        catalog: the schema.
        files: on-disk cache; by default the one of this process.
    """

    def __init__(self, tables: EntityTables, catalog: Catalog, files: DerivedFiles | None = None) -> None:
        self._tables = tables
        self._catalog = catalog
        self._files = files or process_files()
        self._made: dict[str, Topology] = {}

    def of(self, edge: str) -> Topology:
        """The topology of an edge type: from memory or disk, updated incrementally, or built from tables."""
        found = self._made.get(edge)
        if found is not None:
            found.ensure_intact()
        else:
            inputs, cache = self._inputs(edge), self._tables.cache
            found = cache.get(inputs.key, lambda: _load(inputs, cache, self._files))
            found.ensure_intact()
            self._made[edge] = found
        return found

    def release(self) -> None:
        """Drop the references of this object to its topologies. The cache may still hold them."""
        self._made.clear()

    def make_all(self) -> None:
        """Build all missing topologies, for later reads in any process.

        Does nothing if the on-disk cache is disabled.
        """
        if self._files.keeps:
            for edge in self._catalog.edges:
                self.of(edge)

    def known(self, edge: str) -> Topology | None:
        """The topology of an edge type, if it is in memory or on disk; None if it would have to be built or updated."""
        return self.of(edge) if edge in self._made or self._is_ready(self._inputs(edge)) else None

    def edges(self, edge: str, *, inward: bool, note: Callable[[EdgeAccess], None] | None = None) -> Edges:
        """The edges of a type. While no topology exists and few edges are needed, they are looked up with an index.

        Args:
            edge: the edge type.
            inward: whether edges are grouped by target node; else by source node.
            note: called with the way in which edges are found.
        """
        note = _ignore if note is None else note
        if self.access_path(edge, 1, inward=inward) is EdgeAccess.LOOKUPS:
            inputs, cache = self._inputs(edge), self._tables.cache
            return IndexedEdges(
                inputs.end(inward=inward),
                lambda: self._direction(edge, inward=inward),
                lambda cost: cache.should_defer(inputs.key, cost, inputs.edges.count),
                lambda cost: cache.record_cost(inputs.key, cost),
                note,
            )
        note(EdgeAccess.TOPOLOGY)
        return self._direction(edge, inward=inward)

    def access_path(self, edge: str, nodes: float, *, inward: bool) -> EdgeAccess:
        """How the edges of a number of nodes would be found: in a topology or with index lookups."""
        if edge in self._made:
            return EdgeAccess.TOPOLOGY
        inputs, cache = self._inputs(edge), self._tables.cache
        if inputs.edges.count == 0 or self._is_ready(inputs):
            return EdgeAccess.TOPOLOGY
        end = inputs.end(inward=inward)
        affordable = end.is_indexed and cache.would_defer(inputs.key, end.lookup_cost(nodes), inputs.edges.count)
        return EdgeAccess.LOOKUPS if affordable else EdgeAccess.TOPOLOGY

    def _is_ready(self, inputs: TopologyInputs) -> bool:
        """Whether the topology of these table versions is in memory or on disk."""
        if self._tables.cache.holds(inputs.key):
            return True
        stored = self._files.find(inputs.place, inputs.edges.fingerprint)
        return stored is not None and inputs.are(stored.made)

    def _direction(self, edge: str, *, inward: bool) -> Adjacency:
        topology = self.of(edge)
        return topology.into if inward else topology.out

    def _inputs(self, edge: str) -> TopologyInputs:
        declared, tables = self._catalog.edges[edge], self._tables
        return TopologyInputs(tables.edges(edge), tables.nodes(declared.from_type), tables.nodes(declared.to_type))


def _ignore(access: EdgeAccess) -> None:
    """Ignore how edges are found."""


@dataclass(frozen=True, slots=True)
class _Latest:
    """The cache key of the topology that was loaded last for an edge table."""

    key: Hashable
    nbytes: int = 0


def _load(inputs: TopologyInputs, cache: ColumnCache, files: DerivedFiles) -> Topology:
    found = _topology(inputs, cache, files)
    cache.keep(("latest topology", inputs.place), _Latest(inputs.key))
    return found


def _topology(inputs: TopologyInputs, cache: ColumnCache, files: DerivedFiles) -> Topology:
    edges = inputs.edges
    if edges.count == 0:
        return Topology(inputs.made(0), _arrays(_NONE, _NONE, _NONE, inputs), inputs, files)
    stored = files.find(inputs.place, edges.fingerprint)
    if stored is not None and inputs.are(stored.made):
        return Topology(stored.made, stored, inputs, files)
    for base in _bases(inputs, stored, cache, files):
        try:
            update = update_topology(base.made, base.arrays, inputs)
        except DamagedError:
            continue
        if update is not None:
            return _keep_update(base, update, inputs, files)
    made, arrays = _build(inputs, files)
    return Topology(made, arrays, inputs, files)


@dataclass(frozen=True, slots=True)
class _Base:
    """An earlier topology to update, and the number of its changed edges that are not on disk yet."""

    made: Made
    arrays: Arrays
    unsaved: int = 0


def _bases(inputs: TopologyInputs, stored: Stored | None, cache: ColumnCache, files: DerivedFiles) -> Iterator[_Base]:
    """Topologies of earlier versions of the table. Those that can most likely be updated come first."""
    latest = cache.find(("latest topology", inputs.place))
    topology = None if latest is None else cache.find(latest.key)
    if topology is not None:
        yield _Base(topology.made, topology.arrays, topology.unsaved)
    if stored is not None:
        yield _Base(stored.made, stored)
    for other in islice(files.others(inputs.place), _MAX_BASES):
        yield _Base(other.made, other)


def _keep_update(base: _Base, update: Update, inputs: TopologyInputs, files: DerivedFiles) -> Topology:
    unsaved = base.unsaved + update.changed
    arrays = update.arrays
    if isinstance(arrays, Stored):
        files.add_header(arrays, update.made)
    elif unsaved * SAVED_CHANGE_RATIO >= inputs.edges.count and unsaved >= SAVED_CHANGE_EDGES:
        stored = files.write(update.made, arrays)
        if stored is not None:
            return Topology(update.made, stored, inputs, files)
    return Topology(update.made, arrays, inputs, files, unsaved)


# Build from tables

_NONE: Numbers = np.array([], np.int64)


def _build(inputs: TopologyInputs, files: DerivedFiles) -> tuple[Made, Arrays]:
    source, target, edge = _read(inputs)
    there = (source != NOTHING) & (target != NOTHING)
    dropped = len(there) - int(np.count_nonzero(there))
    if dropped:
        # Skip edges whose source or target node does not exist.
        source, target, edge = source[there], target[there], edge[there]
    arrays, made = _arrays(source, target, edge, inputs), inputs.made(dropped)
    return made, files.write(made, arrays) or arrays


def _read(inputs: TopologyInputs) -> tuple[Integers, Integers, Integers]:
    """Source node, target node and number of each edge.

    The edge table is read in chunks, so its ids need not fit memory.
    """
    edges, sources, targets = inputs.edges, inputs.sources.index_of_ids(), inputs.targets.index_of_ids()
    sizes = (inputs.sources.slots, inputs.targets.slots, edges.slots)
    lie_in_order = edges.numbering.row_ids is None and edges.numbering.positions is None
    columns = ["src", "dst"] if lie_in_order else ["src", "dst", _ROW_ID]
    asked = {"src": sources.finding("src"), "dst": targets.finding("dst")} | {n: pc.field(n) for n in columns[2:]}
    read: list[int] = []
    batches = edges.batches(columns)
    stream = pd.Scanner.from_batches(_record_sizes(batches, read), schema=batches.schema, columns=asked).to_reader()
    parts: list[tuple[Integers, ...]] = []
    first = 0
    for rows in in_groups(stream, CHUNK_EDGES):
        checkpoint()
        source, target = sources.found(as_one_array(rows["src"])), targets.found(as_one_array(rows["dst"]))
        if lie_in_order:
            number = np.arange(first, first + rows.num_rows)
        else:
            number = edges.numbers(rows[_ROW_ID].to_numpy().view(np.int64))
        first += rows.num_rows
        parts.append(tuple(map(narrow, (source, target, number), sizes)))
    note_read(sum(read))
    source, target, edge = (np.concatenate(part) for part in zip(*parts, strict=True))
    return source, target, edge


def _record_sizes(batches: pa.RecordBatchReader, read: list[int]) -> Iterator[pa.RecordBatch]:
    """Pass a stream of batches through, and record the bytes of each batch. Another thread consumes the stream."""
    for batch in batches:
        read.append(batch.nbytes)
        yield batch


def _arrays(source: Integers, target: Integers, edge: Integers, inputs: TopologyInputs) -> dict[str, Integers]:
    sources, targets = inputs.sources.slots, inputs.targets.slots
    order = by_both(source, target, sources, targets)
    source = _reordered(source, order, sources)
    target = _reordered(target, order, targets)
    edge = _reordered(edge, order, inputs.edges.slots)
    out = {"out.first": firsts(source, sources), "out.neighbour": target, "out.edge": edge}
    order = by_one(target, targets)
    return {
        **out,
        "into.first": firsts(target, targets),
        "into.neighbour": _reordered(source, order, sources),
        "into.edge": _reordered(edge, order, inputs.edges.slots),
    }


def _reordered(numbers: Integers, order: Numbers, size: int) -> Integers:
    """Numbers (smaller than a bound) in another order, as 32-bit integers if the bound allows it."""
    checkpoint()
    return narrow(numbers.take(order), size)
