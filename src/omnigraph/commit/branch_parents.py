"""The parents of branches: the branch that `branch update` takes changes from.

A reference names the parent. After a deletion, this name may belong to another branch, to none, or to the branch itself
(a branch can be created from a tag of a deleted branch with its name). A reset can make a branch the parent of its own
parent. In these cases `main` is the parent.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit.manifest import MAIN
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
    """Whether the branch with the name of the parent is the one that the branch was created from.

    It has the same manifest, or its resets lead from that manifest to its own. A deleted branch has no next manifest.
    """
    ledger, passed = ref.parent_ledger, set[str]()
    while ledger is not None and ledger not in passed:
        if ledger in (parent.ledger, ref.ledger):  # the own manifest: the branch was reset to one of its own commits
            return True
        passed.add(ledger)
        newest = store.manifest.open(ledger)
        if newest is None:
            return True  # its files are gone, so only the name is known
        ledger = read_manifest(parent.name, ledger, newest).successor
    return False
