"""Random reads over edges among a few nodes: cycles, cliques, several edges between two nodes, loops and inequalities.

Random traversals rarely close a cycle. These queries do, so that they take the code paths for cyclic joins and for
counts by subtraction.
"""

from __future__ import annotations

from tests.read.queries import NUMBERS, Maker

from omnigraph.lang.types import Scalar

MAX_NODES = 4
"""Number of variables up to which edges to new variables are drawn. The oracle tries all assignments."""


class Web(Maker):
    """Generates queries whose match has several edges among the same variables."""

    def plain(self) -> str:
        clauses = self.match()
        kinds = ((7, self.counted), (3, self.grouped), (3, self.distinct), (3, self.listed))
        body = self.weighted(*((weight, lambda kind=kind: kind) for weight, kind in kinds))
        return self.written(clauses, body())

    def match(self, *, few: bool = False, following: bool = False) -> list[str]:
        clauses = [] if following and self.scope.nodes else [self.pattern()]
        for _ in range(self.pick(1, 1, 2) if few or following else self.pick(1, 2, 2, 3, 3)):
            self.edge(clauses, self.known(), self.fresh("n") if len(self.scope.nodes) < MAX_NODES else self.known())
        for _ in range(self.pick(0, 1, 1, 2, 3)):
            self.edge(clauses, self.known(), self.known())
        if len(self.scope.nodes) > 2 and self.chance(15):
            self.clique(clauses)
        if self.chance(20):
            self.add(clauses, 1, "block")
        conditions = [self.identity() for _ in range(self.pick(0, 0, 1, 1, 2, 3))]
        conditions += [self.comparison() for _ in range(self.pick(0, 0, 0, 1, 1, 2))]
        conditions += [self.negation() for _ in range(self.pick(0, 0, 0, 1, 1, 2))]
        conditions += [self.about(var) for var in self.scope.nodes if self.chance(15)]
        conditions += [self.tested_block()] if self.chance(15) else []
        for condition in conditions:
            clauses.insert(self.rng.randint(min(1, len(clauses)), len(clauses)), condition)
        return clauses

    def known(self) -> str:
        return self.rng.choice(list(self.scope.nodes))

    def clique(self, clauses: list[str]) -> None:
        """Join all variables with each other."""
        names = list(self.scope.nodes)
        for place, near in enumerate(names):
            for far in names[:place]:
                self.edge(clauses, near, far)

    def identity(self) -> str:
        """An inequality more often than an equality, because few rows have equal nodes."""
        text = super().identity()
        return text.replace(" = ", " != ") if self.chance(70) else text

    def comparison(self) -> str:
        """A comparison of properties of two variables, or of one variable with itself. It mostly keeps some rows."""
        left, right = self.known(), self.known()
        kinds = {name: kind for name, kind in self.properties(left).items() if not kind.list and not kind.is_vector}
        pairs = [
            (one, other)
            for one, kind in kinds.items()
            for other, kind_ in self.properties(right).items()
            if not kind_.list and (kind.item == kind_.item or {kind.scalar, kind_.scalar} <= {*NUMBERS})
        ]
        if not pairs or self.chance(15):
            return f"${left}.id {self.pick('<', '<=', '!=', '=')} ${right}.id"
        one, other = self.rng.choice(pairs)
        word = self.pick("<", "<=", ">", ">=", "!=", "!=", "=") if kinds[one].scalar is not Scalar.BOOL else "!="
        test = f"${left}.{one} {word} ${right}.{other}"
        return self.weighted(
            (6, lambda: test),
            (2, lambda: f"{test} or ${right}.{other} is null"),
            (1, lambda: f"not ({test})"),
            (1, lambda: f"{test} or {self.identity()}"),
        )

    def negation(self) -> str:
        """A `not` block: one edge between bound variables, or several edges, also over new variables."""
        outside = self.scope.copy()
        inner: list[str] = []
        near, far = self.known(), self.known()
        if self.chance(50):
            self.edge(inner, near, far)
        else:
            middle = self.fresh("n")
            self.edge(inner, near, middle)
            if middle in self.scope.nodes and self.chance(70):
                self.edge(inner, middle, far)
        if self.chance(15) or not inner:
            inner.append(self.about(self.known()))
        self.scope = outside
        return f"not {{ {'  '.join(inner)} }}"

    def edge(self, clauses: list[str], near: str, far: str) -> None:
        """Add an edge between two variables, of a type that fits them. The second may be new."""
        nodes, before = self.scope.nodes, self.scope.copy()
        fitting = [
            (left, edge, right)
            for edge in self.catalog.edges.values()
            for left, right in ((near, far), (far, near))
            if edge.from_type in nodes.get(left, (edge.from_type,))
            and edge.to_type in nodes.get(right, (edge.to_type,))
        ]
        if not fitting:
            return
        left, edge, right = self.rng.choice(fitting)
        others = [e.word for a, e, b in fitting if (a, b) == (left, right) and e is not edge]
        words = edge.word
        if others and self.chance(10):
            words = f"({words} | {self.rng.choice(others)})"
        if edge.same_type and self.chance(10):
            words = f"<{edge.word}>"
        if self.chance(6):
            words += self.pick("{1,2}", "{2,2}", "{1,}")
        elif self.chance(10):
            words = f"${self.fresh('e')}:{words}"
        clauses.append(f"${left} {words} ${right}")
        self._learn(clauses, before)
