"""The manifest lists any number of commits in order, and a publish replaces only its state part."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Thread

import pytest
from tests.commit.graphs import SEED, TABLES, Operation, assert_chain, assert_whole, ids, put, table_write
from tests.patience import PATIENCE
from tests.thresholds import Thresholds
from ulid_transform import ulid_now

from omnigraph.commit import manifest_successor
from omnigraph.commit.manifest import Change, Commit, Manifest
from omnigraph.commit.manifest_successor import FAN_IN, TAIL_COMMITS
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.table_writes import TableWrite
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import ConflictError, InputError, PreconditionFailedError, ReadSetChangedError
from omnigraph.graph import Graph, open


def publish(store: Store, branch: str = "main") -> Commit:
    """Publish a commit that changes no table. It writes only the manifest."""
    view = store.capture(branch)
    commit = Commit(ulid_now(), branch, 0, view.head.id, None, "act-kim", max(now_micros(), view.head.created_at + 1))
    with store.exclusive(branch) as held:
        return store.publish(view, Change(), commit, held).head


# A long history


@pytest.mark.slow
def test_a_long_history_keeps_every_commit_in_order(graph: Graph, place: Path) -> None:
    """Older commits are merged into larger parts. None is lost, duplicated or reordered."""
    made = [publish(graph.session.store) for _ in range(5 * TAIL_COMMITS)]
    history = assert_chain(graph)
    assert history[: len(made)] == made[::-1]
    with open(place) as reopened:
        assert assert_chain(reopened) == history
        assert reopened.snapshot().commit == made[-1]
        for number in (0, 1, TAIL_COMMITS - 1, TAIL_COMMITS, TAIL_COMMITS + 1, len(made) - 1):
            assert reopened.commits.get(made[number].id) == made[number]
            assert reopened.snapshot(commit=made[number].id).commit == made[number]
    assert len(graph.session.store.capture("main").ledger.parts) <= FAN_IN
    assert ids(graph) == sorted(SEED)
    assert_whole(graph)


@pytest.mark.slow
def test_merging_history_parts_many_times_keeps_every_commit(graph: Graph, thresholds: Thresholds) -> None:
    """With small parts, a few hundred commits need as many levels as hundreds of thousands do otherwise."""
    thresholds(manifest_successor, TAIL_COMMITS=3, FAN_IN=3)
    made: list[Commit] = []
    widest = 0
    for number in range(330):
        made.append(publish(graph.session.store))
        parts = graph.session.store.capture("main").ledger.parts
        widest = max(widest, len(parts))
        if number % 47 == 0:
            assert assert_chain(graph)[: len(made)] == made[::-1]
    assert assert_chain(graph)[: len(made)] == made[::-1]
    assert widest <= 2 * 6 + 1, "parts grow with the logarithm of the history"


def test_a_branch_shares_the_history_before_it(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(manifest_successor, TAIL_COMMITS=4, FAN_IN=3)
    shared = [publish(graph.session.store) for _ in range(20)]
    graph.branches.create("dev")
    own = [publish(graph.session.store, "dev") for _ in range(20)]
    other = [publish(graph.session.store) for _ in range(20)]
    assert assert_chain(graph, "dev")[:40] == [*own[::-1], *shared[::-1]]
    assert assert_chain(graph)[:40] == [*other[::-1], *shared[::-1]]
    assert graph.commits.get(own[3].id) == own[3]
    assert graph.snapshot(commit=own[3].id).branch == "dev"


def test_commits_are_listed_in_pages(graph: Graph) -> None:
    made = [publish(graph.session.store).id for _ in range(30)]
    pages, cursor = [], None
    while True:
        page = graph.commits.list(limit=7, cursor=cursor)
        pages.append([commit.id for commit in page.commits])
        cursor = page.cursor
        if cursor is None:
            break
    listed = [commit for page in pages for commit in page]
    assert listed[:30] == made[::-1]
    assert len(listed) == len(set(listed)) == 32
    assert all(len(page) == 7 for page in pages[:-1])
    with pytest.raises(InputError):
        graph.commits.list(cursor="nonsense")


# Options of a write


def test_a_commit_records_actor_message_and_labels(graph: Graph) -> None:
    made = put(graph, ["new"], actor="act-kim", message="two words", labels=(("ticket", "7"),))
    for found in (graph.snapshot().commit, graph.commits.get(made.id), graph.commits.list().commits[0]):
        assert found == made
        assert (found.actor, found.message, found.labels) == ("act-kim", "two words", (("ticket", "7"),))


def test_a_write_with_a_wrong_expected_head_is_refused(graph: Graph) -> None:
    head = graph.snapshot().commit
    made = put(graph, ["new"], expect_head=head.id)
    with pytest.raises(PreconditionFailedError) as caught:
        put(graph, ["newer"], expect_head=head.id)
    assert (caught.value.expected, caught.value.actual) == (head.id, made.id)
    assert ids(graph) == sorted([*SEED, "new"])


def test_a_head_that_moves_during_a_write_fails_its_expected_head(graph: Graph, place: Path) -> None:
    """The head moves while the write is prepared: the write is refused and not retried."""
    head = graph.snapshot().commit
    with open(place) as other:

        def prepare(view: object) -> list[object]:
            if graph.snapshot().commit == head:
                put(other, ["first"])
            return [table_write("node:A", Operation.APPEND, ["second"])]

        with pytest.raises(PreconditionFailedError):
            graph.write_tables(WriteRequest(expect_head=head.id), prepare)  # type: ignore[arg-type]
    assert ids(graph) == sorted([*SEED, "first"])
    assert_whole(graph)


def test_a_repeated_idempotency_key_returns_the_first_commit(graph: Graph, place: Path) -> None:
    first = put(graph, ["new"], idempotency_key="k")
    publish(graph.session.store)
    assert put(graph, ["new"], idempotency_key="k") == first
    assert put(graph, ["new"], idempotency_key="k", expect_head="anything") == first, "the first answer, whatever else"
    with open(place) as reopened:
        assert put(reopened, ["new"], idempotency_key="k") == first
        put(reopened, ["newer"], idempotency_key="K")
    assert ids(graph) == sorted([*SEED, "new", "newer"])
    for _ in range(2 * TAIL_COMMITS):
        publish(graph.session.store)
    assert put(graph, ["new"], idempotency_key="k") == first, "though it is long ago"


def test_an_idempotency_key_belongs_to_one_branch(graph: Graph) -> None:
    graph.branches.create("before")
    put(graph, ["new"], idempotency_key="k")
    graph.branches.create("after")
    for _ in range(2):
        put(graph, ["new"], idempotency_key="k", branch="before")
        put(graph, ["own"], idempotency_key="k", branch="after")
    for branch in ("main", "before"):
        assert ids(graph, branch=branch) == sorted([*SEED, "new"])
    assert ids(graph, branch="after") == sorted([*SEED, "new", "own"]), "a fork does not inherit the key"


def test_a_write_without_changes_makes_no_commit(graph: Graph) -> None:
    before = graph.snapshot()
    for operation in (Operation.APPEND, Operation.INSERT, Operation.UPSERT, Operation.DELETE):
        writes = [table_write(key, operation, []) for key in TABLES]
        assert graph.write_tables(WriteRequest(), lambda view, writes=writes: writes) is None  # type: ignore[misc]
    assert graph.snapshot().manifest_version == before.manifest_version
    assert graph.snapshot().tables == before.tables


def test_a_second_operation_on_one_table_is_refused(graph: Graph) -> None:
    twice = [table_write("node:A", Operation.APPEND, ["a"]), table_write("node:A", Operation.UPSERT, ["b"])]
    with pytest.raises(InputError):
        graph.write_tables(WriteRequest(), lambda view: twice)
    with pytest.raises(InputError, match="node:Z"):
        graph.write_tables(WriteRequest(), lambda view: [table_write("node:Z", Operation.APPEND, ["a"])])


def test_a_failed_preparation_leaves_no_files(graph: Graph, place: Path) -> None:
    graph.branches.create("dev")
    before = sorted(place.rglob("*"))

    def prepare(view: object) -> list[object]:
        raise InputError("no")

    for branch in ("main", "dev"):
        with pytest.raises(InputError):
            graph.write_tables(WriteRequest(branch=branch), prepare)  # type: ignore[arg-type]
    assert sorted(place.rglob("*")) == before


# Conflicts


@pytest.mark.parametrize("replayable", [True, False])
def test_a_conflicting_commit_makes_a_write_retry_or_fail(graph: Graph, place: Path, replayable: bool) -> None:
    """A replayable write is prepared again on the new state. Any other write fails with a conflict."""
    views = []
    with open(place) as other:

        def prepare(view: Manifest) -> list[TableWrite]:
            views.append(view.tables["node:A"])  # adds the table to the read set
            if len(views) == 1:
                put(other, ["first"])
            return [table_write("node:A", Operation.APPEND, ["second"])]

        request = WriteRequest(replayable=replayable)
        if replayable:
            graph.write_tables(request, prepare)
            assert len(views) == 2
        else:
            with pytest.raises(ReadSetChangedError) as caught:
                graph.write_tables(request, prepare)
            version = other.snapshot().pin("node:A").ref.version
            said = caught.value
            assert (said.table_key, said.expected, said.actual) == ("node:A", version - 1, version)
            assert isinstance(caught.value, ConflictError)
    assert ids(graph) == sorted([*SEED, "first", *(["second"] if replayable else [])])
    assert_whole(graph)


@pytest.mark.slow
def test_many_threads_can_share_one_handle(graph: Graph) -> None:
    """Eight threads write, read and branch through the same handle."""
    failures: list[BaseException] = []
    barrier = Barrier(8)
    graph.session.store.timeouts.wait = PATIENCE

    def work(number: int) -> None:
        try:
            barrier.wait(PATIENCE)
            for turn in range(6):
                put(graph, [f"t{number}-{turn}"], ["node:A", "node:B"])
                snapshot = graph.snapshot()
                left, right = (sorted(snapshot.scan(key)["id"].to_pylist()) for key in ("node:A", "node:B"))
                assert left == right
                assert f"t{number}-{turn}" in left
            graph.branches.create(f"b{number}")
            put(graph, ["own"], branch=f"b{number}")
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert len(ids(graph)) == len(SEED) + 8 * 6
    assert len(graph.branches.list()) == 9
    assert_whole(graph)
