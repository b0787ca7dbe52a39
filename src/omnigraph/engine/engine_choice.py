"""The choice between this process and Spark, by the size of the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from omnigraph.amounts import format_size
from omnigraph.engine.backends import check_available
from omnigraph.engine.engines import Choice, Engine, SparkOptions, parse_engine
from omnigraph.engine.requests import ExecutionFields
from omnigraph.engine.session import Session
from omnigraph.errors import OmnigraphError, SparkUnavailableError
from omnigraph.settings import SPARK_THRESHOLD
from omnigraph.storage.uri import Scheme
from omnigraph.write.input.row_files import row_files

_COMPRESSION_RATIO = 4
"""Estimated ratio of the size of a text to its compressed size."""


def choose_engine(
    session: Session, request: ExecutionFields, size: Callable[[], int | None], unit: str = "in tables"
) -> Choice:
    """Choose the engine of a request, and call the callback of the request with the choice.

    Args:
        session: the graph. Other processes cannot read a graph in memory.
        request: the request.
        size: computes the size of the work in bytes; None if it is unknown.
        unit: the words after the size in the printed reason.

    Raises:
        InputError: there is no such engine, or the environment variable of the threshold is not a size.
    """
    chosen = _chosen(session, request, size, unit)
    if request.chosen is not None:
        request.chosen(chosen)
    return chosen


def _chosen(session: Session, request: ExecutionFields, size: Callable[[], int | None], unit: str) -> Choice:
    requested = parse_engine(request.engine)
    if requested is not Engine.AUTO:
        return Choice(requested, "as requested")
    if session.store.objects.uri.scheme is Scheme.MEMORY:
        return Choice(Engine.LOCAL, "the graph is in the memory of this process")
    total = size()
    if total is None:
        return Choice(Engine.LOCAL, "the size of the input is unknown")
    threshold = SPARK_THRESHOLD.amount()
    why = f"{format_size(total)} {unit}; Spark is used from {format_size(threshold)}"
    if total < threshold:
        return Choice(Engine.LOCAL, why)
    try:
        check_available(Engine.SPARK, request.spark or SparkOptions())
    except SparkUnavailableError as error:
        return Choice(Engine.LOCAL, f"{why}, but {error.message}", spark_missing=True)
    return Choice(Engine.SPARK, why)


def input_bytes(source: object, options: Mapping[str, str] | None = None, format: str | None = None) -> int | None:
    """The approximate size of the input of a load, in bytes; None if only reading it would show the size.

    Files that cannot be listed give None, too: the load reports that error after it has checked the request.
    """
    if isinstance(source, str | os.PathLike):
        try:
            files = row_files(source, options, format)
        except OmnigraphError:
            return None
        if any(file.input.once for file in files):
            return None
        return sum(file.input.size * (1 if file.compression is None else _COMPRESSION_RATIO) for file in files)
    if isinstance(source, bytes | bytearray):
        return len(source)
    if isinstance(source, Mapping):
        return _sum(source.values(), options, format)
    if hasattr(source, "nbytes"):
        return int(source.nbytes)
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return _sum(source, options, format)
    return None


def _sum(sources: Iterable[object], options: Mapping[str, str] | None, format: str | None) -> int | None:
    sizes = [input_bytes(source, options, format) for source in sources]
    return None if None in sizes else sum(size for size in sizes if size is not None)
