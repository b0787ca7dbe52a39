"""What a random question returns: counts, aggregates, groups, distinct rows, and the first rows of an order.

If there is a limit, the order is total and has no nulls, so that all engines have to return the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from asking.filters import NUMBERS
from asking.question import KEY, Aggregate, Answer, Order, Property

COUNT = Aggregate("count", None)


@dataclass(frozen=True, slots=True)
class Answers:
    rng: Random
    always: tuple[str, ...]
    """The variables that are bound in every row."""
    maybe: tuple[str, ...] = ()
    """Those of an optional block."""
    counted: bool = False
    """Whether a stage has counted something."""

    def draw(self) -> tuple[str, Answer]:
        """An answer, and what it is called in reports."""
        kinds = {"count": 28, "aggregate": 14, "group": 14, "top groups": 16, "distinct": 10, "top rows": 18}
        name = self.rng.choices(list(kinds), list(kinds.values()))[0]
        make = {
            "count": lambda: Answer((), (COUNT,)),
            "aggregate": lambda: Answer((), tuple(self.aggregate() for _ in range(self.rng.choice((1, 2))))),
            "group": self.groups,
            "top groups": self.top_groups,
            "distinct": self.distinct,
            "top rows": self.top_rows,
        }
        return name, make[name]()

    def groups(self) -> Answer:
        names = self.rng.choice((("kind",), ("kind",), ("mark",), ("kind", "mark"), (KEY,), (KEY, "kind")))
        keys = tuple(Property(self.rng.choice(self.always), name) for name in names)
        aggregates = (COUNT, *(self.aggregate() for _ in range(self.rng.choice((0, 1, 1)))))
        return Answer(keys, aggregates, at_least=self.rng.choice((None, None, None, 2, 20)))

    def top_groups(self) -> Answer:
        names = self.rng.choice((("kind",), (KEY,), (KEY,), ("rank",), (KEY, KEY)))
        variables = self.rng.choices(self.always, k=len(names))
        keys = tuple(dict.fromkeys(Property(var, name) for var, name in zip(variables, names, strict=True)))
        first = self.aggregate() if self.rng.random() < 0.5 else COUNT
        if first.function != "count" and (first.of is None or first.of.var in self.maybe or first.of.name == "mark"):
            first = COUNT
        aggregates = (first, *(self.aggregate() for _ in range(self.rng.choice((0, 0, 1)))))
        order = (Order(len(keys), self.rng.random() < 0.8), *(Order(number) for number in range(len(keys))))
        return Answer(keys, aggregates, order=order, limit=self.limit())

    def distinct(self) -> Answer:
        return self._rows((*NUMBERS, "kind", KEY), distinct=True)

    def top_rows(self) -> Answer:
        return self._rows((*NUMBERS, "kind", KEY, KEY), distinct=False)

    def _rows(self, names: tuple[str, ...], *, distinct: bool) -> Answer:
        count = self.rng.choice((1, 2, 2, 3))
        drawn = [Property(self.rng.choice(self.always), self.rng.choice(names)) for _ in range(count)]
        keys = tuple(dict.fromkeys(drawn))
        order = tuple(Order(number, self.rng.random() < 0.4) for number in range(len(keys)))
        return Answer(keys, distinct=distinct, order=order, limit=self.limit())

    def aggregate(self) -> Aggregate:
        if self.counted and self.rng.random() < 0.5:
            return Aggregate(self.rng.choice(("sum", "max", "avg")), Property("", "n"))
        likely = self.maybe if self.maybe and self.rng.random() < 0.7 else self.always
        var = self.rng.choice(likely)
        match self.rng.randrange(6):
            case 0:
                return Aggregate("count", Property(var, KEY))
            case 1 | 2:
                return Aggregate("count", Property(var, self.rng.choice((KEY, KEY, "kind", "rank"))), distinct=True)
        return Aggregate(
            self.rng.choice(("sum", "avg", "min", "max")), Property(var, self.rng.choice((*NUMBERS, "mark")))
        )

    def limit(self) -> int:
        return self.rng.choice((1, 5, 10, 10, 100, 1_000))
