"""The commands of the cluster page work: they start a master and two workers and load a graph."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.docs.test_guides_run import DOCS
from tests.patience import PATIENCE

import omnigraph
from page_examples import run_page

PAGE = DOCS / "guide" / "cluster.md"
RUN = re.compile(r"^<!-- run -->\n```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def free_ports(count: int) -> list[int]:
    """Ports outside the range from which the system takes those of other processes, which come and go meanwhile."""
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    for port in Random().sample(range(least // 2, least), 1_000):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found


@pytest.mark.slow
@pytest.mark.spark
def test_the_commands_of_the_cluster_page_load_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    text = PAGE.read_text(encoding="utf-8")
    assert [example for example in run_page(PAGE, None) if not example.is_shown] == []
    start, *work = RUN.findall(text)
    wait = "until (: < /dev/tcp/127.0.0.1/7077) 2> /dev/null; do sleep 0.1; done\n"  # the reader of a page waits, too
    script = "".join(["set -e\n", start, wait, *work])
    for said, free in zip(("7077", "8080"), free_ports(2), strict=True):
        assert said in script
        script = script.replace(said, str(free))
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARK_DAEMON_MEMORY": "256m",
        "OMNIGRAPH_CACHE_DIR": "",  # no class archive: the first run writes it, which is slow
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts faster
        "SPARK_WORKER_WEBUI_PORT": "0",
    }
    with Path("said").open("wb") as said_to:
        started = subprocess.Popen(
            ["bash", "-c", script], env=environ, stdout=said_to, stderr=said_to, start_new_session=True
        )
        try:
            assert started.wait(PATIENCE) == 0, Path("said").read_text()
        finally:
            os.killpg(started.pid, signal.SIGKILL)  # the master and the workers still run
    said = Path("said").read_text()
    assert "with merge: 3 entities across 1 node type and 1 edge type" in said
    assert "loaded 3 entities by spark-submit" in said
    for number in (1, 2):  # each worker had an executor
        assert "Asked to launch executor" in Path(f"worker-{number}.log").read_text()
    with omnigraph.open(tmp_path / "roads") as graph:
        assert [commit.writer for commit in graph.commits][:2] == ["Load", "Load"]
        assert graph.verify().total == 0
