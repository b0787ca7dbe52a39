"""Patterns that are joins: two data sets in one database, eleven questions, and the three engines that answer them."""
