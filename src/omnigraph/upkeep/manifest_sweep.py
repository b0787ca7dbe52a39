"""Plans the cleanup of `__manifest`: the versions that no readable commit, branch, tag or running work needs.

The newest version of a branch has the commits of its whole history. So an old version is only needed to read the graph
at its commit. When cleanup removes a commit's table versions, it also removes its manifest version, and the files that
only this version needed. The history itself stays.

The two newest versions of every branch stay: if the newest file is damaged, `repair` goes back to the one before it.
"""

# See docs/decisions/0180-manifest-versions-go-with-their-commits.md

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from omnigraph.commit.manifest import MANIFEST_PATH
from omnigraph.commit.manifest_rows import read_manifest
from omnigraph.commit.removal_list import TableRemovals
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.storage.objects import ObjectInfo
from omnigraph.storage.table_files import Needs
from omnigraph.storage.table_ref import table_directory
from omnigraph.upkeep.reachable import Reach, unless_branch_removed, unless_removed
from omnigraph.upkeep.sweep import TableSweep

_TREE = f"{MANIFEST_PATH}/tree/"


def plan_manifest(
    store: Store,
    found: Reach,
    listed: Sequence[ObjectInfo],
    going: Collection[str],
    cutoff: datetime,
    skew: timedelta,
    *,
    busy: bool,
) -> TableSweep:
    """Plan the removals in `__manifest`. Changes nothing.

    Args:
        store: the graph.
        found: everything that has to stay.
        listed: all files of the manifest.
        going: Lance branches that are removed as a whole.
        cutoff: files that no version ever needed are removed if they are older than this.
        skew: allowed error of the modification times of files.
        busy: whether a write is in flight, which may be about to publish such a file.
    """
    sweep = TableSweep(MANIFEST_PATH)
    try:
        files = _by_ledger(listed, found.ledgers)
        needed = Needs()
        removed = set(going)
        for name in [ledger for ledger in files if ledger not in going]:
            needs = unless_branch_removed(store, name, partial(_plan_versions, store, found, name, sweep))
            if needs is None and name is not None:
                removed.add(name)  # another process has removed it meanwhile
                sweep.versions.pop(name, None)
            needed.add(needs or Needs())
        for name, infos in files.items():
            if name not in removed:
                published = _last_published(name, infos)
                limit = None if busy or published is None else min(cutoff, published - skew)
                sweep.add_files(name, infos, needed, _Unused(found.heads.get(name, 0), limit))
    except OmnigraphError as error:
        return TableSweep(MANIFEST_PATH, error=str(error))
    return sweep


@dataclass(frozen=True, slots=True)
class _Unused:
    """Decides whether a file that no version needs can be removed.

    Attributes:
        head: the newest version; 0 if it is unknown.
        limit: rows of a failed publish are removed if they are older than this; None if they stay.
    """

    head: int
    limit: datetime | None

    def __call__(self, info: ObjectInfo) -> bool:
        after = transaction_base(info.path)
        if after is not None:
            # A publish with this base is too late: it fails, or its writer finds newer versions.
            return after + 1 < self.head - 1
        return self.limit is not None and info.modified < self.limit


def transaction_base(path: str) -> int | None:
    """The version that a publish was based on, by the name of its transaction file; None for other files."""
    directory, _, name = path.rpartition("/")
    number = name.partition("-")[0]
    return int(number) if directory.endswith("/_transactions") and number.isdecimal() else None


def remove_transactions(store: Store, removals: TableRemovals) -> None:
    """Remove the transaction files of versions that an interrupted cleanup has removed."""
    for ledger in removals.versions:
        directory = f"{table_directory(MANIFEST_PATH, ledger)}/_transactions"
        bases = ((info.path, transaction_base(info.path)) for info in store.objects.list(directory))
        store.objects.delete_files(
            path for path, base in bases if base is not None and removals.removes(ledger, base + 1)
        )


def _plan_versions(store: Store, found: Reach, ledger: str | None, sweep: TableSweep) -> Needs:
    """Plan the versions of one Lance branch to remove. Returns the files of the versions that stay.

    All versions of a Lance branch stay if it may belong to a branch that is being created.
    """
    existing = store.manifest.versions(ledger)
    pins = found.manifests.get(ledger, frozenset())
    head = found.heads.get(ledger)
    if head is not None:
        stay = {version for version in existing if version in pins or version >= head - 1}
    elif pins and _is_closed(store, ledger):
        # Lance identifies the branch by its newest version.
        stay = {version for version in existing if version in pins or version == existing[-1]}
    else:
        stay = set(existing)
    gone = [version for version in existing if version not in stay]
    if gone:
        sweep.versions[ledger] = dict.fromkeys(gone, 0)
    return store.manifest.needs(ledger, stay, gone)


def _is_closed(store: Store, ledger: str | None) -> bool:
    """Whether a Lance branch belongs to a deleted branch, so that no version can follow."""
    name = ledger or ""
    newest = unless_removed(store, ledger, lambda: store.manifest.open(ledger))
    return newest is not None and bool(unless_removed(store, ledger, lambda: read_manifest(name, name, newest).closed))


def _last_published(ledger: str | None, infos: Iterable[ObjectInfo]) -> datetime | None:
    """The time at which the newest version of a Lance branch was published.

    A publish that wrote an older file can no longer succeed, because it is not based on the newest version.
    """
    directory = f"{table_directory(MANIFEST_PATH, ledger)}/_versions/"
    # The numbers in the names of version files count downwards, so the newest version has the smallest name.
    versions = [info for info in infos if info.path.startswith(directory) and info.path.endswith(".manifest")]
    return min(versions, key=lambda info: info.path).modified if versions else None


def _by_ledger(listed: Iterable[ObjectInfo], ledgers: Mapping[str, object]) -> dict[str | None, list[ObjectInfo]]:
    """Files by Lance branch. Files of unknown Lance branches are left out."""
    found: dict[str | None, list[ObjectInfo]] = {None: []}
    # Graphs of format 1 have Lance branches whose names contain slashes.
    deep = sorted((name for name in ledgers if "/" in name), key=len, reverse=True)
    for info in listed:
        if not info.path.startswith(_TREE):
            found[None].append(info)
            continue
        rest = info.path[len(_TREE) :]
        name = next((each for each in deep if rest.startswith(f"{each}/")), rest.partition("/")[0])
        if name in ledgers:
            found.setdefault(name, []).append(info)
    return found
