"""Plans the cleanup of one table: unreachable versions, forks that are not needed, and orphan files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import NamedTuple

from omnigraph.commit.removal_list import TableRemovals, runs_of
from omnigraph.dataclass import dataclass
from omnigraph.storage.objects import ObjectInfo, ObjectStore
from omnigraph.storage.table_files import Needs, counted_as, is_needed, is_swept
from omnigraph.storage.table_ref import branch_ref_path, manifest_name, table_directory
from omnigraph.storage.tables import TableStorage

_FORK = re.compile(r"(.+)-([0-7][0-9a-hjkmnp-tv-z]{25})")
_VERSION = re.compile(r"/_versions/[0-9]+\.manifest$")


class RemovedFiles(NamedTuple):
    """The files of a removed path.

    Attributes:
        size: their bytes.
        orphans: number of files that no version ever needed.
        versions: number of table versions.
    """

    size: int
    orphans: int = 0
    versions: int = 0

    @classmethod
    def with_versions(cls, infos: Collection[ObjectInfo]) -> RemovedFiles:
        """All files of a table or fork whose versions were part of the graph."""
        versions = sum(_VERSION.search(info.path) is not None for info in infos)
        return cls(sum(info.size for info in infos), versions=versions)


@dataclass(slots=True)
class TableSweep:
    """The removals of one table.

    Attributes:
        path: the path of the table below the root.
        versions: the versions to remove, by fork, each with the size of its manifest.
        forks: forks to remove as a whole, children before parents.
        files: other files to remove.
        directories: directories to remove as a whole.
        error: the reason why it failed, or failed in part.
    """

    path: str
    versions: dict[str | None, dict[int, int]] = field(default_factory=dict)
    forks: dict[str, RemovedFiles] = field(default_factory=dict)
    files: dict[str, RemovedFiles] = field(default_factory=dict)
    directories: dict[str, RemovedFiles] = field(default_factory=dict)
    error: str | None = None

    @property
    def size(self) -> int:
        """The total size in bytes."""
        parts = (*self.forks.values(), *self.files.values(), *self.directories.values())
        return sum(removed_files.size for removed_files in parts) + sum(
            sum(removed_files.values()) for removed_files in self.versions.values()
        )

    @property
    def orphans(self) -> int:
        """Number of removed files that no version ever needed."""
        return sum(removed_files.orphans for removed_files in (*self.files.values(), *self.directories.values()))

    @property
    def version_count(self) -> int:
        """Number of removed versions, including those of forks and tables that are removed as a whole."""
        whole = (*self.forks.values(), *self.directories.values())
        return sum(map(len, self.versions.values())) + sum(removed_files.versions for removed_files in whole)

    @property
    def is_empty(self) -> bool:
        return not (self.versions or self.forks or self.files or self.directories)

    @property
    def removals(self) -> TableRemovals:
        """The entry in the removal list. No process may start to use versions and forks that are on the list."""
        versions = {fork: runs_of(removed_files) for fork, removed_files in self.versions.items()}
        return TableRemovals(self.path in self.directories, frozenset(self.forks), versions)

    def within(self, other: TableSweep) -> TableSweep:
        """The removals that are also in another plan."""
        both = {
            fork: removed_files.keys() & other.versions.get(fork, {}).keys()
            for fork, removed_files in self.versions.items()
        }
        return TableSweep(
            self.path,
            {
                fork: {v: self.versions[fork][v] for v in sorted(removed_files)}
                for fork, removed_files in both.items()
                if removed_files
            },
            {name: removed_files for name, removed_files in self.forks.items() if name in other.forks},
            {name: removed_files for name, removed_files in self.files.items() if name in other.files},
            {name: removed_files for name, removed_files in self.directories.items() if name in other.directories},
            self.error or other.error,
        )

    def add_files(
        self, fork: str | None, infos: Sequence[ObjectInfo], needed: Needs, is_old: Callable[[ObjectInfo], bool]
    ) -> None:
        """Add the files of a fork that no version needs.

        Args:
            fork: the fork; None for the table itself.
            infos: all its files.
            needed: the files that the remaining versions need, and the files that only removed versions needed.
            is_old: returns whether an orphan file is too old to belong to a running write.
        """
        directory = table_directory(self.path, fork)
        removed = self.versions.get(fork, {})
        manifests = {f"_versions/{manifest_name(version)}": version for version in removed}
        # Indexes and blobs have directories of their own, which are removed if all their files are.
        together: dict[str, dict[str, RemovedFiles]] = {}
        kept: set[str] = set()
        for info in infos:
            name = info.path[len(directory) + 1 :]
            if name in manifests:
                removed[manifests[name]] = info.size
                continue
            parent = info.path.rpartition("/")[0] if name.count("/") > 1 else ""
            freed = counted_as(directory, name) in needed.freed
            # Files of removed versions are removed. Young files that no version needed stay: a write may need them.
            may_go = freed or is_old(info)
            if may_go and is_swept(name) and not is_needed(directory, name, needed):
                together.setdefault(parent, {})[info.path] = RemovedFiles(info.size, 0 if freed else 1)
            else:
                kept.add(parent)
        for parent, removed_files in together.items():
            if parent and parent not in kept:
                size, orphans, _ = zip(*removed_files.values(), strict=True)
                self.directories[parent] = RemovedFiles(sum(size), sum(orphans))
            else:
                self.files |= removed_files

    def remove(self, tables: TableStorage, objects: ObjectStore) -> None:
        """Remove everything in the plan except `versions`. After an interruption, the next cleanup removes the rest."""
        known = tables.forks(self.path) if self.forks else []
        for fork in self.forks:
            if fork in known:
                tables.drop_fork(self.path, fork)
            objects.delete_prefix(table_directory(self.path, fork))
        objects.delete_files(self.files)
        for directory in self.directories:
            objects.delete_prefix(directory)
        tables.forget(self.path)


def manifest_path(path: str, fork: str | None, version: int) -> str:
    """The file whose removal removes a version."""
    return f"{table_directory(path, fork)}/_versions/{manifest_name(version)}"


class TablePlanner:
    """Plans the removals of a table. It changes nothing.

    Args:
        tables: the graph's tables.
        identifiers: the name prefixes of the forks of existing branches.
        cutoff: orphan files older than this are removed.
        busy: tables that a write in flight is about to change. Their orphan files stay: the write may need them.
        dropped: tables of dropped types. No running write creates them, so they are removed at any age.
    """

    def __init__(
        self,
        tables: TableStorage,
        identifiers: set[str],
        cutoff: datetime,
        busy: Collection[str] = (),
        dropped: Collection[str] = (),
    ) -> None:
        self._tables = tables
        self._identifiers = identifiers
        self._cutoff = cutoff
        self._busy = busy
        self._dropped = dropped

    def plan(self, path: str, listed: Sequence[ObjectInfo], pins: Mapping[str | None, set[int]]) -> TableSweep:
        """Plan the removals of a table.

        Args:
            path: the path of the table below the root.
            listed: all its files.
            pins: the reachable versions, by fork.
        """
        sweep, stay = self._versions(path, listed, pins)
        needed = Needs()
        for fork, versions in stay.items():
            needed.add(self._tables.needs(path, fork, versions, list(sweep.versions.get(fork, ()))))
        for fork, infos in by_fork(path, listed).items():
            if fork in stay:
                sweep.add_files(fork, infos, needed, lambda info: self._is_old(path, info))
        return sweep

    def plan_versions(self, path: str, listed: Sequence[ObjectInfo], pins: Mapping[str | None, set[int]]) -> TableSweep:
        """Plan the removals of a table, but leave out single files. So it does not read the files of each version.

        Args:
            path: the path of the table below the root.
            listed: all its files.
            pins: the reachable versions, by fork.
        """
        return self._versions(path, listed, pins)[0]

    def _versions(
        self, path: str, listed: Sequence[ObjectInfo], pins: Mapping[str | None, set[int]]
    ) -> tuple[TableSweep, dict[str | None, set[int]]]:
        """The versions, forks and directories to remove, and the versions that stay, by fork."""
        sweep = TableSweep(path)
        if not pins:
            dropped = path in self._dropped and path not in self._busy
            if dropped:
                sweep.directories[path] = RemovedFiles.with_versions(listed)
            elif all(self._is_old(path, info) for info in listed):
                # The creation of the table never completed.
                sweep.directories[path] = RemovedFiles(sum(info.size for info in listed), len(listed))
            return sweep, {}
        files_by_fork = by_fork(path, listed)
        points = self._tables.fork_points(path)
        # Forks that are newer than the file listing stay: their branches may be newer than the references read before.
        refs = {info.path: info for info in listed if info.path.startswith(f"{path}/_refs/")}
        seen = {
            fork
            for fork in (*files_by_fork, *points)
            if fork in files_by_fork or f"{path}/{branch_ref_path(fork or '')}" in refs
        }
        dead = self._dead_forks(path, seen, files_by_fork, {fork: point.branch for fork, point in points.items()}, pins)
        for name in dead:
            ref = refs.get(f"{path}/{branch_ref_path(name)}")
            files = [*files_by_fork.get(name, ()), *([] if ref is None else [ref])]
            sweep.forks[name] = RemovedFiles.with_versions(files)
        live = (set(files_by_fork) | set(points) | {None}) - set(sweep.forks)
        # A merge compares a fork with the version that it was created from, which is also its first version.
        fork_points = {
            (of, point.version) for fork, point in points.items() if fork in live for of in (point.branch, fork)
        }
        stay = {}
        for fork in sorted(live, key=str):
            needed = {version for of, version in fork_points if of == fork}
            stay[fork] = self._staying(sweep, fork, pins.get(fork, set()), needed)
        return sweep, stay

    def _dead_forks(
        self,
        path: str,
        seen: set[str | None],
        files_by_fork: Mapping[str | None, Sequence[ObjectInfo]],
        parents: Mapping[str, str | None],
        pins: Mapping[str | None, set[int]],
    ) -> list[str]:
        known = {fork for fork in (*files_by_fork, *parents) if fork is not None}
        dead = {
            fork for fork in known & seen if fork not in pins and self._is_dead(path, fork, files_by_fork.get(fork, ()))
        }
        for fork in known - dead:
            ancestor = parents.get(fork)
            while ancestor is not None:
                dead.discard(ancestor)
                ancestor = parents.get(ancestor)

        def depth(fork: str) -> int:
            parent = parents.get(fork)
            return 0 if parent is None else 1 + depth(parent)

        return sorted(dead, key=lambda fork: (-depth(fork), fork))

    def _is_dead(self, path: str, fork: str, infos: Sequence[ObjectInfo]) -> bool:
        """Whether to remove a fork without pins. Keeps new forks of existing branches: a write may publish them."""
        named = _FORK.fullmatch(fork)
        if named is None:
            return False  # not created by OmniGraph
        if named[1] not in self._identifiers:
            return True
        return all(self._is_old(path, info) for info in infos)

    def is_deleted(self, fork: str | None) -> bool:
        """Whether a fork belongs to a deleted branch."""
        named = _FORK.fullmatch(fork or "")
        return named is not None and named[1] not in self._identifiers

    def _is_old(self, path: str, info: ObjectInfo) -> bool:
        """Whether an orphan file is too old to belong to a running write."""
        return path not in self._busy and info.modified < self._cutoff

    def _staying(self, sweep: TableSweep, fork: str | None, pins: set[int], fork_points: set[int]) -> set[int]:
        """Plan the versions of a table or fork to remove. Returns the versions that stay.

        Versions newer than the newest reachable one stay: a running write may have created them. All versions of a fork
        without pins stay. A fork of a deleted branch has no writers, so of its unreachable versions only the newest one
        stays, because Lance identifies the fork by it.
        """
        existing = self._tables.versions(sweep.path, fork)
        if pins and self.is_deleted(fork):
            stay = {version for version in existing if version in pins | fork_points or version == existing[-1]}
        elif pins:
            stay = {version for version in existing if version in pins | fork_points or version >= max(pins)}
        else:
            stay = set(existing) if fork is not None else fork_points.union(existing[-1:])
        removed_files = [version for version in existing if version not in stay]
        if removed_files:
            sweep.versions[fork] = dict.fromkeys(removed_files, 0)
        return stay


def by_fork(path: str, listed: Sequence[ObjectInfo]) -> dict[str | None, list[ObjectInfo]]:
    """The files of a table itself, and of each of its forks."""
    found: dict[str | None, list[ObjectInfo]] = {}
    for info in listed:
        parts = info.path[len(path) + 1 :].split("/", 2)
        fork = parts[1] if parts[0] == "tree" and len(parts) > 2 else None
        found.setdefault(fork, []).append(info)
    return found
