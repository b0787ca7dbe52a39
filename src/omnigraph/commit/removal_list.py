"""The list of condemned versions: how cleanup and those who name versions keep out of each other's way.

There is one object, `__cleanup/condemned.json`. A cleanup writes to it what it proposes to remove, then reads every
reference, tag, record and sidecar, strikes what they need, writes the rest back as final, and removes that. Whoever
creates a branch, a tag or a record writes it first and then reads this object: a version that is listed, or gone, is
refused with `VersionReclaimedError`. So of a creator and a cleanup that meet, at least one sees the other, and a pause
between any two steps changes nothing.

The object is replaced by etag only. A proposal that another cleanup replaced can never become final, so a cleanup that
slept removes nothing. A final list is finished by whoever comes next before it is replaced, so a cleanup that slept
while removing finds nothing left to remove. The object has a checksum, so that no flipped bit condemns another version.
Every proposal has a random token that no other has; a write that has no record compares it before it stages files and
after its sidecar is there, and starts again if it changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import uuid4

import orjson

from omnigraph.commit.json_checksums import verify_checksum, with_checksum
from omnigraph.commit.manifest import MANIFEST_PATH, Manifest
from omnigraph.commit.store import Store
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

DIRECTORY = "__cleanup"
PATH = f"{DIRECTORY}/condemned.json"
_VERSION = 1
_READERS = 8


class ListState(StrEnum):
    """How far a cleanup has come."""

    NONE = "none"
    PROPOSED = "proposed"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class TableRemovals:
    """What goes of one dataset.

    Attributes:
        whole: whether all of it goes.
        forks: Lance branches that go whole.
        versions: runs of versions that go, first and last, by Lance branch.
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
    """What the object says.

    Attributes:
        number: grows with every proposal, unless the object was lost or damaged; for people.
        token: tells a proposal from all others. It stays until the next one.
        tables: what goes, by path of the dataset. The manifest's own Lance branches are under `__manifest`.
        etag: the state of the object that was read; None when there is none.
        readable: whether it could be read.
    """

    number: int = 0
    token: str | None = None
    state: ListState = ListState.NONE
    tables: dict[str, TableRemovals] = field(default_factory=dict)
    etag: str | None = None
    readable: bool = True

    def removes(self, ref: TableRef) -> bool:
        """Whether a version goes, by itself or with what it lies in."""
        found = self.tables.get(ref.path)
        return found is not None and found.removes(ref.branch, ref.version)


# Those who name versions


class ReferenceGuard:
    """For whoever is about to name a state by a branch or a tag. Made before the reference is written.

    A state that is the newest of its branch after the list was read can only be condemned by a later list, so then two
    looks at the list are enough. Any other state is looked for, table by table.
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
        """See that the state can be read and stays, after the reference was written.

        Args:
            made: versions that were made for the reference, say the manifest of a new branch.

        Raises:
            VersionReclaimedError: cleanup has removed a version, or is about to. Withdraw what was written.
        """
        if not self._newest or files_token(self._store.objects) != self._token:
            check_retained(self._store, self._view, *made)


def check_retained(store: Store, view: Manifest, *more: TableRef) -> None:
    """See that a state can be read and stays, after a branch, tag or record that names it was written.

    Args:
        store: the graph.
        view: the state.
        more: further versions.

    Raises:
        VersionReclaimedError: cleanup has removed a version of it, or is about to. Withdraw what was written.
    """
    check_present(store.objects, state_refs(view) | set(more))


def state_refs(view: Manifest) -> set[TableRef]:
    """The table versions that a state is made of, and the manifest version that says so."""
    return {pin.ref for pin in view.tables.values()} | {TableRef(MANIFEST_PATH, view.ledger.branch, view.version)}


def check_present(objects: ObjectStore, refs: Iterable[TableRef], *, certain: bool = True) -> None:
    """The same for single versions of tables.

    Args:
        objects: the graph's objects.
        refs: the versions.
        certain: whether a list that cannot be read is a reason to refuse. Not for whoever only reads: should a cleanup
            be at work, the read ends in the same error.

    Raises:
        VersionReclaimedError: one is listed, or gone.
    """
    refs = set(refs)
    if objects.uri.scheme is Scheme.MEMORY or not refs:
        return  # a graph in memory is never cleaned up
    listed = read(objects)
    for ref in refs:
        if certain and not listed.readable:
            raise _reclaimed(ref, f"{PATH} is damaged, and cleanup may be about to remove it: run 'omnigraph cleanup'")
        if listed.removes(ref):
            raise _reclaimed(ref, "cleanup is about to remove it")
    # After the list: a version that went before the list was emptied is seen to be gone.
    ordered = sorted(refs, key=lambda ref: (ref.path, ref.branch or "", ref.version))
    for ref, present in zip(ordered, _present(objects, ordered), strict=True):
        if not present:
            raise _reclaimed(ref, "cleanup has removed it, or the files were changed from outside")


def _present(objects: ObjectStore, refs: Sequence[TableRef]) -> list[bool]:
    paths = [f"{table_directory(ref.path, ref.branch)}/_versions/{manifest_name(ref.version)}" for ref in refs]
    if objects.uri.scheme is Scheme.LOCAL or len(paths) < 2:
        return [objects.exists(path) for path in paths]
    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(objects.exists, paths))


def _reclaimed(ref: TableRef, why: str) -> VersionReclaimedError:
    place = table_directory(ref.path, ref.branch)
    return VersionReclaimedError(f"version {ref.version} of {place} is gone", hint=f"{why}; choose a later commit")


# Writes that have no record


def files_token(objects: ObjectStore) -> str | None:
    """The state of the list. A write reads it before it stages its first file, and again when its sidecar is written.

    If it differs, a cleanup has looked for files of the dead in between and may take the staged files. If not, a
    cleanup that looks later sees the sidecar, and one that looked earlier does not know the files.
    """
    if objects.uri.scheme is Scheme.MEMORY:
        return None
    listed = read(objects)
    # Nobody but a cleanup replaces a list that cannot be read: it may be final, and its cleanup at work.
    return listed.token if listed.readable else f"damaged {listed.etag}"


# Cleanup


def read(objects: ObjectStore) -> RemovalList:
    """What the object says. One that cannot be read, say after a power failure, lists nothing."""
    try:
        stored = objects.get(PATH)
    except ObjectNotFoundError:
        return RemovalList()
    try:
        members = verify_checksum(orjson.loads(stored.data))
        tables = {path: _table(said) for path, said in members["tables"].items()}
        number = int(members["number"])
        # An older release compares the number alone.
        token = str(members.get("token", number))
        return RemovalList(number, token, ListState(members["state"]), tables, stored.etag)
    except (AttributeError, KeyError, TypeError, ValueError):
        return RemovalList(etag=stored.etag, readable=False)


def propose(objects: ObjectStore, before: RemovalList, tables: dict[str, TableRemovals]) -> RemovalList:
    """Write what a cleanup proposes to remove. The list before it has to be finished, or a mere proposal.

    Raises:
        ObjectChangedError: another cleanup came first.
    """
    assert before.state is not ListState.FINAL
    return _write(objects, RemovalList(before.number + 1, _new_token(), ListState.PROPOSED, tables, before.etag))


def decide(objects: ObjectStore, proposed: RemovalList, tables: dict[str, TableRemovals]) -> RemovalList:
    """Make the list final: from now on what is on it may be removed, and nothing else.

    Raises:
        ObjectChangedError: another cleanup took over.
    """
    assert proposed.state is ListState.PROPOSED
    return _write(objects, replace(proposed, state=ListState.FINAL, tables=tables))


def finish(objects: ObjectStore, done: RemovalList) -> RemovalList:
    """Empty a list of which everything is removed, or discard a proposal.

    Raises:
        ObjectChangedError: another cleanup has done so.
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
    said = members["versions"].items()
    versions = {name or None: [(int(first), int(last)) for first, last in runs] for name, runs in said}
    return TableRemovals(bool(members["whole"]), frozenset(members["forks"]), versions)


def runs_of(versions: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs of the first and the last.

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
