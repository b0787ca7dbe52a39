"""Recovery of all branches of a graph, as every process that opens it for writing does it."""

from __future__ import annotations

from contextlib import suppress

from omnigraph.commit.sidecar import RECOVERY_DIRECTORY, pending
from omnigraph.commit.store import Store
from omnigraph.errors import LeaseTimeoutError, StorageError
from omnigraph.storage.objects import local
from omnigraph.storage.uri import Scheme


def recover_all(store: Store) -> None:
    """Settle all writes without a live writer. A live writer keeps its sidecar. Costs one listing if there are none."""
    if store.objects.uri.scheme is Scheme.LOCAL:
        with suppress(StorageError):  # a file that cannot be removed does no harm
            local.delete_leftovers(store.objects.uri, RECOVERY_DIRECTORY)
    for branch in sorted({sidecar.branch for sidecar in pending(store.objects)}):
        from omnigraph.commit.recovery import recover_branch  # most processes find nothing to recover

        # Take the lease even if the branch does not exist: another process may be creating the branch and writing to
        # it.
        with suppress(LeaseTimeoutError), store.exclusive(branch, wait=0) as held:
            recover_branch(store, branch, held)
