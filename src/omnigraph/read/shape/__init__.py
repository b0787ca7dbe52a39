"""Shaping: columns, groups, order and limit over the rows of a match."""
