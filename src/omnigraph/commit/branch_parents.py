"""The parents of branches: the branch that `branch update` takes changes from.

A reference names the parent, and records its origin: an id that a branch keeps from its creation to its deletion. After
a deletion, the name may belong to another branch, to none, or to the branch itself (a branch can be created from a tag
of a deleted branch with its name). A reset can make a branch the parent of its own parent. In these cases `main` is the
parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.commit.manifest_rows import read_manifest
from omnigraph.commit.refs import BranchRef
from omnigraph.commit.store import Store


def parent_of(store: Store, refs: Mapping[str, BranchRef], ref: BranchRef) -> str:
    """The current parent of a branch: the branch that it was created from, or `main` if that does not exist any more.

    Args:
        store: the graph.
        refs: the current references of all branches, by name.
        ref: the reference of the branch.
    """
    parent = direct = _direct(store, refs, ref)
    passed = {ref.name}
    while parent != MAIN:
        if parent in passed:
            return MAIN if parent == ref.name else direct
        passed.add(parent)
        parent = _direct(store, refs, refs[parent])
    return direct


def _direct(store: Store, refs: Mapping[str, BranchRef], ref: BranchRef) -> str:
    """The named parent, if it is still the same branch; `main` otherwise. There may be a cycle of such parents."""
    found = refs.get(ref.parent)
    if found is None or ref.parent == ref.name or not _continues(store, ref, found):
        return MAIN
    return ref.parent


def _continues(store: Store, ref: BranchRef, parent: BranchRef) -> bool:
    """Whether the branch with the name of the parent is the one that the branch was created from."""
    if ref.parent_origin is not None:
        return ref.parent_origin == parent.origin
    # A reference of an earlier release does not record the origin of the parent. Then the parent has the same manifest,
    # or its resets lead from that manifest to its own. A deleted branch has no next manifest.
    if ref.parent_ledger == parent.ledger:
        return True
    for ledger, closed in _resets(store, ref.parent, ref.parent_ledger):
        if ledger in (parent.ledger, ref.ledger):  # the own manifest: the branch was reset to one of its own commits
            return True
        if closed is not None and closed.origin is not None:
            return closed.origin in (parent.origin, ref.origin)
    return False  # also if the files of a manifest are gone: the branch with the name may be another one


def origin_of(store: Store, name: str, ledger: str | None) -> str | None:
    """The origin of the branch that a manifest belongs to; None for `main`.

    Args:
        store: the graph.
        name: the branch.
        ledger: the Lance branch of the manifest. It may be that of an earlier incarnation, or of a deleted branch.
    """
    if ledger is None:
        return None
    found = store.find_branch(name)
    if found is not None and ledger == found.ledger:
        return found.origin
    for one, closed in _resets(store, name, ledger):
        if found is not None and one == found.ledger:
            return found.origin
        if closed is not None and closed.origin is not None:
            return closed.origin
    return ledger  # of a deleted branch: no branch has it as its origin any more


def parent_after_reset(store: Store, ref: BranchRef, base: Manifest) -> tuple[str, str | None]:
    """The name and the origin of the parent of a branch that is reset to a state."""
    if base.branch != ref.name:
        return base.branch, origin_of(store, base.branch, base.ledger.branch)
    if ref.parent == MAIN or ref.parent_origin is not None:
        return ref.parent, ref.parent_origin
    found = store.find_branch(ref.parent)  # a reference of an earlier release
    if found is None or not _continues(store, ref, found):
        return MAIN, None
    return ref.parent, found.origin


def _resets(store: Store, name: str, ledger: str | None) -> Iterator[tuple[str, Manifest | None]]:
    """The manifest of a branch, and the next ones that its resets led to. None if the files of a manifest are gone."""
    passed = set[str]()
    while ledger is not None and ledger not in passed:
        passed.add(ledger)
        newest = store.manifest.open(ledger)
        view = None if newest is None else read_manifest(name, ledger, newest)
        yield ledger, view
        ledger = None if view is None else view.successor
