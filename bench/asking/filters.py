"""Random conditions of any selectivity."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from asking.graphs import KINDS, MARKS, RANKS, SCORES, Graph
from asking.question import KEY, Compare, Condition, Different, Either, IsNull, OneOf, Property

NUMBERS = ("rank", "score")
"""The properties that are never null."""


@dataclass(frozen=True, slots=True)
class Filters:
    rng: Random
    graph: Graph
    size: float

    def some(self, var: str, kind: str) -> Condition:
        if self.rng.random() < 0.12:
            return Either(self.one(var, kind), self.one(var, kind))
        return self.one(var, kind)

    def one(self, var: str, kind: str) -> Condition:
        return self.rng.choice((self.rank, self.rank, self.score, self.text, self.text, self.mark, self.key))(var, kind)

    def rank(self, var: str, kind: str) -> Condition:
        part = max(int(RANKS * self.share()), 1)
        place = Property(var, "rank")
        return Compare(place, "<", part) if self.rng.random() < 0.5 else Compare(place, ">=", RANKS - part)

    def score(self, var: str, kind: str) -> Condition:
        # A share of the nodes with the largest scores, or all others.
        limit = int(SCORES / (1 + self.share() * self.graph.count(kind, self.size))) + 25
        return Compare(Property(var, "score"), self.rng.choice((">", ">", "<=")), limit)

    def text(self, var: str, kind: str) -> Condition:
        place = Property(var, "kind")
        if self.rng.random() < 0.3:
            return OneOf(place, tuple(sorted(self.rng.sample(KINDS, self.rng.randint(2, 5)))))
        return Compare(place, self.rng.choice(("=", "=", "=", "!=", ">=")), self.rng.choice(KINDS))

    def mark(self, var: str, kind: str) -> Condition:
        place = Property(var, "mark")
        if self.rng.random() < 0.25:
            return IsNull(place, self.rng.random() < 0.5)
        return Compare(place, self.rng.choice(("=", "<", ">=", "!=")), self.rng.randrange(MARKS))

    def key(self, var: str, kind: str) -> Condition:
        place, count = Property(var, KEY), self.graph.count(kind, self.size)
        if self.rng.random() < 0.5:
            return Compare(place, "=", self.rng.randrange(count))
        return Compare(place, "<", max(int(count * self.share()), 1))

    def share(self) -> float:
        return float(10 ** self.rng.uniform(-4, 0))

    def between(self, one: tuple[str, str], other: tuple[str, str]) -> Condition:
        """A condition on two variables; each comes with its type."""
        if one[1] == other[1] and self.rng.random() < 0.6:
            return Different(one[0], other[0])
        name = self.rng.choice((*NUMBERS, "kind", "mark"))
        ops = ("<", "<=", ">", "!=") if name in NUMBERS else ("=", "!=", "<")
        return Compare(Property(one[0], name), self.rng.choice(ops), Property(other[0], name))
