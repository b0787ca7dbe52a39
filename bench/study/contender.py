"""The processes that answer questions, seen from the benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from omnigraph.settings import CACHE_DIR

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent.parent / ".venv-bench" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to answer: which Python runs which script."""

    name: str
    script: str
    python: Path
    module: str = ""

    @property
    def installed(self) -> bool:
        try:
            subprocess.run([str(self.python), "-c", f"import {self.module}"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def present(self) -> bool:
        """Whether it is installed; says so if it is not."""
        if not self.installed:
            print(
                f"\n{self.name} is not installed (make bench does it, where there is a network): not compared with it"
            )
        return self.installed

    def command(self, *words: object) -> list[str]:
        return [str(self.python), str(HERE / self.script), *map(str, words)]

    def store(self, files: Path, place: Path, *words: object) -> None:
        subprocess.run(self.command("store", files, place, *words), check=True, env=_environment(place))

    def cold(self, place: Path, persons: int, question: str, answer: Path) -> float:
        """Seconds from nothing to an answer, in a new process."""
        start = time.perf_counter()
        with Running(self, place, persons, "cold") as process:
            process.order("answer", question, str(answer))
            return time.perf_counter() - start


OURS = Contender("ours", "ours.py", Path(sys.executable))
FLOOR = Contender("numpy", "floor.py", Path(sys.executable))
RIVALS = (
    Contender("ladybug", "on_ladybug.py", PEERS, "ladybug"),
    Contender("duckdb", "on_duckdb.py", PEERS, "duckdb"),
    Contender("polars", "on_polars.py", PEERS, "polars"),
    Contender("datafusion", "on_datafusion.py", PEERS, "datafusion"),
)


def _environment(place: Path) -> dict[str, str]:
    """Every contender finds its modules compiled, however it was installed, and leaves nothing elsewhere."""
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(place.parent / "compiled")}
    derived = {CACHE_DIR.name: str(place.parent / "cache")}
    return {**os.environ, **compiled, **derived, "PYTHONWARNINGS": "ignore"}


class Running:
    """A contender with the data open, waiting for orders."""

    def __init__(self, contender: Contender, place: Path, about: object, task: str = "warm") -> None:
        """Start a process; `about` says which data it opens, or how many persons they have."""
        self._name = contender.name
        self._process = subprocess.Popen(
            contender.command(task, place, about),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(place),
        )

    def order(self, *words: object) -> object:
        """Have something done; `serve` says what there is.

        Raises:
            RuntimeError: the process has ended; its stderr says why.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} gave no reply to {words}")
        return json.loads(line)

    def answer(self, question: str, file: Path) -> pa.Table:
        self.order("answer", question, str(file))
        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_file(source).read_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
