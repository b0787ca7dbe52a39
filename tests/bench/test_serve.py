"""The server benchmark counts latencies from the time when requests are due, and runs at a small size."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import serve
from serving.generator import DIGITS, NUMBER, Generator, Load, run

PAUSE = 0.02
REQUEST = b"GET /%s HTTP/1.1\r\n\r\n" % NUMBER


@contextmanager
def slow_server(status: bytes = b"200 OK") -> Iterator[tuple[str, list[bytes]]]:
    """Answers one request after the other, each after a pause. Yields its address and the requests."""
    received: list[bytes] = []
    answer = b"HTTP/1.1 %s\r\nx: y\r\ncontent-length: 2\r\n\r\n{}" % status
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve_one() -> None:
            connection, _ = listening.accept()
            with connection:
                while data := connection.recv(1_000):
                    received.append(data)
                    time.sleep(PAUSE)
                    connection.sendall(answer[:30])  # in two parts
                    connection.sendall(answer[30:])

        thread = threading.Thread(target=serve_one)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", received
        thread.join()


def test_latencies_count_from_the_time_when_requests_are_due() -> None:
    with slow_server() as (address, received):
        found = run(Load(address, 1, [REQUEST], [b"{}"], seconds=0.1, rate=2 / PAUSE))
    assert found.sent == len(found.latencies) == 10
    assert found.latencies[0] >= PAUSE
    assert found.latencies[-1] >= 10 * PAUSE - 9 * PAUSE / 2  # the last is due when half of them are answered
    assert len({len(one) for one in received}) == 1
    assert received[1] == b"GET /%012d HTTP/1.1\r\n\r\n" % 1
    assert len(received[1]) == len(REQUEST) - len(NUMBER) + DIGITS


def test_the_highest_rate_is_that_of_answers() -> None:
    with slow_server() as (address, _):
        found = run(Load(address, 1, [REQUEST, b"GET / HTTP/1.1\r\n\r\n"], [b"{}", b"{}"], seconds=10 * PAUSE))
    assert 1 <= len(found.latencies) <= 10
    assert found.rate <= 1 / PAUSE
    assert found.failed == 0


def test_errors_are_counted() -> None:
    with slow_server(b"503 Busy") as (address, _):
        found = run(Load(address, 1, [REQUEST], [b"{}"], seconds=PAUSE, rate=1 / PAUSE))
    assert (found.failed, found.sent) == (1, 1)
    assert b"503" in found.failure


def test_wrong_answers_are_counted() -> None:
    with slow_server() as (address, _):
        found = run(Load(address, 1, [REQUEST], [b'"rows"'], seconds=PAUSE, rate=1 / PAUSE))
    assert (found.failed, found.sent) == (1, 1)
    assert found.failure.startswith(b"HTTP/1.1 200 OK")


def test_a_failing_run_is_an_error_in_the_other_process() -> None:
    with Generator.running() as generator, pytest.raises(RuntimeError, match="ConnectionRefusedError"):
        generator.run(Load("127.0.0.1:9", 1, [REQUEST], [b"{}"], seconds=0.1))


@pytest.mark.slow
def test_the_server_benchmark_runs_at_a_small_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        serve.main(["--quick", "--seconds", "0.05", "--json", str(tmp_path / "out.json")])
    printed = capsys.readouterr().out
    assert ended.value.code == 0, printed
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    names = [timing["name"] for timing in report["timings"]]
    for kind in ("point query", "2 hops", "hybrid search", "one-row mutation"):
        assert sum(name.startswith(kind) for name in names) == 2 * (1 + 3), printed


@pytest.mark.slow
def test_the_soak_runs_for_a_short_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        serve.main(["--quick", "--soak", "3"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0, printed
    assert "acknowledged writes that are lost: measured 0" in printed
