"""Tags: names for commits. Cleanup does not remove a commit with a tag."""

from __future__ import annotations

from contextlib import suppress

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.manifest import Commit
from omnigraph.commit.ref_names import tag_name
from omnigraph.commit.refs import TagRef, create_tag_ref, delete_tag_ref, list_tag_refs
from omnigraph.commit.removal_list import ReferenceGuard
from omnigraph.commit.store import Store, now_micros
from omnigraph.errors import ConflictError, NotFoundError, ObjectChangedError, ObjectExistsError, OmnigraphError
from omnigraph.lang.names import did_you_mean

Tag = TagRef
"""A named commit. Cleanup keeps everything that the commit needs."""


def list_tags(store: Store) -> list[Tag]:
    """All tags by name."""
    return list(list_tag_refs(store.objects).values())


def create_tag(store: Store, name: str, commit: Commit) -> Tag:
    """Create a tag for a commit.

    The reference is written first and the commit is checked afterwards. Cleanup lists versions for removal before it
    reads the references. So either cleanup sees the tag and keeps its versions, or this check sees the removal list.
    The names of branches are checked afterwards, too: a creator of a branch checks the tags after it has written a
    pending reference. So at least one of both sees the other.

    Raises:
        ConflictError: a tag or a branch has the name.
        VersionReclaimedError: cleanup has removed the commit's version, or is about to.
    """
    name = tag_name(name)
    _check_branches(store, name)
    guard = ReferenceGuard(store, store.manifest_of(commit))
    ref = TagRef(name, commit.id, commit.branch, commit.ledger, commit.manifest_version, now_micros())
    reach(Failpoint.TAG_CREATE_CHECKED)
    try:
        made = create_tag_ref(store.objects, ref)
    except ObjectExistsError:
        raise ConflictError(f"tag '{name}' exists already", hint="delete it first, or choose another name") from None
    reach(Failpoint.TAG_REF_CREATED)
    try:
        guard.check()
        _check_branches(store, name)
    except OmnigraphError:
        with suppress(ObjectChangedError):  # another process has deleted the tag
            delete_tag_ref(store.objects, made)
        raise
    return made


def _check_branches(store: Store, name: str) -> None:
    """Check that no branch has the name, also none that is being created.

    Commands that take a branch, a commit or a tag would find only the branch.
    """
    if name in store.branch_names():
        raise ConflictError(f"'{name}' is the name of a branch", hint="choose another name for the tag")


def delete_tag(store: Store, name: str) -> None:
    """Remove a tag. The commit stays, but cleanup may remove it.

    Raises:
        NotFoundError: there is no such tag.
    """
    found = store.found_tag(name)
    if found is None:
        raise NotFoundError(f"there is no tag '{name}'", hint=did_you_mean(name, store.shown_tags()))
    reach(Failpoint.TAG_DELETE_CHECKED)
    store.manifest.delete_tag(name)  # so that a running format migration does not create the reference again
    try:
        delete_tag_ref(store.objects, found)
    except ObjectChangedError:
        raise NotFoundError(f"tag '{name}' was deleted by another process", hint="nothing has changed") from None
