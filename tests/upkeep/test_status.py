"""`status` shows the condition of a graph, and `upkeep` runs what it demands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import lance
import pyarrow as pa
import pytest
from tests.commit.conftest import _no_fsync
from tests.patience import PATIENCE

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.embed.mock import MockEmbedder
from omnigraph.engine import maintenance
from omnigraph.errors import BranchNotFoundError, InputError, ReadOnlyError, VersionReclaimedError
from omnigraph.graph import Graph, init, open
from omnigraph.settings import UPKEEP_FRAGMENTS
from omnigraph.storage.table_ref import table_directory
from omnigraph.upkeep import status as examining
from omnigraph.upkeep.reachable import Refs, heads_of
from omnigraph.upkeep.status import GraphStatus, Thresholds

__all__ = ["_no_fsync"]

SCHEMA = "node P { name: String @key  n: I64? @index }\nnode Q { name: String @key }\n"
NOW = timedelta(0)
EAGER = Thresholds(fragments=3, unindexed=10_000, versions=5, keep=2, older_than=NOW)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with init(tmp_path / "g", SCHEMA) as made:
        yield made


def add(graph: Graph, *names: str, branch: str = "main") -> None:
    graph.load({"P": pa.table({"name": list(names), "n": [1] * len(names)})}, mode="append", branch=branch)


def test_the_numbers_are_those_of_the_files(graph: Graph) -> None:
    for number in range(4):
        add(graph, f"a{number}", f"b{number}")
    graph.mutate('query q() { delete P where name = "a1" }')
    graph.ensure_indexes()
    add(graph, "late")
    found = graph.status()
    (main,) = found.branches
    table = next(table for table in main.tables if table.type_key == "node:P")
    pin = graph.snapshot().pin("node:P")
    dataset = lance.dataset(str(Path(graph.uri) / pin.ref.path))
    assert table.rows == dataset.count_rows() == 8
    assert table.fragments == table.small_fragments == len(dataset.get_fragments())
    assert table.versions == len(dataset.versions())
    assert table.deleted_rows == sum(f.num_deletions for f in dataset.get_fragments()) == 1
    assert table.unindexed_rows == 1
    data = Path(graph.uri) / pin.ref.path
    named = {file.path for f in dataset.get_fragments() for file in f.metadata.files}
    assert table.bytes == sum((data / "data" / name).stat().st_size for name in named)
    assert table.bytes_on_disk == sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    assert main.commits == len(graph.commits.list().commits)
    manifest = Path(graph.uri) / "__manifest"
    assert found.manifest_bytes == sum(file.stat().st_size for file in manifest.rglob("*") if file.is_file())
    assert found.manifest_versions == len(list((manifest / "_versions").glob("*.manifest")))
    assert (found.pending, found.work, found.advice) == ((), (), ())
    assert json.loads(json.dumps(found.to_json()))["branches"][0]["name"] == "main"


def test_branches_and_tags_that_hold_space_are_named(graph: Graph) -> None:
    add(graph, *(f"a{number}" for number in range(500)))
    graph.tags.create("v")
    graph.branches.create("dev")
    graph.load({"P": pa.table({"name": ["only"], "n": [2]})}, mode="overwrite")
    shared = graph.status()
    assert shared.tags[0].bytes_held == 0, "the branch needs the same files"
    add(graph, *(f"d{number}" for number in range(300)), branch="dev")
    held = {branch.name: branch.bytes_held for branch in graph.status().branches}
    assert held["dev"] > 1000
    assert held["main"] > 0
    graph.branches.delete("dev")
    (tag,) = graph.status().tags
    assert tag.bytes_held > 1000
    tables = {table.type_key: table for table in shared.branches[1].tables}
    assert tables["node:Q"].shared


def test_pending_writes_and_running_work_are_shown(graph: Graph) -> None:
    with armed(Failpoint.TABLES_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
        add(graph, "a")
    with at_work(graph.session.store.leases, WorkKind.LOAD), open(graph.uri, read_only=True) as reader:
        found = reader.status()
    assert len(found.pending) == 1
    assert found.work[0].startswith("load ")
    assert "recovery list" in found.advice[0].command
    graph.upkeep()
    assert graph.status().pending == ()


def test_the_advice_names_the_command_and_the_reason(graph: Graph) -> None:
    graph.branches.create("dev")
    for number in range(8):
        add(graph, f"a{number}")
        add(graph, f"a{number}", branch="dev")
    advice = graph.status(EAGER).advice
    assert [one.command.split(graph.uri)[0] + one.command.split(graph.uri)[1] for one in advice] == [
        "omnigraph optimize ",
        "omnigraph optimize  --branch dev",
        "omnigraph cleanup  --keep 2 --older-than 0s --confirm",
    ]
    assert "node:P has 8 small files" in advice[0].reason
    assert "commits can be removed" in advice[2].reason


def test_all_parts_of_a_status_can_be_imported(graph: Graph) -> None:
    graph.tags.create("v")
    add(graph, "a")
    found = graph.status(Thresholds(versions=0, keep=0, older_than=NOW, unindexed=0))
    assert isinstance(found, omnigraph.GraphStatus)
    assert {type(one) for one in found.branches} == {omnigraph.BranchStatus}
    assert {type(one) for one in found.branches[0].tables} == {omnigraph.TableStatus}
    assert {type(one) for one in found.tags} == {omnigraph.TagStatus}
    assert {type(one) for one in found.advice} == {omnigraph.Advice}


def test_upkeep_does_what_is_due_and_then_nothing(graph: Graph) -> None:
    graph.branches.create("dev")
    for number in range(8):
        add(graph, f"a{number}")
        add(graph, f"a{number}", branch="dev")
    before = {branch: b"".join(graph.export(branch=branch)) for branch in ("main", "dev")}
    done = graph.upkeep(EAGER)
    assert [branch for branch, _ in done.optimized] == ["main", "dev"]
    assert done.cleanup is not None
    assert done.cleanup.versions_removed > 0
    assert done.cleanup.manifest.old_versions_removed > 0
    assert {branch: b"".join(graph.export(branch=branch)) for branch in ("main", "dev")} == before
    assert graph.upkeep(EAGER).is_idle
    assert graph.status(EAGER).advice == ()
    for branch in before:
        assert graph.verify(branch=branch).ok


@pytest.mark.parametrize("event", ["branch deleted", "versions removed"])
def test_a_status_survives_a_cleanup_that_removes_what_it_reads(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    graph.branches.create("dev")
    for number in range(3):
        add(graph, f"a{number}")
        add(graph, f"d{number}", branch="dev")
    raced: list[str] = []
    rounds: list[str] = []

    def race(store: Store, refs: Refs) -> dict[str, Manifest]:
        found = heads_of(store, refs)
        if not raced:
            raced.append(event)
            rounds.append(event)
            with open(graph.uri) as other:
                if event == "branch deleted":
                    other.branches.delete("dev")
                else:
                    add(other, f"late{len(rounds)}")
                    other.optimize()
                other.cleanup(keep=0, orphans_older_than=NOW)
        return found

    monkeypatch.setattr(examining, "heads_of", race)
    with open(graph.uri) as reader:
        found = reader.status()
    assert raced == [event]
    main, *others = found.branches
    assert [one.name for one in others] == ([] if event == "branch deleted" else ["dev"])
    assert main.head == graph.snapshot().commit.id
    raced.clear()
    event = "versions removed"
    with open(graph.uri) as watcher:
        report = next(watcher.watch_upkeep(Event(), thresholds=Thresholds()))
    assert (report.error, raced) == (None, [event])


def test_watching_goes_on_after_a_version_was_removed(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([VersionReclaimedError("removed"), BranchNotFoundError("dev")])

    def failing(*_: object) -> GraphStatus:
        for error in failures:
            raise error
        return real(graph.session)

    real = maintenance.status
    monkeypatch.setattr(maintenance, "status", failing)
    rounds = graph.watch_upkeep(Event(), interval=0)
    assert [next(rounds).error is None for _ in range(3)] == [False, False, True]


def removed_by(graph: Graph, limits: Thresholds) -> dict[str, int]:
    """The number of commits of each branch whose state a cleanup removes: their manifest versions before and after."""

    def versions(branch: str) -> set[int]:
        ledger = graph.session.store.ledger_of(branch)
        files = Path(graph.uri) / table_directory("__manifest", ledger) / "_versions"
        numbers = {2**64 - 1 - int(file.stem) for file in files.glob("*.manifest")}
        own = {one.manifest_version for one in graph.commits.list(branch=branch).commits if one.ledger == ledger}
        return numbers & own

    branches = [branch.name for branch in graph.branches.list()]
    before = {branch: versions(branch) for branch in branches}
    graph.cleanup(keep=limits.keep, older_than=limits.older_than)
    return {branch: len(before[branch] - versions(branch)) for branch in branches}


def test_kept_commits_do_not_count_as_removable(graph: Graph) -> None:
    """Tags, starts of branches, merge bases and running work keep commits."""
    limits = Thresholds(fragments=100, versions=0, keep=2, older_than=NOW)
    for number in range(3):
        add(graph, f"a{number}")
        graph.tags.create(f"t{number}")
    graph.branches.create("dev")
    add(graph, "d0", branch="dev")
    graph.merge("dev", "main")
    for number in range(3, 6):
        add(graph, f"a{number}")
        add(graph, f"d{number}", branch="dev")
    graph.branches.create("leaf", source="dev")
    graph.branches.delete("leaf")
    for number in range(6, 9):
        add(graph, f"a{number}")
        add(graph, f"d{number}", branch="dev")
    held = graph.snapshot(commit=graph.commits.list().commits[3].id)
    with at_work(graph.session.store.leases, WorkKind.EXPORT, held.manifest):
        expected = {branch.name: branch.removable for branch in graph.status(limits).branches}
        assert removed_by(graph, limits) == expected
        assert min(expected.values()) > 0
        assert [branch.removable for branch in graph.status(limits).branches] == [0, 0]
        assert graph.status(limits).advice == ()
        assert graph.upkeep(limits).is_idle
    after = {branch.name: branch.removable for branch in graph.status(limits).branches}
    assert removed_by(graph, limits) == after == {"main": 1, "dev": 0}


def test_upkeep_of_tagged_commits_is_idle(graph: Graph) -> None:
    for number in range(8):
        add(graph, f"a{number}")
        graph.tags.create(f"t{number}")
    limits = Thresholds(fragments=100, versions=3, keep=1, older_than=NOW)
    assert graph.upkeep(limits).is_idle
    assert graph.status(limits).advice == ()


DOCUMENTS = 'node D { k: String @key  t: String?  u: String?  v: Vector(4)? @embed("t") }'


def test_stale_and_missing_vectors_are_named_until_they_are_computed(tmp_path: Path) -> None:
    with init(tmp_path / "g", DOCUMENTS, embedder=MockEmbedder()) as graph:

        def vectors() -> tuple[tuple[str, ...], tuple[str, ...]]:
            (table,) = graph.status().branches[0].tables
            return table.stale_vectors, table.missing_vectors

        graph.load([{"type": "D", "data": {"k": "a", "t": " "}}], mode="append", embed=False)
        assert vectors() == ((), ()), "a blank text has no vector"
        graph.load([{"type": "D", "data": {"k": "b", "t": "one", "u": "two"}}], mode="append", embed=False)
        assert vectors() == ((), ("v",))
        (advice,) = graph.status().advice
        assert advice.command == f"omnigraph embed {graph.uri}"
        assert advice.reason == "node:D has texts without vectors: v"
        graph.embed()
        assert vectors() == ((), ())
        graph.branches.create("dev")
        graph.schema.apply(DOCUMENTS.replace('@embed("t")', '@embed("u")'))
        assert vectors() == (("v",), ())
        assert [one.command for one in graph.status().advice] == [f"omnigraph embed {graph.uri}"]
        graph.embed()
        assert vectors() == ((), ())
        assert graph.status().advice == ()


def test_given_vectors_are_not_missing(tmp_path: Path) -> None:
    with init(tmp_path / "g", DOCUMENTS, embedder=MockEmbedder()) as graph:
        graph.load([{"type": "D", "data": {"k": "a", "t": "one", "v": [1, 2, 3, 4]}}], mode="append")
        assert graph.status().advice == ()


def test_wrong_thresholds_and_read_only_handles_are_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError):
        Thresholds(fragments=-1)
    with pytest.raises(InputError):
        Thresholds(older_than=timedelta(days=-1))
    monkeypatch.setenv(UPKEEP_FRAGMENTS.name, "many")
    with pytest.raises(InputError, match="OMNIGRAPH_UPKEEP_FRAGMENTS"):
        graph.status()
    with open(graph.uri, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.upkeep(EAGER)


@pytest.mark.slow
def test_several_watchers_beside_writers_lose_nothing(graph: Graph) -> None:
    stop = Event()
    failed: list[BaseException] = []

    def watch() -> None:
        try:
            with open(graph.uri) as handle:
                for _ in handle.watch_upkeep(stop, interval=0.05, thresholds=EAGER):
                    pass
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=watch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(40):
        add(graph, f"a{number}")
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert failed == []
    assert graph.snapshot().pin("node:P").row_count == 40
    assert graph.verify().ok
    assert len(graph.session.store.manifest.versions()) < 40


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_watching_command_stops_cleanly(graph: Graph, number: signal.Signals) -> None:
    for name in range(6):
        add(graph, f"a{name}")
    options = ["--watch", "--every", "1s", "--fragments", "2", "--keep", "1", "--older-than", "0s", "--versions", "0"]
    command = [sys.executable, "-m", "omnigraph.cli.main", "upkeep", graph.uri, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + PATIENCE
        while len(graph.session.store.manifest.versions()) > 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "optimized main" in out
    assert "cleaned up" in out
    assert err.endswith("stopped\n")
    assert graph.recovery.pending() == []
    assert graph.verify().ok
