"""The kill matrix: the expected state of a graph after each kind of write is killed at each failpoint.

Run as a program, it writes the reference page of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tests.commit.graphs import NODES, SEED, TABLES, Operation
from tests.merge.merges import merges, picks, updates
from tests.migrate.changes import schema_changes
from tests.write.requests import requests

from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.table_writes import (
    AppendFragments,
    ChangeColumns,
    ChangeFragments,
    Compact,
    DeleteIds,
    DropDamagedIndexes,
    OverwriteFragments,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "kill-matrix.md"


class Outcome(StrEnum):
    """The state that the next writer finds. The values are shown on the page."""

    NOTHING = "none"
    """Nothing is visible, and there was no sidecar: the write changed nothing."""
    UNDONE = "none, undone"
    """Nothing is visible: recovery rolled the write back."""
    FINISHED = "all, finished"
    """Everything is visible: recovery rolled the write forward."""
    DONE = "all"
    """Everything is visible, and the write had removed its sidecar."""

    @property
    def visible(self) -> bool:
        return self in (Outcome.FINISHED, Outcome.DONE)

    @property
    def audited(self) -> bool:
        return self in (Outcome.UNDONE, Outcome.FINISHED)


class Killable(Protocol):
    """A write that passes the failpoints of the protocol.

    Attributes:
        what: its operation on the tables, for the page.
        forks: whether it is the first write on a branch, so that its tables are forked.
    """

    @property
    def kind(self) -> WriterKind: ...

    @property
    def what(self) -> str: ...

    @property
    def tables(self) -> tuple[str, ...]: ...

    @property
    def forks(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Write:
    """One kind of write.

    Attributes:
        forks: whether it is the first write on a branch, so that its tables are forked.
    """

    kind: WriterKind
    operation: Operation
    tables: tuple[str, ...]
    forks: bool

    def __str__(self) -> str:
        where = "first on a branch" if self.forks else "main"
        return f"{self.kind.value}, {self.operation.value}, {len(self.tables)} table(s), {where}"

    @property
    def what(self) -> str:
        return self.operation.value

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that the operation gets."""
        if self.operation is Operation.DELETE:
            return SEED[:2]
        return ("s1", "new") if self.operation in (Operation.UPSERT, Operation.CHANGE) else ("new", "newer")

    @property
    def after(self) -> list[str]:
        """The ids in each table after the write is visible."""
        if self.operation is Operation.INDEX:
            return sorted(SEED)
        if self.operation is Operation.OVERWRITE:
            return sorted(self.ids)
        if self.operation is Operation.DELETE:
            return sorted(set(SEED) - set(self.ids))
        if self.operation is Operation.CHANGE:
            return sorted({*SEED, *self.ids} - {SEED[1]})
        return sorted({*SEED, *self.ids})


@dataclass(frozen=True, slots=True)
class Kill:
    """A failpoint at which the process is killed. Some are passed once per table."""

    point: Failpoint
    pass_: int = 1

    def __str__(self) -> str:
        return self.point.value if self.pass_ == 1 else f"{self.point.value} #{self.pass_}"

    @property
    def setting(self) -> str:
        return f"{self.point.value}#{self.pass_}=kill"


ELSEWHERE = (
    *(AppendFragments, OverwriteFragments, ChangeFragments, ChangeColumns),
    *(Compact, DropDamagedIndexes, DeleteIds),
)
"""Table writes that need prepared files. The tests of loads, merges, schema changes and upkeep kill them."""


def writes() -> Iterator[Write]:
    """Every writer kind, every operation, one, two and five tables, on `main` and as the first on a branch."""
    for forks in (False, True):
        for operation in Operation:
            yield Write(WriterKind.MUTATION, operation, NODES[:1], forks)
        for kind in WriterKind:
            yield Write(kind, Operation.UPSERT, NODES[:2], forks)
        yield Write(WriterKind.LOAD, Operation.APPEND, TABLES, forks)


def kills(write: Killable) -> Iterator[Kill]:
    """The failpoints that a write passes, in order."""
    count = len(write.tables)
    for point in WRITE_POINTS:
        if point is Failpoint.FORKED and not write.forks:
            continue
        per_table = point in (Failpoint.FORKED, Failpoint.TABLE_COMMITTED)
        for number in range(1, count + 1 if per_table else 2):
            yield Kill(point, number)


WRITE_POINTS = (
    Failpoint.CAPTURED,
    Failpoint.FORKED,
    Failpoint.STAGED,
    Failpoint.LEASED,
    Failpoint.SIDECAR_WRITTEN,
    Failpoint.TABLE_COMMITTED,
    Failpoint.TABLES_COMMITTED,
    Failpoint.BEFORE_PUBLISH,
    Failpoint.PUBLISHED,
    Failpoint.SIDECAR_REMOVED,
)
RECOVERY_POINTS = (
    Failpoint.RECOVERY_STARTED,
    Failpoint.RECOVERY_CHECKED,
    Failpoint.RECOVERY_RESTORED,
    Failpoint.RECOVERY_PUBLISHED,
    Failpoint.RECOVERY_AUDITED,
)
LATE_VERSION_POINTS = (Failpoint.LATE_VERSION_CHECKED,)
REPAIR_POINTS = (
    Failpoint.REPAIR_FILE_CHECKED,
    Failpoint.TORN_COPIED,
    Failpoint.REPAIR_SET_ASIDE,
    Failpoint.REPAIR_MANIFEST_CHECKED,
    Failpoint.REPAIR_TABLE_CHECKED,
    Failpoint.REPAIR_RESTORED,
    Failpoint.REPAIR_PUBLISH_CHECKED,
    Failpoint.REPAIR_PUBLISHED,
    Failpoint.REPAIR_SIDECAR_CHECKED,
)
BRANCH_CREATION_POINTS = (
    Failpoint.BRANCH_CREATE_CHECKED,
    Failpoint.BRANCH_LEDGER_CREATED,
    Failpoint.BRANCH_REF_PENDING,
    Failpoint.BRANCH_CONFIRM_CHECKED,
    Failpoint.BRANCH_REF_CREATED,
)
BRANCH_DELETION_POINTS = (
    Failpoint.BRANCH_DELETE_CHECKED,
    Failpoint.BRANCH_CLOSED,
    Failpoint.BRANCH_REF_DELETED,
)
BRANCH_RESET_POINTS = (
    Failpoint.BRANCH_RESET_CREATED,
    Failpoint.BRANCH_RESET_INTENDED,
    Failpoint.BRANCH_RESET_CHECKED,
    Failpoint.BRANCH_RESET_CLOSED,
    Failpoint.BRANCH_RESET_DONE,
)
TAG_POINTS = (Failpoint.TAG_CREATE_CHECKED, Failpoint.TAG_REF_CREATED, Failpoint.TAG_DELETE_CHECKED)
MIGRATION_POINTS = (Failpoint.MIGRATION_REF_WRITTEN, Failpoint.MIGRATION_STAMPED)
OPTIMIZE_POINTS = (Failpoint.TABLE_PACKED,)
CLEANUP_POINTS = (
    Failpoint.CLEANUP_LOOKED,
    Failpoint.CLEANUP_PROPOSED,
    Failpoint.CLEANUP_CHECKED,
    Failpoint.CLEANUP_DECIDED,
    Failpoint.CLEANUP_VERSIONS_REMOVED,
    Failpoint.CLEANUP_FILES_REMOVED,
)
COPY_POINTS = (
    Failpoint.COPY_MARKED,
    Failpoint.COPY_FILE_COPIED,
    Failpoint.COPY_FILES_COPIED,
    Failpoint.COPY_TABLES_PUBLISHED,
    Failpoint.COPY_PUBLISHED,
)
PLACE_POINTS = (Failpoint.PLACE_MANIFEST_REWRITTEN, Failpoint.PLACE_REWRITTEN, Failpoint.PLACE_ENDED)
TRANSACTION_POINTS = (
    Failpoint.TRANSACTION_RECORDED,
    Failpoint.TRANSACTION_MERGED,
    Failpoint.TRANSACTION_FORKS_REMOVED,
    Failpoint.TRANSACTION_REF_REMOVED,
)
INIT_POINTS = (
    Failpoint.INIT_CLAIMED,
    Failpoint.INIT_SCHEMA_WRITTEN,
    Failpoint.INIT_TABLES_CREATED,
    Failpoint.INIT_COMMITTED,
)

PAUSES: dict[Failpoint, tuple[str, str, str]] = {
    Failpoint.BRANCH_CREATE_CHECKED: (
        "creating a branch",
        "creates the branch, or one whose name is a prefix, and writes to it",
        "the late creation is refused; no row is lost",
    ),
    Failpoint.BRANCH_LEDGER_CREATED: (
        "creating a branch",
        "creates the branch, or one whose name is a prefix, and writes to it",
        "the late creation is refused; no row is lost",
    ),
    Failpoint.BRANCH_REF_PENDING: (
        "creating a branch",
        "creates the branch, or one whose name is a prefix, and writes to it",
        "the late creation is refused; no row is lost",
    ),
    Failpoint.BRANCH_CONFIRM_CHECKED: (
        "creating a branch",
        "creates the branch, or one whose name is a prefix, and writes to it; or cleans up its start",
        "the late creation is refused; no row is lost",
    ),
    Failpoint.BRANCH_DELETE_CHECKED: (
        "deleting a branch",
        "deletes it and creates it again; or writes to it, if the deletion expects a head",
        "the late deletion is refused; no row of the new branch and no new commit is lost",
    ),
    Failpoint.BRANCH_CLOSED: (
        "deleting a branch",
        "creates a branch with the same name",
        "the old branch is deleted, the new one stays",
    ),
    Failpoint.BRANCH_REF_DELETED: (
        "deleting a branch",
        "creates a branch with the same name",
        "the old branch is deleted, the new one stays",
    ),
    **dict.fromkeys(
        (Failpoint.BRANCH_RESET_CREATED, Failpoint.BRANCH_RESET_INTENDED, Failpoint.BRANCH_RESET_CHECKED),
        (
            "resetting a branch",
            "writes to it; resets it; deletes it and creates it again; or cleans up",
            "the late reset is refused, and no acknowledged write is lost; or, after a cleanup, it is complete",
        ),
    ),
    **dict.fromkeys(
        (Failpoint.BRANCH_RESET_CLOSED, Failpoint.BRANCH_RESET_DONE),
        (
            "resetting a branch",
            "writes to it; resets it; deletes it and creates it again; or cleans up",
            "the branch was reset before; the later operations stay",
        ),
    ),
    Failpoint.TAG_CREATE_CHECKED: (
        "creating a tag",
        "creates the tag at another commit",
        "the late creation is refused",
    ),
    Failpoint.TAG_DELETE_CHECKED: ("deleting a tag", "deletes it and creates it again", "the new tag stays"),
    Failpoint.CAPTURED: (
        "a revert, a cherry-pick or a branch update",
        "cleans up; writes other rows; changes the same rows; updates the branch; changes the schema again",
        "it is complete, and no row is lost; a revert is refused after a change of the same rows",
    ),
    Failpoint.LEASED: (
        "changing the schema; writing to a branch; a revert, a cherry-pick or a branch update",
        "changes the schema and writes; deletes the branch and creates it again; changes the same rows",
        "the late write is refused or retried; no row is lost",
    ),
    Failpoint.SIDECAR_WRITTEN: (
        "changing the schema; a branch update",
        "recovers it, changes the schema and writes to the new table; writes to the branch, updates it or creates it "
        "again",
        "no row is lost",
    ),
    Failpoint.TABLE_COMMITTED: (
        "changing the columns of a table",
        "recovers it, applies the schema and writes to the table",
        "no row is lost, and no column is changed twice",
    ),
    Failpoint.TABLES_COMMITTED: (
        "changing the schema; writing to a branch; a branch update",
        "recovers it and writes; deletes the branch and creates it again",
        "no row is lost; nothing is published to the new branch",
    ),
    Failpoint.BEFORE_PUBLISH: (
        "changing the schema; writing to a branch; a branch update",
        "recovers it and writes; deletes the branch and creates it again",
        "no row is lost; nothing is published to the new branch",
    ),
    Failpoint.PUBLISHED: (
        "changing the schema; a branch update",
        "promotes the schema files and writes; writes to the branch, updates it or creates it again",
        "no row is lost",
    ),
    **dict.fromkeys(
        RECOVERY_POINTS,
        (
            "recovering an interrupted write",
            "recovers it and writes to the same tables",
            "no row is lost; the next writer restores a table that the late recovery moved",
        ),
    ),
    Failpoint.LATE_VERSION_CHECKED: (
        "undoing a table version that was created late",
        "undoes it and writes to the same table",
        "no row is lost; the next writer restores a table that the late undo moved",
    ),
    **dict.fromkeys(
        (Failpoint.REPAIR_FILE_CHECKED, Failpoint.TORN_COPIED, Failpoint.REPAIR_SET_ASIDE),
        (
            "repairing a torn version of a table or of the manifest, or the damaged reference of a branch",
            "repairs it and writes, or creates the branch again and writes to it",
            "the late repair finds another file and does not touch it; no row is lost",
        ),
    ),
    Failpoint.REPAIR_MANIFEST_CHECKED: (
        "repairing a torn version of the manifest",
        "repairs it and writes",
        "the late repair finds another file and does not touch it; no row is lost",
    ),
    **dict.fromkeys(
        (
            Failpoint.REPAIR_TABLE_CHECKED,
            Failpoint.REPAIR_RESTORED,
            Failpoint.REPAIR_PUBLISH_CHECKED,
            Failpoint.REPAIR_PUBLISHED,
        ),
        (
            "repairing a table with damaged data",
            "repairs it and writes to it",
            "no row is lost; the late publish is refused; the next writer restores a table that was moved late",
        ),
    ),
    Failpoint.REPAIR_SIDECAR_CHECKED: (
        "quarantining the sidecar of a write that cannot be recovered",
        "restores the missing file, recovers the write, and writes",
        "the late repair finds no file; no row is lost",
    ),
    **dict.fromkeys(
        CLEANUP_POINTS,
        (
            "cleaning up",
            "creates branches, tags and pins at old and new commits, writes, and cleans up, too",
            "all acknowledged branches, tags and writes can be read; the others are refused with `version_reclaimed`",
        ),
    ),
    Failpoint.STAGED: (
        "a mutation, a load, a merge, a revert, a cherry-pick or a branch update",
        "cleans up, including new files",
        "the write is published with all its files",
    ),
    Failpoint.INIT_CLAIMED: ("creating a graph", "creates it with `--force` and loads", "no row is lost"),
    Failpoint.INIT_SCHEMA_WRITTEN: ("creating a graph", "creates it with `--force` and loads", "no row is lost"),
    Failpoint.INIT_TABLES_CREATED: ("creating a graph", "creates it with `--force` and loads", "no row is lost"),
}
"""Failpoints at which a process is paused for longer than its lease.

The values are its operation, the operations of another process during the pause, and the outcome.
"""


def outcome(write: Killable, kill: Kill) -> Outcome:
    """The expected state: the whole write if all tables have moved, else nothing of it."""
    place = WRITE_POINTS.index(kill.point)
    if place < WRITE_POINTS.index(Failpoint.SIDECAR_WRITTEN):
        return Outcome.NOTHING
    if kill.point is Failpoint.SIDECAR_REMOVED:
        return Outcome.DONE
    moved = place > WRITE_POINTS.index(Failpoint.TABLE_COMMITTED) or (
        kill.point is Failpoint.TABLE_COMMITTED and kill.pass_ == len(write.tables)
    )
    return Outcome.FINISHED if moved else Outcome.UNDONE


def page() -> str:
    """The reference page of the matrix."""
    lines = [
        "# Kill matrix",
        "",
        "A *failpoint* is a named step of the commit protocol. A test kills the process of a write (`SIGKILL`) at a",
        "failpoint and then opens the graph again, which runs [recovery](../guide/durability.md#when-a-writer-dies).",
        "This page lists the state of the graph after that. The tests also check that every table is at its version",
        "in the manifest, that no sidecar is left, and that the next write succeeds. If the killed write had stored",
        "a sidecar, `omnigraph recovery list` has exactly one record of it, otherwise none.",
        "",
        "`python -m tests.commit.matrix` writes this page. `tests/commit/test_kill_matrix.py`,",
        "`tests/write/test_kill_matrix.py`, `tests/merge/test_kill_matrix.py` and",
        "`tests/migrate/test_kill_matrix.py` test it.",
        "",
        "In the tables, each row is a write and each column is a failpoint; `#2` is the second time that the write",
        "passes the failpoint. The column *writer* is the kind of write that the sidecar contains. All kinds use the",
        "same commit protocol. For the first two tables, the tests kill writes that apply one operation to one, two",
        "or five tables. For the next two tables, they kill complete loads, mutations, merges and schema changes.",
        "These tests also compare the values of all entities. Then they send the request again, with its idempotency",
        "key, and check that the graph is the same as after one successful request.",
        "",
        "- **none**: nothing of the write is visible, and there was nothing to recover.",
        "- **none, undone**: nothing of the write is visible; recovery has rolled it back.",
        "- **all, finished**: the whole write is visible; recovery has rolled it forward.",
        "- **all**: the whole write is visible, and there was nothing to recover.",
        "",
    ]
    for forks, where in ((False, "on `main`"), (True, "first write on a branch")):
        lines += [f"## Operations, {where}", ""]
        lines += _rows([write for write in writes() if write.forks is forks])
    for forks, where in ((False, "on `main`"), (True, "first write on a branch")):
        lines += [f"## Loads, mutations, merges, branch updates, reverts, cherry-picks and schema changes, {where}", ""]
        whole: list[Killable] = [*requests(), *merges(), *picks(), *schema_changes(), *updates()]
        lines += _rows([write for write in whole if write.forks is forks])
    lines += [
        "## Recovery, branches, transactions, cleanup, creation and copies",
        "",
        "| killed at | state of the graph afterwards |",
        "|---|---|",
        *(f"| `{point}`, in recovery | the same as without the interruption |" for point in RECOVERY_POINTS),
        *(f"| `{point}`, in a repair | the next repair completes the interrupted one |" for point in REPAIR_POINTS),
        "| `late_version_checked`, while a writer undoes a table version that a paused process created late |"
        " the next write undoes the version |",
        "| `branch_create_checked`, `branch_ledger_created`, `branch_ref_pending`, `branch_confirm_checked` |"
        " no branch; the name can be used |",
        "| `branch_ref_created` | the branch exists |",
        "| `branch_delete_checked` | the branch is unchanged |",
        "| `branch_closed`, `branch_ref_deleted` | no branch; the name can be used; cleanup removes the files |",
        "| `branch_reset_created`, `branch_reset_intended`, `branch_reset_checked` |"
        " the branch is unchanged; its head has a tag |",
        "| `branch_reset_closed`, `branch_reset_done` | the branch is at the other commit; its old head has a tag |",
        "| `tag_create_checked` | no tag |",
        "| `tag_ref_created`, `tag_delete_checked` | the tag exists |",
        "| `migration_ref_written` | the graph has the older format; the next open for writing migrates it |",
        "| `migration_stamped` | the graph has the new format |",
        "| `transaction_recorded`, or any point in the block of a transaction |"
        " nothing of the transaction is visible |",
        "| `transaction_merged`, `transaction_forks_removed`, `transaction_ref_removed` |"
        " the whole transaction is visible |",
        "| `cleanup_versions_removed` | the same as without cleanup; the next cleanup removes the unneeded files |",
        "| `table_packed`, in `optimize`, after the compaction and before the indexes are built | none, undone |",
        "| `table_packed`, in a schema change, after new columns and before other columns become required or nullable |"
        " none, undone |",
        "| `init_claimed` | no graph; creating it again works |",
        "| `init_schema_written`, `init_tables_created` | no graph; creating it again works with `--force` |",
        "| `init_committed` | the graph exists |",
        "| `place_manifest_rewritten`, `place_rewritten`, `place_ended`, in a copied graph | reads are unchanged; the "
        "next open for writing adopts the new location |",
        "| `copy_marked`, `copy_file_copied`, `copy_files_copied`, `copy_tables_published`, `copy_published` | after "
        "a restore: no graph; after a second backup: a readable backup; the next attempt completes it |",
    ]
    lines += [
        "",
        "## Pauses",
        "",
        "A process may be paused (`SIGSTOP`) between a check and the step that relies on it, for longer than its",
        "[lease](../guide/durability.md#many-processes). The tests pause a process at a failpoint, run conflicting",
        "operations in another process, and then continue the first process. `tests/commit/test_pause_matrix.py`",
        "tests this table.",
        "",
        "| paused at | operation of the paused process | operations of the other process | outcome |",
        "|---|---|---|---|",
        *(f"| `{point}` | {act} | {contrary} | {end} |" for point, (act, contrary, end) in PAUSES.items()),
    ]
    lines += [
        "",
        "## Loads on Spark",
        "",
        "The tests use a Spark cluster of a master and two worker processes, with speculative execution of slow tasks.",
        "After any kill, the graph is unchanged, or it has one new commit with the same rows as after a local load. A",
        "second load with the idempotency key of a successful load changes nothing. Cleanup removes exactly the files",
        "that no table version needs. `tests/pipeline/test_cluster.py` and `tests/pipeline/test_killed_driver.py` test",
        "this table.",
        "",
        "| killed process | when | rows of the load |",
        "|---|---|---|",
        "| an executor | before a task has written its rows | all; its tasks run again |",
        "| an executor | after a task has written its rows, before it reports them | all, and orphan files |",
        "| an executor | after it has sent rows to the tasks that compare them | all; the rows are sent again |",
        "| an executor | while rows are compared | all; the rows are compared again |",
        "| a worker with its executor | after a task has written its rows | all, and orphan files |",
        "| no process, but a task hangs | after it has written its rows | all, from the second attempt of the task |",
        "| the driver | while tasks read, or before rows are compared | none, and orphan files |",
        "| the driver | `captured`, `staged`, `leased` | none, and orphan files |",
        "| the driver | `sidecar_written`, `table_committed` | none, undone |",
        "| the driver | `tables_committed`, `before_publish`, `published` | all, finished |",
        "| the driver | `sidecar_removed` | all |",
    ]
    return "\n".join(lines) + "\n"


def _rows(chosen: Sequence[Killable]) -> list[str]:
    """One table of the page."""
    widest = max((list(kills(write)) for write in chosen), key=len)
    lines = ["| writer | operation | tables | " + " | ".join(f"`{kill}`" for kill in widest) + " |"]
    lines += ["|" + "---|" * (len(widest) + 3)]
    for write in chosen:
        cells = [str(outcome(write, kill)) if kill in kills(write) else "" for kill in widest]
        what = [write.kind.value, write.what, str(len(write.tables))]
        lines.append("| " + " | ".join([*what, *cells]) + " |")
    return [*lines, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
