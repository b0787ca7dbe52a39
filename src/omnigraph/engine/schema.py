"""The verbs `schema plan` and `schema apply`."""

# See docs/decisions/0191-a-schema-change-is-not-planned-again.md

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial

from omnigraph.commit.manifest import MAIN, Commit, Manifest
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.engine.access import Action
from omnigraph.engine.backends import backend_of
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.engines import Choice, Engine, parse_engine
from omnigraph.engine.opening import schema_text
from omnigraph.engine.requests import SchemaApplyRequest
from omnigraph.engine.schemas import SchemaVersion
from omnigraph.engine.session import At, Session
from omnigraph.errors import CancelledError, InputError, PreconditionFailedError, ReadSetChangedError
from omnigraph.migrate.allow import Allow
from omnigraph.migrate.costs import StepCost
from omnigraph.migrate.hard_drops import remove_dropped
from omnigraph.migrate.migration import Migration, PrepareMigration
from omnigraph.migrate.receipt import HardDrop, SchemaPlan, SchemaReceipt, parse_allow
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.spill import memory_budget


def schema_source(session: Session, branch: str | None, at: At | None) -> str:
    """The source text of the schema of a state. `branch` and `at` are those of `Session.snapshot_at`.

    Raises:
        NotFoundError: there is no such branch or commit.
    """
    session.allow(Action.READ)
    view = session.snapshot_at(branch, at)
    session.require_all_rows(Action.READ, view.manifest)
    return session.schemas.version_at(view)[0]


def known_schema(session: Session) -> SchemaVersion:
    """The schema of the default branch, as the session last read it: its source text and its accepted form.

    In a session that sees a part of the graph, the accepted form has other numbers than the stored one.

    Raises:
        AccessDeniedError: the policy does not allow the actor to read it, or hides types or properties.
    """
    if session.access is not None:
        session.allow(Action.READ)
        session.require_all_rows(Action.READ, session.store.capture(session.default_branch))
    if session.whole is None:
        return session.schema
    from omnigraph.restricted.visible_schema import renumbered

    text, accepted = session.schema
    return text, renumbered(accepted)


def plan_schema(session: Session, source: str | os.PathLike[str], *, allow: Allow | str = Allow.DROPS) -> SchemaPlan:
    """Plan the change of the schema of `main`, with the cost of each step. Changes nothing.

    Args:
        session: the graph.
        source: the text of the new schema, or the path of a `.pg` file.
        allow: with `data_loss`, drops are planned as hard drops.

    Raises:
        CompileError: the new schema does not compile.
        InputError: the new schema has no types, but the graph has some.
    """
    session.allow(Action.READ)
    session.require_whole("schema plan")
    view = session.store.capture(MAIN)
    session.require_all_rows(Action.READ, view)
    hard = parse_allow(allow) is Allow.DATA_LOSS
    return Migration.of(session.schemas.of(view), schema_text(source), hard=hard).planned(session.store, view)


def apply_schema(session: Session, request: SchemaApplyRequest) -> SchemaReceipt:
    """Change the schema of `main`, as one commit.

    Raises:
        InputError: the request names another branch than `main`, or the new schema drops all types.
        CompileError: the new schema does not compile.
        PlanError: a step is refused, or more severe than `allow` permits.
        SchemaDataError: stored rows do not fit the new schema.
        ReadSetChangedError: another process has changed the schema meanwhile.
    """
    session.require_whole("schema apply")
    session.require_writable()
    branch = session.branch_or_default(request.branch)
    if branch != MAIN:
        raise InputError(
            f"the schema of branch '{branch}' cannot be changed by itself: schemas change on 'main'",
            hint=f"apply the schema to 'main', then bring it into the branch: omnigraph branch update {branch}",
        )
    session.allow(Action.SCHEMA_APPLY, target_branch=MAIN)
    allow = parse_allow(request.allow)
    request = replace(request, allow=allow, schema=schema_text(request.schema))
    try:
        return _apply(session, request)
    except ReadSetChangedError as error:
        if error.member != "schema":
            raise
        # Another process may have applied the same schema.
        again, view = _migration(session, request)
        session.schema = session.schemas.version_of(view)
        if again.plan.steps:
            hint = "nothing of this change was applied; plan the change again"
            raise ReadSetChangedError(error.member, error.expected, error.actual, hint=hint) from error
        removed = _remove_dropped(session, request, None)
        return SchemaReceipt(again.planned(session.store, view), False, view.version, hard_drops=removed)


def _migration(session: Session, request: SchemaApplyRequest) -> tuple[Migration, Manifest]:
    view = session.store.capture(MAIN)
    hard = request.allow is Allow.DATA_LOSS
    return Migration.of(session.schemas.checked(view), str(request.schema), hard=hard), view


def _apply(session: Session, request: SchemaApplyRequest) -> SchemaReceipt:
    store = session.store
    migration, view = _migration(session, request)
    migration.check_allowed(Allow(request.allow))
    planned = migration.planned(store, view)
    write = replace(
        write_request(session, MAIN, WriterKind.SCHEMA_APPLY, request),
        schema=None if planned.is_empty else migration.schema_change(hard=request.allow is Allow.DATA_LOSS),
    )
    if planned.is_empty:
        if write.expect_head not in (None, view.head.id):
            raise PreconditionFailedError(MAIN, str(write.expect_head), view.head.id)
        # An earlier request may have been interrupted after its commit.
        removed = _remove_dropped(session, request, None)
        return SchemaReceipt(planned, False, view.version, hard_drops=removed)
    choice = _engine(session, request, planned.cost)
    memory = MemoryLimit(memory_budget(request.memory_budget))
    with (
        at_work(store.leases, WorkKind.SCHEMA, view) as work,
        backend_of(choice, request).schema_work(session) as rows,
    ):
        now = time.time_ns() // 1_000_000
        cancelled = partial(_check_cancelled, request)
        prepare = PrepareMigration(
            store, migration, now, lambda: session.embedder, memory, rows, rows.search, cancelled
        )
        commit = write_tables(session, replace(write, work=work), prepare)
    assert commit is not None, "the schemas differ, so there is a commit"
    removed = _remove_dropped(session, request, commit)
    return SchemaReceipt(planned, True, commit.manifest_version, commit, removed, choice.engine.value)


def _remove_dropped(session: Session, request: SchemaApplyRequest, commit: Commit | None) -> tuple[HardDrop, ...]:
    """Remove the data of hard drops from earlier commits: of this change, and of earlier interrupted ones."""
    return remove_dropped(session.store, commit) if request.allow is Allow.DATA_LOSS else ()


def _engine(session: Session, request: SchemaApplyRequest, cost: StepCost) -> Choice:
    """The engine that checks rows and writes columns. Spark is not started for a change of metadata alone."""
    if not cost.metadata_only or parse_engine(request.engine) is not Engine.SPARK:
        return choose_engine(session, request, lambda: cost.bytes_read + cost.bytes_written, "of columns")
    choice = Choice(Engine.LOCAL, "only metadata changes")
    if request.chosen is not None:
        request.chosen(choice)
    return choice


def _check_cancelled(request: SchemaApplyRequest) -> None:
    if request.cancel is not None and request.cancel.cancelled:
        raise CancelledError("the schema change was cancelled")
