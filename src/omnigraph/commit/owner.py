"""The process that owns a lease, record or sidecar. Processes on the same machine can check whether it is alive."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from omnigraph.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """Identifies a process: its machine, its process id and its start time."""

    host: str
    pid: int
    started: str

    @classmethod
    def here(cls) -> Owner:
        if not _here:
            _here.append(cls(_host(), os.getpid(), _start_time(os.getpid()) or ""))
        return _here[0]

    def is_dead(self) -> bool:
        """Whether the process is certainly dead. False for processes on other machines, whose state is unknown."""
        if self.host != _host():
            return False
        if not _process_exists(self.pid):
            return True
        started = _start_time(self.pid)
        return started is not None and started != self.started


_here: list[Owner] = []
"""This process, once it is known. A forked process is another one."""

os.register_at_fork(after_in_child=_here.clear)


def _host() -> str:
    """Identifies the boot of the machine and the process namespace, in which a process id is unique."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return "/".join(parts)


def _start_time(pid: int) -> str | None:
    """Start time of a process, from the kernel; empty for a zombie.

    None if it is unknown: there is no /proc, or it hides the processes of other users.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _process_exists(pid: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
