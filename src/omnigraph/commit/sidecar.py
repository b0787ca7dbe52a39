"""Sidecars: records of running writes.

A sidecar is stored before the first table changes, so that any process can complete or undo the write if it is
interrupted.
"""

from __future__ import annotations

import re
from dataclasses import asdict, fields, replace
from enum import StrEnum
from typing import Any

import orjson

from omnigraph.commit.json_checksums import verify_checksum, with_checksum
from omnigraph.commit.manifest import Change, Commit, Models, TableId, TablePin, default_ledger, models_of
from omnigraph.commit.manifest_rows import commit_rows, dump_counts, dump_members, read_counts, read_members
from omnigraph.commit.owner import Owner
from omnigraph.commit.ref_names import recorded_branch
from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError, ObjectNotFoundError
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.table_ref import TableRef

RECOVERY_DIRECTORY = "__recovery"
SIDECAR_VERSION = 1
ROLLBACK_VERSION = 2
"""Version number of a sidecar with the `rollback_only` mark. Older releases, which would ignore it, refuse it."""

ADOPTING_VERSION = 3
"""Version number of the sidecar of a branch update. Older releases, which would ignore its tables, refuse it."""

HARD_DROP_VERSION = 4
"""Version number of the sidecar of a schema change with hard drops. Older releases would lose the hard drops."""

GROUP_VERSION = 5
"""Version number of the sidecar of a group. Older releases would lose its members."""

_NAME = re.compile(rf"{RECOVERY_DIRECTORY}/[0-7][0-9A-HJKMNP-TV-Z]{{25}}\.json")


class WriterKind(StrEnum):
    MUTATION = "Mutation"
    LOAD = "Load"
    SCHEMA_APPLY = "SchemaApply"
    BRANCH_MERGE = "BranchMerge"
    BRANCH_UPDATE = "BranchUpdate"
    REVERT = "Revert"
    CHERRY_PICK = "CherryPick"
    RESTORE = "Restore"
    ENSURE_INDEXES = "EnsureIndexes"
    OPTIMIZE = "Optimize"
    EMBED = "Embed"
    REPAIR = "Repair"


@dataclass(frozen=True, slots=True)
class TableIntent:
    """The change of one table by a write.

    Attributes:
        pin: the version in the manifest before the write.
        base: the version that the write was staged against: `pin`, or the fork (Lance branch) that was made from it.
        transaction_id: id of the Lance transaction that commits this write to the table.
        row_count: number of entities after the write.
        models: the embedding models of the table after the write.
        commits: number of Lance transactions. `transaction_id` is the id of the last one.
    """

    key: str
    id: TableId
    pin: TableRef
    base: TableRef
    transaction_id: str
    row_count: int
    models: Models = ()
    commits: int = 1

    @property
    def forked(self) -> bool:
        return self.base.branch != self.pin.branch

    @property
    def intended(self) -> TableRef:
        return self.base.at(self.base.version + self.commits)

    def pinned(self, key: str) -> TablePin:
        """The entry of the table in the manifest after the write."""
        return TablePin(key, self.id, self.intended, self.row_count, self.models)


@dataclass(frozen=True, slots=True)
class SchemaIntent:
    """The changes of a schema change to the manifest and to the schema files.

    Attributes:
        schema_hash: hash of the new schema. Its files are staged beside the old ones.
        added: tables that were created for new types.
        drops: type keys that are removed from the graph.
        renames: old and new type keys.
        hard: type keys, before the change, whose dropped data has to be removed from earlier commits.
    """

    schema_hash: str
    added: tuple[TablePin, ...] = ()
    drops: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    hard: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdoptedTables:
    """The tables that a branch takes over from its parent, with the schema of the parent.

    Attributes:
        schema_hash: hash of the schema.
        pins: the table versions of the parent that the write does not change.
        drops: type keys that are removed from the branch.
        renames: old and new type keys.
    """

    schema_hash: str
    pins: tuple[TablePin, ...]
    drops: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The content of a sidecar: one write that is running or was interrupted.

    Attributes:
        owner: the process that writes.
        branch_identifier: distinguishes the branch from a later one with the same name.
        base_head: the branch head that the write was prepared against.
        commit: the commit to publish.
        schema: the schema change; None if the write does not change the schema.
        ancestors: for a merge, path of the file with the rows of the merged commits; None if there are none.
        rollback_only: whether a flush of its files failed, so that the write must never be rolled forward.
        adopted: the tables that the branch takes over from its parent; None if the write is not a branch update.
    """

    operation_id: str
    owner: Owner
    started_at: int
    branch: str
    branch_identifier: str
    kind: WriterKind
    base_head: str
    commit: Commit
    tables: tuple[TableIntent, ...]
    schema: SchemaIntent | None = None
    ancestors: str | None = None
    rollback_only: bool = False
    adopted: AdoptedTables | None = None

    @property
    def path(self) -> str:
        return f"{RECOVERY_DIRECTORY}/{self.operation_id}.json"

    @property
    def change(self) -> Change:
        """The change of the manifest after all tables have their new versions."""
        if self.adopted is not None:
            written = tuple(table.pinned(table.key) for table in self.tables)
            adopted = self.adopted
            return Change((*adopted.pins, *written), adopted.drops, adopted.renames, adopted.schema_hash)
        if self.schema is None:
            return Change(tuple(table.pinned(table.key) for table in self.tables))
        names = dict(self.schema.renames)
        moved = tuple(table.pinned(names.get(table.key, table.key)) for table in self.tables)
        schema = self.schema
        return Change((*moved, *schema.added), schema.drops, schema.renames, schema.schema_hash, hard=schema.hard)

    def to_json(self) -> dict[str, Any]:
        """The pending write as the JSON object that all user interfaces return. `dump` returns the stored form."""
        return {
            "operation_id": self.operation_id,
            "graph_commit_id": self.commit.id,
            "actor_id": self.commit.actor,
            "sidecar_writer_kind": self.kind.value,
            "graph_branch": self.branch,
            "started_at": self.started_at,
        }

    def dump(self) -> bytes:
        version = SIDECAR_VERSION if self.adopted is None else ADOPTING_VERSION
        if self.schema is not None and self.schema.hard:
            version = HARD_DROP_VERSION
        if self.commit.members:
            version = GROUP_VERSION
        version = ROLLBACK_VERSION if self.rollback_only else version
        members = with_checksum({"sidecar_version": version, **_plain(self)})
        return orjson.dumps(members, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)

    @classmethod
    def load(cls, path: str, data: bytes) -> Sidecar:
        """Parse a sidecar.

        Raises:
            CorruptionError: it cannot be read. It is kept for the user to inspect.
        """
        try:
            members = verify_checksum(orjson.loads(data))
            version = members["sidecar_version"]
            if version not in range(SIDECAR_VERSION, GROUP_VERSION + 1):
                raise ValueError(f"sidecar version {version} is not known to this release")
            commit = replace(
                _commit(members["commit"]),
                counts=read_counts(members.get("counts")),
                members=read_members(members.get("members", ())),
            )
            commit_rows([commit])  # raises if the manifest cannot store the commit
            return cls(
                members["operation_id"],
                Owner(**members["owner"]),
                members["started_at"],
                recorded_branch(members["branch"]),
                members["branch_identifier"],
                WriterKind(members["kind"]),
                members["base_head"],
                commit,
                tuple(_table(table) for table in members["tables"]),
                _schema(members["schema"]) if members["schema"] else None,
                members.get("ancestors"),
                version == ROLLBACK_VERSION,
                _adopted(members["adopted"]) if members.get("adopted") else None,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptionError(
                f"{path} cannot be read: {error}",
                hint="it records an interrupted write; reads still work; restore the file, or run 'omnigraph repair'",
            ) from error


def pending(objects: ObjectStore) -> list[Sidecar]:
    """The sidecars of all running and interrupted writes, oldest first. Skips files with other names."""
    found: list[Sidecar] = []
    for info in objects.list(RECOVERY_DIRECTORY):
        if _NAME.fullmatch(info.path) is None:
            continue
        try:
            found.append(Sidecar.load(info.path, objects.get(info.path).data))
        except ObjectNotFoundError:
            continue  # its writer has just finished
    return found


def paths(objects: ObjectStore) -> list[str]:
    """Paths of all sidecars, including unreadable ones."""
    return [info.path for info in objects.list(RECOVERY_DIRECTORY) if _NAME.fullmatch(info.path) is not None]


@dataclass(frozen=True, slots=True)
class UnreadableSidecar:
    """An unreadable sidecar.

    Attributes:
        etag: etag of the file that was read.
    """

    path: str
    reason: str
    etag: str


def read_sidecars(objects: ObjectStore) -> tuple[list[Sidecar], list[UnreadableSidecar]]:
    """The readable sidecars, oldest first, and the unreadable ones."""
    found: list[Sidecar] = []
    damaged: list[UnreadableSidecar] = []
    for path in paths(objects):
        try:
            stored = objects.get(path)
            found.append(Sidecar.load(path, stored.data))
        except CorruptionError as error:
            damaged.append(UnreadableSidecar(path, error.message, stored.etag))
        except ObjectNotFoundError:
            continue  # its writer has just finished
    return found, damaged


_BESIDE = ("counts", "members", "member")
"""Fields of a commit that a sidecar does not store in `commit`."""


def _plain(sidecar: Sidecar) -> dict[str, Any]:
    commit = sidecar.commit
    return {
        "operation_id": sidecar.operation_id,
        "owner": asdict(sidecar.owner),
        "started_at": sidecar.started_at,
        "branch": sidecar.branch,
        "branch_identifier": sidecar.branch_identifier,
        "kind": sidecar.kind.value,
        "base_head": sidecar.base_head,
        # Older releases refuse unknown fields in `commit`, so newer fields are stored beside it.
        "commit": {f.name: getattr(commit, f.name) for f in fields(commit) if f.name not in _BESIDE}
        | {"labels": list(commit.labels)},
        **({"members": dump_members(commit.members)} if commit.members else {}),
        "counts": None if commit.counts is None else dump_counts(commit.counts),
        "tables": [
            {
                "key": table.key,
                "id": [table.id.type_id, table.id.incarnation],
                "pin": [table.pin.path, table.pin.branch, table.pin.version],
                "base": [table.base.path, table.base.branch, table.base.version],
                "transaction_id": table.transaction_id,
                "row_count": table.row_count,
                "models": dict(table.models),
                "commits": table.commits,
            }
            for table in sidecar.tables
        ],
        "schema": None if sidecar.schema is None else asdict(sidecar.schema),
        "ancestors": sidecar.ancestors,
        **({} if sidecar.adopted is None else {"adopted": _adopted_json(sidecar.adopted)}),
    }


def _commit(members: dict[str, Any]) -> Commit:
    labels = tuple((name, value) for name, value in members.pop("labels"))
    members.setdefault("ledger", default_ledger(members["branch"]))
    return Commit(**members, labels=labels)


def _table(members: dict[str, Any]) -> TableIntent:
    return TableIntent(
        members["key"],
        TableId(*members["id"]),
        TableRef(*members["pin"]),
        TableRef(*members["base"]),
        members["transaction_id"],
        members["row_count"],
        models_of(members.get("models", {})),
        members.get("commits", 1),
    )


def _schema(members: dict[str, Any]) -> SchemaIntent:
    added = tuple(
        TablePin(pin["key"], TableId(**pin["id"]), TableRef(**pin["ref"]), pin["row_count"]) for pin in members["added"]
    )
    renames = tuple((old, new) for old, new in members["renames"])
    hard = tuple(members.get("hard", ()))
    return SchemaIntent(members["schema_hash"], added, tuple(members["drops"]), renames, hard)


def _adopted_json(adopted: AdoptedTables) -> dict[str, Any]:
    return {
        "schema_hash": adopted.schema_hash,
        "pins": [asdict(pin) | {"models": dict(pin.models)} for pin in adopted.pins],
        "drops": adopted.drops,
        "renames": adopted.renames,
    }


def _adopted(members: dict[str, Any]) -> AdoptedTables:
    pins = tuple(
        TablePin(
            pin["key"], TableId(**pin["id"]), TableRef(**pin["ref"]), pin["row_count"], models_of(pin.get("models", {}))
        )
        for pin in members["pins"]
    )
    renames = tuple((old, new) for old, new in members["renames"])
    return AdoptedTables(members["schema_hash"], pins, tuple(members["drops"]), renames)
