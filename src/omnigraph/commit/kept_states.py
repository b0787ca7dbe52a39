"""Readable states: which commits still have their manifest version and all their table versions.

A manifest version can outlive the table versions that it points at. Cleanup keeps the version before each head for
`repair`, also if it removes the tables of that commit, and a backup has all manifest versions, but only some of the
tables. Such a state counts as removed. A schema change with data loss removes versions of the affected tables only; the
other types of earlier states stay readable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import pairwise

from omnigraph.commit.manifest import MAIN, Commit, DroppedData, Manifest
from omnigraph.commit.removal_list import are_present
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import Store, state_removed
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError, StorageError, VersionReclaimedError
from omnigraph.storage.lance_manifest import version_of
from omnigraph.storage.table_ref import TableRef, table_directory
from omnigraph.storage.uri import Scheme
from omnigraph.worker_pool import WorkerPool

_READERS = 8
MOVES = (None, WriterKind.SCHEMA_APPLY, WriterKind.BRANCH_UPDATE, WriterKind.REPAIR)
"""Writes after which a branch may have other tables, or lower version numbers. Unknown ones count as such."""


def kept_state(store: Store, commit: Commit) -> Manifest:
    """The state at a commit, with all its tables.

    Raises:
        VersionReclaimedError: the manifest version or a table version was removed.
    """
    return checked_state(store, store.manifest_of(commit))


def checked_state(store: Store, view: Manifest) -> Manifest:
    """Check that all table versions of a state exist. Looks only at tables that have changed since.

    Raises:
        VersionReclaimedError: a table version was removed.
    """
    if not has_tables(store, view):
        raise state_removed(view.head.id)
    return view


def has_tables(store: Store, view: Manifest) -> bool:
    """Whether all table versions of a state exist, except those that a schema change with data loss has removed."""
    newest = _newest(store, view.branch)
    refs = _refs(view) - _refs(newest)
    if are_present(store.objects, refs):
        return True
    drops, is_live = _drops(store), _is_of(newest, view.ledger.branch)
    rest = {ref for ref in refs if not _is_dropped(ref, view, drops, is_live=is_live)}
    return len(rest) < len(refs) and are_present(store.objects, rest)


def _drops(store: Store) -> tuple[DroppedData, ...]:
    """The hard drops of the graph; none if `main` is damaged."""
    with suppress(OmnigraphError):
        return store.capture(MAIN).dropped_data
    return ()


def _is_dropped(ref: TableRef, view: Manifest, drops: Iterable[DroppedData], *, is_live: bool) -> bool:
    """Whether a schema change with data loss may have removed a table version of a state.

    It keeps all states of the existing branches other than `main`. So it removes versions of a fork only if the branch
    of the fork was deleted or reset.

    Args:
        ref: the table version.
        view: the state.
        drops: the hard drops of the graph.
        is_live: whether the branch of the state exists, and was not reset since.
    """
    mine = (one for one in drops if one.path == ref.path)
    if ref.branch is None:
        return any(one.version is None or ref.version < one.version for one in mine)
    # A branch that was created after a hard drop has its record, and none of its data.
    return not is_live and any(one not in view.dropped_data for one in mine)


def _newest(store: Store, branch: str) -> Manifest | None:
    """The newest state of a branch, whose table versions cleanup never removes; None if it is not readable."""
    with suppress(OmnigraphError):  # deleted, damaged, or the hidden branch of a transaction
        return store.capture(branch)
    return None


def _refs(view: Manifest | None) -> set[TableRef]:
    return set() if view is None else {pin.ref for pin in view.tables.values()}


def _is_of(newest: Manifest | None, ledger: str | None) -> bool:
    """Whether the newest state of a branch is in the given Lance branch of the manifest."""
    return newest is not None and newest.ledger.branch == ledger


def removed_of(store: Store, commits: Iterable[Commit]) -> frozenset[str]:
    """The ids of the commits whose state is not kept.

    Lists the versions of the manifest and of the tables that changed. Reads few manifest versions: if all versions of
    all tables between two states exist, the states between them are not read.
    """
    by_ledger: dict[str | None, list[Commit]] = {}
    for commit in commits:
        by_ledger.setdefault(commit.ledger, []).append(commit)
    removed: set[str] = set()
    drops = _drops(store)
    for ledger, listed in by_ledger.items():
        versions = set(store.manifest.versions(ledger))
        kept = sorted((one for one in listed if one.manifest_version in versions), key=lambda one: one.manifest_version)
        removed.update(one.id for one in listed if one.manifest_version not in versions)
        if kept and store.objects.uri.scheme is not Scheme.MEMORY:  # cleanup does not support graphs in memory
            newest = _newest(store, kept[-1].branch)
            removed.update(_Search(store, kept, _refs(newest), drops, _is_of(newest, ledger)).removed())
    return frozenset(removed)


_Place = tuple[str, str | None]
"""The path of a table and the Lance branch of it."""


@dataclass(slots=True)
class _Search:
    """Finds the commits of one Lance branch of the manifest whose tables were removed.

    Attributes:
        commits: commits whose manifest versions exist, oldest first.
        newest: table versions that exist for sure.
        drops: the hard drops of the graph. The table versions that they remove do not count.
        is_live: whether the branch of the commits exists, and was not reset since.
    """

    store: Store
    commits: Sequence[Commit]
    newest: Collection[TableRef] = ()
    drops: Sequence[DroppedData] = ()
    is_live: bool = True
    _pins: dict[int, dict[_Place, int] | None] = field(default_factory=dict)
    _versions: dict[_Place, list[int]] = field(default_factory=dict)
    _breaks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find the commits that cannot be compared with the one before them."""
        pairs = enumerate(pairwise(self.commits), 1)
        self._breaks = [
            i
            for i, (one, following) in pairs
            if following.writer in MOVES or following.manifest_version != one.manifest_version + 1
        ]

    def removed(self) -> list[str]:
        """The ids of the commits with missing table versions."""
        found: list[str] = []
        ranges = [(0, len(self.commits) - 1)]
        while ranges:
            first, last = ranges.pop()
            verdict = self._is_kept(first, last)
            if verdict is None and last > first:
                middle = (first + last) // 2
                ranges += [(first, middle), (middle + 1, last)]
            elif verdict is False:
                found += [commit.id for commit in self.commits[first : last + 1]]
        return found

    def _is_kept(self, first: int, last: int) -> bool | None:
        """Whether all states of a range exist (True), or none of them (False); None if it is not certain."""
        if bisect_right(self._breaks, last) > bisect_right(self._breaks, first):
            return None
        before, after = self._at(first), self._at(last)
        if first == last and before is None:
            return False
        if before is None or after is None or before.keys() != after.keys():
            return None
        if any(version > after[place] for place, version in before.items()):
            return None
        whole = True
        changed = [at for at, one in before.items() if after[at] > one or TableRef(*at, one) not in self.newest]
        for place, versions in self._listed(changed).items():
            # The version numbers of a table only grow, so the states between have versions between these two.
            low, high = before[place], after[place]
            existing = bisect_right(versions, high) - bisect_left(versions, low)
            if existing == 0:
                return False
            whole = whole and existing == high + 1 - low
        return True if whole else None

    def _at(self, number: int) -> dict[_Place, int] | None:
        """The table versions of a state; None if it was removed."""
        if number not in self._pins:
            try:
                view = self.store.manifest_of(self.commits[number])
                self._pins[number] = {
                    (ref.path, ref.branch): ref.version
                    for ref in _refs(view)
                    if not _is_dropped(ref, view, self.drops, is_live=self.is_live)
                }
            except VersionReclaimedError:
                self._pins[number] = None
            except StorageError:
                self._pins[number] = {}  # it is damaged, not removed
        return self._pins[number]

    def _listed(self, places: Iterable[_Place]) -> dict[_Place, list[int]]:
        """The existing versions of tables, oldest first."""
        places = list(places)
        missing = [place for place in places if place not in self._versions]
        if missing:
            with WorkerPool(_READERS) as readers:
                self._versions |= dict(zip(missing, readers.map(self._existing, missing), strict=True))
        return {place: self._versions[place] for place in places}

    def _existing(self, place: _Place) -> list[int]:
        listed = self.store.objects.list(f"{table_directory(*place)}/_versions")
        found = (version_of(info.path.rpartition("/")[2]) for info in listed)
        return sorted(version for version in found if version is not None)
