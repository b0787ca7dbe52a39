"""Loading on Spark: any volume, one commit."""

from omnigraph.pipeline.load.driver import SparkOptions, load

__all__ = ["SparkOptions", "load"]
