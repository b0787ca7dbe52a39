"""The same algorithms as DataFrames, for graphs that do not fit the memory of one process.

Nodes get the same numbers as in this process, and every rule is the same, so that a result does not depend on where it
was computed. Of PageRank the last digits may differ: sums are added up in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from omnigraph.errors import InputError
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.pipeline.analytics.algorithms import Direction
from omnigraph.pipeline.analytics.network import Parts
from omnigraph.pipeline.frames import NAME

_IN_PARTITION = (1 << 33) - 1
"""What `monotonically_increasing_id` counts with inside of a partition."""


@dataclass(frozen=True, slots=True)
class SparkNetwork:
    """Nodes and edges as DataFrames that Spark keeps.

    Attributes:
        nodes: `number`, `type`, `id`.
        edges: `source`, `target`, and `weight` where that was asked for; as numbers.
        count: how many nodes there are.
    """

    nodes: DataFrame
    edges: DataFrame
    count: int


def spark_network(spark: SparkSession, options: Mapping[str, str], catalog: Catalog, parts: Parts) -> SparkNetwork:
    """The nodes and edges of some types of a snapshot.

    Args:
        spark: the session.
        options: what names the snapshot: `path`, `commit`, and storage options.
        catalog: its schema.
        parts: the types.

    Raises:
        InputError: an edge has no weight, or one below zero.
    """

    def read(key: str, columns: str) -> DataFrame:
        return spark.read.format(NAME).options(**options, type=key, columns=columns).load()

    found = [read(node_key(name), "id").select(sql.lit(name).alias("type"), "id") for name in parts.nodes]
    nodes = _numbered(reduce(DataFrame.unionAll, found, spark.createDataFrame([], "type string, id string")))
    wanted = "from,to" if parts.weight is None else f"from,to,{parts.weight}"
    lines = []
    for name in parts.edges:
        declared = catalog.edges[name]
        rows = read(edge_key(name), wanted)
        weight = () if parts.weight is None else (sql.col(parts.weight).cast("double").alias("weight"),)
        lines.append(
            rows.select(
                sql.lit(declared.from_type).alias("from_type"),
                "from",
                sql.lit(declared.to_type).alias("to_type"),
                "to",
                *weight,
            )
        )
    edges = _edges(spark, nodes, lines, parts)
    return SparkNetwork(nodes, edges, nodes.count())


def _edges(spark: SparkSession, nodes: DataFrame, lines: Sequence[DataFrame], parts: Parts) -> DataFrame:
    weight = [] if parts.weight is None else ["weight"]
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
            raise InputError(f"some edges have no {parts.weight}, or one below zero", hint="every edge needs a weight")
    return edges


def _numbered(nodes: DataFrame) -> DataFrame:
    """Nodes with their places in the order of types and ids, without bringing them all to one place."""
    rows = nodes.repartitionByRange("type", "id").sortWithinPartitions("type", "id")
    place = sql.monotonically_increasing_id()
    kept = rows.select(
        "type",
        "id",
        sql.shiftright(place, 33).alias("part"),
        place.bitwiseAND(sql.lit(_IN_PARTITION)).alias("place"),
    ).localCheckpoint()
    first = 0
    base: Column = sql.lit(0)
    sizes = {row.part: row["count"] for row in kept.groupBy("part").count().collect()}
    for part in sorted(sizes):
        base = sql.when(sql.col("part") == part, sql.lit(first)).otherwise(base)
        first += sizes[part]
    return kept.select((base + sql.col("place")).cast("long").alias("number"), "type", "id").localCheckpoint()


def pagerank(network: SparkNetwork, damping: float, iterations: int, tolerance: float) -> DataFrame:
    """See `algorithms.pagerank`. Gives `number` and `rank`."""
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
    """See `algorithms.components`. Gives `number` and `root`.

    In each round every node takes the least of the roots around it, and then the root of that root, so that the number
    of rounds follows the logarithm of the longest way.
    """
    both = _both(network.edges).where("source != target").distinct().localCheckpoint()
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
        # What a node learned, its root learns too; then everyone asks the root for its root.
        told = lower.groupBy(sql.col("before").alias("number")).agg(sql.min("low").alias("told"))
        learned = (
            lower.join(told, "number", "left")
            .select("number", "before", sql.least("low", sql.coalesce("told", "low")).alias("low"))
            .localCheckpoint()
        )
        next_ = learned.select(sql.col("number").alias("low"), sql.col("low").alias("further"))
        after = learned.join(next_, "low").select("number", "before", sql.least("low", "further").alias("root"))
        after = after.localCheckpoint()
        changed = after.where("root != before").limit(1).count()
        roots = after.select("number", "root")
        if not changed:
            return roots


def labels(network: SparkNetwork, iterations: int) -> DataFrame:
    """See `algorithms.labels`. Gives `number` and `label`."""
    both = _both(network.edges).localCheckpoint()
    own = network.nodes.select("number", sql.col("number").alias("label")).localCheckpoint()
    for _ in range(iterations):
        seen = both.join(own.select(sql.col("number").alias("target"), "label"), "target")
        counted = seen.groupBy("source", "label").count()
        best = counted.groupBy(sql.col("source").alias("number")).agg(
            sql.max(sql.struct("count", (-sql.col("label")).alias("least"))).alias("best")
        )
        after = own.join(best, "number", "left").select(
            "number",
            sql.col("label").alias("before"),
            sql.coalesce(-sql.col("best.least"), sql.col("label")).alias("label"),
        )
        after = after.localCheckpoint()
        changed = after.where("label != before").limit(1).count()
        own = after.select("number", "label")
        if not changed:
            break
    return own


def triangles(network: SparkNetwork) -> DataFrame:
    """See `algorithms.triangles`. Gives `number` and `triangles`."""
    low, high = sql.least("source", "target").alias("a"), sql.greatest("source", "target").alias("b")
    pairs = network.edges.where("source != target").select(low, high).distinct().localCheckpoint()
    ends = pairs.select(sql.explode(sql.array("a", "b")).alias("number"))
    degree = ends.groupBy("number").agg(sql.count("*").alias("degree"))
    # Every edge leads from the end with fewer edges, so that no node has many.
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
    """See `algorithms.distances`, from several nodes. Gives `from`, `number` and `distance` of what is reached."""
    spark = network.edges.sparkSession
    turned: Mapping[Direction, Callable[[DataFrame], DataFrame]] = {
        Direction.OUT: lambda edges: edges,
        Direction.IN: _turned,
        Direction.BOTH: _both,
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


def _turned(edges: DataFrame) -> DataFrame:
    """Every edge the other way."""
    rest = [name for name in edges.columns if name not in ("source", "target")]
    return edges.select(sql.col("target").alias("source"), sql.col("source").alias("target"), *rest)


def _both(edges: DataFrame) -> DataFrame:
    """Every edge both ways."""
    return edges.unionAll(_turned(edges))
