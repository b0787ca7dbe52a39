"""Creating, deleting and resetting branches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.commit import branch_reset, branches, snapshots, transaction_branches
from omnigraph.commit.branch_parents import parent_of
from omnigraph.commit.branch_reset import BranchReset, preview_reset
from omnigraph.commit.branches import Branch
from omnigraph.commit.kept_states import kept_state
from omnigraph.commit.lineage import find_ancestor, full_commit_id
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import branch_name
from omnigraph.engine.access import Action
from omnigraph.engine.session import Session
from omnigraph.errors import ConflictError, InputError, cut, shown


def create_branch(session: Session, name: str, *, source: str | None = None, commit: str | None = None) -> Branch:
    """Create a branch at the head of another, by default `main`, or at a commit or tag.

    Raises:
        AccessDeniedError: the policy does not allow the actor to create the branch.
        ConflictError: a branch or a tag has the name.
    """
    session.require_writable()
    if commit is None:
        session.allow(Action.BRANCH_CREATE, source or MAIN, name)
        session.require_known(source or MAIN)
    if source is not None and commit is not None:
        raise InputError(
            "give source or commit, not both: a branch starts at the head of another branch or at a commit"
        )
    session = session.unrestricted
    store = session.store
    if commit is None:
        view = store.capture(source or MAIN)
    else:
        with session.hiding_existence(Action.BRANCH_CREATE, name):
            view = snapshots.at_commit(store, commit).manifest
        session.allow(Action.BRANCH_CREATE, view.branch, name, names_branch=False)
    session.refuse_wider(Action.BRANCH_CREATE, view, branch_name(name))
    with hiding_names(session, name):
        made = branches.create_branch(store, name, view)
    parent = made.parent if made.parent == MAIN else parent_of(store, store.branch_refs(), made)
    return Branch(made.name, session.shown_branch(parent), view.head.id, view.version)


def list_branches(session: Session) -> list[Branch]:
    """The branches that the actor may know of, `main` first.

    Raises:
        AccessDeniedError: the policy does not allow the actor to read without naming a branch.
    """
    session.allow(Action.READ)
    found = branches.list_branches(session.store)
    access = session.access
    return found if access is None else [branch for branch in found if access.knows(branch.name)]


def delete_branch(session: Session, name: str, expect_head: str | None = None) -> None:
    """Delete a branch.

    Args:
        session: the session.
        name: the branch.
        expect_head: delete the branch only if this commit is its head.

    Raises:
        AccessDeniedError: the policy does not allow the actor to delete the branch.
        BranchNotFoundError: there is no such branch.
        ConflictError: another branch, a tag or this session depends on the branch.
        PreconditionFailedError: the head is another commit.
    """
    session.allow(Action.BRANCH_DELETE, target_branch=name)
    session.require_known(name.strip())
    remove_branch(session, name, expect_head)


def remove_branch(session: Session, name: str, expect_head: str | None = None, incarnation: str | None = None) -> None:
    """Delete a branch. The caller has checked that the actor may do so.

    Args:
        session: the session.
        name: the branch.
        expect_head: delete the branch only if this commit is its head.
        incarnation: delete only this incarnation, not a newer branch of the same name.

    Raises:
        BranchNotFoundError: there is no such branch.
        ConflictError: another branch, a tag or this session depends on the branch.
        PreconditionFailedError: the head is another commit.
    """
    session.require_writable()
    session, bound = session.unrestricted, session.default_branch
    if name.strip() == bound != MAIN:
        raise ConflictError(f"this handle is bound to branch '{bound}'", hint="open the graph on another branch")
    transaction_branches.reclaim(session.store)  # so that crashed transactions do not block the deletion
    if (branch := branch_name(name)) != MAIN:
        transaction_branches.check_none_on(session.store, branch, session.store.branch_identifier(branch))
    with hiding_names(session, name):
        branches.delete_branch(session.store, name, session.expected_head(expect_head), incarnation)


@contextmanager
def hiding_names(session: Session, name: str) -> Iterator[None]:
    """Create or delete a branch or a tag. Conflicts name other branches and tags only to actors who may list them.

    Raises:
        ConflictError: the name is that of a branch that the actor may read.
        AccessDeniedError: the actor may not list branches, and another one is in the way.
    """
    try:
        yield
    except ConflictError:
        access = session.access
        if access is None or session.lists_branches:
            raise
        if name in session.store.shown_branches():
            raise ConflictError(f"branch '{cut(name)}' exists already, or is in use") from None
        why = "the name is taken, or another branch or tag is in the way"
        raise access.denied(Action.BRANCH_CREATE, why, target_branch=name) from None


def reset_branch(
    session: Session, name: str, to: str, *, expect_head: str | None = None, preview: bool = False
) -> BranchReset:
    """Move a branch to another commit. A tag keeps its previous head.

    Args:
        session: the session.
        name: the branch.
        to: the commit or tag.
        expect_head: reset the branch only if this commit is its head.
        preview: report the result, but write nothing.

    Raises:
        InputError: the branch is `main`.
        BranchNotFoundError: there is no such branch.
        NotFoundError: there is no such commit.
        PreconditionFailedError: the head is another commit.
        VersionReclaimedError: cleanup has removed the commit.
    """
    session = session.unrestricted
    store = session.store
    if not preview:
        session.require_writable()
    session.allow(Action.BRANCH_DELETE, target_branch=branch_name(name))
    session.require_known(branch_name(name))
    if not isinstance(to, str):
        raise InputError(f"{shown(to)} is not a commit", hint="give the id of a commit, or a tag")
    with session.hiding_existence(Action.BRANCH_CREATE, branch_name(name)):
        to = full_commit_id(store, to)
        known = find_ancestor(store.capture(branch_name(name)), to)
        base = snapshots.at_commit(store, to).manifest if known is None else kept_state(store, known)
    session.allow(Action.BRANCH_CREATE, base.branch, branch_name(name), names_branch=False)
    session.refuse_wider(Action.BRANCH_CREATE, base, branch_name(name))
    reset = preview_reset if preview else branch_reset.reset_branch
    return reset(store, name, base, session.expected_head(expect_head))
