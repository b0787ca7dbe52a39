"""The kill matrix: every kind of write, killed at every failpoint, and the expected state afterwards.

Run as a program, this module writes the documentation page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tests.commit.graphs import NODES, SEED, TABLES, Operation
from tests.merge.merges import merges
from tests.write.requests import requests

from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.table_writes import (
    AppendFragments,
    ChangeFragments,
    Compact,
    DeleteIds,
    DropDamagedIndexes,
    OverwriteFragments,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "kill-matrix.md"


class Outcome(StrEnum):
    """The state that the next writer finds, as the page names it."""

    NOTHING = "none"
    """Nothing is visible, and there is no sidecar: the write never began."""
    UNDONE = "none, undone"
    """Nothing is visible; recovery rolled the write back."""
    FINISHED = "all, finished"
    """Everything is visible; recovery rolled the write forward."""
    DONE = "all"
    """Everything is visible, and the write had removed its sidecar."""

    @property
    def visible(self) -> bool:
        return self in (Outcome.FINISHED, Outcome.DONE)

    @property
    def audited(self) -> bool:
        return self in (Outcome.UNDONE, Outcome.FINISHED)


class Killable(Protocol):
    """A write that passes the failpoints of the commit protocol.

    Attributes:
        what: its operation on its tables.
        forks: whether it is the first on a branch, so that its tables are forked.
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
        forks: whether it is the first on a branch, so that its tables are forked.
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
        """The content of each table after the write is visible."""
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
    """A failpoint to be killed at. Some are passed once per table."""

    point: Failpoint
    pass_: int = 1

    def __str__(self) -> str:
        return self.point.value if self.pass_ == 1 else f"{self.point.value} #{self.pass_}"

    @property
    def setting(self) -> str:
        return f"{self.point.value}#{self.pass_}=kill"


ELSEWHERE = (AppendFragments, OverwriteFragments, ChangeFragments, Compact, DropDamagedIndexes, DeleteIds)
"""Table writes that need preparation, and are killed during it."""


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
        "creates the branch, or one above it, and writes to it",
        "the late creation is refused; every row stays",
    ),
    Failpoint.BRANCH_LEDGER_CREATED: (
        "creating a branch",
        "creates the branch, or one above it, and writes to it",
        "the late creation is refused; every row stays",
    ),
    Failpoint.BRANCH_REF_PENDING: (
        "creating a branch",
        "creates the branch, or one above it, and writes to it",
        "the late creation is refused; every row stays",
    ),
    Failpoint.BRANCH_CONFIRM_CHECKED: (
        "creating a branch",
        "creates the branch, or one above it, and writes to it; or cleans up the version that it begins at",
        "the late creation is refused; every row stays",
    ),
    Failpoint.BRANCH_DELETE_CHECKED: (
        "deleting a branch",
        "deletes it and creates it again; or writes to it, when it was to go at one head",
        "the late deletion is refused; every row of the new branch, or the new commit, stays",
    ),
    Failpoint.BRANCH_CLOSED: (
        "deleting a branch",
        "creates a branch of that name",
        "the old branch is gone, the new one stays",
    ),
    Failpoint.BRANCH_REF_DELETED: (
        "deleting a branch",
        "creates a branch of that name",
        "the old branch is gone, the new one stays",
    ),
    Failpoint.TAG_CREATE_CHECKED: (
        "creating a tag",
        "creates the tag at another commit",
        "the late creation is refused",
    ),
    Failpoint.TAG_DELETE_CHECKED: ("deleting a tag", "deletes it and creates it again", "the new tag stays"),
    Failpoint.LEASED: (
        "changing the schema; writing to a branch",
        "changes the schema and writes to the new table; deletes the branch and creates it again",
        "the late write is refused, or begins again; every row stays",
    ),
    Failpoint.SIDECAR_WRITTEN: (
        "changing the schema",
        "settles it, changes the schema and writes to the new table",
        "every row stays",
    ),
    Failpoint.TABLES_COMMITTED: (
        "changing the schema; writing to a branch",
        "settles it and writes; deletes the branch and creates it again",
        "every row stays; nothing is published to the new branch",
    ),
    Failpoint.BEFORE_PUBLISH: (
        "changing the schema; writing to a branch",
        "settles it and writes; deletes the branch and creates it again",
        "every row stays; nothing is published to the new branch",
    ),
    Failpoint.PUBLISHED: ("changing the schema", "puts the schema files in their places and writes", "every row stays"),
    **dict.fromkeys(
        RECOVERY_POINTS,
        (
            "settling an interrupted write",
            "settles it and writes to the same tables",
            "every row stays; a table that the late recovery moved is put back by the next writer",
        ),
    ),
    Failpoint.LATE_VERSION_CHECKED: (
        "undoing a table version that came late",
        "undoes it and writes to the same table",
        "every row stays; a table that the late undo moved is put back by the next writer",
    ),
    **dict.fromkeys(
        (Failpoint.REPAIR_FILE_CHECKED, Failpoint.TORN_COPIED, Failpoint.REPAIR_SET_ASIDE),
        (
            "repairing a torn version of a table or of the manifest, or the damaged reference of a branch",
            "repairs it and writes, or makes the branch again and writes to it",
            "the late act finds another file, and leaves it; every row stays",
        ),
    ),
    Failpoint.REPAIR_MANIFEST_CHECKED: (
        "repairing a torn version of the manifest",
        "repairs it and writes",
        "the late act finds another file, and leaves it; every row stays",
    ),
    **dict.fromkeys(
        (
            Failpoint.REPAIR_TABLE_CHECKED,
            Failpoint.REPAIR_RESTORED,
            Failpoint.REPAIR_PUBLISH_CHECKED,
            Failpoint.REPAIR_PUBLISHED,
        ),
        (
            "repairing a table whose data are damaged",
            "repairs it and writes to it",
            "every row stays; the late publish is refused; a table that was moved late is put back by the next writer",
        ),
    ),
    Failpoint.REPAIR_SIDECAR_CHECKED: (
        "setting a sidecar aside that cannot be settled",
        "puts back the file that is missing, settles it and writes",
        "the late act finds no file; every row stays",
    ),
    **dict.fromkeys(
        CLEANUP_POINTS,
        (
            "cleaning up",
            "names old and new commits by branches, tags and pins, writes, and cleans up, too",
            "whatever was acknowledged can be read; the rest is refused with `version_reclaimed`",
        ),
    ),
    Failpoint.STAGED: (
        "a mutation, a load or a merge",
        "cleans up, files of no age included",
        "the write lands, with all its files",
    ),
    Failpoint.INIT_CLAIMED: ("creating a graph", "creates it with `--force` and loads", "every row stays"),
    Failpoint.INIT_SCHEMA_WRITTEN: ("creating a graph", "creates it with `--force` and loads", "every row stays"),
    Failpoint.INIT_TABLES_CREATED: ("creating a graph", "creates it with `--force` and loads", "every row stays"),
}
"""Failpoints at which a process is paused for longer than its lease: the action, the concurrent action, the outcome."""


def outcome(write: Killable, kill: Kill) -> Outcome:
    """The expected outcome: the whole write if every table has moved, otherwise none of it."""
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
    """The page that shows the matrix."""
    lines = [
        "# Kill matrix",
        "",
        "What is left when a writer is killed (`SIGKILL`) at each named place of a write, and the graph is opened",
        "again. The same tests check that every table is where the graph points, that no sidecar is left, that the",
        "audit has exactly one row where a sidecar existed and none otherwise, and that the next write succeeds. This",
        "page is written by `python -m tests.commit.matrix`; `tests/commit/test_kill_matrix.py`,",
        "`tests/write/test_kill_matrix.py` and `tests/merge/test_kill_matrix.py` hold it.",
        "",
        "The writer is the kind that the sidecar records. All kinds share one way of committing. The first two tables",
        "kill each kind in it, with the operation that is shown. The next two kill whole loads, mutations and merges;",
        "those tests check the values of all entities, too, and that sending the same request again, with its",
        "idempotency key, gives what sending it once gives.",
        "",
        "- **none**: nothing is visible, the write never began.",
        "- **none, undone**: nothing is visible, the next opener has put the moved tables back.",
        "- **all, finished**: everything is visible, the next opener has finished the write.",
        "- **all**: everything is visible, and there was nothing left to do.",
        "",
    ]
    for forks, where in ((False, "on `main`"), (True, "first on a branch")):
        lines += [f"## Operations, {where}", ""]
        lines += _rows([write for write in writes() if write.forks is forks])
    for forks, where in ((False, "on `main`"), (True, "first on a branch")):
        lines += [f"## Loads, mutations and merges, {where}", ""]
        whole: list[Killable] = [*requests(), *merges()]
        lines += _rows([write for write in whole if write.forks is forks])
    lines += [
        "## Recovery, branches, transactions, cleanup, creation and copies",
        "",
        "| killed at | what is left |",
        "|---|---|",
        *(
            f"| `{point}`, finishing or undoing a write | the same as if recovery had not been interrupted |"
            for point in RECOVERY_POINTS
        ),
        *(f"| `{point}`, repairing | running it again ends as it would have |" for point in REPAIR_POINTS),
        "| `late_version_checked`, undoing a table version that came late | the next write undoes it |",
        "| `branch_create_checked`, `branch_ledger_created`, `branch_ref_pending`, `branch_confirm_checked` |"
        " no branch; its name can be used |",
        "| `branch_ref_created` | the branch exists |",
        "| `branch_delete_checked` | the branch is as it was |",
        "| `branch_closed`, `branch_ref_deleted` | the branch is gone; its name can be used; cleanup takes its files |",
        "| `tag_create_checked` | no tag |",
        "| `tag_ref_created`, `tag_delete_checked` | the tag exists |",
        "| `migration_ref_written` | the older format; the next open for writing migrates it |",
        "| `migration_stamped` | the new format |",
        "| `transaction_recorded`, or anywhere in the block of a transaction | none of the transaction |",
        "| `transaction_merged`, `transaction_forks_removed`, `transaction_ref_removed` | all of the transaction |",
        "| `cleanup_versions_removed` | the same as without cleanup; files that nothing needs go with the next one |",
        "| `table_packed`, in an optimize: rows are packed, indexes not built | none, undone |",
        "| `init_claimed` | no graph; creating it again works |",
        "| `init_schema_written`, `init_tables_created` | no graph; creating it again works with `--force` |",
        "| `init_committed` | the graph exists |",
        "| `place_manifest_rewritten`, `place_rewritten`, `place_ended`, in a copied graph | it answers as before; the "
        "next open for writing settles it in its place |",
        "| `copy_marked`, `copy_file_copied`, `copy_files_copied`, `copy_tables_published`, `copy_published` | of a "
        "restore, no graph; of a second backup, one that can be read; the next attempt copies what is missing |",
    ]
    lines += [
        "",
        "## Pauses",
        "",
        "A check is no fence: a process may be stopped (`SIGSTOP`) right after one, for longer than its lease. Another",
        "process then does the contrary act, and the first goes on. `tests/commit/test_pause_matrix.py` holds it.",
        "",
        "| stopped at | while | the other process | outcome |",
        "|---|---|---|---|",
        *(f"| `{point}` | {act} | {contrary} | {end} |" for point, (act, contrary, end) in PAUSES.items()),
    ]
    lines += [
        "",
        "## Loads on Spark",
        "",
        "On a cluster of a master and two workers, each a process of its own, with second attempts at slow tasks.",
        "Whoever dies, the graph that comes out is the one that a load in one process makes, row by row, as one",
        "commit; a second load with the same idempotency key is not carried out again; cleanup removes what was",
        "written for nothing, and not a byte else. `tests/pipeline/test_cluster.py` and",
        "`tests/pipeline/test_killed_driver.py` hold it.",
        "",
        "| killed | when | what is left |",
        "|---|---|---|",
        "| an executor | before a task has written its rows | all: its tasks are made again |",
        "| an executor | after a task has written its rows, before it says so | all, and rows that nothing points at |",
        "| an executor | when it has sent rows to the tasks that compare them | all: they are sent again |",
        "| an executor | while rows are compared | all: they are compared again |",
        "| a worker with its executor | after a task has written its rows | all, and rows that nothing points at |",
        "| nobody, but a task never ends | after it has written its rows | all, from the second attempt |",
        "| the driver | while tasks read, or before anything is compared | none, and rows that nothing points at |",
        "| the driver | `captured`, `staged`, `leased` | none, and rows that nothing points at |",
        "| the driver | `sidecar_written`, `table_committed` | none, undone |",
        "| the driver | `tables_committed`, `before_publish`, `published` | all, finished |",
        "| the driver | `sidecar_removed` | all |",
    ]
    return "\n".join(lines) + "\n"


def _rows(chosen: Sequence[Killable]) -> list[str]:
    """A table of the page."""
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
