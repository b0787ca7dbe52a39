"""Branches of the whole graph: created without copying anything, deleted by removing their reference.

The lease on references keeps creators and deleters out of each other's way, and is no fence: a process may be paused
after it took the lease. So every step is safe when it comes late. A new branch has an incarnation of its own. Its
reference is created if absent, as a pending one that nobody takes for a branch. If its base is not being reclaimed and
its name fits beside the others, the reference is confirmed by a compare-and-swap. A deletion first closes the branch's
manifest by a compare-and-swap, so that no write can follow the state that was looked at, and then removes the reference
that was read and no other. The files of a deleted branch stay until cleanup finds that nothing needs them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from ulid_transform import ulid_now

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Manifest
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.ref_names import SYSTEM, branch_name
from omnigraph.commit.refs import (
    BranchRef,
    branch_ref_names,
    confirm_branch_ref,
    create_branch_ref,
    delete_branch_ref,
    find_branch,
    find_branch_ref,
    list_all_branch_refs,
    list_branch_refs,
    list_tag_refs,
)
from omnigraph.commit.removal_list import ReferenceGuard
from omnigraph.commit.store import Store, now_micros
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    InputError,
    ObjectChangedError,
    ObjectExistsError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.lang.names import did_you_mean
from omnigraph.storage.table_ref import TableRef

_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of the graph.

    Attributes:
        parent: the branch that it was made from; None for `main`.
        head: the id of its newest commit.
        manifest_version: the manifest version that it is at.
    """

    name: str
    parent: str | None
    head: str
    manifest_version: int


def list_branches(store: Store) -> list[Branch]:
    """All branches, `main` first, then by name."""
    main = store.capture(MAIN)
    found = [Branch(MAIN, None, main.head.id, main.version)]
    for name, ref in list_branch_refs(store.objects).items():
        if not ref.is_hidden:
            with suppress(BranchNotFoundError):  # deleted while we list
                view = store.capture(name)
                found.append(Branch(name, ref.parent, view.head.id, view.version))
    return found


def create_branch(store: Store, name: str, base: Manifest) -> BranchRef:
    """Create a branch that begins at a manifest version. It exists from the moment its reference is confirmed.

    Raises:
        ConflictError: the name is taken, or lies above or below a branch.
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
        reach(Failpoint.BRANCH_CREATE_CHECKED)
        made = store.manifest.create_branch(incarnation, base.ledger)
        reach(Failpoint.BRANCH_LEDGER_CREATED)
        # Nobody but its creator uses a hidden branch, so it may be withdrawn although it exists.
        hidden = name.startswith(SYSTEM)
        parent = base.branch, base.ledger.branch, base.version
        ref = BranchRef(name, incarnation, incarnation, *parent, now_micros(), pending=not hidden)
        try:
            ref = create_branch_ref(store.objects, ref)
        except ObjectExistsError:
            _drop_ledger(store, incarnation)
            raise _name_taken(name) from None
        reach(Failpoint.BRANCH_REF_PENDING)
        try:
            # Another process may have acted between the checks above and the reference: look again, now that cleanup
            # and other creators see it.
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
    """Make a pending reference that of a branch.

    Raises:
        ConflictError: somebody has withdrawn it.
    """
    try:
        return confirm_branch_ref(store.objects, ref)
    except ObjectChangedError:
        found = find_branch(store.objects, ref.name)
        if found is not None and found.incarnation == ref.incarnation:
            return found  # the first of two requests took effect, and its answer was lost
        said = f"another process created a branch at the same time, and took '{ref.name}' for left over"
        raise ConflictError(said, hint="try again") from None


def withdraw_pending(store: Store) -> None:
    """Remove the references of branches whose creation stopped, with the lease on references.

    Creators have it too, so those are dead, or were overtaken: then they find that their reference is gone.
    """
    if any(ref.pending for ref in list_all_branch_refs(store.objects).values()):
        with store.exclusive_refs():
            for ref in list_all_branch_refs(store.objects).values():
                if ref.pending:
                    _withdraw(store, ref)


def _check_name(store: Store, name: str, mine: BranchRef | None = None) -> None:
    """See that a name fits beside those of other branches. Before the own reference is there, what is pending goes."""
    for other in branch_ref_names(store.objects):
        same = other == name and mine is None
        if not (same or other.startswith(f"{name}/") or name.startswith(f"{other}/")):
            continue
        found = find_branch_ref(store.objects, other)
        if found is None or (found.pending and mine is None and _withdraw(store, found)):
            continue
        if same:
            raise _name_taken(name)
        raise ConflictError(f"'{name}' and branch '{other}' cannot both exist: one is a path below the other")


def _name_taken(name: str) -> ConflictError:
    return ConflictError(f"branch '{name}' exists already", hint="choose another name")


def _drop_ledger(store: Store, incarnation: str) -> None:
    """Remove the manifest of a branch that did not come to be. Cleanup removes what is left."""
    with suppress(OmnigraphError):
        store.manifest.delete_branch(incarnation)


def _withdraw(store: Store, ref: BranchRef) -> bool:
    """Remove a reference that was read. False when it has changed meanwhile, or is gone."""
    store.forget(ref.name)
    try:
        delete_branch_ref(store.objects, ref)
    except ObjectChangedError:
        return False
    return True


def _finish_deletion(store: Store, name: str) -> bool:
    """Remove the reference of a branch whose deletion stopped after its manifest was closed, if it is one."""
    ref = find_branch(store.objects, name)
    if ref is None or not store.is_closed(ref):
        return False
    _withdraw(store, ref)
    return True


def delete_branch(store: Store, name: str, head: str | None = None, incarnation: str | None = None) -> None:
    """Delete a branch: it is gone for everybody at once. Its files stay until cleanup.

    Args:
        store: the graph.
        name: the branch.
        head: the commit that its head has to be; with None it goes whatever was written to it.
        incarnation: the branch that is meant, and no other of that name.

    Raises:
        BranchNotFoundError: there is no such branch.
        ConflictError: another branch or a tag depends on it.
        PreconditionFailedError: its head is another commit.
    """
    name = branch_name(name)
    if name == MAIN:
        raise InputError("branch 'main' cannot be deleted")
    if _finish_deletion(store, name):
        return
    ref = _deletable(store, name, incarnation)
    if store.manifest.open(ref.ledger) is None:
        _withdraw(store, ref)  # the files of its manifest are gone: the reference is all that is left
        return
    with store.exclusive(name) as held:
        recover_branch(store, name, held)
        with store.exclusive_refs():
            ref = _deletable(store, name, incarnation)
            _close(store, ref, held, head)
            reach(Failpoint.BRANCH_CLOSED)
            with suppress(ObjectChangedError):  # its removal by somebody else is as good
                delete_branch_ref(store.objects, ref)
            store.forget(name)
            reach(Failpoint.BRANCH_REF_DELETED)


def _close(store: Store, ref: BranchRef, held: Lease, head: str | None) -> None:
    """Publish the last version of the branch's manifest: no write can follow it.

    Raises:
        BranchNotFoundError: somebody else has deleted the branch.
        PreconditionFailedError: its head is not the given commit.
    """
    for _ in range(_ATTEMPTS):
        view = store.capture(ref.name)
        if view.incarnation != ref.incarnation:
            raise BranchNotFoundError(ref.name, hint="it was deleted, and made again, meanwhile")
        if head is not None and view.head.id != head:
            raise PreconditionFailedError(ref.name, head, view.head.id)
        reach(Failpoint.BRANCH_DELETE_CHECKED)
        with suppress(ReadSetChangedError):  # a write came first: look again
            store.close_branch(view, held)
            return
    raise ConflictError(f"branch '{ref.name}' is written to all the time", hint="try again")


def _deletable(store: Store, name: str, incarnation: str | None) -> BranchRef:
    """The reference of a branch that nothing depends on."""
    existing = list_branch_refs(store.objects)
    ref = existing.get(name)
    if ref is None:
        raise BranchNotFoundError(name, hint=did_you_mean(name, store.branch_names()))
    if incarnation not in (None, ref.incarnation):
        raise BranchNotFoundError(name, hint="it was deleted, and made again, meanwhile")
    children = sorted(other for other, info in existing.items() if info.parent_ledger == ref.ledger)
    if any(child.startswith(SYSTEM) for child in children):
        raise ConflictError(
            f"branch '{name}' cannot be deleted: a transaction is at work on it", hint="try again when it has ended"
        )
    if children:
        raise ConflictError(
            f"branch '{name}' cannot be deleted: made from it {_are(children)}", hint="delete those first"
        )
    tags = sorted(tag.name for tag in list_tag_refs(store.objects).values() if tag.ledger == ref.ledger)
    if tags:
        raise ConflictError(
            f"branch '{name}' cannot be deleted: tagged on it {_are(tags)}", hint="delete the tags first"
        )
    return ref


def _are(names: list[str]) -> str:
    return f"{'is' if len(names) == 1 else 'are'} {', '.join(names)}"
