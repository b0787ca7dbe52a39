"""Loading on Spark: any volume, one commit."""
