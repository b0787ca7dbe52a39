"""SQL over the sources of a run. Each source and each step is a temporary view in a separate Spark session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from omnigraph.commit.snapshots import Snapshot
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.pipeline.declared.document import Document, FileSource, SparkSource
from omnigraph.pipeline.declared.file_tables import file_frame
from omnigraph.pipeline.declared.inputs import PinnedSource
from omnigraph.pipeline.frames import type_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Views:
    """The sources and steps of a run, as SQL views.

    Args:
        document: the declaration.
        pinned: the sources of the declaration.
        spark: the Spark session of the run.
    """

    def __init__(self, document: Document, pinned: Mapping[str, PinnedSource], spark: SparkSession) -> None:
        self._document = document
        self._pinned = pinned
        self._spark = spark
        self._persisted: list[DataFrame] = []
        self._frames: dict[str, DataFrame] = {}

    def make(self) -> None:
        """Create a view for every source that SQL mentions, and for every step.

        Raises:
            InputError: a SQL statement is not valid. No rows are read.
        """
        for name, source in self._pinned.items():
            if any(mentions(sql, name) for sql in self._document.queries):
                with self._located(f"sources.{name}"):
                    self._add(name, self._frame(source))
        for name, sql in self._document.steps.items():
            frame = self.sql(sql, f"steps.{name}")
            if self._uses(name) > 1:
                frame = frame.persist()
                self._persisted.append(frame)
            self._add(name, frame)

    def sql(self, text: str, path: str) -> DataFrame:
        """The result of a SQL statement.

        Raises:
            InputError: the statement is not valid.
        """
        with self._located(path):
            args = {name: value for name, value in self._document.variables.items() if _parameter(text, name)}
            return self._spark.sql(text, args) if args else self._spark.sql(text)

    def rows(self, name: str) -> DataFrame | None:
        """The rows of a step, or of a source that only Spark can read; None for other sources."""
        if name in self._frames and name in self._document.steps:
            return self._frames[name]
        pinned = self._pinned.get(name)
        if pinned is not None and isinstance(pinned.source, SparkSource):
            with self._located(f"sources.{name}"):
                return self._frame(pinned)
        return None

    def add_types(self, view: Snapshot, texts: Iterable[str]) -> None:
        """Create views for the types of a snapshot that SQL mentions: `node_Ship`, `edge_Docked`."""
        for key in view.tables:
            name = view_name(key)
            if any(mentions(text, name) for text in texts):
                self._add(name, type_frame(self._spark, view, key))

    def close(self) -> None:
        for frame in self._persisted:
            frame.unpersist()

    def _add(self, name: str, frame: DataFrame) -> None:
        self._frames[name] = frame
        frame.createOrReplaceTempView(name)

    def _uses(self, name: str) -> int:
        targets = sum(target.rows == name for target in self._document.targets)
        return targets + sum(mentions(sql, name) for sql in self._document.queries)

    def _located(self, path: str) -> _ErrorLocation:
        return _ErrorLocation(self._document.file, path)

    def _frame(self, pinned: PinnedSource) -> DataFrame:
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
class _ErrorLocation:
    """Adds the position in the file to errors of Spark."""

    file: str
    path: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from pyspark.errors import AnalysisException, ParseException

        if isinstance(error, InputError):
            raise InputError(f"{self.file}: {self.path}: {error.message}", hint=error.hint) from None
        if isinstance(error, AnalysisException | ParseException):
            raise InputError(f"{self.file}: {self.path}: {_message(error)}", hint="correct the SQL") from None


def _message(error: BaseException) -> str:
    """The message of a Spark error, without the name of the error condition and without the query plan."""
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
    """Whether a SQL text contains the name of a view, in upper or lower case, so that it may use the view."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None


def _parameter(sql: str, name: str) -> bool:
    return re.search(rf"(?<![\w:]):{re.escape(name)}(?!\w)", sql) is not None


def view_name(key: str) -> str:
    """The name of the view of a type."""
    return key.replace(":", "_", 1)
