"""Spaces: the entities of a type as numbers, and their columns."""
