"""Maintenance of an open graph: indexes, optimize, cleanup, verify, repair and backup."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from omnigraph.commit.work_records import WorkKind, reading
from omnigraph.engine.backends import backend_of
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.engines import Choice, Engine, SparkOptions
from omnigraph.engine.opening import store_at
from omnigraph.engine.requests import OptimizeRequest
from omnigraph.engine.session import At, Session
from omnigraph.upkeep import backup as copying
from omnigraph.upkeep import cleanup as cleaning
from omnigraph.upkeep import indexes as indexing
from omnigraph.upkeep import optimize as packing
from omnigraph.upkeep import repair as repairing
from omnigraph.upkeep.backup import CopyReceipt
from omnigraph.upkeep.cleanup import CleanupReport
from omnigraph.upkeep.indexes import IndexCoverage, IndexReceipt
from omnigraph.upkeep.optimize import OptimizeReceipt, Workers
from omnigraph.upkeep.reachable import Policy
from omnigraph.upkeep.repair import RepairReport
from omnigraph.upkeep.verify_files import verify_files
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.verify import IntegrityReport
from omnigraph.write.rules.verify import verify as verify_rows
from omnigraph.write.spill import memory_budget


def index_coverage(session: Session, branch: str | None, at: At | None) -> list[IndexCoverage]:
    """The declared indexes, and the number of rows that each covers."""
    view = session.snapshot_at(branch, at)
    return indexing.coverage(view, session.schemas.at(view).catalog)


def ensure_indexes(session: Session, branch: str | None) -> IndexReceipt:
    """Build missing indexes as one commit, and the adjacency arrays (topologies) in the disk cache."""
    session.require_writable()
    target = session.branch_or_default(branch)
    receipt = indexing.ensure_indexes(session.store, target, lambda view: session.schemas.checked(view).catalog)
    session.view_of(session.snapshot(branch=target)).topologies.make_all()
    return receipt


def optimize(session: Session, request: OptimizeRequest) -> OptimizeReceipt:
    """Compact the tables of `main` and update its indexes, as one commit.

    Raises:
        WriteTimeoutError: other writers delayed the commit past its timeout.
    """
    session.require_writable()
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
            rows_per_fragment=request.rows_per_fragment,
            segment_rows=(request.spark or SparkOptions()).segment_rows,
        )
    last = choices[-1]
    return replace(done, engine=last.engine.value, why=last.why)


def cleanup(session: Session, policy: Policy, *, preview: bool) -> CleanupReport:
    """Remove unreferenced versions, and files of crashed writers."""
    if not preview:
        session.require_writable()
    return cleaning.cleanup(session.store, policy, preview=preview)


def verify(session: Session, *, branch: str | None, commit: str | None) -> IntegrityReport:
    """Check all files of a state, and all constraints on its rows. Skips the constraints if a file is damaged."""
    view = session.snapshot(branch=branch, commit=commit)
    entities = {key: pin.row_count for key, pin in view.tables.items()}
    with reading(session.store.leases, WorkKind.VERIFY, view.manifest):
        files = verify_files(session.store, view.manifest)
        if files.lost:
            return IntegrityReport(view.branch, view.commit, entities, (), 0, files)
        found = verify_rows(session.schemas.at(view), view, MemoryLimit(memory_budget(None)))
    return IntegrityReport(view.branch, view.commit, entities, tuple(found.first), found.total, files)


def repair(session: Session, *, confirm: bool, force: bool) -> RepairReport:
    """Compare every table with the manifest. Repair only with `confirm`."""
    if confirm:
        session.require_writable()
    return repairing.repair(session.store, confirm=confirm, force=force)


def backup(
    session: Session,
    target: str | os.PathLike[str],
    *,
    keep: int | None,
    storage_options: Mapping[str, str] | None,
) -> CopyReceipt:
    """Copy the graph to another location. A writable session protects the copied versions from cleanup."""
    options = dict(session.storage_options) if storage_options is None else storage_options
    return copying.backup(session.store, store_at(target, options), keep=keep, hold=not session.read_only)
