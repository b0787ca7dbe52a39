"""The program for `spark-submit`: loads a graph by tasks, reads it back, and prints where tasks find the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from pyspark.sql import SparkSession

import omnigraph


def found(numbers: Iterable[int]) -> Iterable[str]:
    """The path from which a task imports the package."""
    import omnigraph

    yield str(omnigraph.__file__)


def main(place: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    graph = omnigraph.init(f"{place}/graph", "node Person { name: String @key }  edge Knows: Person -> Person")
    people = spark.range(100).selectExpr("concat('p', id) AS name")
    knows = spark.range(99).selectExpr("concat('p', id) AS `from`", "concat('p', id + 1) AS `to`")
    receipt = graph.pipeline.load(nodes={"Person": people}, edges={"Knows": knows}, mode="append")
    read = spark.read.format("omnigraph").option("type", "Knows").load(graph.uri)
    told = {
        "loaded": receipt.total,
        "read": read.where("`from` = 'p7'").select("to").collect()[0]["to"],
        "driver": str(omnigraph.__file__),
        "tasks": sorted(set(spark.sparkContext.parallelize(range(2), 2).mapPartitions(found).collect())),
    }
    sys.stdout.write(f"TOLD{json.dumps(told)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
