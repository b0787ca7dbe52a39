"""Exports of one snapshot: to a file, to a directory, or as an iterator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, reading
from omnigraph.engine.access import Action
from omnigraph.engine.backends import backend_of
from omnigraph.engine.chosen_types import chosen_keys
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.engines import Engine, parse_engine
from omnigraph.engine.requests import ExportRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError
from omnigraph.read.export.export import TypeExport, exported
from omnigraph.read.export.files import ExportFormat, ExportReceipt

Piece = TypeVar("Piece")


def export(
    session: Session, request: ExportRequest
) -> ExportReceipt | Iterator[bytes] | Iterator[tuple[str, pa.RecordBatch]]:
    """Export one snapshot. Without a target, return an iterator over the content.

    Raises:
        InputError: there is no such type or format, or the target cannot be written.
        NotFoundError: there is no such commit.
        StorageError: a bucket cannot be written to.
    """
    try:
        format = ExportFormat(request.format)
    except ValueError:
        raise InputError(
            f"'{request.format}' is not an export format", hint="use ndjson, csv, parquet or arrow"
        ) from None
    at = request.at
    if session.exporting is not session:
        at = at.commit.id if isinstance(at, Snapshot) else at  # the snapshot shows what the actor may read
        session = session.exporting
    view = session.readable(request.branch, at, Action.EXPORT)
    given = [request.types] if isinstance(request.types, str) else request.types
    keys = chosen_keys(session, Action.EXPORT, given, view.manifest)
    parts = exported(view, session.schemas.at(view), given)
    if keys is not None:
        parts = [part for part in parts if part.key in keys]
    if request.target is not None and session.whole is not None:
        # Spark tasks read the tables themselves, and would see all rows.
        if parse_engine(request.engine) is Engine.SPARK:
            session.require_whole("export on Spark")
        request = replace(request, engine=Engine.LOCAL.value)
    if request.target is not None and format is ExportFormat.CSV:
        if parse_engine(request.engine) is Engine.SPARK:
            raise InputError("Spark does not write CSV", hint="use --engine local, or the format parquet")
        request = replace(request, engine=Engine.LOCAL.value)
    if request.target is not None:
        choice = choose_engine(session, request, lambda: _table_bytes(session, view, parts))
        return backend_of(choice, request).write_export(session, view, parts, request)
    if parse_engine(request.engine) is Engine.SPARK:
        raise InputError("Spark writes files, and there is no target", hint="give the path of a file or directory")
    if format is ExportFormat.NDJSON:
        return _recorded(session, view, (text for part in parts for text in part.lines()))
    if format is ExportFormat.ARROW:
        return _recorded(session, view, ((part.key, batch) for part in parts for batch in part.batches()))
    raise InputError(
        f"an export as {format} needs a target directory",
        hint="give the path of a new directory, or use format arrow to get batches",
    )


def _recorded(session: Session, view: Snapshot, pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the chunks of an export. A work record protects the snapshot from cleanup until the last chunk."""
    with reading(session.store.leases, WorkKind.EXPORT, view.manifest):
        yield from pieces


def _table_bytes(session: Session, view: Snapshot, parts: list[TypeExport]) -> int:
    """The total size of the exported tables."""
    refs = [view.pin(part.key).ref for part in parts]
    return sum(fragment.size for ref in refs for fragment in session.store.tables.at(ref).fragments())
