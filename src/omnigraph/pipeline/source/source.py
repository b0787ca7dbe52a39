"""The Spark data source `format("omnigraph")`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from omnigraph.errors import InputError
from omnigraph.pipeline.frames import NAME
from omnigraph.pipeline.source.options import CHANGES, READ, STREAM, WRITE, Options
from omnigraph.pipeline.source.pinned import Pinned, pinned
from omnigraph.pipeline.source.reader import Reader
from omnigraph.pipeline.source.stream import ChangesReader, StreamReader, stream_schema
from omnigraph.pipeline.source.writer import StreamWriter, Target, Writer, stream_key


class OmnigraphSource(DataSource):
    """The entities of one type, or their changes, as a DataFrame or a stream.

    The options select a commit when the DataFrame is created. Spark keeps this object for all later actions of the
    DataFrame, so all of them read that commit.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._spark_options = dict(options)
        self._options = Options.read(options)
        self._pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        # Spark calls this method both for batch reads and for streams.
        found = self._pin()
        return stream_schema(found) if self._options.is_set("changes") else found.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._options.is_set("changes"):
            self._options.allow_only(CHANGES, "a read of changes")
            return ChangesReader(self._stream(schema), self._pin().commit_id)
        self._options.allow_only(READ, "a read")
        return Reader(self._pin(), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 (the name is Spark's)
        if not self._options.is_set("changes"):
            raise InputError(
                "a stream of a graph needs the option 'changes'",
                hint='add .option("changes", True): the stream then has the columns _change, _commit and _committed',
            )
        self._options.allow_only(STREAM, "a stream")
        return self._stream(schema)

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        self._options.allow_only(WRITE, "a write")
        return Writer(Target.of(self._options, overwrite=overwrite), self._options.text("idempotencyKey"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        self._options.allow_only(WRITE, "a stream into a graph")
        return StreamWriter(
            Target.of(self._options, overwrite=overwrite), stream_key(self._options, self._spark_options)
        )

    def _stream(self, schema: StructType) -> StreamReader:
        return StreamReader(self._options, schema, self._pin())

    def _pin(self) -> Pinned:
        if self._pinned is None:
            self._pinned = pinned(self._options)
        return self._pinned


def register(session: SparkSession) -> None:
    """Register `format("omnigraph")` with a session.

    If the package is installed, Spark finds the format without this call.
    """
    session.dataSource.register(OmnigraphSource)
