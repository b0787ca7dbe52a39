"""Plans a copy: the files that a state of a graph needs, in the order in which they may become visible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta

from omnigraph.commit.manifest import MAIN, Commit, Manifest
from omnigraph.commit.refs import branch_ref_path as graph_branch_path
from omnigraph.commit.refs import tag_ref_path
from omnigraph.commit.schema_files import ARCHIVE
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import ObjectNotFoundError, VersionReclaimedError
from omnigraph.storage.base_paths import moved_manifest
from omnigraph.storage.checksums import Checksums, read_records, record_names
from omnigraph.storage.copies import in_parallel
from omnigraph.storage.ledger import Ledger
from omnigraph.storage.objects import ObjectInfo
from omnigraph.storage.table_files import Needs, is_needed, is_swept
from omnigraph.storage.table_ref import TableRef, branch_ref_path, manifest_name, table_directory
from omnigraph.upkeep.reachable import Policy, Refs, reach_from

_FORK_MANIFEST = re.compile(r"(__manifest|(?:nodes|edges)/[^/]+)/tree/.+/_versions/[^/]+\.manifest")
_CONTENT = re.compile(r"/(data|_deletions)/[^/]+$")
_ALL = 1 << 62


@dataclass(slots=True)
class CopyPlan:
    """The files to copy.

    Attributes:
        files: immutable files. No reader finds them before a version file refers to them.
        table_manifests: paths of the version files of tables, then of the references of forks. Each inner list is
            copied completely before the next one.
        graph_manifests: paths of the version files of `__manifest` and of the references of branches and tags, which
            make the copy a graph. Each inner list is copied completely before the next one.
        schemas: paths of the files with earlier schemas.
        sums: the recorded checksums of the files.
        ledgers: the Lance branches of the manifest to copy, including those of deleted branches.
        dispensable: version files that only the history needs. Cleanup may remove them during the copy.
    """

    files: list[ObjectInfo] = field(default_factory=list)
    table_manifests: list[list[str]] = field(default_factory=list)
    graph_manifests: list[list[str]] = field(default_factory=list)
    schemas: list[str] = field(default_factory=list)
    sums: Checksums = field(default_factory=dict)
    ledgers: frozenset[str] = frozenset()
    dispensable: set[str] = field(default_factory=set)

    @property
    def manifests(self) -> list[str]:
        return [path for stages in (self.table_manifests, self.graph_manifests) for stage in stages for path in stage]


@dataclass(frozen=True, slots=True)
class _Wanted(Policy):
    """The commits to copy: of each branch, the newest ones, until `keep` is reached or the copy has the commit."""

    known: frozenset[str]

    def stays(self, distance: int, commit: Commit, now: datetime) -> bool:
        return distance < (self.keep or _ALL) and commit.id not in self.known


def plan_copy(
    store: Store, refs: Refs, heads: Mapping[str, Manifest], keep: int | None, known: frozenset[str]
) -> CopyPlan:
    """Find the files that a state of all branches needs.

    Args:
        store: the graph.
        refs: its branches and tags.
        heads: the newest state of each branch to copy.
        keep: number of readable commits per branch in the copy; None for all that are readable here.
        known: commits that the copy has with their whole history.

    Raises:
        VersionReclaimedError: cleanup removed a version that a head needs.
        ObjectNotFoundError: a file is missing: cleanup removed it, or the graph is damaged.
    """
    policy = _Wanted(keep or _ALL, None, timedelta(0), known)
    found = reach_from(store, refs, heads, store.manifest.branches(), policy, datetime.now(UTC))
    needed = {pin.ref for view in heads.values() for pin in view.tables.values()}
    tables = [(path, versions) for path, versions in sorted(found.versions().items())]
    parts = in_parallel(lambda table: _table(store, table[0], table[1], needed), tables)
    plan = CopyPlan()
    for part in parts:
        plan.files += part.files
        plan.dispensable |= part.dispensable
    for stage in range(2):  # versions first, then the references to them
        plan.table_manifests.append([path for part in parts for path in part.table_manifests[stage]])
    _audit(store.audit, store, plan)
    _manifest(store, refs, heads, found.needed_ledgers, plan)
    plan.schemas = [info.path for info in store.objects.list(ARCHIVE)]
    plan.sums = _sums(store, {info.path for info in plan.files})
    return plan


def _sums(store: Store, files: set[str]) -> Checksums:
    """The recorded checksums of files. If two records name a file, the later one wins."""
    found: Checksums = {}
    for _, sums in sorted(read_records(store.objects, record_names(store.objects)).items()):
        found |= {path: each for path, each in (sums or {}).items() if path in files}
    return found


def published(path: str, data: bytes, root: str) -> bytes:
    """The content of a version file, with the paths in it adjusted to another root directory."""
    fork = _FORK_MANIFEST.fullmatch(path)
    return data if fork is None else moved_manifest(data, fork[1], root) or data


def _table(store: Store, path: str, pins: Mapping[str | None, set[int]], heads: set[TableRef]) -> CopyPlan:
    points = store.tables.fork_points(path)
    # A merge compares a fork with the version that it was created from, which is also its first version.
    wanted: dict[str | None, set[int]] = {fork: set(versions) for fork, versions in pins.items()}
    for name in pins.keys() & points.keys():
        assert name is not None
        wanted[name].add(points[name].version)
        wanted.setdefault(points[name].branch, set()).add(points[name].version)
    needs, stay = Needs(), {}
    for fork, versions in wanted.items():
        existing = store.tables.versions(path, fork)
        lost = {ref for ref in heads if (ref.path, ref.branch) == (path, fork) and ref.version not in existing}
        if lost:
            raise VersionReclaimedError(
                f"version {lost.pop().version} of {table_directory(path, fork)} no longer exists"
            )
        stay[fork] = sorted(versions.intersection(existing))  # cleanup may have removed versions of the history
        needs.add(store.tables.needs(path, fork, stay[fork], [each for each in existing if each not in stay[fork]]))
    listed = store.objects.list(path)
    lost_files = {file for file in needs.files if _CONTENT.search(file)} - {info.path for info in listed}
    if lost_files:
        raise ObjectNotFoundError(str(store.objects.uri), min(lost_files))
    versions_of_heads = {_version(path, ref.branch, ref.version) for ref in heads if ref.path == path}
    manifests = [_version(path, fork, version) for fork, versions in stay.items() for version in versions]
    forks = [fork for fork in wanted if fork is not None and fork in points]
    return CopyPlan(
        _needed(path, listed, [None, *points], needs),
        [manifests, [f"{path}/{branch_ref_path(fork)}" for fork in forks]],
        dispensable=set(manifests) - versions_of_heads,
    )


def _audit(ledger: Ledger, store: Store, plan: CopyPlan) -> None:
    """Add the newest version of the recovery audit."""
    versions = ledger.versions()
    if versions:
        needs = ledger.needs(None, versions[-1:], versions[:-1])
        plan.files += _needed(ledger.path, store.objects.list(ledger.path), [None], needs)
        plan.table_manifests[0].append(_version(ledger.path, None, versions[-1]))


def _manifest(store: Store, refs: Refs, heads: Mapping[str, Manifest], ledgers: frozenset[str], plan: CopyPlan) -> None:
    """Add all existing versions of the manifest up to the heads. They are small, and contain the history.

    For deleted branches, adds all versions of the Lance branches that later merges or tags refer to.
    """
    ledger = store.manifest
    needs = Needs()
    limits = {view.ledger.branch: view.version for view in heads.values()}
    branches: list[str | None] = [*limits, *sorted(ledgers - limits.keys())]
    stay: dict[str | None, list[str]] = {}
    for name in branches:
        versions = ledger.versions(name)
        selected = [version for version in versions if version <= limits.get(name, _ALL)]
        needs.add(ledger.needs(name, selected, versions[len(selected) :]))
        stay[name] = [_version(ledger.path, name, version) for version in selected]
        plan.dispensable.update(path for path in stay[name][:-1])
    plan.files += _needed(ledger.path, store.objects.list(ledger.path), branches, needs)
    plan.ledgers = frozenset(name for name in branches if name is not None)
    trunk = stay.pop(None)
    plan.graph_manifests += [
        [path for paths in stay.values() for path in paths],
        [ledger.branch_ref(name) for name in sorted(plan.ledgers)],
        [graph_branch_path(name) for name in heads if name != MAIN],
        trunk[:-1],
        trunk[-1:],
        [tag_ref_path(name) for name in refs.tags],
    ]


def _needed(path: str, listed: Iterable[ObjectInfo], forks: Sequence[str | None], needs: Needs) -> list[ObjectInfo]:
    """The files of a dataset that versions need, without the version files."""
    directories = sorted((table_directory(path, fork) for fork in forks), key=len, reverse=True)
    found = []
    for info in listed:
        directory = next((each for each in directories if info.path.startswith(f"{each}/")), None)
        if directory is None:
            continue
        name = info.path[len(directory) + 1 :]
        if is_swept(name) and not name.startswith("_versions/") and is_needed(directory, name, needs):
            found.append(info)
    return found


def _version(path: str, fork: str | None, version: int) -> str:
    return f"{table_directory(path, fork)}/_versions/{manifest_name(version)}"
