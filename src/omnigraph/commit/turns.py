"""Turns of the writers of one process: small writes to a branch are prepared one by one, first come, first served.

Without turns, the threads of a process prepare their writes at the same time, on the same state. All but one of them
then have to compare their reads with the commits of the others, or to start again. So more threads would commit less.

A write takes its turn before it captures a state. Writes that take long to prepare, such as loads, do not take turns:
they prepare beside the others, and only wait for the lease.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from omnigraph.commit import attempts
from omnigraph.commit.manifest import Commit
from omnigraph.commit.process_locks import turn_lock
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import Store
from omnigraph.commit.write_request import Prepare, WriteRequest
from omnigraph.errors import WriteTimeoutError

_own = threading.local()
"""The turns that the current thread has."""


def write(store: Store, request: WriteRequest, prepare: Prepare) -> Commit | None:
    """Run a write in its turn. Returns None if there was nothing to do.

    Raises:
        PreconditionFailedError: the branch head is not the expected one.
        ReadSetChangedError: another commit changed the read set, and the write must not be replayed.
        WriteTimeoutError: the write did not get its turn or the lease in time.
        RecoveryRequiredError: the write was interrupted, and its outcome is unknown.
    """
    if request.kind is not WriterKind.MUTATION:
        return attempts.write(store, request, prepare)
    turn = turn_lock(store.objects.uri.identity, branch_name(request.branch))
    held = _own.__dict__.setdefault("turns", [])
    if turn in held:  # the preparation of another write writes, too
        return attempts.write(store, request, prepare)
    wait = store.timeouts.wait if request.timeout is None else request.timeout
    began = time.monotonic()
    if not turn.acquire(wait):
        raise WriteTimeoutError(f"other writers of this process used branch '{request.branch}' for {wait:g} seconds")
    held.append(turn)
    try:
        left = max(wait - (time.monotonic() - began), 0.0)
        return attempts.write(store, replace(request, timeout=left), prepare)
    finally:
        held.remove(turn)
        turn.release()
