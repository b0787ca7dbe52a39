"""`format("omnigraph")`: a graph as a data source of Spark."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from omnigraph.pipeline.source.options import READ, Options
from omnigraph.pipeline.source.pinned import Pinned, pinned
from omnigraph.pipeline.source.reader import Reader

NAME = "omnigraph"


class OmnigraphSource(DataSource):
    """The entities of one type as a DataFrame.

    A DataFrame sees one commit: the one that its options mean when it is made. Spark keeps this object, and with it
    what was pinned, for everything that is done with the DataFrame later.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = Options.read(options)
        self._pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return self._pin().schema

    def reader(self, schema: StructType) -> Reader:
        return Reader(self._pin(), schema)

    def _pin(self) -> Pinned:
        if self._pinned is None:
            self._options.only(READ, "a read")
            self._pinned = pinned(self._options)
        return self._pinned


def register(session: SparkSession) -> None:
    """Make `format("omnigraph")` known to a session.

    Where the package is installed, Spark finds the format by itself.
    """
    session.dataSource.register(OmnigraphSource)
