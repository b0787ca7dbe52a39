"""A type of a graph as a DataFrame. Importing this does not need Spark; calling it takes a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.commit.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "omnigraph"
"""The name of the data source: `spark.read.format("omnigraph")`."""

STORAGE = "storage."
"""Options of the data source that begin so are storage options: `storage.endpoint_url`."""


def type_frame(spark: SparkSession, view: Snapshot, key: str) -> DataFrame:
    """The entities of a type, by its key, in a snapshot."""
    storage = {f"{STORAGE}{name}": value for name, value in view.uri.storage_options.items()}
    said = {"path": str(view.uri), "commit": view.commit.id, "type": key, **storage}
    return spark.read.format(NAME).options(**said).load()
