"""Reset of a branch: the branch gets a new incarnation at another commit.

A safety tag keeps the old head readable. It is created before the old incarnation is closed.

1. The safety tag is created.
2. The manifest of the new incarnation is created, and the reference of the branch names it as a *successor*. From then
   on cleanup keeps it. The branch is still the old one.
3. The manifest of the old incarnation is closed by a compare-and-swap. The closing version names the successor. This is
   the moment of the reset: no write to the old incarnation can follow, and readers continue with the successor.
4. The reference is replaced by that of the successor.

If the process dies before step 3, the branch is unchanged. If it dies after step 3, the branch is reset. Step 4 only
saves readers a lookup: they find the successor without it, and the next change of the reference completes it. A
reference can have several successors, of interrupted resets or of a process that was paused. The closing version names
the one that won. No other process removes a successor from the reference before the old incarnation is closed. So a
late step 3 always leads to a manifest that exists.
"""

# See docs/decisions/0174-a-reset-closes-and-continues.md

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from ulid_transform import ulid_now

from omnigraph.commit.ancestors import History
from omnigraph.commit.branch_parents import parent_after_reset
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Commit, Manifest
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.ref_names import branch_name, is_tag_name
from omnigraph.commit.refs import BranchRef, Successor, find_tag, replace_branch_ref
from omnigraph.commit.removal_list import ReferenceGuard
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.tags import Tag, create_tag
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    InputError,
    ObjectChangedError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.storage.table_ref import TableRef

_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class BranchReset:
    """The result of a reset of a branch, or of its preview.

    Attributes:
        name: the branch.
        head: its head after the reset.
        previous_head: its head before the reset.
        tag: the tag that keeps the previous head readable; None if the branch already was at the commit.
        commits_removed: number of commits that the branch no longer has.
        preview: whether this is only a preview, and nothing was written.
    """

    name: str
    head: str
    previous_head: str
    tag: str | None
    commits_removed: int
    preview: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether the head of the branch is another commit."""
        return self.head != self.previous_head

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "name": self.name,
            "head": self.head,
            "previous_head": self.previous_head,
            "tag": self.tag,
            "commits_removed": self.commits_removed,
            "preview": self.preview,
        }


def preview_reset(store: Store, name: str, base: Manifest, head: str | None = None) -> BranchReset:
    """The result that a reset would have. Writes nothing.

    Raises:
        InputError: the branch is `main`.
        BranchNotFoundError: there is no such branch.
        PreconditionFailedError: its head is another commit than `head`.
    """
    name = _resettable(name)
    view = store.capture(name)
    _check_head(view, head)
    return replace(_result(store, view, base, _tag_name(view.branch, view.head)), preview=True)


def reset_branch(store: Store, name: str, base: Manifest, head: str | None = None) -> BranchReset:
    """Move a branch to another commit. Its previous head gets a tag.

    Args:
        store: the graph.
        name: the branch.
        base: the graph state at the commit to move to.
        head: the expected head; None accepts any head.

    Raises:
        InputError: the branch is `main`.
        BranchNotFoundError: there is no such branch.
        PreconditionFailedError: its head is another commit.
        VersionReclaimedError: cleanup has removed the commit, or is about to.
    """
    name = _resettable(name)
    with store.exclusive(name) as held:
        recover_branch(store, name, held)
        with store.exclusive_refs():
            finish_reset(store, name)
            return _Reset(store, name, base, held).run(head)


def finish_reset(store: Store, name: str) -> None:
    """Replace the reference of a branch whose reset was interrupted after its manifest was closed."""
    ref = store.find_branch(name)
    if ref is not None and ref.reset_from is not None:
        with suppress(ObjectChangedError):  # another process was faster
            replace_branch_ref(store.objects, ref)
        store.forget(name)


def finish_resets(store: Store) -> None:
    """Complete all interrupted resets. Costs one listing if there are no branches."""
    for name, ref in store.branch_refs().items():
        if ref.reset_from is not None:
            finish_reset(store, name)


class _Reset:
    """One reset of a branch. The caller holds the lease of the branch and the lease on references."""

    def __init__(self, store: Store, name: str, base: Manifest, held: Lease) -> None:
        self._store = store
        self._name = name
        self._base = base
        self._held = held
        self._incarnation = ulid_now().lower()
        found = store.find_branch(name)
        if found is None:
            raise store.no_branch(name)
        self._ref: BranchRef = found

    def run(self, head: str | None) -> BranchReset:
        view = self._captured(head)
        result = _result(self._store, view, self._base, _tag_name(view.branch, view.head))
        if not result.is_changed:
            return result
        guard = ReferenceGuard(self._store, self._base)
        guard.check()  # a refused reset leaves no tag
        tag = self._tagged(view.head)
        try:
            made = self._store.manifest.create_branch(self._incarnation, self._base.ledger)
            reach(Failpoint.BRANCH_RESET_CREATED)
            self._name_successor()
            reach(Failpoint.BRANCH_RESET_INTENDED)
            guard.check(TableRef(MANIFEST_PATH, self._incarnation, made.version))
        except OmnigraphError:
            self._withdraw()
            raise
        for _ in range(_ATTEMPTS):
            reach(Failpoint.BRANCH_RESET_CHECKED)
            with suppress(ReadSetChangedError):  # another version was published first: read it and decide again
                self._store.close_branch(view, self._held, self._incarnation, self._ref.origin)
                break
            found = self._after_conflict(view, head)
            if found is None:
                break
            view = found
            tag = self._tagged(view.head)
        else:
            raise ConflictError(f"branch '{self._name}' cannot be reset: other processes write to it", hint="try again")
        reach(Failpoint.BRANCH_RESET_CLOSED)
        finish_reset(self._store, self._name)
        reach(Failpoint.BRANCH_RESET_DONE)
        return replace(_result(self._store, view, self._base, tag.name), tag=tag.name)

    def _captured(self, head: str | None) -> Manifest:
        view = self._store.capture(self._name)
        if view.incarnation != self._ref.incarnation:
            raise BranchNotFoundError(self._name, hint="it was reset, or deleted and created again, in the meantime")
        _check_head(view, head)
        return view

    def _after_conflict(self, view: Manifest, head: str | None) -> Manifest | None:
        """The state to reset after another version was published; None if the reset has already taken effect."""
        found = self._store.find_branch(self._name)
        if found is not None and found.incarnation == self._incarnation:
            return None  # the request was sent twice: the first took effect, and its response was lost
        return self._captured(head)

    def _tagged(self, head: Commit) -> Tag:
        """Create the safety tag. Returns the existing tag if another reset of this head has created it.

        The tag is never removed, even if the reset fails: another reset of the same head may rely on it.
        """
        name = _tag_name(self._name, head)
        for wanted in (name, f"{name}-{ulid_now().lower()}"):
            with suppress(ConflictError):  # the name is taken, perhaps by the tag of another reset
                return create_tag(self._store, wanted, head)
            known = find_tag(self._store.objects, wanted)
            if known is not None and known.commit_id == head.id:
                return known
        raise ConflictError(f"tag '{name}' exists already", hint="delete it first")

    def _name_successor(self) -> None:
        base = self._base
        parent, origin = parent_after_reset(self._store, self._ref, base)
        made = Successor(self._incarnation, parent, base.ledger.branch, base.version, now_micros(), origin)
        wanted = replace(self._ref, successors=(*self._ref.successors, made))
        try:
            self._ref = replace_branch_ref(self._store.objects, wanted)
        except ObjectChangedError:
            found = self._store.find_branch(self._name)
            if found is None or made not in found.successors or found.incarnation != self._ref.incarnation:
                message = f"another process changed branch '{self._name}' at the same time"
                raise ConflictError(message, hint="try again") from None
            self._ref = found  # the request was sent twice: the first took effect, and its response was lost

    def _withdraw(self) -> None:
        """Remove the new incarnation. The old one was not closed for it."""
        others = tuple(one for one in self._ref.successors if one.incarnation != self._incarnation)
        with suppress(OmnigraphError):
            if others != self._ref.successors:
                replace_branch_ref(self._store.objects, replace(self._ref, successors=others))
            self._store.manifest.delete_branch(self._incarnation)


def _resettable(name: str) -> str:
    name = branch_name(name)
    if name == MAIN:
        raise InputError(
            "branch 'main' cannot be reset: it always continues its own history",
            hint="undo single commits with revert, or create a branch at the commit",
        )
    return name


def _check_head(view: Manifest, head: str | None) -> None:
    if head not in (None, view.head.id):
        raise PreconditionFailedError(view.branch, str(head), view.head.id)


def _result(store: Store, view: Manifest, base: Manifest, tag: str) -> BranchReset:
    if view.head.id == base.head.id:
        return BranchReset(view.branch, view.head.id, view.head.id, None, 0)
    removed = len(History(store, view, base).common().source_only)
    return BranchReset(view.branch, base.head.id, view.head.id, tag, removed)


def _tag_name(branch: str, head: Commit) -> str:
    """The name of the safety tag, from the branch and the id of its head."""
    name = f"{branch.replace('/', '-')}-before-reset-{head.id}"
    return name if is_tag_name(name) else f"before-reset-{head.id}"
