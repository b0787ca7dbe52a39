"""Execution of physical plans."""
