"""Graph algorithms over a snapshot: chooses the engine, runs the algorithm, and builds the result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.amounts import format_size
from omnigraph.commit.snapshots import Snapshot
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.engines import Choice, Engine, parse_engine
from omnigraph.engine.session import At
from omnigraph.errors import InputError, shown
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.pipeline.analytics import algorithms
from omnigraph.pipeline.analytics.algorithms import Direction
from omnigraph.pipeline.analytics.network import Network, TypeSelection, names, network, node_names, number_of
from omnigraph.pipeline.analytics.outcome import FrameOutcome, Outcome, TableOutcome
from omnigraph.pipeline.spark.preflight import check_installed
from omnigraph.pipeline.spark.session import Session
from omnigraph.pipeline.spark.session import session as process_session
from omnigraph.read.budget import query_memory
from omnigraph.read.context.views import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.pipeline.analytics.spark_algorithms import SparkNetwork

_NODE_BYTES, _EDGE_BYTES = 100, 40
"""Approximate bytes of memory that an algorithm needs per node and per edge."""


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
    """Prepare a snapshot for algorithms.

    Args:
        graph: the graph.
        nodes: node types; by default those at the ends of the given edge types, or all if no edge types are given.
        edges: edge types; by default all edge types between the given node types.
        weight: an edge property that is the length of an edge, for shortest paths.
        branch: the branch whose head is analysed; by default the branch of the graph handle.
        at: the snapshot to analyse in place of the head: a snapshot, a commit id or a tag; or a time or manifest
            version of the branch.
        engine: `auto`, `local` or `spark`. `auto` runs in this process if the estimated memory is at most
            `OMNIGRAPH_QUERY_MEMORY`, and on Spark otherwise.
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
        SparkUnavailableError: the algorithms have to run on Spark, and Spark is not installed.
    """
    view = graph.session.readable(branch, at)
    graph.session.require_whole("graph algorithms")  # tasks read the tables themselves
    graph.session.require_all_rows(Action.READ, view.manifest)
    accepted = graph.session.schemas.at(view)
    selection = TypeSelection.of(accepted.catalog, nodes, edges, weight)
    choice = _choose_engine(parse_engine(engine), view, selection)
    if choice.engine is Engine.SPARK:
        check_installed()  # must run before a module imports pyspark, for a clear error message
    return Analysis(graph, view, graph.session.views.of(view, accepted), accepted.catalog, selection, choice, session)


def _choose_engine(engine: Engine, view: Snapshot, selection: TypeSelection) -> Choice:
    if engine is not Engine.AUTO:
        return Choice(engine, "as requested")
    counts = [view.pin(node_key(name)).row_count * _NODE_BYTES for name in selection.nodes]
    counts += [view.pin(edge_key(name)).row_count * _EDGE_BYTES for name in selection.edges]
    limit = query_memory()
    why = f"about {format_size(sum(counts))} of memory, limit {format_size(limit)}"
    return Choice(Engine.LOCAL if sum(counts) <= limit else Engine.SPARK, why)


@dataclass
class Analysis:
    """Algorithms over the selected types of one snapshot. Create one with `analyse`.

    Attributes:
        choice: the chosen engine, and the reason.
    """

    _graph: Graph
    _snapshot: Snapshot
    _view: View
    _catalog: Catalog
    _selection: TypeSelection
    choice: Choice
    _session: Session | None

    @property
    def engine(self) -> Engine:
        """The chosen engine."""
        return self.choice.engine

    def pagerank(self, *, damping: float = 0.85, iterations: int = 100, tolerance: float = 1e-6) -> Outcome:
        """PageRank of every node: the probability that a random walk is at the node. The ranks sum to 1.

        Parallel edges count separately. Nodes without outgoing edges distribute their rank over all nodes.

        Args:
            damping: the probability that the random walk follows an edge. Otherwise it jumps to a random node.
            iterations: the maximum number of iterations.
            tolerance: stop when the average change of a rank in one iteration is less than this.

        Returns:
            The columns `type`, `id` and `rank`, with one row per node.
        """
        if not 0 <= damping < 1:
            raise InputError(f"damping must be at least 0 and less than 1, not {damping}")
        _check_iterations(iterations)
        if self.engine is Engine.SPARK:
            from omnigraph.pipeline.analytics import spark_algorithms

            ranks = spark_algorithms.pagerank(self._spark_network, damping, iterations, tolerance)
            return self._frame(ranks.withColumnRenamed("rank", "value"), "rank")
        return self._table(pa.array(algorithms.pagerank(self._network, damping, iterations, tolerance)), "rank")

    def components(self) -> Outcome:
        """Weakly connected component of every node.

        Returns:
            The columns `type`, `id` and `component`: the smallest node of the component, as `Type:id`.
        """
        if self.engine is Engine.SPARK:
            from omnigraph.pipeline.analytics import spark_algorithms

            return self._node_values(
                spark_algorithms.components(self._spark_network).withColumnRenamed("root", "value"), "component"
            )
        roots = algorithms.components(self._network)
        return self._table(node_names(*self._names, roots), "component")

    def labels(self, *, iterations: int = 10) -> Outcome:
        """Communities by label propagation: in each round, every node takes the most frequent label of its neighbours.

        At the start, each node has its own label. Of equally frequent labels the smallest is taken, so the result
        depends only on the graph. Edges count in both directions, and parallel edges count separately.

        Args:
            iterations: the maximum number of rounds. Some graphs never converge.

        Returns:
            The columns `type`, `id` and `label`. A label is the name of a node, as `Type:id`.
        """
        _check_iterations(iterations)
        if self.engine is Engine.SPARK:
            from omnigraph.pipeline.analytics import spark_algorithms

            return self._node_values(
                spark_algorithms.labels(self._spark_network, iterations).withColumnRenamed("label", "value"), "label"
            )
        return self._table(node_names(*self._names, algorithms.labels(self._network, iterations)), "label")

    def triangles(self) -> Outcome:
        """The number of triangles of every node. Ignores direction, parallel edges and self-loops.

        Returns:
            The columns `type`, `id` and `triangles`, with one row per node.
        """
        if self.engine is Engine.SPARK:
            from omnigraph.pipeline.analytics import spark_algorithms

            return self._frame(
                spark_algorithms.triangles(self._spark_network).withColumnRenamed("triangles", "value"), "triangles"
            )
        return self._table(pa.array(algorithms.triangles(self._network)), "triangles")

    def shortest_paths(self, sources: str | Sequence[str], *, direction: Direction | str = Direction.OUT) -> Outcome:
        """Shortest distances from the given nodes: number of edges, or sum of weights.

        Args:
            sources: ids of nodes, or `Type:id` if several types have the id.
            direction: the direction in which edges are followed: `out`, `in` or `both`.

        Returns:
            The columns `source` (as `Type:id`), `type`, `id` and `distance`: one row per source and reachable node.

        Raises:
            NotFoundError: there is no such node.
        """
        try:
            direction = Direction(direction)
        except ValueError:
            raise InputError(f"{shown(direction)} is not a direction", hint="use out, in or both") from None
        wanted = [sources] if isinstance(sources, str) else list(sources)
        numbers = [number_of(self._view, self._selection, source) for source in dict.fromkeys(wanted)]
        if self.engine is Engine.SPARK:
            return self._spark_paths(numbers, direction)
        types, ids = self._names
        tables = []
        for number in numbers:
            distance = algorithms.distances(self._network, number, direction)
            reached = np.flatnonzero(np.isfinite(distance))
            positions = pa.array(reached)
            source = node_names(types, ids, np.full(len(reached), number))
            columns = [source, types.take(positions), ids.combine_chunks().take(positions), pa.array(distance[reached])]
            tables.append(pa.table(columns, names=["source", "type", "id", "distance"]))
        empty = pa.schema([(name, pa.utf8()) for name in ("source", "type", "id")] + [("distance", pa.float64())])
        return TableOutcome(self._target, "distance", pa.concat_tables([empty.empty_table(), *tables]))

    def _spark_paths(self, numbers: Sequence[int], direction: Direction) -> Outcome:
        from pyspark.sql import functions as sql

        from omnigraph.pipeline.analytics import spark_algorithms

        found = spark_algorithms.distances(self._spark_network, numbers, direction)
        nodes = self._spark_network.nodes
        source = nodes.select(sql.col("number").alias("from"), sql.concat_ws(":", "type", "id").alias("source"))
        rows = found.join(source, "from").join(nodes, "number")
        order = rows.orderBy("from", "number").select("source", "type", "id", "distance")
        return FrameOutcome(self._target, "distance", order, self._spark_session)

    # Methods that read the input

    @cached_property
    def _network(self) -> Network:
        return network(self._view, self._catalog, self._selection)

    @cached_property
    def _names(self) -> tuple[pa.Array, pa.ChunkedArray]:
        return names(self._view, self._selection)

    @property
    def _spark_session(self) -> Session:
        return self._session or process_session()

    @cached_property
    def _spark_network(self) -> SparkNetwork:
        from omnigraph.pipeline.analytics.spark_algorithms import spark_network

        spark = self._spark_session.spark
        storage = {f"storage.{name}": value for name, value in self._snapshot.uri.storage_options.items()}
        options = {"path": str(self._snapshot.uri), "commit": self._snapshot.commit.id, **storage}
        return spark_network(spark, options, self._catalog, self._selection)

    # Methods that build the result

    @property
    def _target(self) -> tuple[Graph, Snapshot, TypeSelection]:
        return self._graph, self._snapshot, self._selection

    def _table(self, values: pa.Array, name: str) -> Outcome:
        types, ids = self._names
        return TableOutcome(self._target, name, pa.table([types, ids, values], names=["type", "id", name]))

    def _frame(self, values: DataFrame, name: str) -> Outcome:
        rows = self._spark_network.nodes.join(values, "number").orderBy("number")
        return FrameOutcome(
            self._target, name, rows.select("type", "id", values["value"].alias(name)), self._spark_session
        )

    def _node_values(self, values: DataFrame, name: str) -> Outcome:
        """A result whose values are names of nodes, as `Type:id`."""
        from pyspark.sql import functions as sql

        nodes = self._spark_network.nodes
        named = nodes.select(sql.col("number").alias("value"), sql.concat_ws(":", "type", "id").alias(name))
        rows = nodes.join(values, "number").join(named, "value").orderBy("number")
        return FrameOutcome(self._target, name, rows.select("type", "id", name), self._spark_session)


def _check_iterations(iterations: int) -> None:
    if iterations < 1:
        raise InputError(f"iterations must be at least 1, not {iterations}")
