"""Algorithms over a snapshot of a graph: what they run on, where they run, and what they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.amounts import format_size
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.engines import Choice, Engine, parse_engine
from omnigraph.engine.session import At
from omnigraph.errors import InputError, shown
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.pipeline.analytics import algorithms
from omnigraph.pipeline.analytics.algorithms import Direction
from omnigraph.pipeline.analytics.network import Network, Parts, least_names, names, network, number_of
from omnigraph.pipeline.analytics.outcome import FrameOutcome, Outcome, TableOutcome
from omnigraph.pipeline.spark.preflight import check_installed
from omnigraph.pipeline.spark.session import Session
from omnigraph.pipeline.spark.session import session as process_session
from omnigraph.read.budget import query_memory
from omnigraph.read.context.views import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.pipeline.analytics.on_spark import SparkNetwork

_NODE_BYTES, _EDGE_BYTES = 100, 40
"""About how much memory an algorithm takes for each node and edge."""


def analyse(
    graph: Graph,
    *,
    nodes: str | Sequence[str] | None = None,
    edges: str | Sequence[str] | None = None,
    weight: str | None = None,
    branch: str | None = None,
    at: At | None = None,
    engine: Engine | str = Engine.AUTO,
    session: Session | None = None,
) -> Analysis:
    """A snapshot, ready for algorithms.

    Args:
        graph: the graph.
        nodes: node types; by default those at the ends of the edges, and all when no edges are named.
        edges: edge types; by default all that lie between the nodes.
        weight: a property of every edge that says how long it is, for shortest paths.
        branch: the newest state of a branch; by default the handle's.
        at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.
        engine: where to run; by default in this process if it has the memory that `OMNIGRAPH_QUERY_MEMORY` allows.
        session: the Spark session; by default that of the process.

    Example:
        >>> import omnigraph, tempfile
        >>> schema = "node Page { name: String @key } edge Links: Page -> Page"
        >>> with omnigraph.init(tempfile.mkdtemp() + "/g", schema) as graph:
        ...     pages = [{"type": "Page", "data": {"name": name}} for name in "abc"]
        ...     links = [{"edge": "Links", "from": a, "to": b} for a, b in ("ab", "cb")]
        ...     _ = graph.load(pages + links, mode="append")
        ...     analyse(graph).triangles().table.column("triangles").to_pylist()
        [0, 0, 0]

    Raises:
        InputError: there is no such type, property or engine.
        NotFoundError: there is no such branch or commit.
        SparkUnavailableError: it needs Spark, which is not installed.
    """
    view = graph.session.snapshot_at(branch, at)
    accepted = graph.session.schemas.at(view)
    parts = Parts.chosen(accepted.catalog, nodes, edges, weight)
    where = _placed(parse_engine(engine), view, parts)
    if where.engine is Engine.SPARK:
        check_installed()  # before anything that imports it
    return Analysis(graph, view, graph.session.views.of(view, accepted), accepted.catalog, parts, where, session)


def _placed(engine: Engine, view: Snapshot, parts: Parts) -> Choice:
    if engine is not Engine.AUTO:
        return Choice(engine, "as requested")
    counts = [view.pin(node_key(name)).row_count * _NODE_BYTES for name in parts.nodes]
    counts += [view.pin(edge_key(name)).row_count * _EDGE_BYTES for name in parts.edges]
    room = query_memory()
    why = f"about {format_size(sum(counts))} of memory, and {format_size(room)} are allowed"
    return Choice(Engine.LOCAL if sum(counts) <= room else Engine.SPARK, why)


@dataclass
class Analysis:
    """Algorithms over some types of one snapshot. Make one with `analyse`.

    Attributes:
        where: where they run, and why there.
    """

    _graph: Graph
    _snapshot: Snapshot
    _view: View
    _catalog: Catalog
    _parts: Parts
    where: Choice
    _session: Session | None

    @property
    def engine(self) -> Engine:
        """Where they run."""
        return self.where.engine

    def pagerank(self, *, damping: float = 0.85, iterations: int = 100, tolerance: float = 1e-6) -> Outcome:
        """How much each node is led to: the chance to be there for somebody who follows edges at random.

        Parallel edges count each. Who comes to a node without edges goes on anywhere. All ranks together are 1.

        Args:
            damping: how likely the next step follows an edge, instead of going anywhere.
            iterations: how often ranks are passed on, at most.
            tolerance: stop when all ranks together change by less than this for each node.

        Returns:
            `type`, `id`, `rank`.
        """
        if not 0 <= damping < 1:
            raise InputError(f"damping is from 0 to less than 1, not {damping}")
        _check_iterations(iterations)
        if self.engine is Engine.SPARK:
            from omnigraph.pipeline.analytics import on_spark

            ranks = on_spark.pagerank(self._spark_network, damping, iterations, tolerance)
            return self._frame(ranks.withColumnRenamed("rank", "value"), "rank")
        return self._table(pa.array(algorithms.pagerank(self._network, damping, iterations, tolerance)), "rank")

    def components(self) -> Outcome:
        """Which nodes are joined, whichever way the edges lead.

        Returns:
            `type`, `id`, `component`: the least member, as `Type:id`.
        """
        if self.engine is Engine.SPARK:
            from omnigraph.pipeline.analytics import on_spark

            return self._named(on_spark.components(self._spark_network).withColumnRenamed("root", "value"), "component")
        roots = algorithms.components(self._network)
        return self._table(least_names(*self._names, roots), "component")

    def labels(self, *, iterations: int = 10) -> Outcome:
        """Communities by label propagation: in each round all nodes take the label that most of their neighbours have.

        In the beginning each has its own. Of labels that are equally frequent the least is taken, so that the result
        depends on the graph alone. Edges count both ways, parallel ones each.

        Args:
            iterations: how many rounds, at most. Some graphs never come to rest.

        Returns:
            `type`, `id`, `label`: a node, as `Type:id`.
        """
        _check_iterations(iterations)
        if self.engine is Engine.SPARK:
            from omnigraph.pipeline.analytics import on_spark

            return self._named(
                on_spark.labels(self._spark_network, iterations).withColumnRenamed("label", "value"), "label"
            )
        return self._table(least_names(*self._names, algorithms.labels(self._network, iterations)), "label")

    def triangles(self) -> Outcome:
        """How many triangles each node is a corner of, whichever way the edges lead; parallel ones count once.

        Returns:
            `type`, `id`, `triangles`.
        """
        if self.engine is Engine.SPARK:
            from omnigraph.pipeline.analytics import on_spark

            return self._frame(
                on_spark.triangles(self._spark_network).withColumnRenamed("triangles", "value"), "triangles"
            )
        return self._table(pa.array(algorithms.triangles(self._network)), "triangles")

    def shortest_paths(self, sources: str | Sequence[str], *, direction: Direction | str = Direction.OUT) -> Outcome:
        """How far nodes are from others: in edges, or in the sum of their weights.

        Args:
            sources: ids of nodes, or `Type:id` where several types have them.
            direction: the way in which edges are walked: `out`, `in` or `both`.

        Returns:
            `source` as `Type:id`, and `type`, `id`, `distance` of every node that can be reached from it.

        Raises:
            NotFoundError: there is no such node.
        """
        try:
            direction = Direction(direction)
        except ValueError:
            raise InputError(f"{shown(direction)} is no direction", hint="out, in or both") from None
        wanted = [sources] if isinstance(sources, str) else list(sources)
        numbers = [number_of(self._view, self._parts, source) for source in dict.fromkeys(wanted)]
        if self.engine is Engine.SPARK:
            return self._spark_paths(numbers, direction)
        types, ids = self._names
        parts = []
        for number in numbers:
            distance = algorithms.distances(self._network, number, direction)
            reached = np.flatnonzero(np.isfinite(distance))
            places = pa.array(reached)
            source = least_names(types, ids, np.full(len(reached), number))
            columns = [source, types.take(places), ids.combine_chunks().take(places), pa.array(distance[reached])]
            parts.append(pa.table(columns, names=["source", "type", "id", "distance"]))
        empty = pa.schema([(name, pa.utf8()) for name in ("source", "type", "id")] + [("distance", pa.float64())])
        return TableOutcome(self._target, "distance", pa.concat_tables([empty.empty_table(), *parts]))

    def _spark_paths(self, numbers: Sequence[int], direction: Direction) -> Outcome:
        from pyspark.sql import functions as sql

        from omnigraph.pipeline.analytics import on_spark

        found = on_spark.distances(self._spark_network, numbers, direction)
        nodes = self._spark_network.nodes
        source = nodes.select(sql.col("number").alias("from"), sql.concat_ws(":", "type", "id").alias("source"))
        rows = found.join(source, "from").join(nodes, "number")
        order = rows.orderBy("from", "number").select("source", "type", "id", "distance")
        return FrameOutcome(self._target, "distance", order, self._on)

    # What the algorithms run on

    @cached_property
    def _network(self) -> Network:
        return network(self._view, self._catalog, self._parts)

    @cached_property
    def _names(self) -> tuple[pa.Array, pa.ChunkedArray]:
        return names(self._view, self._parts)

    @property
    def _on(self) -> Session:
        return self._session or process_session()

    @cached_property
    def _spark_network(self) -> SparkNetwork:
        from omnigraph.pipeline.analytics.on_spark import spark_network

        spark = self._on.spark
        storage = {f"storage.{name}": value for name, value in self._snapshot.uri.storage_options.items()}
        options = {"path": str(self._snapshot.uri), "commit": self._snapshot.commit.id, **storage}
        return spark_network(spark, options, self._catalog, self._parts)

    # What they give

    @property
    def _target(self) -> tuple[Graph, Snapshot, Parts]:
        return self._graph, self._snapshot, self._parts

    def _table(self, values: pa.Array, name: str) -> Outcome:
        types, ids = self._names
        return TableOutcome(self._target, name, pa.table([types, ids, values], names=["type", "id", name]))

    def _frame(self, values: DataFrame, name: str) -> Outcome:
        rows = self._spark_network.nodes.join(values, "number").orderBy("number")
        return FrameOutcome(self._target, name, rows.select("type", "id", values["value"].alias(name)), self._on)

    def _named(self, values: DataFrame, name: str) -> Outcome:
        """Nodes whose values are other nodes."""
        from pyspark.sql import functions as sql

        nodes = self._spark_network.nodes
        told = nodes.select(sql.col("number").alias("value"), sql.concat_ws(":", "type", "id").alias(name))
        rows = nodes.join(values, "number").join(told, "value").orderBy("number")
        return FrameOutcome(self._target, name, rows.select("type", "id", name), self._on)


def _check_iterations(iterations: int) -> None:
    if iterations < 1:
        raise InputError(f"there is at least one iteration, not {iterations}")
