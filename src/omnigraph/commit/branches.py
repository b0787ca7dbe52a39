"""Branches of the whole graph: created without copying anything, deleted authority first."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Manifest
from omnigraph.commit.names import SYSTEM, branch_name
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.store import Store
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    InputError,
    OmnigraphError,
    PreconditionFailedError,
    VersionReclaimedError,
)
from omnigraph.lang.names import did_you_mean


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
    found = []
    parents = store.manifest.branches()
    for name in [MAIN, *sorted(n for n in parents if not n.startswith(SYSTEM))]:
        with suppress(BranchNotFoundError):  # deleted while we list
            view = store.capture(name)
            parent = None if name == MAIN else parents[name].parent or MAIN
            found.append(Branch(name, parent, view.head.id, view.version))
    return found


def create_branch(store: Store, name: str, base: Manifest) -> Branch:
    """A branch that begins at a manifest version. It exists from the moment its ref does; nothing is copied.

    Raises:
        ConflictError: the name is taken, or lies above or below a branch.
    """
    name = branch_name(name)
    if name == MAIN:
        raise ConflictError("branch 'main' always exists")
    with store.exclusive_refs() as held:
        if store.branch_identifier(base.branch) != base.incarnation:
            raise BranchNotFoundError(base.branch, hint="it was deleted meanwhile")
        check_readable(store, base)
        existing = store.manifest.branches()
        if name in existing:
            raise ConflictError(f"branch '{name}' exists already", hint="choose another name")
        for other in existing:
            if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
                raise ConflictError(f"'{name}' and branch '{other}' cannot both exist: one is a path below the other")
        # A creation that died before its ref leaves files that nobody owns, and that Lance would stumble over.
        held.check()
        store.objects.delete_prefix(f"{MANIFEST_PATH}/tree/{name}")
        made = store.manifest.create_branch(name, base.ledger)
        reach(Failpoint.BRANCH_REF_CREATED)
    return Branch(name, base.branch, base.head.id, made.version)


def check_readable(store: Store, view: Manifest) -> None:
    """See that the tables of a past state are there, for whoever is about to make a name for it.

    To be called with the right to make names: cleanup removes versions with the same right.

    Raises:
        VersionReclaimedError: cleanup has removed one.
    """
    if view.version == store.capture(view.branch).version:
        return  # what is newest stays
    for key, pin in view.tables.items():
        if not store.tables.has(pin.ref):
            raise VersionReclaimedError(
                f"version {pin.ref.version} of {key} is gone", hint="cleanup has removed it; choose a later commit"
            )


def delete_branch(store: Store, name: str, head: str | None = None) -> None:
    """Remove a branch. Its ref goes first, so that it is gone for everybody at once; its files follow.

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
    _deletable(store, name)
    with store.exclusive(name) as held:
        recover_branch(store, name, held)
        if head is not None and (now := store.capture(name).head.id) != head:
            raise PreconditionFailedError(name, head, now)
        paths = _table_paths(store, name)
        with store.exclusive_refs() as refs:
            identifier = _deletable(store, name)
            held.check()
            refs.check()
            store.manifest.delete_branch(name)
            store.forget(name)
            reach(Failpoint.BRANCH_REF_DELETED)
    reclaim_forks(store, identifier, paths)


def _deletable(store: Store, name: str) -> str:
    """The identifier of a branch that nothing depends on."""
    existing = store.manifest.branches()
    if name not in existing:
        raise BranchNotFoundError(name, hint=did_you_mean(name, store.branch_names()))
    children = sorted(other for other, info in existing.items() if info.parent == name)
    if any(child.startswith(SYSTEM) for child in children):
        raise ConflictError(
            f"branch '{name}' cannot be deleted: a transaction is at work on it", hint="try again when it has ended"
        )
    if children:
        raise ConflictError(
            f"branch '{name}' cannot be deleted: made from it {_are(children)}", hint="delete those first"
        )
    tags = sorted(tag.name for tag in store.manifest.tags().values() if tag.branch == name)
    if tags:
        raise ConflictError(
            f"branch '{name}' cannot be deleted: tagged on it {_are(tags)}", hint="delete the tags first"
        )
    return existing[name].identifier


def _table_paths(store: Store, name: str) -> list[str]:
    """Where the tables are that a branch may have forked."""
    try:
        view = store.capture(name)
    except BranchNotFoundError:
        view = store.capture(MAIN)  # its ref is all that is left of it
    return sorted({pin.ref.path for pin in view.tables.values()})


def reclaim_forks(store: Store, identifier: str, paths: list[str]) -> None:
    """Remove the table forks of a branch that is gone. What cannot be removed now is left to cleanup."""
    for path in paths:
        with suppress(OmnigraphError):
            for fork in store.tables.forks(path):
                if fork.startswith(f"{identifier}-"):
                    store.tables.drop_fork(path, fork)


def _are(names: list[str]) -> str:
    return f"{'is' if len(names) == 1 else 'are'} {', '.join(names)}"
