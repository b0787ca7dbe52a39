"""Matching: the rows for which everything in a pattern holds."""
