"""Bringing a topology up to date: only edges that came, went or were written are looked at, all others stay.

That is possible when the versions that it was made from lie on the way to those that are read. Either the table only
grew by parts, which the names of parts tell. Or the earlier version can still be opened and is the one that the
topology was made from; then Lance knows for each row when it was written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.derived import Made, Origin, Stored
from omnigraph.read.space.numbers import NOTHING, Integers, Mask, Numbers, narrow
from omnigraph.read.space.space import Numbering, Space, one_piece
from omnigraph.read.topology.adjacency import Adjacency, by_both
from omnigraph.read.topology.looked_up import End

Arrays = Stored | Mapping[str, Integers]
"""The arrays of a topology by name, on disk or in memory."""

_ROW_ID = "_rowid"
_WRITTEN = "_row_last_updated_at_version"

_SMALL_CHANGE = 10
"""With more than one of so many edges written since, a topology is made anew."""

_FEW = 1_000
"""Up to so many values are put between others by taking the array apart at their places."""

_NONE: Numbers = np.array([], np.int64)
_NO_IDS = pa.array([], pa.utf8())


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
        return Made(self.place, _origin(self.edges), _origin(self.sources), _origin(self.targets), dropped)


def _origin(space: Space) -> Origin:
    known = space.numbering
    base = None if known.row_ids is not None else known.base
    return Origin(space.fingerprint, space.ref.version, base, known.slots, space.parts)


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
    if made.dropped or any(_path(origin, space) is None for origin, space in pairs):
        return None
    if not all(_is_counted_on(origin, space) for origin, space in pairs):
        return None
    change = _change(made.edges, tables.edges, len(arrays["out.neighbour"]))
    if change is None:
        return None
    source, target = tables.sources.find(change.source), tables.targets.find(change.target)
    if (source == NOTHING).any() or (target == NOTHING).any():
        return None
    now = replace(made, edges=change.origin, sources=_origin(tables.sources), targets=_origin(tables.targets))
    if change.is_nothing and _base(made.sources) == _base(now.sources) and _base(made.targets) == _base(now.targets):
        ends = (("out", tables.sources), ("into", tables.targets))
        there = all(_first(np.diff(arrays[f"{side}.first"]), 0, nodes) is not None for side, nodes in ends)
        return Update(now, arrays, 0) if there else None
    out = _side(arrays, "out", change, (source, target), (tables.sources, tables.targets), made, now)
    into = _side(arrays, "into", change, (target, source), (tables.targets, tables.sources), made, now)
    if out is None or into is None or len(out["out.neighbour"]) != tables.edges.count:
        return None
    return Update(now, {**out, **into}, len(change.row_ids) + change.gone)


def _base(origin: Origin) -> int:
    assert origin.base is not None
    return origin.base


# How versions are related


class _Path(Enum):
    """How a version lies on the way to another."""

    SAME = "same"
    GREW = "grew"
    LATER = "later"


def _path(origin: Origin, space: Space) -> _Path | None:
    if origin.base is None:
        return None
    if origin.fingerprint == space.fingerprint:
        return _Path.SAME
    if origin.parts and space.parts[: len(origin.parts)] == origin.parts:
        return _Path.GREW
    return _Path.LATER if origin.fingerprint == space.earlier_fingerprint(origin.version) else None


def _is_counted_on(origin: Origin, space: Space) -> bool:
    """Whether the nodes of an earlier version are numbered on from where they were: by row id, from a later one on."""
    known = space.numbering
    return known.row_ids is None and known.base >= _base(origin)


@dataclass(frozen=True, slots=True)
class _Change:
    """What happened to the edges of a table.

    Attributes:
        origin: the version, and how its edges are numbered.
        row_ids: edges that came or were written.
        source: the ids of their sources.
        target: the ids of their targets.
        gone: how many edges went or were written.
        untouched: the row ids of all others, if some are gone.
    """

    origin: Origin
    row_ids: Numbers
    source: pa.Array
    target: pa.Array
    gone: int
    untouched: Numbers

    @property
    def is_nothing(self) -> bool:
        return len(self.row_ids) == 0 and self.gone == 0


def _change(origin: Origin, edges: Space, count: int) -> _Change | None:
    """What happened to a table that had so many edges; None when that is unknown, or much."""
    path = _path(origin, edges)
    if path is _Path.SAME:
        return _Change(replace(origin, version=edges.ref.version), _NONE, _NO_IDS, _NO_IDS, 0, _NONE)
    if path is None or (edges.count - count) * _SMALL_CHANGE > edges.count:
        return None
    if path is _Path.GREW:
        rows = edges.batches(["src", "dst", _ROW_ID], after=len(origin.parts)).read_all()
        row_ids: Numbers = rows[_ROW_ID].to_numpy().view(np.int64)
        numbered = _numbered(edges, min(_base(origin), _least(row_ids)), max(_last(origin), _most(row_ids)))
        if numbered is None or count + len(row_ids) != edges.count:
            return None
        return _Change(numbered, row_ids, one_piece(rows["src"]), one_piece(rows["dst"]), 0, _NONE)
    known = edges.batches([_ROW_ID, _WRITTEN]).read_all()
    all_ids: Numbers = known[_ROW_ID].to_numpy().view(np.int64)
    written: Mask = known[_WRITTEN].to_numpy() > origin.version
    row_ids, gone = all_ids[written], count - int(np.count_nonzero(~written))
    numbered = _numbered(edges, _least(all_ids), _most(all_ids))
    if numbered is None or gone < 0 or len(row_ids) * _SMALL_CHANGE > edges.count:
        return None
    source = target = _NO_IDS
    if len(row_ids):
        rows = edges.rows(row_ids, ["src", "dst"])
        source, target = one_piece(rows["src"]), one_piece(rows["dst"])
    return _Change(numbered, row_ids, source, target, gone, all_ids[~written] if gone else _NONE)


def _numbered(edges: Space, first: int, last: int) -> Origin | None:
    """How the edges of a version are numbered, whose row ids lie in a range; None when without holes."""
    slots = last - first + 1
    if not Numbering.keeps_holes(slots, edges.count):
        return None
    return Origin(edges.fingerprint, edges.ref.version, first, slots, edges.parts)


def _last(origin: Origin) -> int:
    return _base(origin) + origin.slots - 1


def _least(row_ids: Numbers) -> int:
    return int(row_ids.min()) if len(row_ids) else 2**62


def _most(row_ids: Numbers) -> int:
    return int(row_ids.max()) if len(row_ids) else -1


# One side after the other


def _side(
    arrays: Arrays,
    side: str,
    change: _Change,
    ends: tuple[Numbers, Numbers],
    spaces: tuple[Space, Space],
    before: Made,
    now: Made,
) -> dict[str, Integers] | None:
    """The arrays of one side, brought up to date; None when nodes are gone that have edges."""
    first, neighbour, edge = (arrays[f"{side}.{name}"] for name in ("first", "neighbour", "edge"))
    if change.gone:
        kept = _kept(edge, _base(before.edges), change.untouched)
        first = np.concatenate([[0], np.cumsum(kept)])[first]
        neighbour, edge = neighbour[kept], edge[kept]
        if len(edge) != len(change.untouched):
            return None
    near, far = (before.sources, before.targets) if side == "out" else (before.targets, before.sources)
    degree = _first(np.diff(first), spaces[0].numbering.base - _base(near), spaces[0])
    if degree is None:
        return None
    neighbour = _moved(neighbour, spaces[1].numbering.base - _base(far), spaces[1].slots)
    edge = _moved(edge, _base(now.edges) - _base(before.edges), now.edges.slots)
    first = _firsts(degree)
    if len(change.row_ids):
        numbers = change.row_ids - _base(now.edges)
        order = by_both(*ends, spaces[0].slots, spaces[1].slots)
        near_, far_, numbers = ends[0].take(order), ends[1].take(order), numbers.take(order)
        # Behind those that lead to the same node.
        count, begin = Adjacency(first, neighbour, edge, spaces[1].slots).between(near_, far_)
        places = begin + count
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
