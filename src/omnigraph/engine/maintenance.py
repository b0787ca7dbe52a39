"""Maintenance of an open graph: indexes, optimize, cleanup, verify, repair and backup."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from threading import Event
from typing import Any

from omnigraph.commit.recover_all import recover_all
from omnigraph.commit.retention import ORPHANS_OLDER_THAN
from omnigraph.commit.work_records import WorkKind, reading
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.backends import backend_of
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.engines import Choice, Engine, SparkOptions
from omnigraph.engine.opening import store_at
from omnigraph.engine.requests import OptimizeRequest
from omnigraph.engine.session import At, Session
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    InputError,
    RetryableError,
    StorageError,
    StorageErrorKind,
    VersionReclaimedError,
    shown,
)
from omnigraph.migrate.hard_drops import finish_drops
from omnigraph.migrate.receipt import HardDrop
from omnigraph.upkeep import backup as copying
from omnigraph.upkeep import cleanup as cleaning
from omnigraph.upkeep import indexes as indexing
from omnigraph.upkeep import optimize as packing
from omnigraph.upkeep import repair as repairing
from omnigraph.upkeep import status as examining
from omnigraph.upkeep.backup import CopyReceipt
from omnigraph.upkeep.cleanup import CleanupReport
from omnigraph.upkeep.indexes import IndexCoverage, IndexReceipt
from omnigraph.upkeep.optimize import OptimizeReceipt, Workers
from omnigraph.upkeep.reachable import Policy
from omnigraph.upkeep.repair import RepairReport
from omnigraph.upkeep.status import GraphStatus, Thresholds, debts
from omnigraph.upkeep.verify_files import verify_files
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.verify import IntegrityReport
from omnigraph.write.rules.verify import verify as verify_rows
from omnigraph.write.spill import memory_budget


def index_coverage(session: Session, branch: str | None, at: At | None) -> list[IndexCoverage]:
    """The declared indexes, and the number of rows that each covers."""
    session.allow(Action.ADMIN)
    session.require_whole("indexes")
    view = session.snapshot_at(branch, at)
    return indexing.coverage(view, session.schemas.at(view).catalog)


def ensure_indexes(session: Session, branch: str | None) -> IndexReceipt:
    """Build missing indexes as one commit, and the adjacency arrays (topologies) in the disk cache."""
    session.require_whole("indexes ensure")
    session.require_writable()
    session.allow(Action.ADMIN)
    target = session.branch_or_default(branch)
    receipt = indexing.ensure_indexes(session.store, target, lambda view: session.schemas.checked(view).catalog)
    session.view_of(session.snapshot(branch=target)).topologies.make_all()
    return receipt


def optimize(session: Session, request: OptimizeRequest) -> OptimizeReceipt:
    """Compact the tables of a branch and update its indexes, as one commit.

    Raises:
        BranchNotFoundError: there is no such branch.
        WriteTimeoutError: other writers delayed the commit past its timeout.
    """
    session.require_whole("optimize")
    session.require_writable()
    session.allow(Action.ADMIN)
    choices: list[Choice] = []
    opened: dict[Engine, Workers] = {}
    with ExitStack() as held:

        def workers(size: int) -> Workers:
            choice = choose_engine(session, request, lambda: size, "to rewrite")
            choices.append(choice)
            if choice.engine not in opened:
                opened[choice.engine] = held.enter_context(backend_of(choice, request).workers(session))
            return opened[choice.engine]

        done = packing.optimize(
            session.store,
            lambda view: session.schemas.checked(view).catalog,
            workers,
            branch=session.branch_or_default(request.branch),
            rows_per_fragment=request.rows_per_fragment,
            segment_rows=(request.spark or SparkOptions()).segment_rows,
        )
    last = choices[-1]
    return replace(done, engine=last.engine.value, why=last.why)


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """The result of one round of upkeep.

    Attributes:
        status: the condition of the graph before the round.
        optimized: the branches that were optimized, with their receipts.
        cleanup: the result of the cleanup; None if it was not due.
        error: a temporary error that ended the round, such as a conflict with other writers; None if there was none.
        hard_drops: the removals of dropped data that were completed.
    """

    status: GraphStatus | None
    optimized: tuple[tuple[str, OptimizeReceipt], ...] = ()
    cleanup: CleanupReport | None = None
    error: str | None = None
    hard_drops: tuple[HardDrop, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return not self.optimized and self.cleanup is None and self.error is None and not self.hard_drops

    def to_json(self) -> dict[str, Any]:
        """The report as the JSON object that all user interfaces return."""
        cleaned = self.cleanup
        return {
            "optimized": {branch: receipt.to_json() for branch, receipt in self.optimized},
            "cleanup": None
            if cleaned is None
            else {"versions_removed": cleaned.versions_removed, "bytes_removed": cleaned.bytes_removed},
            "hard_drops": [drop.to_json() for drop in self.hard_drops],
            "error": self.error,
        }


def status(session: Session, thresholds: Thresholds | None = None) -> GraphStatus:
    """Report the condition of the graph, with the commands that improve it. See `upkeep.status`."""
    session.allow(Action.ADMIN)
    session.require_whole("status")
    return examining.status(session.store, lambda view: session.schemas.of(view).catalog, _limits(thresholds))


def _limits(thresholds: Thresholds | None) -> Thresholds:
    if thresholds is not None and not isinstance(thresholds, Thresholds):
        raise InputError(f"{shown(thresholds)} is not a Thresholds object", hint="give omnigraph.Thresholds(...)")
    return thresholds or Thresholds()


def upkeep(
    session: Session, thresholds: Thresholds | None = None, stop: Event | None = None, known: set[str] | None = None
) -> UpkeepReport:
    """Recover interrupted writes, optimize the branches and clean up, as far as the thresholds demand it.

    Completes hard drops that were interrupted, whatever the thresholds are.

    Args:
        session: the session.
        thresholds: the thresholds above which a command runs; by default from the settings.
        stop: ends the round after the current command.
        known: heads of branches for which `optimize` had nothing to do. These are skipped, and new ones are added.

    Raises:
        ReadOnlyError: the session is read-only.
        InputError: the thresholds are of another type.
        CorruptionError: the graph is damaged.
    """
    session.require_whole("upkeep")
    session.require_writable()
    session.allow(Action.ADMIN)
    limits = _limits(thresholds)
    settled = set() if known is None else known
    recover_all(session.store)
    found = status(session, limits)
    dropped = finish_drops(session.store) if found.unfinished_drops else ()
    optimized: list[tuple[str, OptimizeReceipt]] = []
    for branch in found.branches:
        if stop is not None and stop.is_set():
            return UpkeepReport(found, tuple(optimized), hard_drops=dropped)
        if branch.head in settled or not any(True for _ in debts(branch, limits)):
            continue
        with suppress(BranchNotFoundError):  # deleted meanwhile
            receipt = optimize(session, OptimizeRequest(branch=branch.name))
            settled.add(branch.head if receipt.commit is None else receipt.commit.id)
            if receipt.commit is not None:
                optimized.append((branch.name, receipt))
    cleaned = None
    due = sum(branch.removable for branch in found.branches) > limits.versions
    if due and not (stop is not None and stop.is_set()):
        cleaned = cleanup(session, Policy(limits.keep, limits.older_than, ORPHANS_OLDER_THAN), preview=False)
    return UpkeepReport(found, tuple(optimized), cleaned, hard_drops=dropped)


def watch(session: Session, thresholds: Thresholds | None, interval: float, stop: Event) -> Iterator[UpkeepReport]:
    """Run upkeep again and again, until `stop` is set.

    Several processes may do this at the same time. Temporary errors are reported, and the next round tries again.

    Args:
        session: the session.
        thresholds: the thresholds above which a command runs; by default from the settings.
        interval: seconds between two rounds.
        stop: ends the loop after the current command.
    """
    session.require_whole("upkeep")
    settled: set[str] = set()
    while not stop.is_set():
        try:
            yield upkeep(session, thresholds, stop, settled)
        # A branch may be deleted, or another cleanup may remove the versions that are being read.
        except (BranchNotFoundError, ConflictError, RetryableError, VersionReclaimedError) as error:
            yield UpkeepReport(None, error=str(error))
        except StorageError as error:
            if error.kind is not StorageErrorKind.TRANSIENT:
                raise
            yield UpkeepReport(None, error=str(error))
        stop.wait(interval)


def cleanup(session: Session, policy: Policy, *, preview: bool) -> CleanupReport:
    """Remove unreferenced versions, and files of crashed writers."""
    session.require_whole("cleanup")
    if not preview:
        session.require_writable()
    session.allow(Action.ADMIN)
    return cleaning.cleanup(session.store, policy, preview=preview)


def verify(session: Session, *, branch: str | None, commit: str | None, at: At | None = None) -> IntegrityReport:
    """Check all files of a state, and all constraints on its rows. Skips the constraints if a file is damaged.

    Raises:
        InputError: both a commit and a state are given.
    """
    session.allow(Action.ADMIN)
    session.require_whole("verify")
    if commit is not None and at is not None:
        raise InputError("give only one of commit and at")
    view = session.snapshot(branch=branch, commit=commit) if at is None else session.snapshot_at(branch, at)
    entities = {key: pin.row_count for key, pin in view.tables.items()}
    with reading(session.store.leases, WorkKind.VERIFY, view.manifest):
        files = verify_files(session.store, view.manifest)
        if files.lost:
            return IntegrityReport(view.branch, view.commit, entities, (), 0, files)
        found = verify_rows(session.schemas.at(view), view, MemoryLimit(memory_budget(None)))
    return IntegrityReport(view.branch, view.commit, entities, tuple(found.first), found.total, files)


def repair(session: Session, *, confirm: bool, force: bool) -> RepairReport:
    """Compare every table with the manifest. Repair only with `confirm`."""
    session.require_whole("repair")
    if confirm:
        session.require_writable()
    session.allow(Action.ADMIN)
    return repairing.repair(session.store, confirm=confirm, force=force)


def backup(
    session: Session,
    target: str | os.PathLike[str],
    *,
    keep: int | None,
    storage_options: Mapping[str, str] | None,
) -> CopyReceipt:
    """Copy the graph to another location. A writable session protects the copied versions from cleanup."""
    session.allow(Action.ADMIN)
    session.require_whole("backup")
    options = dict(session.storage_options) if storage_options is None else storage_options
    return copying.backup(session.store, store_at(target, options), keep=keep, hold=not session.read_only)
