"""SQL over the sources of a run: each is a view in a session of the run's own, and so is each step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import InputError, cut
from omnigraph.pipeline.declared.document import Document, FileSource, SparkSource
from omnigraph.pipeline.declared.file_tables import file_frame
from omnigraph.pipeline.declared.inputs import Pinned
from omnigraph.pipeline.frames import type_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Views:
    """The sources and steps of a run, for SQL.

    Args:
        document: the declaration.
        pinned: its sources.
        spark: a session of the run's own.
    """

    def __init__(self, document: Document, pinned: Mapping[str, Pinned], spark: SparkSession) -> None:
        self._document = document
        self._pinned = pinned
        self._spark = spark
        self._kept: list[DataFrame] = []
        self._frames: dict[str, DataFrame] = {}

    def make(self) -> None:
        """Make a view of every source that SQL mentions, and of every step.

        Raises:
            InputError: SQL says something that cannot be done; nothing is read for it.
        """
        for name, source in self._pinned.items():
            if any(mentions(sql, name) for sql in self._document.queries):
                with self._naming(f"sources.{name}"):
                    self._add(name, self._frame(source))
        for name, sql in self._document.steps.items():
            frame = self.sql(sql, f"steps.{name}")
            if self._uses(name) > 1:
                frame = frame.persist()
                self._kept.append(frame)
            self._add(name, frame)

    def sql(self, text: str, path: str) -> DataFrame:
        """The rows that SQL finds.

        Raises:
            InputError: it says something that cannot be done.
        """
        with self._naming(path):
            args = {name: value for name, value in self._document.variables.items() if _parameter(text, name)}
            return self._spark.sql(text, args) if args else self._spark.sql(text)

    def rows(self, name: str) -> DataFrame | None:
        """The rows of a step, or of a source that only Spark can read; None for other sources."""
        if name in self._frames and name in self._document.steps:
            return self._frames[name]
        pinned = self._pinned.get(name)
        if pinned is not None and isinstance(pinned.source, SparkSource):
            with self._naming(f"sources.{name}"):
                return self._frame(pinned)
        return None

    def add_types(self, view: Snapshot, texts: Iterable[str]) -> None:
        """Make views of the types of a state of the graph that SQL mentions: `node_Ship`, `edge_Docked`."""
        for key in view.tables:
            name = view_name(key)
            if any(mentions(text, name) for text in texts):
                self._add(name, type_frame(self._spark, view, key))

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def _add(self, name: str, frame: DataFrame) -> None:
        self._frames[name] = frame
        frame.createOrReplaceTempView(name)

    def _uses(self, name: str) -> int:
        of_load = sum(target.rows == name for target in self._document.targets)
        return of_load + sum(mentions(sql, name) for sql in self._document.queries)

    def _naming(self, path: str) -> _Naming:
        return _Naming(self._document.file, path)

    def _frame(self, pinned: Pinned) -> DataFrame:
        source = pinned.source
        if isinstance(source, SparkSource):
            if source.table is not None:
                return self._spark.table(source.table)
            assert source.format is not None
            return self._spark.read.format(source.format).options(**source.options).load()
        if isinstance(source, FileSource):
            return file_frame(self._spark, pinned.files, source.columns)
        assert pinned.view is not None
        return type_frame(self._spark, pinned.view, pinned.export().key)


@dataclass
class _Naming:
    """Says where in the file it stands what Spark does not understand."""

    file: str
    path: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from pyspark.errors import AnalysisException, ParseException

        if isinstance(error, InputError):
            raise InputError(f"{self.file}: {self.path}: {error.message}", hint=error.hint) from None
        if isinstance(error, AnalysisException | ParseException):
            raise InputError(f"{self.file}: {self.path}: {_said(error)}", hint="correct the SQL") from None


def _said(error: BaseException) -> str:
    """What Spark says, without the name of the condition and the plan below it."""
    text = str(error).strip()
    text = re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = []
    for line in lines:
        if line.startswith(("'", "+-", "==", "JVM stacktrace", "SQLSTATE")):
            break
        kept.append(line)
    return cut(" ".join(kept) or type(error).__name__, 400)


def mentions(sql: str, name: str) -> bool:
    """Whether SQL may mean a view. Names mean the same in any case."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None


def _parameter(sql: str, name: str) -> bool:
    return re.search(rf"(?<![\w:]):{re.escape(name)}(?!\w)", sql) is not None


def view_name(key: str) -> str:
    """What the view of a type is called."""
    return key.replace(":", "_", 1)
