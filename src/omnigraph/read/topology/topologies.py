"""The topologies of a snapshot. They are cached in memory and on disk, updated, or built from tables.

A topology depends on three table versions: the edges, and the nodes at both ends. Its cache key consists of their
fingerprints. If the topology was built for earlier versions, it is updated incrementally: only inserted, deleted and
updated edges are read. For this, the earlier versions have to be in the history of the current versions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import islice

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import Catalog
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.columns.derived_files import NO_FILES, DamagedError, DerivedFiles, Made, Stored, process_files
from omnigraph.read.columns.entity_table import EntityTables
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.topology.adjacency import Adjacency
from omnigraph.read.topology.edge_lookup import EdgeAccess, IndexedEdges
from omnigraph.read.topology.topology import Topology, build_arrays, csr_arrays
from omnigraph.read.topology.topology_update import Arrays, TopologyInputs, Update, update_topology

Edges = Adjacency | IndexedEdges
"""The edges of a type, grouped by the node at one end."""

_MAX_BASES = 4
"""Maximum number of earlier topologies on disk for which an incremental update is tried."""

SAVED_CHANGE_RATIO = 20
"""An updated topology is written to disk if at least one in `SAVED_CHANGE_RATIO` edges changed since the last write."""

SAVED_CHANGE_EDGES = 1_000
"""An updated topology is not written to disk if fewer edges than this changed since the last write."""

_NONE: Numbers = np.array([], np.int64)


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
        self._skews: dict[tuple[tuple[str, bool], tuple[str, bool]], float] = {}

    def of(self, edge: str) -> Topology:
        """The topology of an edge type: from memory or disk, updated incrementally, or built from tables."""
        found = self._made.get(edge)
        if found is not None:
            found.ensure_intact()
        else:
            inputs, cache = self._inputs(edge), self._tables.cache
            with cache.slot(inputs.key, ("topology", inputs.place, inputs.edges.ref.branch)) as slot:
                found = slot.keep(_load(inputs, cache, self._files_for(inputs))) if slot.value is None else slot.value
            found.add_reader(self._tables, inputs)
            found.ensure_intact()
            self._made[edge] = found
        return found

    def release(self) -> None:
        """Drop the references of this object to its topologies. The topologies may still be in the cache."""
        self._made.clear()

    def skew(self, one: tuple[str, bool], other: tuple[str, bool]) -> float | None:
        """Factor by which two edge types that meet at a node have more pairs of edges than if degrees were even.

        It is the sum over all nodes of the product of both degrees, divided by the product of both edge counts over the
        number of nodes. None if a topology does not exist yet, or if the edges meet at different node types.

        Args:
            one: an edge type, and whether its edges are grouped by target node; else by source node.
            other: the same for the other edge type.
        """
        if (one, other) in self._skews:
            return self._skews[one, other]
        first, second = self.known(one[0]), self.known(other[0])
        if first is None or second is None or self._meeting_type(*one) != self._meeting_type(*other):
            return None
        key = ("skew", self._inputs(one[0]).key, one[1], self._inputs(other[0]).key, other[1])
        found = self._tables.cache.find(key)
        if found is None:
            found = _Skew(_skew(first.into if one[1] else first.out, second.into if other[1] else second.out))
            self._tables.cache.keep(key, found, ("skew", self._inputs(one[0]).place, self._inputs(other[0]).place))
        assert isinstance(found, _Skew)
        self._skews[one, other] = found.factor
        return found.factor

    def _meeting_type(self, edge: str, inward: bool) -> str:
        """The node type at the end by which the edges of a type are grouped."""
        declared = self._catalog.edges[edge]
        return declared.to_type if inward else declared.from_type

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
            note: function that is called with the access method: topology or index lookups.
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
        """How the edges of a number of nodes would be found: in a topology (adjacency arrays) or with index lookups."""
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
        stored = self._files_for(inputs).find(inputs.place, inputs.edges.fingerprint)
        return stored is not None and inputs.are(stored.made)

    def _files_for(self, inputs: TopologyInputs) -> DerivedFiles:
        """The on-disk cache for a topology. The topologies of restricted versions are in memory only."""
        return self._files if inputs.edges.ref.is_whole else NO_FILES

    def _direction(self, edge: str, *, inward: bool) -> Adjacency:
        topology = self.of(edge)
        return topology.into if inward else topology.out

    def _inputs(self, edge: str) -> TopologyInputs:
        declared, tables = self._catalog.edges[edge], self._tables
        return TopologyInputs(tables.edges(edge), tables.nodes(declared.from_type), tables.nodes(declared.to_type))


def _ignore(access: EdgeAccess) -> None:
    """Do nothing: the caller does not need the access method."""


@dataclass(frozen=True, slots=True)
class _Latest:
    """The cache key of the topology that was loaded last for an edge table."""

    key: Hashable
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class _Skew:
    """The cached result of `Topologies.skew`."""

    factor: float
    nbytes: int = 8


def _skew(one: Adjacency, other: Adjacency) -> float:
    together = float(one.degree.astype(np.float64) @ other.degree)
    nodes = int(np.count_nonzero(one.degree | other.degree))
    even = one.size * other.size / max(nodes, 1)
    return together / even if even else 1.0


def _load(inputs: TopologyInputs, cache: ColumnCache, files: DerivedFiles) -> Topology:
    found = _topology(inputs, cache, files)
    cache.keep(("latest topology", inputs.place), _Latest(inputs.key))
    return found


def _topology(inputs: TopologyInputs, cache: ColumnCache, files: DerivedFiles) -> Topology:
    edges = inputs.edges
    if edges.count == 0:
        return Topology(inputs.made(0), csr_arrays(_NONE, _NONE, _NONE, inputs), files)
    stored = files.find(inputs.place, edges.fingerprint)
    if stored is not None and inputs.are(stored.made):
        return Topology(stored.made, stored, files)
    for base in _bases(inputs, stored, cache, files):
        try:
            update = update_topology(base.made, base.arrays, inputs)
        except DamagedError:
            continue
        if update is not None:
            return _keep_update(base, update, inputs, files)
    made, arrays = build_arrays(inputs, files)
    return Topology(made, arrays, files)


@dataclass(frozen=True, slots=True)
class _Base:
    """An earlier topology to update. `unsaved` is the number of its changed edges that are not on disk yet."""

    made: Made
    arrays: Arrays
    unsaved: int = 0


def _bases(inputs: TopologyInputs, stored: Stored | None, cache: ColumnCache, files: DerivedFiles) -> Iterator[_Base]:
    """Topologies of earlier versions of the table. Those that are most likely to be updatable come first."""
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
            return Topology(update.made, stored, files)
    return Topology(update.made, arrays, files, unsaved)
