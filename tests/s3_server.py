"""An S3 server for tests: a separate process on a free loopback port, which ends with the test run.

Run as a program (by the Python of `.venv-s3`) it is the server; imported, it starts one.
"""

# See docs/decisions/0020-s3-in-tests.md

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

PYTHON = Path(__file__).resolve().parent.parent / ".venv-s3" / "bin" / "python"
BUCKET = "graphs"


@dataclass(frozen=True, slots=True)
class S3Root:
    """An unused prefix, and the options to access it."""

    uri: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server with one bucket."""

    endpoint: str
    pid: int

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "test-key",
            "secret_access_key": "test-secret",
        }

    def root(self, prefix: str) -> S3Root:
        return S3Root(f"s3://{BUCKET}/{prefix}", self.options)


@contextmanager
def running() -> Iterator[S3Server]:
    """Run a server for the duration of the block."""
    if not PYTHON.exists():
        raise RuntimeError(f"{PYTHON} is missing: run `make setup`")
    command = [str(PYTHON), str(Path(__file__).resolve())]
    # The server stops at the end of its standard input: this happens whenever this process ends, for any reason.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the S3 server did not start: exit code {process.wait()}")
            endpoint = f"http://127.0.0.1:{int(line)}"
            made = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(made, timeout=300).close()
            yield S3Server(endpoint, process.pid)
        finally:
            process.terminate()
            process.wait(300)


def serve() -> None:
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # One thread: the server checks a condition and then writes, and no other request may run in between.
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve()
