"""The history of a branch: its commits, newest first, or from a position on."""

# See docs/decisions/0161-tokens-hold-positions.md
# See docs/decisions/0346-idempotency-keys-belong-to-actors.md

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.manifest_rows import RowKind, read_commits
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import BranchNotFoundError, InputError, NotFoundError, VersionReclaimedError, cut, shown
from omnigraph.lang.names import did_you_mean
from omnigraph.storage.lru_cache import LruCache

T = TypeVar("T")

ActorKey = tuple[str | None, str]
"""An actor, and an idempotency key of it."""

SHORTEST_PREFIX = 4
"""The minimum number of characters of an abbreviated commit id in input."""

SHORTEST_SHOWN = 14
"""The minimum number of characters of an abbreviated commit id in output.

The first 10 characters of a ULID are the time in milliseconds, and the others are random. So 14 characters are unique
in the whole graph, not only in one list: of two commits in the same millisecond, one in a million pairs is alike.
"""

_ID_LENGTH = 26
_PREFIX = re.compile(r"[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]+")
_MOST = 8
"""The maximum number of commits that the error for an ambiguous id lists."""


_FIRST_READ = 128
"""Number of rows of older parts that a walk through the history reads first. Each further read is twice as large."""

_NEAR = 4096
"""Number of rows after a recorded position that are searched before the whole history is."""


def commits(view: Manifest) -> Iterator[Commit]:
    """All commits on the branch, newest first. Reads older rows of the manifest when they are needed."""
    yield from reversed(view.recent)
    for index, start, count in _runs_backwards(view):
        yield from reversed(_own_commits(view, index, view.ledger.read_rows(index, start, count)))


def _runs_backwards(view: Manifest) -> Iterator[tuple[int, int, int]]:
    """Runs of rows of the older parts, newest first: the part, the first row in it and the number of rows.

    The runs get longer, so a walk that ends early reads at most about twice the rows that it needs.
    """
    size = _FIRST_READ
    for index in reversed(range(len(view.ledger.parts) - 1)):
        end = view.ledger.parts[index]
        while end > 0:
            start = max(end - size, 0)
            yield index, start, end - start
            end, size = start, size * 2


def _own_commits(view: Manifest, index: int, rows: pa.Table) -> list[Commit]:
    own = rows.filter(pc.equal(rows["object_type"], RowKind.GRAPH_COMMIT.value))
    return view.ledger.decoded(own, read_commits, [index])


@dataclass(frozen=True, slots=True)
class Place:
    """A commit of a branch, and its position in the history of the branch.

    Attributes:
        commit: the commit.
        number: its row number in the manifest. Later commits have larger numbers.
        row: a row number to search from, at most that of the commit in all later versions of the manifest. A
            publish appends rows and merges parts in order. Only rows of the last part, the state, get other numbers.
    """

    commit: Commit
    number: int
    row: int


def _old_rows(view: Manifest) -> int:
    """Number of rows before the last part of a manifest, the state."""
    return sum(view.ledger.parts[:-1])


def _recent_places(view: Manifest) -> list[Place]:
    old = _old_rows(view)
    return [Place(commit, old + number, old) for number, commit in enumerate(view.recent)]


def places_from(view: Manifest, row: int = 0) -> Iterator[Place]:
    """The commits from a row of the manifest on, oldest first. Reads newer rows when they are needed."""
    size, first = _FIRST_READ, 0
    for index, count in enumerate(view.ledger.parts[:-1]):
        start = max(row - first, 0)
        while start < count:
            rows = view.ledger.read_rows(index, start, min(size, count - start))
            numbers = pc.indices_nonzero(pc.equal(rows["object_type"], RowKind.GRAPH_COMMIT.value)).to_pylist()
            for number, commit in zip(numbers, _own_commits(view, index, rows), strict=True):
                yield Place(commit, first + start + number, first + start + number)
            start, size = start + rows.num_rows, size * 2
        first += count
    yield from _recent_places(view)


def places_after(view: Manifest, place: Place) -> Iterator[Place]:
    """The commits after a commit of the branch, oldest first."""
    return (found for found in places_from(view, place.row) if found.number > place.number)


def find_place(view: Manifest, commit_id: str, row: int | None = None) -> Place | None:
    """The position of a commit in the history of a branch; None if the history does not have it.

    Args:
        view: the manifest of the branch.
        commit_id: the commit.
        row: the row of its place in an earlier version. The commit is found without a search from there on.
            Otherwise the search reads the ids of all newer commits.
    """
    for place in reversed(_recent_places(view)):
        if place.commit.id == commit_id:
            return place
    old = _old_rows(view)
    if row is not None and 0 <= row < old:
        for place in places_from(view, row):
            if place.commit.id == commit_id:
                return place
            if place.number > row + _NEAR:
                break
    for index, start, count in _runs_backwards(view):
        ids = view.ledger.read_rows(index, start, count, ["object_id", "object_type"])
        is_it = pc.and_(pc.equal(ids["object_id"], commit_id), pc.equal(ids["object_type"], RowKind.GRAPH_COMMIT.value))
        for number in pc.indices_nonzero(is_it).to_pylist():
            (commit,) = _own_commits(view, index, view.ledger.read_rows(index, start + number, 1))
            found = sum(view.ledger.parts[:index]) + start + number
            return Place(commit, found, found)
    return None


def head_place(view: Manifest) -> Place:
    """The position of the head of a branch."""
    if view.recent:
        return _recent_places(view)[-1]
    found = find_place(view, view.head.id)
    return Place(view.head, _old_rows(view), _old_rows(view)) if found is None else found


def first_commit(view: Manifest) -> Commit:
    """The oldest commit in the history of a branch."""
    return next((place.commit for place in places_from(view)), view.head)


def find_in(view: Manifest, commit_id: str) -> Commit | None:
    """Find a commit in the history of a manifest."""
    if view.head.id == commit_id:
        return view.head
    is_commit = pc.field("object_type") == RowKind.GRAPH_COMMIT.value
    rows = view.ledger.read(filter=(pc.field("object_id") == commit_id) & is_commit)
    return next(iter(view.ledger.decoded(rows, read_commits)), None)


def find_ancestor(view: Manifest, commit_id: str) -> Commit | None:
    """Find an ancestor of a manifest's head, among its own commits and the merged commits."""
    if view.head.id == commit_id:
        return view.head
    rows = view.ledger.read(filter=pc.field("object_id") == commit_id)
    return next(iter(view.ledger.decoded(rows, read_commits)), None)


def full_commit_id(store: Store, text: str) -> str:
    """The id of the commit that a tag names, or whose id starts with a text. Returns the text itself if none matches.

    Finds the commits of all branches, the commits that were merged into them, and the histories of tags.

    Raises:
        InputError: several commits match.
    """
    is_prefix = _PREFIX.fullmatch(text) is not None
    if is_prefix and len(text) == _ID_LENGTH:
        return text
    tag = store.found_tag(text)
    if tag is not None:  # the name of a tag is never the beginning of an id
        return tag.commit_id
    if not is_prefix or not SHORTEST_PREFIX <= len(text) < _ID_LENGTH:
        return text
    prefix = text.upper()
    found: dict[str, Commit] = {}
    for branch in store.found_branches():
        with suppress(BranchNotFoundError):  # deleted during the search
            found |= {commit.id: commit for commit in newest_of(store, branch, lambda view: _matching(view, prefix))}
    if not found:
        found = {commit.id: commit for commit in _of_tags(store, lambda view: _matching(view, prefix))}
    if len(found) < 2:
        return next(iter(found), text)
    newest = sorted(found.values(), key=lambda commit: commit.id, reverse=True)
    if not all(store.shows is None or store.shows(commit.branch) for commit in newest):
        raise InputError(f"'{text}' is the beginning of several commit ids", hint="give more characters")
    named = [
        f"{one.id} ({one.branch}{'' if one.message is None else f', {cut(one.message)}'})" for one in newest[:_MOST]
    ]
    more = f", and {len(newest) - _MOST} more" if len(newest) > _MOST else ""
    raise InputError(
        f"'{text}' is the beginning of {len(newest)} commit ids: {', '.join(named)}{more}", hint="give more characters"
    )


def _of_tags(store: Store, search: Callable[[Manifest], list[Commit]]) -> Iterator[Commit]:
    """Results of a search in the histories of tags, which keep those of branches that were reset or deleted."""
    for tag in store.found_tags():
        with suppress(BranchNotFoundError, VersionReclaimedError):
            view = store.manifest_in(tag.ledger, tag.branch, tag.manifest_version)
            yield from [] if view is None else search(view)


def _matching(view: Manifest, prefix: str) -> list[Commit]:
    is_commit = pc.field("object_type").isin([RowKind.GRAPH_COMMIT.value, RowKind.ANCESTOR.value])
    rows = view.ledger.read(filter=pc.starts_with(pc.field("object_id"), prefix) & is_commit)
    found = view.ledger.decoded(rows, read_commits)
    return [*found, view.head] if view.head.id.startswith(prefix) else found


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Shorten ids to unique prefixes, all of the same length, which is at least `SHORTEST_SHOWN`.

    >>> list(short_ids(["01K8XJ4ZQW5T2Q0000", "01K8XJ4ZQW5T2Q1000"]).values())
    ['01K8XJ4ZQW5T2Q0', '01K8XJ4ZQW5T2Q1']
    """
    ordered = sorted(set(ids))
    length = max([SHORTEST_SHOWN, *(1 + _shared(*pair) for pair in pairwise(ordered))])
    return {one: one[:length] for one in ordered}


def _shared(one: str, other: str) -> int:
    """Number of characters at the beginning that two texts share."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def newest_of(store: Store, branch: str, read: Callable[[Manifest], T]) -> T:
    """Read the history of a branch. If cleanup removes the state during the read, the newest state is read instead."""
    while True:
        view = store.capture(branch)
        try:
            return read(view)
        except VersionReclaimedError:
            if store.capture(branch).version == view.version:
                raise


def find_commit(store: Store, commit_id: str) -> Commit:
    """Find a commit on any branch, or in the history of a tag.

    Args:
        store: the graph.
        commit_id: its id, the beginning of its id, or a tag.

    Raises:
        NotFoundError: no branch and no tag has it.
        InputError: several commits have ids with this beginning.
    """
    if not isinstance(commit_id, str):
        raise InputError(f"{shown(commit_id)} is not a commit", hint="give the id of a commit, or a tag")
    commit_id = full_commit_id(store, commit_id)
    for branch in store.found_branches():
        with suppress(BranchNotFoundError):  # deleted during the search
            found = newest_of(store, branch, lambda view: find_in(view, commit_id))
            if found is not None:
                return found
    for found in _of_tags(store, lambda view: [one for one in [find_ancestor(view, commit_id)] if one is not None]):
        return found
    if commit_id in store.shown_branches():
        raise NotFoundError(
            f"'{cut(commit_id)}' is a branch, not a commit or tag",
            hint=f"its head is {store.capture(commit_id).head.id}",
        )
    raise unknown_commit(store, commit_id)


def unknown_commit(store: Store, name: str) -> NotFoundError:
    """The error for a name that is neither the id of a commit, nor the beginning of one, nor a tag."""
    hint = too_short(name) or did_you_mean(name, [tag for tag in store.shown_tags() if tag != name])
    hint = hint or "it may belong to a deleted branch; 'commit list' shows the commits"
    return NotFoundError(f"there is no commit or tag '{cut(name)}'", hint=hint)


def too_short(text: str) -> str | None:
    """A hint for the beginning of an id that has too few characters; None for other texts."""
    if not 0 < len(text) < SHORTEST_PREFIX or not text[0].isdigit() or not _PREFIX.fullmatch(text):
        return None
    return f"give at least {SHORTEST_PREFIX} characters of the id of a commit"


def expected_commit_id(store: Store, text: str) -> str:
    """The id of a commit that the caller expects as a head: a full id, or that of an existing commit or tag.

    A full id is not searched: a commit of a branch that was deleted meanwhile is no wrong input.

    Raises:
        InputError: several commits match.
        NotFoundError: no commit and no tag matches.
    """
    found = full_commit_id(store, text)
    is_full = len(found) == _ID_LENGTH and _PREFIX.fullmatch(found) is not None
    return found if is_full else find_commit(store, found).id


def find_idempotent(view: Manifest, key: str | None, actor: str | None) -> Commit | None:
    """The commit of an actor with an idempotency key, if there is one. For a member of a group, as it sees it.

    A key belongs to one branch: a new branch inherits commits, but not their keys. It also belongs to one actor:
    others may use the same key, and neither see nor repeat each other's requests. An undone commit does not
    count. The commit that undoes it has the same key and the same operation id, so it does not count, either.
    """
    return None if key is None else find_all_idempotent(view, [(actor, key)]).get((actor, key))


def find_any_idempotent(view: Manifest, key: str) -> Commit | None:
    """The first commit with an idempotency key on this branch, of any actor."""
    return next((commit for commit in _with_keys(view, {key}) if commit.idempotency_key == key), None)


def find_all_idempotent(view: Manifest, keys: Collection[ActorKey]) -> dict[ActorKey, Commit]:
    """The commits with some idempotency keys of actors, by actor and key, as `find_idempotent` returns them."""
    found: dict[ActorKey, Commit] = {}
    for one in _with_keys(view, {key for _, key in keys}):
        name = one.actor, str(one.idempotency_key)
        if one.idempotency_key is not None and name in keys:
            found.setdefault(name, one)
    return found


def _with_keys(view: Manifest, keys: Collection[str]) -> list[Commit]:
    """The commits of this branch with some idempotency keys, and those of members, without undone ones."""
    if not keys:
        return []
    commits = [
        *_older_with_keys(view, keys),
        *(commit for commit in view.recent if not _keys_of(commit).isdisjoint(keys)),
    ]
    own = [commit for commit in commits if commit.ledger == view.ledger.branch]
    made = Counter(commit.operation_id for commit in own)
    kept = [commit for commit in own if commit.operation_id is None or made[commit.operation_id] == 1]
    return [one for commit in kept for one in (commit, *(commit.for_member(member.id) for member in commit.members))]


def _keys_of(commit: Commit) -> set[str]:
    """The idempotency keys of a commit and its members."""
    keys = (commit.idempotency_key, *(member.idempotency_key for member in commit.members))
    return {key for key in keys if key is not None}


def _older_with_keys(view: Manifest, keys: Collection[str]) -> list[Commit]:
    """The commits of the older parts with some idempotency keys. Reads only the parts that have one of them."""
    parts = [index for index, name in enumerate(view.ledger.part_names[:-1]) if _part_has(view, index, name, keys)]
    if not parts:
        return []
    rows = view.ledger.read(filter=pc.field("idempotency_key").isin(list(keys)), indexes=parts)
    commits = view.ledger.decoded(rows, read_commits, parts)
    groups = rows.filter(pc.equal(rows["object_type"], RowKind.MEMBER_KEY.value))["metadata"].unique().to_pylist()
    if groups:
        is_commit = pc.field("object_type") == RowKind.GRAPH_COMMIT.value
        of_groups = view.ledger.read(filter=pc.field("object_id").isin(groups) & is_commit, indexes=parts)
        commits += view.ledger.decoded(of_groups, read_commits, parts)
    return commits


def _part_has(view: Manifest, index: int, name: str, keys: Collection[str]) -> bool:
    """Whether a part has one of some idempotency keys. A part never changes, so its keys are cached, in order."""
    found = _part_keys.get(name)
    if found is None:
        rows = view.ledger.read_parts([index], ["idempotency_key"])["idempotency_key"].drop_null()
        ordered = rows.combine_chunks().take(pc.sort_indices(rows))
        found = _part_keys.put(name, ordered, ordered.nbytes)
    return any(_is_among(key, found) for key in keys)


def _is_among(key: str, ordered: pa.StringArray) -> bool:
    """Whether a text is among ascending ones. Arrow sorts texts as Python compares them."""
    place = bisect_left(ordered, key, key=pa.StringScalar.as_py)
    return place < len(ordered) and ordered[place].as_py() == key


_part_keys: LruCache[pa.StringArray] = LruCache(64, weight=32 << 20)
