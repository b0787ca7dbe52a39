"""How long one piece of work takes and how much memory its process comes to take. Standard library only."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path


def report(work: Callable[[], object]) -> None:
    """Run the work once and print the figures as a line of JSON."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    figures = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu, "peak": peak_memory()}
    print(json.dumps(figures))


def peak_memory() -> int:
    """The most memory that the process has had, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    # Not what getrusage says: that begins with the size of the process that this one was forked from.
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
