"""The manifest of a branch: its table versions and its commits.

In addition to its own commits, a branch holds merged commits as ancestors. So its manifest has every ancestor of its
head, even if the branches of these commits were deleted. `manifest_rows` encodes the rows on disk, and
`manifest_successor` builds the next version.
"""

# See docs/decisions/0030-the-manifest-has-a-state-part.md

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.storage.ledger import LedgerVersion
from omnigraph.storage.table_ref import TableRef

MANIFEST_PATH = "__manifest"
STAMP = "omnigraph:internal_schema_version"
MAIN = "main"

SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.utf8(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("object_type", pa.utf8(), nullable=False),
        pa.field("location", pa.utf8()),
        pa.field("metadata", pa.utf8()),
        pa.field("table_key", pa.utf8(), nullable=False),
        pa.field("stable_table_id", pa.uint64()),
        pa.field("table_incarnation_id", pa.uint64()),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.utf8()),
        pa.field("row_count", pa.uint64()),
        pa.field("idempotency_key", pa.utf8()),
    ]
)
"""The columns of a manifest's rows."""


@dataclass(frozen=True, slots=True)
class TableId:
    """Identity of a table. It survives renames. A type that is dropped and added again gets a new one."""

    type_id: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.type_id:016x}-{self.incarnation:016x}"


Models = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Embedding models of a table: for each vector property, pairs of a model and the property with the embedded texts."""


@dataclass(frozen=True, slots=True)
class TablePin:
    """The version of a table in a snapshot.

    Attributes:
        key: the type key, `node:<Type>` or `edge:<Type>`.
        row_count: number of entities at that version.
        models: the embedding models that computed its vectors.
    """

    key: str
    id: TableId
    ref: TableRef
    row_count: int
    models: Models = ()

    @property
    def published_version(self) -> int:
        """The version of the table, for output."""
        return self.ref.version

    @property
    def is_empty(self) -> bool:
        """Whether there are no entities. May be False for a restricted version of which no row is visible."""
        return self.row_count == 0


@dataclass(frozen=True, slots=True, order=True)
class TypeCounts:
    """The number of entities of one type that a commit changed.

    Attributes:
        key: the type key, `node:<Type>` or `edge:<Type>`.
        inserted: number of new entities.
        updated: number of entities that were written again, even if their values stayed the same.
        deleted: number of removed entities.
    """

    key: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """One write of a group: a commit that publishes the writes of several threads.

    Attributes:
        actor: who wrote.
        labels: its labels, as those of a commit.
        idempotency_key: its idempotency key.
        counts: the number of entities that it changed by type.
        changed: the ids of these entities by type key. No two members of a commit change the same entity.
    """

    id: str
    actor: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    idempotency_key: str | None = None
    counts: tuple[TypeCounts, ...] = ()
    changed: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the graph.

    Attributes:
        branch: the branch that it was made on.
        manifest_version: its manifest version on that branch.
        parent: the previous commit on the branch; None for the first commit of the graph.
        merged_parent: for a merge, the head of the merged branch.
        created_at: microseconds since 1970, UTC.
        ledger: the Lance branch of the manifest that holds the version; None for `main`. It is kept
            when the branch is deleted.
        generation: 1 more than the highest generation of its parents; None for a commit of an older release.
        counts: the number of changed entities by type, without types that did not change; None for a commit of an older
            release, and for commits that undo others.
        members: the writes of a group, in order; empty for the commit of one write. The actor of the group is that of
            all members, or None if they differ.
        member: the id of the only member that this object shows. Its actor, labels, key and counts are those of the
            member.
    """

    id: str
    branch: str
    manifest_version: int
    parent: str | None
    merged_parent: str | None
    actor: str | None
    created_at: int
    message: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    writer: str | None = None
    operation_id: str | None = None
    idempotency_key: str | None = None
    ledger: str | None = None
    generation: int | None = None
    counts: tuple[TypeCounts, ...] | None = None
    members: tuple[Member, ...] = ()
    member: str | None = None

    def _repr_html_(self) -> str:
        from omnigraph.html_text import html_members

        counts = ((one.key, one.inserted, one.updated, one.deleted) for one in self.counts or ())
        changes = [f"{key}: +{inserted} ~{updated} -{deleted}" for key, inserted, updated, deleted in counts]
        members = {
            "branch": self.branch,
            "time (UTC)": f"{datetime.fromtimestamp(self.created_at // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}",
            "kind": self.writer,
            "actor": self.recorded_actor,
            "message": self.message,
            "changes": ", ".join(changes) or None,
            "parent": self.parent,
            "merged parent": self.merged_parent,
        }
        return html_members(f"commit {self.id}", members)

    def of_members(self, members: tuple[Member, ...]) -> Commit:
        """This commit with the writes of a group. A group of one is the commit of that write."""
        if len(members) == 1:
            (only,) = members
            return replace(self, actor=only.actor, labels=only.labels, idempotency_key=only.idempotency_key)
        actors = {member.actor for member in members}
        return replace(self, actor=actors.pop() if len(actors) == 1 else None, members=members)

    def for_member(self, member_id: str) -> Commit:
        """The commit as its member sees it, as if it had been committed alone. Other commits stay as they are."""
        found = next((member for member in self.members if member.id == member_id), None)
        if found is None:
            return self
        return replace(
            self,
            actor=found.actor,
            labels=found.labels,
            idempotency_key=found.idempotency_key,
            counts=found.counts,
            members=(),
            member=found.id,
        )

    def for_entity(self, key: str, entity_id: str) -> Commit:
        """The commit as the member sees it that changed an entity. The type may have been renamed since."""
        having = [member for member in self.members if any(entity_id in ids for _, ids in member.changed)]
        exact = [member for member in having if entity_id in dict(member.changed).get(key, ())]
        found = exact or having
        return self.for_member(found[0].id) if len(found) == 1 else self

    def is_by(self, actor: str) -> bool:
        """Whether the actor made the commit, or one of its members."""
        return self.actor == actor or any(member.actor == actor for member in self.members)

    @property
    def recorded_actor(self) -> str | None:
        """The actor for the recovery audit: those of all members, separated by commas."""
        actors = sorted({member.actor for member in self.members if member.actor is not None})
        return ", ".join(actors) if self.actor is None and actors else self.actor

    @property
    def totals(self) -> TypeCounts | None:
        """The number of changed entities of all types; None if it is not recorded."""
        if self.counts is None:
            return None
        sums = ((one.inserted, one.updated, one.deleted) for one in self.counts)
        return TypeCounts("", *(sum(numbers) for numbers in zip((0, 0, 0), *sums, strict=True)))


@dataclass(frozen=True, slots=True, order=True)
class DroppedData:
    """Data of one table that a schema change on `main` dropped, and that has to be removed from earlier commits.

    Attributes:
        manifest_version: the manifest version of the schema change.
        key: the type key before the schema change.
        path: the table.
        version: the first version of the table without the data; None if the type was dropped.
    """

    manifest_version: int
    key: str
    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of the manifest of one branch.

    Attributes:
        branch: the graph branch.
        incarnation: distinguishes the branch from earlier and later branches with the same name.
        schema_hash: hash of the accepted schema.
        head: the newest commit. For a branch without own commits, the commit that it was created at.
        fence: fencing number of the last publisher.
        tables: the table versions by type key, in key order.
        dropped: dropped tables, each with the last version that was part of the graph.
        recent: the commits in the last part of the manifest (the state), oldest first.
        closed: the branch is deleted or was reset. Nothing can be published after this version.
        ancestors: rows of merged commits in the last part of the manifest.
        successor: if the branch was reset, its new incarnation.
        dropped_data: on `main`, the hard drops of all schema changes. Entries stay when the data is removed.
        genesis: id of the first commit of the graph; None if the manifest was written by an older release.
        origin: if the branch was reset, its origin (`BranchRef.origin`).
    """

    branch: str
    incarnation: str
    schema_hash: str
    ledger: LedgerVersion
    head: Commit
    fence: int
    tables: Mapping[str, TablePin]
    dropped: tuple[tuple[str, TableId, int], ...]
    recent: tuple[Commit, ...]
    closed: bool = False
    ancestors: pa.Table = field(default_factory=SCHEMA.empty_table)
    successor: str | None = None
    dropped_data: tuple[DroppedData, ...] = ()
    genesis: str | None = None
    origin: str | None = None

    @property
    def version(self) -> int:
        return self.ledger.version

    def owns(self, pin: TablePin) -> bool:
        """Whether a table's files belong to this branch, and not to the branch that it was created from."""
        return self.branch == MAIN or (pin.ref.branch or "").startswith(f"{self.incarnation}-")


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one publish.

    Attributes:
        pins: new versions of tables, including new tables.
        drops: type keys of tables that are removed from the graph.
        renames: pairs of old and new type key. `pins` uses the new keys.
        schema_hash: hash of the new schema, if it changes.
        ancestors: rows of merged commits, from `ancestor_rows`.
        hard: type keys of tables whose dropped data has to be removed from earlier commits.
        undone: manifest version of a schema change that the publish undoes.
    """

    pins: tuple[TablePin, ...] = ()
    drops: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    schema_hash: str | None = None
    ancestors: pa.Table | None = None
    hard: tuple[str, ...] = ()
    undone: int | None = None


def commit_json(commit: Commit) -> dict[str, Any]:
    """A commit as a JSON object, for listings. Only groups have `members`, and only answers to members `member_id`."""
    members: dict[str, Any] = {
        "graph_commit_id": commit.id,
        "graph_branch": None if commit.branch == MAIN else commit.branch,
        "graph_manifest_version": commit.manifest_version,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
        "message": commit.message,
        "labels": dict(commit.labels),
        "kind": commit.writer,
        "counts": None if commit.counts is None else _counts_json(commit.counts),
    }
    if commit.members:
        members["members"] = [member_json(member) for member in commit.members]
    return members if commit.member is None else members | {"member_id": commit.member}


def member_json(member: Member) -> dict[str, Any]:
    """A member of a group as a JSON object."""
    return {
        "member_id": member.id,
        "actor_id": member.actor,
        "labels": dict(member.labels),
        "counts": _counts_json(member.counts),
        "changed": {key: list(ids) for key, ids in member.changed},
    }


def _counts_json(counts: Iterable[TypeCounts]) -> dict[str, dict[str, int]]:
    return {one.key: {"inserted": one.inserted, "updated": one.updated, "deleted": one.deleted} for one in counts}


def default_ledger(branch: str) -> str | None:
    """The Lance branch of the manifest for a commit of format 1; None for `main`.

    Commits of format 1 do not record their Lance branch, which has the name of the graph branch.
    """
    return None if branch == MAIN else branch


def models_of(members: Mapping[str, Iterable[Sequence[str]]]) -> Models:
    """The embedding models of each vector property, in a canonical order."""
    return tuple(sorted((name, tuple(sorted((m, s) for m, s in pairs))) for name, pairs in members.items()))


def combined_models(one: Models, other: Models) -> Models:
    """The embedding models of a table whose vectors come from two other tables.

    >>> combined_models((("vec", (("a", "text"),)),), (("vec", (("b", "text"),)),))
    (('vec', (('a', 'text'), ('b', 'text'))),)
    """
    left, right = dict(one), dict(other)
    return models_of({name: {*left.get(name, ()), *right.get(name, ())} for name in {*left, *right}})


def with_models(models: Models, made: Mapping[str, tuple[str, str]]) -> Models:
    """The embedding models of a table after more vectors were computed with the models in `made`.

    >>> with_models((("vec", (("a", "text"),)),), {"vec": ("b", "text")})
    (('vec', (('a', 'text'), ('b', 'text'))),)
    """
    before = dict(models)
    return models_of(before | {name: {*before.get(name, ()), pair} for name, pair in made.items()})
