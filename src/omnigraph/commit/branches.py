"""Branches of the whole graph: created without copying anything, deleted by removing their reference.

The lease on references keeps creators and deleters out of each other's way, and is no fence: a process may be paused
after it took the lease. So every step is safe when it comes late. A new branch has an incarnation of its own, its
reference is created if absent, and it is withdrawn if its base is being reclaimed. A deletion first closes the branch's
manifest by a compare-and-swap, so that no write can follow the state that was looked at, and then removes the reference
that was read and no other. The files of a deleted branch stay until cleanup finds that nothing needs them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from ulid_transform import ulid_now

from omnigraph.commit.condemned import NamingGuard
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Manifest
from omnigraph.commit.names import SYSTEM, branch_name
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.refs import (
    BranchRef,
    branch_ref_names,
    create_branch_ref,
    delete_branch_ref,
    find_branch,
    list_branch_refs,
    list_tag_refs,
)
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
from omnigraph.storage.tables import TableRef

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


def create_branch(store: Store, name: str, base: Manifest) -> Branch:
    """Create a branch that begins at a manifest version. It exists from the moment its reference does.

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
        guard = NamingGuard(store, base)
        incarnation = ulid_now().lower()
        reach(Failpoint.BRANCH_CREATE_CHECKED)
        made = store.manifest.create_branch(incarnation, base.ledger)
        reach(Failpoint.BRANCH_LEDGER_CREATED)
        ref = BranchRef(name, incarnation, incarnation, base.branch, base.ledger.branch, base.version, now_micros())
        try:
            ref = create_branch_ref(store.objects, ref)
        except ObjectExistsError:
            _drop_ledger(store, incarnation)
            raise _name_taken(name) from None
        reach(Failpoint.BRANCH_REF_CREATED)
        try:
            # Another process may have acted between the checks above and the reference: look again, now that it is
            # seen by everybody.
            _check_name(store, name, mine=ref)
            guard.check(TableRef(MANIFEST_PATH, incarnation, made.version))
        except OmnigraphError:
            _withdraw(store, ref)
            _drop_ledger(store, incarnation)
            raise
    return Branch(name, base.branch, base.head.id, made.version)


def _check_name(store: Store, name: str, mine: BranchRef | None = None) -> None:
    for other in branch_ref_names(store.objects):
        if other == name and mine is None:
            raise _name_taken(name)
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            raise ConflictError(f"'{name}' and branch '{other}' cannot both exist: one is a path below the other")


def _name_taken(name: str) -> ConflictError:
    return ConflictError(f"branch '{name}' exists already", hint="choose another name")


def _drop_ledger(store: Store, incarnation: str) -> None:
    """Remove the manifest of a branch that did not come to be. Cleanup removes what is left."""
    with suppress(OmnigraphError):
        store.manifest.delete_branch(incarnation)


def _withdraw(store: Store, ref: BranchRef) -> None:
    with suppress(ObjectChangedError):  # somebody has deleted it already
        delete_branch_ref(store.objects, ref)
    store.forget(ref.name)


def _finish_deletion(store: Store, name: str) -> bool:
    """Remove the reference of a branch whose deletion stopped after its manifest was closed, if it is one."""
    ref = find_branch(store.objects, name)
    if ref is None or not store.is_closed(ref):
        return False
    _withdraw(store, ref)
    return True


def delete_branch(store: Store, name: str, head: str | None = None) -> None:
    """Delete a branch: it is gone for everybody at once. Its files stay until cleanup.

    Args:
        store: the graph.
        name: the branch.
        head: the commit that its head has to be; with None it goes whatever was written to it.

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
    ref = _deletable(store, name)
    if store.manifest.open(ref.ledger) is None:
        _withdraw(store, ref)  # the files of its manifest are gone: the reference is all that is left
        return
    with store.exclusive(name) as held:
        recover_branch(store, name, held)
        with store.exclusive_refs():
            ref = _deletable(store, name)
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


def _deletable(store: Store, name: str) -> BranchRef:
    """The reference of a branch that nothing depends on."""
    existing = list_branch_refs(store.objects)
    ref = existing.get(name)
    if ref is None:
        raise BranchNotFoundError(name, hint=did_you_mean(name, store.branch_names()))
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
