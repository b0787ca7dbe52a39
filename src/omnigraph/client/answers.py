"""Answers: the objects that calls return, read from the JSON that every interface shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

import orjson

from omnigraph.changes.commit_page import ChangeCause, ChangePage, EntityChange
from omnigraph.changes.feed import ChangeBlock, FeedPage
from omnigraph.changes.row_images import ChangeOp
from omnigraph.commit.manifest import MAIN, Commit, Member, TypeCounts
from omnigraph.dataclass import dataclass
from omnigraph.errors import Conflict, ConflictKind
from omnigraph.graph.collections import CommitPage
from omnigraph.merge.preview import PreviewedChange
from omnigraph.merge.receipt import MergedChanges, MergeOutcome, MergeReceipt
from omnigraph.write.mutation import MutationReceipt
from omnigraph.write.receipt import LoadMode, LoadReceipt
from omnigraph.write.rows.problems import Coercion, Leniency

Json = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Health:
    """That a server answers, and its version. A graph in this process is always `ok`."""

    status: str
    version: str
    internal_schema_version: int


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The version of one table."""

    entity_kind: str
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


@dataclass(frozen=True, slots=True)
class SnapshotTables:
    """The versions of all tables at the head of a branch."""

    graph_branch: str
    graph_manifest_version: int
    graph_commit_id: str
    internal_schema_version: int
    datasets: tuple[TableVersion, ...]


@dataclass(frozen=True, slots=True)
class SchemaApplied:
    """The result of a schema change.

    Attributes:
        steps: the steps, as JSON.
        applied: whether the schema changed.
        commit: the commit; None if there was nothing to do.
        warnings: warnings about dropped data that still exists.
    """

    supported: bool
    applied: bool
    steps: tuple[Json, ...]
    graph_manifest_version: int
    commit: Commit | None
    warnings: tuple[str, ...] = ()
    _lines: tuple[str, ...] = field(default=(), repr=False)
    _members: Json = field(default_factory=dict, repr=False, compare=False)

    def lines(self) -> list[str]:
        """The steps as text, one line each."""
        return list(self._lines)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `Schema.apply` gives."""
        return {name: value for name, value in self._members.items() if name not in _OF_SERVER}


_OF_SERVER = ("uri", "actor_id", "lines", "warnings")
"""Members of the answer of a server that a receipt does not have."""


@dataclass(frozen=True, slots=True)
class StoredQueryEntry:
    """A stored query.

    Attributes:
        mutation: whether it writes.
        params: its parameters, as JSON.
        deprecated: whether another query should be used.
        successor: the name of this query.
    """

    name: str
    tool_name: str
    mutation: bool
    params: tuple[Json, ...]
    description: str | None = None
    instruction: str | None = None
    deprecated: bool = False
    successor: str | None = None


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """A graph of a server."""

    graph_id: str
    uri: str


@dataclass(frozen=True, slots=True)
class BlobAnswer:
    """A blob, or a range of it.

    Attributes:
        size: the size of the whole blob; None for a reference.
        etag: a strong entity tag; None for a reference.
        uri: the target of a reference; None for content that the graph stores.
        snapshot_id: the snapshot with the blob.
        commit_id: the newest commit of this snapshot, to read other ranges of the same blob.
        data: the bytes that were asked for.
    """

    size: int | None
    etag: str | None
    uri: str | None
    snapshot_id: str | None
    commit_id: str | None
    data: bytes | None = None


def known(kind: type[T], members: Json, /, **more: object) -> T:
    """An object of a dataclass. Members that it does not have, which a newer server may send, are left out."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in members.items() if name in names} | more)


def snapshot(members: Json) -> SnapshotTables:
    return known(SnapshotTables, members, datasets=tuple(known(TableVersion, one) for one in members["datasets"]))


def _counts(members: Mapping[str, Mapping[str, int]]) -> tuple[TypeCounts, ...]:
    return tuple(known(TypeCounts, numbers, key=key) for key, numbers in members.items())


def member(members: Json) -> Member:
    return Member(
        members["member_id"],
        members["actor_id"],
        tuple(members["labels"].items()),
        None,
        _counts(members["counts"]),
        tuple((key, tuple(ids)) for key, ids in members["changed"].items()),
    )


def commit(members: Json) -> Commit:
    """A commit. Members that are not in its JSON, such as its operation, are None."""
    counts = members.get("counts")
    return Commit(
        members["graph_commit_id"],
        members["graph_branch"] or MAIN,
        members["graph_manifest_version"],
        members["parent_commit_id"],
        members["merged_parent_commit_id"],
        members["actor_id"],
        members["created_at"],
        members.get("message"),
        tuple((members.get("labels") or {}).items()),
        members.get("kind"),
        counts=None if counts is None else _counts(counts),
        members=tuple(map(member, members.get("members", ()))),
        member=members.get("member_id"),
    )


def _commit_of(members: Json) -> Commit | None:
    return None if members.get("commit") is None else commit(members["commit"])


def mutation(members: Json) -> MutationReceipt:
    return MutationReceipt(
        members["branch"],
        members["query_name"],
        members["affected_nodes"],
        members["affected_edges"],
        members.get("actor_id"),
        _commit_of(members),
    )


def load(members: Json) -> LoadReceipt:
    def counts(of: str) -> tuple[tuple[str, int], ...]:
        return tuple((one["name"], one["entities_loaded"]) for one in members[of])

    return LoadReceipt(
        members["branch"],
        LoadMode(members["mode"]),
        counts("nodes"),
        counts("edges"),
        _commit_of(members),
        members.get("base_branch"),
        members["branch_created"],
        members.get("actor_id"),
        tuple(known(Coercion, one, kind=Leniency(one["kind"])) for one in members.get("coerced") or ()),
    )


def conflict(members: Json) -> Conflict:
    return known(Conflict, members, kind=ConflictKind(members["kind"]))


def _previewed(members: Json) -> PreviewedChange:
    return PreviewedChange(
        members["kind"],
        members["type_name"],
        members["id"],
        members["op"],
        tuple(members.get("changed", ())),
        members.get("before"),
        members.get("after"),
    )


def merge(members: Json) -> MergeReceipt:
    schema_changes = members.get("schema_changes")
    return MergeReceipt(
        members["source"],
        members["target"],
        MergeOutcome(members["outcome"]),
        members["source_commit_id"],
        tuple(members["base_commit_ids"]),
        {key: known(MergedChanges, numbers) for key, numbers in members["changes"].items()},
        members["resolved"],
        members["edges_kept"],
        tuple(map(conflict, members["merge_conflicts"])),
        members["total_conflicts"],
        members["preview"],
        members.get("actor_id"),
        _commit_of(members),
        members.get("branch_deleted"),
        members.get("branch_delete_error"),
        members["engine"],
        tuple(members["left_out"]),
        tuple(map(_previewed, members.get("previewed", ()))),
        None if schema_changes is None else tuple(schema_changes),
    )


def commit_page(members: Json) -> CommitPage:
    removed = frozenset(one["graph_commit_id"] for one in members["commits"] if one.get("is_kept") is False)
    return CommitPage(tuple(map(commit, members["commits"])), members.get("cursor"), removed)


def _cause(members: Json) -> ChangeCause:
    branch = members["authored_branch"]
    return ChangeCause(
        Commit(
            members["graph_commit_id"],
            branch,
            0,
            members["parent_commit_id"],
            members["merged_parent_commit_id"],
            members["actor_id"],
            members["authored_at"],
            members.get("message"),
            members=tuple(map(member, members.get("members", ()))),
        )
    )


def _change(members: Json) -> EntityChange:
    kind, type_, text = members["kind"], members["type"], orjson.dumps(members).decode()
    return EntityChange(kind, type_["id"], type_["name"], members["id"], ChangeOp(members["op"]), text)


def change_page(members: Json) -> ChangePage:
    changes = tuple(map(_change, members["changes"]))
    return ChangePage(_cause(members["cause"]), changes, members.get("next_page_token"))


def feed_page(members: Json) -> FeedPage:
    blocks = tuple(ChangeBlock(_cause(one["cause"]), tuple(map(_change, one["changes"]))) for one in members["blocks"])
    return FeedPage(blocks, members.get("next_page_token"), members.get("cursor"), members.get("caught_up"))


def schema_applied(members: Json) -> SchemaApplied:
    steps = tuple(members["steps"])
    version = members["graph_manifest_version"]
    warnings, lines = (tuple(members.get(name, ())) for name in ("warnings", "lines"))
    return SchemaApplied(
        members["supported"], members["applied"], steps, version, _commit_of(members), warnings, lines, members
    )


def health(members: Json) -> Health:
    return known(Health, members)


def graphs(members: Json) -> tuple[GraphEntry, ...]:
    return tuple(known(GraphEntry, one) for one in members["graphs"])


def branches(members: Json) -> tuple[str, ...]:
    return tuple(members["branches"])


def name(members: Json) -> str:
    return str(members["name"])


def schema_source(members: Json) -> str:
    return str(members["schema_source"])


def stored_queries(members: Json) -> tuple[StoredQueryEntry, ...]:
    return tuple(map(stored_query, members["queries"]))


def stored_query(members: Json) -> StoredQueryEntry:
    return known(StoredQueryEntry, members, params=tuple(members["params"]))
