"""Topologies: the edges of a type in CSR form, cached in memory and on disk, updated incrementally."""
