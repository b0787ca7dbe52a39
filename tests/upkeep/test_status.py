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

from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.errors import InputError, ReadOnlyError
from omnigraph.graph import Graph, init, open
from omnigraph.settings import UPKEEP_FRAGMENTS
from omnigraph.upkeep.status import Thresholds

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
