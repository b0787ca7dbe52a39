"""Where work is done: in this process, or on Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omnigraph.errors import InputError, SparkUnavailableError
from omnigraph.pipeline.session import check_available
from omnigraph.storage.byte_sizes import format_size, size_setting
from omnigraph.write.files import row_files

THRESHOLD_VARIABLE = "OMNIGRAPH_SPARK_THRESHOLD"
"""From how much on a load or an export goes to Spark by itself: bytes, or a number with KiB, MiB or GiB."""

DEFAULT_THRESHOLD = 4 << 30
_PACKED = 4
"""About how many times as large packed text is once it is unpacked."""


class Engine(StrEnum):
    """Where work is done."""

    AUTO = "auto"
    """Where it should be, by its size."""
    LOCAL = "local"
    """In this process."""
    SPARK = "spark"
    """On Spark."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where work is done, and why there.

    Attributes:
        engine: where.
        why: the reason, for whoever is told.
        amiss: whether it should be done elsewhere, and cannot be.
    """

    engine: Engine
    why: str
    amiss: bool = False

    def __str__(self) -> str:
        return f"{'on Spark' if self.engine is Engine.SPARK else 'in this process'}: {self.why}"


def engine_named(name: Engine | str) -> Engine:
    """The engine of a name.

    Raises:
        InputError: there is none.
    """
    try:
        return Engine(name)
    except ValueError:
        raise InputError(f"'{name}' is not an engine", hint="auto, local or spark") from None


def choose(
    engine: Engine | str,
    source: Any,
    *,
    started: bool = False,
    options: Mapping[str, str] | None = None,
) -> Choice:
    """The way that a load goes.

    Args:
        engine: what the caller asks for.
        source: what is loaded.
        started: whether Spark runs already.
        options: how to reach files in S3.

    Raises:
        InputError: there is no such engine.
    """
    asked = engine_named(engine)
    if asked is not Engine.AUTO:
        return Choice(asked, "as was asked for")
    size = input_bytes(source, options)
    if size is None:
        return Choice(Engine.LOCAL, "nobody knows how large the input is")
    return choose_by_size(asked, size, "of input", started=started)


def choose_by_size(engine: Engine | str, size: int, what: str = "in tables", *, started: bool = False) -> Choice:
    """Where work is done whose size is known.

    Args:
        engine: what the caller asks for.
        size: how many bytes there are.
        what: what they are, for whoever is told.
        started: whether Spark runs already.

    Raises:
        InputError: there is no such engine.
    """
    asked = engine_named(engine)
    if asked is not Engine.AUTO:
        return Choice(asked, "as was asked for")
    threshold = size_setting(os.environ, THRESHOLD_VARIABLE, DEFAULT_THRESHOLD)
    compared = f"{format_size(size)} {what}, and from {format_size(threshold)} on it goes to Spark"
    return _if_available(compared, started) if size >= threshold else Choice(Engine.LOCAL, compared)


def _if_available(why: str, started: bool) -> Choice:
    """Spark, or this process where there is none."""
    try:
        if not started:
            check_available()
    except SparkUnavailableError as error:
        return Choice(Engine.LOCAL, f"{why}, but {error.message}", amiss=True)
    return Choice(Engine.SPARK, why)


def input_bytes(source: Any, options: Mapping[str, str] | None = None) -> int | None:
    """About how many bytes of rows a source has; None when nobody can say before they are read."""
    if isinstance(source, str | os.PathLike):
        files = row_files(source, options)
        return sum(file.input.size * (1 if file.compression is None else _PACKED) for file in files)
    if isinstance(source, bytes | bytearray):
        return len(source)
    if isinstance(source, Mapping):
        return _sum(source.values(), options)
    if hasattr(source, "nbytes"):
        return int(source.nbytes)
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return _sum(source, options)
    return None


def _sum(sources: Iterable[Any], options: Mapping[str, str] | None) -> int | None:
    sizes = [input_bytes(source, options) for source in sources]
    return None if None in sizes else sum(size for size in sizes if size is not None)
