"""What of one table goes: versions that nobody can read, forks of nobody, and files that belong to nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ulid_transform import ulid_to_timestamp

from omnigraph.storage.files import Needs, counted_as, is_needed, is_swept
from omnigraph.storage.objects import ObjectInfo, ObjectStore
from omnigraph.storage.tables import TableRef, TableStorage, branch_ref_path, manifest_name, table_directory

_FORK = re.compile(r"(.+)-([0-7][0-9a-hjkmnp-tv-z]{25})")


@dataclass(slots=True)
class TableSweep:
    """What goes of one table.

    Attributes:
        path: the table's place below the root.
        versions: the versions that go, by fork.
        forks: forks that go whole, those that others were made from last.
        files: further files that go.
        directories: directories that go whole.
        size: how many bytes all of that has.
        orphans: how many of the files no version ever needed.
        error: why it could not be done, or not wholly.
    """

    path: str
    versions: dict[str | None, list[int]] = field(default_factory=dict)
    forks: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    size: int = 0
    orphans: int = 0
    error: str | None = None

    @property
    def manifests(self) -> list[str]:
        """The files whose removal removes the versions."""
        return [
            f"{table_directory(self.path, fork)}/_versions/{manifest_name(version)}"
            for fork, gone in self.versions.items()
            for version in gone
        ]

    def takes(self, ref: TableRef) -> bool:
        """Whether a version goes, by itself or with all that is beside it."""
        if ref.path != self.path:
            return False
        whole = self.path in self.directories or ref.branch in self.forks
        return whole or ref.version in self.versions.get(ref.branch, ())

    def remove(self, tables: TableStorage, objects: ObjectStore) -> None:
        """Remove what goes beside the versions. May be interrupted: what is left is found again."""
        known = tables.forks(self.path) if self.forks else []
        for fork in self.forks:
            if fork in known:
                tables.drop_fork(self.path, fork)
            objects.delete_prefix(table_directory(self.path, fork))
        objects.delete_files(self.files)
        for directory in self.directories:
            objects.delete_prefix(directory)
        tables.forget(self.path)


class TablePlanner:
    """Finds out what of a table goes. It looks, and changes nothing.

    Args:
        tables: the graph's tables.
        identifiers: what the forks of living branches begin with.
        cutoff: what belongs to nothing goes if it is older.
    """

    def __init__(self, tables: TableStorage, identifiers: set[str], cutoff: datetime) -> None:
        self._tables = tables
        self._identifiers = identifiers
        self._cutoff = cutoff

    def plan(self, path: str, listed: Sequence[ObjectInfo], pins: Mapping[str | None, set[int]]) -> TableSweep:
        """What goes.

        Args:
            path: the table's place below the root.
            listed: all its files.
            pins: the versions that can be read, by fork.
        """
        sweep = TableSweep(path)
        if not pins:
            if all(info.modified < self._cutoff for info in listed):
                # A type that was dropped before everything that can be read, or one that never came to be.
                sweep.directories.append(path)
                sweep.size, sweep.orphans = sum(info.size for info in listed), len(listed)
            return sweep
        own = _by_fork(path, listed)
        points = self._tables.fork_points(path)
        # A fork that was made since the files were listed may be of a branch that was made since the names were read.
        refs = {info.path for info in listed}
        seen = {fork for fork in (*own, *points) if fork in own or f"{path}/{branch_ref_path(fork or '')}" in refs}
        sweep.forks = self._dead_forks(seen, own, {fork: point.branch for fork, point in points.items()}, pins)
        live = (set(own) | set(points) | {None}) - set(sweep.forks)
        # A merge compares a fork with the version that it was made from, which is also the first of the fork.
        begun = {(of, point.version) for fork, point in points.items() if fork in live for of in (point.branch, fork)}
        needed = Needs()
        for fork in sorted(live, key=str):
            pinned = pins.get(fork, set())
            needed.add(self._versions(sweep, fork, pinned, {version for of, version in begun if of == fork}))
        for fork, infos in own.items():
            if fork in sweep.forks:
                sweep.size += sum(info.size for info in infos)
            else:
                self._files(sweep, table_directory(path, fork), infos, needed, sweep.versions.get(fork, []))
        return sweep

    def _dead_forks(
        self,
        seen: set[str | None],
        own: Mapping[str | None, Sequence[ObjectInfo]],
        parents: Mapping[str, str | None],
        pins: Mapping[str | None, set[int]],
    ) -> list[str]:
        known = {fork for fork in (*own, *parents) if fork is not None}
        dead = {fork for fork in known & seen if fork not in pins and self._is_dead(fork, own.get(fork, ()))}
        for fork in known - dead:
            ancestor = parents.get(fork)
            while ancestor is not None:
                dead.discard(ancestor)
                ancestor = parents.get(ancestor)

        def depth(fork: str) -> int:
            parent = parents.get(fork)
            return 0 if parent is None else 1 + depth(parent)

        return sorted(dead, key=lambda fork: (-depth(fork), fork))

    def _is_dead(self, fork: str, infos: Sequence[ObjectInfo]) -> bool:
        """Whether a fork that nothing points at goes. A write that is at work may point at it in the end."""
        named = _FORK.fullmatch(fork)
        if named is None:
            return False  # nothing of ours
        if named[1] not in self._identifiers:
            return True
        made = datetime.fromtimestamp(ulid_to_timestamp(named[2]) / 1000, UTC)
        return made < self._cutoff and all(info.modified < self._cutoff for info in infos)

    def _versions(self, sweep: TableSweep, fork: str | None, pins: set[int], begun: set[int]) -> Needs:
        """Say which versions of a table or fork go, and what the others need.

        None that is newer than the newest that can be read: a write at work may have made it. And none of a fork that
        nothing points at yet.
        """
        there = self._tables.versions(sweep.path, fork)
        if pins:
            stay = {version for version in there if version in pins | begun or version >= max(pins)}
        else:
            stay = set(there) if fork is not None else begun.union(there[-1:])
        gone = [version for version in there if version not in stay]
        if gone:
            sweep.versions[fork] = gone
        return self._tables.needs(sweep.path, fork, stay, gone)

    def _files(
        self, sweep: TableSweep, directory: str, infos: Sequence[ObjectInfo], needed: Needs, gone: Sequence[int]
    ) -> None:
        manifests = {f"_versions/{manifest_name(version)}" for version in gone}
        # Indexes and blobs have directories of their own, which go when all in them goes.
        together: dict[str, list[ObjectInfo]] = {}
        kept: set[str] = set()
        for info in infos:
            name = info.path[len(directory) + 1 :]
            if name in manifests:
                sweep.size += info.size
                continue
            parent = info.path.rpartition("/")[0] if name.count("/") > 1 else ""
            if not is_swept(name) or is_needed(directory, name, needed) or not self._may_go(directory, info, needed):
                kept.add(parent)
                continue
            sweep.size += info.size
            sweep.orphans += counted_as(directory, name) not in needed.freed
            together.setdefault(parent, []).append(info)
        for parent, going in together.items():
            if parent and parent not in kept:
                sweep.directories.append(parent)
            else:
                sweep.files += [info.path for info in going]

    def _may_go(self, directory: str, info: ObjectInfo, needed: Needs) -> bool:
        """What versions needed that go, goes with them; what none needed may belong to a write that is at work."""
        if counted_as(directory, info.path[len(directory) + 1 :]) in needed.freed:
            return True
        return info.modified < self._cutoff


def _by_fork(path: str, listed: Sequence[ObjectInfo]) -> dict[str | None, list[ObjectInfo]]:
    """The files of a table itself, and of each of its forks."""
    found: dict[str | None, list[ObjectInfo]] = {}
    for info in listed:
        parts = info.path[len(path) + 1 :].split("/", 2)
        fork = parts[1] if parts[0] == "tree" and len(parts) > 2 else None
        found.setdefault(fork, []).append(info)
    return found
