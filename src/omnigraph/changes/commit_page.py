"""The changes of one commit since its first parent, in pages with a fixed order."""

# See docs/decisions/0163-a-schema-change-is-a-boundary.md

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.changes.aligned_types import GraphState, TypePair, aligned_types
from omnigraph.changes.change_json import feed_changes, opaque_type_id
from omnigraph.changes.diff import Reading, listed, parse_ops
from omnigraph.changes.row_images import OPS, ChangeOp, changes_of
from omnigraph.changes.schema_boundary import is_boundary
from omnigraph.changes.tokens import Binding, Position, TokenKind, decode, digest_of, encode, position_member
from omnigraph.commit.manifest import Commit, TableId, member_json
from omnigraph.commit.sidecar import WriterKind
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    ChangeCursorError,
    ChangeFeedGapError,
    InputError,
    ResourceLimitError,
    SchemaBoundaryError,
    VersionReclaimedError,
    cut,
    shown,
)
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import TypeKind

DEFAULT_CHANGES, MAX_CHANGES = 1_000, 8_192
DEFAULT_BYTES, MAX_BYTES = 4 << 20, 32 << 20
"""Default and maximum size of a page, in changes and in bytes. The first change is returned even if it is larger."""

_KINDS = (TypeKind.NODE, TypeKind.EDGE)
PHYSICAL = (WriterKind.OPTIMIZE.value, WriterKind.ENSURE_INDEXES.value)
"""The kinds of writes that change no rows."""

_GROWTH = 4


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Selects the changes of a feed to return. None selects all.

    Attributes:
        kinds: kinds of entities: `node`, `edge`.
        types: names of types.
        ops: kinds of changes: insert, update, delete.
        type_ids: the ids of the types, if the names are resolved. If not, a name selects the types that have it before
            or after a commit.
    """

    kinds: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    ops: tuple[ChangeOp, ...] | None = None
    type_ids: frozenset[TableId] | None = None

    @classmethod
    def given(
        cls,
        kinds: str | Sequence[str] | None,
        types: str | Sequence[str] | None,
        ops: str | Sequence[ChangeOp | str] | None,
    ) -> ChangeFilter:
        """Parse and normalize filters. If all kinds or all operations are given, this is the same as no filter.

        Raises:
            InputError: there is no such kind or operation, or a type is not a text.
        """
        kinds, types = listed("kinds", kinds), listed("types", types)
        for kind in kinds or ():
            if kind not in [one.value for one in _KINDS]:
                raise InputError(f"{shown(kind)} is not a kind of entity", hint="use node or edge")
        for name in types or ():
            if not isinstance(name, str):
                raise InputError(f"types: {shown(name)} is not a text")
        found = parse_ops(ops)
        return cls(
            _canonical(kinds, len(_KINDS)),
            _canonical(types, None),
            None if not found or len(found) == len(OPS) else tuple(sorted(found, key=OPS.index)),
        )

    @property
    def digest(self) -> str:
        """Digest of the filters, independent of their order."""
        members = [self.kinds, self.types, None if self.ops is None else [op.value for op in self.ops]]
        return digest_of(orjson.dumps(members).decode())

    def check_types(self, *states: GraphState) -> None:
        """Check that one of the states has each type.

        Raises:
            InputError: there is no such type.
        """
        known = {
            name
            for state in states
            for of in (state.accepted.catalog.nodes, state.accepted.catalog.edges)
            for name in of
        }
        for name in self.types or ():
            if name not in known:
                raise InputError(f"there is no type '{cut(name)}'", hint=did_you_mean(name, sorted(known)))

    def includes(self, pair: TypePair) -> bool:
        """Whether the changes of a type are returned."""
        if self.kinds is not None and pair.newest.kind.value not in self.kinds:
            return False
        if self.type_ids is not None:
            return pair.id in self.type_ids
        names = [state.name for state in (pair.before, pair.after) if state is not None]
        return self.types is None or any(name in self.types for name in names)


def _canonical(given: Sequence[str] | None, all_: int | None) -> tuple[str, ...] | None:
    found = tuple(sorted(set(given or ())))
    return None if not found or len(found) == all_ else found


@dataclass(frozen=True)
class EntityChange:
    """One change of a feed.

    Attributes:
        kind: `node` or `edge`.
        type_id: an opaque id of the type, which survives a rename.
        type_name: the name of the type.
        id: the id of the entity.
        op: the kind of change.
        text: the change as JSON.
    """

    kind: str
    type_id: str
    type_name: str
    id: str
    op: ChangeOp
    text: str = field(repr=False)

    @cached_property
    def _members(self) -> dict[str, Any]:
        members: dict[str, Any] = orjson.loads(self.text)
        return members

    @property
    def before(self) -> dict[str, Any] | None:
        """The entity before the change, as in an export: `properties`, for edges `endpoints`. None for an insert."""
        return self._members.get("before")

    @property
    def after(self) -> dict[str, Any] | None:
        """The entity after the change; None for a delete."""
        return self._members.get("after")

    def to_json(self) -> dict[str, Any]:
        return self._members

    def position(self) -> Position:
        return Position.of(self.kind, self.type_id, self.id)


@dataclass(frozen=True, slots=True)
class ChangeCause:
    """The commit that caused changes. The members of a group list the entities that each of them changed."""

    commit: Commit

    def to_json(self) -> dict[str, Any]:
        commit = self.commit
        members: dict[str, Any] = {
            "graph_commit_id": commit.id,
            "parent_commit_id": commit.parent,
            "merged_parent_commit_id": commit.merged_parent,
            "authored_branch": commit.branch,
            "actor_id": commit.actor,
            "authored_at": commit.created_at,
        }
        if commit.members:
            members["members"] = [member_json(member) for member in commit.members]
        return members if commit.message is None else members | {"message": commit.message}


@dataclass(frozen=True, slots=True)
class ChangePage:
    """A page of the changes of one commit.

    Attributes:
        cause: the commit.
        changes: the changes, in a fixed order.
        next_page_token: the token of the next page; None for the last page.
    """

    cause: ChangeCause
    changes: tuple[EntityChange, ...]
    next_page_token: str | None = None

    def to_json(self) -> dict[str, Any]:
        members = {"cause": self.cause.to_json(), "changes": [change.to_json() for change in self.changes]}
        return members if self.next_page_token is None else members | {"next_page_token": self.next_page_token}


@dataclass(frozen=True, slots=True)
class PageLimits:
    """The maximum size of a page.

    Raises:
        ResourceLimitError: a limit is larger than allowed.
        InputError: a limit is not a positive number.
    """

    changes: int = DEFAULT_CHANGES
    bytes: int = DEFAULT_BYTES

    def __post_init__(self) -> None:
        check_limit("limit", self.changes, MAX_CHANGES, "commit_changes_page_changes")
        check_limit("max_bytes", self.bytes, MAX_BYTES, "commit_changes_page_bytes")


def check_limit(name: str, value: object, most: int, resource: str) -> None:
    """Check a limit that a caller gives.

    Raises:
        ResourceLimitError: the limit is larger than `most`.
        InputError: the limit is not a positive number.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a number of at least 1, not {shown(value)}")
    if value > most:
        raise ResourceLimitError(resource, most, value)


class CommitChanges:
    """The changes of one commit since its parent, in the order of a feed.

    Nodes come before edges. Types are sorted by their opaque id, entities by id.

    Args:
        reading: reads the tables.
        commit: the commit.
        before: the state of its parent.
        after: the state at the commit.
        chosen: the changes to return.

    Raises:
        SchemaBoundaryError: the commit changes the columns of a type.
    """

    def __init__(
        self, reading: Reading, commit: Commit, before: GraphState, after: GraphState, chosen: ChangeFilter
    ) -> None:
        self._reading = reading
        self._filter = chosen
        self.commit = commit
        pairs = aligned_types(before, after)
        if before.manifest.schema_hash != after.manifest.schema_hash:
            _check_boundary(commit, pairs)
        domain = after.accepted.domain
        self._pairs = [
            (pair.newest.kind.value, opaque_type_id(domain, pair.id), pair)
            for pair in pairs
            if chosen.includes(pair) and not pair.is_same_version and commit.writer not in PHYSICAL
        ]
        self._pairs.sort(key=lambda one: (one[0] == TypeKind.EDGE.value, one[1]))

    def after(self, position: Position | None, want: int) -> Generator[EntityChange, None, None]:
        """The changes after a position. Reads about `want` rows at a time.

        Raises:
            ChangeFeedGapError: cleanup has removed a table version that is needed to compute the changes.
            ChangeCursorError: the commit has no change at the position.
        """
        pairs = self._pairs
        if position is not None:
            places = [place for place, one in enumerate(pairs) if one[:2] == (position.kind, position.type_id)]
            if not places:
                raise ChangeCursorError("its position is not in the commit")
            pairs = pairs[places[0] :]
        for kind, type_id, pair in pairs:
            try:
                yield from self._of_type(kind, type_id, pair, position, want)
            except VersionReclaimedError as error:
                raise ChangeFeedGapError(self.commit.id) from error
            position = None

    def _of_type(
        self, kind: str, type_id: str, pair: TypePair, position: Position | None, want: int
    ) -> Iterator[EntityChange]:
        refs = [state.pin.ref for state in (pair.before, pair.after) if state is not None]
        name, wanted = pair.newest.name, [OPS.index(op) for op in self._filter.ops or OPS]
        with self._reading.kept(refs):
            rows = self._reading.candidates(pair)
            first = 0 if position is None else _place_after(rows, position)
            size = want
            while first < rows.num_rows:
                for found in changes_of(self._reading.tables, pair, rows.slice(first, size)):
                    for part in found.filter(np.isin(found.ops, wanted)).with_content(self._reading.tables):
                        texts = feed_changes(part, type_id).to_pylist()
                        for text, entity, op in zip(texts, part.ids.to_pylist(), part.ops.tolist(), strict=True):
                            yield EntityChange(kind, type_id, name, entity, OPS[op], text)
                first += size
                # Many rows may be unchanged or not selected, so more rows are read at a time.
                size = min(size * _GROWTH, max(want, MAX_CHANGES))


def _place_after(rows: pa.Table, position: Position) -> int:
    """The index of the first candidate after a position.

    Raises:
        ChangeCursorError: there is no such candidate.
    """
    ids = rows["id"]
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if ids[middle].as_py().encode() < position.id.encode():
            low = middle + 1
        else:
            high = middle
    while low < len(ids):
        entity = ids[low].as_py()
        if position.matches(entity):
            return low + 1
        if position.digest is None or not entity.startswith(position.id):
            break
        low += 1
    raise ChangeCursorError("its position is not in the commit")


def _check_boundary(commit: Commit, pairs: Sequence[TypePair]) -> None:
    """Check that a commit does not change the columns of a type. Renames are allowed.

    Raises:
        SchemaBoundaryError: a type has other columns, or a type with rows was added or dropped.
    """
    for pair in pairs:
        if is_boundary(pair.before, pair.after):
            raise SchemaBoundaryError(commit.id, pair.newest.name)


def packed(
    changes: Generator[EntityChange, None, None], limits: PageLimits, *, started: bool = False
) -> tuple[list[EntityChange], bool, int]:
    """The changes that fit into a page, whether more changes follow, and the size of the changes in bytes.

    Args:
        changes: the changes.
        limits: the space that is left in the page.
        started: whether the page already has changes. If not, it gets at least one change.
    """
    found: list[EntityChange] = []
    size = 0
    with closing(changes):
        for change in changes:
            size_with = size + len(change.text.encode())
            if (found or started) and (len(found) >= limits.changes or size_with > limits.bytes):
                return found, True, size
            found.append(change)
            size = size_with
    return found, False, size


def commit_page(changes: CommitChanges, binding: Binding, page_token: str | None, limits: PageLimits) -> ChangePage:
    """One page of the changes of a commit.

    Raises:
        ChangeCursorError: the token does not belong to the request.
        ChangeFeedGapError: cleanup has removed a table version that is needed to compute the changes.
    """
    position = None
    if page_token is not None:
        token = decode(page_token, TokenKind.COMMIT_PAGE, binding)
        if token.get("commit") != changes.commit.id:
            raise ChangeCursorError("it belongs to another commit")
        position = position_member(token, "position")
    found, more, _ = packed(changes.after(position, limits.changes + 1), limits)
    next_ = (
        encode(TokenKind.COMMIT_PAGE, binding, commit=changes.commit.id, position=found[-1].position())
        if more
        else None
    )
    return ChangePage(ChangeCause(changes.commit), tuple(found), next_)
