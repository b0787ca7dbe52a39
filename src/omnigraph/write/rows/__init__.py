"""Rows: raw rows become typed rows with ids and defaults."""
