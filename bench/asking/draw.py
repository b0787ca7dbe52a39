"""Draws questions: the same ones for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from asking.answers import Answers
from asking.filters import Filters
from asking.graphs import Graph
from asking.question import Block, Condition, Edge, Either, Exists, Question, Stage
from asking.shapes import SHAPES, NoShapeError, Pattern


@dataclass(frozen=True, slots=True)
class Extensions:
    """Parts of the language that questions may use."""

    stages: bool = False
    subqueries: bool = False


NONE = Extensions()


def questions(seed: int, graph: Graph, size: float = 1.0, extensions: Extensions = NONE) -> Iterator[Question]:
    """Questions without end.

    Args:
        seed: decides what is drawn.
        graph: the graph that they are put to.
        size: how large that is, as a share of its full size.
        extensions: what else some of them use.
    """
    drawer = Drawer(Random(f"{seed} {graph.name}"), graph, size, extensions)
    while True:
        try:
            yield drawer.draw()
        except NoShapeError:
            continue


class Drawer:
    """Puts the parts of a question together."""

    def __init__(self, rng: Random, graph: Graph, size: float, extensions: Extensions) -> None:
        self._rng = rng
        self._graph = graph
        self._filters = Filters(rng, graph, size)
        self._extensions = extensions

    def draw(self) -> Question:
        shape = self._rng.choice(list(SHAPES))
        pattern = Pattern(self._rng, self._graph)
        SHAPES[shape](pattern)
        bound = pattern.block()
        conditions, features = self._conditions(bound)
        match = replace(bound, conditions=conditions)
        staged = self._extensions.stages and self._chance(0.15)
        optional = self._optional(bound) if not staged and self._chance(0.18) else None
        without = tuple(self._without(bound, number) for number in range(self._rng.choices((0, 1, 2), (80, 17, 3))[0]))
        stage = self._stage(bound) if staged else None
        answers = Answers(
            self._rng,
            tuple(bound.types) if stage is None else (stage.kept, *stage.then.types),
            tuple(optional.types) if optional is not None else (),
            counted=stage is not None,
        )
        kind, answer = answers.draw()
        parts = {"not": without, "optional": optional, "stage": stage}
        features = (*features, *(name for name, part in parts.items() if part), f"returns {kind}")
        return Question(self._graph.name, shape, match, answer, without, optional, stage, features)

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _conditions(self, block: Block) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
        types = list(block.types.items())
        single = [
            self._filters.some(*self._rng.choice(types))
            for _ in range(self._rng.choices((0, 1, 2, 3), (25, 35, 25, 15))[0])
        ]
        several = self._rng.choices((0, 1, 2), (65, 28, 7))[0] if len(types) > 1 else 0
        between = [self._filters.between(*self._rng.sample(types, 2)) for _ in range(several)]
        inner = [self._exists(block)] if self._extensions.subqueries and self._chance(0.15) else []
        if inner and single and self._chance(0.4):
            inner = [Either(inner[0], single.pop())]
        parts = {"filter": single, "inequality": between, "subquery": inner}
        conditions = (*dict.fromkeys([*single, *between]), *inner)
        return conditions, tuple(name for name, part in parts.items() if part)

    def _exists(self, block: Block) -> Condition:
        return Exists(self._branch(block, "rs", 0.25), self._rng.choice((None, None, 2, 5)))

    def _without(self, block: Block, number: int) -> Block:
        """An edge between two bound variables, or edges from one of them to others."""
        if self._chance(0.4):
            pairs = [
                Edge(edge.name, one, other)
                for one in block.types
                for other in block.types
                for edge in self._graph.edges
                if one != other and (edge.source, edge.target) == (block.types[one], block.types[other])
            ]
            free = [edge for edge in pairs if edge not in block.edges]
            if free:
                return Block({}, (self._rng.choice(free),))
        return self._branch(block, ("xy", "zw")[number], 0.25)

    def _optional(self, block: Block) -> Block:
        return self._branch(block, "uv", 0.2)

    def _branch(self, block: Block, names: str, again: float) -> Block:
        """One or two edges that lead away from a bound variable, sometimes with conditions."""
        start = self._rng.choice(list(block.types))
        pattern = Pattern(self._rng, self._graph, names)
        last = pattern.step(start, block.types[start])
        if self._chance(again):
            pattern.step(last, pattern.types[last])
        conditions: list[Condition] = []
        if self._chance(0.5):
            conditions.append(self._filters.one(*self._rng.choice(list(pattern.types.items()))))
        if self._chance(0.15):
            conditions.append(self._filters.between((last, pattern.types[last]), (start, block.types[start])))
        return replace(pattern.block(), conditions=tuple(conditions))

    def _stage(self, block: Block) -> Stage:
        kept = self._rng.choice(list(block.types))
        then = self._branch(replace(block, types={kept: block.types[kept]}), "pq", 0.3)
        return Stage(kept, self._rng.choice((1, 2, 3, 10, 50)), then)
