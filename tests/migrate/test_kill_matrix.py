"""A killed schema change is visible completely or not at all: schema files, tables and manifest."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.commit.child import Children
from tests.commit.graphs import assert_whole, sidecars
from tests.commit.matrix import WRITE_POINTS, Kill, Outcome, kills, outcome
from tests.migrate.cases import CASES, Case
from tests.migrate.changes import Applying, schema_changes
from tests.migrate.garden import SCHEMA, content, modelled

from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.schema_files import STAGED
from omnigraph.graph import Graph, open


def _every() -> list[object]:
    found: list[object] = []
    for change in schema_changes():
        points = list(kills(change))
        if change.steps > 1:
            points.append(Kill(Failpoint.TABLE_PACKED))
        for kill in points:
            core = change.tables and kill.point in (Failpoint.TABLE_PACKED, Failpoint.TABLE_COMMITTED)
            marks = () if core else pytest.mark.slow
            found.append(pytest.param(change, kill, id=f"{change}-{kill}", marks=marks))
    return found


def _outcome(change: Applying, kill: Kill) -> Outcome:
    return Outcome.UNDONE if kill.point is Failpoint.TABLE_PACKED else outcome(change, kill)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "kill"), _every())
def test_a_killed_schema_change_is_visible_completely_or_not_at_all(
    children: Children, place: Path, change: Applying, kill: Kill
) -> None:
    expected, new = _outcome(change, kill), change.case.schema(SCHEMA)
    with open(place) as graph:
        before, head = content(graph), graph.snapshot().commit.id
        busy = content(graph, branch="busy")
        ending = children.run("apply_schema", failpoint=kill.setting, uri=str(place), source=new)
        assert ending.signal == signal.SIGKILL, f"{kill} was not reached: {ending}"
        assert bool(sidecars(graph)) is expected.audited
    after = modelled(before, change.case.model)
    with open(place) as reopened:
        settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
        assert [record.kind for record in reopened.recovery.list()] == ([settled] if expected.audited else [])
        assert content(reopened) == (after if expected.visible else before)
        assert reopened.schema.source == (new if expected.visible else SCHEMA)
        _check(reopened, before, busy, head)
        # The request is sent again, and has its effect once.
        assert reopened.schema.apply(new).applied is not expected.visible
        assert content(reopened) == after
        _check(reopened, before, busy, head)
        assert reopened.verify().ok
        reopened.mutate('query add() { insert Bed { name: "new" } }') if "Bed" in after else None
        assert_whole(reopened)


def _check(graph: Graph, before: object, busy: object, head: str) -> None:
    assert content(graph, branch="idle") == before == content(graph, at=head)
    assert content(graph, branch="busy") == busy
    assert not list(Path(graph.uri).glob(f"*{STAGED}"))
    assert_whole(graph)


POINTS = tuple(dict.fromkeys([kill.point for kill in kills(list(schema_changes())[-1])] + [Failpoint.TABLE_PACKED]))


def _rows() -> list[object]:
    """Every row of the migration tables with every failpoint. A run of slow tests has one failpoint per row."""
    found: list[object] = []
    for number, name in enumerate(CASES):
        for place, point in enumerate(POINTS):
            mark = pytest.mark.slow if number % len(POINTS) == place else pytest.mark.soak
            found.append(pytest.param(CASES[name], point, id=f"{name}-{point.value}", marks=mark))
    return found


@pytest.mark.parametrize(("case", "point"), _rows())
def test_every_row_of_the_migration_tables_survives_a_kill(
    children: Children, place: Path, case: Case, point: Failpoint
) -> None:
    new = case.schema(SCHEMA)
    with open(place) as graph:
        before, head, busy = content(graph), graph.snapshot().commit.id, content(graph, branch="busy")
        versions = {pin.id: pin.ref for pin in graph.snapshot().tables.values()}
    ending = children.run("apply_schema", failpoint=f"{point.value}=kill", uri=str(place), source=new)
    after = modelled(before, case.model)
    with open(place) as reopened:
        visible = reopened.schema.source == new
        if ending.signal != signal.SIGKILL:
            assert visible, ending
            kept = {pin.id: pin.ref for pin in reopened.snapshot().tables.values()}
            unchanged = all(kept.get(table, ref) == ref for table, ref in versions.items())
            # Without tables to commit, a change does not pass their failpoints. Few changes need two commits per table.
            assert point is Failpoint.TABLE_PACKED or (point is Failpoint.TABLE_COMMITTED and unchanged), ending
        assert content(reopened) == (after if visible else before)
        assert reopened.schema.source in (SCHEMA, new)
        _check(reopened, before, busy, head)
        assert reopened.schema.apply(new).applied is not visible
        assert content(reopened) == after
        assert reopened.branches.update("idle").is_clean
        assert content(reopened, branch="idle") == after
        assert reopened.verify().ok
        assert_whole(reopened)


UPDATED = (
    "rename a node type",
    "rename properties with an index, a blob and a vector",
    "drop a property with its constraints",
    "drop a node type with its edges",
    "widen I32, U32 and F32",
    "rename an enum value",
    "add a required property with a default",
    "add an edge type",
    "nullable to required",
    "add and tighten constraints of an edge",
    "another source of @embed",
    "everything at once",
)


def _updates() -> list[object]:
    """Kinds of schema changes with every failpoint of a branch update. A run of slow tests has one failpoint each."""
    found: list[object] = []
    for number, name in enumerate(UPDATED):
        for place, point in enumerate(WRITE_POINTS):
            mark = pytest.mark.slow if number % len(WRITE_POINTS) == place else pytest.mark.soak
            found.append(pytest.param(CASES[name], point, id=f"{name}-{point.value}", marks=mark))
    return found


@pytest.mark.parametrize(("case", "point"), _updates())
def test_a_killed_update_of_a_branch_to_another_schema_is_visible_completely_or_not_at_all(
    children: Children, place: Path, case: Case, point: Failpoint
) -> None:
    new = case.schema(SCHEMA)
    with open(place) as graph:
        # A change of the branch that no schema change makes void, so that a table is written.
        graph.mutate('query q() { update Plant set { note: "own note" } where code = "p22" }', branch="busy")
        before, busy = content(graph), content(graph, branch="busy")
        heads = graph.branch("busy").head.id, graph.snapshot().commit.id
        graph.schema.apply(new)
        head = graph.snapshot().commit.id
        ending = children.run("update_branch", failpoint=f"{point.value}=kill", uri=str(place), branch="busy")
        assert ending.signal == signal.SIGKILL, f"{point} was not reached: {ending}"
    main, after = modelled(before, case.model), modelled(busy, case.model)
    visible = WRITE_POINTS.index(point) >= WRITE_POINTS.index(Failpoint.TABLE_COMMITTED)
    with open(place) as reopened:
        made = reopened.branch("busy").head
        done = reopened.schema.show(branch="busy") == new
        assert done is visible
        assert not done or (made.parent, made.merged_parent) == (heads[0], head)
        assert content(reopened, branch="busy") == (after if done else busy)
        assert reopened.schema.show(branch="busy") == (new if done else SCHEMA)
        assert_whole(reopened)
        again = reopened.branches.update("busy")
        assert again.is_clean
        assert (again.outcome == "already_up_to_date") is done
        assert content(reopened, branch="busy") == after
        assert content(reopened) == main
        assert (reopened.schema.source, reopened.snapshot().commit.id) == (new, head)
        # Commits from before the change, and another branch, keep their schema and rows.
        for at, rows in zip(heads, (busy, before), strict=True):
            assert content(reopened, at=at) == rows
            assert reopened.schema.show(at=at) == SCHEMA
        assert content(reopened, branch="idle") == before
        reopened.ensure_indexes(branch="busy")
        assert content(reopened, branch="busy") == after
        assert reopened.merge("busy").is_clean
        assert content(reopened) == after
        assert reopened.verify(branch="busy").ok
        assert reopened.verify().ok
        assert_whole(reopened)


_ALWAYS = (Failpoint.RECOVERY_STARTED, Failpoint.RECOVERY_PUBLISHED, Failpoint.RECOVERY_AUDITED)
RECOVERY = {
    Failpoint.TABLE_PACKED: {*_ALWAYS, Failpoint.RECOVERY_CHECKED, Failpoint.RECOVERY_RESTORED},
    Failpoint.TABLE_COMMITTED: {*_ALWAYS, Failpoint.RECOVERY_CHECKED},
    Failpoint.PUBLISHED: {*_ALWAYS},
}
"""The failpoints that recovery passes after a kill at another one: it rolls back, rolls forward, or only cleans up."""

RECOVERY_POINTS = [point for point in Failpoint if point.value.startswith("recovery_")]


def test_every_failpoint_of_recovery_is_passed_by_a_case() -> None:
    assert set().union(*RECOVERY.values()) == set(RECOVERY_POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("point", RECOVERY_POINTS, ids=str)
@pytest.mark.parametrize("first", RECOVERY, ids=str)
def test_a_killed_recovery_of_a_schema_change_has_the_same_outcome_when_repeated(
    children: Children, place: Path, first: Failpoint, point: Failpoint
) -> None:
    change = list(schema_changes())[-1]
    new = change.case.schema(SCHEMA)
    visible = first is not Failpoint.TABLE_PACKED
    with open(place) as graph:
        before, head, busy = content(graph), graph.snapshot().commit.id, content(graph, branch="busy")
        children.run("apply_schema", failpoint=f"{first.value}=kill", uri=str(place), source=new)
    again = children.run("reopen", failpoint=f"{point.value}=kill", uri=str(place))
    assert (again.signal == signal.SIGKILL) is (point in RECOVERY[first]), again
    with open(place) as reopened:
        assert len(reopened.recovery.list()) == 1
        assert content(reopened) == (modelled(before, change.case.model) if visible else before)
        _check(reopened, before, busy, head)
        assert reopened.schema.apply(new).applied is not visible
        assert content(reopened) == modelled(before, change.case.model)
        _check(reopened, before, busy, head)
