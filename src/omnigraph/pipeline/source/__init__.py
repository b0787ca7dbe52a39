"""A graph as a data source of Spark: reads of any commit, streams of changes, and writes."""

from omnigraph.pipeline.source.source import OmnigraphSource, register

__all__ = ["OmnigraphSource", "register"]
