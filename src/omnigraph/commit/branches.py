"""Branches of the whole graph: created without copying anything, deleted authority first."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Manifest
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.store import Store
from omnigraph.errors import BranchNotFoundError, ConflictError, InputError
from omnigraph.lang.names import did_you_mean

_SEGMENT = re.compile(r"[\w.-]+")


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


def check_name(name: str) -> str:
    """A branch or tag name that may be used, trimmed.

    Raises:
        InputError: it may not.
    """
    name = name.strip()
    hint = "use letters, digits, '.', '-', '_', and '/' between parts"
    if not name:
        raise InputError("the name is empty", hint=hint)
    if name.startswith("__"):
        raise InputError(f"'{name}': names that begin with __ are the system's", hint=hint)
    bad = ".." in name or name.endswith(".lock") or not all(_SEGMENT.fullmatch(part) for part in name.split("/"))
    if bad:
        raise InputError(f"'{name}' is not a name for a branch or tag", hint=hint)
    return name


def list_branches(store: Store) -> list[Branch]:
    """All branches, `main` first, then by name."""
    found = []
    parents = store.manifest.branches()
    for name in [MAIN, *sorted(n for n in parents if not n.startswith("__"))]:
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
    name = check_name(name)
    if name == MAIN:
        raise ConflictError("branch 'main' always exists")
    with store.exclusive(name):
        existing = store.manifest.branches()
        if name in existing:
            raise ConflictError(f"branch '{name}' exists already", hint="choose another name")
        for other in existing:
            if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
                raise ConflictError(f"'{name}' and branch '{other}' cannot both exist: one is a path below the other")
        # A creation that died before its ref leaves files that nobody owns, and that Lance would stumble over.
        store.objects.delete_prefix(f"{MANIFEST_PATH}/tree/{name}")
        made = store.manifest.create_branch(name, base.ledger)
        reach(Failpoint.BRANCH_REF_CREATED)
    return Branch(name, base.branch, base.head.id, made.version)


def delete_branch(store: Store, name: str) -> None:
    """Remove a branch. Its ref goes first, so that it is gone for everybody at once; its files follow.

    Raises:
        BranchNotFoundError: there is no such branch.
        ConflictError: another branch or a tag depends on it.
    """
    name = check_name(name)
    if name == MAIN:
        raise InputError("branch 'main' cannot be deleted")
    existing = store.manifest.branches()
    if name not in existing:
        raise BranchNotFoundError(name, hint=did_you_mean(name, existing))
    children = sorted(other for other, info in existing.items() if info.parent == name)
    if children:
        raise ConflictError(
            f"branch '{name}' cannot be deleted: made from it {_are(children)}", hint="delete those first"
        )
    tags = sorted(tag.name for tag in store.manifest.tags().values() if tag.branch == name)
    if tags:
        raise ConflictError(
            f"branch '{name}' cannot be deleted: tagged on it {_are(tags)}", hint="delete the tags first"
        )
    identifier = existing[name].identifier
    with store.exclusive(name) as held:
        recover_branch(store, name, held)
        paths = sorted({pin.ref.path for pin in store.capture(name).tables.values()})
        store.manifest.delete_branch(name)
        store.forget(name)
        reach(Failpoint.BRANCH_REF_DELETED)
    reclaim_forks(store, identifier, paths)


def reclaim_forks(store: Store, identifier: str, paths: list[str]) -> None:
    """Remove the table forks of a branch that is gone. What cannot be removed now is left to cleanup."""
    for path in paths:
        with suppress(OSError, ValueError):
            for fork in store.tables.forks(path):
                if fork.startswith(f"{identifier}-"):
                    store.tables.drop_fork(path, fork)


def _are(names: list[str]) -> str:
    return f"{'is' if len(names) == 1 else 'are'} {', '.join(names)}"
