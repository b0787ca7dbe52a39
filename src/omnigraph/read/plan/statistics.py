"""Statistics: how much there is of everything that a block mentions. A plan depends on these and on nothing else.

Row counts come from the snapshot. How many edges a node has comes from the topology, where that need not be made
first; how many different values a property has from the schema, or from the values that are in memory. What is not
known is taken to be as usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import frexp, ldexp
from typing import Any


@dataclass(frozen=True, slots=True)
class Held:
    """What a variable may hold.

    Attributes:
        there: how many nodes its types have.
        size: how many of those satisfy the conditions on the variable alone.
        counted: whether they are counted; otherwise `size` is an estimate, and the conditions are yet to be tried.
    """

    there: int
    size: float
    counted: bool = True

    @property
    def share(self) -> float:
        """The share of nodes that may be held."""
        return self.size / max(self.there, 1)

    def rounded(self) -> Held:
        """About the same: sizes that differ little make the same plan."""
        return self if self.size == self.there else Held(self.there, _rounded(self.size), self.counted)


@dataclass(frozen=True, slots=True)
class Degrees:
    """The edges of a type.

    Attributes:
        edges: how many there are.
        sources: how many nodes an edge leaves; None when that is not known.
        targets: how many nodes an edge arrives at.
        most_out: how many edges leave one node, at most.
        most_in: how many arrive at one, at most.
    """

    edges: int
    sources: int | None = None
    targets: int | None = None
    most_out: int | None = None
    most_in: int | None = None


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a property.

    Attributes:
        distinct: about how many different ones there are.
        missing: the share of entities that have none.
        sample: some of them in their order, each standing for as many; none where values cannot be compared so.
    """

    distinct: float
    missing: float = 0.0
    sample: tuple[Any, ...] = ()

    @property
    def nbytes(self) -> int:
        return 64 + 32 * len(self.sample)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known about everything that a block mentions.

    Attributes:
        variables: the variables of the block.
        nodes: how many nodes there are of each type.
        edges: the edges of each type.
        shares: the share of rows that each condition keeps that is not about one of the variables alone, in order.
        values: what the shares come from: properties that conditions look at, by variable and name.
    """

    variables: Mapping[str, Held]
    nodes: Mapping[str, int]
    edges: Mapping[str, Degrees]
    shares: tuple[float, ...] = ()
    values: Mapping[tuple[str, str], Values] = field(default_factory=dict, compare=False)

    def rounded(self) -> Statistics:
        """The same, with sizes that are rounded: what a plan is made for."""
        variables = {name: held.rounded() for name, held in self.variables.items()}
        return Statistics(variables, self.nodes, self.edges, self._rounded_shares())

    def key(self) -> tuple[object, ...]:
        """What is equal for statistics that are, once they are rounded."""
        sizes = [(_rounded(held.size), held.there, held.counted) for held in self.variables.values()]
        return (*sizes, *self.nodes.items(), *self.edges.items(), self._rounded_shares())

    def _rounded_shares(self) -> tuple[float, ...]:
        return tuple(map(_rounded_share, self.shares))

    def to_json(self) -> dict[str, Any]:
        """As a mapping; what is not known is left out."""
        return {
            "variables": {
                name: {"nodes": held.there, "rows": round(held.size, 3), "counted": held.counted}
                for name, held in self.variables.items()
            },
            "nodes": dict(self.nodes),
            "edges": {name: _known(degrees) for name, degrees in self.edges.items()},
            "values": {
                f"${var}.{name}": {"distinct": round(values.distinct, 1), "missing": round(values.missing, 3)}
                for (var, name), values in self.values.items()
            },
        }


def _known(degrees: Degrees) -> dict[str, int]:
    names = ("edges", "sources", "targets", "most_out", "most_in")
    return {name: value for name in names if (value := getattr(degrees, name)) is not None}


def rounded_rows(rows: float) -> float:
    """A number of rows as a plan sees it."""
    return _rounded(rows)


def _rounded_share(share: float) -> float:
    """The power of two that is not less; 0 stays 0.

    >>> _rounded_share(0.3), _rounded_share(0.25), _rounded_share(1.0), _rounded_share(0.0)
    (0.5, 0.25, 1.0, 0.0)
    """
    part, power = frexp(share)
    return ldexp(0.5 if part else 0.0, power if part == 0.5 else power + 1)


def _rounded(size: float) -> float:
    """The power of two that is not less; 0 stays 0."""
    if size <= 0:
        return 0.0
    whole = max(1, -int(-size // 1))
    return float(1 << (whole - 1).bit_length())
