"""The graph algorithms as DataFrames, for graphs that do not fit into the memory of one process.

Nodes have the same numbers as in `network`, and all rules are the same, so the results are the same. The last digits of
PageRank may differ, because sums are computed in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.pipeline.analytics.algorithms import Direction
from omnigraph.pipeline.analytics.network import TypeSelection
from omnigraph.pipeline.frames import NAME

_POSITION_MASK = (1 << 33) - 1
"""Mask of the low bits of `monotonically_increasing_id`. They are the position of a row in its partition."""


@dataclass(frozen=True, slots=True)
class SparkNetwork:
    """Nodes and edges as cached DataFrames.

    Attributes:
        nodes: the columns `number` (the number of the node), `type` and `id`.
        edges: the columns `source` and `target` (node numbers), and `weight` if requested.
        count: the number of nodes.
    """

    nodes: DataFrame
    edges: DataFrame
    count: int


def spark_network(
    spark: SparkSession, options: Mapping[str, str], catalog: Catalog, selection: TypeSelection
) -> SparkNetwork:
    """The nodes and edges of the selected types of a snapshot.

    Args:
        spark: the session.
        options: the options that select the snapshot: `path`, `commit`, and storage options.
        catalog: the schema of the snapshot.
        selection: the selected types.

    Raises:
        InputError: an edge has no weight, or a negative one.
    """

    def read(key: str, columns: str) -> DataFrame:
        return spark.read.format(NAME).options(**options, type=key, columns=columns).load()

    found = [read(node_key(name), "id").select(sql.lit(name).alias("type"), "id") for name in selection.nodes]
    nodes = _numbered(reduce(DataFrame.unionAll, found, spark.createDataFrame([], "type string, id string")))
    wanted = "from,to" if selection.weight is None else f"from,to,{selection.weight}"
    lines = []
    for name in selection.edges:
        declared = catalog.edges[name]
        rows = read(edge_key(name), wanted)
        weight = () if selection.weight is None else (sql.col(selection.weight).cast("double").alias("weight"),)
        lines.append(
            rows.select(
                sql.lit(declared.from_type).alias("from_type"),
                "from",
                sql.lit(declared.to_type).alias("to_type"),
                "to",
                *weight,
            )
        )
    edges = _edges(spark, nodes, lines, selection)
    return SparkNetwork(nodes, edges, nodes.count())


def _edges(spark: SparkSession, nodes: DataFrame, lines: Sequence[DataFrame], selection: TypeSelection) -> DataFrame:
    weight = [] if selection.weight is None else ["weight"]
    if not lines:
        return spark.createDataFrame([], "source long, target long" + ", weight double" * len(weight))
    rows = reduce(DataFrame.unionAll, lines)
    source = nodes.select(
        sql.col("number").alias("source"), sql.col("type").alias("from_type"), sql.col("id").alias("from")
    )
    target = nodes.select(
        sql.col("number").alias("target"), sql.col("type").alias("to_type"), sql.col("id").alias("to")
    )
    made = rows.join(source, ["from_type", "from"]).join(target, ["to_type", "to"])
    edges = made.select("source", "target", *weight).localCheckpoint()
    if weight:
        wrong = edges.where("weight is null or weight < 0").limit(1).count()
        if wrong:
            raise InputError(
                f"the weight property '{selection.weight}' is null or negative on some edges",
                hint="every edge needs a weight of at least 0",
            )
    return edges


def _numbered(nodes: DataFrame) -> DataFrame:
    """Number the nodes in the order of type and id, partition by partition."""
    rows = nodes.repartitionByRange("type", "id").sortWithinPartitions("type", "id")
    position = sql.monotonically_increasing_id()
    placed = rows.select(
        "type",
        "id",
        sql.shiftright(position, 33).alias("part"),
        position.bitwiseAND(sql.lit(_POSITION_MASK)).alias("position"),
    ).localCheckpoint()
    first = 0
    base: Column = sql.lit(0)
    sizes = {row.part: row["count"] for row in placed.groupBy("part").count().collect()}
    for part in sorted(sizes):
        base = sql.when(sql.col("part") == part, sql.lit(first)).otherwise(base)
        first += sizes[part]
    return placed.select((base + sql.col("position")).cast("long").alias("number"), "type", "id").localCheckpoint()


def pagerank(network: SparkNetwork, damping: float, iterations: int, tolerance: float) -> DataFrame:
    """See `algorithms.pagerank`. Returns the columns `number` (of the node) and `rank`."""
    count = network.count
    degree = network.edges.groupBy(sql.col("source").alias("number")).count().withColumnRenamed("count", "degree")
    nodes = network.nodes.select("number").join(degree, "number", "left").localCheckpoint()
    ranks = nodes.withColumn("rank", sql.lit(1 / max(count, 1))).localCheckpoint()
    for _ in range(iterations if count else 0):
        lost = ranks.where("degree is null").agg(sql.sum("rank")).collect()[0][0] or 0.0
        passed = ranks.where("degree is not null").select(
            sql.col("number").alias("source"), (sql.col("rank") / sql.col("degree")).alias("share")
        )
        arriving = (
            network.edges.join(passed, "source")
            .groupBy(sql.col("target").alias("number"))
            .agg(sql.sum("share").alias("sum"))
        )
        rank = damping * (sql.coalesce("sum", sql.lit(0.0)) + lost / count) + (1 - damping) / count
        after = ranks.join(arriving, "number", "left").select(
            "number", "degree", rank.alias("rank"), sql.abs(rank - sql.col("rank")).alias("change")
        )
        after = after.localCheckpoint()
        change = after.agg(sql.sum("change")).collect()[0][0]
        ranks = after.drop("change")
        if change < tolerance * count:
            break
    return ranks.select("number", "rank")


def components(network: SparkNetwork) -> DataFrame:
    """See `algorithms.components`. Returns the columns `number` (of the node) and `root` (the smallest node number).

    The root of a node is the smallest node number that is known to be in its component. In each round, every node takes
    the smallest root of its neighbours, and then the root of that root. So the number of rounds grows with the
    logarithm of the length of the longest path.
    """
    both = _undirected(network.edges).where("source != target").distinct().localCheckpoint()
    roots = network.nodes.select("number", sql.col("number").alias("root")).localCheckpoint()
    while True:
        around = (
            both.join(roots.select(sql.col("number").alias("target"), "root"), "target")
            .groupBy(sql.col("source").alias("number"))
            .agg(sql.min("root").alias("near"))
        )
        lower = roots.join(around, "number", "left").select(
            "number", sql.col("root").alias("before"), sql.least("root", sql.coalesce("near", "root")).alias("low")
        )
        # The old root node also gets the smaller root. Then every root is replaced by its own root.
        passed = lower.groupBy(sql.col("before").alias("number")).agg(sql.min("low").alias("passed"))
        updated = (
            lower.join(passed, "number", "left")
            .select("number", "before", sql.least("low", sql.coalesce("passed", "low")).alias("low"))
            .localCheckpoint()
        )
        next_ = updated.select(sql.col("number").alias("low"), sql.col("low").alias("further"))
        after = updated.join(next_, "low").select("number", "before", sql.least("low", "further").alias("root"))
        after = after.localCheckpoint()
        changed = after.where("root != before").limit(1).count()
        roots = after.select("number", "root")
        if not changed:
            return roots


def labels(network: SparkNetwork, iterations: int) -> DataFrame:
    """See `algorithms.labels`. Returns the columns `number` (of the node) and `label`."""
    both = _undirected(network.edges).localCheckpoint()
    current = network.nodes.select("number", sql.col("number").alias("label")).localCheckpoint()
    for _ in range(iterations):
        seen = both.join(current.select(sql.col("number").alias("target"), "label"), "target")
        counted = seen.groupBy("source", "label").count()
        best = counted.groupBy(sql.col("source").alias("number")).agg(
            sql.max(sql.struct("count", (-sql.col("label")).alias("least"))).alias("best")
        )
        after = current.join(best, "number", "left").select(
            "number",
            sql.col("label").alias("before"),
            sql.coalesce(-sql.col("best.least"), sql.col("label")).alias("label"),
        )
        after = after.localCheckpoint()
        changed = after.where("label != before").limit(1).count()
        current = after.select("number", "label")
        if not changed:
            break
    return current


def triangles(network: SparkNetwork) -> DataFrame:
    """See `algorithms.triangles`. Returns the columns `number` (of the node) and `triangles`."""
    low, high = sql.least("source", "target").alias("a"), sql.greatest("source", "target").alias("b")
    pairs = network.edges.where("source != target").select(low, high).distinct().localCheckpoint()
    ends = pairs.select(sql.explode(sql.array("a", "b")).alias("number"))
    degree = ends.groupBy("number").agg(sql.count("*").alias("degree"))
    # Direct every edge from the end with the lower degree to the other end, so that out-degrees stay small.
    left = degree.select(sql.col("number").alias("a"), sql.struct("degree", "number").alias("left"))
    right = degree.select(sql.col("number").alias("b"), sql.struct("degree", "number").alias("right"))
    ordered = pairs.join(left, "a").join(right, "b")
    arrows = ordered.select(sql.least("left", "right").alias("near"), sql.greatest("left", "right").alias("far"))
    arrows = arrows.localCheckpoint()
    first = arrows.select("near", sql.col("far").alias("v"))
    second = arrows.select("near", sql.col("far").alias("w"))
    wedges = first.join(second, "near").where("v < w")
    closing = arrows.select(sql.col("near").alias("v"), sql.col("far").alias("w"))
    corners = wedges.join(closing, ["v", "w"]).select(
        sql.explode(sql.array("near.number", "v.number", "w.number")).alias("number")
    )
    counts = corners.groupBy("number").agg(sql.count("*").alias("found"))
    return network.nodes.join(counts, "number", "left").select(
        "number", sql.coalesce("found", sql.lit(0)).cast("long").alias("triangles")
    )


def distances(network: SparkNetwork, sources: Sequence[int], direction: Direction) -> DataFrame:
    """Distances from several sources, see `algorithms.distances`.

    Returns one row per source and reachable node, with the columns `from` (the number of the source), `number` (of the
    reachable node) and `distance`.
    """
    spark = network.edges.sparkSession
    turned: Mapping[Direction, Callable[[DataFrame], DataFrame]] = {
        Direction.OUT: lambda edges: edges,
        Direction.IN: _reversed,
        Direction.BOTH: _undirected,
    }
    edges = turned[direction](network.edges)
    if "weight" not in edges.columns:
        edges = edges.withColumn("weight", sql.lit(1.0))
    edges = edges.groupBy("source", "target").agg(sql.min("weight").alias("weight")).localCheckpoint()
    rows = [(number, number, 0.0) for number in sources]
    found = spark.createDataFrame(rows, "from long, number long, distance double").localCheckpoint()
    frontier = found
    while frontier.limit(1).count():
        reached = (
            frontier.join(edges, frontier["number"] == edges["source"])
            .groupBy("from", sql.col("target").alias("number"))
            .agg(sql.min(sql.col("distance") + sql.col("weight")).alias("next"))
        )
        joined = found.join(reached, ["from", "number"], "full").select(
            "from",
            "number",
            sql.least(sql.coalesce("distance", "next"), sql.coalesce("next", "distance")).alias("now"),
            sql.coalesce(sql.col("next") < sql.col("distance"), sql.col("distance").isNull()).alias("nearer"),
        )
        joined = joined.withColumnRenamed("now", "distance").localCheckpoint()
        found = joined.drop("nearer")
        frontier = joined.where("nearer").drop("nearer")
    return found


def _reversed(edges: DataFrame) -> DataFrame:
    """All edges reversed."""
    rest = [name for name in edges.columns if name not in ("source", "target")]
    return edges.select(sql.col("target").alias("source"), sql.col("source").alias("target"), *rest)


def _undirected(edges: DataFrame) -> DataFrame:
    """All edges in both directions."""
    return edges.unionAll(_reversed(edges))
