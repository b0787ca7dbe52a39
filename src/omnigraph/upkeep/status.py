"""The condition of a graph: small files, deleted and unindexed rows, old versions, interrupted writes; and advice.

Reads the newest state of every branch, the states of tags, and one listing of the files. Changes nothing.
"""

# See docs/decisions/0183-upkeep-by-thresholds.md

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Manifest, TablePin
from omnigraph.commit.sidecar import read_sidecars
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import read_records, watch
from omnigraph.dataclass import dataclass
from omnigraph.errors import BranchNotFoundError, InputError, VersionReclaimedError
from omnigraph.lang.schema import Catalog
from omnigraph.settings import (
    UPKEEP_DELETED,
    UPKEEP_FRAGMENTS,
    UPKEEP_KEEP,
    UPKEEP_OLDER_THAN,
    UPKEEP_UNINDEXED,
    UPKEEP_VERSIONS,
)
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.table_ref import TableRef
from omnigraph.upkeep.dropped_data import unfinished_drops
from omnigraph.upkeep.indexes import FEWEST_VECTORS, coverage
from omnigraph.upkeep.optimize import ROWS_PER_FRAGMENT
from omnigraph.upkeep.reachable import Policy, Refs, heads_of, unless_removed
from omnigraph.upkeep.removable import commit_counts
from omnigraph.upkeep.vector_debts import vector_debts

_ATTEMPTS = 4
"""Number of times that the graph is read again after a cleanup has removed a version that was being read."""

_FEWEST_DELETED = 1000
"""Up to this number, deleted rows in files do not matter."""

Files = dict[str, int]
"""Data files by path, with their sizes."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds above which `status` advises a command, and `upkeep` runs it. Settings contain the defaults.

    Attributes:
        fragments: number of small files of a table.
        unindexed: number of rows of a table that an index does not cover.
        deleted: percentage of deleted rows in the files of a table.
        versions: number of commits that cleanup can remove.
        keep: number of newest commits of each branch that cleanup keeps.
        older_than: cleanup keeps commits that are younger than this.
    """

    fragments: int = field(default_factory=UPKEEP_FRAGMENTS.number)
    unindexed: int = field(default_factory=UPKEEP_UNINDEXED.number)
    deleted: int = field(default_factory=UPKEEP_DELETED.number)
    versions: int = field(default_factory=UPKEEP_VERSIONS.number)
    keep: int = field(default_factory=UPKEEP_KEEP.number)
    older_than: timedelta = field(default_factory=UPKEEP_OLDER_THAN.age)

    def __post_init__(self) -> None:
        """Validate the thresholds.

        Raises:
            InputError: a threshold is negative.
        """
        for name in ("fragments", "unindexed", "deleted", "versions", "keep"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}: {getattr(self, name)} is negative")
        if self.older_than < timedelta(0):
            raise InputError("older_than: an age cannot be negative")


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The condition of one table of a branch.

    Attributes:
        type_key: `node:<Type>` or `edge:<Type>`.
        rows: number of entities.
        fragments: number of fragments of the newest version: data files, or groups of files with the same rows.
        small_fragments: number of fragments that `optimize` would merge.
        deleted_rows: deleted rows that the files still contain.
        unindexed_rows: rows that at least one declared index does not cover.
        versions: number of versions that exist.
        bytes: size of the data files of the newest version.
        bytes_on_disk: size of all files of the table: all versions, branches and indexes.
        shared: whether the branch has not written to the table, and reads it from the branch that it was created from.
        stale_vectors: `@embed` properties whose vectors were computed with other models, or from another text property.
        missing_vectors: `@embed` properties without any vector, although the table has texts.
    """

    type_key: str
    rows: int
    fragments: int
    small_fragments: int
    deleted_rows: int
    unindexed_rows: int
    versions: int
    bytes: int
    bytes_on_disk: int
    shared: bool = False
    stale_vectors: tuple[str, ...] = ()
    missing_vectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BranchStatus:
    """The condition of one branch.

    Attributes:
        name: the branch.
        head: its newest commit.
        commits: number of commits in its history.
        removable: number of its commits that still can be read, and that a cleanup with the thresholds would remove.
        bytes_held: size of the data files that only the head of this branch needs.
        tables: its tables.
    """

    name: str
    head: str
    commits: int
    removable: int
    bytes_held: int
    tables: tuple[TableStatus, ...]


@dataclass(frozen=True, slots=True)
class TagStatus:
    """A tag, and the size of the data files that only this tag needs."""

    name: str
    commit_id: str
    bytes_held: int


@dataclass(frozen=True, slots=True)
class Advice:
    """A command to run, and the reason."""

    command: str
    reason: str


@dataclass(frozen=True, slots=True)
class GraphStatus:
    """The condition of a graph.

    Attributes:
        uri: the graph.
        branches: the branches, `main` first.
        tags: the tags.
        manifest_versions: number of versions of `__manifest`, of all branches.
        manifest_bytes: size of `__manifest`.
        bytes: size of all files.
        bytes_needed: size of the data files that the heads of branches and tags need.
        pending: ids of writes that are in flight or were interrupted.
        work: running work that has a work record, by kind and name: `load 01K…`.
        advice: the commands to run.
        unfinished_drops: type keys of hard drops whose data still exists in earlier commits, although no branch, tag or
            running job needs it: the process that dropped the data was interrupted.
    """

    uri: str
    branches: tuple[BranchStatus, ...]
    tags: tuple[TagStatus, ...]
    manifest_versions: int
    manifest_bytes: int
    bytes: int
    bytes_needed: int
    pending: tuple[str, ...]
    work: tuple[str, ...]
    advice: tuple[Advice, ...]
    unfinished_drops: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The status as the JSON object that all user interfaces return."""
        return asdict(self)


def status(
    store: Store, catalog_of: Callable[[Manifest], Catalog], thresholds: Thresholds | None = None
) -> GraphStatus:
    """Examine a graph.

    Args:
        store: the graph.
        catalog_of: returns the catalogue of a state.
        thresholds: the thresholds above which a command is advised; by default from the settings.

    Raises:
        InputError: a setting is not a number.
        VersionReclaimedError: cleanups repeatedly removed versions that were being read.
    """
    limits = thresholds or Thresholds()
    for _ in range(_ATTEMPTS):
        # A branch may be deleted, and a cleanup may remove the versions of a head, while they are read.
        with suppress(BranchNotFoundError, VersionReclaimedError):
            return _status(store, catalog_of, limits)
    return _status(store, catalog_of, limits)


def _status(store: Store, catalog_of: Callable[[Manifest], Catalog], limits: Thresholds) -> GraphStatus:
    listed = list(store.objects.list(""))
    sidecars, unreadable = read_sidecars(store.objects)
    records = read_records(store.leases)
    ledgers = store.manifest.branches()
    refs = Refs.of(store)
    every_head = heads_of(store, refs)
    alive = [record for record in records if watch.is_alive(record, store.timeouts.ttl)]
    policy = Policy(limits.keep, limits.older_than, timedelta(0))
    manifest = [info.path for info in listed if info.path.startswith(f"{MANIFEST_PATH}/")]
    counts = commit_counts(store, refs, every_head, ledgers, manifest, policy, datetime.now(UTC), alive, sidecars)
    heads = {name: view for name, view in every_head.items() if name == MAIN or not refs.branches[name].is_hidden}
    tags = {tag.name: tag for tag in refs.tags.values()}
    tagged: dict[str, Manifest] = {}
    for tag in tags.values():
        view = unless_removed(
            store, tag.ledger, partial(store.manifest_in, tag.ledger, tag.branch, tag.manifest_version)
        )
        if view is not None:
            tagged[tag.name] = view
    files = _DataFiles(store)
    needed = {("branch", name): files.of(view) for name, view in heads.items()}
    needed |= {("tag", name): files.of(view) for name, view in tagged.items()}
    users = Counter(path for each in needed.values() for path in each)
    sizes = _Sizes.of(listed)
    branches = tuple(
        BranchStatus(
            name,
            view.head.id,
            counts[name].commits,
            counts[name].removable,
            _held(needed["branch", name], users),
            tuple(_tables(store, view, catalog_of(view), files, sizes)),
        )
        for name, view in heads.items()
    )
    found = GraphStatus(
        str(store.objects.uri),
        branches,
        tuple(
            TagStatus(name, tag.commit_id, _held(needed.get(("tag", name), {}), users)) for name, tag in tags.items()
        ),
        sizes.manifest_versions,
        sizes.manifest,
        sizes.all,
        sum(dict(item for each in needed.values() for item in each.items()).values()),
        (*(one.operation_id for one in sidecars), *(one.path for one in unreadable)),
        tuple(f"{'work' if one.kind is None else one.kind.value} {one.name}" for one in records),
        (),
        tuple(sorted(one.key for one in unfinished_drops(store))),
    )
    return GraphStatus(**{**_shallow(found), "advice": tuple(advise(found, limits))})


def _shallow(found: GraphStatus) -> dict[str, Any]:
    return {name: getattr(found, name) for name in GraphStatus.__dataclass_fields__}


@dataclass(slots=True)
class _DataFiles:
    """The fragments of table versions, each read once."""

    store: Store
    _known: dict[TableRef, list[Fragment]] = field(default_factory=dict)

    def fragments(self, pin: TablePin) -> list[Fragment]:
        if pin.ref not in self._known:
            self._known[pin.ref] = self.store.tables.at(pin.ref).fragments()
        return self._known[pin.ref]

    def of(self, view: Manifest) -> Files:
        """The data files of a state. File names are unique."""
        found: Files = {}
        for pin in view.tables.values():
            with suppress(VersionReclaimedError):
                found |= {name: size for fragment in self.fragments(pin) for name, size in fragment.files}
        return found


def _held(files: Mapping[str, int], users: Mapping[str, int]) -> int:
    return sum(size for path, size in files.items() if users[path] == 1)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes and numbers from a listing of all files.

    Attributes:
        all: size of all files.
        tables: size of all files of each table, by path.
        versions: number of version files of each table or fork, by directory.
        manifest: size of the manifest.
        manifest_versions: number of its version files.
    """

    all: int
    tables: Mapping[str, int]
    versions: Mapping[str, int]
    manifest: int
    manifest_versions: int

    @classmethod
    def of(cls, listed: Iterable[Any]) -> _Sizes:
        total = manifest = manifest_versions = 0
        tables: Counter[str] = Counter()
        versions: Counter[str] = Counter()
        for info in listed:
            total += info.size
            place, _, rest = info.path.partition("/")
            directory, is_version, _ = info.path.partition("/_versions/")
            version = bool(is_version) and info.path.endswith(".manifest")
            if place == MANIFEST_PATH:
                manifest += info.size
                manifest_versions += version
            elif place in ("nodes", "edges"):
                tables[f"{place}/{rest.partition('/')[0]}"] += info.size
                versions[directory] += version
        return cls(total, tables, versions, manifest, manifest_versions)


def _tables(store: Store, view: Manifest, catalog: Catalog, files: _DataFiles, sizes: _Sizes) -> Iterable[TableStatus]:
    unindexed: Counter[str] = Counter()
    for index in coverage(Snapshot(store, view), catalog):
        if index.kind != "vector" or index.covered + index.uncovered >= FEWEST_VECTORS:
            unindexed[index.type_key] = max(unindexed[index.type_key], index.uncovered)
    for key, pin in view.tables.items():
        fragments = files.fragments(pin)
        vectors = vector_debts(store.tables, catalog, pin)
        yield TableStatus(
            key,
            pin.row_count,
            len(fragments),
            _small(fragments),
            sum(fragment.deleted for fragment in fragments),
            unindexed[key],
            sizes.versions.get(pin.ref.directory, 0),
            sum(fragment.size for fragment in fragments),
            sizes.tables.get(pin.ref.path, 0),
            not view.owns(pin),
            vectors.stale,
            vectors.missing,
        )


def _small(fragments: Iterable[Fragment]) -> int:
    """Number of fragments that `optimize` would merge into larger ones. A single fragment cannot be merged."""
    small = sum(fragment.rows < ROWS_PER_FRAGMENT for fragment in fragments)
    return small if small > 1 else 0


# Advice


def advise(found: GraphStatus, limits: Thresholds) -> Iterable[Advice]:
    """The commands to run, most urgent first."""
    uri = shlex.quote(found.uri)
    if found.pending:
        yield Advice(
            f"omnigraph recovery list {uri}",
            f"{len(found.pending)} writes are in flight or were interrupted; the next write to their branch, or "
            "'omnigraph upkeep', recovers interrupted ones",
        )
    if found.unfinished_drops:
        yield Advice(
            f"omnigraph upkeep {uri}",
            f"dropped data of {', '.join(found.unfinished_drops)} still exists in earlier commits: its removal was "
            "requested, but is not complete",
        )
    for branch in found.branches:
        reasons = list(debts(branch, limits))
        if reasons:
            option = "" if branch.name == MAIN else f" --branch {shlex.quote(branch.name)}"
            yield Advice(f"omnigraph optimize {uri}{option}", "; ".join(reasons))
    for branch in found.branches:
        reasons = list(_vector_reasons(branch))
        if reasons:
            option = "" if branch.name == MAIN else f" --branch {shlex.quote(branch.name)}"
            yield Advice(f"omnigraph embed {uri}{option}", "; ".join(reasons))
    removable = sum(branch.removable for branch in found.branches)
    if removable > limits.versions:
        age = f"{int(limits.older_than.total_seconds())}s"
        yield Advice(
            f"omnigraph cleanup {uri} --keep {limits.keep} --older-than {age} --confirm",
            f"{removable} commits can be removed; all files have {found.bytes} bytes, and the heads of branches and "
            f"tags need {found.bytes_needed}",
        )


def _vector_reasons(branch: BranchStatus) -> Iterable[str]:
    for table in branch.tables:
        if table.stale_vectors:
            names = ", ".join(table.stale_vectors)
            yield f"{table.type_key} has vectors of another model or text property: {names}"
        if table.missing_vectors:
            yield f"{table.type_key} has texts without vectors: {', '.join(table.missing_vectors)}"


def debts(branch: BranchStatus, limits: Thresholds) -> Iterable[str]:
    """The reasons to optimize a branch."""
    for table in branch.tables:
        if table.shared:
            continue
        if table.small_fragments > limits.fragments:
            yield f"{table.type_key} has {table.small_fragments} small files"
        if table.unindexed_rows > limits.unindexed:
            yield f"{table.type_key} has {table.unindexed_rows} rows without an index"
        stored = table.rows + table.deleted_rows
        if table.deleted_rows > _FEWEST_DELETED and table.deleted_rows * 100 > stored * limits.deleted:
            yield f"{table.type_key} has {table.deleted_rows} deleted rows in its files"
