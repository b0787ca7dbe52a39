"""What of a graph can still be read: the table versions that branches, tags and kept commits point at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.lineage import commits
from omnigraph.commit.manifest import MAIN, Commit, Manifest, RowKind, read_commit
from omnigraph.commit.names import SYSTEM, recorded_branch
from omnigraph.commit.store import Store
from omnigraph.errors import BranchNotFoundError, InputError
from omnigraph.storage.ledger import LedgerBranch, LedgerTag
from omnigraph.storage.tables import TableRef

_READERS = 8

Place = tuple[str, int]
"""A branch and a manifest version of it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which commits stay readable. A commit goes when everything that is given lets it go; a branch's head never does.

    Attributes:
        keep: the newest commits of each branch that stay.
        older_than: commits that are younger stay.
        orphans: how old a file has to be that nothing points at.
    """

    keep: int | None
    older_than: timedelta | None
    orphans: timedelta

    def __post_init__(self) -> None:
        """Refuse what is no policy.

        Raises:
            InputError: nothing says what goes, or something is negative.
        """
        if self.keep is None and self.older_than is None:
            raise InputError("say which commits stay", hint="give keep or older_than (--keep, --older-than), or both")
        if self.keep is not None and self.keep < 0:
            raise InputError(f"keep: {self.keep} is no number of commits")
        for name, age in (("older_than", self.older_than), ("orphans_older_than", self.orphans)):
            if age is not None and age < timedelta(0):
                raise InputError(f"{name}: an age is not negative")

    def stays(self, place: int, commit: Commit, now: datetime) -> bool:
        """Whether a commit stays readable; `place` counts from the head of its branch."""
        if place == 0 or (self.keep is not None and place < self.keep):
            return True
        return self.older_than is not None and commit.created_at > (now - self.older_than).timestamp() * 1_000_000


@dataclass(frozen=True, slots=True)
class Refs:
    """The names that lead into a graph."""

    branches: dict[str, LedgerBranch]
    tags: dict[str, LedgerTag]

    @classmethod
    def of(cls, store: Store) -> Refs:
        return cls(store.manifest.branches(), store.manifest.tags())


@dataclass(frozen=True, slots=True)
class Reach:
    """What can be read.

    Attributes:
        refs: the names from which it was found.
        pins: the table versions.
        keys: the type keys of tables, by path, those of dropped types too.
    """

    refs: Refs
    pins: frozenset[TableRef]
    keys: dict[str, str]

    def versions(self) -> dict[str, dict[str | None, set[int]]]:
        """The versions that can be read, by table and fork."""
        found: dict[str, dict[str | None, set[int]]] = {}
        for pin in self.pins:
            found.setdefault(pin.path, {}).setdefault(pin.branch, set()).add(pin.version)
        return found

    @property
    def identifiers(self) -> set[str]:
        """What the forks of living branches begin with."""
        return {branch.identifier for branch in self.refs.branches.values()}


def reach(store: Store, policy: Policy, now: datetime) -> Reach:
    """Find everything that a policy keeps readable.

    That is: the head of each branch and where it began; the kept commits of its history; what was merged into it, which
    a later merge compares with; every tag; and all that a transaction at work has written.

    Raises:
        StorageError: a branch cannot be read, so nobody can say what it needs.
    """
    refs = Refs.of(store)
    heads: dict[str, Manifest] = {}
    for name in (MAIN, *refs.branches):
        with suppress(BranchNotFoundError):  # deleted meanwhile
            heads[name] = store.capture(recorded_branch(name))
    return reach_from(store, refs, heads, policy, now)


def reach_from(store: Store, refs: Refs, heads: Mapping[str, Manifest], policy: Policy, now: datetime) -> Reach:
    """The same, from heads that were captured before."""
    places = {(tag.branch or MAIN, tag.version) for tag in refs.tags.values()}
    for name, view in heads.items():
        places.add((name, view.version))
        if name != MAIN:
            places |= set(_beginning(refs.branches[name], view))
        places |= {(commit.branch, commit.manifest_version) for commit in _kept(view, policy, now)}
    places |= set(_merged(heads.values()))
    views = _read(store, sorted(places - {(view.branch, view.version) for view in heads.values()}))
    pins: set[TableRef] = set()
    keys: dict[str, str] = {}
    for view in (*views, *heads.values()):
        pins |= {pin.ref for pin in view.tables.values()}
        keys |= {f"{key.partition(':')[0]}s/{table}": key for key, table, _ in view.dropped}
    for view in (*views, *heads.values()):
        keys |= {pin.ref.path: key for key, pin in view.tables.items()}
    return Reach(refs, frozenset(pins), keys)


def newly_pinned(store: Store, known: Refs) -> set[TableRef]:
    """The table versions that branches and tags point at which are not among those that are known."""
    fresh = Refs.of(store)
    views = [
        store.capture(recorded_branch(name))
        for name, branch in fresh.branches.items()
        if known.branches.get(name) != branch
    ]
    views += [
        store.manifest_at(tag.branch or MAIN, tag.version)
        for name, tag in fresh.tags.items()
        if known.tags.get(name) != tag
    ]
    return {pin.ref for view in views for pin in view.tables.values()}


def _beginning(branch: LedgerBranch, view: Manifest) -> Iterator[Place]:
    """Where a branch began; of a transaction, every step since."""
    yield branch.parent or MAIN, branch.parent_version
    if branch.name.startswith(SYSTEM):
        yield from ((branch.name, version) for version in range(branch.parent_version, view.version))


def _kept(view: Manifest, policy: Policy, now: datetime) -> Iterator[Commit]:
    for place, commit in enumerate(commits(view)):
        if not policy.stays(place, commit, now):
            return
        yield commit


def _merged(views: Iterable[Manifest]) -> Iterator[Place]:
    """The commits of living branches that were merged into others: the two sides have them in common."""
    views = list(views)
    wanted = pa.array(sorted({parent for view in views for parent in _merged_parents(view)}), pa.utf8())
    if len(wanted) == 0:
        return
    for view in views:
        for row in view.ledger.read(filter=pc.field("object_id").isin(wanted)).to_pylist():
            commit = read_commit(row)
            yield commit.branch, commit.manifest_version


def _merged_parents(view: Manifest) -> Iterator[str]:
    said = view.ledger.read(columns=["metadata"], filter=pc.field("object_type") == RowKind.GRAPH_COMMIT.value)
    merges = said.filter(pc.match_substring(said["metadata"], '"merged_parent":'))
    for text in merges["metadata"].to_pylist():
        parent = read_commit({"metadata": text, "table_branch": None, "table_version": 0}).merged_parent
        if parent is not None:
            yield parent


def _read(store: Store, places: Iterable[Place]) -> list[Manifest]:
    def read(place: Place) -> Manifest | None:
        with suppress(BranchNotFoundError):
            return store.manifest_at(recorded_branch(place[0]), place[1])
        return None

    with ThreadPoolExecutor(_READERS) as readers:
        return [view for view in readers.map(read, places) if view is not None]
