"""The input of algorithms: nodes as integers from 0, edges as two integer arrays.

Nodes are numbered in the order of type name and id. So a node has the same number in this process and on Spark, and
rules that choose the smallest node give the same result in both.
"""

# See docs/decisions/0096-algorithms-number-nodes-by-id.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, NotFoundError, cut, shown
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import Catalog
from omnigraph.lang.types import NUMERICS
from omnigraph.read.budget import checkpoint
from omnigraph.read.columns.numbers import NOTHING, Integers, Numbers, narrow
from omnigraph.read.context.views import View
from omnigraph.read.topology.adjacency import by_one, firsts

Floats = npt.NDArray[np.float64]

CHUNK_EDGES = 1 << 22
"""The approximate number of edges in a chunk. Limits the memory of intermediate results."""


@dataclass(frozen=True, slots=True)
class TypeSelection:
    """The types that an algorithm uses, by name.

    Attributes:
        nodes: names of node types.
        edges: names of edge types. Both ends of each edge type are among the node types.
        weight: an edge property that is the length of an edge.
    """

    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    weight: str | None = None

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        nodes: str | Sequence[str] | None = None,
        edges: str | Sequence[str] | None = None,
        weight: str | None = None,
    ) -> TypeSelection:
        """The selected types, with the defaults filled in.

        Args:
            catalog: the schema.
            nodes: node types; by default those at the ends of the given edge types, or all if no edge types are given.
            edges: edge types; by default all edge types between the given node types.
            weight: a property that all of the edge types have.

        Raises:
            InputError: there is no such type or property, or an end of an edge type is not among the node types.
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
                raise InputError(
                    f"the edge type {name} has an end of type {min(missing)}, which is not among the given node types",
                    hint=f"add {min(missing)} to the node types, or leave out {name}",
                )
            if weight is not None:
                _check_weight(catalog, name, weight)
        return cls(named, lines, weight)


def _ends(catalog: Catalog, edge: str) -> tuple[str, str]:
    declared = catalog.edges[edge]
    return declared.from_type, declared.to_type


def _known(given: str | Sequence[str] | None, declared: object, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = sorted({given} if isinstance(given, str) else set(given))
    known = list(declared)  # type: ignore[call-overload]
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
        raise InputError(f"{edge}.{weight} has type {found.type}, but a weight must be a number")


@dataclass(frozen=True)
class Network:
    """Nodes and edges as integers.

    Attributes:
        types: the node types with their numbers of nodes, in the order of the node numbers.
        source: the source node of each edge.
        target: the target node of each edge.
        weight: the length of each edge, if requested.
    """

    types: tuple[tuple[str, int], ...]
    source: Integers
    target: Integers
    weight: Floats | None = None

    @property
    def nodes(self) -> int:
        return sum(count for _, count in self.types)

    def chunks(self) -> Iterator[tuple[Integers, Integers]]:
        """All edges, in chunks."""
        for first in range(0, len(self.source), CHUNK_EDGES):
            checkpoint()
            yield self.source[first : first + CHUNK_EDGES], self.target[first : first + CHUNK_EDGES]

    @cached_property
    def out(self) -> Neighbours:
        """The edges grouped by source."""
        return _neighbours(self.source, self.target, self.weight, self.nodes)

    @cached_property
    def into(self) -> Neighbours:
        """The edges grouped by target."""
        return _neighbours(self.target, self.source, self.weight, self.nodes)

    @cached_property
    def both(self) -> Neighbours:
        """Every edge twice: once grouped by its source, and once by its target."""
        weight = None if self.weight is None else np.concatenate([self.weight, self.weight])
        ends = np.concatenate([self.source, self.target]), np.concatenate([self.target, self.source])
        return _neighbours(*ends, weight, self.nodes)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Adjacency lists in CSR form: the neighbours of node n are `other[first[n]:first[n + 1]]`."""

    first: Numbers
    other: Integers
    weight: Floats | None

    def of(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """The degrees of some nodes, and the positions of their neighbours in `other`."""
        begin = self.first.take(nodes)
        degree = self.first.take(nodes + 1) - begin
        positions = np.repeat(begin - (np.cumsum(degree) - degree), degree)
        positions += np.arange(len(positions))
        return degree, positions

    def node_ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges of nodes. The nodes of each range have about `CHUNK_EDGES` edges in total."""
        nodes = len(self.first) - 1
        begin = 0
        while begin < nodes:
            checkpoint()
            end = int(np.searchsorted(self.first, self.first[begin] + CHUNK_EDGES, "right")) - 1
            end = min(max(end, begin + 1), nodes)
            yield begin, end
            begin = end


def _neighbours(near: Integers, far: Integers, weight: Floats | None, nodes: int) -> Neighbours:
    order = by_one(near, max(nodes, 1))
    return Neighbours(firsts(near, nodes), far.take(order), None if weight is None else weight.take(order))


# Building the input from a snapshot


def network(view: View, catalog: Catalog, selection: TypeSelection) -> Network:
    """The nodes and edges of the selected types.

    Raises:
        InputError: an edge has no weight, or a negative one.
    """
    first: dict[str, int] = {}
    types = []
    total = 0
    for name in selection.nodes:
        first[name] = total
        types.append((name, view.tables.nodes(name).count))
        total += view.tables.nodes(name).count
    sources: list[Integers] = [np.empty(0, np.int32)]
    targets: list[Integers] = [np.empty(0, np.int32)]
    weights: list[Floats] = [np.empty(0)]
    for name in selection.edges:
        from_type, to_type = _ends(catalog, name)
        out = view.topologies.of(name).out
        sources.append(narrow(first[from_type] + _id_ranks(view, from_type).take(out.owners()), total))
        targets.append(narrow(first[to_type] + _id_ranks(view, to_type).take(out.neighbour), total))
        if selection.weight is not None:
            weights.append(_weights(view, name, selection.weight, out.edge))
    weight = np.concatenate(weights) if selection.weight is not None else None
    return Network(tuple(types), np.concatenate(sources), np.concatenate(targets), weight)


def _id_ranks(view: View, name: str) -> Numbers:
    """The position of each node in the order of ids. Entity numbers without a node come last."""
    space = view.tables.nodes(name)
    return space.id_ranks() if space.count else np.empty(0, np.int64)


def _weights(view: View, edge: str, name: str, numbers: Integers) -> Floats:
    values = view.tables.edges(edge).column(name).take(pa.array(numbers))
    if values.null_count:
        raise InputError(
            f"the weight property '{name}' is null on some edges of {edge}", hint="every edge needs a weight"
        )
    found: Floats = values.cast(pa.float64()).to_numpy()
    if (found < 0).any():
        raise InputError(
            f"the weight property '{name}' is negative on some edges of {edge}", hint="weights must be at least 0"
        )
    return found


def names(view: View, selection: TypeSelection) -> tuple[pa.Array, pa.ChunkedArray]:
    """The type and the id of each node, by node number."""
    types, ids = [], []
    for name in selection.nodes:
        space = view.tables.nodes(name)
        if space.count:
            order = np.empty(space.slots, np.int64)
            order[space.id_ranks()] = np.arange(space.slots)
            ids.append(space.column("id").take(pa.array(order[: space.count])))
        types.append(pa.repeat(name, space.count))
    return pa.concat_arrays(types) if types else pa.array([], pa.utf8()), pa.chunked_array(ids, pa.utf8())


def number_of(view: View, selection: TypeSelection, given: object) -> int:
    """The number of a node, given by id, or as `Type:id` if several types have the id.

    Raises:
        NotFoundError: there is no such node.
        InputError: several types have the id.
    """
    if not isinstance(given, str):
        raise InputError(f"a source must be the id of a node, not {shown(given)}")
    kind, colon, rest = given.partition(":")
    named = {kind: rest} if colon and kind in selection.nodes else dict.fromkeys(selection.nodes, given)
    found = {}
    first = 0
    for name in selection.nodes:
        space = view.tables.nodes(name)
        if name in named:
            (number,) = space.find(pa.array([named[name]], pa.utf8())).tolist()
            if number != NOTHING:
                found[name] = first + int(space.id_ranks()[number])
        first += space.count
    if not found:
        raise NotFoundError(f"there is no node '{cut(given)}' in {', '.join(selection.nodes)}")
    if len(found) > 1:
        raise InputError(f"{' and '.join(found)} have a node '{cut(given)}'", hint=f"use {min(found)}:{cut(given)}")
    return next(iter(found.values()))


def node_names(types: pa.Array, ids: pa.ChunkedArray, numbers: Numbers) -> pa.Array:
    """The names of nodes, as `Type:id`."""
    positions = pa.array(numbers)
    return pc.binary_join_element_wise(types.take(positions), ids.combine_chunks().take(positions), ":")
