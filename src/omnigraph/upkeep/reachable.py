"""The reachable parts of a graph: everything that branches, tags, kept commits, later merges and work records need."""

# See docs/decisions/0107-cleanup-looks-at-what-can-be-read.md

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TypeVar

from omnigraph.commit.ancestors import lineage_of
from omnigraph.commit.kept_states import MOVES
from omnigraph.commit.lineage import commits
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Commit, Manifest
from omnigraph.commit.manifest_rows import read_manifest
from omnigraph.commit.ref_names import recorded_branch
from omnigraph.commit.refs import BranchRef, TagRef, list_all_branch_refs, list_tag_refs
from omnigraph.commit.retention import kept_commits
from omnigraph.commit.schema_tables import identity_in
from omnigraph.commit.sidecar import Sidecar
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import WorkRecord
from omnigraph.dataclass import dataclass
from omnigraph.errors import BranchNotFoundError, InputError, StorageError, VersionReclaimedError, shown
from omnigraph.storage.ledger import LedgerBranch
from omnigraph.storage.table_ref import TableRef
from omnigraph.worker_pool import WorkerPool

_LONGEST_AGE = timedelta(days=365_250)
_READERS = 8
T = TypeVar("T")

ManifestVersion = tuple[str, str | None, int]
"""A branch, the Lance branch of its manifest, and a manifest version."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The retention policy. A commit is removed if all given rules allow it. The head of a branch always stays.

    Attributes:
        keep: number of newest commits of each branch that stay.
        older_than: commits younger than this stay.
        orphans: minimum age of orphan files to remove.
        tables: paths of the tables to clean up; None for all tables, manifests and staged files. If paths are given,
            a table that nothing needs belongs to a dropped type and is removed at any age, and the other rules apply
            to `main` only.
        since: the commits of `main` from this manifest version on stay; None for no such rule.
        only_forks: with `tables`, read only some commits of other branches than `main`. They suffice to find all forks
            that these branches need, and all their needed versions of the tables themselves and of other forks, but
            not all needed versions of their own forks.
    """

    keep: int | None
    older_than: timedelta | None
    orphans: timedelta
    tables: frozenset[str] | None = field(default=None, kw_only=True)
    since: int | None = field(default=None, kw_only=True)
    only_forks: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Validate the policy.

        Raises:
            InputError: there is no rule, a value is negative, or it is not a number or an age.
        """
        if self.keep is None and self.older_than is None:
            raise InputError(
                "cleanup needs a rule for the commits to keep",
                hint="give keep or older_than (--keep, --older-than), or both",
            )
        keep: object = self.keep
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 0):
            raise InputError(f"keep: {shown(keep)} is not a number of commits")
        for name, age in (("older_than", self.older_than), ("orphans_older_than", self.orphans)):
            if age is None and name == "older_than":
                continue
            if not isinstance(age, timedelta) or age > _LONGEST_AGE:
                raise InputError(f"{name}: {shown(age)} is not an age", hint="give a timedelta of at most 1,000 years")
            if age < timedelta(0):
                raise InputError(f"{name}: an age cannot be negative")

    def stays(self, distance: int, commit: Commit, now: datetime) -> bool:
        """Whether a commit stays readable. `distance` is its number of commits from the head of its branch."""
        if distance == 0 or (self.keep is not None and distance < self.keep):
            return True
        if self.since is not None and commit.branch == MAIN and commit.manifest_version >= self.since:
            return True
        return self.older_than is not None and commit.created_at > (now - self.older_than).timestamp() * 1_000_000


@dataclass(frozen=True, slots=True)
class Refs:
    """The branches and tags of a graph.

    Attributes:
        pending: the references of branches that are being created or reset.
    """

    branches: dict[str, BranchRef]
    tags: dict[str, TagRef]
    pending: list[BranchRef] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, store: Store) -> Refs:
        found = list_all_branch_refs(store.objects)
        live = {name: store.current(ref) for name, ref in found.items() if not ref.pending}
        pending = [ref for ref in found.values() if ref.pending]
        # The incarnations that resets have prepared. Each of these resets may take effect later.
        pending += [ref.of(successor) for ref in found.values() for successor in ref.successors]
        return cls(live, list_tag_refs(store.objects), pending)


@dataclass(frozen=True, slots=True)
class Reach:
    """The reachable parts of a graph.

    Attributes:
        refs: the branches and tags that were read.
        pins: the reachable table versions.
        keys: the type key of each table, by the identity part of its directory (`identity_in`); also of dropped types.
        ledgers: the Lance branches of the manifest, read before the references.
        needed_ledgers: the Lance branches of the manifest with reachable versions, and their parents.
        only_recorded: table versions that only running work needs.
        manifests: the reachable manifest versions, by Lance branch.
        heads: the newest manifest version of each branch, by Lance branch.
        dropped: the identity parts of the tables of dropped types.
    """

    refs: Refs
    pins: frozenset[TableRef]
    keys: dict[str, str]
    ledgers: Mapping[str, LedgerBranch]
    needed_ledgers: frozenset[str]
    only_recorded: frozenset[TableRef]
    manifests: Mapping[str | None, frozenset[int]]
    heads: Mapping[str | None, int]
    dropped: frozenset[str]

    def versions(self) -> dict[str, dict[str | None, set[int]]]:
        """The reachable versions, by table and fork."""
        found: dict[str, dict[str | None, set[int]]] = {}
        for pin in self.pins:
            found.setdefault(pin.path, {}).setdefault(pin.branch, set()).add(pin.version)
        return found

    def deletable(self, going: Iterable[str]) -> list[str]:
        """Those of the given Lance branches of the manifest that can be deleted: all their children are given, too."""
        going = set(going)
        return sorted(going - _with_parents(self.ledgers.keys() - going, self.ledgers))

    @property
    def identifiers(self) -> set[str]:
        """The name prefixes of the forks of existing branches."""
        return {branch.incarnation for branch in self.refs.branches.values()}


def reach(
    store: Store,
    policy: Policy,
    now: datetime,
    records: Sequence[WorkRecord] = (),
    sidecars: Sequence[Sidecar] = (),
) -> Reach:
    """Find everything that has to stay.

    - the head of each branch, and the commit at which the branch was created
    - the commits of each branch that the policy keeps
    - every tagged commit, and every commit that a later merge may need as a base
    - the versions that running work needs
    - the versions that writes in flight started from: recovery needs them to undo these writes
    - everything that an open transaction has written

    Args:
        store: the graph.
        policy: the commits to keep.
        now: the current time.
        records: running work.
        sidecars: writes in flight.

    Raises:
        StorageError: a branch cannot be read, so its needs are unknown.
    """
    ledgers = store.manifest.branches()
    refs = Refs.of(store)
    return reach_from(store, refs, heads_of(store, refs), ledgers, policy, now, records, sidecars)


def heads_of(store: Store, refs: Refs) -> dict[str, Manifest]:
    """The newest state of each branch, `main` first. Skips branches that were deleted meanwhile.

    Raises:
        StorageError: a branch cannot be read.
    """
    heads: dict[str, Manifest] = {}
    for name in (MAIN, *refs.branches):
        ledger = None if name == MAIN else refs.branches[name].ledger
        with suppress(BranchNotFoundError):  # deleted meanwhile
            view = unless_branch_removed(store, ledger, partial(store.capture, recorded_branch(name)))
            if view is not None:
                heads[name] = view
    return heads


def reach_from(
    store: Store,
    refs: Refs,
    heads: Mapping[str, Manifest],
    ledgers: Mapping[str, LedgerBranch],
    policy: Policy,
    now: datetime,
    records: Sequence[WorkRecord] = (),
    sidecars: Sequence[Sidecar] = (),
) -> Reach:
    """Find everything that has to stay, from references and heads that were read before.

    Args:
        store: the graph.
        refs: its branches and tags.
        heads: the newest state of each branch.
        ledgers: the Lance branches of the manifest.
        policy: the commits to keep.
        now: the current time.
        records: running work.
        sidecars: writes in flight. If one is a merge, the merged commit has to stay, too.
    """
    places = named_places(refs, heads, sidecars)
    for view in heads.values():
        retained = unless_branch_removed(store, view.ledger.branch, partial(_retained, view, policy, now))
        places |= {_manifest_version(commit) for commit in retained or ()}
    bases = merge_bases(store, refs, heads, ledgers, records, sidecars) - places
    known = {(view.branch, view.ledger.branch, view.version) for view in heads.values()}
    views = [*heads.values(), *_read_states(store, places - known)]
    kept_by_name = {pin.ref for view in views for pin in view.tables.values()}
    views += _read_states(store, bases - known)
    recorded = {ref for record in records for ref in record.needs}
    pins = {ref for ref in recorded if ref.path != MANIFEST_PATH}
    pins |= {ref for one in sidecars for table in one.tables for ref in (table.pin, table.base)}
    keys: dict[str, str] = {}
    for view in views:
        pins |= {pin.ref for pin in view.tables.values()}
        keys |= {f"{key.partition(':')[0]}s/{table}": key for key, table, _ in view.dropped}
    dropped = frozenset(keys)
    for view in views:
        keys |= {identity_in(pin.ref.path): key for key, pin in view.tables.items()}
    needed = {ref.ledger for ref in (*refs.branches.values(), *refs.pending)} | {view.ledger.branch for view in views}
    needed |= {ref.reset_from for ref in refs.branches.values()}
    needed |= {ref.branch for ref in recorded if ref.path == MANIFEST_PATH}
    only_recorded = frozenset(ref for ref in recorded - kept_by_name if ref.path != MANIFEST_PATH)
    manifests = {(ledger, version) for _, ledger, version in (*places, *bases, *known)}
    manifests |= {(ref.branch, ref.version) for ref in recorded if ref.path == MANIFEST_PATH}
    return Reach(
        refs,
        frozenset(pins),
        keys,
        ledgers,
        frozenset(_with_parents(needed, ledgers)),
        only_recorded,
        _by_ledger(manifests),
        {view.ledger.branch: view.version for view in heads.values()},
        dropped,
    )


def named_places(refs: Refs, heads: Mapping[str, Manifest], sidecars: Sequence[Sidecar] = ()) -> set[ManifestVersion]:
    """The manifest versions that stay under every policy, without heads and merge bases.

    These are the versions of tags, of starts of branches, and before writes in flight.
    """
    places = {(tag.branch, tag.ledger, tag.manifest_version) for tag in refs.tags.values()}
    places |= {(ref.parent, ref.parent_ledger, ref.parent_version) for ref in refs.pending}
    # Undoing a visible write needs the state before it, with the tables that the write dropped.
    places |= {(one.branch, one.commit.ledger, one.commit.manifest_version - 1) for one in sidecars}
    for name, view in heads.items():
        if name != MAIN:
            places |= set(_start(refs.branches[name], view))
    return places


def merge_bases(
    store: Store,
    refs: Refs,
    heads: Mapping[str, Manifest],
    ledgers: Mapping[str, LedgerBranch],
    records: Sequence[WorkRecord] = (),
    sidecars: Sequence[Sidecar] = (),
) -> set[ManifestVersion]:
    """The manifest versions of heads and tags, and of the commits that later merges may need as a base."""
    merging = {one.commit.merged_parent for one in sidecars if one.commit.merged_parent is not None}
    named = {*merging, *(commit for record in records for commit in record.commits)}
    named |= {tag.commit_id for tag in refs.tags.values()}
    return set(_bases(store, ledgers, heads, named))


def _by_ledger(versions: Iterable[tuple[str | None, int]]) -> dict[str | None, frozenset[int]]:
    found: dict[str | None, set[int]] = {}
    for ledger, version in versions:
        found.setdefault(ledger, set()).add(version)
    return {ledger: frozenset(each) for ledger, each in found.items()}


def _manifest_version(commit: Commit) -> ManifestVersion:
    return commit.branch, commit.ledger, commit.manifest_version


def _start(branch: BranchRef, view: Manifest) -> Iterator[ManifestVersion]:
    """The manifest version at which a branch was created; for a transaction branch, also all its later versions."""
    yield branch.parent, branch.parent_ledger, branch.parent_version
    if branch.is_hidden:
        versions = range(branch.parent_version, view.version)
        yield from ((branch.name, branch.ledger, version) for version in versions)


def _retained(view: Manifest, policy: Policy, now: datetime) -> list[Commit]:
    """The commits of a branch that the policy keeps. A policy for some tables keeps all commits of other branches."""
    keeps_own = policy.tables is not None and view.branch != MAIN
    found = []
    for distance, commit in enumerate(commits(view)):
        if not policy.stays(distance, commit, now) and not (keeps_own and commit.branch == view.branch):
            break
        found.append(commit)
    if not (keeps_own and policy.only_forks):
        return found
    # Until a branch moves to other tables, each of its tables stays at the version that it started from, or moves to
    # one fork. So the first and the last of these states are enough.
    return found[:1] + [older for newer, older in pairwise(found) if newer.writer in MOVES or older.writer in MOVES]


def _bases(
    store: Store, ledgers: Mapping[str, LedgerBranch], heads: Mapping[str, Manifest], named: set[str]
) -> Iterator[ManifestVersion]:
    """The commits that later merges may need as a base: merges of branches, and of the commits in `named`."""
    known: _Lineage = {view.head.id: _lineage_of_head(view) for view in heads.values()}
    for view in heads.values():
        _add_commits(store, view, known)
    live = {view.ledger.branch for view in heads.values()}
    for name in ledgers:
        if name not in live:  # a deleted branch may have been merged or tagged
            ledger = unless_branch_removed(store, name, partial(store.manifest.open, name))
            if ledger is not None:
                deleted = unless_branch_removed(store, name, partial(read_manifest, name, name, ledger))
                if deleted is not None:
                    known.setdefault(deleted.head.id, _lineage_of_head(deleted))
                    _add_commits(store, deleted, known)
    parents = {name: found for name, (found, _) in known.items()}
    names = named | {view.head.id for view in heads.values()}
    yield from (known[name][1] for name in kept_commits(parents, names))


_Lineage = dict[str, tuple[tuple[str, ...], ManifestVersion]]
"""The parents of each commit, and its manifest version."""


def _lineage_of_head(view: Manifest) -> tuple[tuple[str, ...], ManifestVersion]:
    head = view.head
    return tuple(one for one in (head.parent, head.merged_parent) if one is not None), _manifest_version(head)


def _add_commits(store: Store, view: Manifest, known: _Lineage) -> None:
    """Add all ancestors of the head of a manifest to `known`."""
    rows = unless_branch_removed(store, view.ledger.branch, partial(lineage_of, view))
    if rows is None:
        return
    columns = (rows[name].to_pylist() for name in ("id", "parent", "merged_parent", "branch", "ledger", "version"))
    for name, parent, merged, branch, ledger, version in zip(*columns, strict=True):
        if name not in known:
            parents = () if parent is None else (parent,) if merged is None else (parent, merged)
            known[name] = parents, (branch, ledger, version)


def _read_states(store: Store, places: Iterable[ManifestVersion]) -> list[Manifest]:
    """Read manifest versions. Skips versions that were removed."""

    def read(at: ManifestVersion) -> Manifest | None:
        branch, ledger, version = at
        return unless_removed(store, ledger, lambda: store.manifest_in(ledger, branch, version))

    ordered = sorted(places, key=lambda at: (at[0], at[1] or "", at[2]))
    with WorkerPool(_READERS) as readers:
        return [view for view in readers.map(read, ordered) if view is not None]


def unless_removed(store: Store, ledger: str | None, read: Callable[[], T]) -> T | None:
    """Read a version of the manifest. Returns None if another process has removed it, or its Lance branch."""
    try:
        return unless_branch_removed(store, ledger, read)
    except VersionReclaimedError:
        return None


def unless_branch_removed(store: Store, ledger: str | None, read: Callable[[], T]) -> T | None:
    """Read a Lance branch of the manifest. Returns None if another process has removed the whole branch.

    Raises:
        VersionReclaimedError: another process has removed the version, so it is unknown which files it needs.
    """
    try:
        return read()
    except (StorageError, VersionReclaimedError):
        if ledger is None or ledger in store.manifest.branches():
            raise
        return None


def _with_parents(needed: Iterable[str | None], ledgers: Mapping[str, LedgerBranch]) -> set[str]:
    """Lance branches with all their ancestors, whose files they share."""
    found: set[str] = set()
    for name in needed:
        while name is not None and name not in found:
            found.add(name)
            name = ledgers[name].parent if name in ledgers else None
    return found
