"""Upkeep: maintenance of a graph that never changes a query result."""
