"""The manifest: the table versions of the graph, and its commits.

The last part of the ledger is the *state*: one row per table and version pointer, the head, and the most recent
commits. Earlier parts hold older commits. A publish replaces only the state, so its cost does not depend on the length
of the history.

In addition to its own commits, a branch holds merged commits as rows of kind `ancestor`. So its manifest has every
ancestor of its head, even if the branches of these commits were deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import CorruptionError
from omnigraph.storage.ledger import LedgerVersion
from omnigraph.storage.table_ref import TableRef

MANIFEST_PATH = "__manifest"
STAMP = "omnigraph:internal_schema_version"
MAIN = "main"

TAIL_COMMITS = 64
"""Number of recent commits and ancestors in the state before they move to a part of their own."""

FAN_IN = 8
"""Number of parts of one size before they are merged into a larger part."""


class RowKind(StrEnum):
    TABLE = "table"
    TABLE_VERSION = "table_version"
    TABLE_TOMBSTONE = "table_tombstone"
    GRAPH_COMMIT = "graph_commit"
    ANCESTOR = "ancestor"
    GRAPH_HEAD = "graph_head"


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


@dataclass(frozen=True, slots=True)
class TableId:
    """Identity of a table. It survives renames. A type that is dropped and added again gets a new one."""

    type_id: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.type_id:016x}-{self.incarnation:016x}"


Models = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""The models that computed the vectors of a table: by property, the model and the property with the texts."""


@dataclass(frozen=True, slots=True)
class TablePin:
    """The version of a table in a snapshot.

    Attributes:
        key: the type key, `node:<Type>` or `edge:<Type>`.
        row_count: number of entities at that version.
        models: the models that computed its vectors.
    """

    key: str
    id: TableId
    ref: TableRef
    row_count: int
    models: Models = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the graph.

    Attributes:
        branch: the branch that it was made on.
        manifest_version: its manifest version on that branch.
        parent: the previous commit on the branch; None for the first commit of the graph.
        merged_parent: for a merge, the head of the merged branch.
        created_at: microseconds since 1970, UTC.
        ledger: the Lance branch of the manifest that holds the version; None for `main`. It survives the branch.
        generation: 1 more than the highest generation of its parents; None for a commit of an older release.
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
        dropped: dropped tables, with their last version in the graph.
        recent: the commits in the state, oldest first.
        closed: the branch is deleted. Nothing can be published after this version.
        ancestors: rows of merged commits in the state.
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
        drops: type keys of tables that leave the graph.
        renames: old and new type keys. Pins have the new key.
        schema_hash: hash of the new schema, if it changes.
        ancestors: rows of merged commits, from `ancestor_rows`.
    """

    pins: tuple[TablePin, ...] = ()
    drops: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    schema_hash: str | None = None
    ancestors: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Successor:
    """The next version of a manifest before it is published: parts to keep, rows to add, and its content."""

    keep: list[int]
    add: list[pa.Table]
    says: Manifest

    def published(self, ledger: LedgerVersion) -> Manifest:
        return replace(self.says, ledger=ledger)


def successor(manifest: Manifest, change: Change, commit: Commit, fence: int) -> Successor:
    """The manifest after a commit."""
    tables = dict(manifest.tables)
    dropped = list(manifest.dropped)
    for key in change.drops:
        pin = tables.pop(key)
        dropped.append((key, pin.id, pin.ref.version))
    # Two types may swap names, so remove all old names before adding new ones.
    renamed = [replace(tables.pop(old), key=new) for old, new in change.renames]
    tables |= {pin.key: pin for pin in renamed}
    tables |= {pin.key: pin for pin in change.pins}
    tables = dict(sorted(tables.items()))
    # A table that returns, because the commit that dropped it is undone, is not dropped any more.
    live = {pin.id for pin in tables.values()}
    dropped = [gone for gone in dropped if gone[1] not in live]
    commits = (*manifest.recent, commit)
    ancestors = manifest.ancestors
    if change.ancestors is not None:
        ancestors = pa.concat_tables([ancestors, change.ancestors])
    keep = list(range(len(manifest.ledger.parts) - 1))
    add: list[pa.Table] = []
    if (rows := len(commits) + ancestors.num_rows) > TAIL_COMMITS:
        keep, folded = _fold(manifest.ledger, keep, rows)
        add.append(pa.concat_tables([*folded, ancestors, commit_rows(commits)]))
        commits, ancestors = (), SCHEMA.empty_table()
    schema_hash = change.schema_hash or manifest.schema_hash
    state = state_rows(manifest.branch, schema_hash, tables.values(), dropped, commits, commit, fence)
    add.append(pa.concat_tables([state, ancestors]))
    says = replace(
        manifest,
        schema_hash=schema_hash,
        head=commit,
        fence=fence,
        tables=tables,
        dropped=tuple(dropped),
        recent=commits,
        ancestors=ancestors,
    )
    return Successor(keep, add, says)


def closing(manifest: Manifest, fence: int) -> Successor:
    """The last manifest version of a deleted branch: the same state, marked as closed."""
    keep = list(range(len(manifest.ledger.parts) - 1))
    says = replace(manifest, fence=fence, closed=True)
    state = state_rows(
        says.branch,
        says.schema_hash,
        says.tables.values(),
        says.dropped,
        says.recent,
        says.head,
        fence,
        closed=True,
    )
    return Successor(keep, [pa.concat_tables([state, says.ancestors])], says)


def _fold(ledger: LedgerVersion, keep: list[int], rows: int) -> tuple[list[int], list[pa.Table]]:
    """The parts to merge into a new part of commits: the newest ones, while there are many that are not larger."""
    taken: list[int] = []
    while len(keep) >= FAN_IN - 1 and all(ledger.parts[i] <= rows for i in keep[-(FAN_IN - 1) :]):
        newest = keep[-(FAN_IN - 1) :]
        taken = [*newest, *taken]
        keep = keep[: -(FAN_IN - 1)]
        rows += sum(ledger.parts[i] for i in newest)
    return keep, [ledger.read_part(i) for i in taken]


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
) -> pa.Table:
    """The rows of a state."""
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
    rows += [_commit_row(commit) for commit in commits]
    rows.append(
        {
            "object_id": f"graph_head:{branch}",
            "object_type": RowKind.GRAPH_HEAD.value,
            "table_key": "",
            "metadata": _json(
                {"fence": fence, "schema_hash": schema_hash, "head": _commit_json(head), "branch": head.branch}
                | ({"closed": True} if closed else {})
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


def _commit_row(commit: Commit) -> dict[str, Any]:
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
    """Rows of commits or ancestors, as ancestor rows of another branch. Without their idempotency keys."""
    kept = {name: rows[name] for name in ("object_id", "metadata", "table_version", "table_branch")}
    kept["object_type"] = pa.repeat(RowKind.ANCESTOR.value, rows.num_rows)
    kept["table_key"] = pa.repeat("", rows.num_rows)
    columns = [kept.get(member.name, pa.nulls(rows.num_rows, member.type)) for member in SCHEMA]
    return pa.table(columns, schema=SCHEMA)


def commit_json(commit: Commit) -> dict[str, Any]:
    """A commit as a JSON object, for listings."""
    return {
        "graph_commit_id": commit.id,
        "graph_branch": None if commit.branch == MAIN else commit.branch,
        "graph_manifest_version": commit.manifest_version,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
        "message": commit.message,
        "labels": dict(commit.labels),
    }


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
    return members | ({"labels": dict(commit.labels)} if commit.labels else {})


def default_ledger(branch: str) -> str | None:
    """The Lance branch of the manifest with the commits of a branch, for commits that do not name it.

    Commits of format 1 do not name it: it has the name of the branch.
    """
    return None if branch == MAIN else branch


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value).decode()


def _table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


# Reading


def read_manifest(branch: str, incarnation: str, ledger: LedgerVersion) -> Manifest:
    """Parse a version of the manifest.

    Raises:
        DamagedFileError: a file of it is damaged.
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
    for row in rows:
        kind = row["object_type"]
        if kind == RowKind.TABLE_VERSION:
            pin = _read_pin(row, locations)
            if pin.key in tables:
                raise CorruptionError(f"the manifest of '{branch}' has two tables for {pin.key}")
            tables[pin.key] = pin
        elif kind == RowKind.TABLE_TOMBSTONE:
            dropped.append((row["table_key"], _table_id(row), row["table_version"]))
        elif kind == RowKind.GRAPH_COMMIT:
            recent.append(read_commit(row))
        elif kind == RowKind.GRAPH_HEAD:
            members = orjson.loads(row["metadata"])
            head = _commit(members["head"], members["branch"], row["table_version"])
            fence, schema_hash = members["fence"], members["schema_hash"]
            closed = members.get("closed", False)
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
    )


def _table_id(row: dict[str, Any]) -> TableId:
    return TableId(row["stable_table_id"], row["table_incarnation_id"])


def _read_pin(row: dict[str, Any], locations: Mapping[TableId, tuple[str, str]]) -> TablePin:
    identity = _table_id(row)
    if identity not in locations:
        raise CorruptionError(f"the manifest has a version of table {identity}, which is not registered")
    key, path = locations[identity]
    said = orjson.loads(row["metadata"]) if row["metadata"] else {}
    ref = TableRef(path, row["table_branch"], row["table_version"], said.get("seal"))
    return TablePin(key, identity, ref, row["row_count"], models_of(said.get("models", {})))


def models_of(members: Mapping[str, Iterable[Sequence[str]]]) -> Models:
    """The models by property, in a canonical order."""
    return tuple(sorted((name, tuple(sorted((m, s) for m, s in pairs))) for name, pairs in members.items()))


def with_models(models: Models, made: Mapping[str, tuple[str, str]]) -> Models:
    """The models of a table after more vectors were computed.

    >>> with_models((("vec", (("a", "text"),)),), {"vec": ("b", "text")})
    (('vec', (('a', 'text'), ('b', 'text'))),)
    """
    before = dict(models)
    return models_of(before | {name: {*before.get(name, ()), pair} for name, pair in made.items()})


def read_commits(rows: pa.Table) -> list[Commit]:
    """The commits in some rows, in order. Skips rows of other kinds."""
    kinds = (RowKind.GRAPH_COMMIT, RowKind.ANCESTOR)
    return [read_commit(row) for row in rows.to_pylist() if row["object_type"] in kinds]


def read_commit(row: Mapping[str, Any]) -> Commit:
    """Parse a commit from its row."""
    return _commit(orjson.loads(row["metadata"]), row["table_branch"] or MAIN, row["table_version"])


def _commit(members: dict[str, Any], branch: str, version: int) -> Commit:
    optional = {name: members.get(name) for name in _OPTIONAL}
    labels = tuple(sorted(members.get("labels", {}).items()))
    optional["ledger"] = members.get("ledger", default_ledger(branch))
    return Commit(members["id"], branch, version, created_at=members["created_at"], labels=labels, **optional)
