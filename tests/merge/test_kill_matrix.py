"""A killed merge, revert or cherry-pick is visible completely, or not at all, and can be repeated."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commit import child
from tests.commit.child import Children
from tests.commit.graphs import assert_whole, sidecars
from tests.commit.matrix import WRITE_POINTS, Kill, Outcome, kills, outcome
from tests.merge.merges import KEY, Merging, Picking, Updating, merges, picks, updates
from tests.write.requests import SEED, content, create

from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.graph import Graph, open


def _every() -> Iterator[object]:
    for merging in merges():
        widest = len(merging.types) == 5 and merging.forks
        for kill in kills(merging):
            yield pytest.param(merging, kill, id=f"{merging}-{kill}", marks=() if widest else pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize(("merging", "kill"), list(_every()))
def test_a_killed_merge_is_visible_completely_or_not_at_all(
    children: Children, place: Path, merging: Merging, kill: Kill
) -> None:
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


def _every_pick() -> Iterator[object]:
    for picking in picks():
        widest = len(picking.types) == 5 and picking.forks
        mark = pytest.mark.slow if widest else pytest.mark.soak
        for kill in kills(picking):
            yield pytest.param(picking, kill, id=f"{picking}-{kill}", marks=mark)


@pytest.mark.parametrize(("picking", "kill"), list(_every_pick()))
def test_a_killed_revert_or_cherry_pick_is_visible_completely_or_not_at_all(
    children: Children, place: Path, picking: Picking, kill: Kill
) -> None:
    expected = outcome(picking, kill) if kill.point in WRITE_POINTS else Outcome.NOTHING
    with create(place) as graph:
        picking.prepare(graph)
        before, job = graph.branch(picking.target).head.id, picking.job(graph)
        assert content(graph, picking.target) == picking.before
        ending = children.run(failpoint=kill.setting, **job)  # type: ignore[arg-type]
        assert ending.signal == signal.SIGKILL, f"{kill} was not reached: {ending}"
        assert bool(sidecars(graph)) is expected.audited
    with open(place) as graph:
        assert content(graph, picking.target) == (picking.after if expected.visible else picking.before)
        assert_whole(graph)
        settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
        assert [record.kind for record in graph.recovery.list()] == ([settled] if expected.audited else [])
        head = graph.branch(picking.target).head
        if expected.visible:
            assert (head.parent, head.merged_parent, head.idempotency_key) == (before, None, KEY)
            assert (head.writer, head.labels[-1][1]) == (picking.kind.value, job["commit"])
        made = child.JOBS["pick"](job)
        assert (made == head.id) is expected.visible
        graph.refresh()
        assert content(graph, picking.target) == picking.after
        again = {key: value for key, value in job.items() if key != "idempotency_key"}
        assert child.JOBS["pick"](again) is None, "there is nothing left to do"
        if picking.forks:
            assert content(graph) == (picking.before if picking.reverts else SEED), "main is as it was"


def _every_update() -> Iterator[object]:
    for updating in updates():
        widest = len(updating.types) == 5
        mark = pytest.mark.slow if widest else pytest.mark.soak
        for kill in kills(updating):
            yield pytest.param(updating, kill, id=f"{updating}-{kill}", marks=mark)


@pytest.mark.parametrize(("updating", "kill"), list(_every_update()))
def test_a_killed_branch_update_is_visible_completely_or_not_at_all(
    children: Children, place: Path, updating: Updating, kill: Kill
) -> None:
    expected = outcome(updating, kill) if kill.point in WRITE_POINTS else Outcome.NOTHING
    with create(place) as graph:
        updating.prepare(graph)
        heads = graph.branch("side").head.id, graph.branch("main").head.id
        main, schema = content(graph), graph.schema.show(branch="side")
        assert content(graph, "side") == updating.before
        ending = children.run(failpoint=kill.setting, **updating.job(graph))  # type: ignore[arg-type]
        assert ending.signal == signal.SIGKILL, f"{kill} was not reached: {ending}"
        assert bool(sidecars(graph)) is expected.audited
    with open(place) as graph:
        assert content(graph, "side") == (updating.after if expected.visible else updating.before)
        assert graph.schema.show(branch="side") == (graph.schema.source if expected.visible else schema)
        assert_whole(graph)
        settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
        assert [record.kind for record in graph.recovery.list()] == ([settled] if expected.audited else [])
        head = graph.branch("side").head
        if expected.visible:
            assert (head.parent, head.merged_parent, head.idempotency_key) == (*heads, KEY)
        made = child.JOBS["update_branch"](updating.job(graph))
        assert (made == head.id) is expected.visible
        graph.refresh()
        assert content(graph, "side") == updating.after
        assert content(graph) == main
        assert graph.branches.update("side").outcome == "already_up_to_date"
        assert graph.merge("side").is_clean
        assert content(graph) == updating.after
        assert graph.verify().ok


@pytest.mark.parametrize("point", [Failpoint.LEASED, Failpoint.SIDECAR_WRITTEN, Failpoint.PUBLISHED])
def test_a_killed_merge_that_changes_no_table_is_rolled_forward(
    children: Children, place: Path, point: Failpoint
) -> None:
    """The merge makes a commit and changes only the manifest. After its sidecar is written, it is rolled forward."""
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


def test_the_matrix_has_merges_of_one_two_and_five_tables() -> None:
    found = {(len(merging.types), merging.forks) for merging, _ in (p.values for p in _every())}  # type: ignore[attr-defined]
    assert found == {(1, False), (2, False), (5, False), (2, True), (5, True)}
