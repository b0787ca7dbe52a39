"""How long one piece of work takes and how much memory its process comes to take. Standard library only."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def report(work: Callable[[], object], after: Callable[[], Mapping[str, object]] = dict) -> None:
    """Run the work once and print the figures as a line of JSON.

    Args:
        work: the work.
        after: what else there is to say, asked for when everything is measured.
    """
    start, cpu = time.perf_counter(), time.process_time()
    work()
    figures = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu, "peak": peak_memory()}
    print(json.dumps(figures | dict(after())))


def peak_memory(process: int | str = "self") -> int:
    """The most memory that a process has had, in bytes; but for this one, 0 where nothing says it."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # not Linux, or not there any more
        if process != "self":
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    # Not what getrusage says: that begins with the size of the process that this one was forked from.
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
