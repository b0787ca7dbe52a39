"""The edges of a type as arrays of numbers: kept in memory, found on disk, brought up to date, or made from the table.

What a topology is made from are three versions: of the edges, and of the nodes at both ends. It is known by what those
versions are made of. A topology of earlier versions is brought up to date when they lie on the way to these: edges
that came, went or were written since are read, and all others stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from threading import Lock
from typing import Protocol

import numpy as np

from omnigraph.lang.schema import Catalog
from omnigraph.read.adjacency import Adjacency, by_both, by_one, firsts
from omnigraph.read.budget import checkpoint
from omnigraph.read.numbers import narrow
from omnigraph.read.space import NOTHING, Integers, Numbers, Space, Spaces, one_piece
from omnigraph.read.topology_files import DamagedError, Made, Origin, Stored, TopologyFiles, process_files
from omnigraph.storage.lookup import in_groups

__all__ = ["Adjacency", "Topologies", "Topology"]

_ROW_ID = "_rowid"
_WRITTEN = "_row_last_updated_at_version"
_TOGETHER = 1 << 18
"""How many edges are read at once, at least."""

_TRIED = 4
"""How many topologies of earlier versions are looked at."""

_SMALL_CHANGE = 10
"""With more than one of so many edges written since, a topology is made anew."""

_KEPT_CHANGE = 20
_KEPT_EDGES = 1_000
"""A topology that was brought up to date is kept on disk when at least one of so many edges changed, and so many."""


class Arrays(Protocol):
    """The arrays of a topology by name, in memory or on disk."""

    def __getitem__(self, name: str, /) -> Integers: ...


@dataclass(frozen=True, slots=True)
class _Tables:
    """What a topology is made from."""

    edges: Space
    sources: Space
    targets: Space

    @property
    def table(self) -> str:
        return self.edges.place

    def made(self, dropped: int) -> Made:
        return Made(self.table, _origin(self.edges), _origin(self.sources), _origin(self.targets), dropped)

    @property
    def key(self) -> tuple[str, ...]:
        return ("topology", self.edges.fingerprint, self.sources.fingerprint, self.targets.fingerprint)


def _origin(space: Space) -> Origin:
    known = space.numbering
    return Origin(space.fingerprint, space.ref.version, None if known.row_ids is not None else known.base, space.slots)


class Topology:
    """The edges of one type.

    Args:
        arrays: its arrays.
        sources: how many numbers there are at the sources.
        targets: how many there are at the targets.
        tables: what to make it from, if the arrays are damaged.
    """

    def __init__(self, arrays: Arrays, sources: int, targets: int, tables: _Tables, files: TopologyFiles) -> None:
        self._arrays = arrays
        self._sources, self._targets = sources, targets
        self._tables = tables
        self._files = files
        self._lock = Lock()

    @cached_property
    def out(self) -> Adjacency:
        """By source."""
        return self._adjacency("out", self._sources, self._targets)

    @cached_property
    def into(self) -> Adjacency:
        """By target."""
        return self._adjacency("into", self._targets, self._sources)

    def _adjacency(self, side: str, nodes: int, others: int) -> Adjacency:
        first, neighbour = self._array(f"{side}.first"), self._array(f"{side}.neighbour")
        if len(first) <= nodes:
            # Nodes that came later have no edges.
            first = np.concatenate([first, np.full(nodes + 1 - len(first), first[-1])])
        return Adjacency(first.astype(np.int64, copy=False), neighbour, lambda: self._array(f"{side}.edge"), others)

    def _array(self, name: str) -> Integers:
        try:
            return self._arrays[name]
        except DamagedError:
            with self._lock:
                if isinstance(self._arrays, Stored):
                    self._arrays = _made_anew(self._tables, self._files)
            return self._arrays[name]

    @property
    def nbytes(self) -> int:
        held = 0 if isinstance(self._arrays, Stored) else sum(self._arrays[name].nbytes for name in _NAMES)
        return held + 16 * (self._sources + self._targets)


_NAMES = tuple(f"{side}.{name}" for side in ("out", "into") for name in ("first", "neighbour", "edge"))


class Topologies:
    """The topologies of one snapshot, each found or made when it is first asked for.

    Args:
        spaces: the tables.
        catalog: the schema.
        files: where topologies are kept on disk; by default where the environment says.
    """

    def __init__(self, spaces: Spaces, catalog: Catalog, files: TopologyFiles | None = None) -> None:
        self._spaces = spaces
        self._catalog = catalog
        self._files = files or process_files()
        self._made: dict[str, Topology] = {}

    def of(self, edge: str) -> Topology:
        found = self._made.get(edge)
        if found is None:
            declared = self._catalog.edges[edge]
            spaces = self._spaces
            tables = _Tables(spaces.edges(edge), spaces.nodes(declared.from_type), spaces.nodes(declared.to_type))
            found = spaces.cache.get(tables.key, lambda: _found(tables, self._files))
            self._made[edge] = found
        return found


def _found(tables: _Tables, files: TopologyFiles) -> Topology:
    edges, sources, targets = tables.edges, tables.sources, tables.targets
    if edges.count == 0:
        return Topology(_arrays(_NONE, _NONE, _NONE, tables), sources.slots, targets.slots, tables, files)
    stored = files.find(tables.table, edges.fingerprint)
    if stored is not None and _is_of(stored.made, tables):
        return Topology(stored, stored.made.sources.slots, stored.made.targets.slots, tables, files)
    arrays = _brought_up_to_date(tables, files, stored)
    if arrays is None:
        arrays = _made_anew(tables, files)
    return Topology(arrays, sources.slots, targets.slots, tables, files)


def _is_of(made: Made, tables: _Tables) -> bool:
    """Whether a topology was made from exactly these versions."""
    return (
        made.edges.fingerprint == tables.edges.fingerprint
        and made.sources.fingerprint == tables.sources.fingerprint
        and made.targets.fingerprint == tables.targets.fingerprint
    )


# Made from the tables

_NONE: Numbers = np.array([], np.int64)


def _made_anew(tables: _Tables, files: TopologyFiles) -> Arrays:
    source, target, edge = _read(tables)
    there = (source != NOTHING) & (target != NOTHING)
    dropped = len(there) - int(np.count_nonzero(there))
    if dropped:
        # An edge without an end joins nothing.
        source, target, edge = source[there], target[there], edge[there]
    arrays = _arrays(source, target, edge, tables)
    return files.write(tables.made(dropped), arrays) or arrays


def _read(tables: _Tables) -> tuple[Integers, Integers, Integers]:
    """Both ends of all edges, and the edges, a portion at a time: the ids need not fit memory."""
    edges, sources, targets = tables.edges, tables.sources, tables.targets
    # For texts, every search prepares all ids anew, so there should be few.
    together = max(_TOGETHER, sources.slots, targets.slots)
    sizes = (sources.slots, targets.slots, edges.slots)
    lie_in_order = edges.numbering.row_ids is None and edges.numbering.positions is None
    columns = ["src", "dst"] if lie_in_order else ["src", "dst", _ROW_ID]
    parts: list[tuple[Integers, ...]] = []
    first = 0
    for rows in in_groups(edges.batches(columns), together):
        checkpoint()
        source, target = sources.find_all(one_piece(rows["src"])), targets.find_all(one_piece(rows["dst"]))
        if lie_in_order:
            number = np.arange(first, first + rows.num_rows)
        else:
            number = edges.numbers(rows[_ROW_ID].to_numpy().view(np.int64))
        first += rows.num_rows
        parts.append(tuple(map(narrow, (source, target, number), sizes)))
    source, target, edge = (np.concatenate(part) for part in zip(*parts, strict=True))
    return source, target, edge


def _arrays(source: Integers, target: Integers, edge: Integers, tables: _Tables) -> dict[str, Integers]:
    sources, targets = tables.sources.slots, tables.targets.slots
    order = by_both(source, target, sources, targets)
    source, target = narrow(source.take(order), sources), narrow(target.take(order), targets)
    edge = narrow(edge.take(order), tables.edges.slots)
    out = {"out.first": firsts(source, sources), "out.neighbour": target, "out.edge": edge}
    order = by_one(target, targets)
    return {
        **out,
        "into.first": firsts(target, targets),
        "into.neighbour": source.take(order),
        "into.edge": edge.take(order),
    }


# Brought up to date


def _brought_up_to_date(tables: _Tables, files: TopologyFiles, nearest: Stored | None) -> Arrays | None:
    """The topology from one of earlier versions; None when there is none that can be used."""
    tried = [nearest] if nearest is not None else islice(files.others(tables.table), _TRIED)
    for stored in tried:
        if not _leads_to(stored.made, tables):
            continue
        try:
            found = _updated(stored, tables, files)
        except DamagedError:
            continue
        if found is not None:
            return found
    return None


def _leads_to(made: Made, tables: _Tables) -> bool:
    """Whether the versions that a topology was made from lie on the way to these."""
    pairs = ((made.edges, tables.edges), (made.sources, tables.sources), (made.targets, tables.targets))
    return made.dropped == 0 and all(
        origin.base is not None
        and (origin.fingerprint == space.fingerprint or origin.fingerprint == space.earlier_fingerprint(origin.version))
        for origin, space in pairs
    )


def _updated(stored: Stored, tables: _Tables, files: TopologyFiles) -> Arrays | None:
    made, edges = stored.made, tables.edges
    same_edges = made.edges.fingerprint == edges.fingerprint
    ends = ((made.sources, tables.sources), (made.targets, tables.targets))
    if same_edges and all(_is_numbered_alike(origin, space) for origin, space in ends):
        if not _are_there(stored, tables):
            return None
        files.restate(stored, replace(made, sources=_origin(tables.sources), targets=_origin(tables.targets)))
        return stored
    change = _Change(_NONE, None) if same_edges else _Change.since(made.edges, edges)
    if len(change.written) * _SMALL_CHANGE > edges.count:
        return None
    old = _old_edges(stored)
    kept = change.keeps(old[2])
    source, target, edge = (part[kept] for part in old)
    if len(edge) + len(change.written) != edges.count:
        return None
    if not (_live(tables.sources, source) and _live(tables.targets, target)):
        return None
    new_source, new_target = _ends_of(change.written, tables)
    if (new_source == NOTHING).any() or (new_target == NOTHING).any():
        return None
    arrays = _arrays(
        np.concatenate([tables.sources.numbers(source), new_source]),
        np.concatenate([tables.targets.numbers(target), new_target]),
        np.concatenate([edges.numbers(edge), edges.numbers(change.written)]),
        tables,
    )
    changed = len(change.written) + len(kept) - int(np.count_nonzero(kept))
    if changed * _KEPT_CHANGE < edges.count or changed < _KEPT_EDGES:
        return arrays
    return files.write(tables.made(0), arrays) or arrays


def _is_numbered_alike(origin: Origin, space: Space) -> bool:
    """Whether all nodes of an earlier version that are still there have the numbers that they had."""
    known = space.numbering
    return known.row_ids is None and known.base == origin.base and known.slots >= origin.slots


def _are_there(stored: Stored, tables: _Tables) -> bool:
    """Whether all nodes that have edges are still there: nodes that were replaced have other numbers."""
    for side, space in (("out", tables.sources), ("into", tables.targets)):
        live = space.live
        if live is not None:
            has_edges = np.diff(stored[f"{side}.first"]) > 0
            if (has_edges & ~live[: len(has_edges)]).any():
                return False
    return True


def _old_edges(stored: Stored) -> tuple[Numbers, Numbers, Numbers]:
    """The edges of a topology by row id: of the source, of the target, and of the edge."""
    made = stored.made
    assert made.sources.base is not None
    assert made.targets.base is not None
    assert made.edges.base is not None
    first = stored["out.first"]
    source = np.repeat(np.arange(len(first) - 1), np.diff(first)) + made.sources.base
    target = stored["out.neighbour"].astype(np.int64) + made.targets.base
    return source, target, stored["out.edge"].astype(np.int64) + made.edges.base


def _live(space: Space, row_ids: Numbers) -> bool:
    """Whether entities are there."""
    known = space.numbering
    if known.row_ids is not None:
        return bool(np.isin(row_ids, known.row_ids).all())
    numbers = row_ids - known.base
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= known.slots):
        return False
    return known.live is None or bool(known.live.take(numbers).all())


def _ends_of(edges: Numbers, tables: _Tables) -> tuple[Numbers, Numbers]:
    """The ends of some edges, by row id."""
    if len(edges) == 0:
        return _NONE, _NONE
    rows = tables.edges.rows(edges, ["src", "dst"])
    return tables.sources.find(rows["src"].combine_chunks()), tables.targets.find(rows["dst"].combine_chunks())


@dataclass(frozen=True, slots=True)
class _Change:
    """What happened to the edges of a table since an earlier version, by row id.

    Attributes:
        written: edges that came or were written since.
        untouched: all others; None when nothing happened.
    """

    written: Numbers
    untouched: Numbers | None

    @classmethod
    def since(cls, origin: Origin, edges: Space) -> _Change:
        """What happened since a version that lies on the way to this one. Reads no values."""
        rows = edges.batches([_ROW_ID, _WRITTEN]).read_all()
        row_ids: Numbers = rows[_ROW_ID].to_numpy().astype(np.int64)
        written = rows[_WRITTEN].to_numpy() > origin.version
        return cls(row_ids[written], row_ids[~written])

    def keeps(self, row_ids: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of some edges are still as they were."""
        if self.untouched is None:
            return np.ones(len(row_ids), bool)
        if len(self.untouched) == 0 or len(row_ids) == 0:
            return np.zeros(len(row_ids), bool)
        low = min(int(self.untouched.min()), int(row_ids.min()))
        high = max(int(self.untouched.max()), int(row_ids.max()))
        if high - low > 64 * len(row_ids) + (1 << 20):
            return np.isin(row_ids, self.untouched)
        marked = np.zeros(high - low + 1, bool)
        marked[self.untouched - low] = True
        return marked.take(row_ids - low)
