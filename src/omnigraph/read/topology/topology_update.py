"""Incremental update of a topology: only inserted, deleted and updated edges are read.

This is possible if the table versions that the topology was built from are in the history of the current versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.derived_files import Made, Origin, Stored
from omnigraph.read.columns.entity_table import EntityTable, as_one_array
from omnigraph.read.columns.numbering import Numbering
from omnigraph.read.columns.numbers import NOTHING, Integers, Mask, Numbers, narrow
from omnigraph.read.columns.table_changes import Change, change, origin_of, path
from omnigraph.read.topology.adjacency import Adjacency, by_both
from omnigraph.read.topology.edge_lookup import End

Arrays = Stored | Mapping[str, Integers]
"""The arrays of a topology by name, on disk or in memory."""

REBUILD_RATIO = 10
"""If more than one in `REBUILD_RATIO` edges changed, the topology is built again."""

MAX_SLICED_INSERTS = 1_000
"""Up to this number of values is inserted by slicing the array at their positions; more, with `np.insert`."""


@dataclass(frozen=True, slots=True)
class TopologyInputs:
    """The tables that a topology is built from: edges, source nodes and target nodes."""

    edges: EntityTable
    sources: EntityTable
    targets: EntityTable

    @property
    def place(self) -> str:
        return self.edges.place

    def end(self, *, inward: bool) -> End:
        """One end of the edges: with `inward` the target end, else the source end."""
        near, far = (self.targets, self.sources) if inward else (self.sources, self.targets)
        return End(self.edges, near, far, inward=inward)

    @property
    def key(self) -> tuple[str, ...]:
        """Cache key of the topology of these table versions."""
        return ("topology", self.edges.fingerprint, self.sources.fingerprint, self.targets.fingerprint)

    def are(self, made: Made) -> bool:
        """Whether a cached topology was built from exactly these table versions."""
        return self.key[1:] == (made.edges.fingerprint, made.sources.fingerprint, made.targets.fingerprint)

    def made(self, dropped: int) -> Made:
        return Made(self.place, origin_of(self.edges), origin_of(self.sources), origin_of(self.targets), dropped)


@dataclass(frozen=True, slots=True)
class Update:
    """An updated topology.

    Attributes:
        made: the table versions that the topology belongs to.
        arrays: the CSR arrays, by name. If no edge changed, they are the arrays of the earlier topology.
        changed: number of inserted, deleted and updated edges.
    """

    made: Made
    arrays: Arrays
    changed: int


def update_topology(made: Made, arrays: Arrays, inputs: TopologyInputs) -> Update | None:
    """Update a topology of earlier table versions; None if this is not possible.

    Args:
        made: the earlier table versions.
        arrays: the CSR arrays of the earlier topology, by name.
        inputs: the current tables.

    Raises:
        DamagedError: a checksum does not match.
    """
    pairs = ((made.sources, inputs.sources), (made.targets, inputs.targets))
    if made.dropped or any(path(origin, table) is None for origin, table in pairs):
        return None
    if not all(_continues(origin, table) for origin, table in pairs):
        return None
    if len(arrays["out.neighbour"]) != made.edges.count:
        return None
    what = change(made.edges, inputs.edges, ["src", "dst"], REBUILD_RATIO)
    numbered = None if what is None else _edge_origin(inputs.edges, what)
    if what is None or numbered is None:
        return None
    source = inputs.sources.find(as_one_array(what.values["src"]))
    target = inputs.targets.find(as_one_array(what.values["dst"]))
    if (source == NOTHING).any() or (target == NOTHING).any():
        return None
    now = replace(made, edges=numbered, sources=origin_of(inputs.sources), targets=origin_of(inputs.targets))
    if what.is_nothing and _base(made.sources) == _base(now.sources) and _base(made.targets) == _base(now.targets):
        ends = (("out", inputs.sources), ("into", inputs.targets))
        there = all(_shifted_degrees(np.diff(arrays[f"{side}.first"]), 0, nodes) is not None for side, nodes in ends)
        return Update(now, arrays, 0) if there else None
    out = _direction(arrays, "out", what, (source, target), (inputs.sources, inputs.targets), made, now)
    into = _direction(arrays, "into", what, (target, source), (inputs.targets, inputs.sources), made, now)
    if out is None or into is None or len(out["out.neighbour"]) != inputs.edges.count:
        return None
    return Update(now, {**out, **into}, len(what.row_ids) + what.gone)


def _base(origin: Origin) -> int:
    assert origin.base is not None
    return origin.base


def _continues(origin: Origin, table: EntityTable) -> bool:
    """Whether the current numbering differs from an earlier one only by an offset that is 0 or more.

    This is true if both numberings are by row id, and the smallest row id did not become smaller.
    """
    known = table.numbering
    return known.row_ids is None and known.base >= _base(origin)


def _edge_origin(edges: EntityTable, change: Change) -> Origin | None:
    """The current version of the edge table, as the origin of an updated topology.

    None if the edges are numbered densely, and not by row id.
    """
    slots = change.last - change.first + 1
    if not Numbering.keeps_holes(slots, edges.count):
        return None
    return Origin(edges.fingerprint, edges.ref.version, change.first, slots, edges.parts, edges.count)


# Update one direction at a time


def _direction(
    arrays: Arrays,
    side: str,
    what: Change,
    ends: tuple[Numbers, Numbers],
    tables: tuple[EntityTable, EntityTable],
    before: Made,
    now: Made,
) -> dict[str, Integers] | None:
    """The updated arrays of one direction; None if a node that has edges was deleted, or the edges are inconsistent."""
    checkpoint()
    first, neighbour, edge = (arrays[f"{side}.{name}"] for name in ("first", "neighbour", "edge"))
    if what.gone:
        assert what.untouched is not None, "if edges were deleted, the unchanged edges are known"
        kept = _unchanged(edge, _base(before.edges), what.untouched)
        first = np.concatenate([[0], np.cumsum(kept)])[first]
        checkpoint()
        neighbour, edge = neighbour[kept], edge[kept]
        checkpoint()
        if len(edge) != len(what.untouched):
            return None
    near, far = (before.sources, before.targets) if side == "out" else (before.targets, before.sources)
    degree = _shifted_degrees(np.diff(first), tables[0].numbering.base - _base(near), tables[0])
    if degree is None:
        return None
    neighbour = _shifted(neighbour, tables[1].numbering.base - _base(far), tables[1].slots)
    edge = _shifted(edge, _base(now.edges) - _base(before.edges), now.edges.slots)
    first = _firsts(degree)
    checkpoint()
    if len(what.row_ids):
        numbers = what.row_ids - _base(now.edges)
        order = by_both(*ends, tables[0].slots, tables[1].slots)
        near_, far_, numbers = ends[0].take(order), ends[1].take(order), numbers.take(order)
        # A new edge is inserted after existing edges between the same nodes.
        count, begin = Adjacency(first, neighbour, edge, tables[1].slots).between(near_, far_)
        places = begin + count
        checkpoint()
        neighbour, edge = _inserted(neighbour, places, far_), _inserted(edge, places, numbers)
        first = _firsts(degree + np.bincount(near_, minlength=len(degree)))
    return {f"{side}.first": first, f"{side}.neighbour": neighbour, f"{side}.edge": edge}


def _shifted_degrees(degree: Numbers, shift: int, nodes: EntityTable) -> Numbers | None:
    """Degrees in the current node numbering; None if a node that has edges was deleted.

    A node that was deleted and inserted again has a new number, although its edges did not change. Then the result is
    None, too.
    """
    found: Numbers = np.zeros(nodes.slots, np.int64)
    inside = degree[shift : shift + nodes.slots]
    found[: len(inside)] = inside
    if int(found.sum()) != int(degree.sum()):
        return None
    if nodes.live is not None and found[~nodes.live].any():
        return None
    return found


def _firsts(degree: Numbers) -> Numbers:
    first = np.zeros(len(degree) + 1, np.int64)
    np.cumsum(degree, out=first[1:])
    return first


def _shifted(numbers: Integers, shift: int, size: int) -> Integers:
    return narrow(numbers if shift == 0 else numbers - numbers.dtype.type(shift), size)


def _unchanged(edge: Integers, base: int, untouched: Numbers) -> Mask:
    """Mask of the edges that did not change."""
    found: Mask = np.zeros(len(edge), bool)
    if len(untouched) == 0 or len(edge) == 0:
        return found
    wanted = untouched - base
    size = int(edge.max()) + 1
    marked = np.zeros(size, bool)
    marked[wanted[(wanted >= 0) & (wanted < size)]] = True
    return marked.take(edge)


def _inserted(values: Integers, places: Numbers, others: Numbers) -> Integers:
    """A copy of `values`, with `others` inserted before the given positions. The positions ascend."""
    new: npt.NDArray[np.signedinteger] = others.astype(values.dtype)
    if len(new) > MAX_SLICED_INSERTS:
        return np.insert(values, places, new)
    pieces = [values[: places[0]]]
    ends = [*places[1:].tolist(), len(values)]
    for i, (begin, end) in enumerate(zip(places.tolist(), ends, strict=True)):
        pieces += [new[i : i + 1], values[begin:end]]
    return np.concatenate(pieces)
