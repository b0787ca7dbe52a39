"""Graph algorithms over a snapshot: in this process while they fit its memory, on Spark beyond."""

from omnigraph.pipeline.analytics.algorithms import Direction
from omnigraph.pipeline.analytics.analysis import Analysis, analyse
from omnigraph.pipeline.engine import Engine

__all__ = ["Analysis", "Direction", "Engine", "analyse"]
