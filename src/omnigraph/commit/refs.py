"""References: one object per branch and tag. They define which branches and tags exist.

A branch reference names an *incarnation*, which is never reused: the branch's manifest is the Lance branch with that
name, and its table forks have it as a prefix. So a late action on a deleted branch, even if it was created again, can
only affect the old incarnation. References are created if absent and deleted only if unchanged (etag), so a late action
never removes a newer reference with the same name.

A new branch reference is *pending* first: cleanup keeps the versions that it names, and readers ignore it. Its creator
checks that the base is retained and the name does not clash, and then confirms it by replacing the object (etag).
"""

# See docs/decisions/0149-references-have-incarnations.md

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, field, fields, replace
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import orjson

from omnigraph.commit.json_checksums import CHECKSUM, checksum, with_checksum
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import SYSTEM
from omnigraph.dataclass import dataclass
from omnigraph.errors import DamagedFileError, ObjectNotFoundError
from omnigraph.storage.objects import ObjectStore, StoredObject
from omnigraph.storage.objects.contract import TOMBSTONE

BRANCH_DIRECTORY = "__refs"
TAG_DIRECTORY = "__tags"
_NAME = re.compile(r"[^/]+/([^/]+)\.json")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Successor:
    """An incarnation that a reset of a branch prepared. It takes effect if the closing version of the old one names it.

    Attributes:
        incarnation: the new incarnation, and the Lance branch of its manifest.
        parent: name of the branch that it was created from.
        parent_ledger: the Lance branch of the manifest with the commit that the branch is reset to; None for `main`.
        parent_version: the manifest version of this commit.
        created_at: microseconds since 1970, UTC.
        parent_origin: the origin of the parent; None for `main`, and if it is not recorded.
    """

    incarnation: str
    parent: str
    parent_ledger: str | None
    parent_version: int
    created_at: int
    parent_origin: str | None = None


@dataclass(frozen=True, slots=True)
class BranchRef:
    """The reference of one branch.

    Attributes:
        incarnation: unique id of the branch, also among branches with the same name; prefix of its table forks.
        ledger: the Lance branch of the manifest with its versions.
        parent: name of the branch that it was created from.
        parent_ledger: the Lance branch of the parent's manifest; None for `main`.
        parent_version: the manifest version that it was created at.
        created_at: microseconds since 1970, UTC; None for a branch of an older format.
        pending: whether the branch is being created, and does not exist yet.
        successors: incarnations that resets of the branch prepared.
        first_incarnation: if the branch was reset, its incarnation before the first reset. (Or a later one: releases
            before this member did not record it.)
        parent_origin: the origin of the parent; None for `main`, and if it is not recorded.
        reset_from: if a reset was interrupted, the Lance branch of the previous incarnation, which the object still
            names.
        etag: etag of the object that was read.
    """

    name: str
    incarnation: str
    ledger: str
    parent: str
    parent_ledger: str | None
    parent_version: int
    created_at: int | None
    pending: bool = False
    successors: tuple[Successor, ...] = ()
    first_incarnation: str | None = None
    parent_origin: str | None = None
    reset_from: str | None = field(default=None, compare=False)
    etag: str = field(default="", compare=False)

    @property
    def is_hidden(self) -> bool:
        """Whether it is an internal branch."""
        return self.name.startswith(SYSTEM)

    @property
    def origin(self) -> str:
        """Identifies the branch from its creation to its deletion. Resets keep it, and no other branch ever has it."""
        return self.first_incarnation or self.incarnation

    def after_reset(self, incarnation: str) -> BranchRef | None:
        """The reference of one of the successors; None if there is no such successor."""
        for one in self.successors:
            if one.incarnation == incarnation:
                return replace(self.of(one), reset_from=self.ledger)
        return None

    def of(self, successor: Successor) -> BranchRef:
        """The reference that a successor would have."""
        return BranchRef(
            self.name,
            successor.incarnation,
            successor.incarnation,
            successor.parent,
            successor.parent_ledger,
            successor.parent_version,
            successor.created_at,
            first_incarnation=self.origin,
            parent_origin=successor.parent_origin,
            etag=self.etag,
        )


@dataclass(frozen=True, slots=True)
class TagRef:
    """The reference of one tag.

    Attributes:
        branch: the branch that the commit was made on.
        ledger: the Lance branch of the manifest with its version; None for `main`.
        created_at: microseconds since 1970, UTC.
        etag: etag of the object that was read.
    """

    name: str
    commit_id: str
    branch: str
    ledger: str | None
    manifest_version: int
    created_at: int | None
    etag: str = field(default="", compare=False)

    def to_json(self) -> dict[str, Any]:
        """The tag as the JSON object that all user interfaces return."""
        return {
            "name": self.name,
            "graph_commit_id": self.commit_id,
            "graph_branch": None if self.branch == MAIN else self.branch,
            "graph_manifest_version": self.manifest_version,
            "created_at": self.created_at,
        }


Ref = TypeVar("Ref", BranchRef, TagRef)


def branch_ref_path(name: str) -> str:
    """Path of a branch reference, below the root. A `/` in the name is escaped: all references are in one directory."""
    return f"{BRANCH_DIRECTORY}/{quote(name, safe='')}.json"


def tag_ref_path(name: str) -> str:
    """Path of a tag reference, below the root."""
    return f"{TAG_DIRECTORY}/{quote(name, safe='')}.json"


def find_branch(objects: ObjectStore, name: str) -> BranchRef | None:
    """The reference of a branch; None if there is no such branch.

    Raises:
        DamagedFileError: the object is not a valid reference.
    """
    found = find_branch_ref(objects, name)
    return None if found is None or found.pending else found


def find_branch_ref(objects: ObjectStore, name: str) -> BranchRef | None:
    """The reference of a branch, including a pending one.

    Raises:
        DamagedFileError: the object is not a valid reference.
    """
    return _find(objects, branch_ref_path(name), BranchRef)


def find_tag(objects: ObjectStore, name: str) -> TagRef | None:
    """The reference of a tag; None if there is no such tag.

    Raises:
        DamagedFileError: the object is not a valid reference.
    """
    return _find(objects, tag_ref_path(name), TagRef)


def list_branch_refs(objects: ObjectStore) -> dict[str, BranchRef]:
    """All branches except `main`, including transaction branches, by name. Skips other files."""
    return {name: ref for name, ref in list_all_branch_refs(objects).items() if not ref.pending}


def list_all_branch_refs(objects: ObjectStore) -> dict[str, BranchRef]:
    """All branches except `main`, including transaction branches and pending references, by name."""
    found = (find_branch_ref(objects, name) for name in branch_ref_names(objects))
    return {ref.name: ref for ref in found if ref is not None}


def branch_ref_names(objects: ObjectStore) -> list[str]:
    """Sorted names of all branch references, including transaction branches and pending ones. Costs one listing."""
    return sorted(_names(objects, BRANCH_DIRECTORY))


def tag_ref_names(objects: ObjectStore) -> list[str]:
    """Sorted names of all tags. Costs one listing."""
    return sorted(_names(objects, TAG_DIRECTORY))


def list_tag_refs(objects: ObjectStore) -> dict[str, TagRef]:
    """All tags by name. Skips other files."""
    found = (find_tag(objects, name) for name in tag_ref_names(objects))
    return {ref.name: ref for ref in found if ref is not None}


def create_branch_ref(objects: ObjectStore, ref: BranchRef) -> BranchRef:
    """Create a branch reference. Unless it is pending, the branch exists from now on.

    Raises:
        ObjectExistsError: there is a reference with that name.
    """
    return _with_etag(ref, objects.create(branch_ref_path(ref.name), _dump(ref)))


def confirm_branch_ref(objects: ObjectStore, ref: BranchRef) -> BranchRef:
    """Confirm a pending reference. The branch exists from now on.

    Raises:
        ObjectChangedError: another process has removed it.
    """
    ref = replace(ref, pending=False)
    return _with_etag(ref, objects.replace(branch_ref_path(ref.name), _dump(ref), ref.etag))


def replace_branch_ref(objects: ObjectStore, ref: BranchRef) -> BranchRef:
    """Replace a reference that was read, if it is unchanged.

    Raises:
        ObjectChangedError: another process has replaced or removed it.
    """
    ref = replace(ref, reset_from=None)
    return _with_etag(ref, objects.replace(branch_ref_path(ref.name), _dump(ref), ref.etag))


def create_tag_ref(objects: ObjectStore, ref: TagRef) -> TagRef:
    """Create a tag reference.

    Raises:
        ObjectExistsError: a tag with that name exists.
    """
    return _with_etag(ref, objects.create(tag_ref_path(ref.name), _dump(ref)))


def delete_branch_ref(objects: ObjectStore, ref: BranchRef) -> None:
    """Remove a reference that was read, if it is unchanged.

    Raises:
        ObjectChangedError: it was deleted, or belongs to another branch with the same name.
    """
    objects.delete_if(branch_ref_path(ref.name), ref.etag)


def delete_tag_ref(objects: ObjectStore, ref: TagRef) -> None:
    """Remove a reference that was read, if it is unchanged.

    Raises:
        ObjectChangedError: it was deleted, or names another commit.
    """
    objects.delete_if(tag_ref_path(ref.name), ref.etag)


def _names(objects: ObjectStore, directory: str) -> Iterator[str]:
    for info in objects.list(directory):
        named = _NAME.fullmatch(info.path)
        if named is not None and quote(name := unquote(named[1]), safe="") == named[1]:
            yield name


def _find(objects: ObjectStore, path: str, kind: Callable[..., Ref]) -> Ref | None:
    try:
        stored = objects.get(path)
    except ObjectNotFoundError:
        return None
    if stored.data == TOMBSTONE:  # the graph was copied from an object store to a disk
        return None
    return _load(objects, path, stored, kind)


def _load(objects: ObjectStore, path: str, stored: StoredObject, kind: Callable[..., Ref]) -> Ref:
    try:
        members: dict[str, Any] = orjson.loads(stored.data)
        recorded = members.pop(CHECKSUM)
        if members["version"] == _VERSION and recorded != checksum(members):
            raise ValueError("its checksum does not match")
        if members.pop("version") != _VERSION:
            raise ValueError("it was written by a later release")
        if "successors" in members:
            members["successors"] = tuple(Successor(**one) for one in members["successors"])
        found = kind(**members, etag=stored.etag)
        if path not in (branch_ref_path(found.name), tag_ref_path(found.name)):
            raise ValueError(f"it is the reference of '{found.name}'")
        return found
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(str(objects.uri), path, f"it is not a valid reference: {error}") from error


def _dump(ref: BranchRef | TagRef) -> bytes:
    members = {"version": _VERSION} | asdict(ref)
    for name in ("etag", "reset_from"):
        members.pop(name, None)
    for name in ("pending", "successors", "first_incarnation", "parent_origin"):
        if not members.get(name, True):
            del members[name]
    for one in members.get("successors", ()):
        if one["parent_origin"] is None:
            del one["parent_origin"]
    return orjson.dumps(with_checksum(members), option=orjson.OPT_INDENT_2)


def _with_etag(ref: Ref, etag: str) -> Ref:
    members = {f.name: getattr(ref, f.name) for f in fields(ref)}
    return type(ref)(**(members | {"etag": etag}))
