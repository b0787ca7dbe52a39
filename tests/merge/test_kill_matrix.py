"""A merge that is killed is there completely or not at all, with both its parents, and can be sent again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit import child
from tests.commit.child import Children
from tests.commit.graphs import assert_whole, sidecars
from tests.commit.matrix import WRITE_POINTS, Kill, Outcome, kills, outcome
from tests.write.requests import EDGES, SEED, SIZES, Content, content, create

from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.sidecar import WriterKind
from omnigraph.graph import Graph, open

KEY = "merge 1"


@dataclass(frozen=True, slots=True)
class Merging:
    """A merge of a branch that has changed some types into one that has changed another entity.

    Attributes:
        types: what the source has changed.
        forks: whether the target is a branch without files of its own.
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
        """Each type that the source has changed has lost an entity, and one has another value."""
        left: Content = {}
        for name in self.types:
            gone, kept = (("2", "2"), ("1", "1")) if name in EDGES else (("3",), ("1",))
            left[name] = {**SEED[name], kept: 7}
            del left[name][gone]
        return {**SEED, **left}

    def prepare(self, graph: Graph) -> None:
        graph.branches.create("side")
        rows = {}
        for name in self.types:
            key = {"from": ["1"], "to": ["1"]} if name in EDGES else {"k": ["1"]}
            rows[name] = pa.table({**key, "n": [7]})
        graph.load(rows, mode="merge", branch="side")
        for name in self.types:
            where = "from = '2'" if name in EDGES else "k = '3'"
            graph.mutate(f"query q() {{ delete {name} where {where} }}".replace("'", '"'), branch="side")
        # Something that leaves no row behind: the target has moved, and none of its tables is ahead of the others.
        if self.forks:
            graph.branches.create("dev")
        graph.load({"C": pa.table({"k": ["z"], "n": [0]})}, mode="append", branch="main")
        graph.mutate('query q() { delete C where k = "z" }', branch="main")

    def job(self, graph: Graph) -> dict[str, object]:
        return {"job": "merge", "uri": graph.uri, "source": "side", "branch": self.target, "idempotency_key": KEY}


def _every() -> Iterator[object]:
    for forks, sizes in ((False, (1, 2, 5)), (True, (2, 5))):
        for size in sizes:
            merging = Merging(SIZES[size], forks)
            widest = size == 5 and forks
            for kill in kills(merging):
                marks = () if widest else pytest.mark.slow
                yield pytest.param(merging, kill, id=f"{merging}-{kill}", marks=marks)


@pytest.mark.parametrize(("merging", "kill"), list(_every()))
def test_killed_merge(children: Children, place: Path, merging: Merging, kill: Kill) -> None:
    expected = outcome(merging, kill) if kill.point in WRITE_POINTS else Outcome.NOTHING
    with create(place) as graph:
        merging.prepare(graph)
        heads = graph.branch(merging.target).head.id, graph.branch("side").head.id
        ending = children.run(failpoint=kill.setting, **merging.job(graph))  # type: ignore[arg-type]
        assert ending.signal == signal.SIGKILL, f"{kill} was not reached: {ending}"
        assert bool(sidecars(graph)) is expected.audited
    with open(place) as reopened:
        _check(reopened, merging, expected, heads)


def _check(graph: Graph, merging: Merging, expected: Outcome, heads: tuple[str, str]) -> None:
    assert content(graph, merging.target) == (merging.after if expected.visible else merging.before)
    assert_whole(graph)
    settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
    assert [record.kind for record in graph.recovery.list()] == ([settled] if expected.audited else [])
    head = graph.branch(merging.target).head
    if expected.visible:
        assert (head.parent, head.merged_parent, head.idempotency_key) == (*heads, KEY)
    made = child.JOBS["merge"](merging.job(graph))
    assert (made == head.id) is expected.visible
    graph.refresh()
    assert content(graph, merging.target) == merging.after
    assert graph.merge("side", merging.target).outcome == "already_up_to_date"
    if merging.forks:
        assert content(graph) == SEED, "main is as it was"


@pytest.mark.parametrize("point", [Failpoint.LEASED, Failpoint.SIDECAR_WRITTEN, Failpoint.PUBLISHED])
def test_killed_merge_that_changes_no_table(children: Children, place: Path, point: Failpoint) -> None:
    """There is a commit, and nothing but the manifest that could move: from the sidecar on, it is finished."""
    with create(place) as graph:
        graph.branches.create("side")
        graph.mutate('query q() { insert A { k: "z" } }', branch="side")
        graph.mutate('query q() { delete A where k = "z" }', branch="side")
        merging = Merging((), False)
        ending = children.run(failpoint=f"{point.value}=kill", **merging.job(graph))  # type: ignore[arg-type]
        assert ending.signal == signal.SIGKILL
        side = graph.branch("side").head.id
    with open(place) as reopened:
        done = point is not Failpoint.LEASED
        assert (reopened.branch("main").head.merged_parent == side) is done
        assert content(reopened) == SEED
        assert_whole(reopened)
        assert reopened.merge("side").outcome == ("already_up_to_date" if done else "fast_forward")


def test_what_is_killed() -> None:
    found = {(len(merging.types), merging.forks) for merging, _ in (p.values for p in _every())}  # type: ignore[attr-defined]
    assert found == {(1, False), (2, False), (5, False), (2, True), (5, True)}
