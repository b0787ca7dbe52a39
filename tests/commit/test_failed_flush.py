"""A failed flush undoes the write, even if a second flush of the same file succeeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pyarrow as pa
import pytest
from tests.commit.child import Children
from tests.commit.faults_page import FLUSHED, FLUSHES, FlushWrite
from tests.commit.graphs import (
    NODES,
    SCHEMA,
    SEED,
    Operation,
    assert_whole,
    contents,
    create,
    evolve_to,
    ids,
    put,
    sidecars,
)
from tests.patience import PATIENCE

from omnigraph.commit import attempts
from omnigraph.commit import rollback_only as distrust_module
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.recovery import RECOVERY_ACTOR
from omnigraph.commit.sidecar import pending
from omnigraph.errors import FlushFailedError, KeyConflictError, OmnigraphError, RecoveryRequiredError, WriteUndoneError
from omnigraph.graph import Graph, init, open
from omnigraph.settings import FSYNC
from omnigraph.storage.table_ref import table_directory

PAIR = ("node:A", "node:B")


class Flushes:
    """All flushes of this process, by path. Each fault happens once, because the kernel reports an error once."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.seen: list[str] = []
        self._failing: Callable[[str, int], bool] = lambda _path, _nth: False
        self._fsync = os.fsync

    def __call__(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not path.startswith(self.root):
            return self._fsync(descriptor)
        self.seen.append(path[len(self.root) + 1 :])
        if self._failing(self.seen[-1], len(self.seen)):
            raise OSError(5, os.strerror(5))
        return None

    @contextmanager
    def failing(self, which: Callable[[str, int], bool]) -> Iterator[None]:
        self.seen.clear()
        self._failing = which
        try:
            yield
        finally:
            self._failing = lambda _path, _nth: False

    @contextmanager
    def failing_at(self, number: int) -> Iterator[None]:
        with self.failing(lambda _, nth: nth == number):
            yield

    @contextmanager
    def failing_in(self, part: str) -> Iterator[None]:
        """Fail the first flush of a path that contains this text."""
        met: list[str] = []

        def first(path: str, _: int) -> bool:
            if part not in path or met:
                return False
            met.append(path)
            return True

        with self.failing(first):
            yield
        assert met, f"nothing of {part} was flushed"


@pytest.fixture
def flushes(place: Path, monkeypatch: pytest.MonkeyPatch) -> Flushes:
    monkeypatch.setenv(FSYNC.name, "1")
    made = Flushes(place)
    monkeypatch.setattr(os, "fsync", made)
    return made


def prepared(place: Path) -> Graph:
    graph = create(place)
    graph.branches.create("dev")
    return graph


def attempt(graph: Graph, write: FlushWrite, name: str) -> OmnigraphError | None:
    try:
        put(graph, ["s1"] if write.operation is Operation.DELETE else [name], write.tables, **write.how)
    except OmnigraphError as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.parametrize("write", FLUSHES, ids=str)
def test_a_write_with_a_failed_flush_is_not_visible(place: Path, flushes: Flushes, write: FlushWrite) -> None:
    """Fail the flush of each file and directory in turn: a refused write is not visible, and the next write works."""
    with prepared(place) as graph:
        before = contents(graph, write.branch)
        number, failed, undone = 0, 0, 0
        while True:
            number += 1
            with flushes.failing_at(number):
                error = attempt(graph, write, f"new-{number}")
            if len(flushes.seen) < number:
                assert error is None
                break
            failed += 1
            after = contents(graph, write.branch)
            if error is None:
                # Only the removal of the sidecar may fail without an error: losing it does no harm.
                assert flushes.seen[number - 1].startswith("__recovery")
                assert after != before or write.operation is Operation.INDEX
                break
            assert isinstance(error, FlushFailedError), (flushes.seen[number - 1], error)
            undone += isinstance(error, WriteUndoneError)
            assert after == before, flushes.seen[number - 1]
            graph.refresh()
            assert_whole(graph)
        assert (failed, undone) == FLUSHED[str(write)]
        graph.refresh()
        assert_whole(graph)
    with open(place) as reopened:
        assert_whole(reopened)
        put(reopened, ["next"], NODES, branch=write.branch)


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_visible_publish_is_undone_by_the_next_commit(place: Path, flushes: Flushes, branch: str) -> None:
    with prepared(place) as graph:
        head = graph.snapshot(branch=branch).commit
        versions = f"{table_directory('__manifest', graph.snapshot(branch=branch).manifest.ledger.branch)}/_versions/"
        with flushes.failing_in(versions), pytest.raises(WriteUndoneError, match="undone") as caught:
            put(graph, ["new"], PAIR, branch=branch, idempotency_key="once", actor="act-kim")
        assert not caught.value.retryable
        assert contents(graph, branch) == {key: sorted(SEED) for key in contents(graph)}
        undo, undone, *rest = graph.commits.list(branch=branch).commits
        assert (undo.actor, undone.actor, rest[0].id) == (RECOVERY_ACTOR, "act-kim", head.id)
        (record,) = graph.recovery.list()
        assert (record.kind, record.actor, record.commit_id) == (RecoveryKind.ROLLED_BACK, "act-kim", undo.id)
        assert {table.key for table in record.tables} == set(PAIR)
        again = put(graph, ["new"], PAIR, branch=branch, idempotency_key="once")
        assert ids(graph, branch=branch) == sorted([*SEED, "new"])
        assert put(graph, ["new"], PAIR, branch=branch, idempotency_key="once").id == again.id
        assert_whole(graph)


def test_a_visible_schema_change_with_a_failed_flush_is_undone(place: Path, flushes: Flushes) -> None:
    """New types are removed, and dropped and renamed types are restored."""
    other = SCHEMA.replace("node C", "node D").replace("-> C", "-> D") + "node E { k: String @key }\n"
    with create(place) as graph:
        before = graph.snapshot()
        with flushes.failing_in("__manifest/_versions/"), pytest.raises(WriteUndoneError):
            evolve_to(graph, other, ["new"])
        after = graph.refresh()
        assert after.schema_hash == before.schema_hash
        assert list(after.tables) == list(before.tables)
        assert {key: pin.id for key, pin in after.tables.items()} == {k: p.id for k, p in before.tables.items()}
        assert contents(graph) == {key: sorted(SEED) for key in contents(graph)}
        assert_whole(graph)
        evolve_to(graph, other, ["new"])
        assert ids(graph) == sorted([*SEED, "new"])
        assert_whole(graph)


@pytest.mark.slow
def test_another_process_undoes_a_write_that_is_marked_for_roll_back(
    place: Path, flushes: Flushes, children: Children
) -> None:
    """It finds all tables at the versions of the sidecar, and still undoes the write."""
    with create(place) as graph:
        with (
            flushes.failing_in("/data/"),
            armed(Failpoint.RECOVERY_STARTED, "crash"),
            pytest.raises(SimulatedCrashError),
        ):
            put(graph, ["new"], PAIR)
        (sidecar,) = pending(graph.session.store.objects)
        assert sidecar.rollback_only
        children.run("write", uri=str(place), writes=[("node:C", "append", ["next"])]).ok()
        assert ids(graph) == ids(graph, "node:B") == sorted(SEED)
        assert [record.kind for record in graph.recovery.list()] == [RecoveryKind.ROLLED_BACK]
        assert_whole(graph)


def test_a_visible_publish_is_undone_by_another_process(place: Path, flushes: Flushes) -> None:
    with create(place) as graph:
        with (
            flushes.failing_in("__manifest/_versions/"),
            armed(Failpoint.RECOVERY_STARTED, "crash"),
            pytest.raises(SimulatedCrashError),
        ):
            put(graph, ["new"], PAIR)
        assert ids(graph) == sorted([*SEED, "new"]), "it is visible, and nobody was told so"
    with open(place) as reopened:
        assert ids(reopened) == sorted(SEED)
        assert_whole(reopened)


def test_recovery_with_a_failed_flush_rolls_back(place: Path, flushes: Flushes) -> None:
    """It was rolling a write forward, and marks the sidecar as roll-back-only instead."""
    for part in ("nodes/", "__manifest/data", "__manifest/_versions/"):
        with create(place / part.replace("/", "-")) as graph:
            with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
                put(graph, ["new"], PAIR)
            with flushes.failing_in(part):
                graph.refresh()
            assert ids(graph) == ids(graph, "node:B") == sorted(SEED), part
            assert [record.kind for record in graph.recovery.list()] == [RecoveryKind.ROLLED_BACK]
            assert_whole(graph)


def test_recovery_publishes_again_if_it_cannot_flush_the_manifest_of_a_crashed_writer(
    place: Path, flushes: Flushes
) -> None:
    """The write may be acknowledged, so it stays. Its manifest cannot be flushed, so recovery publishes it again."""
    with create(place) as graph:
        with armed(Failpoint.PUBLISHED, "crash"), pytest.raises(SimulatedCrashError):
            put(graph, ["new"], PAIR)
        published = graph.snapshot()
        with flushes.failing_in("__manifest/_versions/"):
            graph.refresh()
        assert ids(graph) == sorted([*SEED, "new"])
        assert graph.snapshot().commit.parent == published.commit.id
        assert [record.kind for record in graph.recovery.list()] == [RecoveryKind.ROLLED_FORWARD]
        assert_whole(graph)


def test_a_failed_flush_is_remembered_until_its_mark_is_written(place: Path, flushes: Flushes) -> None:
    """Until then recovery does not finish the write, and this process remembers the failed flush."""
    with create(place) as graph:

        def broken(path: str, _: int) -> bool:
            """Fail the flush of a data file, then that of the mark, the second file in the directory of sidecars."""
            return "/data/" in path or sum(seen.startswith("__recovery/.og-tmp") for seen in flushes.seen) > 1

        with flushes.failing(broken), pytest.raises(RecoveryRequiredError):
            put(graph, ["new"], PAIR)
        (sidecar,) = pending(graph.session.store.objects)
        assert not sidecar.rollback_only
        assert sidecar.operation_id in distrust_module._unmarked
        graph.refresh()
        assert distrust_module._unmarked == set()
        assert ids(graph) == sorted(SEED)
        assert_whole(graph)


def test_no_write_is_acknowledged_while_every_flush_fails(place: Path, flushes: Flushes) -> None:
    """No write is acknowledged. When the disk works again, the same handle can write."""
    with create(place) as graph:
        for _ in range(3):
            with flushes.failing(lambda path, _: not path.startswith("__lease")), pytest.raises(OmnigraphError):
                put(graph, ["new"], PAIR)
        put(graph, ["next"], PAIR)
        assert ids(graph) == ids(graph, "node:B") == sorted([*SEED, "next"])
        assert sidecars(graph) == []
        assert_whole(graph)


def test_an_undone_merge_can_be_repeated(place: Path, flushes: Flushes) -> None:
    """The branch does not count as merged, because its rows were removed."""
    with prepared(place) as graph:
        put(graph, ["of dev"], PAIR, branch="dev")
        put(graph, ["of main"], PAIR)
        with flushes.failing_in("__manifest/_versions/"), pytest.raises(WriteUndoneError):
            graph.merge("dev")
        assert ids(graph) == sorted([*SEED, "of main"])
        put(graph, ["later"], PAIR)
        graph.merge("dev")
        assert ids(graph) == ids(graph, "node:B") == sorted([*SEED, "of main", "of dev", "later"])
        graph.refresh()
        assert sidecars(graph) == []


# Concurrent actions while the write is visible and not undone yet


ROWS = "query rows() { match { $a: A } return { $a.k, $a.n } order { $a.k } }"


class Beside:
    """Acts at the flush that makes a write visible, and lets that flush fail."""

    def __init__(self, flushes: Flushes, act: Callable[[], None]) -> None:
        self._flushes = flushes
        self._act = act

    def run(self, graph: Graph, mutation: str) -> None:
        met: list[str] = []

        def first(path: str, _: int) -> bool:
            if "__manifest/_versions/" not in path or met:
                return False
            met.append(path)
            self._act()
            return True

        with self._flushes.failing(first), pytest.raises(WriteUndoneError):
            graph.mutate(mutation)


def values(graph: Graph, branch: str = "main") -> dict[str, int | None]:
    return {row["a.k"]: row["a.n"] for row in graph.query(ROWS, branch=branch).to_pylist()}


@pytest.fixture
def two(place: Path, flushes: Flushes) -> Iterator[tuple[Graph, Graph]]:
    """Two handles of a graph with three rows."""
    with init(place, "node A { k: String @key n: I64? tag: String? }") as graph, open(place) as other:
        graph.load({"A": pa.table({"k": SEED, "n": [0, 0, 0]})}, mode="append")
        yield graph, other


def waiting(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[[], None], Thread]:
    """A writer that stages while the other write is visible, and gets the lease after that write was undone."""
    staged = Event()
    stage = attempts._Write._staged

    def watched(self: Any, view: Any) -> Any:
        found = stage(self, view)
        if current_thread() is thread:
            staged.set()
        return found

    def write() -> None:
        with suppress(KeyConflictError):
            act()

    thread = Thread(target=write)

    def begin() -> None:
        thread.start()
        assert staged.wait(PATIENCE)

    monkeypatch.setattr(attempts._Write, "_staged", watched)
    # As in another process: threads of one process take turns, so that they would not write at the same time.
    monkeypatch.setattr("omnigraph.engine.commit.write", attempts.write)
    return begin, thread


def test_an_undone_update_is_not_kept_by_a_writer_that_read_it(
    two: tuple[Graph, Graph], flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, other = two
    tag = 'query w() { update A set { tag: "w" } where k = "s2" }'  # reads the whole row
    begin, thread = waiting(lambda: other.mutate(tag), monkeypatch)
    Beside(flushes, begin).run(graph, "query u() { update A set { n: 2 } where n = 0 }")
    thread.join()
    assert values(graph) == {"s1": 0, "s2": 0, "s3": 0}
    assert graph.query('query t() { match { $a: A { k: "s2" } } return { $a.tag } }').to_pylist() == [{"a.tag": "w"}]


def test_a_row_whose_deletion_was_undone_is_not_inserted_again(
    two: tuple[Graph, Graph], flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, other = two
    again = {"A": pa.table({"k": ["s1"], "n": [9]})}
    begin, thread = waiting(lambda: other.load(again, mode="append"), monkeypatch)
    Beside(flushes, begin).run(graph, 'query d() { delete A where k = "s1" }')
    thread.join()
    assert [row["a.k"] for row in graph.query(ROWS).to_pylist()] == list(SEED)
    assert graph.verify().ok


def test_a_branch_from_an_undone_commit_merges_in_both_directions(two: tuple[Graph, Graph], flushes: Flushes) -> None:
    graph, other = two
    Beside(flushes, lambda: drop(other.branches.create("side"))).run(
        graph, 'query u() { update A set { n: 2 } where k = "s1" }'
    )
    assert (values(graph)["s1"], values(graph, "side")["s1"]) == (0, 2)
    graph.mutate('query i() { insert A { k: "t" } }')
    graph.mutate('query i() { insert A { k: "u" } }', branch="side")
    graph.merge("main", "side")
    assert values(graph, "side") == {"s1": 0, "s2": 0, "s3": 0, "t": None, "u": None}
    graph.merge("side", "main")
    assert values(graph) == values(graph, "side")
    assert_whole(graph)


def test_cleanup_keeps_the_versions_that_a_roll_back_needs(two: tuple[Graph, Graph], flushes: Flushes) -> None:
    graph, other = two
    Beside(flushes, lambda: drop(other.cleanup(keep=0, orphans_older_than=timedelta(0)))).run(
        graph, 'query u() { update A set { n: 2 } where k = "s1" }'
    )
    assert values(graph) == {"s1": 0, "s2": 0, "s3": 0}
    assert_whole(graph)


def drop(_: object) -> None:
    """Call a function and ignore its result."""
