"""The edges of a type as arrays of numbers: kept in memory, found on disk, brought up to date, or made from the table.

What a topology is made from are three versions: of the edges, and of the nodes at both ends. It is known by what those
versions are made of. A topology of earlier versions is brought up to date when they lie on the way to these: edges
that came, went or were written since are read, and all others stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd

from omnigraph.lang.schema import Catalog
from omnigraph.read.budget import checkpoint, note_read
from omnigraph.read.derived import DamagedError, DerivedFiles, Made, Stored, process_files
from omnigraph.read.plan.statistics import Degrees
from omnigraph.read.plan.trace import Trace
from omnigraph.read.space.cache import ColumnCache
from omnigraph.read.space.numbers import NOTHING, Integers, Numbers, narrow
from omnigraph.read.space.space import Spaces, one_piece
from omnigraph.read.topology.adjacency import Adjacency, by_both, by_one, firsts
from omnigraph.read.topology.looked_up import LookedUp, Way
from omnigraph.read.topology.update import Arrays, Tables, Update, brought_up_to_date
from omnigraph.storage.lookup import in_groups

__all__ = ["Adjacency", "Edges", "Topologies", "Topology"]

Edges = Adjacency | LookedUp
"""The edges of each node at one end."""

_ROW_ID = "_rowid"
_TOGETHER = 1 << 18
"""How many edges are read at once, at least."""

_TRIED = 4
"""How many topologies of earlier versions are looked at."""

_KEPT_CHANGE = 20
_KEPT_EDGES = 1_000
"""A topology that was brought up to date is kept on disk when at least one of so many edges changed, and so many."""


class Topology:
    """The edges of one type.

    Args:
        made: what it was made from.
        arrays: its arrays.
        tables: what to make it from, if the arrays are damaged.
        files: where topologies are kept.
        unsaved: how many of its edges are not on disk as they are now.
    """

    def __init__(self, made: Made, arrays: Arrays, tables: Tables, files: DerivedFiles, unsaved: int = 0) -> None:
        self.made = made
        self.arrays = arrays
        self.unsaved = unsaved
        self._tables = tables
        self._files = files
        self._lock = Lock()

    @cached_property
    def out(self) -> Adjacency:
        """By source."""
        return self._adjacency("out", self.made.sources.slots, self.made.targets.slots)

    @cached_property
    def into(self) -> Adjacency:
        """By target."""
        return self._adjacency("into", self.made.targets.slots, self.made.sources.slots)

    @cached_property
    def degrees(self) -> Degrees:
        """How many edges nodes have."""
        out, into = np.diff(self._array("out.first")), np.diff(self._array("into.first"))
        return Degrees(
            int(out.sum()),
            int(np.count_nonzero(out)),
            int(np.count_nonzero(into)),
            int(out.max(initial=0)),
            int(into.max(initial=0)),
        )

    def _adjacency(self, side: str, nodes: int, others: int) -> Adjacency:
        first, neighbour = self._array(f"{side}.first"), self._array(f"{side}.neighbour")
        if len(first) <= nodes:
            # Nodes that came later have no edges.
            first = np.concatenate([first, np.full(nodes + 1 - len(first), first[-1])])
        # And those that went from the end had none.
        first = first[: nodes + 1]
        return Adjacency(first.astype(np.int64, copy=False), neighbour, lambda: self._array(f"{side}.edge"), others)

    def _array(self, name: str) -> Integers:
        try:
            return self.arrays[name]
        except DamagedError:
            with self._lock:
                if isinstance(self.arrays, Stored):
                    _, self.arrays = _made_anew(self._tables, self._files)
            return self.arrays[name]

    def make_sure(self) -> None:
        """Make it anew if its file was cut since it was mapped."""
        if self._is_cut():
            with self._lock:
                if self._is_cut():
                    _, self.arrays = _made_anew(self._tables, self._files)
                    for name in ("out", "into", "degrees"):
                        self.__dict__.pop(name, None)

    def _is_cut(self) -> bool:
        return isinstance(self.arrays, Stored) and not self.arrays.is_whole

    @property
    def nbytes(self) -> int:
        held = 0 if isinstance(self.arrays, Stored) else sum(array.nbytes for array in self.arrays.values())
        return held + 16 * (self.made.sources.slots + self.made.targets.slots)


class Topologies:
    """The topologies of one snapshot, each found or made when it is first asked for.

    Args:
        spaces: the tables.
        catalog: the schema.
        files: where topologies are kept on disk; by default where the environment says.
    """

    def __init__(self, spaces: Spaces, catalog: Catalog, files: DerivedFiles | None = None) -> None:
        self._spaces = spaces
        self._catalog = catalog
        self._files = files or process_files()
        self._made: dict[str, Topology] = {}

    def of(self, edge: str) -> Topology:
        """The topology of a type: in memory, on disk, brought up to date, or made."""
        found = self._made.get(edge)
        if found is not None:
            found.make_sure()
        else:
            tables, cache = self._tables(edge), self._spaces.cache
            found = cache.get(tables.key, lambda: _found(tables, cache, self._files))
            found.make_sure()
            self._made[edge] = found
        return found

    def let_go(self) -> None:
        """Hold no topology any more but those that the cache has room for."""
        self._made.clear()

    def make_all(self) -> None:
        """Make every topology that is not ready, for later reads in any process. Where none are kept, do nothing."""
        if self._files.keeps:
            for edge in self._catalog.edges:
                self.of(edge)

    def known(self, edge: str) -> Topology | None:
        """The topology of a type, unless it would have to be made or brought up to date."""
        return self.of(edge) if edge in self._made or self._is_ready(self._tables(edge)) else None

    def edges(self, edge: str, *, inward: bool, trace: Trace | None = None) -> Edges:
        """The edges of a type by source, or inward by target: looked up while few are asked for and nothing is ready.

        Args:
            edge: the type.
            inward: by target.
            trace: is told which way is taken.
        """
        note = _unnoted if trace is None else trace.walked
        if self.way(edge, 1, inward=inward) is Way.LOOKUPS:
            tables, cache = self._tables(edge), self._spaces.cache
            return LookedUp(
                tables.end(inward=inward),
                lambda: self._side(edge, inward=inward),
                lambda rent: cache.rents(tables.key, rent, tables.edges.count),
                lambda rent: cache.pay(tables.key, rent),
                note,
            )
        note(Way.TOPOLOGY)
        return self._side(edge, inward=inward)

    def way(self, edge: str, nodes: float, *, inward: bool) -> Way:
        """How the edges of about so many nodes would be found."""
        if edge in self._made:
            return Way.TOPOLOGY
        tables, cache = self._tables(edge), self._spaces.cache
        if tables.edges.count == 0 or self._is_ready(tables):
            return Way.TOPOLOGY
        end = tables.end(inward=inward)
        affordable = end.is_indexed and cache.would_rent(tables.key, end.rent(nodes), tables.edges.count)
        return Way.LOOKUPS if affordable else Way.TOPOLOGY

    def _is_ready(self, tables: Tables) -> bool:
        """Whether the topology of these tables is in memory or on disk."""
        if self._spaces.cache.holds(tables.key):
            return True
        stored = self._files.find(tables.place, tables.edges.fingerprint)
        return stored is not None and tables.are(stored.made)

    def _side(self, edge: str, *, inward: bool) -> Adjacency:
        topology = self.of(edge)
        return topology.into if inward else topology.out

    def _tables(self, edge: str) -> Tables:
        declared, spaces = self._catalog.edges[edge], self._spaces
        return Tables(spaces.edges(edge), spaces.nodes(declared.from_type), spaces.nodes(declared.to_type))


def _unnoted(way: Way) -> None:
    """Nobody asked."""


@dataclass(frozen=True, slots=True)
class _Latest:
    """Under which key the topology is kept that a table had last."""

    key: Hashable
    nbytes: int = 0


def _found(tables: Tables, cache: ColumnCache, files: DerivedFiles) -> Topology:
    found = _topology(tables, cache, files)
    cache.keep(("latest topology", tables.place), _Latest(tables.key))
    return found


def _topology(tables: Tables, cache: ColumnCache, files: DerivedFiles) -> Topology:
    edges = tables.edges
    if edges.count == 0:
        return Topology(tables.made(0), _arrays(_NONE, _NONE, _NONE, tables), tables, files)
    stored = files.find(tables.place, edges.fingerprint)
    if stored is not None and tables.are(stored.made):
        return Topology(stored.made, stored, tables, files)
    for base in _earlier(tables, stored, cache, files):
        try:
            update = brought_up_to_date(base.made, base.arrays, tables)
        except DamagedError:
            continue
        if update is not None:
            return _updated(base, update, tables, files)
    made, arrays = _made_anew(tables, files)
    return Topology(made, arrays, tables, files)


@dataclass(frozen=True, slots=True)
class _Base:
    """A topology to begin with, and how many of its edges are not on disk as they are now."""

    made: Made
    arrays: Arrays
    unsaved: int = 0


def _earlier(tables: Tables, stored: Stored | None, cache: ColumnCache, files: DerivedFiles) -> Iterator[_Base]:
    """Topologies of other versions of the table, those first that may be near."""
    latest = cache.find(("latest topology", tables.place))
    topology = None if latest is None else cache.find(latest.key)
    if topology is not None:
        yield _Base(topology.made, topology.arrays, topology.unsaved)
    if stored is not None:
        yield _Base(stored.made, stored)
    for other in islice(files.others(tables.place), _TRIED):
        yield _Base(other.made, other)


def _updated(base: _Base, update: Update, tables: Tables, files: DerivedFiles) -> Topology:
    unsaved = base.unsaved + update.changed
    arrays = update.arrays
    if isinstance(arrays, Stored):
        files.restate(arrays, update.made)
    elif unsaved * _KEPT_CHANGE >= tables.edges.count and unsaved >= _KEPT_EDGES:
        stored = files.write(update.made, arrays)
        if stored is not None:
            return Topology(update.made, stored, tables, files)
    return Topology(update.made, arrays, tables, files, unsaved)


# Made from the tables

_NONE: Numbers = np.array([], np.int64)


def _made_anew(tables: Tables, files: DerivedFiles) -> tuple[Made, Arrays]:
    source, target, edge = _read(tables)
    there = (source != NOTHING) & (target != NOTHING)
    dropped = len(there) - int(np.count_nonzero(there))
    if dropped:
        # An edge without an end joins nothing.
        source, target, edge = source[there], target[there], edge[there]
    arrays, made = _arrays(source, target, edge, tables), tables.made(dropped)
    return made, files.write(made, arrays) or arrays


def _read(tables: Tables) -> tuple[Integers, Integers, Integers]:
    """Both ends of all edges, and the edges, a portion at a time: the ids need not fit memory."""
    edges, sources, targets = tables.edges, tables.sources.index_of_ids(), tables.targets.index_of_ids()
    sizes = (tables.sources.slots, tables.targets.slots, edges.slots)
    lie_in_order = edges.numbering.row_ids is None and edges.numbering.positions is None
    columns = ["src", "dst"] if lie_in_order else ["src", "dst", _ROW_ID]
    asked = {"src": sources.finding("src"), "dst": targets.finding("dst")} | {n: pc.field(n) for n in columns[2:]}
    read: list[int] = []
    batches = edges.batches(columns)
    stream = pd.Scanner.from_batches(_counted(batches, read), schema=batches.schema, columns=asked).to_reader()
    parts: list[tuple[Integers, ...]] = []
    first = 0
    for rows in in_groups(stream, _TOGETHER):
        checkpoint()
        source, target = sources.found(one_piece(rows["src"])), targets.found(one_piece(rows["dst"]))
        if lie_in_order:
            number = np.arange(first, first + rows.num_rows)
        else:
            number = edges.numbers(rows[_ROW_ID].to_numpy().view(np.int64))
        first += rows.num_rows
        parts.append(tuple(map(narrow, (source, target, number), sizes)))
    note_read(sum(read))
    source, target, edge = (np.concatenate(part) for part in zip(*parts, strict=True))
    return source, target, edge


def _counted(batches: pa.RecordBatchReader, read: list[int]) -> Iterator[pa.RecordBatch]:
    """A stream, whose sizes are noted on the way. It is read by other threads."""
    for batch in batches:
        read.append(batch.nbytes)
        yield batch


def _arrays(source: Integers, target: Integers, edge: Integers, tables: Tables) -> dict[str, Integers]:
    sources, targets = tables.sources.slots, tables.targets.slots
    order = by_both(source, target, sources, targets)
    source = _taken(source, order, sources)
    target = _taken(target, order, targets)
    edge = _taken(edge, order, tables.edges.slots)
    out = {"out.first": firsts(source, sources), "out.neighbour": target, "out.edge": edge}
    order = by_one(target, targets)
    return {
        **out,
        "into.first": firsts(target, targets),
        "into.neighbour": _taken(source, order, sources),
        "into.edge": _taken(edge, order, tables.edges.slots),
    }


def _taken(numbers: Integers, order: Numbers, size: int) -> Integers:
    """Numbers below a size in another order."""
    checkpoint()
    return narrow(numbers.take(order), size)
