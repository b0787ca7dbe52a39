"""In-process gates: threads of one process take turns on a branch before they contend with other processes."""

from __future__ import annotations

from threading import Lock

_LOCKS: dict[tuple[str, str], Lock] = {}
_REGISTRY = Lock()


def branch_gate(root_identity: str, branch: str) -> Lock:
    """The gate of a branch. All handles of a process on one graph share it."""
    with _REGISTRY:
        return _LOCKS.setdefault((root_identity, branch), Lock())
