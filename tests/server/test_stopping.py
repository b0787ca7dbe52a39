"""A server that stops answers the requests in flight, however it is told to stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.patience import until
from tests.server.conftest import INSERT, SELECT
from tests.server.test_process import Process, processes, start, workers_of

__all__ = ["processes"]

LONG = "600"


def _to_all(process: Process, number: int) -> None:
    """Send a signal to the server and its workers, as a terminal and a service manager do."""
    for pid in (process.id, *workers_of(process.id)):
        os.kill(pid, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_counts_once(root: Path, processes: ExitStack, number: int) -> None:
    process = start(
        processes, "--store", str(root), "--unauthenticated", "--workers", "2", OMNIGRAPH_SERVER_DRAIN_SECONDS=LONG
    )
    _to_all(process, number)
    until(lambda: process.client.get("//readyz").status == 503)
    time.sleep(1)  # meanwhile, the supervisor passes its signal on
    for _ in range(4):
        assert process.client.get("//readyz").status == 503
        assert process.client.post("/query", {"query": SELECT}).status == 200
    _to_all(process, number)
    assert process.wait() == 0
    assert not any("Traceback" in line for line in process.errors)


def _in_background(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    return thread, found


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_write_in_flight_is_answered_although_the_server_stops_at_once(
    root: Path, tmp_path: Path, processes: ExitStack, workers: str
) -> None:
    sign = tmp_path / "held"
    process = start(
        processes,
        *("--store", str(root), "--unauthenticated", "--workers", workers),
        OMNIGRAPH_SERVER_DRAIN_SECONDS=LONG,
        OMNIGRAPH_FAILPOINT=f"sidecar_written=hold:{sign}",
    )
    body = {"query": INSERT, "params": {"n": "eve"}}
    thread, found = _in_background(lambda: process.client.post("/mutate", body))
    until(sign.exists)
    for _ in range(4):
        process.signal(signal.SIGTERM)
        time.sleep(0.3)
    sign.unlink()
    thread.join()
    assert process.wait() == 0
    assert found[0].status == 200
    assert found[0].json["commit"]["graph_commit_id"]
    assert not any("Traceback" in line for line in process.errors)


@pytest.mark.slow
def test_a_write_that_has_not_begun_can_be_sent_again_when_the_server_stops_at_once(
    root: Path, tmp_path: Path, processes: ExitStack
) -> None:
    sign = tmp_path / "held"
    process = start(
        processes,
        *("--store", str(root), "--unauthenticated"),
        OMNIGRAPH_SERVER_DRAIN_SECONDS=LONG,
        OMNIGRAPH_FAILPOINT=f"captured=hold:{sign}",
    )
    body = {"query": INSERT, "params": {"n": "eve"}}
    thread, found = _in_background(lambda: process.client.post("/mutate", body))
    until(sign.exists)
    for _ in range(4):
        process.signal(signal.SIGTERM)
        time.sleep(0.3)
    sign.unlink()
    thread.join()
    assert process.wait() == 0
    assert (found[0].status, found[0].json["disposition"]) == (503, "retry")
    assert not any("Traceback" in line for line in process.errors)
