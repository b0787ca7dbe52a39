"""The removal list. It synchronises cleanup with writers that create references to old versions.

There is one object, `__cleanup/condemned.json`. A cleanup writes its proposed removals to it. Then it reads all
references, tags, work records and sidecars, takes the versions that they need off the list, marks the list as final,
and removes the listed versions. A process that creates a branch, tag or record writes it first and reads the list
afterwards. If a version is listed or missing, it raises `VersionReclaimedError`. So at least one of a creator and a
concurrent cleanup sees the other, and pauses between steps are harmless.

The object is replaced by etag only. A proposal that another cleanup replaced can never become final, so a paused
cleanup removes nothing. The next cleanup finishes a final list before it replaces the list, so a paused cleanup finds
nothing left to remove. The object has a checksum, so a flipped bit cannot list another version. Every proposal has a
random token. A write without a work record compares the token before it stages files and after its sidecar is written,
and starts again if it changed.
"""

# See docs/decisions/0147-cleanup-in-two-steps.md

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from enum import StrEnum
from typing import Any
from uuid import uuid4

import orjson

from omnigraph.commit.json_checksums import verify_checksum, with_checksum
from omnigraph.commit.manifest import MANIFEST_PATH, Manifest
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    BranchNotFoundError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    VersionReclaimedError,
)
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.table_ref import TableRef, manifest_name, table_directory
from omnigraph.storage.uri import Scheme
from omnigraph.worker_pool import WorkerPool

DIRECTORY = "__cleanup"
PATH = f"{DIRECTORY}/condemned.json"
_VERSION = 1
_READERS = 8


class ListState(StrEnum):
    """State of the list."""

    NONE = "none"
    PROPOSED = "proposed"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class TableRemovals:
    """Removals in one dataset.

    Attributes:
        whole: remove the whole dataset.
        forks: Lance branches to remove completely.
        versions: ranges of versions to remove, first and last, by Lance branch.
    """

    whole: bool = False
    forks: frozenset[str] = frozenset()
    versions: Mapping[str | None, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def removes(self, fork: str | None, version: int) -> bool:
        if self.whole or fork in self.forks:
            return True
        return any(first <= version <= last for first, last in self.versions.get(fork, ()))


@dataclass(frozen=True, slots=True)
class RemovalList:
    """The content of the object.

    Attributes:
        number: a counter of proposals, for information only. It restarts if the object is lost or damaged.
        token: identifies a proposal. It changes with the next proposal.
        tables: removals by path of the dataset. Lance branches of the manifest are under `__manifest`.
        etag: etag of the object that was read; None if there is none.
        readable: whether the object could be read.
    """

    number: int = 0
    token: str | None = None
    state: ListState = ListState.NONE
    tables: dict[str, TableRemovals] = field(default_factory=dict)
    etag: str | None = None
    readable: bool = True

    def removes(self, ref: TableRef) -> bool:
        """Whether a version is listed, by itself or with its branch or dataset."""
        found = self.tables.get(ref.path)
        return found is not None and found.removes(ref.branch, ref.version)


# For writers that reference versions


class ReferenceGuard:
    """Checks that the state of a new branch or tag is retained. Create it before the reference is written.

    If the state is still the head of its branch after the list was read, only a later list can contain it. Then it is
    enough to compare the token again. For any other state, every table version is checked.
    """

    def __init__(self, store: Store, view: Manifest) -> None:
        self._store = store
        self._view = view
        self._token = files_token(store.objects)
        self._newest = False
        with suppress(BranchNotFoundError):
            current = store.capture(view.branch)
            self._newest = (current.incarnation, current.version) == (view.incarnation, view.version)

    def check(self, *made: TableRef) -> None:
        """Check that the state is retained. To be called after the reference was written.

        Args:
            made: versions that were created for the reference, such as the manifest of a new branch.

        Raises:
            VersionReclaimedError: cleanup has removed a version, or is about to. Remove the reference again.
        """
        if not self._newest or files_token(self._store.objects) != self._token:
            check_retained(self._store, self._view, *made)


def check_retained(store: Store, view: Manifest, *more: TableRef) -> None:
    """Check that a state is retained. To be called after a branch, tag or record that references it was written.

    Args:
        store: the graph.
        view: the state.
        more: further versions.

    Raises:
        VersionReclaimedError: cleanup has removed a version of it, or is about to. Remove the reference again.
    """
    check_present(store.objects, state_refs(view) | set(more))


def state_refs(view: Manifest) -> set[TableRef]:
    """All table versions of a state, and its manifest version."""
    return {pin.ref for pin in view.tables.values()} | {TableRef(MANIFEST_PATH, view.ledger.branch, view.version)}


def check_present(objects: ObjectStore, refs: Iterable[TableRef], *, certain: bool = True) -> None:
    """Check that table versions are retained.

    Args:
        objects: the graph's objects.
        refs: the versions.
        certain: raise if the list cannot be read. Readers pass False: if a cleanup is running, the read itself fails
            with the same error.

    Raises:
        VersionReclaimedError: a version is listed or missing.
    """
    refs = set(refs)
    if objects.uri.scheme is Scheme.MEMORY or not refs:
        return  # cleanup does not support graphs in memory
    listed = read(objects)
    for ref in refs:
        if certain and not listed.readable:
            raise _reclaimed(ref, f"{PATH} is damaged, and cleanup may be about to remove it: run 'omnigraph cleanup'")
        if listed.removes(ref):
            raise _reclaimed(ref, "cleanup is about to remove it")
    # Check the files after the list: when a cleanup has emptied the list, its versions are already removed.
    ordered = sorted(refs, key=lambda ref: (ref.path, ref.branch or "", ref.version))
    for ref, present in zip(ordered, _present(objects, ordered), strict=True):
        if not present:
            raise _reclaimed(ref, "cleanup or another program has removed it")


def are_present(objects: ObjectStore, refs: Iterable[TableRef]) -> bool:
    """Whether table versions exist. Does not look at the removal list."""
    return objects.uri.scheme is Scheme.MEMORY or all(_present(objects, list(refs)))


def _present(objects: ObjectStore, refs: Sequence[TableRef]) -> list[bool]:
    paths = [f"{table_directory(ref.path, ref.branch)}/_versions/{manifest_name(ref.version)}" for ref in refs]
    if objects.uri.scheme is Scheme.LOCAL or len(paths) < 2:
        return [objects.exists(path) for path in paths]
    with WorkerPool(_READERS) as readers:
        return list(readers.map(objects.exists, paths))


def _reclaimed(ref: TableRef, why: str) -> VersionReclaimedError:
    place = table_directory(ref.path, ref.branch)
    return VersionReclaimedError(
        f"version {ref.version} of {place} no longer exists", hint=f"{why}; choose a later commit"
    )


# For writes without a work record


def files_token(objects: ObjectStore) -> str | None:
    """The token of the list. A write reads it before it stages its first file, and again after its sidecar is written.

    If the tokens differ, a cleanup has started in between and may remove the staged files. If not, a later cleanup sees
    the sidecar, and an earlier cleanup has not listed the files.
    """
    if objects.uri.scheme is Scheme.MEMORY:
        return None
    listed = read(objects)
    # An unreadable list may be final, and its cleanup may be running. Only another cleanup replaces it.
    return listed.token if listed.readable else f"damaged {listed.etag}"


# For cleanup


def read(objects: ObjectStore) -> RemovalList:
    """Read the list. An unreadable object, for example after a power failure, lists nothing."""
    try:
        stored = objects.get(PATH)
    except ObjectNotFoundError:
        return RemovalList()
    try:
        members = verify_checksum(orjson.loads(stored.data))
        tables = {path: _table(table) for path, table in members["tables"].items()}
        number = int(members["number"])
        # An older release writes no token, only the number.
        token = str(members.get("token", number))
        return RemovalList(number, token, ListState(members["state"]), tables, stored.etag)
    except (AttributeError, KeyError, TypeError, ValueError):
        return RemovalList(etag=stored.etag, readable=False)


def propose(objects: ObjectStore, before: RemovalList, tables: dict[str, TableRemovals]) -> RemovalList:
    """Write the proposed removals of a cleanup. The previous list must still be a proposal: no file was removed.

    Raises:
        ObjectChangedError: another cleanup replaced the list first.
    """
    assert before.state is not ListState.FINAL
    return _write(objects, RemovalList(before.number + 1, _new_token(), ListState.PROPOSED, tables, before.etag))


def decide(objects: ObjectStore, proposed: RemovalList, tables: dict[str, TableRemovals]) -> RemovalList:
    """Make the list final. From now on, exactly the listed versions may be removed.

    Raises:
        ObjectChangedError: another cleanup replaced the list.
    """
    assert proposed.state is ListState.PROPOSED
    return _write(objects, replace(proposed, state=ListState.FINAL, tables=tables))


def finish(objects: ObjectStore, done: RemovalList) -> RemovalList:
    """Empty the list after all removals, or discard a proposal.

    Raises:
        ObjectChangedError: another cleanup has replaced the list.
    """
    return _write(objects, replace(done, state=ListState.NONE, tables={}))


def _new_token() -> str:
    return uuid4().hex


def _write(objects: ObjectStore, listed: RemovalList) -> RemovalList:
    members = {
        "version": _VERSION,
        "number": listed.number,
        "token": listed.token,
        "state": listed.state.value,
        "tables": {path: _members(table) for path, table in sorted(listed.tables.items())},
    }
    data = orjson.dumps(with_checksum(members))
    if listed.etag is None:
        try:
            return replace(listed, etag=objects.create(PATH, data))
        except ObjectExistsError as error:
            raise ObjectChangedError(str(objects.uri), PATH) from error
    return replace(listed, etag=objects.replace(PATH, data, listed.etag))


def _members(table: TableRemovals) -> dict[str, Any]:
    return {
        "whole": table.whole,
        "forks": sorted(table.forks),
        "versions": {name or "": table.versions[name] for name in sorted(table.versions, key=str)},
    }


def _table(members: dict[str, Any]) -> TableRemovals:
    ranges = members["versions"].items()
    versions = {name or None: [(int(first), int(last)) for first, last in runs] for name, runs in ranges}
    return TableRemovals(bool(members["whole"]), frozenset(members["forks"]), versions)


def runs_of(versions: Iterable[int]) -> list[tuple[int, int]]:
    """Combine numbers into ranges, first and last.

    >>> runs_of([1, 2, 3, 7])
    [(1, 3), (7, 7)]
    """
    runs: list[tuple[int, int]] = []
    for version in sorted(versions):
        if runs and runs[-1][1] == version - 1:
            runs[-1] = (runs[-1][0], version)
        else:
            runs.append((version, version))
    return runs
