"""Registers `format("omnigraph")`: Spark imports modules whose names start with `pyspark_`."""

from omnigraph.pipeline.source import OmnigraphSource as DefaultSource

__all__ = ["DefaultSource"]
