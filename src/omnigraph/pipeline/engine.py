"""Which way a load goes: in this process, or on Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError, SparkUnavailableError
from omnigraph.pipeline.session import check_available
from omnigraph.storage.amounts import amount, readable
from omnigraph.write.files import row_files

THRESHOLD_VARIABLE = "OMNIGRAPH_SPARK_THRESHOLD"
"""From how much input on a load goes to Spark by itself: bytes, or a number with KiB, MiB or GiB."""

DEFAULT_THRESHOLD = 4 << 30
_PACKED = 4
"""About how many times as large packed text is once it is unpacked."""


class Engine(StrEnum):
    """Ways for a load to go."""

    AUTO = "auto"
    """By the size of the input."""
    LOCAL = "local"
    """In this process."""
    SPARK = "spark"
    """On Spark."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The way that a load goes, and why."""

    engine: Engine
    why: str


def choose(engine: Engine | str, source: Any, *, lenient: bool = False, started: bool = False) -> Choice:
    """The way that a load goes.

    Args:
        engine: what the caller asks for.
        source: what is loaded.
        lenient: whether the lenient reader is asked for, which works in one process.
        started: whether Spark runs already.

    Raises:
        InputError: there is no such engine.
    """
    try:
        asked = Engine(engine)
    except ValueError:
        raise InputError(f"'{engine}' is not an engine", hint="auto, local or spark") from None
    if asked is not Engine.AUTO:
        return Choice(asked, "as was asked for")
    threshold = amount(os.environ, THRESHOLD_VARIABLE, DEFAULT_THRESHOLD)
    size = input_bytes(source)
    if size is None:
        return Choice(Engine.LOCAL, "nobody knows how large the input is")
    compared = f"{readable(size)} of input, and from {readable(threshold)} on it goes to Spark"
    if size < threshold:
        return Choice(Engine.LOCAL, compared)
    if lenient:
        return Choice(Engine.LOCAL, "the lenient reader works in one process")
    try:
        if not started:
            check_available()
    except SparkUnavailableError as error:
        return Choice(Engine.LOCAL, error.message)
    return Choice(Engine.SPARK, compared)


def input_bytes(source: Any) -> int | None:
    """About how many bytes of rows a source has; None when nobody can say before they are read."""
    if isinstance(source, str | os.PathLike):
        return sum(
            file.path.stat().st_size * (1 if file.compression is None else _PACKED) for file in row_files(Path(source))
        )
    if isinstance(source, bytes | bytearray):
        return len(source)
    if isinstance(source, Mapping):
        return _sum(source.values())
    if hasattr(source, "nbytes"):
        return int(source.nbytes)
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return _sum(source)
    return None


def _sum(sources: Iterable[Any]) -> int | None:
    sizes = [input_bytes(source) for source in sources]
    return None if None in sizes else sum(size for size in sizes if size is not None)
