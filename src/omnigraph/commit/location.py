"""The location of a graph, and the changes that a graph needs after it was copied or moved.

These changes are called the *adoption* of the new location.

The stamp `__graph.json` records where the graph was opened for writing. The first time it is opened for writing at
another location, the base paths of its forks are rewritten. If it is a copy, the leases, transactions and work records
of processes at the original location are removed. The stamp is written last, so an interrupted adoption runs again. A
read needs no adoption: base paths are also replaced in memory when a dataset is opened.

A directory can have several names: a symbolic link, a second mount, a path inside a container. The stamp lists all
names that were used, so opening the graph with another of these names does not rewrite files again. Inode numbers
distinguish a copy from another name of the same directory.
"""

# See docs/decisions/0134-a-copy-is-known-by-inodes.md

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict

import orjson

from omnigraph.commit import lease, sidecar, transaction_branches, work_records
from omnigraph.commit.copy_record import refuse_incomplete_copy
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import LeaseRecord
from omnigraph.commit.refs import BRANCH_DIRECTORY, TAG_DIRECTORY
from omnigraph.commit.schema_files import ARCHIVE
from omnigraph.commit.store import PLACE, Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError, InputError, ObjectChangedError, ObjectNotFoundError
from omnigraph.storage.base_paths import moved_manifest
from omnigraph.storage.objects import StoredObject
from omnigraph.storage.objects.contract import TOMBSTONE
from omnigraph.storage.uri import GraphUri, Scheme

STAMP_PATH = "__graph.json"
_NAMES = 16
"""Maximum number of names in the stamp."""
_FORK_MANIFEST = re.compile(r"(__manifest|(?:nodes|edges)/[^/]+)/tree/.+/_versions/[^/]+\.manifest")
_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a graph.

    Attributes:
        root: its normalised address; for a directory, without symbolic links.
        nodes: inode numbers of two of its directories; empty in an object store.
    """

    root: str
    nodes: str = ""

    @classmethod
    def of(cls, uri: GraphUri) -> Location:
        if uri.scheme is not Scheme.LOCAL:
            return cls(uri.identity)
        return cls(uri.identity, f"{_inode(uri.path):x}.{_inode(uri.key(ARCHIVE)):x}")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class LocationStamp:
    """The locations where a graph was opened for writing, newest first. All are names of the same directory."""

    places: tuple[Location, ...] = ()

    def names(self, here: Location) -> bool:
        """Whether a location is in the stamp."""
        for known in self.places:
            if known.root == here.root and known.nodes in ("", here.nodes):
                return True
            if here.nodes and known.nodes == here.nodes and _same_directory(known.root, here.root):
                return True
        return False

    def is_copied_to(self, here: Location) -> bool:
        """Whether a location that is not in the stamp is a copy, and not another name of the stamped directory."""
        return here.nodes == "" or all(known.nodes != here.nodes for known in self.places)

    def with_place(self, here: Location) -> LocationStamp:
        others = (known for known in self.places if known.root != here.root)
        return LocationStamp((here, *others)[:_NAMES])

    def dump(self) -> bytes:
        root = self.places[0].root
        return orjson.dumps({"root": root, "places": [asdict(place) for place in self.places]})


def _same_directory(left: str, right: str) -> bool:
    try:
        return os.path.samefile(left, right)
    except OSError:
        return False


def read_stamp(store: Store) -> LocationStamp:
    """Read the file with the known locations of the graph. If it is missing or unreadable, the result has none."""
    try:
        members = orjson.loads(store.objects.get(STAMP_PATH).data)
        if "places" not in members:  # written by an older release
            return LocationStamp((Location(GraphUri.parse(str(members["root"])).identity),))
        return LocationStamp(tuple(Location(str(each["root"]), str(each["nodes"])) for each in members["places"]))
    except (ObjectNotFoundError, InputError, KeyError, TypeError, ValueError):
        return LocationStamp()


def location_stamp(store: Store) -> bytes:
    """Content of the location stamp of a new graph: the address of its store is its only location."""
    return LocationStamp((Location.of(store.objects.uri),)).dump()


@dataclass(frozen=True, slots=True)
class Relocation:
    """The result of adapting a copied or moved graph to its new location.

    Attributes:
        uri: the new location.
        manifests: number of manifest files of forks that were checked.
        rewritten: number of these files that contained paths of another location, and were rewritten.
        unreadable: manifest files that could not be read. They are unchanged.
    """

    uri: str
    manifests: int
    rewritten: int
    unreadable: tuple[str, ...] = ()


def adopt_location(store: Store, *, always: bool = False) -> Relocation | None:
    """Adapt a graph to the location where it is opened for writing. None if the stamp has the location already.

    The call may be interrupted and run again. Readers are not affected.

    Args:
        store: the graph.
        always: check every file, even if the stamp has the location.

    Raises:
        LeaseTimeoutError: another process is adapting the graph, and did not finish in time.
        IncompleteCopyError: a backup or restore to this location was interrupted.
    """
    uri = store.objects.uri
    if uri.scheme is Scheme.MEMORY:
        return None
    here = Location.of(uri)
    if not always and read_stamp(store).names(here):
        return None
    refuse_incomplete_copy(store.objects)  # an incomplete copy has no stamp
    with store.exclusive_place() as held:
        # Read the work before the stamp. If the stamp then lacks this location, no process has worked here yet, so all
        # this work was copied from the original location.
        left = _CopiedWork.of(store)
        stamp = read_stamp(store)
        known = stamp.names(here)
        if known and not always:
            return None
        done = _rewrite(store)
        if uri.scheme is Scheme.LOCAL:
            _remove_tombstones(store)
        reach(Failpoint.PLACE_REWRITTEN)
        held.check()
        if not known:
            if stamp.is_copied_to(here):
                left.end(store)
                reach(Failpoint.PLACE_ENDED)
            store.objects.put(STAMP_PATH, stamp.with_place(here).dump())
    return done


def _rewrite(store: Store) -> Relocation:
    """Rewrite the base paths of all forks that name another location."""
    root = store.objects.uri.lance_uri()
    directories = ("__manifest", "nodes", "edges")
    paths = [info.path for directory in directories for info in store.objects.list(directory)]
    forks = [(path, found[1]) for path in paths if (found := _FORK_MANIFEST.fullmatch(path))]
    from omnigraph.worker_pool import WorkerPool

    with WorkerPool(_WORKERS) as workers:
        done = list(workers.map(lambda each: _rewrite_manifest(store, each[0], each[1], root), forks))
    unreadable = [path for (path, _), rewritten in zip(forks, done, strict=True) if rewritten is None]
    return Relocation(str(store.objects.uri), len(forks), sum(map(bool, done)), tuple(unreadable))


def _rewrite_manifest(store: Store, path: str, table: str, root: str) -> bool | None:
    """Rewrite one manifest file. None if it cannot be read: it stays unchanged, and a reader reports it."""
    try:
        found = store.objects.get(path)
        moved = moved_manifest(found.data, table, root)
        if moved is None:
            return False
        store.objects.rewrite_file(path, moved, found.etag)
        reach(Failpoint.PLACE_MANIFEST_REWRITTEN)
    except CorruptionError:
        return None
    except (ObjectNotFoundError, ObjectChangedError):
        return False  # removed, or rewritten by another process
    return True


def _remove_tombstones(store: Store) -> None:
    """Remove tombstones of deleted references, which exist only in object stores."""
    for directory in (BRANCH_DIRECTORY, TAG_DIRECTORY):
        for info in store.objects.list(directory):
            if info.size == len(TOMBSTONE):
                with suppress(ObjectNotFoundError, ObjectChangedError):
                    found = store.objects.get(info.path)
                    if found.data == TOMBSTONE:
                        store.objects.delete_if(info.path, found.etag)


@dataclass(frozen=True, slots=True)
class _CopiedWork:
    """Work of processes at the original location, at the time of the copy.

    Attributes:
        leases: leases with an owner or waiters.
        transactions: transaction branches.
        records: work records.
        rows: paths of staging directories, except those with files that recovery needs to finish a merge.
    """

    leases: tuple[tuple[str, StoredObject], ...]
    transactions: tuple[transaction_branches.TransactionBranch, ...]
    records: tuple[work_records.WorkRecord, ...]
    rows: tuple[str, ...]

    @classmethod
    def of(cls, store: Store) -> _CopiedWork:
        from omnigraph.commit.staging_directories import staging_directories

        interrupted = {path.rpartition("/")[2].partition(".")[0].lower() for path in sidecar.paths(store.objects)}
        return cls(
            tuple(_leases(store)),
            tuple(transaction_branches.list_all(store)),
            tuple(work_records.read_records(store.objects)),
            tuple(rows.directory for rows in staging_directories(store.objects) if rows.name not in interrupted),
        )

    def end(self, store: Store) -> None:
        """Remove the leases, transactions, records and staging directories.

        New work at this location is not affected: names are never reused, and leases are replaced by etag.
        """
        _end_leases(store, self.leases)
        for branch in self.transactions:
            transaction_branches.remove(store, branch)
        for record in self.records:
            store.objects.delete(record.path)
        for directory in self.rows:
            store.objects.delete_prefix(directory)


def end_copied_leases(store: Store) -> None:
    """Release the leases of processes at the original location of a copied graph.

    `adopt_location` does this, too, but only for a graph in the current format. The migration of an older format calls
    this function.
    """
    uri = store.objects.uri
    if uri.scheme is Scheme.MEMORY:
        return
    here = Location.of(uri)
    if read_stamp(store).names(here):
        return
    with store.exclusive_place():
        leases = tuple(_leases(store))
        stamp = read_stamp(store)
        if not stamp.names(here) and stamp.is_copied_to(here):
            _end_leases(store, leases)


def _end_leases(store: Store, leases: Iterable[tuple[str, StoredObject]]) -> None:
    for path, found in leases:
        record = LeaseRecord.load(found.data)
        if record.owner is not None or record.waiters:
            with suppress(ObjectChangedError):
                store.leases.replace(path, LeaseRecord(record.fence, None).dump(), found.etag)


def _leases(store: Store) -> Iterable[tuple[str, StoredObject]]:
    for info in store.leases.list(lease.LEASE_DIRECTORY):
        if info.path != lease.lease_path(PLACE):
            with suppress(ObjectNotFoundError):
                yield info.path, store.leases.get(info.path)
