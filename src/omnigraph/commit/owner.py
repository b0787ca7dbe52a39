"""The process that owns a lease, a record or a sidecar, so that others on the same machine can see that it died."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, so that others on the same machine can see that it died."""

    host: str
    pid: int
    started: str

    @classmethod
    def here(cls) -> Owner:
        return cls(_host(), os.getpid(), _start_time(os.getpid()) or "")

    def is_dead(self) -> bool:
        """Whether the process is certainly gone. From another machine nobody can say."""
        if self.host != _host():
            return False
        if not _answers(self.pid):
            return True
        started = _start_time(self.pid)
        return started is not None and started != self.started


def _host() -> str:
    """The machine until it boots again, and the process name space: where a process number means one process."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return "/".join(parts)


def _start_time(pid: int) -> str | None:
    """When a process began, as the kernel counts it; empty when it waits only to be collected.

    None when nobody may say: there is no /proc, or it hides the processes of others.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _answers(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
