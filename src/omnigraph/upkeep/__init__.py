"""Upkeep: what keeps a graph quick, and never changes an answer."""
