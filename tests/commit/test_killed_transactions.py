"""A killed transaction is visible completely or not at all, and its leftover files are removed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.commit.child import Children, Job
from tests.commit.graphs import SEED, TABLES, Operation, assert_whole, contents, create, put
from tests.commit.matrix import TRANSACTION_POINTS, Kill, Outcome, Write, kills, outcome
from tests.patience import until

from omnigraph.commit import transaction_branches
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.refs import list_branch_refs
from omnigraph.commit.sidecar import WriterKind
from omnigraph.graph import Graph, open

GONE = SEED[2]
BEFORE = {key: sorted(SEED) for key in TABLES}
AFTER = BEFORE | {"node:A": sorted([*SEED, "new"]), "node:B": sorted([*SEED[:2], "new"])}


def merges(forks: bool) -> Write:
    """The write that the commit of the transaction makes to the branch."""
    return Write(WriterKind.BRANCH_MERGE, Operation.CHANGE, ("node:A", "node:B"), forks)


def left(graph: Graph) -> list[str]:
    """Leftover records, references, forks and leases of transaction branches."""
    store = graph.session.store
    refs = list_branch_refs(store.objects)
    public = {ref.incarnation for ref in refs.values() if not ref.is_hidden}
    forks = {fork for pin in graph.snapshot().tables.values() for fork in store.tables.forks(pin.ref.path)}
    return [
        *(found.name for found in transaction_branches.list_all(store)),
        *(name for name, ref in refs.items() if ref.is_hidden),
        *(fork for fork in forks if fork.partition("-")[0] not in public),
        *(info.path for info in store.objects.list("__lease") if "__tx" in info.path),
    ]


def _check(place: Path, branch: str, visible: bool) -> None:
    """Check that the next opener finds all or nothing, and can write."""
    with open(place) as graph:
        expected = AFTER if visible else BEFORE
        assert contents(graph, branch) == expected
        if branch != "main":
            assert contents(graph) == BEFORE
        assert_whole(graph)
        assert left(graph) == []
        put(graph, ["next"], TABLES, branch=branch)
        with graph.branch(branch).transaction() as tx:
            tx.mutate('query add() { insert C { k: "more" } }')
        wanted = {key: [*rows, "next", *(["more"] if key == "node:C" else [])] for key, rows in expected.items()}
        assert contents(graph, branch) == {key: sorted(rows) for key, rows in wanted.items()}
        assert_whole(graph)
        assert left(graph) == []


def _ends() -> list[object]:
    """All failpoints that the commit of a transaction passes. Those on a branch are marked slow."""
    found: list[object] = []
    for forks in (False, True):
        for kill in [*kills(merges(forks)), *(Kill(point) for point in TRANSACTION_POINTS[1:])]:
            marks = [pytest.mark.slow] if forks else []
            found.append(pytest.param(kill, forks, id=f"{kill}-{'branch' if forks else 'main'}", marks=marks))
    return found


@pytest.mark.parametrize(("kill", "forks"), _ends())
def test_a_transaction_killed_at_its_commit_is_visible_completely_or_not_at_all(
    children: Children, place: Path, kill: Kill, forks: bool
) -> None:
    branch = "dev" if forks else "main"
    with create(place) as graph:
        if forks:
            graph.branches.create("dev")
    job: Job = {"uri": str(place), "branch": branch, "ids": ["new"], "gone": GONE}
    assert children.run("transact", at_end=kill.setting, **job).signal == signal.SIGKILL, kill
    expected = Outcome.DONE if kill.point in TRANSACTION_POINTS else outcome(merges(forks), kill)
    with open(place, read_only=True) as reader:
        published = expected is Outcome.DONE or kill.point is Failpoint.PUBLISHED
        assert contents(reader, branch) == (AFTER if published else BEFORE)
    _check(place, branch, expected.visible)
    with open(place) as graph:
        kinds = [record.kind for record in graph.recovery.list()]
        settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
        assert kinds == ([settled] if expected.audited else [])


@pytest.mark.parametrize("kill", [*kills(merges(False)), Kill(Failpoint.TRANSACTION_MERGED)], ids=str)
def test_a_transaction_without_a_branch_killed_at_its_commit_is_visible_completely_or_not_at_all(
    children: Children, place: Path, kill: Kill
) -> None:
    create(place).close()
    job: Job = {"uri": str(place), "ids": ["new"], "gone": GONE}
    assert children.run("collect", at_end=kill.setting, **job).signal == signal.SIGKILL, kill
    expected = Outcome.DONE if kill.point is Failpoint.TRANSACTION_MERGED else outcome(merges(False), kill)
    _check(place, "main", expected.visible)
    with open(place) as graph:
        kinds = [record.kind for record in graph.recovery.list()]
        settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
        assert kinds == ([settled] if expected.audited else [])


def test_a_transaction_without_a_branch_killed_in_its_block_leaves_nothing(children: Children, place: Path) -> None:
    create(place).close()
    job: Job = {"uri": str(place), "ids": ["new"], "gone": GONE}
    assert children.run("collect", dies=True, **job).signal == signal.SIGKILL
    _check(place, "main", visible=False)


IN_BLOCK = [
    "transaction_recorded#1=kill",
    "branch_ref_created#1=kill",
    "forked#1=kill",
    "staged#1=kill",
    "sidecar_written#1=kill",
    "table_committed#1=kill",
    "before_publish#2=kill",
    "published#2=kill",
    "table_committed#4=kill",
]


@pytest.mark.parametrize("failpoint", IN_BLOCK)
def test_a_transaction_killed_in_its_block_is_not_visible(children: Children, place: Path, failpoint: str) -> None:
    create(place).close()
    job: Job = {"uri": str(place), "ids": ["new"], "gone": GONE}
    assert children.run("transact", failpoint=failpoint, **job).signal == signal.SIGKILL
    _check(place, "main", visible=False)
    with open(place) as graph:
        assert {record.kind for record in graph.recovery.list()} <= {RecoveryKind.ORPHANED_BRANCH_DISCARDED}


def test_an_open_handle_works_beside_leftovers_of_killed_transactions(children: Children, place: Path) -> None:
    """The graph need not be opened again: leftover files of a killed transaction block no write."""
    with create(place) as graph:
        graph.branches.create("dev")
        for branch in ("main", "dev"):
            job: Job = {"uri": str(place), "branch": branch, "ids": ["new"], "gone": GONE}
            assert children.run("transact", dies=True, **job).signal == signal.SIGKILL
        assert len(transaction_branches.list_all(graph.session.store)) == 1, (
            "the second process has cleared up after the first"
        )
        assert [branch.name for branch in graph.branches] == ["main", "dev"]
        assert contents(graph) == contents(graph, "dev") == BEFORE
        put(graph, ["next"], TABLES)
        graph.branches.delete("dev")
        assert left(graph) == []
        assert_whole(graph)


def test_a_live_transaction_of_another_process_is_not_removed(children: Children, place: Path) -> None:
    sign = place.with_name("held")
    with create(place) as graph:
        job: Job = {"uri": str(place), "ids": ["new"], "gone": GONE}
        pid = children.start("transact", at_end=f"captured#1=hold:{sign}", **job)
        until(sign.exists)
        graph.refresh()
        with open(place) as other:
            assert len(transaction_branches.list_all(other.session.store)) == 1
            assert contents(other) == BEFORE
        sign.unlink()
        children.wait(pid).ok()
        assert contents(graph) == AFTER
        assert left(graph) == []


def test_a_killed_transaction_can_be_repeated_with_its_idempotency_key(children: Children, place: Path) -> None:
    """A caller without an answer runs the block again with the same key: there is one commit."""
    create(place).close()
    job: Job = {"uri": str(place), "ids": ["new"], "gone": GONE, "idempotency_key": "k"}
    for at_end in ("before_publish#1=kill", ""):
        children.run("transact", at_end=at_end, **job)
    with open(place) as graph:
        assert contents(graph) == AFTER
        assert len([commit for commit in graph.commits if commit.idempotency_key == "k"]) == 1
        assert_whole(graph)


@pytest.mark.slow
def test_concurrent_transactions_are_atomic_to_readers(children: Children, place: Path) -> None:
    """Each transaction writes two tables in two steps. Each is committed once, and no reader sees a single step."""
    create(place).close()
    stop, ready = place.with_name("stop"), place.with_name("ready")
    reader = children.start("watch", uri=str(place), keys=["node:A", "node:B"], stop=str(stop), ready=str(ready))
    writers = [children.start("transact_many", uri=str(place), name=name, commits=5) for name in ("x", "y")]
    for pid in writers:
        children.wait(pid).ok()
    stop.touch()
    assert "half a commit" not in children.wait(reader).ok()
    with open(place) as graph:
        names = sorted([*SEED, *(f"{name}-{number}" for name in "xy" for number in range(5))])
        assert contents(graph) == BEFORE | {"node:A": names, "node:B": names}
        assert len(list(graph.commits)) == 2 + 10
        assert_whole(graph)
        assert left(graph) == []
