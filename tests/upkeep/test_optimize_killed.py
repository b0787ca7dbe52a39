"""A killed optimize is visible completely or not at all, and does not change rows."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.commit.child import Children
from tests.commit.conftest import _no_fsync, children, parent
from tests.commit.graphs import NODES, TABLES, assert_whole, contents, create, put, sidecars
from tests.commit.matrix import OPTIMIZE_POINTS, WRITE_POINTS, Kill

from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.graph import Graph, open

__all__ = ["_no_fsync", "children", "parent"]


def _kills() -> list[Kill]:
    """Every failpoint that optimize passes. Node tables take two commits, because they have indexes."""
    places = [Kill(point) for point in (*WRITE_POINTS, *OPTIMIZE_POINTS) if point is not Failpoint.FORKED]
    last = [Kill(Failpoint.TABLE_COMMITTED, len(TABLES)), Kill(Failpoint.TABLE_PACKED, len(NODES))]
    return [*places, *last]


def _fragments(graph: Graph) -> set[int]:
    return {len(graph.session.store.tables.at(graph.snapshot().pin(key).ref).fragments()) for key in TABLES}


@pytest.mark.slow
@pytest.mark.parametrize("kill", _kills(), ids=str)
def test_a_killed_optimize_is_visible_completely_or_not_at_all(children: Children, tmp_path: Path, kill: Kill) -> None:
    place = tmp_path / "graph"
    with create(place) as graph:
        for name in ("one", "two"):
            put(graph, [name], TABLES)
        before = contents(graph)
        export = b"".join(graph.export())
        assert _fragments(graph) == {3}
        ending = children.run("optimize", failpoint=kill.setting, uri=str(place))
        assert ending.signal == signal.SIGKILL, f"{kill} was not reached: {ending}"
        left = sidecars(graph)
    order = list(WRITE_POINTS)
    done = kill.point in order and order.index(kill.point) > order.index(Failpoint.TABLE_COMMITTED)
    done = done or kill == Kill(Failpoint.TABLE_COMMITTED, len(TABLES))
    with open(place) as reopened:
        assert contents(reopened) == before
        assert b"".join(reopened.export()) == export
        assert _fragments(reopened) == ({1} if done else {3})
        assert_whole(reopened)
        kinds = [record.kind for record in reopened.recovery.list()]
        assert kinds == ([RecoveryKind.ROLLED_FORWARD if done else RecoveryKind.ROLLED_BACK] if left else [])
        again = reopened.optimize()
        assert (again.commit is None) is done
        assert _fragments(reopened) == {1}
        put(reopened, ["next"], TABLES)
        assert_whole(reopened)
