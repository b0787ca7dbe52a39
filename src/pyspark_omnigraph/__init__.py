"""Spark looks for modules whose names begin like this, and finds `format("omnigraph")` here."""

from omnigraph.pipeline.source import OmnigraphSource as DefaultSource

__all__ = ["DefaultSource"]
