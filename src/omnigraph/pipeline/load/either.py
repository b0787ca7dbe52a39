"""A load by either engine: what `omnigraph load` and declared pipelines have in common."""

from __future__ import annotations

from typing import Any

from omnigraph.graph import Graph
from omnigraph.graph.loading import LoadRequest
from omnigraph.graph.loading import load as load_here
from omnigraph.pipeline.engine import Choice, Engine
from omnigraph.pipeline.load.driver import SparkOptions
from omnigraph.pipeline.load.driver import load as load_on_spark
from omnigraph.pipeline.load.upsert import merge_threshold
from omnigraph.write.receipt import LoadReceipt


def load_by(choice: Choice, graph: Graph, source: Any, request: LoadRequest, options: SparkOptions) -> LoadReceipt:
    """Carry out a load in this process, or on Spark.

    Args:
        choice: which of them.
        graph: the graph.
        source: what `Graph.load` takes; on Spark, DataFrames as well.
        request: what is asked for.
        options: how it is spread on Spark, which is not started for a load in this process.

    Raises:
        InputError: the options mean nothing, whichever way the load goes.
    """
    merge_threshold(options.merge_threshold)
    if not request.check:
        graph._writable()
    if choice.engine is not Engine.SPARK:
        return load_here(graph, source, request)
    return load_on_spark(graph, source, request, options)
