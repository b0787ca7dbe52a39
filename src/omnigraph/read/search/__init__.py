"""Searching: texts by their words, vectors by their distance, and ranks of what a match leaves."""
