"""Drift: a table has versions after the version in the manifest, and no sidecar belongs to them.

A request to storage may take effect long after its sender gave up or was paused. Then OmniGraph has written a table
version that no commit will ever publish. Once the holder of the lease has settled all sidecars of the branch, no
process can publish that version any more. So the holder restores the content of the version in the manifest, as the
next version. `omnigraph repair` handles versions that other programs wrote.
"""

# See docs/decisions/0150-late-table-versions-are-undone.md

from __future__ import annotations

from dataclasses import replace

from ulid_transform import ulid_now

from omnigraph.commit import audit
from omnigraph.commit.audit import RecoveryKind, RecoveryRecord, TableOutcome
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import MANIFEST_PATH, Change, Manifest, TablePin
from omnigraph.commit.rollback import recovery_commit, restored
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.torn_versions import is_quarantined
from omnigraph.errors import DriftError
from omnigraph.storage.latest_version import VERSIONS
from omnigraph.storage.table_ref import manifest_name, table_directory

LATE_WRITER = "LateVersion"
"""Writer kind in the audit, for a version that arrived after its write was settled."""

_LONGEST_GAP = 1026
"""Maximum number of versions to check. A longer gap needs a decision by a user."""


def _next_version(view: Manifest) -> str:
    """Path of the next manifest version of a branch."""
    return f"{table_directory(MANIFEST_PATH, view.ledger.branch)}/{VERSIONS}/{manifest_name(view.version + 1)}"


def settle_late_versions(store: Store, view: Manifest, held: Lease) -> Manifest | None:
    """Undo table versions of OmniGraph that arrived late. Returns the next manifest; None if there were none.

    Args:
        store: the graph.
        view: the newest state of a branch whose sidecars are settled.
        held: the lease of the branch.

    Raises:
        DriftError: a repair was interrupted, so the origin of the versions is unknown.
    """
    pins: list[TablePin] = []
    outcomes: list[TableOutcome] = []
    for key, pin in view.tables.items():
        head = store.tables.head(pin.ref.path, pin.ref.branch) if view.owns(pin) else None
        if head is None or not 0 < head - pin.ref.version <= _LONGEST_GAP:
            continue
        if not all(store.tables.at(pin.ref.at(v)).is_ours() for v in range(pin.ref.version + 1, head + 1)):
            continue
        if is_quarantined(store, _next_version(view)):
            # An interrupted repair has quarantined a published manifest version. These table versions may contain rows
            # that it acknowledged to a client, so they must not be undone.
            raise DriftError(key, pin.ref.version, head, hint="a repair was interrupted: run 'omnigraph repair' again")
        held.check()
        reach(Failpoint.LATE_VERSION_CHECKED)
        back = restored(store, pin.ref.at(head), pin.ref.version)
        pins.append(replace(pin, ref=back))
        outcomes.append(TableOutcome(key, LATE_WRITER, head, back.version))
    if not pins:
        return None
    operation = ulid_now()
    message = "undo of table versions that arrived after their write was settled"
    commit = recovery_commit(store, view, message, LATE_WRITER, operation)
    published = store.publish(view, Change(tuple(pins)), commit, held)
    record = RecoveryRecord(
        operation,
        published.head.id,
        RecoveryKind.ROLLED_BACK,
        None,
        LATE_WRITER,
        view.branch,
        tuple(outcomes),
        now_micros(),
    )
    audit.append(store.audit, record)
    return published
