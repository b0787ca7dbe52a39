"""The shapes of patterns: paths, stars, trees, cycles, and cliques with a tail, along the edge types of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

from asking.graphs import EdgeType, Graph
from asking.question import Block, Edge

NAMES = "abcdefgh"


class NoShapeError(Exception):
    """These edge types did not lead to the wanted shape; another try may."""


@dataclass(slots=True)
class Pattern:
    """A pattern that grows edge by edge."""

    rng: Random
    graph: Graph
    names: str = NAMES
    types: dict[str, str] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def node(self, kind: str) -> str:
        name = self.names[len(self.types)]
        self.types[name] = kind
        return name

    def step(self, var: str, kind: str) -> str:
        """Add an edge from a variable of a type, in any direction, to a new variable."""
        edge, forward = self.rng.choice(incident(self.graph, kind))
        other = self.node(edge.target if forward else edge.source)
        self.edges.append(Edge(edge.name, *((var, other) if forward else (other, var))))
        return other

    def close(self, one: str, other: str) -> None:
        """Add a new edge between two variables, in any direction.

        Raises:
            NoShapeError: there is no such edge type.
        """
        ends = (self.types[one], self.types[other])
        known = set(self.edges)
        possible = [Edge(edge.name, one, other) for edge in self.graph.edges if (edge.source, edge.target) == ends]
        possible += [Edge(edge.name, other, one) for edge in self.graph.edges if (edge.target, edge.source) == ends]
        possible = [edge for edge in possible if edge not in known]
        if not possible:
            raise NoShapeError
        self.edges.append(self.rng.choice(possible))

    def block(self) -> Block:
        return Block(dict(self.types), tuple(self.edges))


def incident(graph: Graph, kind: str) -> list[tuple[EdgeType, bool]]:
    """The edge types at a node type, and whether they start there. One between nodes of one type is there twice."""
    return [(edge, True) for edge in graph.edges if edge.source == kind] + [
        (edge, False) for edge in graph.edges if edge.target == kind
    ]


def path(made: Pattern) -> None:
    last = _start(made)
    for _ in range(made.rng.choice((1, 2, 2, 3, 3, 4))):
        last = made.step(last, made.types[last])


def star(made: Pattern) -> None:
    center = _start(made)
    for _ in range(made.rng.choice((2, 3, 3, 4))):
        made.step(center, made.types[center])


def tree(made: Pattern) -> None:
    _start(made)
    for _ in range(made.rng.choice((3, 4, 4, 5))):
        var = made.rng.choice(list(made.types))
        made.step(var, made.types[var])


def cycle(made: Pattern) -> None:
    first = last = _start(made)
    for _ in range(made.rng.choice((1, 2, 2, 3, 3, 4))):
        last = made.step(last, made.types[last])
    made.close(first, last)


def clique(made: Pattern) -> None:
    """Three or four nodes with an edge between any two of them; in a bipartite graph, two and two. Then a tail."""
    loops = [edge for edge in made.graph.edges if edge.source == edge.target and not edge.single]
    if loops:
        edge = made.rng.choice(loops)
        nodes = [made.node(edge.source) for _ in range(made.rng.choice((3, 3, 4)))]
        for one, other in combinations(nodes, 2):
            made.close(one, other)
    else:
        edge = made.rng.choice([edge for edge in made.graph.edges if not edge.single])
        left, right = ([made.node(kind) for _ in range(2)] for kind in (edge.source, edge.target))
        nodes = left + right
        for one in left:
            for other in right:
                made.close(one, other)
    last = made.rng.choice(nodes)
    for _ in range(made.rng.choice((1, 1, 2))):
        last = made.step(last, made.types[last])


def _start(made: Pattern) -> str:
    edge = made.rng.choice(made.graph.edges)
    return made.node(made.rng.choice((edge.source, edge.target)))


SHAPES: dict[str, Callable[[Pattern], None]] = {
    "path": path,
    "star": star,
    "tree": tree,
    "cycle": cycle,
    "clique": clique,
}
