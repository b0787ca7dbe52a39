"""Maintenance of a graph. It never changes a query result."""
