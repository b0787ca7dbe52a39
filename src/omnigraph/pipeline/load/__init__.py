"""Loading on Spark: any volume, one commit."""

from omnigraph.pipeline.load.load import SparkOptions, load

__all__ = ["SparkOptions", "load"]
