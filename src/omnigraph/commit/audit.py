"""The recovery audit: one row for every interrupted write that recovery settled."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.storage.ledger import Ledger
from omnigraph.storage.staged import TableConflictError

AUDIT_PATH = "_graph_commit_recoveries.lance"

_SCHEMA = pa.schema(
    [
        pa.field("operation_id", pa.utf8(), nullable=False),
        pa.field("graph_commit_id", pa.utf8()),
        pa.field("recovery_kind", pa.utf8(), nullable=False),
        pa.field("recovery_for_actor", pa.utf8()),
        pa.field("sidecar_writer_kind", pa.utf8(), nullable=False),
        pa.field("graph_branch", pa.utf8(), nullable=False),
        pa.field("per_table_outcomes_json", pa.utf8(), nullable=False),
        pa.field("created_at", pa.int64(), nullable=False),
    ]
)


class RecoveryKind(StrEnum):
    ROLLED_FORWARD = "RolledForward"
    ROLLED_BACK = "RolledBack"
    ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"
    TORN_FILE_SET_ASIDE = "TornFileSetAside"


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """One table of a settled write: its state before recovery, and its newest version before and after recovery."""

    key: str
    state: str
    from_version: int | None
    to_version: int | None


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """One settled write.

    Attributes:
        commit_id: the commit that published or undid the write; None if nothing was published.
        actor: the actor of the interrupted write.
        created_at: microseconds since 1970, UTC.
    """

    operation_id: str
    commit_id: str | None
    kind: RecoveryKind
    actor: str | None
    writer: str
    branch: str
    tables: tuple[TableOutcome, ...]
    created_at: int

    def to_json(self) -> dict[str, Any]:
        """The record as the JSON object that all user interfaces return."""
        return {
            "operation_id": self.operation_id,
            "graph_commit_id": self.commit_id,
            "recovery_kind": self.kind.value,
            "recovery_for_actor": self.actor,
            "sidecar_writer_kind": self.writer,
            "graph_branch": self.branch,
            "per_table_outcomes": [
                {"key": t.key, "state": t.state, "from_version": t.from_version, "to_version": t.to_version}
                for t in self.tables
            ],
            "created_at": self.created_at,
        }


def append(ledger: Ledger, record: RecoveryRecord) -> None:
    """Add a record, unless the operation has one already: recovery may be interrupted and run again."""
    rows = pa.Table.from_pylist([_row(record)], schema=_SCHEMA)
    while True:
        newest = ledger.open()
        try:
            if newest is None:
                ledger.create(_SCHEMA, rows)
                return
            same = pc.field("operation_id") == record.operation_id
            if newest.read(columns=["operation_id"], filter=same).num_rows == 0:
                ledger.publish(newest, range(len(newest.parts)), [rows])
            else:
                ledger.make_durable(newest)
            return
        except TableConflictError:
            continue  # another process added a record for another branch


def records(ledger: Ledger) -> list[RecoveryRecord]:
    """All records, oldest first.

    Raises:
        DamagedFileError: a file of the audit is damaged.
    """
    newest = ledger.open_whole()
    if newest is None:
        return []
    rows = newest.read().sort_by([("created_at", "ascending"), ("operation_id", "ascending")])
    return newest.decoded(rows, _records)


def _records(rows: pa.Table) -> list[RecoveryRecord]:
    return [
        RecoveryRecord(
            row["operation_id"],
            row["graph_commit_id"],
            RecoveryKind(row["recovery_kind"]),
            row["recovery_for_actor"],
            row["sidecar_writer_kind"],
            row["graph_branch"],
            tuple(TableOutcome(**outcome) for outcome in orjson.loads(row["per_table_outcomes_json"])),
            row["created_at"],
        )
        for row in rows.to_pylist()
    ]


def _row(record: RecoveryRecord) -> dict[str, object]:
    outcomes = [
        {"key": t.key, "state": t.state, "from_version": t.from_version, "to_version": t.to_version}
        for t in record.tables
    ]
    return {
        "operation_id": record.operation_id,
        "graph_commit_id": record.commit_id,
        "recovery_kind": record.kind.value,
        "recovery_for_actor": record.actor,
        "sidecar_writer_kind": record.writer,
        "graph_branch": record.branch,
        "per_table_outcomes_json": orjson.dumps(outcomes).decode(),
        "created_at": record.created_at,
    }
