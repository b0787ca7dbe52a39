"""The processes that Spark starts on this machine, and the memory that they take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

from bulk.measure import peak_memory

_PAUSE = 0.5


class Workers:
    """Looks at the Python processes of tasks, from time to time. Pages that they share count for each of them.

    Attributes:
        most: the most memory that they were seen to have together, in bytes.
        each: the most that one of them had.
    """

    def __init__(self) -> None:
        self.most = self.each = 0
        self._ended = Event()
        self._thread = Thread(target=self._look, daemon=True)

    def __enter__(self) -> Workers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_PAUSE):
            found = [_resident(process) for process, name in descendants(os.getpid()) if name.startswith("python")]
            self.most = max(self.most, sum(found))
            self.each = max([self.each, *found])


def java_peak() -> int:
    """The most memory that Java has had."""
    return max((peak_memory(process) for process, name in descendants(os.getpid()) if name == "java"), default=0)


def processor_seconds() -> dict[str, float]:
    """How long this process, Java and the tasks have kept the processor busy so far, with those that have ended."""
    found = {"driver": 0.0, "java": 0.0, "tasks": 0.0}
    for process, name in [(os.getpid(), ""), *descendants(os.getpid())]:
        whose = "driver" if not name else "java" if name == "java" else "tasks"
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[whose] += sum(map(int, fields[11:15] if whose == "tasks" else fields[11:13]))
    return {whose: ticks / os.sysconf("SC_CLK_TCK") for whose, ticks in found.items()}


def descendants(process: int) -> Iterator[tuple[int, str]]:
    """The processes that a process has started, and those that these have, with their names."""
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:  # it has ended
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        children.setdefault(int(rest.split()[1]), []).append((int(entry.parent.name), name))
    waiting = [process]
    while waiting:
        for child in children.get(waiting.pop(), []):
            yield child
            waiting.append(child[0])


def _resident(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
