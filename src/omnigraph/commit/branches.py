"""Branches of the whole graph: creation copies nothing, deletion removes the reference.

A lease serialises changes of references. But a process may be paused until its lease expires, and then continue. So
every step is safe even if it runs late. A new branch has a new incarnation id. Its reference is first created as
pending, if absent, and readers ignore pending references. If the base version is retained and the name does not clash,
a compare-and-swap confirms the reference. A deletion first closes the branch's manifest by a compare-and-swap, so that
no write can follow, and then removes exactly the reference that it read. Cleanup removes the files of a deleted branch
when nothing needs them.
"""

# See docs/decisions/0032-forks-are-named-by-identifier.md

from __future__ import annotations

from contextlib import suppress

from ulid_transform import ulid_now

from omnigraph.commit.branch_parents import origin_of, parent_of
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Manifest
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.ref_names import SYSTEM, branch_name, is_tag_name
from omnigraph.commit.refs import (
    BranchRef,
    branch_ref_names,
    confirm_branch_ref,
    create_branch_ref,
    delete_branch_ref,
    find_branch_ref,
    find_tag,
    list_all_branch_refs,
    list_tag_refs,
)
from omnigraph.commit.removal_list import ReferenceGuard
from omnigraph.commit.store import Store, now_micros
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    ObjectChangedError,
    ObjectExistsError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.storage.table_ref import TableRef

_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of the graph.

    Attributes:
        parent: the branch that it was created from, or `main` if that branch no longer exists; None for `main`.
        head: id of its newest commit.
        manifest_version: its current manifest version.
    """

    name: str
    parent: str | None
    head: str
    manifest_version: int


def list_branches(store: Store) -> list[Branch]:
    """All branches, `main` first, then by name."""
    main = store.capture(MAIN)
    found = [Branch(MAIN, None, main.head.id, main.version)]
    refs = store.branch_refs()
    for name, ref in refs.items():
        if not ref.is_hidden:
            with suppress(BranchNotFoundError):  # deleted during the listing
                view = store.capture(name)
                found.append(Branch(name, parent_of(store, refs, ref), view.head.id, view.version))
    return found


def create_branch(store: Store, name: str, base: Manifest) -> BranchRef:
    """Create a branch at a manifest version. It exists as soon as its reference is confirmed.

    Raises:
        ConflictError: a branch or a tag has the name, or it is a prefix of another branch's name or has one as a
            prefix.
        VersionReclaimedError: cleanup has removed the version, or is about to.
    """
    name = branch_name(name)
    if name == MAIN:
        raise ConflictError("branch 'main' always exists")
    with store.exclusive_refs():
        _finish_deletion(store, name)
        _check_name(store, name)
        guard = ReferenceGuard(store, base)
        incarnation = ulid_now().lower()
        # Only its creator uses a transaction branch. So it needs no pending state: the creator can still remove it.
        hidden = name.startswith(SYSTEM)
        parent = MAIN if base.branch == name else base.branch
        origin = None if hidden or parent == MAIN else origin_of(store, parent, base.ledger.branch)
        reach(Failpoint.BRANCH_CREATE_CHECKED)
        made = store.manifest.create_branch(incarnation, base.ledger)
        reach(Failpoint.BRANCH_LEDGER_CREATED)
        start = parent, base.ledger.branch, base.version
        ref = BranchRef(name, incarnation, incarnation, *start, now_micros(), pending=not hidden, parent_origin=origin)
        try:
            ref = create_branch_ref(store.objects, ref)
        except ObjectExistsError:
            _drop_ledger(store, incarnation)
            raise _name_taken(name) from None
        reach(Failpoint.BRANCH_REF_PENDING)
        try:
            # Another process may have acted between the checks above and the creation of the reference. Check again,
            # now that cleanup and other creators see the reference.
            _check_name(store, name, mine=ref)
            guard.check(TableRef(MANIFEST_PATH, incarnation, made.version))
            reach(Failpoint.BRANCH_CONFIRM_CHECKED)
            ref = ref if hidden else _confirm(store, ref)
        except OmnigraphError:
            if _withdraw(store, ref):
                _drop_ledger(store, incarnation)
            raise
        reach(Failpoint.BRANCH_REF_CREATED)
    return ref


def _confirm(store: Store, ref: BranchRef) -> BranchRef:
    """Confirm a pending reference.

    Raises:
        ConflictError: another process has removed it.
    """
    try:
        return confirm_branch_ref(store.objects, ref)
    except ObjectChangedError:
        found = store.find_branch(ref.name)
        if found is not None and found.incarnation == ref.incarnation:
            return found  # the request was sent twice: the first took effect, and its response was lost
        message = f"another process created a branch at the same time, and removed the reference of '{ref.name}'"
        raise ConflictError(message, hint="try again") from None


def withdraw_pending(store: Store) -> None:
    """Remove pending references of interrupted creations. The caller holds the lease on references.

    Creators hold this lease, too. So the creator of a pending reference is dead or has lost its lease. A creator that
    continues finds that its reference is missing, and fails.
    """
    if any(ref.pending for ref in list_all_branch_refs(store.objects).values()):
        with store.exclusive_refs():
            for ref in list_all_branch_refs(store.objects).values():
                if ref.pending:
                    _withdraw(store, ref)


def _check_name(store: Store, name: str, mine: BranchRef | None = None) -> None:
    """Check that a name does not clash with tags and other branches.

    A creator of a tag checks the names of branches, also of pending ones, after it has written the tag. So at least one
    of two concurrent creators sees the other.

    `mine` is the reference that this creation has written. Without it, tags are not checked, and pending references
    that clash are removed.
    """
    for other in branch_ref_names(store.objects):
        same = other == name and mine is None
        if not (same or other.startswith(f"{name}/") or name.startswith(f"{other}/")):
            continue
        found = find_branch_ref(store.objects, other)
        if found is None or (found.pending and mine is None and _withdraw(store, found)):
            continue
        if same:
            raise _name_taken(name)
        raise ConflictError(f"'{name}' and branch '{other}' cannot both exist: one name is a path prefix of the other")
    is_checked = mine is not None and mine.pending and is_tag_name(name)
    if is_checked and find_tag(store.objects, name) is not None:
        raise ConflictError(f"'{name}' is the name of a tag", hint="choose another name for the branch")


def _name_taken(name: str) -> ConflictError:
    return ConflictError(f"branch '{name}' exists already", hint="choose another name")


def _drop_ledger(store: Store, incarnation: str) -> None:
    """Remove the manifest of a branch that was not created. Cleanup removes leftovers."""
    with suppress(OmnigraphError):
        store.manifest.delete_branch(incarnation)


def _withdraw(store: Store, ref: BranchRef) -> bool:
    """Remove a reference that was read. False if it has changed since, or is missing."""
    store.forget(ref.name)
    try:
        delete_branch_ref(store.objects, ref)
    except ObjectChangedError:
        return False
    return True


def _finish_deletion(store: Store, name: str) -> bool:
    """Finish an interrupted deletion: remove the reference of the branch if its manifest is marked as deleted."""
    ref = store.find_branch(name)
    if ref is None or not store.is_closed(ref):
        return False
    _withdraw(store, ref)
    return True


def delete_branch(store: Store, name: str, head: str | None = None, incarnation: str | None = None) -> None:
    """Delete a branch. It disappears for all readers at once. Its files stay until cleanup.

    Args:
        store: the graph.
        name: the branch.
        head: the expected head; None accepts any head.
        incarnation: the incarnation to delete. A later branch with the same name is not deleted.

    Raises:
        BranchNotFoundError: there is no such branch.
        ConflictError: another branch or a tag depends on it.
        PreconditionFailedError: its head is another commit.
    """
    name = branch_name(name)
    if name == MAIN:
        raise ConflictError("branch 'main' cannot be deleted")
    if _finish_deletion(store, name):
        return
    ref = _deletable(store, name, incarnation)
    if store.manifest.open(ref.ledger) is None:
        _withdraw(store, ref)  # the files of its manifest are missing: only the reference is left
        return
    with store.exclusive(name) as held:
        recover_branch(store, name, held)
        with store.exclusive_refs():
            ref = _deletable(store, name, incarnation)
            _close(store, ref, held, head)
            reach(Failpoint.BRANCH_CLOSED)
            with suppress(ObjectChangedError):  # another process may have removed the reference
                delete_branch_ref(store.objects, ref)
            store.forget(name)
            reach(Failpoint.BRANCH_REF_DELETED)


def _close(store: Store, ref: BranchRef, held: Lease, head: str | None) -> None:
    """Publish the last version of the branch's manifest, which no write can follow.

    Raises:
        BranchNotFoundError: another process has deleted the branch.
        PreconditionFailedError: its head is not the given commit.
    """
    for _ in range(_ATTEMPTS):
        view = store.capture(ref.name)
        if view.incarnation != ref.incarnation:
            raise BranchNotFoundError(ref.name, hint="it was deleted and created again in the meantime")
        if head is not None and view.head.id != head:
            raise PreconditionFailedError(ref.name, head, view.head.id)
        reach(Failpoint.BRANCH_DELETE_CHECKED)
        with suppress(ReadSetChangedError):  # a write was published first: try again
            store.close_branch(view, held)
            return
    raise ConflictError(f"branch '{ref.name}' cannot be deleted: other processes write to it", hint="try again")


def _deletable(store: Store, name: str, incarnation: str | None) -> BranchRef:
    """Check that no branch, tag or transaction depends on a branch. Returns its reference."""
    existing = store.branch_refs()
    ref = existing.get(name)
    if ref is None:
        raise store.no_branch(name)
    if incarnation not in (None, ref.incarnation):
        raise BranchNotFoundError(name, hint="it was deleted and created again in the meantime")
    if any(info.is_hidden and info.parent_ledger == ref.ledger for info in existing.values()):
        raise ConflictError(
            f"branch '{name}' cannot be deleted: a transaction is running on it", hint="try again when it has ended"
        )
    visible = {other: info for other, info in existing.items() if not info.is_hidden}
    children = sorted(other for other, info in visible.items() if parent_of(store, visible, info) == name)
    if children:
        raise ConflictError(
            f"branch '{name}' cannot be deleted: branches were created from it: {', '.join(children)}",
            hint="delete those first",
        )
    tags = sorted(tag.name for tag in list_tag_refs(store.objects).values() if tag.ledger == ref.ledger)
    if tags:
        raise ConflictError(
            f"branch '{name}' cannot be deleted: its commits have tags: {', '.join(tags)}", hint="delete the tags first"
        )
    return ref
