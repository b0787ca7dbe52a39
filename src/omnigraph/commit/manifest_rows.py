"""The rows of a manifest: encoding and parsing.

The rows are stored in parts. The last part is the *state*: the rows of all tables and their versions, the head, and the
most recent commits. Earlier parts hold older commits, and merged commits as rows of kind `ancestor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import (
    MAIN,
    SCHEMA,
    Commit,
    DroppedData,
    Manifest,
    Member,
    TableId,
    TablePin,
    TypeCounts,
    default_ledger,
    models_of,
)
from omnigraph.errors import CorruptionError
from omnigraph.storage.ledger import LedgerVersion
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.table_ref import TableRef


class RowKind(StrEnum):
    TABLE = "table"
    TABLE_VERSION = "table_version"
    TABLE_TOMBSTONE = "table_tombstone"
    GRAPH_COMMIT = "graph_commit"
    ANCESTOR = "ancestor"
    GRAPH_HEAD = "graph_head"
    MEMBER_KEY = "member_key"
    """The idempotency key of a member of a group. Its metadata is the id of the commit."""


def state_rows(
    branch: str,
    schema_hash: str,
    tables: Iterable[TablePin],
    dropped: Iterable[tuple[str, TableId, int]],
    commits: Iterable[Commit],
    head: Commit,
    fence: int,
    *,
    closed: bool = False,
    successor: str | None = None,
    dropped_data: Iterable[DroppedData] = (),
    genesis: str | None = None,
    origin: str | None = None,
) -> pa.Table:
    """The rows of the state, which is the last part of a manifest."""
    rows: list[dict[str, Any]] = []
    for pin in tables:
        rows += _pin_rows(pin)
    for key, table, version in dropped:
        rows.append(
            {
                "object_id": f"table_tombstone:{table.type_id:016x}:{table.incarnation:016x}:{version:020d}",
                "object_type": RowKind.TABLE_TOMBSTONE.value,
                "table_key": key,
                "stable_table_id": table.type_id,
                "table_incarnation_id": table.incarnation,
                "table_version": version,
            }
        )
    rows += _lineage_rows(commits)
    hard = [[one.manifest_version, one.key, one.path, one.version] for one in dropped_data]
    rows.append(
        {
            "object_id": f"graph_head:{branch}",
            "object_type": RowKind.GRAPH_HEAD.value,
            "table_key": "",
            "metadata": _json(
                {"fence": fence, "schema_hash": schema_hash, "head": _commit_json(head), "branch": head.branch}
                | ({"closed": True} if closed else {})
                | ({"successor": successor} if successor is not None else {})
                | ({"dropped_data": hard} if hard else {})
                | ({"genesis": genesis} if genesis is not None else {})
                | ({"origin": origin} if origin is not None else {})
            ),
            "table_version": head.manifest_version,
        }
    )
    return _table(rows)


def _pin_rows(pin: TablePin) -> list[dict[str, Any]]:
    name = f"{pin.id.type_id:016x}:{pin.id.incarnation:016x}"
    identity = {
        "table_key": pin.key,
        "stable_table_id": pin.id.type_id,
        "table_incarnation_id": pin.id.incarnation,
    }
    return [
        {
            "object_id": f"table:{name}",
            "object_type": RowKind.TABLE.value,
            "location": pin.ref.path,
            **identity,
        },
        {
            "object_id": f"table_version:{name}:{pin.ref.version:020d}",
            "object_type": RowKind.TABLE_VERSION.value,
            "table_version": pin.ref.version,
            "table_branch": pin.ref.branch,
            "row_count": pin.row_count,
            "metadata": _pin_json(pin),
            **identity,
        },
    ]


def _pin_json(pin: TablePin) -> str | None:
    members: dict[str, Any] = {"models": dict(pin.models)} if pin.models else {}
    if pin.ref.seal is not None:
        members["seal"] = pin.ref.seal
    return _json(members) if members else None


def commit_rows(commits: Iterable[Commit]) -> pa.Table:
    """The rows of commits.

    Raises:
        TypeError: a commit has a value that the manifest cannot store.
    """
    return _table([_commit_row(commit) for commit in commits])


def lineage_rows(commits: Iterable[Commit]) -> pa.Table:
    """The rows of commits, and of the idempotency keys of their members."""
    return _table(_lineage_rows(commits))


def _lineage_rows(commits: Iterable[Commit]) -> list[dict[str, Any]]:
    commits = list(commits)
    rows = [_commit_row(commit) for commit in commits]
    for commit in commits:
        rows += [
            {
                "object_id": f"member:{commit.id}:{member.id}",
                "object_type": RowKind.MEMBER_KEY.value,
                "table_key": "",
                "metadata": commit.id,
                "table_version": commit.manifest_version,
                "idempotency_key": member.idempotency_key,
            }
            for member in commit.members
            if member.idempotency_key is not None
        ]
    return rows


def _commit_row(commit: Commit) -> dict[str, Any]:
    """The row of a commit. Each publish writes the rows of the most recent commits again, so they are cached."""
    found = _rows.get(commit.id)
    if found is None or found[0] is not commit:
        found = _rows.put(commit.id, (commit, _encoded(commit)))
    return found[1]


_rows: LruCache[tuple[Commit, dict[str, Any]]] = LruCache(256)


def _encoded(commit: Commit) -> dict[str, Any]:
    return {
        "object_id": commit.id,
        "object_type": RowKind.GRAPH_COMMIT.value,
        "table_key": "",
        "metadata": _json(_commit_json(commit)),
        "table_version": commit.manifest_version,
        "table_branch": None if commit.branch == MAIN else commit.branch,
        "idempotency_key": commit.idempotency_key,
    }


def ancestor_rows(rows: pa.Table) -> pa.Table:
    """Convert commit and ancestor rows to ancestor rows of another branch, without the idempotency keys."""
    columns_by_name = {name: rows[name] for name in ("object_id", "metadata", "table_version", "table_branch")}
    columns_by_name["object_type"] = pa.repeat(RowKind.ANCESTOR.value, rows.num_rows)
    columns_by_name["table_key"] = pa.repeat("", rows.num_rows)
    columns = [columns_by_name.get(member.name, pa.nulls(rows.num_rows, member.type)) for member in SCHEMA]
    return pa.table(columns, schema=SCHEMA)


_OPTIONAL = (
    "parent",
    "merged_parent",
    "generation",
    "actor",
    "message",
    "writer",
    "operation_id",
    "idempotency_key",
)


def _commit_json(commit: Commit) -> dict[str, Any]:
    members: dict[str, Any] = {"id": commit.id, "created_at": commit.created_at}
    members |= {name: getattr(commit, name) for name in _OPTIONAL if getattr(commit, name) is not None}
    if commit.ledger != default_ledger(commit.branch):
        members["ledger"] = commit.ledger
    if commit.counts is not None:
        members["counts"] = dump_counts(commit.counts)
    if commit.members:
        members["members"] = dump_members(commit.members)
    return members | ({"labels": dict(commit.labels)} if commit.labels else {})


def dump_counts(counts: Sequence[TypeCounts]) -> dict[str, list[int]]:
    """Encode the numbers of changed entities of a commit."""
    return {one.key: [one.inserted, one.updated, one.deleted] for one in counts}


def read_counts(members: Mapping[str, Sequence[int]] | None) -> tuple[TypeCounts, ...] | None:
    """Decode the numbers of changed entities of a commit; None if the commit does not record them."""
    return None if members is None else tuple(TypeCounts(key, *numbers) for key, numbers in sorted(members.items()))


def dump_members(members: Iterable[Member]) -> list[dict[str, Any]]:
    """Encode the members of a group."""
    return [
        {"id": one.id}
        | ({} if one.actor is None else {"actor": one.actor})
        | ({} if one.idempotency_key is None else {"idempotency_key": one.idempotency_key})
        | ({"labels": dict(one.labels)} if one.labels else {})
        | ({"counts": dump_counts(one.counts)} if one.counts else {})
        | ({"changed": {key: list(ids) for key, ids in one.changed}} if one.changed else {})
        for one in members
    ]


def read_members(members: Iterable[Mapping[str, Any]]) -> tuple[Member, ...]:
    """Decode the members of a group."""
    return tuple(
        Member(
            one["id"],
            one.get("actor"),
            tuple(sorted(one.get("labels", {}).items())),
            one.get("idempotency_key"),
            read_counts(one.get("counts", {})) or (),
            tuple((key, tuple(ids)) for key, ids in sorted(one.get("changed", {}).items())),
        )
        for one in members
    )


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value).decode()


def _table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


# Reading


def read_manifest(branch: str, incarnation: str, ledger: LedgerVersion) -> Manifest:
    """Parse a version of the manifest.

    Raises:
        DamagedFileError: a file of that version is damaged.
    """
    last = len(ledger.parts) - 1
    return ledger.decoded(ledger.read_part(last), lambda state: _read_state(branch, incarnation, ledger, state), [last])


def _read_state(branch: str, incarnation: str, ledger: LedgerVersion, state: pa.Table) -> Manifest:
    is_ancestor = pc.equal(state["object_type"], RowKind.ANCESTOR.value)
    ancestors, rows = state.filter(is_ancestor).cast(SCHEMA), state.filter(pc.invert(is_ancestor)).to_pylist()
    locations = {
        _table_id(row): (row["table_key"], row["location"]) for row in rows if row["object_type"] == RowKind.TABLE
    }
    tables: dict[str, TablePin] = {}
    dropped: list[tuple[str, TableId, int]] = []
    recent: list[Commit] = []
    head: Commit | None = None
    fence, schema_hash, closed = 0, "", False
    successor: str | None = None
    dropped_data: tuple[DroppedData, ...] = ()
    genesis: str | None = None
    origin: str | None = None
    for row in rows:
        kind = row["object_type"]
        if kind == RowKind.TABLE_VERSION:
            pin = _read_pin(row, locations)
            if pin.key in tables:
                raise CorruptionError(f"the manifest of '{branch}' has two tables of type {pin.key}")
            tables[pin.key] = pin
        elif kind == RowKind.TABLE_TOMBSTONE:
            dropped.append((row["table_key"], _table_id(row), row["table_version"]))
        elif kind == RowKind.GRAPH_COMMIT:
            recent.append(read_commit(row))
        elif kind == RowKind.GRAPH_HEAD:
            members = orjson.loads(row["metadata"])
            head = _commit(members["head"], members["branch"], row["table_version"])
            fence, schema_hash = members["fence"], members["schema_hash"]
            closed, successor = members.get("closed", False), members.get("successor")
            dropped_data = tuple(DroppedData(*one) for one in members.get("dropped_data", ()))
            genesis = members.get("genesis")
            origin = members.get("origin")
    if head is None:
        raise CorruptionError(f"the manifest of '{branch}' has no head")
    return Manifest(
        branch,
        incarnation,
        schema_hash,
        ledger,
        head,
        fence,
        dict(sorted(tables.items())),
        tuple(dropped),
        tuple(recent),
        closed,
        ancestors,
        successor,
        dropped_data,
        genesis=genesis,
        origin=origin,
    )


def _table_id(row: dict[str, Any]) -> TableId:
    return TableId(row["stable_table_id"], row["table_incarnation_id"])


def _read_pin(row: dict[str, Any], locations: Mapping[TableId, tuple[str, str]]) -> TablePin:
    identity = _table_id(row)
    if identity not in locations:
        raise CorruptionError(f"the manifest has a version of table {identity}, which is not registered")
    key, path = locations[identity]
    metadata = orjson.loads(row["metadata"]) if row["metadata"] else {}
    ref = TableRef(path, row["table_branch"], row["table_version"], metadata.get("seal"))
    return TablePin(key, identity, ref, row["row_count"], models_of(metadata.get("models", {})))


def read_commits(rows: pa.Table) -> list[Commit]:
    """The commits in some rows, in the order of the rows. Skips rows of other kinds."""
    kinds = (RowKind.GRAPH_COMMIT, RowKind.ANCESTOR)
    return [read_commit(row) for row in rows.to_pylist() if row["object_type"] in kinds]


def read_commit(row: Mapping[str, Any]) -> Commit:
    """Parse a commit from its row."""
    return _commit(orjson.loads(row["metadata"]), row["table_branch"] or MAIN, row["table_version"])


def has_commit(ledger: LedgerVersion, commit_id: str) -> bool:
    """Whether a manifest version has a commit in its history. Reads the newest commits first."""
    for index in reversed(range(len(ledger.parts))):
        rows = ledger.read_parts([index], ["object_id", "object_type"])
        found = rows.filter(pc.equal(rows["object_id"], commit_id))
        if RowKind.GRAPH_COMMIT.value in found["object_type"].to_pylist():
            return True
    return False


def _commit(members: dict[str, Any], branch: str, version: int) -> Commit:
    optional: dict[str, Any] = {name: members.get(name) for name in _OPTIONAL}
    labels = tuple(sorted(members.get("labels", {}).items()))
    optional["ledger"] = members.get("ledger", default_ledger(branch))
    optional["counts"] = read_counts(members.get("counts"))
    optional["members"] = read_members(members.get("members", ()))
    return Commit(members["id"], branch, version, created_at=members["created_at"], labels=labels, **optional)
