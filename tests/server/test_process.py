"""`omnigraph serve` as a process: start, drain, reload, workers and errors."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE, until
from tests.server.conftest import INSERT, SELECT, Client

import omnigraph
from omnigraph.server.process import raise_file_limit

ROOT = Path(__file__).parents[2]
FAST = {"OMNIGRAPH_SERVER_DRAIN_SECONDS": "0", "OMNIGRAPH_SERVER_STOP_SECONDS": f"{PATIENCE:.0f}"}


def workers_of(process: int) -> list[int]:
    """The worker processes of a server."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in found if b"spawn_main" in _command(child)]


def _command(process: str) -> bytes:
    """The command of a process, or nothing if it has just ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


class Process:
    """A running `omnigraph serve`.

    Attributes:
        client: a client of its graph.
        errors: the lines on stderr so far.
    """

    def __init__(self, *arguments: str, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "omnigraph", "serve", "--bind", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMNIGRAPH_FSYNC": "0", **environ},
        )
        self.errors: list[str] = []
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self.errors.extend, args=(self._process.stderr,))
        self._reader.start()
        assert self._process.stdout is not None
        self.line = self._process.stdout.readline().strip()
        self.client = Client(self.line.partition("=")[2], prefix="/graphs/default")

    @property
    def id(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The log so far."""
        return [json.loads(line) for line in self.errors]

    def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        code = self._process.wait(PATIENCE)
        self._reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return code

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self.wait()


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as running:
        yield running


def start(processes: ExitStack, *arguments: str, **environ: str) -> Process:
    process = Process(*arguments, environ=FAST | environ)
    processes.callback(process.stop)
    return process


@pytest.mark.slow
def test_start_and_stop(root: Path, processes: ExitStack) -> None:
    process = start(processes, "--store", str(root), "--unauthenticated")
    assert process.line.startswith("OMNIGRAPH_LISTEN_ADDR=127.0.0.1:")
    assert process.client.post("/query", {"query": SELECT}).json["row_count"] == 2
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    (record,) = (one for one in process.records if one["message"] == "request")
    assert record.keys() >= {"time", "level", "request_id", "method", "route", "graph", "status", "seconds", "bytes"}
    assert (record["route"], record["graph"], record["status"]) == ("/graphs/{graph_id}/query", "default", 200)
    assert "everyone who reaches this server may read and write: it has no tokens" in [
        one["message"] for one in process.records
    ]


@pytest.mark.slow
def test_drain(root: Path, processes: ExitStack) -> None:
    process = start(processes, "--store", str(root), "--unauthenticated", OMNIGRAPH_SERVER_DRAIN_SECONDS="600")
    assert process.client.get("//readyz").status == 200
    process.signal(signal.SIGTERM)
    until(lambda: process.client.get("//readyz").status == 503)
    assert process.client.get("//readyz").json["status"] == "draining"
    assert process.client.get("//healthz").status == 200
    assert process.client.post("/query", {"query": SELECT}).status == 200
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    with pytest.raises(OSError):  # noqa: PT011
        process.client.get("//healthz")


@pytest.mark.slow
def test_requests_in_flight_finish(tmp_path: Path, processes: ExitStack) -> None:
    path = tmp_path / "many"
    with omnigraph.init(path, "node P { name: String @key  n: I32 }") as graph:
        graph.load({"P": [{"name": str(number), "n": number} for number in range(3_000)]}, mode="append")
    process = start(processes, "--store", str(path), "--unauthenticated")
    blocks = "$a: P  $b: P  $c: P  $a.n < $b.n  $b.n < $c.n  $c.n < 400"
    slow = f"query q() {{ match {{ {blocks} }} return {{ count($a.name) as n }} }}"
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(process.client.post("/query", {"query": slow})))
    thread.start()
    until(lambda: b"in_flight 2.0" in process.client.get("//metrics").body or found)
    process.signal(signal.SIGTERM)
    thread.join()
    assert found[0].status == 200
    assert process.wait() == 0


@pytest.mark.slow
def test_tokens_are_reloaded_and_never_logged(root: Path, tmp_path: Path, processes: ExitStack) -> None:
    tokens, queries = tmp_path / "tokens.json", tmp_path / "queries"
    queries.mkdir()
    tokens.write_text('{"kim": "first-secret"}', encoding="utf-8")
    process = start(
        processes,
        *("--store", str(root), "--queries", str(queries)),
        OMNIGRAPH_SERVER_BEARER_TOKENS_FILE=str(tokens),
        OMNIGRAPH_LOG_LEVEL="debug",
    )
    old, new = (process.client.with_token(token) for token in ("first-secret", "second-secret"))
    assert (old.get("/branches").status, new.get("/branches").status) == (200, 401)
    tokens.write_text('{"kim": "second-secret"}', encoding="utf-8")
    (queries / "all.gq").write_text(SELECT, encoding="utf-8")
    process.signal(signal.SIGHUP)
    until(lambda: new.get("/branches").status == 200)
    assert old.get("/branches").status == 401
    until(lambda: new.get("/queries").json["queries"])
    assert "every write is denied: there are tokens, but no policy" in new.get("//readyz").json["warnings"]
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert "secret" not in "".join(process.errors)
    assert any(record.get("actor") == "kim" for record in process.records)


_POLICY = """
version: 1
groups: {{crew: [kim]}}
rules: [{{id: reads, allow: {{actors: {{group: crew}}, actions: [read]}}}}]
row_rules:
  - {{id: known, actors: {{group: crew}}, type: Person, actions: [read], where: '$.name = "{name}"'}}
"""


@pytest.mark.slow
def test_policies_are_reloaded_by_all_workers(root: Path, tmp_path: Path, processes: ExitStack) -> None:
    policy, tokens = tmp_path / "policy.yaml", {"kim": "secret"}
    policy.write_text(_POLICY.format(name="ann"), encoding="utf-8")
    process = start(
        processes,
        *("--store", str(root), "--policy", str(policy), "--workers", "2"),
        OMNIGRAPH_SERVER_BEARER_TOKENS_JSON=json.dumps(tokens),
        OMNIGRAPH_DENIALS=str(tmp_path / "denials.jsonl"),
    )
    kim = process.client.with_token("secret")

    def seen() -> set[str]:
        """The persons in some answers, which several workers give."""
        answers = [kim.post("/query", {"query": SELECT}) for _ in range(12)]
        return {row["name"] for answer in answers for row in answer.json["rows"]}

    assert seen() == {"ann"}
    assert kim.post("/mutate", {"query": INSERT, "params": {"n": "eve"}}).status == 403
    policy.write_text(_POLICY.format(name="bob"), encoding="utf-8")
    process.signal(signal.SIGHUP)
    until(lambda: seen() == {"bob"})
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


@pytest.mark.slow
def test_workers_share_the_address_and_are_restarted(root: Path, processes: ExitStack) -> None:
    process = start(processes, "--store", str(root), "--unauthenticated", "--workers", "2")
    for number in range(10):
        body = {"query": INSERT, "params": {"n": f"p{number}"}}
        assert process.client.post("/mutate", body).status == 200
    assert process.client.post("/query", {"query": SELECT}).json["row_count"] == 12
    counted = process.client.get("//metrics").body
    assert b'route="/graphs/{graph_id}/mutate",status="200"} 10.0' in counted
    workers = workers_of(process.id)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    until(lambda: any(record["message"] == "a worker has ended" for record in process.records))
    until(lambda: len(set(workers_of(process.id)) - {workers[0]}) == 2)
    assert process.client.post("/query", {"query": SELECT}).json["row_count"] == 12
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


@pytest.mark.slow
def test_a_worker_that_starts_during_a_reload_has_the_new_files(
    root: Path, tmp_path: Path, processes: ExitStack
) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text('{"kim": "first"}', encoding="utf-8")
    queries = tmp_path / "queries"
    queries.mkdir()
    process = start(
        processes,
        *("--store", str(root), "--queries", str(queries), "--workers", "2"),
        OMNIGRAPH_SERVER_BEARER_TOKENS_FILE=str(tokens),
    )
    kim = process.client.with_token("first")
    for worker in workers_of(process.id):
        os.kill(worker, signal.SIGKILL)
    until(lambda: sum(record["message"] == "a worker has ended" for record in process.records) == 2)
    (queries / "all.gq").write_text(SELECT, encoding="utf-8")
    # One of these signals comes while the new workers import modules, open graphs, or have no event loop yet.
    until(lambda: workers_of(process.id))
    for _ in range(40):
        process.signal(signal.SIGHUP)
        time.sleep(0.05)
    until(lambda: all(kim.get("/queries").json["queries"] for _ in range(6)))
    assert sum(record["message"] == "a worker has ended" for record in process.records) == 2


@pytest.mark.slow
def test_a_server_stops_while_a_worker_starts(root: Path, processes: ExitStack) -> None:
    process = start(processes, "--store", str(root), "--unauthenticated", "--workers", "2")
    (first, _) = workers_of(process.id)
    os.kill(first, signal.SIGKILL)
    until(lambda: len(set(workers_of(process.id)) - {first}) == 2)  # the new one imports modules
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


@pytest.mark.slow
def test_several_graphs_from_a_file(root: Path, tmp_path: Path, processes: ExitStack) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "all.gq").write_text(SELECT, encoding="utf-8")
    omnigraph.init(tmp_path / "other", "node A { name: String @key }").close()
    config = tmp_path / "graphs.yaml"
    config.write_text(
        "graphs:\n  first: {store: graph, queries: queries}\n  second: other\n  third: missing\n", encoding="utf-8"
    )
    process = start(processes, "--config", str(config), "--unauthenticated")
    first, second, third = (replace(process.client, prefix=f"/graphs/{name}") for name in ("first", "second", "third"))
    assert first.post("/queries/all").json["row_count"] == 2
    assert "node A" in second.get("/schema").json["schema_source"]
    assert third.get("/schema").status == 404
    assert [record["graph"] for record in process.records if record["message"] == "a graph is not served"] == ["third"]


def test_the_limit_of_open_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
        raise_file_limit()
        assert 1_024 < resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= max(hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "omnigraph", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["GRAPH"], "the server has no bearer tokens"),
        (["--store", "GRAPH", "--unauthenticated", "--bind", "x"], "'x' is not an address"),
        (["--store", "GRAPH", "--unauthenticated", "--bind", "192.0.2.1:1"], "cannot listen on 192.0.2.1:1"),
        (["--store", "MISSING", "--unauthenticated"], "there is no graph at"),
        (["--store", "MISSING", "--unauthenticated", "--workers", "2"], "there is no graph at"),
        (["--store", "GRAPH", "--graph", "a_b", "--unauthenticated"], "'a_b' is not the id of a graph"),
        (["--config", "CONFIG"], "config.yaml, line 1: graph: unknown name"),
    ],
)
def test_errors_at_start(root: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "config.yaml").write_text("graph: x", encoding="utf-8")
    places = {"GRAPH": str(root), "MISSING": str(tmp_path / "none"), "CONFIG": str(tmp_path / "config.yaml")}
    found = run("--bind", "127.0.0.1:0", *(places.get(argument, argument) for argument in arguments))
    assert found.returncode == 1, found
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *((value, "the server has no bearer tokens") for value in ("", "0", "false", "No", "off")),
        ("maybe", "OMNIGRAPH_UNAUTHENTICATED: 'maybe' is neither yes nor no"),
    ],
)
def test_a_server_is_open_only_if_the_variable_says_yes(
    root: Path, monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    from click.testing import CliRunner

    from omnigraph.cli.main import cli

    monkeypatch.setenv("OMNIGRAPH_UNAUTHENTICATED", value)
    found = CliRunner().invoke(cli, ["serve", "--store", str(root), "--bind", "127.0.0.1:0"])
    assert (found.exit_code, message in found.output) == (1, True)


def test_the_graphs_are_named_once(root: Path) -> None:
    from click.testing import CliRunner

    from omnigraph.cli.main import cli

    for arguments in ([], ["a", "--store", "a"], ["--store", "a", "--config", __file__], ["a", "--config", __file__]):
        found = CliRunner().invoke(cli, ["serve", *arguments])
        assert found.exit_code == 2
        assert "name the graphs once" in found.output


@pytest.mark.slow
def test_a_missing_extra_is_named() -> None:
    program = (
        "from tests.no_extras import hide\nhide()\n"
        "from click.testing import CliRunner\nfrom omnigraph.cli.main import cli\n"
        "print(CliRunner().invoke(cli, ['serve', '--store', 'x', '--unauthenticated']).output)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ)
    assert "is not installed" in found.stdout
    assert "pip install 'omnigraph[server]'" in found.stdout
