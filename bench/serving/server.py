"""A server process of the benchmark, and the resources that it uses."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

_ENVIRONMENT = {
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "64",  # all clients are one actor
    "OMNIGRAPH_SERVER_DRAIN_SECONDS": "0",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running `omnigraph serve`.

    Attributes:
        process: its process, which starts the workers if there are several.
        address: host and port.
        workers: number of workers.
    """

    process: int
    address: str
    workers: int

    @classmethod
    @contextmanager
    def running(cls, graphs: Mapping[str, Path], workers: int, place: Path, **environ: str) -> Iterator[Server]:
        """Run a server until the end of the block. Its log is a file in `place`.

        Args:
            graphs: the graphs by id.
            workers: number of workers.
            place: a new folder.
            environ: settings.
        """
        place.mkdir()
        config = place / "graphs.yaml"
        config.write_text(json.dumps({"graphs": {name: str(path) for name, path in graphs.items()}}), encoding="utf-8")
        arguments = ["--config", str(config), "--bind", "127.0.0.1:0", "--unauthenticated", "--workers", str(workers)]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "omnigraph", "serve", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **_ENVIRONMENT, **environ},
            )
            assert process.stdout is not None
            try:
                line = process.stdout.readline().strip()
                if not line:
                    raise RuntimeError(f"the server does not start: {(place / 'log').read_text(encoding='utf-8')}")
                yield cls(process.pid, line.partition("=")[2], workers)
            finally:
                process.terminate()
                process.wait()
                process.stdout.close()

    def post(self, path: str, body: object) -> Any:
        """Send one request, and return the JSON answer.

        Raises:
            RuntimeError: the answer is an error.
        """
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}: {text.decode()}")
        return json.loads(text)

    def processes(self) -> list[int]:
        """The processes that answer requests, by id."""
        if self.workers == 1:
            return [self.process]
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text(encoding="ascii").split()
        return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]

    def cpu(self) -> float:
        """CPU seconds of all processes so far."""
        return sum(map(_cpu, {self.process, *self.processes()}))

    def connections(self) -> list[int]:
        """The open TCP connections of each worker."""
        established = {
            line.split()[9]
            for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
            if line.split()[3] == "01"
        }
        return [sum(name[8:-1] in established for name in _sockets(one)) for one in self.processes()]

    def handles(self) -> int:
        """The open files and sockets of all workers."""
        return sum(len(os.listdir(f"/proc/{process}/fd")) for process in self.processes())

    def resident(self) -> int:
        """The resident memory of all workers, in bytes."""
        sizes = (Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1] for process in self.processes())
        return sum(int(size) * _PAGE for size in sizes)


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _sockets(process: int) -> Iterator[str]:
    """The sockets of a process, as `socket:[INODE]`."""
    for file in Path(f"/proc/{process}/fd").iterdir():
        try:
            target = os.readlink(file)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            yield target
