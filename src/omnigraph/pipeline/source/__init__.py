"""A graph as a Spark data source: reads of any commit, change streams, and writes."""

from omnigraph.pipeline.source.source import OmnigraphSource, register

__all__ = ["OmnigraphSource", "register"]
