"""Restricted graphs: a graph as an actor sees it who may not see all rows, types and properties."""
