"""Tags: names for commits that keep them readable."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from omnigraph.commit.branches import check_readable
from omnigraph.commit.manifest import MAIN, Commit
from omnigraph.commit.names import tag_name
from omnigraph.commit.store import Store
from omnigraph.errors import ConflictError, NotFoundError, StorageError
from omnigraph.lang.names import did_you_mean


@dataclass(frozen=True, slots=True)
class Tag:
    """A named commit. Cleanup keeps everything that the commit needs.

    Attributes:
        created_at: microseconds since 1970, UTC.
    """

    name: str
    commit_id: str
    branch: str
    manifest_version: int
    created_at: int | None


def list_tags(store: Store) -> list[Tag]:
    """All tags by name."""
    tags = []
    for tag in store.manifest.tags().values():
        branch = tag.branch or MAIN
        view = store.manifest_at(branch, tag.version)
        tags.append(Tag(tag.name, view.head.id, branch, tag.version, _micros(tag.created_at)))
    return tags


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000)


def create_tag(store: Store, name: str, commit: Commit) -> Tag:
    """Name a commit.

    Raises:
        ConflictError: the name is taken.
        NotFoundError: the commit's branch was deleted meanwhile, and made again.
        VersionReclaimedError: the commit's version is gone.
    """
    name = tag_name(name)
    with store.exclusive_refs():  # the branch may not be deleted while it gets a tag
        target = store.manifest_at(commit.branch, commit.manifest_version)
        if target.head.id != commit.id:
            raise NotFoundError(
                f"there is no commit '{commit.id}'", hint=f"branch '{commit.branch}' was deleted and made again since"
            )
        check_readable(store, target)
        try:
            store.manifest.create_tag(name, target.ledger)
        except StorageError as error:
            if name not in store.manifest.tags():
                raise
            raise ConflictError(
                f"tag '{name}' exists already", hint="delete it first, or choose another name"
            ) from error
    made = store.manifest.tags()[name]
    return Tag(name, commit.id, commit.branch, commit.manifest_version, _micros(made.created_at))


def delete_tag(store: Store, name: str) -> None:
    """Remove a tag; the commit stays, and is no longer kept from cleanup.

    Raises:
        NotFoundError: there is no such tag.
    """
    tags = store.manifest.tags()
    if name not in tags:
        raise NotFoundError(f"there is no tag '{name}'", hint=did_you_mean(name, tags))
    store.manifest.delete_tag(name)


def tagged(store: Store, name: str) -> tuple[str, int] | None:
    """The branch and manifest version that a tag names."""
    found = store.manifest.tags().get(name)
    return None if found is None else (found.branch or MAIN, found.version)
