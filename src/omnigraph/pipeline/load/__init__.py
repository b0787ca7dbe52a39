"""Load on Spark: input of any size, as one commit."""
