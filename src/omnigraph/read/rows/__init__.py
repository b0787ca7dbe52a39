"""Rows of a match: which entity each variable is bound to in each row, and expressions over them."""
