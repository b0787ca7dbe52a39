"""Rows of a match: which entity each variable holds in each row, and expressions over them."""
