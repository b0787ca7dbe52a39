"""Counts the commits that a cleanup would make unreadable. Reads no state except the heads.

The rules are those of `reachable`. Table versions are not examined: a manifest version is removed with the table
versions of its commit.
"""

# See docs/decisions/0200-status-reads-no-rows.md

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow.compute as pc

from omnigraph.commit.ancestors import lineage_of
from omnigraph.commit.manifest import MANIFEST_PATH, Manifest
from omnigraph.commit.sidecar import Sidecar
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import WorkRecord
from omnigraph.dataclass import dataclass
from omnigraph.storage.lance_manifest import version_of
from omnigraph.storage.ledger import LedgerBranch
from omnigraph.storage.table_ref import table_directory
from omnigraph.upkeep.reachable import Policy, Refs, merge_bases, named_places

Version = tuple[str | None, int]
"""A Lance branch of the manifest, and a version."""


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """The number of commits in the history of a branch, and how many of its own a cleanup would remove."""

    commits: int
    removable: int


@dataclass(frozen=True, slots=True)
class _History:
    """The history of a branch.

    Attributes:
        commits: number of its commits.
        kept: the versions of the commits that the policy keeps.
        own: the versions of its other commits, without those that it shares with the branch it was created from.
    """

    commits: int
    kept: frozenset[Version]
    own: frozenset[Version]

    @classmethod
    def of(cls, view: Manifest, policy: Policy, now: datetime) -> _History:
        rows = lineage_of(view)
        rows = rows.filter(pc.invert(rows["is_ancestor"]))[::-1]  # newest first
        stays = np.arange(rows.num_rows) < max(policy.keep or 0, 1)
        if policy.older_than is not None:
            oldest = (now - policy.older_than).timestamp() * 1_000_000
            stays |= rows["created_at"].to_numpy() > oldest
        # As in a cleanup, the first commit that the policy does not keep ends the kept ones.
        count = rows.num_rows if stays.all() else int(stays.argmin())
        versions = list(zip(rows["ledger"].to_pylist(), rows["version"].to_pylist(), strict=True))
        # The two newest versions of a manifest always stay.
        own = (one for one in versions[count:] if one[0] == view.ledger.branch and one[1] < view.version - 1)
        return cls(rows.num_rows, frozenset(versions[:count]), frozenset(own))


def commit_counts(
    store: Store,
    refs: Refs,
    heads: Mapping[str, Manifest],
    ledgers: Mapping[str, LedgerBranch],
    files: Iterable[str],
    policy: Policy,
    now: datetime,
    records: Sequence[WorkRecord],
    sidecars: Sequence[Sidecar],
) -> dict[str, CommitCounts]:
    """Count the commits of each branch.

    Args:
        store: the graph.
        refs: its branches and tags.
        heads: the newest state of each branch.
        ledgers: the Lance branches of the manifest.
        files: the paths of all files of the manifest.
        policy: the commits to keep.
        now: the current time.
        records: running work.
        sidecars: writes in flight.

    Raises:
        VersionReclaimedError: a cleanup has removed a head meanwhile.
    """
    histories = {name: _History.of(view, policy, now) for name, view in heads.items()}
    existing = _existing(files, ledgers)
    candidates = {name: history.own & existing for name, history in histories.items()}
    if any(candidates.values()):
        needed = {version for history in histories.values() for version in history.kept}
        needed |= {(ledger, version) for _, ledger, version in named_places(refs, heads, sidecars)}
        needed |= {(one.branch, one.version) for record in records for one in record.needs if one.path == MANIFEST_PATH}
        if any(found - needed for found in candidates.values()):
            bases = merge_bases(store, refs, heads, ledgers, records, sidecars)
            needed |= {(ledger, version) for _, ledger, version in bases}
        candidates = {name: found - needed for name, found in candidates.items()}
    return {name: CommitCounts(history.commits, len(candidates[name])) for name, history in histories.items()}


def _existing(files: Iterable[str], ledgers: Mapping[str, LedgerBranch]) -> frozenset[Version]:
    """The manifest versions whose files exist."""
    known: dict[str, str | None] = {table_directory(MANIFEST_PATH, ledger): ledger for ledger in (None, *ledgers)}
    found = set()
    for path in files:
        directory, is_version, name = path.partition("/_versions/")
        version = version_of(name) if is_version else None
        if version is not None and directory in known:
            found.add((known[directory], version))
    return frozenset(found)
