"""Topology: the edges of a type in CSR form, and its build from tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd

from omnigraph.dataclass import dataclass
from omnigraph.read.budget.budget import checkpoint, note_read
from omnigraph.read.columns.derived_files import DamagedError, DerivedFiles, Made, Stored
from omnigraph.read.columns.entity_table import EntityTables, as_one_array
from omnigraph.read.columns.numbers import NOTHING, Integers, Numbers, narrow
from omnigraph.read.topology.adjacency import Adjacency, by_both, by_one, firsts
from omnigraph.read.topology.topology_update import Arrays, TopologyInputs
from omnigraph.storage.lookup import in_groups

_ROW_ID = "_rowid"
CHUNK_EDGES = 1 << 18
"""Minimum number of edges per chunk when the edge table is read."""


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
        files: on-disk cache of topologies.
        unsaved: number of changed edges that are not in a topology on disk yet.
    """

    def __init__(self, made: Made, arrays: Arrays, files: DerivedFiles, unsaved: int = 0) -> None:
        self.made = made
        self.arrays = arrays
        self.unsaved = unsaved
        self._files = files
        self._lock = Lock()
        self._readers: WeakKeyDictionary[EntityTables, TopologyInputs] = WeakKeyDictionary()
        """The tables of the snapshots that use this topology. It does not keep them alive, because it is cached."""

    def add_reader(self, tables: EntityTables, inputs: TopologyInputs) -> None:
        """Note tables from which the topology is built again if its arrays are damaged, as long as they are in use."""
        with self._lock:
            self._readers[tables] = inputs

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
        # Deleted nodes with the highest numbers are left out. They had no edges.
        first = first[: nodes + 1]
        return Adjacency(first.astype(np.int64, copy=False), neighbour, lambda: self._array(f"{side}.edge"), others)

    def _array(self, name: str) -> Integers:
        try:
            return self.arrays[name]
        except DamagedError:
            with self._lock:
                if isinstance(self.arrays, Stored):
                    self._build_again()
            return self.arrays[name]

    def ensure_intact(self) -> None:
        """Build the topology again if its file was truncated after it was mapped into memory."""
        if self._is_truncated():
            with self._lock:
                if self._is_truncated():
                    self._build_again()
                    for name in ("out", "into", "degrees"):
                        self.__dict__.pop(name, None)

    def _build_again(self) -> None:
        inputs = next(iter(self._readers.values()), None)
        if inputs is None:
            raise DamagedError("a topology is damaged, and nothing uses its tables")
        _, self.arrays = build_arrays(inputs, self._files)

    def _is_truncated(self) -> bool:
        return isinstance(self.arrays, Stored) and not self.arrays.is_whole

    @property
    def nbytes(self) -> int:
        held = 0 if isinstance(self.arrays, Stored) else sum(array.nbytes for array in self.arrays.values())
        return held + 16 * (self.made.sources.slots + self.made.targets.slots) + self.made.nbytes


# Build from tables


def build_arrays(inputs: TopologyInputs, files: DerivedFiles) -> tuple[Made, Arrays]:
    """Read the edge table, and write its CSR arrays to the on-disk cache."""
    source, target, edge = _read(inputs)
    there = (source != NOTHING) & (target != NOTHING)
    dropped = len(there) - int(np.count_nonzero(there))
    if dropped:
        # Skip edges whose source or target node does not exist.
        source, target, edge = source[there], target[there], edge[there]
    arrays, made = csr_arrays(source, target, edge, inputs), inputs.made(dropped)
    return made, files.write(made, arrays) or arrays


def _read(inputs: TopologyInputs) -> tuple[Integers, Integers, Integers]:
    """Source node, target node and number of each edge.

    The edge table is read in chunks, so that its ids need not fit into memory.
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


def csr_arrays(source: Integers, target: Integers, edge: Integers, inputs: TopologyInputs) -> dict[str, Integers]:
    """The CSR arrays of edges, in both directions."""
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
    """Numbers in another order, as 32-bit integers if `size` allows it. All numbers must be below `size`."""
    checkpoint()
    return narrow(numbers.take(order), size)
