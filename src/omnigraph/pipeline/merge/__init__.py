"""Merges on Spark: tables are compared by tasks, and committed here."""

from omnigraph.pipeline.merge.on_spark import MergeOptions, SparkComparer, merge

__all__ = ["MergeOptions", "SparkComparer", "merge"]
