"""The storage format of a graph: read its number, and upgrade older formats."""

from __future__ import annotations

from omnigraph.commit.format_version import CURRENT, READABLE
from omnigraph.commit.location import end_copied_leases
from omnigraph.commit.manifest import MAIN, STAMP
from omnigraph.commit.migrations import MIGRATIONS
from omnigraph.commit.store import Store
from omnigraph.errors import CorruptionError, FormatError
from omnigraph.storage.ledger import LedgerVersion


def read_format(ledger: LedgerVersion) -> int:
    """The format number of a graph.

    Raises:
        CorruptionError: the number is missing or invalid.
    """
    raw = (ledger.schema.metadata or {}).get(STAMP.encode())
    if raw is None:
        raise CorruptionError(
            "the manifest has no format stamp", hint="the graph was never completely created, or is damaged"
        )
    try:
        return int(raw)
    except ValueError:
        raise CorruptionError(f"the format stamp is {raw.decode(errors='replace')!r}, not a number") from None


def upgrade_format(store: Store, *, read_only: bool) -> int:
    """Check the format of a graph, and migrate an older one, one step at a time.

    A migration takes leases. In a copied graph, leases of processes at the original location are released first.

    Raises:
        FormatError: the graph is newer than this release, or older and opened read-only.
    """
    while True:
        ledger = store.newest(MAIN, None)
        if ledger is None:
            raise CorruptionError("the manifest is missing")
        stamp = read_format(ledger)
        if stamp == CURRENT or (read_only and READABLE <= stamp < CURRENT):
            return stamp
        if stamp > CURRENT:
            raise FormatError(
                f"the graph is in format {stamp}, this release reads up to {CURRENT}", hint="upgrade omnigraph"
            )
        step = MIGRATIONS.get(stamp)
        if step is None:
            raise FormatError(
                f"the graph is in format {stamp}, which this release cannot migrate",
                hint="export it with the release that wrote it, and load it into a new graph",
            )
        if read_only:
            raise FormatError(f"the graph is in format {stamp} and has to be migrated", hint="open it once for writing")
        end_copied_leases(store)
        step(store)
