"""A killed driver leaves its load complete or not at all, and cleanup finds all remaining files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.patience import until
from tests.pipeline.killed_driver import READ, READING
from tests.pipeline.standalone import ROOT
from tests.pipeline.worlds import Outcome, graph_at, numbered, outcome, rows, write
from tests.upkeep.reached import listing, pins, unreached, views

from omnigraph.commit.failpoints import Failpoint
from omnigraph.graph import open

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOTHING = [READING, READ, Failpoint.CAPTURED, Failpoint.STAGED, Failpoint.LEASED]
"""Before Phase A."""

UNDONE = [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED]
FINISHED = [Failpoint.TABLES_COMMITTED, Failpoint.BEFORE_PUBLISH, Failpoint.PUBLISHED, Failpoint.SIDECAR_REMOVED]
MODES = ["append", "merge", "overwrite"]


@dataclass(frozen=True)
class Doomed:
    """A load whose driver will be killed."""

    place: str
    mode: str
    branch: str
    directory: Path

    @property
    def graph(self) -> Path:
        return self.directory / "graph"

    @property
    def sign(self) -> Path:
        return self.directory / "reached"

    def job(self, source: str) -> dict[str, str]:
        where = {"place": self.place, "mode": self.mode, "branch": self.branch}
        paths = {"graph": str(self.graph), "source": source, "sign": str(self.sign)}
        return {"name": self.directory.name, "key": f"load {self.directory.name}", **where, **paths}


def _doomed(place: Path) -> list[Doomed]:
    """Every failpoint, on `main` and on a branch without its own files; only one load can stop inside a task."""
    made = []
    for i, where in enumerate([*NOTHING, *UNDONE, *FINISHED]):
        for branch in ("main", "dev"):
            if where != READING or branch == "dev":
                made.append(Doomed(str(where), MODES[(i + len(branch)) % 3], branch, place / f"{where}-{branch}"))
    return made


def test_a_killed_driver_leaves_a_complete_load_or_none(tmp_path: Path) -> None:
    source = write(tmp_path / "input", rows(3, first=100), "ndjson")
    loads = _doomed(tmp_path)
    before: dict[Doomed, bytes] = {}
    for load in loads:
        with graph_at(load.graph) as graph:
            graph.branches.create("dev")
            before[load] = b"".join(graph.export())
    afterwards = {
        (mode, branch): _loaded(tmp_path, source, mode, branch) for mode in MODES for branch in ("main", "dev")
    }
    _killed(tmp_path, source, loads)
    for load in loads:
        after = afterwards[load.mode, load.branch]
        with open(load.graph) as graph:
            content = b"".join(graph.export(branch=load.branch))
            if load.place in FINISHED:
                assert numbered(content) == after.content, load.place
            else:
                assert content == before[load], load.place
            other = "dev" if load.branch == "main" else "main"
            assert b"".join(graph.export(branch=other)) == before[load]
            assert graph.session.store.objects.list("__recovery") == []
            key = load.job(source)["key"]
            again = graph.load(source, mode=load.mode, branch=load.branch, idempotency_key=key)
            assert numbered(b"".join(graph.export(branch=load.branch))) == after.content, load.place
            with_key = [c for c in graph.commits.list(branch=load.branch).commits if c.idempotency_key == key]
            assert with_key == [again.commit]
            assert graph.verify(branch=load.branch).ok
            _clean(load)


def _loaded(place: Path, source: str, mode: str, branch: str) -> Outcome:
    """The expected graph after the load."""
    with graph_at(place / f"expected-{mode}-{branch}") as graph:
        graph.branches.create("dev")
        return outcome(graph, lambda: graph.load(source, mode=mode, branch=branch), branch)


def _killed(place: Path, source: str, loads: list[Doomed]) -> None:
    """Start the driver, wait until every load has stopped, kill it, and wait for the end of all its processes."""
    jobs = place / "jobs.json"
    jobs.write_text(json.dumps([load.job(source) for load in loads]))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with (place / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.killed_driver", str(jobs)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: all(load.sign.exists() for load in loads) or driver.poll() is not None, pause=0.05)
        assert driver.poll() is None, (place / "driver.log").read_text()
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    until(lambda: _session_of(driver.pid) == [], pause=0.1)


def _session_of(pid: int) -> list[int]:
    """The child processes of a process, and their children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == pid and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def _clean(load: Doomed) -> None:
    """Clean up: only the files of the killed load are removed."""
    with open(load.graph) as graph:
        before = listing(load.graph)
        refs = pins(graph, views(graph, 99))
        gone = unreached(load.graph, refs)
        contents = {name: b"".join(graph.export(branch=name)) for name in ("main", "dev")}
        young = graph.cleanup(keep=99)
        assert young.loads_removed == 0, "it is not old enough"
        assert all(table.forks_removed == table.orphans_removed == 0 for table in young.tables)
        # The first cleanup removes the record of the killed load. Rows without a record stay for an hour.
        hours_ago = time.time() - 2 * 3600
        for file in (load.graph / "__staging").rglob("*"):
            os.utime(file, (hours_ago, hours_ago))
        done = graph.cleanup(keep=99, orphans_older_than=timedelta(0))
        assert (done.errors, done.loads_removed) == ((), 1), load.place
        after = listing(load.graph)
        assert after.items() <= before.items()
        assert {path for path in before.keys() - after.keys() if not _is_record(path)} == gone, load.place
        if load.place in NOTHING or (load.place in UNDONE and load.branch == "main"):
            assert gone, load.place  # files of a branch were in forks that rollback removed
        assert unreached(load.graph, refs) == set()
        assert not any((load.graph / "__staging").rglob("*.arrow"))
        assert {name: b"".join(graph.export(branch=name)) for name in ("main", "dev")} == contents
        assert graph.load([{"type": "Person", "data": {"name": "afterwards"}}], mode="append").total == 1


def _is_record(path: str) -> bool:
    """Whether a file is a transaction file of Lance or the ref of a fork."""
    return "_transactions" in path or "_refs" in path or path.endswith("latest_version_hint.json")
