"""Rows: builds typed rows with ids and defaults from raw rows."""
