"""Exports: a whole snapshot in files."""
