"""Planner statistics of a block. A join order depends only on the query and on these statistics.

Row counts come from the snapshot, degrees from the topology if it exists already, and distinct values from the schema
or from cached columns. Unknown statistics are replaced by defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import frexp, ldexp, log2
from typing import Any, TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.read.query.block import Side
from omnigraph.read.topology.topology import DegreeStatistics


@dataclass(frozen=True, slots=True)
class Cardinality:
    """Number of candidate nodes of a variable.

    Attributes:
        total: number of all nodes of its types.
        size: number of these nodes that satisfy the conditions that refer only to this variable.
        counted: whether `size` is exact; otherwise it is an estimate, and the conditions are not evaluated yet.
    """

    total: int
    size: float
    counted: bool = True

    def rounded(self) -> Cardinality:
        """A copy with `size` rounded up to a power of two, so that similar sizes have the same plan."""
        return self if self.size == self.total else Cardinality(self.total, _rounded(self.size), self.counted)


@dataclass(frozen=True, slots=True)
class PropertyStatistics:
    """Statistics of the values of a property.

    Attributes:
        distinct: estimated number of distinct values.
        missing: fraction of nulls.
        sample: sorted sample of the values, used as an equi-depth histogram; empty for types without an order.
    """

    distinct: float
    missing: float = 0.0
    sample: tuple[Any, ...] = ()

    @property
    def nbytes(self) -> int:
        return 64 + 32 * len(self.sample)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the variables, types and properties that a block refers to.

    Attributes:
        variables: cardinality of each variable of the block.
        nodes: number of nodes of each node type.
        edges: degree statistics of each edge type.
        shares: selectivity of each join condition, in the order of the join conditions of the block.
        skews: for two edge types that meet at a variable, how much their degrees correlate (see `Topologies.skew`).
        candidate_degrees: for a variable and an edge type at it, the average degree of the candidates, divided by the
            average degree of all nodes. Empty unless the block is expensive (see `refined_order`).
        candidate_skews: like `skews`, among the candidates of a variable.
        edge_shares: for a traversal, by its left and right variable and its edges at the left one, the fraction of the
            pairs of candidates that an edge joins.
        values: property statistics that the selectivities were computed from, by variable and property name.
    """

    variables: Mapping[str, Cardinality]
    nodes: Mapping[str, int]
    edges: Mapping[str, DegreeStatistics]
    shares: tuple[float, ...] = ()
    skews: Mapping[tuple[Side, Side], float] = field(default_factory=dict)
    values: Mapping[tuple[str, str], PropertyStatistics] = field(default_factory=dict, compare=False)
    candidate_degrees: Mapping[tuple[str, Side], float] = field(default_factory=dict)
    candidate_skews: Mapping[tuple[str, Side, Side], float] = field(default_factory=dict)
    edge_shares: Mapping[tuple[str, str, Side], float] = field(default_factory=dict)

    def rounded(self) -> Statistics:
        """A copy with rounded sizes and selectivities. It is the input of the search for a join order."""
        variables = {name: held.rounded() for name, held in self.variables.items()}
        return Statistics(
            variables,
            self.nodes,
            self.edges,
            self._rounded_shares(),
            self.skews,
            candidate_degrees=_rounded_factors(self.candidate_degrees),
            candidate_skews=_rounded_factors(self.candidate_skews),
            edge_shares=_rounded_factors(self.edge_shares),
        )

    def key(self) -> tuple[object, ...]:
        """Cache key of a join order. Statistics that are equal after rounding have equal keys."""
        sizes = [(_rounded(held.size), held.total, held.counted) for held in self.variables.values()]
        factors = (
            *self.skews.items(),
            *_rounded_factors(self.candidate_degrees).items(),
            *_rounded_factors(self.candidate_skews).items(),
            *_rounded_factors(self.edge_shares).items(),
        )
        return (*sizes, *self.nodes.items(), *self.edges.items(), self._rounded_shares(), *factors)

    def _rounded_shares(self) -> tuple[float, ...]:
        return tuple(map(_rounded_share, self.shares))

    def to_json(self) -> dict[str, Any]:
        """The statistics as a JSON object. Unknown numbers are left out."""
        return {
            "variables": {
                name: {"nodes": held.total, "rows": round(held.size, 3), "counted": held.counted}
                for name, held in self.variables.items()
            },
            "nodes": dict(self.nodes),
            "edges": {name: _known(degrees) for name, degrees in self.edges.items()},
            "values": {
                f"${var}.{name}": {"distinct": round(values.distinct, 1), "missing": round(values.missing, 3)}
                for (var, name), values in self.values.items()
            },
        }


def _known(degrees: DegreeStatistics) -> dict[str, int]:
    names = ("edges", "sources", "targets", "most_out", "most_in")
    return {name: value for name in names if (value := getattr(degrees, name)) is not None}


def rounded_rows(rows: float) -> float:
    """Round a number of input rows up to a power of two, for the cache key of a join order."""
    return _rounded(rows)


K = TypeVar("K")


def _rounded_factors(factors: Mapping[K, float]) -> dict[K, float]:
    """Round factors to the nearest powers of the square root of two; 0 stays 0."""
    return {key: 2 ** (round(2 * log2(factor)) / 2) if factor else 0.0 for key, factor in factors.items()}


def _rounded_share(selectivity: float) -> float:
    """Round a selectivity up to a power of two (1, 1/2, 1/4, …); 0 stays 0.

    >>> _rounded_share(0.3), _rounded_share(0.25), _rounded_share(1.0), _rounded_share(0.0)
    (0.5, 0.25, 1.0, 0.0)
    """
    part, power = frexp(selectivity)
    return ldexp(0.5 if part else 0.0, power if part == 0.5 else power + 1)


def _rounded(size: float) -> float:
    """Round a number of rows up to a power of two; 0 stays 0."""
    if size <= 0:
        return 0.0
    whole = max(1, -int(-size // 1))
    return float(1 << (whole - 1).bit_length())
