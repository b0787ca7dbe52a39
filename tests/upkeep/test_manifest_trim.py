"""Cleanup removes the manifest versions of the commits that it removes, and no late publish can take their place."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from tests.commit.child import Children
from tests.commit.conftest import _no_fsync, children, parent
from tests.commit.matrix import CLEANUP_POINTS
from tests.commit.test_manifest import publish
from tests.s3_server import S3Root
from tests.thresholds import Thresholds
from tests.upkeep.test_cleanup import NOW, SCHEMA, live_through, people, root, states
from tests.upkeep.test_cleanup_concurrency import Paused, add, check_all, history, names
from tests.upkeep.test_cleanup_concurrency import graph as concurrent_graph
from ulid_transform import ulid_now

from omnigraph.commit import manifest_successor
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.lineage import commits, find_in
from omnigraph.commit.manifest import Change, Commit, Manifest
from omnigraph.commit.manifest_successor import successor
from omnigraph.commit.refs import list_branch_refs
from omnigraph.commit.snapshots import at_version
from omnigraph.commit.store import Store
from omnigraph.errors import (
    BranchNotFoundError,
    DamagedFileError,
    LeaseLostError,
    OmnigraphError,
    ReadSetChangedError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph, init, open, repair
from omnigraph.storage.staged import TableConflictError
from omnigraph.storage.table_ref import manifest_name

__all__ = ["_no_fsync", "children", "concurrent_graph", "parent"]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with init(tmp_path / "g", SCHEMA) as made:
        yield made


def files(graph: Graph, below: str = "__manifest") -> dict[str, int]:
    place = root(graph) / below
    return {str(file.relative_to(place)): file.stat().st_size for file in place.rglob("*") if file.is_file()}


def versions(graph: Graph, branch: str = "main") -> list[int]:
    store = graph.session.store
    return store.manifest.versions(store.ledger_of(branch))


def version_file(graph: Graph, version: int) -> Path:
    return root(graph) / "__manifest/_versions" / manifest_name(version)


def stale_view(graph: Graph) -> Manifest:
    """The state of `main` before several commits. Cleanup has removed the manifest versions after it."""
    store = graph.session.store
    view = store.capture("main")
    for number in range(5):
        people(graph, f"later {number}")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    assert view.version + 1 not in versions(graph)
    return view


def following(view: Manifest) -> Commit:
    """A commit after a state."""
    return replace(view.head, id=ulid_now(), parent=view.head.id, manifest_version=view.version + 1)


# Which versions stay


def test_manifest_versions_are_removed_with_their_commits(graph: Graph) -> None:
    for number in range(20):
        people(graph, f"p{number}")
    made = [commit.id for commit in graph.commits.list().commits]
    before = files(graph)
    said = graph.cleanup(keep=5, orphans_older_than=NOW, preview=True)
    assert files(graph) == before
    done = graph.cleanup(keep=5, orphans_older_than=NOW)
    assert done.manifest == said.manifest
    head = graph.session.store.capture("main").version
    assert versions(graph) == list(range(head - 4, head + 1))
    assert done.manifest.old_versions_removed == len(made) - 5
    assert done.manifest.bytes_removed == sum(before.values()) - sum(files(graph).values())
    # For each version there are its file, its transaction and its state, and one hint.
    assert len(files(graph)) == 3 * 5 + 1
    assert [commit.id for commit in graph.commits.list().commits] == made, "the history itself stays"
    with open(graph.uri) as fresh:
        for number, commit in enumerate(made):
            if number < 5:
                assert fresh.snapshot(commit=commit).pin("node:Person").row_count == 20 - number
            else:
                with pytest.raises(VersionReclaimedError):
                    fresh.snapshot(commit=commit)
        assert fresh.verify().ok
    assert graph.cleanup(keep=5, orphans_older_than=NOW).bytes_removed == 0


def test_the_two_newest_versions_always_stay(graph: Graph) -> None:
    for number in range(5):
        people(graph, f"p{number}")
    graph.cleanup(keep=0, orphans_older_than=NOW)
    head = graph.session.store.capture("main").version
    assert versions(graph) == [head - 1, head]


def test_tags_starts_of_branches_and_pins_keep_their_manifest_versions(graph: Graph) -> None:
    for number in range(10):
        people(graph, f"p{number}")
    made = list(reversed(graph.commits.list().commits))
    graph.tags.create("v", commit=made[2].id)
    graph.branches.create("dev", commit=made[4].id)
    with graph.pin(at=made[6].id):
        graph.cleanup(keep=1, orphans_older_than=NOW)
        head = graph.session.store.capture("main").version
        wanted = [made[number].manifest_version for number in (2, 4, 6)]
        assert versions(graph) == [*wanted, head - 1, head]
    graph.cleanup(keep=1, orphans_older_than=NOW)
    assert versions(graph) == [*wanted[:2], head - 1, head]
    assert graph.query("query q() { match { $p: Person } return { count($p) as n } }", at="v").to_pylist() == [{"n": 2}]
    people(graph, "on dev", branch="dev")
    assert graph.merge("dev").outcome.value == "merged"
    assert graph.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_readable_state_stays_readable_in_random_histories(graph: Graph, seed: int) -> None:
    chance = Random(seed)
    live_through(graph, chance, 25)
    keep = chance.choice([0, 1, 3])
    before = states(graph, keep)
    lists = {name: graph.commits.list(branch=name).commits for name in graph.session.store.branch_names()}
    assert graph.cleanup(keep=keep, orphans_older_than=NOW).errors == ()
    store = graph.session.store
    tagged = {(tag.ledger, tag.manifest_version) for tag in graph.tags}
    starts = {(ref.parent_ledger, ref.parent_version) for ref in list_branch_refs(store.objects).values()}
    with open(graph.uri) as fresh:
        assert states(fresh, keep) == before
        for name, made in lists.items():
            assert fresh.commits.list(branch=name).commits == made
            assert fresh.verify(branch=name).ok
            head = store.capture(name)
            ledger = head.ledger.branch
            must = {head.version, head.version - 1} | {v for at, v in tagged | starts if at == ledger}
            must |= {c.manifest_version for c in made[:keep] if c.ledger == ledger}
            there = set(versions(graph, name))
            assert must & set(range(min(there), head.version + 1)) <= there
            # All other versions are merge bases.
            assert len(there - must) <= len(lists) + len(tagged)
    assert graph.cleanup(keep=keep, orphans_older_than=NOW).bytes_removed == 0


def test_deleted_branches_keep_only_the_merge_bases_that_are_needed(graph: Graph) -> None:
    graph.branches.create("dev")
    for number in range(6):
        people(graph, f"d{number}", branch="dev")
    graph.branches.create("side", commit=graph.snapshot(branch="dev").commit.id)
    ledger = graph.session.store.ledger_of("dev")
    graph.merge("dev")
    people(graph, "on side", branch="side")
    graph.branches.delete("side")
    graph.branches.delete("dev")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    assert graph.session.store.manifest.versions(ledger) == []
    assert graph.verify().ok


# Cost


@pytest.mark.slow
def test_files_and_bytes_of_the_manifest_do_not_grow_with_the_number_of_commits(
    graph: Graph, thresholds: Thresholds
) -> None:
    """The history is in parts whose number grows with its logarithm."""
    thresholds(manifest_successor, TAIL_COMMITS=8, FAN_IN=3)
    sizes = []
    for _ in range(4):
        for _ in range(40):
            publish(graph.session.store)
        graph.cleanup(keep=2, orphans_older_than=NOW)
        sizes.append(len(files(graph)))
    assert max(sizes) <= min(sizes) + 8
    assert len(list(commits(graph.session.store.capture("main")))) == 161


# Late publishes


def test_a_publish_on_a_removed_version_is_refused_and_leaves_nothing(graph: Graph) -> None:
    """Lance alone accepts it: the number of the next version is free again."""
    view = stale_view(graph)
    store = graph.session.store
    head = store.capture("main")
    next_ = successor(view, Change(), view.head, view.fence)
    made = store.manifest.publish(view.ledger, next_.keep, next_.add)
    assert made.version == view.version + 1, "the compare-and-swap of Lance does not see removed versions"
    version_file(graph, made.version).unlink()
    with store.exclusive("main") as held, pytest.raises((LeaseLostError, ReadSetChangedError)):
        store.publish(view, Change(), following(view), held)
    assert view.version + 1 not in versions(graph)
    assert store.capture("main").version == head.version
    with open(graph.uri) as fresh:
        assert fresh.snapshot().commit == head.head
        people(fresh, "after")


def test_a_branch_is_not_closed_by_a_late_version(graph: Graph) -> None:
    graph.branches.create("dev")
    store = graph.session.store
    view = store.capture("dev")
    for number in range(4):
        people(graph, f"d{number}", branch="dev")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    with store.exclusive("dev") as held, pytest.raises(ReadSetChangedError):
        store.close_branch(view, held)
    assert graph.snapshot(branch="dev").pin("node:Person").row_count == 4
    people(graph, "after", branch="dev")


def test_a_late_publish_to_a_deleted_and_removed_branch_is_refused(graph: Graph) -> None:
    graph.branches.create("dev")
    people(graph, "a", branch="dev")
    store = graph.session.store
    view = store.capture("dev")
    with store.exclusive("dev") as held:
        fence = held
    graph.branches.delete("dev")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    assert not any("tree" in name for name in files(graph))
    with pytest.raises(BranchNotFoundError):
        store.publish(view, Change(), following(view), fence)
    assert not any(name.endswith(".manifest") for name in files(graph) if name.startswith("tree"))
    graph.branches.create("dev")
    people(graph, "b", branch="dev")


def test_a_version_that_a_killed_late_writer_left_is_never_read(graph: Graph) -> None:
    """It was killed between the publish and the check of it."""
    view = stale_view(graph)
    store = graph.session.store
    next_ = successor(view, Change(), following(view), view.fence)
    made = store.manifest.publish(view.ledger, next_.keep, next_.add)
    head = store.capture("main")
    with open(graph.uri) as fresh:
        assert fresh.snapshot().commit.id == head.head.id
        with pytest.raises(VersionReclaimedError):
            at_version(fresh.session.store, "main", made.version)
        assert fresh.verify().ok
    graph.cleanup(keep=1, orphans_older_than=NOW)
    assert made.version not in versions(graph)


def test_a_late_creation_of_a_graph_does_not_replace_version_1(graph: Graph) -> None:
    people(graph, "a")
    people(graph, "b")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    assert 1 not in versions(graph)
    store = graph.session.store
    view = store.capture("main").ledger
    found: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store.manifest), "open", lambda self, *args: found.append(args))  # paused after this check
        with pytest.raises((TableConflictError, OmnigraphError)):
            store.manifest.create(view.schema, view.read_part(0))
    assert found
    with open(graph.uri) as fresh:
        assert fresh.snapshot().pin("node:Person").row_count == 2


@pytest.mark.slow
@pytest.mark.parametrize("point", [Failpoint.TABLES_COMMITTED, Failpoint.BEFORE_PUBLISH])
def test_a_writer_paused_before_its_publish_loses_no_acknowledged_write(
    concurrent_graph: Graph, children: Children, point: Failpoint
) -> None:
    graph = concurrent_graph
    add(graph, "first")
    sign = Path(f"{root(graph)}.held")
    text = 'query q() { insert A { k: "slow" }  insert B { k: "slow" } }'
    pid = children.start("mutate", failpoint=f"{point}=hold:{sign}", uri=graph.uri, text=text, params={}, ttl=0.5)
    while not sign.exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.6)  # its lease expires
    for number in range(4):
        add(graph, f"other {number}")
    for _ in range(2):
        assert graph.cleanup(keep=1, orphans_older_than=NOW).errors == ()
    head = graph.session.store.capture("main")
    assert len(versions(graph)) == 2
    sign.unlink()
    os.kill(pid, signal.SIGCONT)
    ending = children.wait(pid)
    with open(graph.uri) as fresh:
        shown = names(fresh)
        assert {"first", *(f"other {number}" for number in range(4))} <= set(shown)
        assert find_in(fresh.session.store.capture("main"), head.head.id) is not None
        if ending.error is None:
            assert shown.count("slow") == 1
    check_all(graph)


@pytest.mark.slow
@pytest.mark.parametrize("point", CLEANUP_POINTS)
def test_a_cleanup_killed_at_any_step_leaves_a_readable_manifest(
    concurrent_graph: Graph, children: Children, point: Failpoint
) -> None:
    graph = concurrent_graph
    made = history(graph, 6)
    job = {"uri": graph.uri, "keep": 2, "orphans": 0}
    assert children.run("cleanup", failpoint=f"{point}=kill", **job).signal == signal.SIGKILL
    with open(graph.uri) as fresh:
        assert fresh.verify().ok, "a removal in progress is no damage"
        for commit in made[-2:]:
            assert names(fresh, at=commit)
    graph.cleanup(keep=2, orphans_older_than=NOW)
    assert len(versions(graph)) == 2
    transactions = [name for name in files(graph) if name.startswith("_transactions")]
    assert len(transactions) == 2
    check_all(graph)


@pytest.mark.slow
def test_a_paused_cleanup_that_continues_late_removes_no_newer_version(
    concurrent_graph: Graph, children: Children
) -> None:
    graph = concurrent_graph
    history(graph, 4)
    child = Paused(graph, children, Failpoint.CLEANUP_DECIDED)
    time.sleep(0.6)
    for number in range(3):
        add(graph, f"meanwhile {number}")
    tagged = graph.snapshot().commit.id
    graph.tags.create("now", commit=tagged)
    add(graph, "last")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    there = versions(graph)
    assert child.go_on().ok() is not None
    assert versions(graph) == there
    assert "meanwhile 2" in names(graph, at="now")
    check_all(graph)


# Readers


def test_a_reader_of_a_removed_version_gets_version_reclaimed(graph: Graph, thresholds: Thresholds) -> None:
    """Its parts are merged into larger ones and removed. This is not damage."""
    thresholds(manifest_successor, TAIL_COMMITS=3, FAN_IN=3)
    for _ in range(10):
        publish(graph.session.store)
    with open(graph.uri) as reader:
        view = reader.session.store.capture("main")
        for _ in range(60):
            publish(graph.session.store)
        graph.cleanup(keep=1, orphans_older_than=NOW)
        with pytest.raises(VersionReclaimedError):
            list(commits(view))
        assert len(list(commits(reader.session.store.capture("main")))) == 71


@pytest.mark.slow
def test_readers_and_keyed_writers_work_beside_a_loop_of_cleanups(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(manifest_successor, TAIL_COMMITS=3, FAN_IN=3)
    stop = Event()
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)
                stop.set()

        thread = Thread(target=run)
        thread.start()
        return thread

    def clean() -> None:
        with open(graph.uri) as handle:
            while not stop.is_set():
                handle.cleanup(keep=1, orphans_older_than=NOW)

    def read() -> None:
        with open(graph.uri, read_only=True) as handle:
            while not stop.is_set():
                with suppress(VersionReclaimedError):  # a commit of the listing was removed
                    assert handle.commits.list().commits[0].id
                    handle.snapshot().pin("node:Person")

    threads = [guarded(clean), guarded(read)]
    made = []
    for number in range(40):
        text = "query q($n: String) { insert Person { name: $n } }"
        made.append(graph.mutate(text, {"n": f"p{number}"}, idempotency_key=f"k{number}").commit)
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(set(made)) == 40
    again = graph.mutate("query q($n: String) { insert Person { name: $n } }", {"n": "p3"}, idempotency_key="k3")
    assert again.commit == made[3], "idempotency keys outlive the versions"
    assert graph.snapshot().pin("node:Person").row_count == 40


# Damage


def test_repair_goes_back_to_the_version_before_a_damaged_one_after_a_cleanup(graph: Graph) -> None:
    for number in range(5):
        people(graph, f"p{number}")
    graph.cleanup(keep=2, orphans_older_than=NOW)
    head = graph.session.store.capture("main")
    graph.close()
    version_file(graph, head.version).write_bytes(b"")
    with pytest.raises(DamagedFileError):
        open(graph.uri)
    repair(graph.uri, confirm=True, force=True)
    with open(graph.uri) as repaired:
        assert repaired.verify().ok
        people(repaired, "after")


def test_repair_never_reuses_the_number_of_a_removed_version(graph: Graph) -> None:
    people(graph, "a")
    graph.tags.create("v")
    for number in range(5):
        people(graph, f"p{number}")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    head = graph.session.store.capture("main").version
    graph.close()
    for version in (head, head - 1):
        version_file(graph, version).write_bytes(b"")
    report = repair(graph.uri, confirm=True, force=True)
    assert any("cleanup has removed" in str(row.error) for row in report.rows)
    assert version_file(graph, head).exists()


def test_verify_reports_a_lost_version_but_not_a_removed_one(graph: Graph) -> None:
    people(graph, "a")
    graph.tags.create("v")
    tagged = graph.snapshot().manifest_version
    for number in range(8):
        people(graph, f"p{number}")
    graph.cleanup(keep=4, orphans_older_than=NOW)
    assert graph.verify().ok
    head = graph.session.store.capture("main").version
    for version in (tagged, head - 2):
        kept = version_file(graph, version).read_bytes()
        version_file(graph, version).unlink()
        with open(graph.uri) as fresh:
            found = fresh.verify()
        assert not found.ok
        assert any(manifest_name(version) in damage.path for damage in found.files.damages)
        version_file(graph, version).write_bytes(kept)


def test_the_transaction_that_created_a_branch_is_no_sign_of_a_lost_version(graph: Graph) -> None:
    people(graph, "a")
    graph.branches.create("dev")
    graph.branches.create("child", source="dev")  # so that the first version of the branch stays
    for number in range(5):
        people(graph, f"p{number}", branch="dev")
    graph.cleanup(keep=1, orphans_older_than=NOW)
    assert len(versions(graph, "dev")) == 3
    with open(graph.uri) as fresh:
        assert fresh.verify(branch="dev").ok


# Copies


def test_a_backup_continues_after_its_state_was_removed_here(graph: Graph, tmp_path: Path) -> None:
    people(graph, "a")
    target = tmp_path / "copy"
    graph.backup(target)
    for number in range(6):
        people(graph, f"p{number}")
    graph.cleanup(keep=2, orphans_older_than=NOW)
    graph.backup(target)
    with open(target) as copy:
        assert copy.snapshot().commit == graph.snapshot().commit
        assert copy.verify().ok
        copy.cleanup(keep=1, orphans_older_than=NOW)
        assert len(versions(copy)) == 2
        assert copy.verify().ok


# S3


@pytest.mark.slow
@pytest.mark.s3
def test_manifest_versions_are_removed_in_s3_and_late_publishes_are_refused(s3_root: S3Root) -> None:
    with init(s3_root.uri, SCHEMA, storage_options=s3_root.options) as graph:
        store: Store = graph.session.store
        for number in range(6):
            people(graph, f"p{number}")
        view = store.capture("main")
        for number in range(6):
            people(graph, f"q{number}")
        graph.cleanup(keep=2, orphans_older_than=NOW)
        assert len(store.manifest.versions()) == 2
        head = store.capture("main")
        with store.exclusive("main") as held, pytest.raises((LeaseLostError, ReadSetChangedError)):
            store.publish(view, Change(), following(view), held)
        assert store.manifest.versions() == [head.version - 1, head.version]
        with open(s3_root.uri, storage_options=s3_root.options) as fresh:
            assert fresh.snapshot().commit == head.head
            people(fresh, "after")
            assert fresh.verify().ok


@pytest.mark.parametrize("point", [Failpoint.BRANCH_CLOSED, Failpoint.BRANCH_RESET_CLOSED])
def test_the_start_of_a_branch_whose_delete_or_reset_was_interrupted_is_not_missing(
    tmp_path: Path, point: Failpoint
) -> None:
    with init(tmp_path / "graph", "node A { k: String @key  n: I64? }\nnode B { k: String @key  n: I64? }") as graph:
        graph.branches.create("dev")
        add(graph, "a", branch="dev")
        for name in "bcde":
            add(graph, name)
        middle = graph.branch("main").head.id
        interrupted: dict[Failpoint, Callable[[], object]] = {
            Failpoint.BRANCH_CLOSED: lambda: graph.branches.delete("dev"),
            Failpoint.BRANCH_RESET_CLOSED: lambda: graph.branches.reset("dev", middle),
        }
        with armed(point, "crash"), pytest.raises(SimulatedCrashError):
            interrupted[point]()
        for tag in graph.tags:
            graph.tags.delete(tag.name)
        add(graph, "f")
        graph.cleanup(keep=1, orphans_older_than=NOW)
        assert graph.verify().ok
    with open(tmp_path / "graph") as fresh:
        assert fresh.verify().ok
