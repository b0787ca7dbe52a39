"""References: one object per branch and per tag, the only authority for what exists.

A branch reference names an *incarnation*, which is never used again: the branch's manifest is the Lance branch of that
name, and its table forks carry it. So an act on a branch that was deleted, and perhaps made again, can only reach the
old incarnation. References are created if absent, and deleted only if unchanged (etag), so an act that comes late
never removes a newer reference of the same name.

A new branch reference is *pending* first: cleanup keeps what it names, and nobody else sees a branch. Its creator looks
whether its base stays and its name fits, and then confirms it by replacing the object (etag).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import orjson

from omnigraph.commit.json_checksums import CHECKSUM, checksum, with_checksum
from omnigraph.commit.ref_names import SYSTEM
from omnigraph.errors import DamagedFileError, ObjectNotFoundError
from omnigraph.storage.objects import ObjectStore, StoredObject
from omnigraph.storage.objects.contract import TOMBSTONE

BRANCH_DIRECTORY = "__refs"
TAG_DIRECTORY = "__tags"
_NAME = re.compile(r"[^/]+/([^/]+)\.json")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class BranchRef:
    """The reference of one branch.

    Attributes:
        incarnation: tells the branch from every other one, also of the same name; its table forks begin with it.
        ledger: the Lance branch of the manifest that holds its versions.
        parent: the name of the branch that it was made from.
        parent_ledger: the Lance branch of the manifest that it was made from; None is that of `main`.
        parent_version: the manifest version that it began at.
        created_at: microseconds since 1970, UTC; None for a branch of an older format.
        pending: whether it is being created, and no branch yet.
        etag: the state of the object that was read.
    """

    name: str
    incarnation: str
    ledger: str
    parent: str
    parent_ledger: str | None
    parent_version: int
    created_at: int | None
    pending: bool = False
    etag: str = field(default="", compare=False)

    @property
    def is_hidden(self) -> bool:
        """Whether the system made the branch for itself."""
        return self.name.startswith(SYSTEM)


@dataclass(frozen=True, slots=True)
class TagRef:
    """The reference of one tag.

    Attributes:
        branch: the branch that the commit was made on.
        ledger: the Lance branch of the manifest that holds its version; None is that of `main`.
        created_at: microseconds since 1970, UTC.
        etag: the state of the object that was read.
    """

    name: str
    commit_id: str
    branch: str
    ledger: str | None
    manifest_version: int
    created_at: int | None
    etag: str = field(default="", compare=False)


Ref = TypeVar("Ref", BranchRef, TagRef)


def branch_ref_path(name: str) -> str:
    """Where the reference of a branch is, below the root. Names are escaped, so that none lies below another."""
    return f"{BRANCH_DIRECTORY}/{quote(name, safe='')}.json"


def tag_ref_path(name: str) -> str:
    """Where the reference of a tag is, below the root."""
    return f"{TAG_DIRECTORY}/{quote(name, safe='')}.json"


def find_branch(objects: ObjectStore, name: str) -> BranchRef | None:
    """The reference of a branch, or None when there is no such branch.

    Raises:
        DamagedFileError: the object cannot be read as a reference.
    """
    found = find_branch_ref(objects, name)
    return None if found is None or found.pending else found


def find_branch_ref(objects: ObjectStore, name: str) -> BranchRef | None:
    """The reference of a branch, or of one that is being created.

    Raises:
        DamagedFileError: the object cannot be read as a reference.
    """
    return _find(objects, branch_ref_path(name), BranchRef)


def find_tag(objects: ObjectStore, name: str) -> TagRef | None:
    """The reference of a tag, or None when there is no such tag.

    Raises:
        DamagedFileError: the object cannot be read as a reference.
    """
    return _find(objects, tag_ref_path(name), TagRef)


def list_branch_refs(objects: ObjectStore) -> dict[str, BranchRef]:
    """All branches but `main`, hidden ones too, by name. Files that are no reference are ignored."""
    return {name: ref for name, ref in list_all_branch_refs(objects).items() if not ref.pending}


def list_all_branch_refs(objects: ObjectStore) -> dict[str, BranchRef]:
    """The same with those that are being created."""
    found = (find_branch_ref(objects, name) for name in branch_ref_names(objects))
    return {ref.name: ref for ref in found if ref is not None}


def branch_ref_names(objects: ObjectStore) -> list[str]:
    """The names of all references of branches, also of hidden and pending ones; sorted. Costs one listing."""
    return sorted(_names(objects, BRANCH_DIRECTORY))


def tag_ref_names(objects: ObjectStore) -> list[str]:
    """The names of all tags, sorted. Costs one listing."""
    return sorted(_names(objects, TAG_DIRECTORY))


def list_tag_refs(objects: ObjectStore) -> dict[str, TagRef]:
    """All tags by name. Files that are no reference are ignored."""
    found = (find_tag(objects, name) for name in tag_ref_names(objects))
    return {ref.name: ref for ref in found if ref is not None}


def create_branch_ref(objects: ObjectStore, ref: BranchRef) -> BranchRef:
    """Write the reference of a new branch; unless it is pending, the branch exists from now on.

    Raises:
        ObjectExistsError: there is a reference of that name.
    """
    return _with_etag(ref, objects.create(branch_ref_path(ref.name), _dump(ref)))


def confirm_branch_ref(objects: ObjectStore, ref: BranchRef) -> BranchRef:
    """Make a pending reference that of a branch, which exists from now on.

    Raises:
        ObjectChangedError: somebody has withdrawn it.
    """
    ref = replace(ref, pending=False)
    return _with_etag(ref, objects.replace(branch_ref_path(ref.name), _dump(ref), ref.etag))


def create_tag_ref(objects: ObjectStore, ref: TagRef) -> TagRef:
    """Write the reference of a new tag.

    Raises:
        ObjectExistsError: a tag of that name exists.
    """
    return _with_etag(ref, objects.create(tag_ref_path(ref.name), _dump(ref)))


def delete_branch_ref(objects: ObjectStore, ref: BranchRef) -> None:
    """Remove a reference that was read, unless it has changed since.

    Raises:
        ObjectChangedError: it was deleted, or belongs to another branch of the same name.
    """
    objects.delete_if(branch_ref_path(ref.name), ref.etag)


def delete_tag_ref(objects: ObjectStore, ref: TagRef) -> None:
    """Remove a reference that was read, unless it has changed since.

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
    if stored.data == TOMBSTONE:  # copied from a bucket to a disk; opening the graph for writing removes it
        return None
    return _load(objects, path, stored, kind)


def _load(objects: ObjectStore, path: str, stored: StoredObject, kind: Callable[..., Ref]) -> Ref:
    try:
        members: dict[str, Any] = orjson.loads(stored.data)
        said = members.pop(CHECKSUM)
        if members["version"] == _VERSION and said != checksum(members):
            raise ValueError("its checksum does not match")
        if members.pop("version") != _VERSION:
            raise ValueError("it was written by a later release")
        found = kind(**members, etag=stored.etag)
        if path not in (branch_ref_path(found.name), tag_ref_path(found.name)):
            raise ValueError(f"it is that of '{found.name}'")
        return found
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(str(objects.uri), path, f"it is no reference: {error}") from error


def _dump(ref: BranchRef | TagRef) -> bytes:
    members = {"version": _VERSION} | {name: value for name, value in asdict(ref).items() if name != "etag"}
    if not members.get("pending", True):
        del members["pending"]
    return orjson.dumps(with_checksum(members), option=orjson.OPT_INDENT_2)


def _with_etag(ref: Ref, etag: str) -> Ref:
    members = {f.name: getattr(ref, f.name) for f in fields(ref)}
    return type(ref)(**(members | {"etag": etag}))
