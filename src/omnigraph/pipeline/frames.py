"""A type of a graph as a DataFrame. This module can be imported without Spark; its function takes a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.commit.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "omnigraph"
"""The name of the data source: `spark.read.format("omnigraph")`."""

STORAGE = "storage."
"""Prefix of data source options that are storage options: `storage.endpoint_url`."""


def type_frame(spark: SparkSession, view: Snapshot, key: str) -> DataFrame:
    """The entities of a type in a snapshot, as a DataFrame. `key` is the type key, such as `node:Person`."""
    storage = {f"{STORAGE}{name}": value for name, value in view.uri.storage_options.items()}
    options = {"path": str(view.uri), "commit": view.commit.id, "type": key, **storage}
    return spark.read.format(NAME).options(**options).load()
