"""Bringing a topology up to date: only edges that came, went or were written are looked at, all others stay.

That is possible when the versions that it was made from lie on the way to those that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from omnigraph.read.budget import checkpoint
from omnigraph.read.derived import Made, Origin, Stored
from omnigraph.read.space.numbers import NOTHING, Integers, Mask, Numbers, narrow
from omnigraph.read.space.space import Numbering, Space, one_piece
from omnigraph.read.topology.adjacency import Adjacency, by_both
from omnigraph.read.topology.looked_up import End
from omnigraph.read.versions import Change, change, origin_of, path

Arrays = Stored | Mapping[str, Integers]
"""The arrays of a topology by name, on disk or in memory."""

_SMALL_CHANGE = 10
"""With more than one of so many edges written since, a topology is made anew."""

_FEW = 1_000
"""Up to so many values are put between others by taking the array apart at their places."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What a topology is made from."""

    edges: Space
    sources: Space
    targets: Space

    @property
    def place(self) -> str:
        return self.edges.place

    def end(self, *, inward: bool) -> End:
        """The edges by source, or inward by target."""
        near, far = (self.targets, self.sources) if inward else (self.sources, self.targets)
        return End(self.edges, near, far, inward=inward)

    @property
    def key(self) -> tuple[str, ...]:
        """A name for the topology that these tables have."""
        return ("topology", self.edges.fingerprint, self.sources.fingerprint, self.targets.fingerprint)

    def are(self, made: Made) -> bool:
        """Whether something was made from exactly these versions."""
        return self.key[1:] == (made.edges.fingerprint, made.sources.fingerprint, made.targets.fingerprint)

    def made(self, dropped: int) -> Made:
        return Made(self.place, origin_of(self.edges), origin_of(self.sources), origin_of(self.targets), dropped)


@dataclass(frozen=True, slots=True)
class Update:
    """A topology that was brought up to date.

    Attributes:
        made: what it is made from now.
        arrays: its arrays; the ones that it had when only nodes were written.
        changed: how many edges came, went or were written.
    """

    made: Made
    arrays: Arrays
    changed: int


def brought_up_to_date(made: Made, arrays: Arrays, tables: Tables) -> Update | None:
    """A topology of other versions, brought up to date; None when it cannot be.

    Args:
        made: what it was made from.
        arrays: its arrays.
        tables: the versions that it shall be of.

    Raises:
        DamagedError: the arrays are not the ones that were written.
    """
    pairs = ((made.sources, tables.sources), (made.targets, tables.targets))
    if made.dropped or any(path(origin, space) is None for origin, space in pairs):
        return None
    if not all(_is_counted_on(origin, space) for origin, space in pairs):
        return None
    if len(arrays["out.neighbour"]) != made.edges.count:
        return None
    what = change(made.edges, tables.edges, ["src", "dst"], _SMALL_CHANGE)
    numbered = None if what is None else _numbered(tables.edges, what)
    if what is None or numbered is None:
        return None
    source = tables.sources.find(one_piece(what.values["src"]))
    target = tables.targets.find(one_piece(what.values["dst"]))
    if (source == NOTHING).any() or (target == NOTHING).any():
        return None
    now = replace(made, edges=numbered, sources=origin_of(tables.sources), targets=origin_of(tables.targets))
    if what.is_nothing and _base(made.sources) == _base(now.sources) and _base(made.targets) == _base(now.targets):
        ends = (("out", tables.sources), ("into", tables.targets))
        there = all(_first(np.diff(arrays[f"{side}.first"]), 0, nodes) is not None for side, nodes in ends)
        return Update(now, arrays, 0) if there else None
    out = _side(arrays, "out", what, (source, target), (tables.sources, tables.targets), made, now)
    into = _side(arrays, "into", what, (target, source), (tables.targets, tables.sources), made, now)
    if out is None or into is None or len(out["out.neighbour"]) != tables.edges.count:
        return None
    return Update(now, {**out, **into}, len(what.row_ids) + what.gone)


def _base(origin: Origin) -> int:
    assert origin.base is not None
    return origin.base


def _is_counted_on(origin: Origin, space: Space) -> bool:
    """Whether the nodes of an earlier version are numbered on from where they were: by row id, from a later one on."""
    known = space.numbering
    return known.row_ids is None and known.base >= _base(origin)


def _numbered(edges: Space, change: Change) -> Origin | None:
    """The version of the edges, numbered by row id from the first on; None when without holes."""
    slots = change.last - change.first + 1
    if not Numbering.keeps_holes(slots, edges.count):
        return None
    return Origin(edges.fingerprint, edges.ref.version, change.first, slots, edges.parts, edges.count)


# One side after the other


def _side(
    arrays: Arrays,
    side: str,
    what: Change,
    ends: tuple[Numbers, Numbers],
    spaces: tuple[Space, Space],
    before: Made,
    now: Made,
) -> dict[str, Integers] | None:
    """The arrays of one side, brought up to date; None when nodes are gone that have edges."""
    checkpoint()
    first, neighbour, edge = (arrays[f"{side}.{name}"] for name in ("first", "neighbour", "edge"))
    if what.gone:
        assert what.untouched is not None, "where some are gone, the others are known"
        kept = _kept(edge, _base(before.edges), what.untouched)
        first = np.concatenate([[0], np.cumsum(kept)])[first]
        checkpoint()
        neighbour, edge = neighbour[kept], edge[kept]
        checkpoint()
        if len(edge) != len(what.untouched):
            return None
    near, far = (before.sources, before.targets) if side == "out" else (before.targets, before.sources)
    degree = _first(np.diff(first), spaces[0].numbering.base - _base(near), spaces[0])
    if degree is None:
        return None
    neighbour = _moved(neighbour, spaces[1].numbering.base - _base(far), spaces[1].slots)
    edge = _moved(edge, _base(now.edges) - _base(before.edges), now.edges.slots)
    first = _firsts(degree)
    checkpoint()
    if len(what.row_ids):
        numbers = what.row_ids - _base(now.edges)
        order = by_both(*ends, spaces[0].slots, spaces[1].slots)
        near_, far_, numbers = ends[0].take(order), ends[1].take(order), numbers.take(order)
        # Behind those that lead to the same node.
        count, begin = Adjacency(first, neighbour, edge, spaces[1].slots).between(near_, far_)
        places = begin + count
        checkpoint()
        neighbour, edge = _with(neighbour, places, far_), _with(edge, places, numbers)
        first = _firsts(degree + np.bincount(near_, minlength=len(degree)))
    return {f"{side}.first": first, f"{side}.neighbour": neighbour, f"{side}.edge": edge}


def _first(degree: Numbers, shift: int, nodes: Space) -> Numbers | None:
    """How many edges each node has, when nodes are numbered from a later one on; None when nodes with edges are gone.

    Nodes that were replaced by others have new numbers, and edges that nobody wrote.
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


def _moved(numbers: Integers, shift: int, size: int) -> Integers:
    return narrow(numbers if shift == 0 else numbers - numbers.dtype.type(shift), size)


def _kept(edge: Integers, base: int, untouched: Numbers) -> Mask:
    """Which edges are among those that were not touched."""
    found: Mask = np.zeros(len(edge), bool)
    if len(untouched) == 0 or len(edge) == 0:
        return found
    wanted = untouched - base
    size = int(edge.max()) + 1
    marked = np.zeros(size, bool)
    marked[wanted[(wanted >= 0) & (wanted < size)]] = True
    return marked.take(edge)


def _with(values: Integers, places: Numbers, others: Numbers) -> Integers:
    """Values with others put between them, each before a place; the places ascend."""
    new: npt.NDArray[np.signedinteger] = others.astype(values.dtype)
    if len(new) > _FEW:
        return np.insert(values, places, new)
    pieces = [values[: places[0]]]
    ends = [*places[1:].tolist(), len(values)]
    for i, (begin, end) in enumerate(zip(places.tolist(), ends, strict=True)):
        pieces += [new[i : i + 1], values[begin:end]]
    return np.concatenate(pieces)
