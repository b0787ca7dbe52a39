"""Graph algorithms over a snapshot: in this process while they fit its memory, on Spark beyond."""

from omnigraph.pipeline.analytics.algorithms import Direction
from omnigraph.pipeline.analytics.analysis import Analysis, Engine, analyse

__all__ = ["Analysis", "Direction", "Engine", "analyse"]
