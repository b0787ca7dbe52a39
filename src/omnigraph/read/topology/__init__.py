"""Topologies: the edges of a type as arrays of numbers, and how they are kept."""
