"""Failpoints: named steps in the code at which tests make a write fail or the process die.

A failpoint is off unless the environment variable `OMNIGRAPH_FAILPOINT` names it. `name=kill` ends the process with
SIGKILL. `name=error` raises an error that the writer may handle. `name=crash` raises an error that no writer handles,
as an interrupt would. `name=hold:PATH` creates the file PATH and waits until it is removed. With a count, as in
`name#2=kill`, the failpoint acts when it is reached for the second time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from omnigraph.settings import FAILPOINT


class Failpoint(StrEnum):
    """All failpoints, in the order in which a write passes them."""

    CAPTURED = "captured"
    STAGED = "staged"
    FORKED = "forked"
    LEASED = "leased"
    SIDECAR_WRITTEN = "sidecar_written"
    TABLE_PACKED = "table_packed"
    TABLE_COMMITTED = "table_committed"
    TABLES_COMMITTED = "tables_committed"
    BEFORE_PUBLISH = "before_publish"
    PUBLISHED = "published"
    SIDECAR_REMOVED = "sidecar_removed"
    TORN_COPIED = "torn_copied"
    RECOVERY_STARTED = "recovery_started"
    RECOVERY_CHECKED = "recovery_checked"
    RECOVERY_RESTORED = "recovery_restored"
    RECOVERY_PUBLISHED = "recovery_published"
    RECOVERY_AUDITED = "recovery_audited"
    LATE_VERSION_CHECKED = "late_version_checked"
    TRANSACTION_RECORDED = "transaction_recorded"
    TRANSACTION_MERGED = "transaction_merged"
    TRANSACTION_FORKS_REMOVED = "transaction_forks_removed"
    TRANSACTION_REF_REMOVED = "transaction_ref_removed"
    BRANCH_CREATE_CHECKED = "branch_create_checked"
    BRANCH_LEDGER_CREATED = "branch_ledger_created"
    BRANCH_REF_PENDING = "branch_ref_pending"
    BRANCH_CONFIRM_CHECKED = "branch_confirm_checked"
    BRANCH_REF_CREATED = "branch_ref_created"
    BRANCH_DELETE_CHECKED = "branch_delete_checked"
    BRANCH_CLOSED = "branch_closed"
    BRANCH_REF_DELETED = "branch_ref_deleted"
    TAG_CREATE_CHECKED = "tag_create_checked"
    TAG_REF_CREATED = "tag_ref_created"
    TAG_DELETE_CHECKED = "tag_delete_checked"
    MIGRATION_REF_WRITTEN = "migration_ref_written"
    MIGRATION_STAMPED = "migration_stamped"
    CLEANUP_LOOKED = "cleanup_looked"
    CLEANUP_PROPOSED = "cleanup_proposed"
    CLEANUP_CHECKED = "cleanup_checked"
    CLEANUP_DECIDED = "cleanup_decided"
    CLEANUP_VERSIONS_REMOVED = "cleanup_versions_removed"
    CLEANUP_FILES_REMOVED = "cleanup_files_removed"
    REPAIR_FILE_CHECKED = "repair_file_checked"
    REPAIR_MANIFEST_CHECKED = "repair_manifest_checked"
    REPAIR_TABLE_CHECKED = "repair_table_checked"
    REPAIR_PUBLISH_CHECKED = "repair_publish_checked"
    REPAIR_SIDECAR_CHECKED = "repair_sidecar_checked"
    REPAIR_SET_ASIDE = "repair_set_aside"
    REPAIR_RESTORED = "repair_restored"
    REPAIR_PUBLISHED = "repair_published"
    PLACE_MANIFEST_REWRITTEN = "place_manifest_rewritten"
    PLACE_REWRITTEN = "place_rewritten"
    PLACE_ENDED = "place_ended"
    COPY_MARKED = "copy_marked"
    COPY_FILE_COPIED = "copy_file_copied"
    COPY_FILES_COPIED = "copy_files_copied"
    COPY_TABLES_PUBLISHED = "copy_tables_published"
    COPY_PUBLISHED = "copy_published"
    INIT_CLAIMED = "init_claimed"
    INIT_SCHEMA_WRITTEN = "init_schema_written"
    INIT_TABLES_CREATED = "init_tables_created"
    INIT_COMMITTED = "init_committed"


class FailpointError(Exception):
    """Raised by an armed failpoint."""


class SimulatedCrashError(BaseException):
    """Simulates the end of the process: no error handler catches it, so nothing is settled."""


_passed: dict[str, int] = {}


@contextmanager
def armed(point: Failpoint, action: str = "error", *, reached: int = 1) -> Iterator[None]:
    """Arm one failpoint of this process while the block runs."""
    before = FAILPOINT.get()
    _passed.clear()
    os.environ[FAILPOINT.name] = f"{point.value}#{reached}={action}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FAILPOINT.name]
        else:
            os.environ[FAILPOINT.name] = before


def reach(point: Failpoint) -> None:
    """Pass a failpoint. Does nothing unless it is armed."""
    setting = FAILPOINT.get()
    if not setting:
        return
    where, _, action = setting.partition("=")
    name, _, count = where.partition("#")
    if name != point.value:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] != int(count or 1):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.startswith("hold:"):
        _hold(Path(action.partition(":")[2]))
    elif action == "crash":
        raise SimulatedCrashError(point.value)
    else:
        raise FailpointError(point.value)


def _hold(sign: Path) -> None:
    """Create the file `sign`, and wait until it is removed. Other threads continue."""
    sign.touch()
    while sign.exists():
        time.sleep(0.005)
