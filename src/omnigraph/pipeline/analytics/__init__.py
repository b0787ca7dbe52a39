"""Graph algorithms over a snapshot: in this process if they fit into its memory, else on Spark."""

from omnigraph.engine.engines import Engine
from omnigraph.pipeline.analytics.algorithms import Direction
from omnigraph.pipeline.analytics.analysis import Analysis, analyse

__all__ = ["Analysis", "Direction", "Engine", "analyse"]
