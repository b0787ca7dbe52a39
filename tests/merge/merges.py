"""The merges, branch updates, reverts and cherry-picks of the kill matrix, and the expected result of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from tests.write.requests import EDGES, SCHEMA, SEED, SIZES, Content

from omnigraph.commit.sidecar import WriterKind
from omnigraph.graph import Graph

KEY = "merge 1"


@dataclass(frozen=True, slots=True)
class Merging:
    """A merge of a branch with changes of some types into a target with a change of another entity.

    Attributes:
        types: the types that the source has changed.
        forks: whether the target is a branch whose tables are not forked yet.
    """

    types: tuple[str, ...]
    forks: bool

    def __str__(self) -> str:
        return f"{len(self.types)} table(s), {'first on a branch' if self.forks else 'main'}"

    @property
    def kind(self) -> WriterKind:
        return WriterKind.BRANCH_MERGE

    @property
    def what(self) -> str:
        return "merge"

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(f"{'edge' if name in EDGES else 'node'}:{name}" for name in self.types)

    @property
    def target(self) -> str:
        return "dev" if self.forks else "main"

    @property
    def before(self) -> Content:
        return SEED

    @property
    def after(self) -> Content:
        """In each type that the source has changed, one entity is deleted and one has another value."""
        left: Content = {}
        for name in self.types:
            gone, kept = (("2", "2"), ("1", "1")) if name in EDGES else (("3",), ("1",))
            left[name] = {**SEED[name], kept: 7}
            del left[name][gone]
        return {**SEED, **left}

    @property
    def _deletes(self) -> str:
        """A query that deletes one entity of each type."""
        wheres = {name: 'from = "2"' if name in EDGES else 'k = "3"' for name in self.types}
        deletes = " ".join(f"delete {name} where {where}" for name, where in wheres.items())
        return f"query q() {{ {deletes} }}"

    def prepare(self, graph: Graph) -> None:
        graph.branches.create("side")
        rows = {}
        for name in self.types:
            key = {"from": ["1"], "to": ["1"]} if name in EDGES else {"k": ["1"]}
            rows[name] = pa.table({**key, "n": [7]})
        graph.load(rows, mode="merge", branch="side")
        graph.mutate(self._deletes, branch="side")
        # The target gets a commit without a net change, so that none of its tables is ahead of the others.
        if self.forks:
            graph.branches.create("dev")
        graph.load({"C": pa.table({"k": ["z"], "n": [0]})}, mode="append", branch="main")
        graph.mutate('query q() { delete C where k = "z" }', branch="main")

    def job(self, graph: Graph) -> dict[str, object]:
        return {"job": "merge", "uri": graph.uri, "source": "side", "branch": self.target, "idempotency_key": KEY}


def merges() -> Iterator[Merging]:
    """One, two and five tables on `main`, two and five on a branch."""
    for forks in (False, True):
        for types in SIZES.values():
            if not forks or len(types) > 1:
                yield Merging(types, forks)


@dataclass(frozen=True, slots=True)
class Picking(Merging):
    """A revert or a cherry-pick of one commit that changes some types.

    Attributes:
        reverts: whether it is a revert.
    """

    reverts: bool

    def __str__(self) -> str:
        return f"{self.what}, {Merging.__str__(self)}"

    @property
    def kind(self) -> WriterKind:
        return WriterKind.REVERT if self.reverts else WriterKind.CHERRY_PICK

    @property
    def what(self) -> str:
        return "revert" if self.reverts else "cherry-pick"

    @property
    def before(self) -> Content:
        return self._changed if self.reverts else SEED

    @property
    def after(self) -> Content:
        return SEED if self.reverts else self._changed

    @property
    def _changed(self) -> Content:
        return Merging(self.types, self.forks).after

    def prepare(self, graph: Graph) -> None:
        branch = "main" if self.reverts else "side"
        if not self.reverts:
            graph.branches.create("side")
        with graph.branch(branch).transaction() as tx:
            rows = {}
            for name in self.types:
                key = {"from": ["1"], "to": ["1"]} if name in EDGES else {"k": ["1"]}
                rows[name] = pa.table({**key, "n": [7]})
            tx.load(rows, mode="merge")
            tx.mutate(self._deletes)
        if self.forks:
            graph.branches.create("dev")
        # A later commit without a net change.
        graph.load({"C": pa.table({"k": ["z"], "n": [0]})}, mode="append", branch="main")
        graph.mutate('query q() { delete C where k = "z" }', branch="main")

    def commit(self, graph: Graph) -> str:
        """The commit to revert or to pick."""
        found = list(graph.branch("main" if self.reverts else "side").commits)
        return found[2 if self.reverts else 0].id

    def job(self, graph: Graph) -> dict[str, object]:
        verb = "revert" if self.reverts else "cherry_pick"
        picked = {"commit": self.commit(graph), "branch": self.target, "idempotency_key": KEY}
        return {"job": "pick", "verb": verb, "uri": graph.uri, **picked}


def picks() -> Iterator[Picking]:
    """Reverts and cherry-picks of one, two and five tables on `main`, two and five on a branch."""
    for reverts in (True, False):
        for merging in merges():
            yield Picking(merging.types, merging.forks, reverts)


@dataclass(frozen=True, slots=True)
class Updating(Merging):
    """A branch update: the branch has changed some types, and its parent has another schema and a new entity."""

    @property
    def kind(self) -> WriterKind:
        return WriterKind.BRANCH_UPDATE

    @property
    def what(self) -> str:
        return "branch update"

    @property
    def target(self) -> str:
        return "side"

    @property
    def before(self) -> Content:
        return Merging(self.types, False).after

    @property
    def after(self) -> Content:
        return {**self.before, "C": {**self.before["C"], ("m",): 5}}

    def prepare(self, graph: Graph) -> None:
        Merging(self.types, False).prepare(graph)
        graph.schema.apply(SCHEMA.replace("n: I64?", "n: I64?\n    extra: String?"))
        graph.load({"C": pa.table({"k": ["m"], "n": [5]})}, mode="append", branch="main")

    def job(self, graph: Graph) -> dict[str, object]:
        return {"job": "update_branch", "uri": graph.uri, "branch": self.target, "idempotency_key": KEY}


def updates() -> Iterator[Updating]:
    """Updates of branches that have changed one, two and five tables. They fork the tables of the parent."""
    for types in SIZES.values():
        yield Updating(types, True)
