"""What an algorithm runs on: nodes as the numbers from 0, edges as two arrays of them.

Nodes are numbered by type name, then by id. So a number says the same in this process and on Spark, and so does a rule
like "of equal ones, the least".
"""

# See docs/decisions/0096-algorithms-number-nodes-by-id.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError, NotFoundError, cut, shown
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import Catalog
from omnigraph.lang.types import NUMERICS
from omnigraph.read.budget import checkpoint
from omnigraph.read.columns.numbers import NOTHING, Integers, Numbers, narrow
from omnigraph.read.context.views import View
from omnigraph.read.topology.adjacency import by_one, firsts

Floats = npt.NDArray[np.float64]

PORTION = 1 << 22
"""How many edges are looked at together, about: what lies between has a limit, whatever the size of the graph."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The types that an algorithm looks at, by name.

    Attributes:
        nodes: node types.
        edges: edge types, all of whose ends are among the node types.
        weight: a property of those edges that says how long each is.
    """

    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    weight: str | None = None

    @classmethod
    def chosen(
        cls,
        catalog: Catalog,
        nodes: str | Sequence[str] | None = None,
        edges: str | Sequence[str] | None = None,
        weight: str | None = None,
    ) -> Parts:
        """The parts that a caller means.

        Args:
            catalog: the schema.
            nodes: node types; by default those at the ends of the edges.
            edges: edge types; by default all that lie between the nodes.
            weight: a property that every one of the edge types has.

        Raises:
            InputError: there is no such type or property, or an edge leads out of the nodes.
        """
        named = _known(nodes, catalog.nodes, "node type")
        lines = _known(edges, catalog.edges, "edge type")
        if named is None:
            ends = {end for name in lines or catalog.edges for end in _ends(catalog, name)}
            named = tuple(sorted(ends if lines is not None else catalog.nodes))
        if lines is None:
            lines = tuple(name for name in catalog.edges if set(_ends(catalog, name)) <= set(named))
        for name in lines:
            missing = set(_ends(catalog, name)) - set(named)
            if missing:
                raise InputError(f"{name} leads to {min(missing)}, which is not among the nodes")
            if weight is not None:
                _check_weight(catalog, name, weight)
        return cls(named, lines, weight)


def _ends(catalog: Catalog, edge: str) -> tuple[str, str]:
    declared = catalog.edges[edge]
    return declared.from_type, declared.to_type


def _known(said: str | Sequence[str] | None, there: object, what: str) -> tuple[str, ...] | None:
    if said is None:
        return None
    names = sorted({said} if isinstance(said, str) else set(said))
    known = list(there)  # type: ignore[call-overload]
    for name in names:
        if name not in known:
            raise InputError(f"there is no {what} '{cut(str(name))}'", hint=did_you_mean(str(name), known))
    return tuple(names)


def _check_weight(catalog: Catalog, edge: str, weight: str) -> None:
    declared = catalog.edges[edge].properties
    found = declared.get(weight)
    if found is None:
        raise InputError(f"{edge} has no property '{cut(weight)}'", hint=did_you_mean(weight, list(declared)))
    if found.type.list or found.type.scalar not in NUMERICS:
        raise InputError(f"{edge}.{weight} is {found.type}, and a weight is a number")


@dataclass(frozen=True)
class Network:
    """Nodes and edges as numbers.

    Attributes:
        types: the node types, and how many nodes each has, in the order of their numbers.
        source: where each edge begins.
        target: where it ends.
        weight: how long it is, where that was asked for.
    """

    types: tuple[tuple[str, int], ...]
    source: Integers
    target: Integers
    weight: Floats | None = None

    @property
    def nodes(self) -> int:
        return sum(count for _, count in self.types)

    def portions(self) -> Iterator[tuple[Integers, Integers]]:
        """All edges, some at a time."""
        for first in range(0, len(self.source), PORTION):
            checkpoint()
            yield self.source[first : first + PORTION], self.target[first : first + PORTION]

    @cached_property
    def out(self) -> Neighbours:
        """The edges by where they begin."""
        return _neighbours(self.source, self.target, self.weight, self.nodes)

    @cached_property
    def into(self) -> Neighbours:
        """The edges by where they end."""
        return _neighbours(self.target, self.source, self.weight, self.nodes)

    @cached_property
    def both(self) -> Neighbours:
        """The edges at both of their ends."""
        weight = None if self.weight is None else np.concatenate([self.weight, self.weight])
        ends = np.concatenate([self.source, self.target]), np.concatenate([self.target, self.source])
        return _neighbours(*ends, weight, self.nodes)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Who is next to each node: those of node n are from `first[n]` to `first[n + 1]`."""

    first: Numbers
    other: Integers
    weight: Floats | None

    def of(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """How many neighbours some nodes have, and their places."""
        begin = self.first.take(nodes)
        degree = self.first.take(nodes + 1) - begin
        places = np.repeat(begin - (np.cumsum(degree) - degree), degree)
        places += np.arange(len(places))
        return degree, places

    def stretches(self) -> Iterator[tuple[int, int]]:
        """Runs of nodes that have about a portion of edges together."""
        nodes = len(self.first) - 1
        begin = 0
        while begin < nodes:
            checkpoint()
            end = int(np.searchsorted(self.first, self.first[begin] + PORTION, "right")) - 1
            end = min(max(end, begin + 1), nodes)
            yield begin, end
            begin = end


def _neighbours(near: Integers, far: Integers, weight: Floats | None, nodes: int) -> Neighbours:
    order = by_one(near, max(nodes, 1))
    return Neighbours(firsts(near, nodes), far.take(order), None if weight is None else weight.take(order))


# From a snapshot


def network(view: View, catalog: Catalog, parts: Parts) -> Network:
    """The nodes and edges of some types.

    Raises:
        InputError: an edge has no weight, or one below zero.
    """
    first: dict[str, int] = {}
    types = []
    total = 0
    for name in parts.nodes:
        first[name] = total
        types.append((name, view.tables.nodes(name).count))
        total += view.tables.nodes(name).count
    sources: list[Integers] = [np.empty(0, np.int32)]
    targets: list[Integers] = [np.empty(0, np.int32)]
    weights: list[Floats] = [np.empty(0)]
    for name in parts.edges:
        from_type, to_type = _ends(catalog, name)
        out = view.topologies.of(name).out
        sources.append(narrow(first[from_type] + _places(view, from_type).take(out.owners()), total))
        targets.append(narrow(first[to_type] + _places(view, to_type).take(out.neighbour), total))
        if parts.weight is not None:
            weights.append(_weights(view, name, parts.weight, out.edge))
    weight = np.concatenate(weights) if parts.weight is not None else None
    return Network(tuple(types), np.concatenate(sources), np.concatenate(targets), weight)


def _places(view: View, name: str) -> Numbers:
    """The place of each node in the order of ids. Holes come last."""
    space = view.tables.nodes(name)
    return space.id_ranks() if space.count else np.empty(0, np.int64)


def _weights(view: View, edge: str, name: str, numbers: Integers) -> Floats:
    values = view.tables.edges(edge).column(name).take(pa.array(numbers))
    if values.null_count:
        raise InputError(f"some edges of {edge} have no {name}", hint="every edge needs a weight")
    found: Floats = values.cast(pa.float64()).to_numpy()
    if (found < 0).any():
        raise InputError(f"some edges of {edge} have a {name} below zero", hint="a path cannot get shorter on its way")
    return found


def names(view: View, parts: Parts) -> tuple[pa.Array, pa.ChunkedArray]:
    """The type and the id of each node, by number."""
    types, ids = [], []
    for name in parts.nodes:
        space = view.tables.nodes(name)
        if space.count:
            order = np.empty(space.slots, np.int64)
            order[space.id_ranks()] = np.arange(space.slots)
            ids.append(space.column("id").take(pa.array(order[: space.count])))
        types.append(pa.repeat(name, space.count))
    return pa.concat_arrays(types) if types else pa.array([], pa.utf8()), pa.chunked_array(ids, pa.utf8())


def number_of(view: View, parts: Parts, said: object) -> int:
    """The number of a node that a caller names: by id, or `Type:id` where several types have it.

    Raises:
        NotFoundError: there is none.
        InputError: there are several.
    """
    if not isinstance(said, str):
        raise InputError(f"a node is named by its id, not by {shown(said)}")
    kind, colon, rest = said.partition(":")
    named = {kind: rest} if colon and kind in parts.nodes else dict.fromkeys(parts.nodes, said)
    found = {}
    first = 0
    for name in parts.nodes:
        space = view.tables.nodes(name)
        if name in named:
            (number,) = space.find(pa.array([named[name]], pa.utf8())).tolist()
            if number != NOTHING:
                found[name] = first + int(space.id_ranks()[number])
        first += space.count
    if not found:
        raise NotFoundError(f"there is no node '{cut(said)}' in {', '.join(parts.nodes)}")
    if len(found) > 1:
        raise InputError(f"{' and '.join(found)} have a node '{cut(said)}' each", hint=f"say {min(found)}:{cut(said)}")
    return next(iter(found.values()))


def least_names(types: pa.Array, ids: pa.ChunkedArray, numbers: Numbers) -> pa.Array:
    """Nodes as `Type:id`."""
    places = pa.array(numbers)
    return pc.binary_join_element_wise(types.take(places), ids.combine_chunks().take(places), ":")
