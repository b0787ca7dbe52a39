"""Converts exports of other graph databases to a schema and files that a load takes."""
