"""A worker that is killed at any moment of its start does not block its supervisor."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from fastapi import FastAPI
from tests.patience import PATIENCE

import omnigraph
from omnigraph.server.app import create_app
from omnigraph.server.options import Limits
from omnigraph.server.process import Launch, _Supervisor, bind


def die(root: str) -> None:
    Path(root).with_name("killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def killed_before_it_reports(root: str) -> FastAPI:
    die(root)
    raise AssertionError


def killed_while_it_reports(root: str) -> FastAPI:
    """An application whose worker is killed while it tells its supervisor that it has started."""
    Connection.send_bytes = lambda *_: die(root)  # type: ignore[method-assign]
    return create_app({"g": root}, unauthenticated=True)


@pytest.mark.slow
@pytest.mark.parametrize("make", [killed_before_it_reports, killed_while_it_reports])
def test_a_worker_that_is_killed_at_its_start_does_not_block_the_supervisor(
    make: Callable[[str], FastAPI], tmp_path: Path
) -> None:
    omnigraph.init(tmp_path / "graph", "node Event { n: I32 }").close()
    with bind("127.0.0.1:0") as listening:
        supervisor = _Supervisor(Launch(make, str(tmp_path / "graph"), Limits()), listening, 2)
        results: list[bool] = []
        waiting = threading.Thread(target=lambda: results.append(supervisor._start()), daemon=True)
        waiting.start()
        waiting.join(PATIENCE)
        supervisor._dispatcher.stop()
        assert results == [False]
    assert (tmp_path / "killed").exists()
