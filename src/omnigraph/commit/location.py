"""Place: where a graph lies, and bringing a graph that was copied or moved to its new place.

A stamp, `__graph.json`, says where a graph has been opened for writing. A graph that is opened for writing somewhere
else for the first time is settled there first: the base paths of its forks are written anew, and if it is a copy, the
leases, transactions and other work of the old place's processes are ended here. The stamp comes last, so whoever is
interrupted leaves work that is done again. None of this is needed to read the graph: base paths are also replaced in
memory wherever a dataset is opened.

A directory can be reached under several names: a symbolic link, a second mount, a path inside a container. The stamp
has all names that were used, so that two of them never take turns in writing the same files anew. A copy is told from
another name of the same directory by inode numbers, which a copy does not share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass

import orjson

from omnigraph.commit import lease, sidecar, transaction_branches, work_records
from omnigraph.commit.copy_record import refuse_half_copy
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import LeaseRecord
from omnigraph.commit.refs import BRANCH_DIRECTORY, TAG_DIRECTORY
from omnigraph.commit.schema_files import ARCHIVE
from omnigraph.commit.staging_directories import staging_directories
from omnigraph.commit.store import PLACE, Store
from omnigraph.errors import CorruptionError, InputError, ObjectChangedError, ObjectNotFoundError
from omnigraph.storage.base_paths import moved_manifest
from omnigraph.storage.objects import StoredObject
from omnigraph.storage.objects.contract import TOMBSTONE
from omnigraph.storage.uri import GraphUri, Scheme

STAMP_PATH = "__graph.json"
_NAMES = 16
"""How many names of a directory are remembered."""
_FORK_MANIFEST = re.compile(r"(__manifest|(?:nodes|edges)/[^/]+)/tree/.+/_versions/[^/]+\.manifest")
_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Location:
    """Where a graph lies.

    Attributes:
        root: its address in one spelling; of a directory, without symbolic links.
        nodes: the inode numbers of two of its directories; empty in an object store.
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
    """The places where a graph has been opened for writing, newest first. They are names of one directory."""

    places: tuple[Location, ...] = ()

    def names(self, here: Location) -> bool:
        """Whether a place is among them."""
        for known in self.places:
            if known.root == here.root and known.nodes in ("", here.nodes):
                return True
            if here.nodes and known.nodes == here.nodes and _same_directory(known.root, here.root):
                return True
        return False

    def is_copied_to(self, here: Location) -> bool:
        """Whether a place that is not among them is surely another directory, and not another name of this one."""
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
    """What the stamp says. One that is missing or cannot be read names no place, and is written anew."""
    try:
        members = orjson.loads(store.objects.get(STAMP_PATH).data)
        if "places" not in members:  # written by an earlier release
            return LocationStamp((Location(GraphUri.parse(str(members["root"])).identity),))
        return LocationStamp(tuple(Location(str(each["root"]), str(each["nodes"])) for each in members["places"]))
    except (ObjectNotFoundError, InputError, KeyError, TypeError, ValueError):
        return LocationStamp()


def location_stamp(store: Store) -> bytes:
    """A stamp that says that the graph lies at the store's address, and nowhere else."""
    return LocationStamp((Location.of(store.objects.uri),)).dump()


@dataclass(frozen=True, slots=True)
class Relocation:
    """What was done to settle a graph in a place.

    Attributes:
        uri: the place.
        manifests: how many version files of forks there are.
        rewritten: how many of them named another place.
        unreadable: version files that could not be read; they are as they were.
    """

    uri: str
    manifests: int
    rewritten: int
    unreadable: tuple[str, ...] = ()


def adopt_location(store: Store, *, always: bool = False) -> Relocation | None:
    """Bring a graph to the place where it is opened for writing. None when it is there already.

    May be interrupted and run again. Others may read meanwhile.

    Args:
        store: the graph.
        always: look at every file, also if the stamp names the place.

    Raises:
        LeaseTimeoutError: somebody else is at it, and does not come to an end.
        IncompleteCopyError: a backup or a restore to this place was interrupted.
    """
    uri = store.objects.uri
    if uri.scheme is Scheme.MEMORY:
        return None
    here = Location.of(uri)
    if not always and read_stamp(store).names(here):
        return None
    refuse_half_copy(store.objects)  # such a place has no stamp
    with store.exclusive_place() as held:
        # Looked at before the stamp: as long as that does not name the place, nobody has been at work in it.
        left = _Left.of(store)
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
    """Write the base paths of all forks anew where they name another place."""
    root = store.objects.uri.lance_uri()
    directories = ("__manifest", "nodes", "edges")
    paths = [info.path for directory in directories for info in store.objects.list(directory)]
    forks = [(path, found[1]) for path in paths if (found := _FORK_MANIFEST.fullmatch(path))]
    with ThreadPoolExecutor(_WORKERS) as workers:
        done = list(workers.map(lambda each: _rewrite_manifest(store, each[0], each[1], root), forks))
    unreadable = [path for (path, _), rewritten in zip(forks, done, strict=True) if rewritten is None]
    return Relocation(str(store.objects.uri), len(forks), sum(map(bool, done)), tuple(unreadable))


def _rewrite_manifest(store: Store, path: str, table: str, root: str) -> bool | None:
    """Rewrite one version file. None when it cannot be read: then it is as it was, and whoever opens it says so."""
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
        return False  # removed meanwhile, or rewritten by somebody else
    return True


def _remove_tombstones(store: Store) -> None:
    """Remove what stands for deleted references in a bucket: in a directory it is a file like any other."""
    for directory in (BRANCH_DIRECTORY, TAG_DIRECTORY):
        for info in store.objects.list(directory):
            if info.size == len(TOMBSTONE):
                with suppress(ObjectNotFoundError, ObjectChangedError):
                    found = store.objects.get(info.path)
                    if found.data == TOMBSTONE:
                        store.objects.delete_if(info.path, found.etag)


@dataclass(frozen=True, slots=True)
class _Left:
    """What processes of the old place had at work when the graph was copied.

    Attributes:
        leases: leases that somebody has or waits for.
        transactions: hidden branches.
        records: records of work.
        rows: directories of rows that were put aside. What an interrupted merge needs to be finished is not among them.
    """

    leases: tuple[tuple[str, StoredObject], ...]
    transactions: tuple[transaction_branches.TransactionBranch, ...]
    records: tuple[work_records.WorkRecord, ...]
    rows: tuple[str, ...]

    @classmethod
    def of(cls, store: Store) -> _Left:
        interrupted = {path.rpartition("/")[2].partition(".")[0].lower() for path in sidecar.paths(store.objects)}
        return cls(
            tuple(_leases(store)),
            tuple(transaction_branches.list_all(store)),
            tuple(work_records.read_records(store.objects)),
            tuple(rows.directory for rows in staging_directories(store.objects) if rows.name not in interrupted),
        )

    def end(self, store: Store) -> None:
        """End all of it. Names are never used twice, and leases are replaced by etag: what is made here stays."""
        _end_leases(store, self.leases)
        for branch in self.transactions:
            transaction_branches.remove(store, branch)
        for record in self.records:
            store.objects.delete(record.path)
        for directory in self.rows:
            store.objects.delete_prefix(directory)


def end_copied_leases(store: Store) -> None:
    """Give back the leases of the old place's processes in a graph that was copied, for who has to wait for leases.

    `settle_place` does so, too, and needs the current format; this is for whoever migrates an older one.
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
